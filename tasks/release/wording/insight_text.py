"""Fixed sentences on a release of insights, each a promise or a warning: they change with docs/explorer.md.

The card and all other documents of a release use them: other words are another format of the record.
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
    " named and described them after reading texts of the corpus"
)
ABOUT: Final = "The request describes the corpus publicly as:"
PREPROCESSING: Final = (
    "All documents of a unit were joined into one text, in an order that a key fixes, and cut at a public length."
    " Facets and an embedding were computed from each unit's text by itself. Nothing was filtered, balanced"
    " or deduplicated across units."
)
CONTRIBUTION: Final = (
    "All documents of a unit are one row: one point, one count in one cluster, and at most a public number of keywords."
    " Denominators are public."
)
READ_WHERE: Final = "A unit is one row of each mechanism, in a block that a keyed function of its identifier selects."
PERSONAL: Final = (
    "No insight is a record of anybody: each is about many units, by figures with noise and keywords that a mechanism"
    " released. The claim bounds how far a detail of one unit can show in them; it does not cover people who are"
    " mentioned in a record without being its unit."
)
POST_PROCESSING: Final = (
    "Names, descriptions and the hierarchy are made from released values by public models and rules: small clusters and"
    " rare keywords are left out by their noisy figures. Measurements marked public read only released values."
)

_HEAD: Final = "## How to read it"
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
    "**Keywords** come from a closed set, and the units of a cluster that chose each were counted with noise: a keyword"
    " may appear where few units, or none, had chosen it."
)
_DESCRIBED: Final = (
    "**Names and descriptions** are a model's words. It received the keywords and nothing else, and it can be wrong."
)
_EXACT: Final = (
    "**Sizes are counts without noise**, and the model has read texts of the corpus: nothing here is protected."
)


def deviation_of(record: ReleaseRecord) -> Decimal | None:
    """Return the standard deviation of the noise in a cluster's size; None where the plan does not state it."""
    stated = record.facts.get(SIZE_DEVIATION)
    return None if stated is None else Decimal(stated)


def threshold_of(record: ReleaseRecord) -> int | None:
    """Return the noisy size below which clusters are left out; None where there is no threshold."""
    stated = record.facts.get(SMALLEST_CLUSTER, record.request["parameters"].get("smallest_cluster"))
    return None if stated is None else int(stated)


def clusters_asked(record: ReleaseRecord) -> int | None:
    """Return the requested number of clusters; None where it depends on the size of a public corpus."""
    parameters = record.request["parameters"]
    stated = parameters["clusters"]["count"] if "clusters" in parameters else parameters.get("count")
    return None if stated is None else int(stated)


def reading(record: ReleaseRecord) -> tuple[str, ...]:
    """Return the paragraphs that readers of insights need; `**` marks emphasis."""
    if record.claim is None:
        return (_EXACT,)
    least = threshold_of(record)
    threshold = _NO_THRESHOLD if least is None else _THRESHOLD.format(least=least)
    noise = _NOISY.format(deviation=_deviation(deviation_of(record)))
    return noise, _LEFT_OUT.format(threshold=threshold), _KEYWORDS, _DESCRIBED


def how_to_read(record: ReleaseRecord) -> str:
    """Return the card's section on reading insights."""
    return "\n\n".join([_HEAD, *reading(record)])


def rounded(value: Decimal) -> str:
    """Return a figure with three significant digits."""
    return figure(Context(prec=3, rounding=ROUND_HALF_EVEN).plus(value))


def _deviation(stated: Decimal | None) -> str:
    return "" if stated is None else _DEVIATION.format(one=rounded(stated), two=rounded(2 * stated))
