"""What attacks on a public twin found, as whoever runs them hands it to a report.

A steward may not see attacks on the release itself before deciding: they read private data (PRIVACY §7). The same
configuration run on a *public* corpus can be attacked by anybody; beside it stands its run without protection, so that
an attack that cannot win at all shows as one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from models_db.canonical import Json
from tasks.reporting.facts import Content, Fact
from tasks.reporting.numbers import number

Verdict: TypeAlias = Literal["wins", "does not win", "says nothing", "not measured"]


@dataclass(frozen=True)
class Rates:
    """How well one attack did on one run, with 95 % intervals; decimals, null where there is no figure.

    Attributes:
        auc, auc_low, auc_high: area under the curve; 0.5 is chance.
        tpr, tpr_low, tpr_high: true positives at the attack's low rate of false ones.
    """

    auc: str | None
    auc_low: str | None = None
    auc_high: str | None = None
    tpr: str | None = None
    tpr_low: str | None = None
    tpr_high: str | None = None

    @property
    def wins(self) -> bool | None:
        """Whether the whole interval lies above chance; None without one."""
        low = number(self.auc_low)
        return None if low is None else low > 0.5


@dataclass(frozen=True)
class TwinAttack(Content):
    """One attack on the twin.

    Attributes:
        name: its stable name.
        tries: what it tries to find out, in plain words.
        false_positives: the low rate at which `tpr` is read, such as 0.01.
        protected, unprotected: on the twin under the release's configuration, and without protection.
    """

    place: ClassVar[str] = "attacks"
    name: str
    tries: str
    false_positives: str
    protected: Rates
    unprotected: Rates | None = None

    @property
    def verdict(self) -> Verdict:
        """`says nothing` where it does not win without protection either."""
        if self.protected.wins is None:
            return "not measured"
        if self.protected.wins:
            return "wins"
        return "does not win" if self.unprotected is not None and self.unprotected.wins else "says nothing"

    def to_json(self) -> dict[str, Json]:
        """With its verdict."""
        return super().to_json() | {"verdict": self.verdict}


@dataclass(frozen=True)
class Twin(Content):
    """The corpus that was attacked in place of the private one.

    Attributes:
        corpus: the public corpus.
        configuration: how the twin's run compares with the release's, in one line (same parameters, or what differs).
    """

    place: ClassVar[str] = "twin"
    corpus: str
    configuration: str


@dataclass(frozen=True)
class TwinAttacks:
    """The twin and every attack on it."""

    twin: Twin
    attacks: tuple[TwinAttack, ...]

    def facts(self) -> Iterator[Fact]:
        """They read public data only."""
        yield Fact("public", self.twin)
        yield from (Fact("public", attack) for attack in self.attacks)
