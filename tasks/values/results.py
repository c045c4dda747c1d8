"""Results of a release, by its kind: texts and insights, the values released on the way, and what metrics measured.

The stages of an insights release exchange facets, insights, and the budget between them. A metric's result is a frozen
value that states who may see it (PRIVACY §7).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final, Literal, Protocol, TypeAlias, TypeVar, get_args

from models_db.values.canonical_json import Json


class ReleaseKind(StrEnum):
    """Kind of a release: texts one after another, a summary of each group, or a hierarchy of insights."""

    SYNTHETIC_CORPUS = "synthetic_corpus"
    SUMMARIES = "summaries"
    INSIGHTS = "insights"
    DEMONSTRATIONS = "demonstrations"
    RECORDS = "records"


TEXT_KINDS: Final = (ReleaseKind.SYNTHETIC_CORPUS, ReleaseKind.DEMONSTRATIONS, ReleaseKind.RECORDS)
"""Kinds of releases that are texts one after another; they differ in the fields of a line of the release."""


TEXTS_FILE = "texts.jsonl"
"""The file of the rows of a release."""

SUMMARY, KEYWORDS = "summary", "keywords"
"""The two fields of every facet schema that later stages use: for embeddings, and as candidates for keyword sets."""

SIZE_DEVIATION = "standard deviation of a size"
"""The public parameter of a plan that says how much noise the size of a cluster bears, in units; a plain decimal."""

ANSWER_MARGIN = "margin of error of a count, 95 %"
"""The public parameter of a plan of questions that says how far a count may be off, in units; an integer.

It comes from the noise alone: a noisy count is within the margin of the count that the rule made in at least 19 of 20
draws, each count by itself.
"""

SMALLEST_CLUSTER = "smallest cluster"
"""The public parameter of a plan that says below which noisy size a cluster is left out, in units; an integer."""

COUNT_DEVIATION = "standard deviation of a keyword count"
"""The public parameter of a plan that says how much noise the count of a keyword bears, in units; a plain decimal."""

SMALLEST_COUNT = "smallest keyword count"
"""The public parameter of a plan that says from which noisy count on a keyword has support; an integer."""

SMALLEST_SHARE = "smallest keyword share"
"""The public parameter of a plan that says from which share of a cluster's noisy size on a keyword has support."""

UNNAMED = "Unnamed"
"""The name of a topic of which no keyword has support."""

MIXED = "Mixed"
"""The name of a group none of whose keywords belongs to most of its members."""

