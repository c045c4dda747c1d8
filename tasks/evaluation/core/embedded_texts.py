"""Released texts and private documents as points, each text embedded once for all metrics of an evaluation.

Points of private documents live in memory, as long as the evaluation; none are ever written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core.intervals import Interval
from tasks.evaluation.core.subject import EvaluationInput
from tasks.evaluation.core.subsample import sample
from tasks.text.interfaces import Embedder, Points
from tasks.values.results import MetricValue, rounded

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
