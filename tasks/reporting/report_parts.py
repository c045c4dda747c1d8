"""Parts of a report, one frozen value each, and the audience filter.

One function decides which facts a version contains, and every fact goes through it:

| version | for | public and charged | ledger only | internal |
| --- | --- | --- | --- | --- |
| `public` | everybody; the page in a bundle | yes | no: balances reveal attempts (docs/decisions/0001) | no |
| `steward` | the publish gate | yes | yes | no: a decision based on one is not private (PRIVACY §7) |
| `internal` | stewards, once the decision is recorded | yes | yes | yes |

Page and JSON are both made of `contents`, so neither can show what the other leaves out. Reals are decimal strings, and
an absent part is null in the JSON.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from models_db.values.canonical_json import Json
from tasks.release.sections import Section, sections_to_json

REPORT_FORMAT: Final = "almoner-report/1"

Version: TypeAlias = Literal["steward", "public", "internal"]
Exposure: TypeAlias = Literal["public", "charged", "ledger", "internal"]
"""Exposure as of metrics (`tasks.values.results`), and `ledger`: balances, decisions, warnings, for stewards."""

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
        "format": REPORT_FORMAT,
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


@dataclass(frozen=True)
class Release(ReportPart):
    """Identity of the release; all fields are in `release.json`."""

    place: ClassVar[str] = "release"
    number: int
    dataset: str
    governed: bool
    kind: str
    mechanism: str
    model: str
    licence: str
    prompt: str
    texts: int
    labels: tuple[str, ...]
    requester: str
    runner: str
    request_sha256: str


@dataclass(frozen=True)
class Claim(ReportPart):
    """The claim, in figures and in sentences.

    Attributes:
        protects: whose presence is hidden.
        sentences: how well it is hidden.
        while_secret: the figure while the assignment of units to texts is secret, in words; null where none is stated.
        times, right: upper bounds on how many times likelier a finding is, and on right guesses in percent. Null where
            no private text was used.
        guesses: `right` in words.
        weaknesses: warnings on a large epsilon or delta.
        not_promised: limits of the promise, as (heading, sentence).
    """

    place: ClassVar[str] = "claim"
    protects: str
    sentences: tuple[str, ...]
    epsilon: str
    while_secret: str | None
    delta: str
    rho: str
    delta_fail: str
    relation: str
    replace_one: str
    times: str | None
    right: str | None
    guesses: str | None
    weaknesses: tuple[str, ...]
    conversion: str
    lifetime: str | None
    second_opinion: str | None
    not_promised: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class NoClaim(ReportPart):
    """Statement that there is no privacy claim, because the dataset is marked public."""

    place: ClassVar[str] = "no_claim"
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Budget(ReportPart):
    """The lifetime budget in the ledger, releases of every state together.

    Attributes:
        cap, before, release, held, after: rho.
        before_percent, release_percent, held_percent, left_percent: of the cap, rounded up (`left_percent`: down).
        epsilon_cap, epsilon_before, epsilon_after: at `delta_cap`.
        fails: the spent part of the cap on failure probability; null if no mechanism can fail.
    """

    place: ClassVar[str] = "budget"
    delta_cap: str
    cap: str
    before: str
    release: str
    held: str
    after: str
    before_percent: str
    release_percent: str
    held_percent: str
    left_percent: str
    used_percent: str
    epsilon_cap: str
    epsilon_before: str
    epsilon_after: str
    fails: str | None


@dataclass(frozen=True)
class Mechanism(ReportPart):
    """A charged mechanism: number of invocations, price and parameters."""

    place: ClassVar[str] = "mechanisms"
    name: str
    times: int
    rho: str
    delta: str
    parameters: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Parameter(ReportPart):
    """A public parameter, or a figure that a charged mechanism released."""

    place: ClassVar[str] = "parameters"
    name: str
    value: str
    released: bool


@dataclass(frozen=True)
class PolicyRequirement(ReportPart):
    """A bound of the policy and whether it is met; without a figure, the metric only has to be present."""

    place: ClassVar[str] = "bounds"
    metric: str
    figure: str
    value: str | None
    allowed: str
    met: bool


@dataclass(frozen=True)
class Figure:
    """One figure of a metric, with the ends of its 95 % interval where it has one."""

    name: str
    value: str | int | None
    low: str | int | None = None
    high: str | int | None = None


@dataclass(frozen=True)
class Measured(ReportPart):
    """A metric with its figures, method and source."""

    place: ClassVar[str] = "metrics"
    name: str
    exposure: str
    line: str
    figures: tuple[Figure, ...]
    source: str
    method: str


@dataclass(frozen=True)
class Node:
    """Insight behind a description: name, level, noisy size (null if not measured), keywords with support.

    Attributes:
        counted: of a counted answer, its count with the margin of error; null for other insights.
    """

    name: str
    level: int
    size: int | None
    keywords: tuple[str, ...]
    counted: str | None = None


@dataclass(frozen=True)
class Sample(ReportPart):
    """A released text without its last `words_left_out` words; in a release of insights, with its node."""

    place: ClassVar[str] = "samples"
    number: int
    label: str | None
    text: str
    words_left_out: int
    insight: Node | None = None


@dataclass(frozen=True)
class TextOnPage:
    """A released text in full.

    Attributes:
        doubts: what a reader should look at first (`tasks.text.doubts`).
    """

    number: int
    label: str | None
    text: str
    doubts: tuple[str, ...]


@dataclass(frozen=True)
class TextPage(ReportPart):
    """Texts of a release in the order of the file, for stewards: each page holds up to TEXTS_PER_PAGE of them.

    Attributes:
        doubtful: how many of them have a doubt.
    """

    place: ClassVar[str] = "text_pages"
    texts: tuple[TextOnPage, ...]
    doubtful: int


@dataclass(frozen=True)
class Lengths(ReportPart):
    """Histogram of text lengths in words: `counts[i]` texts have `edges[i]` to `edges[i + 1] - 1`."""

    place: ClassVar[str] = "lengths"
    texts: int
    empty: int
    median: str
    longest: int
    edges: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Point(ReportPart):
    """A figure of this release or an earlier one of the dataset, with its epsilon."""

    place: ClassVar[str] = "tradeoff"
    release: int
    this: bool
    state: str
    mechanism: str
    epsilon: str
    metric: str
    figure: str
    value: str
    low: str | None
    high: str | None


@dataclass(frozen=True)
class TextCluster:
    """Texts that are close to each other on a map.

    Attributes:
        words: what their texts have more often than the others, at most three, the first most of all.
        texts: how many they are.
        x, y: their mean on the plane, decimals.
    """

    words: tuple[str, ...]
    texts: int
    x: str
    y: str


@dataclass(frozen=True)
class Map(ReportPart):
    """The released texts as points of a plane: the two directions in which their embeddings differ most (PCA).

    Attributes:
        points: (x, y), decimals.
        explained: percent of the variance in the two directions.
        labels: one per text where the release has labels.
        clusters: those that have words of their own.
    """

    place: ClassVar[str] = "map"
    embedder: str
    explained: str
    texts: int
    points: tuple[tuple[str, str], ...]
    labels: tuple[str, ...]
    clusters: tuple[TextCluster, ...] = ()


@dataclass(frozen=True)
class Decision(ReportPart):
    """A steward's decision with its reason; `override` where bounds of the policy were overridden."""

    place: ClassVar[str] = "decisions"
    gate: str
    by: str
    decision: str
    reason: str
    counts: bool
    override: str | None


@dataclass(frozen=True)
class Gate(ReportPart):
    """State of the release, the digest that an approval would be bound to, and the commands for a decision."""

    place: ClassVar[str] = "gate"
    state: str
    subject_sha256: str
    approved: int
    needed: int
    commands: tuple[str, ...]