Origin: TypeAlias = Literal["selected", "request", "built_in"]
"""Origin of a keyword: selected from the data, public words of the request, or built-in words."""

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
        keywords: released keywords, the most telling first.
        size: a noisy number of units, of a node above others the sum of theirs; it may be negative. None if it was
            not measured.
        support: how many of its units chose each keyword, with noise: of a node above others the sum of theirs, where
            one that does not list a keyword adds nothing. None if it was not counted.
        origins: where each keyword comes from; None if all are words of the corpus.
        clusters: how many released clusters its size is a sum of.
    """

    number: int
    parent: int | None
    level: int
    topic: Topic
    keywords: tuple[str, ...]
    size: int | None
    support: tuple[int, ...] | None = None
    origins: tuple[Origin, ...] | None = None
    clusters: int = 1

    def __post_init__(self) -> None:
        for name, beside in (("support", self.support), ("origins", self.origins)):
            if beside is not None and len(beside) != len(self.keywords):
                raise ValueError(f"{len(self.keywords)} keywords have {len(beside)} values of {name}")


@dataclass(frozen=True)
class SupportRule:
    """Thresholds of noisy counts for a keyword to belong to a cluster; both are public.

    Attributes:
        count: the least noisy count.
        share: the least share of the cluster's noisy size.
    """

    count: int
    share: Fraction

    def holds(self, count: int, size: int) -> bool:
        """Return whether so many of so many units support a keyword; both are noisy, and may be negative."""
        return count >= max(self.count, 1) and count >= self.share * size


NORMAL_95 = Decimal("1.96")
"""Two-sided 95 % quantile of a normal variable."""


def margin_of_error(deviation: Decimal, counts: int = 1) -> int:
    """Return the 95 % margin of error of a sum of noisy counts with independent discrete Gaussian noise, in units.

    1.96 standard deviations, rounded up to a whole unit. The sum of n discrete Gaussian variables of scale sigma has a
    variance of n sigma^2 at most (Canonne, Kamath, Steinke, arXiv 2004.00010, section 2), and rounding up covers what
    its tail has more than the normal one: tests compute the coverage exactly.

    Args:
        deviation: sigma, in units.
        counts: how many counts are summed.
    """
    return math.ceil(NORMAL_95 * deviation * Decimal(counts).sqrt())


def size_with_margin(size: int, deviation: Decimal, counts: int = 1) -> str:
    """Return a noisy size from 0 on with its margin of error: `1,204 \N{PLUS-MINUS SIGN}25`."""
    return f"{max(0, size):,} \N{PLUS-MINUS SIGN}{margin_of_error(deviation, counts):,}"


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


@dataclass(frozen=True)
class GeneratedText:
    """One released text.

    Attributes:
        complete: False if it was cut at the token limit.
        label: the public label of its batch, where the request declares labels.
        facts: public figures beside it (mean number of candidates, ...): functions of released tokens and of public
            logits alone, so post-processing.
        insight: the node of a hierarchy that it describes, in a release of insights.
    """

    text: str
    tokens: int
    complete: bool
    label: str | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    insight: Insight | None = None


@dataclass(frozen=True)
class Generated:
    """All texts of a release in a public order, and figures that charged mechanisms released on the way.

    Attributes:
        values: everything that was released, where more texts can be made of that alone; kept for `release extend`.
    """

    texts: tuple[GeneratedText, ...]
    released: Mapping[str, str] = field(default_factory=dict)
    values: Json = None


Exposure: TypeAlias = Literal["public", "charged", "internal"]
"""`public`: from public or released data alone. `charged`: private data, through a charged mechanism.
`internal`: private data, unprotected; a decision that has seen one is not differentially private."""

MetricValue: TypeAlias = "str | int | None"


@dataclass(frozen=True)
class MetricResult:
    """One metric of one release.

    Attributes:
        name: the metric's stable name, as requests use it.
        exposure: the audience of the result, and the time from which they may see it.
        values: the figures: counts as integers, reals as decimal strings, null if nothing could be measured.
        source: where the metric is defined.
        method: how this figure was computed.
        line: the result in one line, for people.
    """

    name: str
    exposure: Exposure
    values: Mapping[str, MetricValue]
    source: str
    method: str
    line: str

    def to_json(self) -> dict[str, Json]:
        """Return the stable stored form, without floats."""
        return {
            "name": self.name,
            "exposure": self.exposure,
            "values": dict(self.values),
            "source": self.source,
            "method": self.method,
            "line": self.line,
        }

    @classmethod
    def from_json(cls, stored: Json) -> "MetricResult":
        """Read the stored form back.

        Raises:
            ValueError: it is not one of ours.
        """
        texts = ("name", "exposure", "source", "method", "line")
        if not isinstance(stored, Mapping) or set(stored) != {*texts, "values"}:
            raise ValueError("a metric has exactly name, exposure, values, source, method and line")
        values = stored["values"]
        if not all(isinstance(stored[key], str) for key in texts) or stored["exposure"] not in get_args(Exposure):
            raise ValueError("a metric's name, source, method and line are text, its exposure one of three words")
        if not isinstance(values, Mapping) or not all(isinstance(v, str | int | None) for v in values.values()):
            raise ValueError("a metric's values are integers, text or null")
        return cls(**{**stored, "values": dict(values)})  # type: ignore[arg-type]  # just checked, field by field


def rounded(value: float | None, places: int) -> str | None:
    """`value` as a decimal string of that many places; None if there is none or it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return format(Decimal(value), f".{places}f")
