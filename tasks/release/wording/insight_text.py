"""The fixed words on a release of insights, each a promise or a warning: they change with docs/explorer.md.

Words of the card and of all files that tell of a release: other words are another format of the record.
"""

from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final

from tasks.common.strict_model import figure
from tasks.release.record import ReleaseRecord
from tasks.values.insight import SIZE_DEVIATION, SMALLEST_CLUSTER

WRITTEN: Final = (
    "Insights: topics of a corpus with noisy sizes, found through the mechanism {mechanism}. The language model {model}"
    " named and described them from released keywords alone"
)
WRITTEN_UNPROTECTED: Final = (
    "Insights: topics of a corpus with their sizes, found through the mechanism {mechanism}. The language model {model}"
    " named and described them and has read texts of the corpus for that"
)
ABOUT: Final = "The public description that the request gives of the corpus:"
PREPROCESSING: Final = (
    "All documents of a unit were joined into one text, in an order that a key fixes, and cut at a public length."
    " Facets and a point in a space of meanings were made of each unit's text by itself. Nothing was filtered, balanced"
    " or deduplicated across units."
)
CONTRIBUTION: Final = (
    "All documents of a unit are one row: one point, one count in one cluster, and a public number of keywords at most."
    " Denominators are public."
)
READ_WHERE: Final = "A unit is one row of each mechanism, in a block that a keyed function of its identifier decides."
PERSONAL: Final = (
    "No insight is a record of anybody: each is about many units, by figures with noise and keywords that a mechanism"
    " released. How far a detail of one unit can show in them is bounded by the claim; whoever is mentioned in a record"
    " without being its unit is not covered by it."
)
POST_PROCESSING: Final = (
    "Names, descriptions and the hierarchy are made from released values by public models and rules: small clusters and"
    " rare keywords are left out by their noisy figures. Measurements marked public read only what is released."
)

_HEAD: Final = "## How to read it"
_NOISY: Final = (
    "**A size is a noisy number of units**, and each unit counts in one cluster at most.{deviation} Nothing in the"
    " release tells it more exactly."
)
_DEVIATION: Final = (
    " The noise of a cluster has a standard deviation of {one} units: about one size in three is off by more than that,"
    " one in twenty by more than {two}. A group's size is the sum of those below it; its noise grows with the square"
    " root of their number."
)
_LEFT_OUT: Final = "**What is small is missing**: {threshold}, and sizes do not add up to the number of units."
_THRESHOLD: Final = "clusters with a noisy size below {least} are left out"
_NO_THRESHOLD: Final = "what few units have in common is drowned by the noise"
_KEYWORDS: Final = (
    "**Keywords** come from a closed set, and how often units of a cluster chose them was counted with noise: one may"
    " stand where few units, or none, had chosen it."
)
_DESCRIBED: Final = (
    "**Names and descriptions** are a model's words. It was told the keywords and nothing else, and it can be wrong."
)
_EXACT: Final = (
    "**Sizes are counts without noise**, and the model has read texts of the corpus: nothing here is protected."
)


def deviation_of(record: ReleaseRecord) -> Decimal | None:
    """The standard deviation of the noise in a cluster's size, where the plan says it."""
    stated = record.facts.get(SIZE_DEVIATION)
    return None if stated is None else Decimal(stated)


def threshold_of(record: ReleaseRecord) -> int | None:
    """Below which noisy size clusters are left out; None where none is."""
    stated = record.facts.get(SMALLEST_CLUSTER, record.request["parameters"].get("smallest_cluster"))
    return None if stated is None else int(stated)


def clusters_asked(record: ReleaseRecord) -> int | None:
    """How many clusters the request asks for; None where it leaves that to the size of a public corpus."""
    parameters = record.request["parameters"]
    stated = parameters["clusters"]["count"] if "clusters" in parameters else parameters.get("count")
    return None if stated is None else int(stated)


def reading(record: ReleaseRecord) -> tuple[str, ...]:
    """What whoever reads insights must know of them, a paragraph each; `**` marks what stands out."""
    if record.claim is None:
        return (_EXACT,)
    least = threshold_of(record)
    threshold = _NO_THRESHOLD if least is None else _THRESHOLD.format(least=least)
    noise = _NOISY.format(deviation=_deviation(deviation_of(record)))
    return noise, _LEFT_OUT.format(threshold=threshold), _KEYWORDS, _DESCRIBED


def how_to_read(record: ReleaseRecord) -> str:
    """The section of the card."""
    return "\n\n".join([_HEAD, *reading(record)])


def rounded(value: Decimal) -> str:
    """A figure in three significant digits."""
    return figure(Context(prec=3, rounding=ROUND_HALF_EVEN).plus(value))


def _deviation(stated: Decimal | None) -> str:
    return "" if stated is None else _DEVIATION.format(one=rounded(stated), two=rounded(2 * stated))
