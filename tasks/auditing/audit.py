"""Privacy audit: trials of a mechanism on neighbouring inputs, their cases, and a proof about its epsilon (PRIVACY §8).

Audit cases of each mechanism: neighbouring inputs, a statistic, and the claim (PRIVACY §8). One table. A mechanism
without a case here could be broken for years without anybody noticing, so a test demands that every name of
`tasks.mechanisms.registry` is in it; those that claim nothing say so.

A case is at epsilon 1, where a lower bound can come close in seconds: the event fixes what is charged, and the claim
follows from the event alone. That a case can catch anything is shown by the broken twins of tests/statistical.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from models_db.errors import Refused, UsageError
from models_db.values.amounts import DELTA_UNIT, Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import exact, float_below
from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.epsilon_lower_bound import EpsilonLowerBound, epsilon_lower_bound
from tasks.mechanisms import registry
from tasks.mechanisms.core import uncharged
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts import (
    noisy_count,
    noisy_histogram,
    partition_selection,
    set_histogram,
    threshold_selection,
)
from tasks.mechanisms.tokens import integer_table, sparse_vector
from tasks.mechanisms.vectors import kde_sketch, kmeans_rounds, noisy_mean

EPSILON, DELTA = "1", "0.03"
"""Claim that cases under zCDP are calibrated to. With a smaller delta the tail of a few trials would prove nothing."""

DRAWS, REFERENCES, COUNT = 2, 4, 100

Statistic: TypeAlias = Callable[[bool, int], Sequence[int]]
"""(whether the unit is there, how many trials) -> one integer for each trial, from fresh randomness."""


@dataclass(frozen=True)
class AuditCase:
    """One mechanism at one claim.

    Attributes:
        event: what every trial is charged; the catalogue recomputes it.
        epsilon, delta: the claim that the event makes.
        neighbours: the two inputs, in words.
        statistic: what is observed of a trial, in words.
        sample: the trials.
    """

    event: PrivacyEvent
    epsilon: Fraction
    delta: Fraction
    neighbours: str
    statistic: str
    sample: Statistic

    @property
    def mechanism(self) -> str:
        """Its stable name."""
        return self.event.mechanism


def case_of(mechanism: str) -> AuditCase:
    """Return the audit of the mechanism of that name.

    Raises:
        NoAudit: the catalogue has no such mechanism.
        MechanismWithoutClaim: the mechanism claims nothing about what it reads, or reads nothing.
    """
    if mechanism in WITHOUT_CLAIM:
        raise Refused(
            f"{mechanism!r} has no epsilon that an audit could contradict: {WITHOUT_CLAIM[mechanism]}.",
            f"Audit one that is charged: {', '.join(CASES)}.",
            {"mechanism": mechanism, "known": list(CASES)},
            code="MechanismWithoutClaim",
        )
    if mechanism not in CASES:
        raise UsageError(
            f"There is no mechanism {mechanism!r} to audit.",
            f"Mechanisms: {', '.join(CASES)}. The mechanisms of a release are on its card.",
            {"mechanism": mechanism, "known": list(CASES)},
            code="NoAudit",
        )
    return CASES[mechanism]()


def under_zcdp(event: PrivacyEvent, neighbours: str, statistic: str, sample: Statistic) -> AuditCase:
    """Return a case whose claim is the epsilon at DELTA of the rho that the event's parameters cost."""
    claim = exact(epsilon_of(registry.recompute(event).rho, DELTA))
    return AuditCase(event, claim, exact(DELTA), neighbours, statistic, sample)


def _integer_draw() -> AuditCase:
    draw = integer_table.calibrate(rho_of(EPSILON, DELTA), DRAWS, REFERENCES, "1")

    def sample(present: bool, trials: int) -> Sequence[int]:
        from tasks.auditing.worst_cases import worst_case_scores, worst_case_tokens  # torch

        row = worst_case_scores(draw, draw, REFERENCES - 1, present)
        return worst_case_tokens(draw, row, DRAWS, trials, OS_RANDOM)

    return under_zcdp(
        draw.event(DRAWS),
        f"{REFERENCES - 1} quiet units, with and without one that pushes a token up and all others down",
        f"how many of {DRAWS} drawn tokens are the pushed one",
        sample,
    )


def _sparse_vector() -> AuditCase:
    tests = sparse_vector.SparseVector(Fraction(2652, 1024), REFERENCES, sparse_vector.LEAST_NOISE_RATIO)

    def sample(present: bool, trials: int) -> Sequence[int]:
        from tasks.auditing.worst_cases import run_length, worst_case_distances  # torch

        near, far = worst_case_distances(present, REFERENCES)
        return [run_length(tests, near, far, OS_RANDOM) for _ in range(trials)]

    event = tests.event(1)
    return AuditCase(
        event,
        exact(event.parameters["epsilon"]),  # a run is epsilon-DP without any delta, which says more than its rho
        Fraction(0),
        f"{REFERENCES - 1} units, with and without one that moves every distance by a row's norm, against the others",
        "after how many tests a run ends",
        sample,
    )


