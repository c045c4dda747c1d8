"""The figure of releases of Gaussian noise alone: which have one, from which events, never above what rho implies."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models_db.values.amounts import Amount, total_amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.gaussian_profile import GaussianNoise, composed_epsilon
from tasks.accounting.zcdp import epsilon_of, release_amount
from tasks.mechanisms.core.post_processing import PostProcessing
from tasks.mechanisms.core.uncharged import uncharged
from tasks.mechanisms.counts.gaussian_selection import calibrate_gaussian_selection
from tasks.mechanisms.counts.noisy_count import calibrate_count
from tasks.mechanisms.counts.noisy_histogram import calibrate_histogram
from tasks.mechanisms.counts.partition_selection import calibrate_selection
from tasks.mechanisms.counts.set_histogram import calibrate_set_histogram
from tasks.mechanisms.counts.weighted_selection import calibrate_weighted_selection
from tasks.mechanisms.gaussian_noise import gaussian_noises
from tasks.mechanisms.registry import MECHANISMS
from tasks.mechanisms.tokens.exponential_mechanism import calibrate
from tasks.mechanisms.tokens.sparse_vector import calibrate_tests
from tasks.mechanisms.vectors.kde_sketch import calibrate_kde
from tasks.mechanisms.vectors.kmeans_rounds import calibrate_rounds
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean
from tasks.planning.gaussian_claim import METHOD, by_gaussian_noise, state_gaussian_claim

CONCERNS = ("tasks/accounting", "tasks/planning")

DELTA = Fraction(1, 10**7)
RHO = release_amount("4", DELTA).rho
FAILURE = 2 * 10**10  # of 1e-18: a fifth of delta

GAUSSIAN: dict[str, Callable[[int], PrivacyEvent]] = {
    "noisy_count": lambda rho: calibrate_count(rho).event(),
    "noisy_histogram": lambda rho: calibrate_histogram(rho // 5, 40).event(5),
    "set_histogram": lambda rho: calibrate_set_histogram(rho, 100, 4, "gaussian").event(),
    "gaussian_selection": lambda rho: calibrate_gaussian_selection(Amount(rho, FAILURE), 8).event(),
    "weighted_selection": lambda rho: calibrate_weighted_selection(Amount(rho, FAILURE), 8).event(),
    "noisy_mean": lambda rho: calibrate_mean(rho, 30, 1).event(30),
    "kde": lambda rho: calibrate_kde(rho, 64, 3, 4).event(),
    "kmeans": lambda rho: calibrate_rounds(rho, 6, 3, "0.3").event(),
}
OTHERS: dict[str, PrivacyEvent] = {
    "a token draw": calibrate(RHO // 2, 20, 7, "1").event(20),
    "a sparse vector": calibrate_tests(RHO // 2, 2, 7).event(2),
    "Laplace noise": calibrate_set_histogram(RHO // 2, 100, 4, "laplace").event(),
    "pure selection": calibrate_selection(Amount(RHO // 2, FAILURE), 4).event(),
    "what a parent paid": PostProcessing(1, Amount(RHO // 2)).event(),
    "private text without a guarantee": uncharged("non_private"),
    "a mechanism that is not known": replace(calibrate_count(RHO).event(), mechanism="noisy_counts"),
    "another relation": replace(calibrate_count(RHO).event(), relation="replace_one"),
}


def rho_implies(events: list[PrivacyEvent], delta: Fraction = DELTA) -> Decimal:
    spent = total_amount([event.loss for event in events])
    return epsilon_of(spent.rho, delta - Fraction(spent.delta, 10**18))


def test_every_gaussian_mechanism_is_covered() -> None:
    assert set(GAUSSIAN) == set(MECHANISMS) - {
        "token_draw", "integer_draw", "sparse_vector", "partition_selection", "post_processing",
        "public_only", "non_private", "adapmixed", "simple_clio",
    }  # fmt: skip
    assert all(make(RHO).mechanism == name for name, make in GAUSSIAN.items())


@pytest.mark.parametrize("mechanism", GAUSSIAN)
def test_each_has_a_figure_below_what_rho_implies(mechanism: str) -> None:
    events = [GAUSSIAN[mechanism](RHO)]
    stated = state_gaussian_claim(events, DELTA)
    assert stated is not None
    assert stated.method == METHOD
    assert Decimal(stated.epsilon) < Decimal("0.97") * rho_implies(events)


@pytest.mark.parametrize("mechanism", GAUSSIAN)
def test_the_noise_has_the_rho_of_the_event(mechanism: str) -> None:
    """What the figure is computed from is what is charged, but for rounding to the ledger's unit."""
    event = GAUSSIAN[mechanism](RHO)
    noises = gaussian_noises([event])
    assert noises
    rho = sum((noise.ones + noise.square) / (2 * noise.sigma**2) for noise in noises) * 10**12
    assert rho <= event.loss.rho < rho + 100


