"""What a report may tell, and whom: one function decides, and all that is shown goes through it.

| version | for | public and charged | what only the ledger says | internal |
| --- | --- | --- | --- | --- |
| `public` | everybody; the page in a bundle | yes | no: balances tell of attempts (docs/decisions/0001) | no |
| `steward` | the publish gate | yes | yes | no: a decision that has seen one is not private (PRIVACY §7) |
| `internal` | stewards, once the decision is recorded | yes | yes | yes |

Page and JSON are both made of `contents`, so neither can tell what the other leaves out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from models_db.values.canonical_json import Json

FORMAT: Final = "almoner-report/1"

Version: TypeAlias = Literal["steward", "public", "internal"]
Exposure: TypeAlias = Literal["public", "charged", "ledger", "internal"]
"""As of metrics (`tasks.values.metric_result`), and `ledger`: balances, decisions and warnings, for stewards."""

ONCE: Final = ("release", "claim", "no_claim", "budget", "lengths", "map", "twin", "gate")
LISTED: Final = (
    "warnings",
    "bounds",
    "metrics",
    "samples",
    "tradeoff",
    "attacks",
    "mechanisms",
    "parameters",
    "decisions",
    "tables",
)
"""The places of the format: those that one fact fills (null where none does), and those with a list of them."""

_TOLD: Final[Mapping[str, frozenset[str]]] = {
    "public": frozenset({"public", "charged"}),
    "steward": frozenset({"public", "charged", "ledger"}),
    "internal": frozenset({"public", "charged", "ledger", "internal"}),
}


@dataclass(frozen=True)
class Section:
    """What one part of a report says; `place` is its key in the JSON."""

    place: ClassVar[str]

    def to_json(self) -> dict[str, Json]:
        """Field by field; what is derived is added by the parts themselves."""
        return asdict(self)


@dataclass(frozen=True)
class AudienceFact:
    """A part of a report, and who may be told."""

    exposure: Exposure
    said: Section

    def __post_init__(self) -> None:
        if self.exposure not in get_args(Exposure):
            raise ValueError(f"there is no exposure {self.exposure!r}")


def visible_to(version: Version, facts: Iterable[AudienceFact]) -> tuple[AudienceFact, ...]:
    """Those of `facts` that a version may contain. Nothing else decides this, anywhere."""
    told = _TOLD[version]
    return tuple(fact for fact in facts if fact.exposure in told)


def contents(version: Version, facts: Iterable[AudienceFact]) -> dict[str, Any]:
    """A report as programs read it: what is admitted, by place; null or an empty list where nothing is.

    Raises:
        ValueError: two facts for a place that has one.
    """
    found: dict[str, Any] = {"format": FORMAT, "version": version, **dict.fromkeys(ONCE), **{at: [] for at in LISTED}}
    for fact in visible_to(version, facts):
        place, said = fact.said.place, fact.said.to_json()
        if place in LISTED:
            found[place].append(said)
        elif found[place] is None:
            found[place] = said
        else:
            raise ValueError(f"a report says {place!r} once")
    return found