def _noisy_count() -> AuditCase:
    count = noisy_count.calibrate_count(rho_of(EPSILON, DELTA))
    return under_zcdp(
        count.event(),
        f"{COUNT} units and {COUNT + 1}",
        "the noisy count",
        lambda present, trials: [count.draw(COUNT + present, OS_RANDOM) for _ in range(trials)],
    )


def _noisy_histogram() -> AuditCase:
    shared = noisy_histogram.calibrate_histogram(rho_of(EPSILON, DELTA), 2)

    def sample(present: bool, trials: int) -> Sequence[int]:
        return [shared.draw([COUNT, int(present)], OS_RANDOM)[1] for _ in range(trials)]

    return under_zcdp(
        shared.event(), f"{COUNT} units in one bin, and one more in another", "the noisy count of the other", sample
    )


def _noisy_mean() -> AuditCase:
    mean = noisy_mean.calibrate_mean(rho_of(EPSILON, DELTA), 1, "1")

    def sample(present: bool, trials: int) -> Sequence[int]:
        from tasks.auditing.worst_cases import project_on_worst_case, worst_case_sums  # torch

        return project_on_worst_case(
            mean.draw(worst_case_sums(mean, REFERENCES - 1, present).expand(trials, -1), OS_RANDOM)
        )

    return under_zcdp(
        mean.event(),
        f"{REFERENCES - 1} units, with and without one whose vector points the other way and is far too long",
        "how far the noisy sum of the vectors points that way",
        sample,
    )


def _set_histogram() -> AuditCase:
    shared = set_histogram.calibrate_set_histogram(rho_of(EPSILON, DELTA), DRAWS + 1, DRAWS)

    def sample(present: bool, trials: int) -> Sequence[int]:
        counts = [COUNT, *[int(present)] * DRAWS]
        return [sum(shared.draw(counts, OS_RANDOM)[1:]) for _ in range(trials)]

    return under_zcdp(
        shared.event(),
        f"{COUNT} units in one bin, and one more in {DRAWS} others",
        f"the sum of the noisy counts of the {DRAWS} others",
        sample,
    )


def _partition_selection() -> AuditCase:
    delta = exact(DELTA) - DRAWS * partition_selection.ROUNDING
    selection = partition_selection.PartitionSelection(exact(EPSILON), Fraction(float_below(delta)), DRAWS)
    names = [f"candidate {number}" for number in range(DRAWS)]
    others = selection.units_for(0.5) - 1  # where the probability of keeping grows fastest

    def sample(present: bool, trials: int) -> Sequence[int]:
        counts = dict.fromkeys(names, others + present)
        return [len(selection.keep(counts, OS_RANDOM)) for _ in range(trials)]

    return AuditCase(
        selection.event(),
        selection.epsilon,  # it is (epsilon, delta)-DP, which says more than its rho and its delta
        Fraction(selection.loss().delta, DELTA_UNIT),
        f"{others} units that name the same {DRAWS} candidates, and {others + 1}",
        "how many of the candidates are kept",
        sample,
    )


def _gaussian_selection() -> AuditCase:
    rho, failure = rho_of(EPSILON, DELTA), int(DELTA_UNIT) // 10**6
    selection = threshold_selection.calibrate_gaussian_selection(Amount(rho, failure), DRAWS)
    names = [f"candidate {number}" for number in range(DRAWS)]
    others = 4 * selection.threshold  # the counts tell most where they are hardly ever cut off

    def sample(present: bool, trials: int) -> Sequence[int]:
        counts = dict.fromkeys(names, others + present)
        return [sum(selection.release(counts, OS_RANDOM).values()) for _ in range(trials)]

    return under_zcdp(
        selection.event(),
        f"{others} units that name the same {DRAWS} candidates, and {others + 1}",
        "the sum of the noisy numbers of the candidates that are released",
        sample,
    )


def _weighted_selection() -> AuditCase:
    rho, failure = rho_of(EPSILON, DELTA), int(DELTA_UNIT) // 10**6
    selection = threshold_selection.calibrate_weighted_selection(Amount(rho, failure), DRAWS)
    names = [f"candidate {number}" for number in range(DRAWS)]
    others = 4 * selection.even_count()
    sums = {present: selection.weigh([names] * (others + present)) for present in (False, True)}

    def sample(present: bool, trials: int) -> Sequence[int]:
        return [sum(selection.release(sums[present], OS_RANDOM).values()) for _ in range(trials)]

    return under_zcdp(
        selection.event(),
        f"{others} units that name the same {DRAWS} candidates, and {others + 1}",
        "the sum of the noisy weights of the candidates that are released",
        sample,
    )


