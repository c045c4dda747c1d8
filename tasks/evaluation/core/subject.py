"""Input of metrics: released texts, private documents and tools."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core.in_context_result import InContextResult
from tasks.text.interfaces import Embedder, Tagger


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
