"""Wording for readers of insights: promises and warnings of each system, topics, and notes on their keywords.

Words for readers of insights that differ between systems: each a promise or a warning. The card and all other documents
of a release use them: other words are another format of the record.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Protocol

from tasks.common.published_values import rounded
from tasks.systems.insights.hierarchy_rules import require_hierarchy
from tasks.values.results import (
    COUNT_DEVIATION,
    SIZE_DEVIATION,
    SMALLEST_CLUSTER,
    SMALLEST_COUNT,
    SMALLEST_SHARE,
    Insight,
    Origin,
    SupportRule,
    margin_of_error,
)


class InsightsRecord(Protocol):
    """What a wording reads of the record of a release: its claim, the stored request, and the facts of its plan."""

    @property
    def claim(self) -> object | None:
        """The claim; None where nothing is claimed."""

    @property
    def request(self) -> Mapping[str, Any]:
        """The canonical request."""

    @property
    def facts(self) -> Mapping[str, str]:
        """The facts of its plan."""


@dataclass(frozen=True)
class InsightSentences:
    """Sentences on the making of a release of insights.

    Attributes:
        preprocessing: the processing of a unit's documents before anything is counted.
        contribution: how much one unit can contribute.
        personal: whether the rows hold information about a person.
        post_processing: what is made of the released values.
    """

    preprocessing: str
    contribution: str
    personal: str
    post_processing: str


class InsightWording(ABC):
    """Wording of the insights of a system.

    Attributes:
        rows: what a catalogue lists its rows as.
        nouns: what a row of the lowest level and one above it are called.
        sentences: on its making.
        page: the sentence below the title of a page of all rows; None for that on topics.
        comparable: whether the rows of two releases can be matched by their names.
        most_shown: most rows that a report shows; None for the usual number.
    """

    rows: str
    nouns: tuple[str, str]
    sentences: InsightSentences
    page: str | None = None
    comparable: bool = True
    most_shown: int | None = None

    @abstractmethod
    def written(self, record: InsightsRecord) -> str:
        """Return the sentence on the origin of the rows, with places for `{mechanism}` and `{model}`."""

    @abstractmethod
    def reading(self, record: InsightsRecord) -> tuple[str, ...]:
        """Return the paragraphs that readers of a release with a claim need; `**` marks emphasis."""

    @abstractmethod
    def rows_asked(self, record: InsightsRecord) -> int | None:
        """Return the requested number of rows of the lowest level; None where the request leaves it open."""

    @abstractmethod
    def require_rows(self, insights: Sequence[Insight], record: InsightsRecord) -> str:
        """Check that the rows are such as the request leads to, and return the finding.

        Raises:
            FileUnfit: they are not.
        """

    def size_with_margin(self, insight: Insight, record: InsightsRecord) -> str | None:
        """Return a size with its margin of error, in words; None where the margin is told once for all rows."""
        return None


WRITTEN: Final = (
    "Insights: topics of a corpus with noisy sizes, found through the mechanism {mechanism}. The language model {model}"
    " named and described them from released keywords alone"
)
WRITTEN_UNPROTECTED: Final = (
    "Insights: topics of a corpus with their sizes, found through the mechanism {mechanism}. The language model {model}"
    " named and described them after reading texts of the corpus"
)
_SENTENCES: Final = InsightSentences(
    preprocessing=(
        "All documents of a unit were joined into one text, in an order that a key fixes, and cut at a public length."
        " Facets and an embedding were computed from each unit's text by itself. Nothing was filtered, balanced"
        " or deduplicated across units."
    ),
    contribution=(
        "All documents of a unit are one row: one point, one count in one cluster, and at most a public number of"
        " keywords. Denominators are public."
    ),
    personal=(
        "No insight is a record of anybody: each is about many units, by figures with noise and keywords that a"
        " mechanism released. The claim bounds how far a detail of one unit can show in them; it does not cover people"
        " who are mentioned in a record without being its unit."
    ),
    post_processing=(
        "Names, descriptions and the hierarchy are made from released values by public models and rules: small clusters"
        " and rare keywords are left out by their noisy figures. Measurements marked public read only released values."
    ),
)

_NOISY: Final = (
    "**A size is a noisy number of units**, and each unit counts in one cluster at most.{deviation} Nothing in the"
    " release gives it more exactly."
)
_DEVIATION: Final = (
    " The noise of a cluster has a standard deviation of {one} units: about one size in three is off by more than"
    " that, one in twenty by more than {two}. A group's size is the sum of the sizes below it; its noise grows with"
    " the square root of their number."
)
_LEFT_OUT: Final = "**Small topics are missing**: {threshold}, and sizes do not add up to the number of units."
_THRESHOLD: Final = "clusters with a noisy size below {least} are left out"
_NO_THRESHOLD: Final = "the noise hides topics that few units share"
_KEYWORDS: Final = (
    "**Keywords** come from a closed set. The number beside a keyword says how many units of the topic chose it,"
    " counted with noise: {choice}.{sample} So more units may be about a keyword than chose it.{deviation}{rule} A"
    " group's numbers are sums over the topics that list the keyword. Keywords marked as the program's own or the"
    " request's own are public; they were not selected from the data."
)
_BY_WORDS: Final = (
    "each chose a few whose words occur in it, or, of several words, that it is close to by a public measure"
)
_BY_MODEL: Final = "the language model chose a few for each, and it can be wrong"
_SAMPLE: Final = " Only a sample chose, each unit with probability {share}: these numbers are of the sample."
_COUNT_DEVIATION: Final = (
    " The noise has a standard deviation of {one} units in each cluster; \N{PLUS-MINUS SIGN} after a count is its"
    " margin of error, 95 %, from the noise alone."
)
_RULE: Final = (
    " A topic lists a keyword if at least {count} units and a share of {share} of its size chose it, by these noisy"
    " numbers: **what is not listed may be there**, and a topic without such a keyword is called Unnamed."
)
_DESCRIBED: Final = (
    "**Names and descriptions** are a model's words, and are held to listed keywords: a name concerns the units that"
    " chose them, not all units of its topic. A group is named after keywords that its topics share, or called Mixed."
    " How the words are connected is the model's guess, and it can be wrong."
)
_ORIGINS: Final[Mapping[Origin, tuple[str, ...]]] = {
    "selected": (),
    "request": ("the request's own",),
    "built_in": ("the program's own",),
}


def deviation_of(record: InsightsRecord) -> Decimal | None:
    """Return the standard deviation of the noise in a cluster's size; None where the plan does not state it."""
    stated = record.facts.get(SIZE_DEVIATION)
    return None if stated is None else Decimal(stated)


