"""The parts of a report, one frozen value each; reals are decimal strings, and an absent part is null in the JSON."""

from dataclasses import dataclass
from typing import ClassVar

from tasks.reporting.audience_filter import Section


@dataclass(frozen=True)
class Release(Section):
    """Which release it is; all of it is in `release.json`."""

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
class Claim(Section):
    """The claim, in figures and in sentences.

    Attributes:
        protects: whose presence is hidden.
        sentences: by how much.
        times, right: how many times likelier at most; at most so many percent of guesses are right. Null where nothing
            private took part.
        not_promised: what is not, as (in a word, in a sentence).
    """

    place: ClassVar[str] = "claim"
    protects: str
    sentences: tuple[str, ...]
    epsilon: str
    delta: str
    rho: str
    delta_fail: str
    relation: str
    replace_epsilon: str
    replace_delta: str
    times: str | None
    right: str | None
    conversion: str
    lifetime: str | None
    second_opinion: str | None
    not_promised: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class NoClaim(Section):
    """Why nothing is promised: the dataset is marked public."""

    place: ClassVar[str] = "no_claim"
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Budget(Section):
    """The lifetime budget as the ledger has it, releases of every state together.

    Attributes:
        cap, before, release, held, after: rho.
        before_percent, release_percent, held_percent, left_percent: of the cap, rounded up (what is left: down).
        epsilon_cap, epsilon_before, epsilon_after: at `delta_cap`.
        fails: spent of the failure probability, of its cap; null where no mechanism can fail.
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
class Mechanism(Section):
    """What was invoked how often, at which price."""

    place: ClassVar[str] = "mechanisms"
    name: str
    times: int
    rho: str
    delta: str
    parameters: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Parameter(Section):
    """A public parameter, or a figure that a charged mechanism released."""

    place: ClassVar[str] = "parameters"
    name: str
    value: str
    released: bool


@dataclass(frozen=True)
class PolicyRequirement(Section):
    """A bound of the policy, and whether the release is inside; without a figure the metric just has to be there."""

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
class Measured(Section):
    """A metric."""

    place: ClassVar[str] = "metrics"
    name: str
    exposure: str
    line: str
    figures: tuple[Figure, ...]
    source: str
    method: str


@dataclass(frozen=True)
class Node:
    """What a released description describes: name, level, noisy size (null where none was measured) and keywords."""

    name: str
    level: int
    size: int | None
    keywords: tuple[str, ...]


@dataclass(frozen=True)
class Sample(Section):
    """A released text, `words_left_out` of it left out at its end; of a release of insights, with its node."""

    place: ClassVar[str] = "samples"
    number: int
    label: str | None
    text: str
    words_left_out: int
    insight: Node | None = None


@dataclass(frozen=True)
class Lengths(Section):
    """How many texts have how many words: `counts[i]` have `edges[i]` to `edges[i + 1] - 1`."""

    place: ClassVar[str] = "lengths"
    texts: int
    empty: int
    median: str
    longest: int
    edges: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Point(Section):
    """A figure of this release or an earlier one of the dataset, beside its epsilon."""

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
class Map(Section):
    """The released texts as points of a plane: the two directions in which their embeddings differ most (PCA).

    Attributes:
        points: (x, y), decimals.
        explained: of the variance, in percent, by the two.
        labels: one a text where the release has labels.
    """

    place: ClassVar[str] = "map"
    embedder: str
    explained: str
    texts: int
    points: tuple[tuple[str, str], ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Decision(Section):
    """What a steward has decided, and why; `override` where bounds of the policy were overridden."""

    place: ClassVar[str] = "decisions"
    gate: str
    by: str
    on_behalf_of: str | None
    decision: str
    reason: str
    counts: bool
    override: str | None


@dataclass(frozen=True)
class WarningLine(Section):
    """What a steward must not overlook."""

    place: ClassVar[str] = "warnings"
    line: str


@dataclass(frozen=True)
class Table(Section):
    """Rows that the approval screen shows too: policy, people, the difference to the release before."""

    place: ClassVar[str] = "tables"
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str


@dataclass(frozen=True)
class Gate(Section):
    """Where the release is, what an approval would bind to, and how to decide."""

    place: ClassVar[str] = "gate"
    state: str
    subject_sha256: str
    approved: int
    needed: int
    commands: tuple[str, ...]
