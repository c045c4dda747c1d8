"""Values that the stages of an insights release exchange: facets in, insights out, and the budget between."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from models_db.values.canonical_json import Json

SUMMARY, KEYWORDS = "summary", "keywords"
"""The two fields of every facet schema that later stages know: what is embedded, and what keyword sets start from."""

SIZE_DEVIATION = "standard deviation of a size"
"""The public parameter of a plan that says how much noise the size of a cluster bears, in units; a plain decimal."""

SMALLEST_CLUSTER = "smallest cluster"
"""The public parameter of a plan that says below which noisy size a cluster is left out, in units; an integer."""

Prepared = TypeVar("Prepared")


@dataclass(frozen=True)
class Facets:
    """Extracts from one unit's documents. Private, and absent from its own repr.

    Attributes:
        values: for each field of the public schema, in its order, the phrases found; a field of one text has one.
    """

    values: Mapping[str, tuple[str, ...]] = field(repr=False)

    @property
    def summary(self) -> str:
        """Text that is embedded."""
        return " ".join(self.values.get(SUMMARY, ()))

    @property
    def keywords(self) -> tuple[str, ...]:
        """The unit's own keywords, the best first."""
        return self.values.get(KEYWORDS, ())

    @property
    def text(self) -> str:
        """All fields together, one a line."""
        return "\n".join("; ".join(phrases) for phrases in self.values.values())


@dataclass(frozen=True)
class Topic:
    """Text of a public model about released keywords."""

    name: str
    description: str


@dataclass(frozen=True)
class Insight:
    """One released node of the hierarchy.

    Attributes:
        number: from 1, in the public order of the release: parents before their children.
        parent: the number of the node above it; None at the top.
        level: 0 for clusters, 1 for groups of clusters, and so on upwards.
        topic: its name and description.
        keywords: released keywords, the most frequent first.
        size: a noisy number of units, of a node above others the sum of theirs; it may be negative. None where it was
            not measured.
    """

    number: int
    parent: int | None
    level: int
    topic: Topic
    keywords: tuple[str, ...]
    size: int | None


class StageBudget(Protocol):
    """Pays for the mechanisms of one stage; they are numbered in the order of the stage's events, from 0."""

    def release(
        self, numbers: int | Sequence[int], prepare: Callable[[], Prepared], draw: Callable[[Prepared], Json]
    ) -> Json:
        """Release a mechanism's value: armed, prepared, drawn and stored, in this order, once.

        What an earlier attempt has written down is returned, and neither `prepare` nor `draw` is called. An attempt
        that died while it prepared has paid, and nothing was drawn: the next one draws with what is paid. One that
        died while it drew has lost what it paid for.

        Args:
            numbers: the mechanism; or several in a row that are drawn together, because what the first of them gives
                is not to be kept by itself; or none of them, for what is made of earlier releases and would not be made
                again alike, such as a model's choice. A stage has one such at most.
            prepare: reads private data, as long as that takes; it draws no noise.
            draw: the mechanism itself, on what was prepared. What it returns is public from then on.
        """