def count_deviation_of(record: InsightsRecord) -> Decimal | None:
    """Return the standard deviation of the noise in a keyword's count; None where the plan does not state it."""
    stated = record.facts.get(COUNT_DEVIATION)
    return None if stated is None else Decimal(stated)


def support_of(record: InsightsRecord) -> SupportRule | None:
    """Return when a keyword of the release has support; None where the plan does not state it."""
    count, share = record.facts.get(SMALLEST_COUNT), record.facts.get(SMALLEST_SHARE)
    return None if count is None or share is None else SupportRule(int(count), Fraction(share))


def threshold_of(record: InsightsRecord) -> int | None:
    """Return the noisy size below which clusters are left out; None where there is no threshold."""
    stated = record.facts.get(SMALLEST_CLUSTER, record.request["parameters"].get("smallest_cluster"))
    return None if stated is None else int(stated)


def keyword_notes(insight: Insight, deviation: Decimal | None) -> tuple[str, ...]:
    """Return the note on each keyword, with its margin of error: `41 of 165 (±6), the program's own`.

    Args:
        deviation: standard deviation of the noise in a keyword's count in one cluster; None where it is not known.
    """
    counts = insight.support or (None,) * len(insight.keywords)
    origins = insight.origins or tuple[Origin, ...](("selected",)) * len(insight.keywords)
    noise = "" if deviation is None else f" (\N{PLUS-MINUS SIGN}{margin_of_error(deviation, insight.clusters)})"
    notes = []
    for count, origin in zip(counts, origins, strict=True):
        of = "" if insight.size is None else f" of {insight.size:,}"
        number = [] if count is None else [f"{count:,}{of}{noise}".replace("-", "\N{MINUS SIGN}")]
        notes.append(", ".join([*number, *_ORIGINS[origin]]))
    return tuple(notes)


def keywords_with_notes(insight: Insight, deviation: Decimal | None) -> tuple[str, ...]:
    """Return the keywords, each followed by its note: `python: 41 of 165 (±6)`."""
    pairs = zip(insight.keywords, keyword_notes(insight, deviation), strict=True)
    return tuple(f"{keyword}: {note}" if note else keyword for keyword, note in pairs)


def _deviation(stated: Decimal | None) -> str:
    return "" if stated is None else _DEVIATION.format(one=rounded(stated), two=rounded(2 * stated))


def _keywords(record: InsightsRecord) -> str:
    stated, rule, parameters = count_deviation_of(record), support_of(record), record.request["parameters"]
    share = Decimal(str(parameters.get("sampled", 1)))
    return _KEYWORDS.format(
        choice=_BY_MODEL if parameters.get("choice") == "model" else _BY_WORDS,
        sample="" if share == 1 else _SAMPLE.format(share=f"{float(share):g}"),
        deviation="" if stated is None else _COUNT_DEVIATION.format(one=rounded(stated)),
        rule="" if rule is None else _RULE.format(count=rule.count, share=f"{float(rule.share):g}"),
    )


class TopicWording(InsightWording):
    """Wording of systems that find topics."""

    rows = "topics"
    nouns = ("topic", "group")
    sentences = _SENTENCES

    def written(self, record: InsightsRecord) -> str:
        """Return the sentence on the origin of the topics."""
        return WRITTEN if record.claim else WRITTEN_UNPROTECTED

    def reading(self, record: InsightsRecord) -> tuple[str, ...]:
        """Return paragraphs on sizes, what is left out, keywords and descriptions."""
        least = threshold_of(record)
        threshold = _NO_THRESHOLD if least is None else _THRESHOLD.format(least=least)
        noise = _NOISY.format(deviation=_deviation(deviation_of(record)))
        return noise, _LEFT_OUT.format(threshold=threshold), _keywords(record), _DESCRIBED

    def rows_asked(self, record: InsightsRecord) -> int | None:
        """Return the requested number of clusters; None where it depends on the size of a public corpus."""
        parameters = record.request["parameters"]
        stated = parameters["clusters"]["count"] if "clusters" in parameters else parameters.get("count")
        return None if stated is None else int(stated)

    def require_rows(self, insights: Sequence[Insight], record: InsightsRecord) -> str:
        """Check that the topics are one hierarchy, within the request's bounds."""
        require_hierarchy(insights, self.rows_asked(record), threshold_of(record), support_of(record))
        return f"{len(insights)} insights, in one hierarchy"


TOPICS: Final = TopicWording()
