"""Input of metrics: released texts, private documents, subsamples of them, their points, and tools.

Released texts and private documents as points, each text embedded once for all metrics of an evaluation. Points of
private documents live in memory, as long as the evaluation; none are ever written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.in_context.result import InContextResult
from tasks.evaluation.intervals import Interval
from tasks.text.public_models import Embedder, Points, Tagger
from tasks.values.results import MetricValue, rounded


class ReleasedText(Protocol):
    """One released text, as generation returns it."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def tokens(self) -> int:
        """Number of tokens of the generating model, without the end token."""

    @property
    def complete(self) -> bool:
        """False if it was cut at the token limit."""

    @property
    def label(self) -> str | None:
        """The public label it was made for, where the request declares labels."""


Scorer: TypeAlias = Callable[[Sequence[str]], Sequence[tuple[float, int]]]
"""Function that returns for each text the sum of its tokens' log-probabilities (nats), and their number."""

Documents: TypeAlias = Callable[[], Iterable[str]]
"""Opens a new pass over private documents."""


LabelledDocuments: TypeAlias = Callable[[], Iterable[tuple[str, str]]]
"""Opens a new pass over private documents and their labels, (text, label)."""


class DocumentMap(Protocol):
    """Applies a function to the private documents of each shard, on workers."""

    def __call__(self, make: Callable[[], Callable[[Sequence[str]], Any]]) -> Iterable[Any]:
        """Yield the result for each shard, in no meaningful order.

        Args:
            make: makes the function, in the worker; it must be one of the documents alone.
        """


class Judge(Protocol):
    """A public model that answers questions about texts."""

    @property
    def name(self) -> str:
        """Model and revision, recorded with each figure."""

    def __call__(
        self, instruction: str, contents: Sequence[str], question: str, answers: Sequence[str]
    ) -> NDArray[np.float64]:
        """Return the log-probability of each answer, in nats: float64 [contents, answers]."""


Pair: TypeAlias = tuple[str, str]
"""A text and its label."""


class Learner(Protocol):
    """A public model that labels texts after it has read a few labelled ones."""

    @property
    def name(self) -> str:
        """Model and revision, recorded with each figure."""

    def __call__(
        self, items: Sequence[Pair], pool: Sequence[Pair], shots: int, seeds: Sequence[int]
    ) -> tuple[InContextResult, InContextResult]:
        """Results on `items` with `shots` of the pool, chosen by each seed, and with none."""


@dataclass(frozen=True)
class EvaluationInput:
    """Release to evaluate, and the data and tools for comparison.

    Attributes:
        texts: the released texts.
        score: a public model's log-likelihood; None if no model is at hand.
        documents: the private documents, or a sample of them; None for everything but internal metrics.
        schema: the public JSON schema that a release of records declares; None if it declares none.
        embed: a public embedder; None if none is at hand.
        tag: a public tagger; None if none is at hand.
        judge: a public model that judges; None if none is at hand.
        learn: a public model that learns in context; None if none is at hand.
        labelled: the private documents with their labels; None if they have none, and for everything but internal
            metrics.
        by_shard: the private documents on workers; None if there are no workers, and without documents.
    """

    texts: Sequence[ReleasedText]
    score: Scorer | None = None
    documents: Documents | None = None
    schema: Mapping[str, Any] | None = None
    embed: Embedder | None = None
    tag: Tagger | None = None
    labelled: LabelledDocuments | None = None
    judge: Judge | None = None
    learn: Learner | None = None
    by_shard: DocumentMap | None = None

    def require_documents(self) -> Documents:
        """Return the private documents, for an internal metric.

        Raises:
            ValueError: there are none.
        """
        if self.documents is None:
            raise ValueError("an internal metric needs the private documents")
        return self.documents


Document = TypeVar("Document")


