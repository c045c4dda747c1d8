"""Audience filter of reports: one function decides which facts a version contains, and every fact goes through it.

| version | for | public and charged | ledger only | internal |
| --- | --- | --- | --- | --- |
| `public` | everybody; the page in a bundle | yes | no: balances reveal attempts (docs/decisions/0001) | no |
| `steward` | the publish gate | yes | yes | no: a decision based on one is not private (PRIVACY §7) |
| `internal` | stewards, once the decision is recorded | yes | yes | yes |

Page and JSON are both made of `contents`, so neither can show what the other leaves out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from models_db.values.canonical_json import Json
from tasks.release.sections import Section, sections_to_json

FORMAT: Final = "almoner-report/1"

Version: TypeAlias = Literal["steward", "public", "internal"]
Exposure: TypeAlias = Literal["public", "charged", "ledger", "internal"]
"""Exposure as of metrics (`tasks.values.metric_result`), and `ledger`: balances, decisions, warnings, for stewards."""

ONCE: Final = ("release", "claim", "no_claim", "budget", "lengths", "map", "twin", "gate")
LISTED: Final = (
    "sections",
    "bounds",
    "metrics",
    "samples",
    "text_pages",
    "tradeoff",
    "attacks",
    "mechanisms",
    "parameters",
    "decisions",
)
"""Keys of the format: those with one fact (null if there is none), and those with a list of facts.

`sections` holds what the gate's screen shows too, such as warnings (`tasks.release.sections`).
"""

_ADMITTED_EXPOSURES: Final[Mapping[str, frozenset[str]]] = {
    "public": frozenset({"public", "charged"}),
    "steward": frozenset({"public", "charged", "ledger"}),
    "internal": frozenset({"public", "charged", "ledger", "internal"}),
}


@dataclass(frozen=True)
class ReportPart:
    """One part of a report; `place` is its key in the JSON."""

    place: ClassVar[str]

    def to_json(self) -> dict[str, Json]:
        """Return the fields; subclasses add derived values."""
        return asdict(self)


@dataclass(frozen=True)
class AudienceFact:
    """A part of a report and the exposure that decides who may see it."""

    exposure: Exposure
    part: ReportPart | Section

    def __post_init__(self) -> None:
        if self.exposure not in get_args(Exposure):
            raise ValueError(f"there is no exposure {self.exposure!r}")


def visible_to(version: Version, facts: Iterable[AudienceFact]) -> tuple[AudienceFact, ...]:
    """Return those of `facts` that a version may contain. No other code decides this."""
    admitted = _ADMITTED_EXPOSURES[version]
    return tuple(fact for fact in facts if fact.exposure in admitted)


def contents(version: Version, facts: Iterable[AudienceFact]) -> dict[str, Any]:
    """Return a report as programs read it: the admitted facts by key; null or an empty list where there are none.

    Raises:
        ValueError: two facts for a key that holds one.
    """
    report: dict[str, Any] = {
        "format": FORMAT,
        "version": version,
        **dict.fromkeys(ONCE),
        **{key: [] for key in LISTED},
    }
    for fact in visible_to(version, facts):
        if isinstance(fact.part, Section):
            report["sections"] += sections_to_json([fact.part])
            continue
        place, fields = fact.part.place, fact.part.to_json()
        if place in LISTED:
            report[place].append(fields)
        elif report[place] is None:
            report[place] = fields
        else:
            raise ValueError(f"a report says {place!r} once")
    return report