@pytest.mark.parametrize("other", OTHERS)
def test_any_other_mechanism_leaves_no_figure(other: str) -> None:
    assert state_gaussian_claim([GAUSSIAN["noisy_count"](RHO // 2), OTHERS[other]], DELTA) is None


def test_nothing_charged_has_no_figure_and_public_parts_change_none() -> None:
    assert state_gaussian_claim([], DELTA) is None
    assert state_gaussian_claim([uncharged("public_only")], DELTA) is None
    event = GAUSSIAN["noisy_count"](RHO)
    assert state_gaussian_claim([event, uncharged("public_only")], DELTA) == state_gaussian_claim([event], DELTA)


def test_a_figure_above_what_rho_implies_is_not_stated() -> None:
    """Noise barely wider than the smoothing: the bound on vectors holds, and says less than rho."""
    event = NoisyMean(1, Fraction(3, 2), 0).event()
    bound = composed_epsilon([GaussianNoise(Fraction(3, 2), square=1)], DELTA)
    assert bound is not None
    assert bound > rho_implies([event])
    assert state_gaussian_claim([event], DELTA) is None


def test_repeated_events_count_as_often_as_they_say() -> None:
    """An event of 3n invocations is three events of n: its count goes with rounds and positions."""
    for name, make in GAUSSIAN.items():
        event = make(RHO // 8)
        again = replace(event, count=3 * event.count, loss=event.loss * 3)
        assert state_gaussian_claim([again], DELTA) == state_gaussian_claim([event] * 3, DELTA) is not None, name


def test_the_figure_is_that_of_the_stored_events() -> None:
    """The stored loss only says what of delta is left: parameters decide."""
    histogram, mean = GAUSSIAN["set_histogram"](RHO // 2), GAUSSIAN["noisy_mean"](RHO // 2)
    stored = [PrivacyEvent.from_json(event.to_json()) for event in (histogram, mean)]
    stated = state_gaussian_claim(stored, DELTA)
    assert stated is not None
    scale, steps = Fraction(str(histogram.parameters["scale"])), int(mean.parameters["clip_steps"])
    sigma = Fraction(str(mean.parameters["sigma_steps"]))
    noises = [GaussianNoise(scale, ones=4), GaussianNoise(sigma, square=30 * steps**2)]
    assert Decimal(stated.epsilon) == composed_epsilon(noises, DELTA)


def test_failure_probabilities_come_off_delta() -> None:
    event = GAUSSIAN["gaussian_selection"](RHO)
    stated, sure = (state_gaussian_claim([one], DELTA) for one in (event, GAUSSIAN["set_histogram"](RHO)))
    assert event.loss.delta > FAILURE // 10
    assert stated is not None
    assert sure is not None
    left = DELTA - Fraction(event.loss.delta, 10**18)
    sigma = Fraction(str(event.parameters["sigma"]))
    assert Decimal(stated.epsilon) == composed_epsilon([GaussianNoise(sigma, ones=8)], left)
    assert Decimal(stated.epsilon) > (composed_epsilon([GaussianNoise(sigma, ones=8)], DELTA) or 0)


@pytest.mark.slow
@settings(max_examples=12)
@given(st.lists(st.sampled_from(sorted(GAUSSIAN)), min_size=1, max_size=3), st.integers(8, 12), st.integers(5, 9))
def test_random_releases_never_claim_more_than_rho_implies(names: list[str], size: int, exponent: int) -> None:
    made = (GAUSSIAN[name](10**size // 2 + 10**9) for name in names)
    events = [event for event in made if not event.loss.delta]  # a selection may fail as often as delta allows
    delta = Fraction(1, 10**exponent)
    stated = state_gaussian_claim(events, delta)
    assert (stated is None) == (not events)
    if stated is not None:
        assert Decimal(stated.epsilon) < rho_implies(events, delta)
        assert state_gaussian_claim(list(reversed(events)), delta) == stated


def test_the_words_round_up_and_name_the_basis() -> None:
    stated = state_gaussian_claim([GAUSSIAN["noisy_mean"](RHO)], DELTA)
    assert stated is not None
    shown = by_gaussian_noise(stated)
    assert shown.startswith("epsilon 3.767")
    assert Decimal(shown.split()[1]) >= Decimal(stated.epsilon)
    assert "at the same delta" in shown