def sample(documents: Iterable[Document], most: int) -> list[Document]:
    """Return a uniform sample of at most `most` documents, in their order; one pass that holds no more than these.

    Vitter, "Random Sampling with a Reservoir", ACM TOMS 11, 1985, algorithm R, from an ordinary generator with a fixed
    start: it serves internal figures only, and a figure should come out the same twice.
    """
    generator = np.random.default_rng(0)
    reservoir: list[tuple[int, Document]] = []
    for number, document in enumerate(documents):
        if number < most:
            reservoir.append((number, document))
        elif (place := int(generator.integers(number + 1))) < most:
            reservoir[place] = (number, document)
    return [document for _, document in sorted(reservoir, key=lambda pair: pair[0])]


def halves(documents: Iterable[str], most: int) -> tuple[list[str], list[str]]:
    """Return two disjoint samples of at most `most` documents each, in no order; drawn as `sample` draws."""
    sampled = sample(documents, 2 * most)
    order: list[int] = np.random.default_rng(1).permutation(len(sampled)).tolist()
    shuffled = [sampled[place] for place in order]
    return shuffled[:most], shuffled[most:]


MOST = 2000
"""Released texts, and documents, that are read: a sample where there are more."""

READ = f"at most {MOST} texts and {MOST} documents, sampled with a fixed ordinary random start"


@dataclass(frozen=True)
class ReleaseAndCorpus:
    """Embeddings of a release and of its corpus, for comparison; `documents` and `private` are private.

    Attributes:
        texts: released texts.
        documents: private documents.
        released: one row for each text.
        private: one row for each document.
        embedder: name of the embedder that made the rows.
    """

    texts: Sequence[str]
    documents: Sequence[str] = field(repr=False)
    released: Points
    private: Points = field(repr=False)
    embedder: str

    def matched(self) -> "MatchedTexts":
        """Return as many texts as documents, for figures that depend on their number."""
        count = min(len(self.texts), len(self.documents))
        # The order of the source may mean something, so that its first documents are not like the rest.
        texts, documents = (np.random.default_rng(0).permutation(len(side)) for side in (self.released, self.private))
        others = self.private[documents[count : 2 * count]]
        return MatchedTexts(
            self.released[texts[:count]], self.private[documents[:count]], others if len(others) == count else None
        )


@dataclass(frozen=True)
class MatchedTexts:
    """Embeddings of equal numbers of texts and documents.

    Attributes:
        released: [n, d].
        private: [n, d].
        others: [n, d] of other documents, to see what a perfect release would score; None if there are too few.
    """

    released: Points
    private: Points = field(repr=False)
    others: Points | None = field(repr=False)


def sides(subject: EvaluationInput) -> ReleaseAndCorpus | None:
    """Return both sides of a subject; None, before anything is embedded, where one of them is empty.

    Raises:
        ValueError: the subject lacks the documents or the embedder.
    """
    private = subject.require_documents()
    texts = released_texts(subject)
    documents = sample(private(), MOST) if texts else []
    if not documents:
        return None
    embed = embedder_of(subject)
    return ReleaseAndCorpus(texts, documents, points(embed, texts), points(embed, documents), embed.name)


def released_texts(subject: EvaluationInput) -> list[str]:
    """Return the released texts, or a sample of them; an empty one counts."""
    return sample((text.text for text in subject.texts), MOST)


def embedder_of(subject: EvaluationInput) -> Embedder:
    """Return the subject's embedder.

    Raises:
        ValueError: it has none.
    """
    if subject.embed is None:
        raise ValueError("this metric needs a public embedder")
    return subject.embed


def points(embed: Embedder, texts: Sequence[str]) -> Points:
    """Rows in float64, scaled to length 1 again, so that the cosine of equal texts is 1 to the last places."""
    rows = embed(texts).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0), np.float64)


def figure(name: str, value: float | None, interval: Interval | None, places: int = 4) -> dict[str, MetricValue]:
    """Return a figure and the ends of its interval, under their names."""
    low, high = interval or (None, None)
    return {name: rounded(value, places), f"{name}_low": rounded(low, places), f"{name}_high": rounded(high, places)}


def blocks(rows: Points, others: Points, most: int = 4_000_000) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield the cosines of `rows` with all `others`, some rows at a time: (which rows, float64 [some, m])."""
    step = max(1, most // max(1, len(others)))
    for start in range(0, len(rows), step):
        part = slice(start, min(start + step, len(rows)))
        yield part, rows[part] @ others.T
