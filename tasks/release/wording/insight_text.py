"""What the documents of a release of insights say, in the wording of its system (`tasks.systems.insights.wording`)."""

from typing import Final

from tasks.release.record import ReleaseRecord
from tasks.systems.insights.topic_wording import TOPICS
from tasks.systems.insights.wording import InsightWording
from tasks.systems.registry import SYSTEMS

ABOUT: Final = "The request describes the corpus publicly as:"
READ_WHERE: Final = "A unit is one row of each mechanism, in a block that a keyed function of its identifier selects."

_HEAD: Final = "## How to read it"
_EXACT: Final = (
    "**Sizes are counts without noise**, and the model has read texts of the corpus: nothing here is protected."
)


def wording_of(record: ReleaseRecord) -> InsightWording:
    """Return the wording of the system that made a release; that of topics where the system is not installed."""
    system = SYSTEMS.get(record.mechanism)
    return TOPICS if system is None or system.wording is None else system.wording


def reading(record: ReleaseRecord) -> tuple[str, ...]:
    """Return the paragraphs that readers of insights need; `**` marks emphasis."""
    return wording_of(record).reading(record) if record.claim else (_EXACT,)


def how_to_read(record: ReleaseRecord) -> str:
    """Return the card's section on reading insights."""
    return "\n\n".join([_HEAD, *reading(record)])