def _kmeans() -> AuditCase:
    paid = kmeans_rounds.calibrate_rounds(rho_of(EPSILON, DELTA), DRAWS, DRAWS, "0.5")

    def sample(present: bool, trials: int) -> Sequence[int]:
        from tasks.auditing.worst_cases import observed_rounds

        return observed_rounds(paid.begin(OS_RANDOM), paid, present, REFERENCES - 1, trials)

    return under_zcdp(
        paid.event(),
        f"{REFERENCES - 1} units in one bin, with and without one that points the other way and is far too long",
        f"{DRAWS} noisy counts and how far {DRAWS} noisy sums point that way, weighted by their precision",
        sample,
    )


def _kde() -> AuditCase:
    paid = kde_sketch.calibrate_kde(rho_of(EPSILON, DELTA), DRAWS, 1, DRAWS)

    def sample(present: bool, trials: int) -> Sequence[int]:
        from tasks.auditing.worst_cases import observed_sketches, sketch_sums

        return observed_sketches(paid, sketch_sums(paid, REFERENCES - 1, present), trials, OS_RANDOM)

    return under_zcdp(
        paid.event(),
        f"{REFERENCES - 1} units with one phrase, with and without one whose phrase lies elsewhere",
        f"how far {DRAWS} noisy sketches point where its phrase does",
        sample,
    )


CASES: Mapping[str, Callable[[], AuditCase]] = {
    integer_table.MECHANISM: _integer_draw,
    sparse_vector.MECHANISM: _sparse_vector,
    noisy_count.MECHANISM: _noisy_count,
    noisy_histogram.MECHANISM: _noisy_histogram,
    set_histogram.MECHANISM: _set_histogram,
    partition_selection.MECHANISM: _partition_selection,
    threshold_selection.GAUSSIAN_SELECTION: _gaussian_selection,
    threshold_selection.WEIGHTED_SELECTION: _weighted_selection,
    kmeans_rounds.MECHANISM: _kmeans,
    kde_sketch.MECHANISM: _kde,
    noisy_mean.MECHANISM: _noisy_mean,
}

WITHOUT_CLAIM: Mapping[str, str] = {
    name: "it reads private text without any guarantee" if name in uncharged.UNPROTECTED else "it reads no private text"
    for name in uncharged.NAMES
} | {uncharged.MECHANISM: "it makes more of what an earlier release has paid for, and reads no private text"}
"""Mechanisms that have nothing to audit, and why."""


TRIALS = 20_000
CONFIDENCE = 0.9999
FEWEST_TRIALS = 1000
"""Below this even a mechanism without any noise could not be told from an honest one at epsilon 1."""

_AT_ONCE = 500


@dataclass(frozen=True)
class MechanismAudit:
    """Result of the audit of one mechanism.

    Attributes:
        case: the audited mechanism, its inputs and its claim.
        bound: the lower bound on epsilon that the trials prove.
    """

    case: AuditCase
    bound: EpsilonLowerBound

    @property
    def holds(self) -> bool:
        """Return whether the bound is within the claim; with few trials a broken mechanism may pass, too."""
        return self.bound.epsilon <= self.case.epsilon


def audit(
    case: AuditCase,
    trials: int = TRIALS,
    confidence: float = CONFIDENCE,
) -> MechanismAudit:
    """Run `case`.

    Args:
        trials: on each of the two inputs; one half chooses the event, the other half tests it.
        confidence: one minus the probability that the bound is above the true epsilon.

    Raises:
        TooFewTrials: not even a mechanism without noise would be caught.
    """
    if trials < FEWEST_TRIALS:
        raise UsageError(
            f"{trials} trials cannot prove anything about an epsilon of 1.",
            f"Ask for at least {FEWEST_TRIALS}; the usual number is {TRIALS:,}.",
            {"trials": trials, "fewest": FEWEST_TRIALS},
            code="TooFewTrials",
        )
    outcomes: dict[bool, list[int]] = {True: [], False: []}
    for done in range(0, trials, _AT_ONCE):
        some = min(_AT_ONCE, trials - done)
        for present, sample in outcomes.items():
            sample += case.sample(present, some)
    bound = epsilon_lower_bound(outcomes[True], outcomes[False], float(case.delta), confidence)
    return MechanismAudit(case, bound)
