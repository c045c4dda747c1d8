"""Audits of the promise (PRIVACY §8): the honest mechanism stays below its claim, every broken twin exceeds it.

The honest ones are the cases of `tasks/auditing/audit.py`, each on two neighbouring inputs many times; a twin is
run on the same inputs and compared with the same claim, the epsilon <= 1 that the charged rho gives at DELTA. The bound
is above the true epsilon with probability at most 1 - CONFIDENCE, and the true epsilon of the honest mechanisms is
about 0.8 (exact binomial): a false alarm is rarer still. The twins' true epsilon is at least 1.24, and their numbers of
trials put the bound seven standard deviations above the claim.
"""

from dataclasses import replace
from fractions import Fraction

import pytest

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.audit import CASES, COUNT, DELTA, DRAWS, EPSILON, case_of
from tasks.auditing.audit import audit as audit_case
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.auditing.worst_cases import worst_case_scores, worst_case_tokens
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_count import NoisyCount, calibrate_count
from tasks.mechanisms.counts.noisy_histogram import calibrate_histogram
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism, calibrate

pytestmark = pytest.mark.statistical
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms")

CONFIDENCE = 0.9999
RHO = rho_of(EPSILON, DELTA)
CLAIM = 1.0
TRIALS = 10_000

# Not by proving nothing: an audit sees most of what there is to see. Runs of tests leak the rest over many statistics.
SEEN = {
    "integer_draw": 0.25,
    "sparse_vector": 0.05,
    "noisy_count": 0.25,
    "noisy_histogram": 0.25,
    "noisy_mean": 0.25,
    "kmeans": 0.25,
    "kde": 0.25,
    "set_histogram": 0.25,
    "partition_selection": 0.25,
    "gaussian_selection": 0.25,
    "weighted_selection": 0.25,
}


QUICK = ("integer_draw", "partition_selection")
"""Mechanisms whose audit takes less than a second; those of the others belong to the slow tests."""


@pytest.mark.parametrize(
    "mechanism", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_an_honest_mechanism_stays_below_its_claim(mechanism: str) -> None:
    case = case_of(mechanism)
    assert float(EPSILON) * 0.999 < case.epsilon <= float(EPSILON)
    found = audit_case(case, 2 * TRIALS, CONFIDENCE)
    assert SEEN[mechanism] < found.bound.epsilon < case.epsilon


def audit(sample) -> float:
    """The lower bound from how often the pushed token is drawn, with the unit and without it."""
    return epsilon_lower_bound(sample(True), sample(False), float(DELTA), CONFIDENCE).epsilon


@pytest.mark.slow
def test_a_denominator_off_by_two_of_seven_exceeds_the_claim():
    """Five rows' weight for seven: 1.4 times the loss per row, at the number of references releases use."""
    honest = calibrate(RHO, DRAWS, 7, "1")
    assert 0.999 < epsilon_of(honest.event(DRAWS).loss.rho, DELTA) <= CLAIM

    def token_audit(drawing: IntegerTableMechanism, trials: int) -> float:
        def sample(present: bool) -> list[int]:
            row = worst_case_scores(honest, drawing, 6, present)
            return worst_case_tokens(drawing, row, DRAWS, trials, OS_RANDOM)

        return audit(sample)

    assert token_audit(honest, 60_000) < CLAIM
    assert token_audit(replace(honest, references=5), 120_000) > CLAIM


@pytest.mark.slow
def test_a_count_with_half_the_noise_exceeds_the_claim():
    honest = calibrate_count(RHO)
    broken = NoisyCount(Fraction(int(honest.sigma * 2**19), 2**20))
    assert audit(lambda present: [broken.draw(COUNT + present, OS_RANDOM) for _ in range(2 * TRIALS)]) > CLAIM


@pytest.mark.slow
def test_a_histogram_of_documents_instead_of_units_exceeds_the_claim():
    """A unit with a document in each of four bins moves them all: their sum by 4, where its noise has only doubled."""
    honest = calibrate_histogram(RHO, 4)

    def every(present: bool) -> list[int]:
        return [sum(honest.draw([int(present)] * 4, OS_RANDOM)) for _ in range(TRIALS)]

    assert audit(every) > CLAIM


def test_a_histogram_that_forgets_empty_bins_exceeds_the_claim():
    """Whether the bin of the one unit is there at all tells everything."""
    honest = calibrate_histogram(RHO, 1)
    assert audit(lambda present: [len(honest.draw([1], OS_RANDOM) if present else [])] * TRIALS) > CLAIM
