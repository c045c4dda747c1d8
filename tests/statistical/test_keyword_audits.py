"""Audits of partition selection and of set histograms (PRIVACY §8): every broken twin exceeds the honest claim.

The honest ones as shipped are in test_privacy_audits.py. Claims are epsilon 1 at DELTA, or at no delta where the noise
is Laplace. Bounds are above the true epsilon with probability at most 1 - CONFIDENCE.

A cluster from which a sample is drawn before its histogram is here because the paper does that (URANIA, Algorithm 1): a
sample of fixed size is a twin, one of each unit by itself is honest (PRIVACY §5, "Insights").
"""

import math
from collections.abc import Callable
from fractions import Fraction
from random import SystemRandom

import pytest

from models_db.values.amounts import DELTA_UNIT, Amount
from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.audit import COUNT, DELTA, EPSILON
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.partition_selection import PartitionSelection
from tasks.mechanisms.counts.set_histogram import Noise, SetHistogram, calibrate_set_histogram, count_units_by_item
from tasks.mechanisms.counts.threshold_selection import (
    WEIGHT_STEPS,
    GaussianSelection,
    SelectionInRounds,
    WeightedSelection,
    calibrate_gaussian_selection,
    calibrate_rounds,
    calibrate_weighted_selection,
    tail_bound,
    weight_of,
)

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms")

CONFIDENCE = 0.9999
CLAIM = 1.0
TRIALS = 20_000
RHO = rho_of(EPSILON, DELTA)
K = 4
Sample = Callable[[bool], list[int]]


def audit(sample: Sample, delta: float = float(DELTA)) -> float:
    return epsilon_lower_bound(sample(True), sample(False), delta, CONFIDENCE).epsilon


# --- partition selection

# A little less than DELTA, because the rounding is charged, too.
SELECTION = PartitionSelection(Fraction(1), Fraction(math.nextafter(0.03, 0) - 2.0**-41), K)
OTHERS = SELECTION.units_for(0.5) - 1
CANDIDATES = [f"candidate {number}" for number in range(K)]


def number_kept(selection: PartitionSelection, without: int, with_it: int, trials: int = TRIALS) -> Sample:
    """How many of K candidates are kept that `without` units name, or with the unit `with_it`."""

    def sample(present: bool) -> list[int]:
        counts = dict.fromkeys(CANDIDATES, with_it if present else without)
        return [len(selection.keep(counts, OS_RANDOM)) for _ in range(trials)]

    return sample


def test_the_honest_selection_stays_below_its_claim() -> None:
    assert SELECTION.loss().delta <= 3 * 10**16
    assert 0.15 < audit(number_kept(SELECTION, OTHERS, OTHERS + 1)) < CLAIM
    assert audit(number_kept(SELECTION, 0, 1)) < CLAIM


def test_a_selection_for_one_candidate_a_unit_exceeds_the_claim_where_units_name_four() -> None:
    """The slip of URANIA's Algorithm 3: epsilon for each candidate. Both its epsilon and its delta are then K-fold."""
    broken = PartitionSelection(SELECTION.epsilon, SELECTION.delta, 1)
    others = broken.units_for(0.5) - 1
    assert audit(number_kept(broken, others, others + 1)) > CLAIM
    # And the unit that alone names four candidates is seen four times as often as delta allows.
    seen = [number > 0 for number in number_kept(broken, 0, 1)(True)]
    assert sum(seen) / TRIALS > 3 * float(SELECTION.delta)


def test_a_selection_that_counts_documents_exceeds_the_claim() -> None:
    """The unit says the same four words in ten documents."""
    documents = [CANDIDATES] * 10
    moved = count_units_by_item(documents, K)[CANDIDATES[0]]
    assert moved == 10
    assert count_units_by_item([[word for document in documents for word in document]], K)[CANDIDATES[0]] == 1
    assert audit(number_kept(SELECTION, OTHERS, OTHERS + moved)) > CLAIM


