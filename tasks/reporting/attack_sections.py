"""Report sections on attacks on a public twin (`almoner attack run`).

A steward may not see attacks on the release itself before deciding: their evaluation needs private data (PRIVACY §7).
The same configuration on a *public* corpus can be attacked by anybody; beside it are its run without protection and the
corpus itself, so that an attack that cannot win at all is recognised.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

from models_db.values.canonical_json import Json
from tasks.common.published_values import number
from tasks.reporting.report_parts import AudienceFact, ReportPart
from tasks.values.results import MetricResult, MetricValue

Verdict: TypeAlias = Literal["wins", "does not win", "says nothing", "not measured"]

RUNS: Final = {"request": "as released", "non_private": "without protection", "copy": "the corpus itself"}
"""The runs of a stored result, in their order on the page; the first has the release's configuration."""

TRIES: Final = {
    "membership_embedding": "to tell by similar texts who was in the corpus",
    "membership_likelihood": "to tell by unusual words who was in the corpus",
    "membership_overlap": "to tell by copied words who was in the corpus",
    "canary_membership": "to tell planted secrets from others of the same form",
    "canary_exposure": "to find planted secrets again among many",
    "identifier_extraction": "to find addresses, numbers and names of the corpus",
    "attribute_inference": "to guess something about a person from similar texts",
    "replay": "to find texts of the corpus again, word for word or nearly so",
}


@dataclass(frozen=True)
class Run:
    """One attack on one run.

    Attributes:
        run: as in RUNS.
        line: the result in one line.
        wins: whether it finds more than for people who were not in the corpus, beyond the 95 % intervals; null where
            that could not be measured.
        auc, auc_low, auc_high: area under the curve, where the attack has one; 0.5 is chance.
    """

    run: str
    line: str
    wins: bool | None
    auc: MetricValue = None
    auc_low: MetricValue = None
    auc_high: MetricValue = None

    @classmethod
    def of(cls, run: str, result: MetricResult) -> "Run":
        """Build it from a stored result."""
        ends = (result.values.get(f"auc{end}") for end in ("", "_low", "_high"))
        return cls(RUNS[run], result.line, exceeds_reference(result.values), *ends)


@dataclass(frozen=True)
class TwinAttack(ReportPart):
    """One attack on the twin; the first run is under the release's configuration, the others protect nothing."""

    place: ClassVar[str] = "attacks"
    name: str
    tries: str
    runs: tuple[Run, ...]

    @property
    def verdict(self) -> Verdict:
        """`says nothing` where it does not win without protection either."""
        protected, *others = self.runs
        if protected.wins is None:
            return "not measured"
        if protected.wins:
            return "wins"
        return "does not win" if any(run.wins for run in others) else "says nothing"

    def to_json(self) -> dict[str, Json]:
        """Return the fields with the verdict."""
        return super().to_json() | {"verdict": self.verdict}


@dataclass(frozen=True)
class Twin(ReportPart):
    """The corpus that was attacked in place of the private one.

    Attributes:
        same_code: whether the twin was made by the same software as the release.
    """

    place: ClassVar[str] = "twin"
    corpus: str
    members: int
    nonmembers: int
    canaries: int
    same_code: bool


@dataclass(frozen=True)
class TwinAttacks:
    """The twin and every attack on it."""

    twin: Twin
    attacks: tuple[TwinAttack, ...]

    @classmethod
    def of(cls, stored: Mapping[str, Any], code: str) -> "TwinAttacks":
        """Parse a finished result of `almoner attack run`; `code` is the digest of the release's software.

        Raises:
            KeyError, ValueError: it is not such a result.
        """
        runs = {
            entry["name"]: [MetricResult.from_json(result) for result in entry["results"]] for entry in stored["runs"]
        }
        if any(result.exposure != "public" for results in runs.values() for result in results):
            raise ValueError("an attack on a public twin is public")
        names = [result.name for result in runs["request"]]
        result_by_name = {run: {result.name: result for result in results} for run, results in runs.items()}
        attacks = tuple(
            TwinAttack(name, TRIES.get(name, name), tuple(_runs_of(name, result_by_name))) for name in names
        )
        members, nonmembers, canaries = (int(stored[key]) for key in ("members", "nonmembers", "canaries"))
        twin = Twin(str(stored["twin"]["name"]), members, nonmembers, canaries, stored["code"] == code)
        return cls(twin, attacks)

    def facts(self) -> Iterator[AudienceFact]:
        """Return the sections as public facts: the attacks read public data only."""
        yield AudienceFact("public", self.twin)
        yield from (AudienceFact("public", attack) for attack in self.attacks)


def exceeds_reference(values: Mapping[str, MetricValue]) -> bool | None:
    """Return whether an attack's figures are above its figures where nothing can have leaked; None without figures.

    The area under the curve against 0.5; exposure against chance; shares against the same share for held-out people.
    An interval has to lie above the other one, or above the level, as a whole.
    """
    pairs = [
        ("auc_low", 0.5),
        ("exposure_mean_low", number(values.get("exposure_by_chance"))),
        *((low, number(values.get(f"held_out_{high}"))) for low, high in _shares(values)),
    ]
    comparisons = [(number(values.get(low)), level) for low, level in pairs if values.get(low) is not None]
    exceeds = [low > level for low, level in comparisons if low is not None and level is not None]
    return any(exceeds) if exceeds else None


def _shares(values: Mapping[str, MetricValue]) -> Iterator[tuple[str, str]]:
    """Return (lower end, name of the upper end) of every share that is also measured for held-out people."""
    for name in values:
        if name.endswith("_share_low") and f"held_out_{name}" in values:
            yield name, f"{name.removesuffix('_low')}_high"


def _runs_of(name: str, result_by_name: Mapping[str, Mapping[str, MetricResult]]) -> Iterator[Run]:
    for run in RUNS:
        if name in result_by_name.get(run, {}):
            yield Run.of(run, result_by_name[run][name])
