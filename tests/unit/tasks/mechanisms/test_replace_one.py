"""Replace-one figures against the largest divergence of two neighbours, computed apart with mpmath."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from mpmath import exp, log, mp, mpf

from models_db.values.amounts import RHO_UNIT, Amount, total_amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import exact
from tasks.mechanisms.core.uncharged import PostProcessing
from tasks.mechanisms.counts.noisy_count import NoisyCount, calibrate_count
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.mechanisms.counts.set_histogram import SetHistogram
from tasks.mechanisms.registry import MECHANISMS, ONE_HOT, replace_one_loss, replace_one_losses
from tasks.mechanisms.vectors.kde_sketch import STEPS, KdeSketches
from tasks.mechanisms.vectors.kmeans_rounds import KMeansRounds
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.release.claim import state_claim
from tests.unit.tasks.publishing.builders import event as token_draws

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/accounting",)

SIGMA = Fraction(3)


def gaussian_rho(sigma: Fraction, moved: Sequence[int]) -> mpf:
    """sup over alpha of D_alpha / alpha of discrete Gaussians, each entry moved by so much: entries add up."""
    with mp.workdps(40):
        found = mpf(0)
        for alpha in (mpf("1.0001"), mpf("1.5"), mpf(2), mpf(8), mpf(40)):
            divergence = sum(renyi(sigma, step, alpha) for step in moved)
            found = max(found, divergence / alpha)
        return found


def renyi(sigma: Fraction, step: int, alpha: mpf) -> mpf:
    """D_alpha of discrete Gaussian noise around 0 and around `step`, summed term by term."""
    two = 2 * mpf(sigma.numerator) ** 2 / mpf(sigma.denominator) ** 2
    weight = {x: exp(-mpf(x * x) / two) for x in range(-400, 401)}
    norm = sum(weight.values())
    moment = sum((exp(-mpf(x * x) / two) / norm) ** alpha * (exp(-mpf((x - step) ** 2) / two) / norm) ** (1 - alpha)
                 for x in range(-120, 121))  # fmt: skip
    return log(moment) / (alpha - 1)


def close_above(amount: Amount, truth: mpf) -> bool:
    """Never below, and above by a rounding only."""
    return 0 <= mpf(amount.rho) / RHO_UNIT - truth + mpf("1e-15") < mpf("1e-6")


def test_the_oracle_knows_what_is_charged_for_one_unit_more() -> None:
    assert close_above(NoisyCount(SIGMA).loss(), gaussian_rho(SIGMA, [1]))


@pytest.mark.slow_except("count", "set", "mean")
@pytest.mark.parametrize(
    ("made", "moved"),
    [
        (NoisyCount(SIGMA).event(), [1, -1]),
        (NoisyHistogram(5, NoisyCount(SIGMA)).event(), [1, -1]),
        (SetHistogram(9, 1, "gaussian", SIGMA).event(), [1, -1]),
        (SetHistogram(9, 3, "gaussian", SIGMA).event(), [1] * 3 + [-1] * 3),
        (NoisyHistogram(5, NoisyCount(SIGMA)).event(4), [1, -1] * 4),
        (NoisyMean(2, SIGMA, 0).event(), [4]),  # two vectors of norm 2 that point away from one another
    ],
    ids=["count", "histogram", "set", "set of three", "four rounds", "mean"],
)
def test_the_worst_replacement_loses_exactly_this(made: PrivacyEvent, moved: Sequence[int]) -> None:
    assert close_above(replace_one_loss(made), gaussian_rho(SIGMA, moved))


def test_laplace_sets_lose_twice_as_much() -> None:
    """Entry by entry randomised response at the limit: KL of discrete Laplace at epsilon/k, over 2k entries."""
    made = SetHistogram(9, 3, "laplace", Fraction(2)).event()
    with mp.workdps(40):
        each = mpf(1) / 2
        truth = 6 * each * (exp(each) - 1) / (exp(each) + 1)
    assert close_above(replace_one_loss(made), truth)


def test_rounds_of_a_clustering_count_each_at_its_own_factor() -> None:
    rounds = KMeansRounds(2, Fraction(4), 3, NoisyMean(8, Fraction(40), 2))
    counts, sums = rounds.one_hot.loss() * 2, rounds.vectors.loss() * 3
    assert replace_one_loss(rounds.event()) == counts * 2 + sums * 4
    assert replace_one_loss(rounds.event(2)) == (counts * 2 + sums * 4) * 2


def test_what_is_not_proved_counts_four_times() -> None:
    kde = KdeSketches(8, 1, 1, exact(STEPS * 4)).event()
    draws = token_draws()
    for event in (kde, draws):
        assert replace_one_loss(event) == event.loss * 4
    assert set(MECHANISMS) >= ONE_HOT
    assert len(ONE_HOT) == 3


def test_a_mixture_adds_up_and_a_parent_counts_four_times() -> None:
    count, draws = calibrate_count(10**9).event(), token_draws()
    assert replace_one_losses([count, draws]) == count.loss * 2 + draws.loss * 4
    covered = Amount(7 * 10**9)
    assert replace_one_losses([PostProcessing(3, covered).event()]) == covered * 4


def epsilon_at(rho: mpf, delta: mpf) -> mpf:
    """Canonne, Kamath, Steinke, Proposition 12, by bisection: written anew, because almoner's own is checked."""

    def delta_of(epsilon: mpf) -> mpf:
        def at(alpha: mpf) -> mpf:
            return (alpha - 1) * (alpha * rho - epsilon) - log(alpha - 1) + alpha * log(1 - 1 / alpha)

        low, high = mpf("1.000001"), mpf(500)
        for _ in range(200):
            third = (high - low) / 3
            if at(low + third) < at(high - third):
                high -= third
            else:
                low += third
        return exp(at(low))

    low, high = mpf(0), mpf(60)
    for _ in range(100):
        middle = (low + high) / 2
        if delta_of(middle) > delta:
            low = middle
        else:
            high = middle
    return high


@pytest.mark.slow
def test_private_evolution_at_4_shows_5_88_and_not_8_71() -> None:
    with mp.workdps(30):
        rho = mpf("0.266313968646")
        votes = calibrate_histogram(int(rho * RHO_UNIT / 6), 20).event(6)
        claim = state_claim([votes], "4", "1e-7")
        assert round(float(claim.replace_one.epsilon), 2) == 5.88
        assert abs(mpf(claim.replace_one.epsilon) - epsilon_at(2 * mpf(votes.loss.rho) / RHO_UNIT, mpf("1e-7"))) < 1e-9
        assert round(float(epsilon_at(4 * mpf(votes.loss.rho) / RHO_UNIT, mpf("1e-7"))), 2) == 8.71
        assert claim.replace_one.rho == str((votes.loss * 2).rho_text)


def test_a_total_of_nothing_is_nothing() -> None:
    assert replace_one_losses([]) == total_amount([])