def test_a_unit_that_names_more_than_four_exceeds_the_claim() -> None:
    """Forty candidates of one unit, where four are paid for."""
    many = [f"candidate {number:02}" for number in range(10 * K)]

    def sample(present: bool) -> list[int]:
        counts = dict.fromkeys(many, OTHERS + present)
        return [len(SELECTION.keep(counts, OS_RANDOM)) for _ in range(TRIALS // 2)]

    assert audit(sample) > CLAIM


def test_a_set_in_the_order_of_reading_exceeds_the_claim() -> None:
    """Everybody's words are kept for certain; the unit, read first, says one of them before the others do."""
    many = SELECTION.units_for(1)

    def sample(present: bool) -> list[int]:
        units = [["z"]] * present + [["a", "z"]] * many
        counts = count_units_by_item(units, K)
        kept = set(SELECTION.keep(counts, OS_RANDOM))
        return [[word for word in counts if word in kept].index("z") for _ in range(2000)]

    assert audit(sample) > CLAIM


# --- selection by noisy counts

FAILURE = 0.01
"""The failure probability of the selections here, so large that trials see it; it is part of DELTA."""
THRESHOLD = calibrate_gaussian_selection(
    Amount(rho_of(EPSILON, str(float(DELTA) - FAILURE)), int(FAILURE * DELTA_UNIT)), K
)
SHARED = 4 * THRESHOLD.threshold
"""Units of a candidate that is released for certain."""


def released_sum(selection: GaussianSelection, without: int, with_it: int) -> Sample:
    """The sum of the noisy numbers of K candidates that `without` units name, or with the unit `with_it`."""

    def sample(present: bool) -> list[int]:
        counts = dict.fromkeys(CANDIDATES, with_it if present else without)
        return [sum(selection.release(counts, OS_RANDOM).values()) for _ in range(TRIALS)]

    return sample


def released_alone(selection: GaussianSelection, candidates: int = K, named: int = 1) -> float:
    """How often a candidate is released that one unit alone names."""
    counts = {f"candidate {number}": named for number in range(candidates)}
    return sum(bool(selection.release(counts, OS_RANDOM)) for _ in range(TRIALS)) / TRIALS


def test_the_honest_threshold_stays_below_its_claim() -> None:
    assert audit(released_sum(THRESHOLD, SHARED, SHARED + 1)) < CLAIM
    edge = THRESHOLD.threshold
    assert audit(released_sum(THRESHOLD, edge - 1, edge)) < CLAIM
    # Three standard deviations of the trials above the failure probability that is charged.
    failure = float(THRESHOLD.failure)
    assert released_alone(THRESHOLD) < failure + 3 * math.sqrt(failure / TRIALS)
    assert released_alone(THRESHOLD) > failure / 2, "or the bound is loose, and too much is charged"


def test_noise_for_one_candidate_exceeds_the_claim_where_units_name_four() -> None:
    broken = GaussianSelection(
        Fraction(int(THRESHOLD.sigma / 2 * 2**20), 2**20), THRESHOLD.threshold, THRESHOLD.contributions
    )
    assert audit(released_sum(broken, SHARED, SHARED + 1)) > CLAIM


def test_a_threshold_for_one_candidate_is_passed_more_often_than_delta_where_units_name_four() -> None:
    """A threshold whose failure is that of one candidate, instead of the sum over all of a unit."""
    one = next(
        GaussianSelection(THRESHOLD.sigma, threshold, 1)
        for threshold in range(math.ceil(THRESHOLD.sigma + 2), THRESHOLD.threshold + 1)
        if GaussianSelection(THRESHOLD.sigma, threshold, 1).failure <= Fraction(FAILURE)
    )
    assert one.threshold < THRESHOLD.threshold
    assert released_alone(GaussianSelection(THRESHOLD.sigma, one.threshold, K)) > 2 * FAILURE


def test_a_threshold_one_unit_lower_is_passed_more_often_than_delta() -> None:
    """The mistake of comparing with the noise alone: a candidate of one unit starts at 1, not at 0."""
    assert released_alone(THRESHOLD, named=2) > 1.1 * float(THRESHOLD.failure)


def test_counts_of_documents_exceed_the_claim() -> None:
    assert audit(released_sum(THRESHOLD, SHARED, SHARED + 10)) > CLAIM
    assert released_alone(THRESHOLD, named=10) > 3 * FAILURE


def test_a_unit_that_names_more_than_four_is_released_more_often_than_delta() -> None:
    assert released_alone(THRESHOLD, candidates=10 * K) > 3 * FAILURE


def test_selection_by_true_counts_exceeds_the_claim() -> None:
    """Noise on the numbers of candidates that were selected without noise."""
    edge = THRESHOLD.threshold

    def sample(present: bool) -> list[int]:
        counts = dict.fromkeys(CANDIDATES, edge - 1 + present)
        selected = {name: count for name, count in counts.items() if count >= edge}
        return [len(selected)] * TRIALS

    assert audit(sample) > CLAIM


# --- selection by noisy sums of weights

WEIGHTED = calibrate_weighted_selection(
    Amount(rho_of(EPSILON, str(float(DELTA) - FAILURE)), int(FAILURE * DELTA_UNIT)), K
)
ENOUGH = 4 * WEIGHTED.even_count()
"""Units of a candidate that is released for certain."""


def weighed_sum(selection: WeightedSelection, others: dict[str, int], own: dict[str, int]) -> Sample:
    """The noisy sums of the candidates that are released, added up; `own` is what the unit adds."""

    def sample(present: bool) -> list[int]:
        sums = {name: weight + present * own.get(name, 0) for name, weight in others.items()}
        return [sum(selection.release(sums, OS_RANDOM).values()) for _ in range(TRIALS)]

    return sample


def alone_in_sums(selection: WeightedSelection, sums: dict[str, int]) -> float:
    """How often one of a unit's candidates is released for that unit alone."""
    return sum(bool(selection.release(sums, OS_RANDOM)) for _ in range(TRIALS)) / TRIALS


def test_honest_weights_stay_below_their_claim() -> None:
    for named in (1, K):
        own = WEIGHTED.weigh([CANDIDATES[:named]])
        others = WEIGHTED.weigh([CANDIDATES[:named]] * ENOUGH)
        assert 0.15 < audit(weighed_sum(WEIGHTED, others, own)) < CLAIM
        edge = dict.fromkeys(own, WEIGHTED.threshold - min(own.values()))
        assert audit(weighed_sum(WEIGHTED, edge, own)) < CLAIM
    failure = float(WEIGHTED.failure)
    found = [alone_in_sums(WEIGHTED, WEIGHTED.weigh([CANDIDATES[:named]])) for named in range(1, K + 1)]
    # With all candidates the rate is the claim itself: of a million releases 0.998 %, where 1 % is claimed.
    assert failure / 2 < max(found) < failure + 5 * math.sqrt(failure / TRIALS)


def test_a_unit_that_weighs_one_in_each_candidate_exceeds_the_claim() -> None:
    """The weights are not divided by the root of their number."""
    own = dict.fromkeys(CANDIDATES, WEIGHT_STEPS)
    assert audit(weighed_sum(WEIGHTED, dict.fromkeys(own, 2 * WEIGHTED.threshold), own)) > CLAIM
    assert alone_in_sums(WEIGHTED, own) > 1.5 * FAILURE


def test_weights_of_documents_exceed_the_claim() -> None:
    """Each of a unit's ten documents weighs one; `weigh` counts a unit once."""
    documents = WEIGHTED.weigh([CANDIDATES] * 10)
    others = dict.fromkeys(documents, 2 * WEIGHTED.threshold)
    assert audit(weighed_sum(WEIGHTED, others, documents)) > CLAIM
    assert WEIGHTED.weigh([CANDIDATES * 10]) == WEIGHTED.weigh([CANDIDATES])


def test_a_threshold_for_units_of_one_number_of_candidates_is_passed_more_often_than_delta() -> None:
    """With little noise the heaviest candidate decides, with much noise the number of candidates."""
    little = calibrate_weighted_selection(Amount(2 * 10**12, int(FAILURE * DELTA_UNIT)), K)
    for selection, named in ((little, 1), (WEIGHTED, K)):
        other = 1 + K - named
        lowered = next(
            threshold
            for threshold in range(
                math.ceil(WEIGHT_STEPS + selection.sigma + 1), selection.threshold + 1, WEIGHT_STEPS // 64
            )
            if other * tail_bound(selection.sigma, threshold - weight_of(other)) <= FAILURE
        )
        broken = WeightedSelection(selection.sigma, lowered, K)
        assert lowered < selection.threshold
        assert alone_in_sums(selection, selection.weigh([CANDIDATES[:named]])) < 1.3 * FAILURE
        assert alone_in_sums(broken, broken.weigh([CANDIDATES[:named]])) > 1.5 * FAILURE


def test_rounds_that_drop_what_true_sums_release_exceed_the_claim() -> None:
    """What is dropped before the second round has to follow from what was released."""
    rounds = calibrate_rounds(Amount(rho_of(EPSILON, str(float(DELTA) - FAILURE)), int(FAILURE * DELTA_UNIT)), 1)
    first, second = rounds.rounds
    others = [["a", "b"]] * (math.ceil(first.threshold / WEIGHT_STEPS) - 1)

    def sample(selections: SelectionInRounds, by_true_sums: bool) -> Sample:
        def draw(present: bool) -> list[int]:
            units = others + [["a", "b"]] * present
            if not by_true_sums:
                return [len(selections.release(units, OS_RANDOM)) for _ in range(TRIALS // 4)]
            dropped = {name for name, weight in first.weigh(units).items() if weight >= first.threshold}
            left = second.weigh([[name for name in own if name not in dropped] for own in units])
            return ["b" in second.release(left, OS_RANDOM) for _ in range(TRIALS // 4)]

        return draw

    assert audit(sample(rounds, by_true_sums=False)) < CLAIM
    assert audit(sample(rounds, by_true_sums=True)) > CLAIM


def test_rounds_that_are_charged_once_exceed_the_claim() -> None:
    """Four rounds, each with the noise of the whole budget; what is released stays a candidate."""
    own = WEIGHTED.weigh([CANDIDATES[:2]])
    others = dict.fromkeys(own, 2 * WEIGHTED.threshold)

    def sample(present: bool) -> list[int]:
        rounds = [weighed_sum(WEIGHTED, others, own)(present) for _ in range(4)]
        return [sum(drawn) for drawn in zip(*rounds, strict=True)]

    assert audit(sample) > CLAIM


# --- histograms of sets

NOISES: list[Noise] = ["gaussian", "laplace"]


def claimed(noise: Noise) -> SetHistogram:
    """The honest histogram, whose charge is the claim's; of an open set, so that trials can be drawn together."""
    found = calibrate_set_histogram(RHO, None, K, noise)
    assert 0.999 < epsilon_of(found.loss().rho, DELTA) <= CLAIM
    return found


def over_bins(histogram: SetHistogram, moved: int) -> Sample:
    """The likelihood ratio over K bins, each of which the unit moves by `moved`, but for scale: what sees most.

    Of Gaussian noise that is the sum; of Laplace noise nothing is learnt beyond the two true counts.
    """
    low, high = (0, moved) if histogram.noise == "laplace" else (-(10**9), 10**9)

    def sample(present: bool) -> list[int]:
        drawn = histogram.draw([moved * present] * (K * TRIALS), OS_RANDOM)
        seen = [min(max(value, low), high) for value in drawn]
        return [sum(seen[K * turn : K * (turn + 1)]) for turn in range(TRIALS)]

    return sample


@pytest.mark.parametrize("noise", NOISES)
def test_the_honest_histogram_stays_below_its_claim(noise: Noise) -> None:
    assert 0.25 < audit(over_bins(claimed(noise), 1)) < CLAIM


@pytest.mark.parametrize("noise", NOISES)
def test_noise_for_one_bin_a_unit_exceeds_the_claim_where_units_are_in_four(noise: Noise) -> None:
    broken = calibrate_set_histogram(RHO, None, 1, noise)
    assert audit(over_bins(broken, 1)) > CLAIM


@pytest.mark.parametrize("noise", NOISES)
def test_a_histogram_of_documents_exceeds_the_claim(noise: Noise) -> None:
    """The unit's bins are those of two documents, and duplicates are not collapsed."""
    assert audit(over_bins(claimed(noise), 2)) > CLAIM


@pytest.mark.parametrize("noise", NOISES)
def test_half_the_noise_exceeds_the_claim(noise: Noise) -> None:
    honest = claimed(noise)
    half = Fraction(int(honest.scale * 2**19), 2**20)
    assert audit(over_bins(SetHistogram(None, K, noise, half), 1)) > CLAIM


@pytest.mark.parametrize("noise", NOISES)
def test_a_histogram_without_its_empty_bins_exceeds_the_claim(noise: Noise) -> None:
    honest = claimed(noise)

    def sample(present: bool) -> list[int]:
        counts = [COUNT, *[int(present)] * K]
        return [len(honest.draw([count for count in counts if count], OS_RANDOM))] * TRIALS

    assert audit(sample) > CLAIM


# --- samples of a cluster, each unit with one keyword; the claim is that of the histogram alone

ONE_EACH = SetHistogram(None, 1, "laplace", Fraction(1))
CLUSTER = 20
SAMPLED = 10_000
Sampling = Callable[[list[str]], list[str]]


def all_units(cluster: list[str]) -> list[str]:
    return cluster


def fixed_size(cluster: list[str]) -> list[str]:
    """Exactly CLUSTER units, if there are as many."""
    return SystemRandom().sample(cluster, min(CLUSTER, len(cluster)))


def by_itself(cluster: list[str]) -> list[str]:
    """Each unit by a coin of its own, with a public probability."""
    return [keyword for keyword in cluster if OS_RANDOM.uniform_below(10) < 9]


def sampled(sampling: Sampling) -> tuple[Sample, Sample]:
    """Histograms of samples: how far the unit's own keyword is up; how far it is up and the others' down, at least."""

    def histograms(present: bool) -> tuple[list[int], list[int]]:
        samples = [sampling(["common"] * CLUSTER + ["own"] * present) for _ in range(SAMPLED)]
        own = ONE_EACH.draw([sample.count("own") for sample in samples], OS_RANDOM)
        common = ONE_EACH.draw([sample.count("common") for sample in samples], OS_RANDOM)
        return own, common

    def up(present: bool) -> list[int]:
        return histograms(present)[0]

    def up_and_down(present: bool) -> list[int]:
        own, common = histograms(present)
        return [min(more, CLUSTER - less) for more, less in zip(own, common, strict=True)]

    return up, up_and_down


@pytest.mark.parametrize("sampling", [all_units, by_itself])
def test_all_units_or_each_by_itself_stay_below_the_claim(sampling: Sampling) -> None:
    assert ONE_EACH.epsilon == CLAIM
    up, up_and_down = sampled(sampling)
    assert 0.5 < audit(up, 0.0) < CLAIM
    assert audit(up_and_down, 0.0) < CLAIM


def test_a_sample_of_fixed_size_exceeds_the_claim() -> None:
    """The unit takes somebody's place: two counts move, nearly always. ln(1 - p + p e^2), p = 20/21: 1.96."""
    most = math.log(1 + CLUSTER / (CLUSTER + 1) * math.expm1(2))
    found = audit(sampled(fixed_size)[1], 0.0)
    assert 1.5 < found < most
    assert found > CLAIM
