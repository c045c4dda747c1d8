"""Profiles of composed Gaussian noise: never below the truth, and close to it.

Three sources that share no code with the module: sums over all outcomes of both laws in doubles, the same on the plane
for vectors, and dp-accounting's privacy loss distributions.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from numpy.typing import NDArray

from tasks.accounting import gaussian_profile
from tasks.accounting.gaussian_profile import LARGEST_EPSILON, ONE, GaussianNoise, composed_epsilon
from tasks.accounting.zcdp import epsilon_of, release_amount
from tasks.mechanisms.counts.noisy_count import least_scale

CONCERNS = ("tasks/accounting",)

DELTA = Fraction(1, 10**7)
Weights = NDArray[np.float64]


def ones(sigma: float | Fraction, count: int = 1) -> GaussianNoise:
    return GaussianNoise(Fraction(sigma), ones=count)


def discrete(sigma: float, reach: int) -> Weights:
    """P(X = x) for -reach <= x <= reach, float64 [2 reach + 1]."""
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-((x / sigma) ** 2) / 2)
    return weights / weights.sum()


def two_laws(noises: Sequence[GaussianNoise]) -> tuple[Weights, Weights]:
    """The sums of all outcomes, with the unit and without it, one axis a scale: the sum suffices, as both laws say."""
    with_unit, without = np.ones(1), np.ones(1)
    for noise in noises:
        reach = math.ceil(12 * float(noise.sigma)) + 2
        one = summed = discrete(float(noise.sigma), reach)
        for _ in range(noise.ones - 1):
            summed = np.convolve(summed, one)
        padding = np.zeros(noise.ones)
        with_unit = np.multiply.outer(with_unit, np.concatenate([padding, summed])).ravel()
        without = np.multiply.outer(without, np.concatenate([summed, padding])).ravel()
    return with_unit, without


def true_delta(laws: tuple[Weights, Weights], epsilon: float) -> float:
    """The hockey-stick divergence from its definition, in the worse direction."""
    one, other = laws
    factor = math.exp(epsilon)
    return max(float(np.maximum(a - factor * b, 0).sum()) for a, b in ((one, other), (other, one)))


def checked(noises: Sequence[GaussianNoise], delta: Fraction, closeness: float = 2e-3) -> float:
    """The figure, after it was held against both laws: true, and untrue with a little less."""
    stated = composed_epsilon(noises, delta)
    assert stated is not None
    laws = two_laws(noises)
    assert true_delta(laws, float(stated)) <= float(delta) * (1 + 1e-9)
    assert true_delta(laws, float(stated) * (1 - closeness) - 1e-6) > float(delta)
    return float(stated)


@pytest.mark.parametrize("delta", ["1e-3", "1e-5", "1e-7"])
@pytest.mark.parametrize(("sigma", "count"), [(0.7375, 1), (1.5, 1), (1.5, 7), (5, 1), (4.25, 12), (20, 40), (63, 1)])
def test_one_scale_is_exact_to_the_last_place(sigma: float, count: int, delta: str) -> None:
    checked([ones(sigma, count)], Fraction(delta), closeness=1e-9)


@pytest.mark.slow_except("noises0", "noises1", "noises2", "noises3")
@pytest.mark.parametrize(
    "noises",
    [
        [ones(2), ones(3)],
        [ones(2, 3), ones(7.5, 2)],
        [ones(1.25, 2), ones(2, 3), ones(3.5)],
        [ones(80), ones(3)],
        [ones(64, 5), ones(70.5, 2)],
    ],
)
def test_several_scales_are_above_the_truth_and_close_to_it(noises: list[GaussianNoise]) -> None:
    checked(noises, Fraction(1, 10**5))


@pytest.mark.slow
@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(4, 40), st.integers(1, 4)), min_size=1, max_size=3),
    st.integers(3, 8),
)
def test_random_compositions_are_above_the_truth_and_close_to_it(scales: list[tuple[int, int]], exponent: int) -> None:
    by_sigma: dict[Fraction, int] = {}
    for quarters, count in scales:
        by_sigma[Fraction(quarters, 4)] = by_sigma.get(Fraction(quarters, 4), 0) + count
    checked([GaussianNoise(sigma, ones=count) for sigma, count in by_sigma.items()], Fraction(1, 10**exponent))


@pytest.mark.slow
@settings(max_examples=10)
@given(st.floats(0.05, 1.5), st.lists(st.tuples(st.integers(6, 80), st.integers(1, 9)), max_size=2), st.integers(4, 8))
def test_dp_accounting_agrees(mu: float, counts: list[tuple[int, int]], exponent: int) -> None:
    """Their discrete laws are rounded up to a grid of 1e-4 an event, so theirs may be above ours by that much."""
    sigma = Fraction(round(2**20 / mu))
    noises = [GaussianNoise(sigma, square=2**40), *(ones(quarters / 4, count) for quarters, count in counts)]
    theirs = pld.from_gaussian_mechanism(float(sigma) / 2**20, value_discretization_interval=1e-4)
    for quarters, count in counts:
        one = pld.from_discrete_gaussian_mechanism(quarters / 4, value_discretization_interval=1e-4)
        theirs = theirs.compose(one.self_compose(count))
    stated = composed_epsilon(noises, Fraction(1, 10**exponent))
    assert stated is not None
    events = 1 + sum(count for _, count in counts)
    other = theirs.get_epsilon_for_delta(10**-exponent)
    assert other - 1e-4 * events - 1e-9 <= float(stated) <= other * (1 + 2e-3)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "4", "8", "20"])
@pytest.mark.parametrize("delta", ["1e-5", "1e-9"])
def test_fine_vectors_have_the_figure_of_the_continuous_gaussian(epsilon: str, delta: str) -> None:
    """Balle and Wang's formula, solved with mpmath; a clip norm of 2^20 steps adds nothing that shows."""
    rho = release_amount(epsilon, delta).rho
    noise = GaussianNoise(least_scale(rho, 2**40), square=2**40)
    with mp.workdps(40):
        mu = mpf(2) ** 20 / (mpf(noise.sigma.numerator) / noise.sigma.denominator)

        def excess(at: mpf) -> mpf:
            return mp.ncdf(-at / mu + mu / 2) - mp.exp(at) * mp.ncdf(-at / mu - mu / 2) - mpf(delta)

        solved = float(mp.findroot(excess, (float(epsilon) * 0.85, float(epsilon)), solver="anderson"))
    stated = composed_epsilon([noise], Fraction(delta))
    assert stated is not None
    assert solved <= float(stated) <= solved + 1.1e-6
    assert float(stated) < 0.96 * float(epsilon)


@pytest.mark.parametrize("vector", [(5, 0), (3, 4), (-4, 3), (1, -4), (0, 1), (2, 4)])
@pytest.mark.parametrize("sigma", [3, 6, 12.5])
def test_every_vector_of_at_most_that_norm_is_covered(vector: tuple[int, int], sigma: float) -> None:
    """On the plane, all outcomes: the direction matters to discrete noise, and no direction is worse than stated."""
    stated = composed_epsilon([GaussianNoise(Fraction(sigma), square=25)], Fraction(1, 10**5))
    assert stated is not None
    reach = math.ceil(11 * sigma)
    x = np.arange(-reach - 5, reach + 6)
    whole, shifted = (
        np.multiply.outer(*(np.exp(-(((x - by) / sigma) ** 2) / 2) for by in shift)) for shift in ((0, 0), vector)
    )
    scale = whole.sum()
    assert true_delta((whole.ravel() / scale, shifted.ravel() / scale), float(stated)) <= 1e-5


def test_the_continuous_formula_would_be_too_small_for_coarse_noise() -> None:
    """What the smoothing's width and the exact sums are for: a coordinate's delta at the continuous epsilon."""
    sigma = Fraction(5)
    continuous = composed_epsilon([GaussianNoise(sigma * 2**20, square=2**40)], Fraction(1, 10**4))
    assert continuous is not None
    assert true_delta(two_laws([GaussianNoise(sigma, ones=1)]), float(continuous)) > 1.001e-4


@pytest.mark.slow_except("1.5", "4")
@pytest.mark.parametrize("sigma", [1.5, 4, 20])
def test_more_coordinates_cost_more_and_more_delta_less(sigma: float) -> None:
    by_count = [composed_epsilon([ones(sigma, count)], DELTA) for count in range(1, 9)]
    assert all(a is not None and b is not None and a < b for a, b in pairwise(by_count))
    by_delta = [composed_epsilon([ones(sigma, 3)], Fraction(1, 10**e)) for e in range(12, 2, -1)]
    assert all(a is not None and b is not None and a > b for a, b in pairwise(by_delta))


def test_more_noise_on_vectors_costs_less_and_another_mechanism_costs_more() -> None:
    figures = [composed_epsilon([GaussianNoise(Fraction(s) * 10**6, square=2**40)], DELTA) for s in range(1, 9)]
    assert all(a is not None and b is not None and a > b for a, b in pairwise(figures))
    one, more = (composed_epsilon(noises, DELTA) for noises in ([ones(5)], [ones(5), ones(20)]))
    assert one is not None
    assert more is not None
    assert one < more


@pytest.mark.parametrize("square", [1, 3, 20, 2**40])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "4", "8"])
def test_the_figure_is_below_that_of_the_same_rho(square: int, epsilon: str) -> None:
    rho = release_amount(epsilon, "1e-7").rho
    moved = {"square": square} if square > 1000 else {"ones": square}
    stated = composed_epsilon([GaussianNoise(least_scale(rho, square), **moved)], DELTA)
    assert stated is not None
    assert stated < epsilon_of(rho, DELTA)


@pytest.mark.parametrize(
    "noises",
    [
        [GaussianNoise(Fraction(1), square=4)],
        [GaussianNoise(Fraction(1, 10), ones=3)],
        [GaussianNoise(Fraction(3, 2), ones=10**7)],
        [GaussianNoise(Fraction(1, 2**20), ones=1)],
        [GaussianNoise(Fraction(3, 2), ones=10**5), GaussianNoise(Fraction(2**20), square=2**40)],
        [GaussianNoise(Fraction(scale, 8), ones=1) for scale in range(40, 57)],
        # losses far below 0 beside a wide Gaussian: e^epsilon is no double where its factor still is one
        [GaussianNoise(Fraction(1, 10), ones=1), GaussianNoise(Fraction(round(1.41446 * 2**20), 2**20), square=1)],
    ],
)
def test_there_is_no_figure_where_noise_is_too_coarse_or_epsilon_too_large(noises: list[GaussianNoise]) -> None:
    assert composed_epsilon(noises, DELTA) is None
    assert LARGEST_EPSILON == 100


@pytest.mark.slow
def test_the_order_and_the_grouping_of_noises_change_nothing() -> None:
    parts = [ones(3, 2), ones(5), ones(3), GaussianNoise(Fraction(10**6), square=2**38)]
    whole = composed_epsilon(parts, DELTA)
    assert whole == composed_epsilon([parts[3], parts[1], ones(3, 3)], DELTA)
    assert whole is not None


def test_coordinates_and_vectors_of_one_scale_add_up() -> None:
    """Where noise on coordinates counts as noise on vectors, a one is a vector of norm 1."""
    sigma = Fraction(100)
    parts = [ones(sigma, 300), GaussianNoise(sigma, square=500)]
    assert composed_epsilon(parts, DELTA) == composed_epsilon([GaussianNoise(sigma, square=800)], DELTA) is not None


@pytest.mark.parametrize(
    "arguments", [{"sigma": Fraction(0), "ones": 1}, {"sigma": Fraction(1)}, {"sigma": Fraction(1), "ones": -1}]
)
def test_what_is_no_noise_is_refused(arguments: dict[str, Fraction | int]) -> None:
    with pytest.raises(ValueError, match="no noise"):
        GaussianNoise(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1), Fraction(-1, 2)])
def test_a_delta_out_of_range_is_refused(delta: Fraction) -> None:
    with pytest.raises(ValueError, match="delta"):
        composed_epsilon([ones(5)], delta)


@pytest.mark.parametrize("noise", [ones(5, 3), GaussianNoise(Fraction(2**21), square=2**40)])
def test_there_is_no_figure_at_a_delta_that_roundings_exceed(noise: GaussianNoise) -> None:
    """H never falls to such a delta; a request or a forged bundle may state any."""
    assert composed_epsilon([noise], gaussian_profile.LEAST_DELTA) is not None
    for exponent in (31, 45, 400):
        assert composed_epsilon([noise], Fraction(1, 10**exponent)) is None


def test_no_probability_is_lost_where_laws_are_cut_split_and_composed() -> None:
    """What is cut off above is an infinite loss, and what is infinite in one law is so in the sum."""
    law = gaussian_profile._Law(Fraction(1, 3), Fraction(-1), (1, 2, 3, 4, 5), 7)
    cut = law.cut(1, 3)
    assert (cut.start, cut.weights, cut.infinite) == (Fraction(-2, 3), (3, 3, 4), 12)
    half = gaussian_profile._Law(Fraction(1), Fraction(0), (ONE // 2,), ONE // 2)
    both = half.composed(half)
    assert both.weights == (ONE // 4,)
    assert both.infinite >= ONE * 3 // 4
    whole = gaussian_profile._law_of_ones(Fraction(3), 5, gaussian_profile._half_width(Fraction(3), 5))
    for one in (whole, whole.split(Fraction(1, 64)), whole.composed(whole)):
        assert ONE <= sum(one.weights) + one.infinite < ONE * (1 + Fraction(1, 2**100))
        assert one.infinite > 0


@pytest.mark.parametrize("sigma", [Fraction(1), Fraction(5, 2)])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_probability_is_rounded_up(sigma: Fraction, count: int) -> None:
    """The laws of noise summed with 80 digits, over all integers that matter, beside ours; in units of 2^-160."""
    law = gaussian_profile._law_of_ones(sigma, count, gaussian_profile._half_width(sigma, count))
    with mp.workdps(80):
        reach = 60
        one = [mp.exp(-mpf(x * x * sigma.denominator**2) / (2 * sigma.numerator**2)) for x in range(-reach, reach + 1)]
        one = [weight / mp.fsum(one) for weight in one]
        exact = [mpf(1)]
        for _ in range(count):
            starts = range(len(exact) + len(one) - 1)
            exact = [
                mp.fsum(exact[i] * one[n - i] for i in starts[: len(exact)] if 0 <= n - i < len(one)) for n in starts
            ]
        middle, ours = len(exact) // 2, len(law.weights) // 2
        for distance in range(10):
            surplus = law.weights[ours + distance] - exact[middle + distance] * ONE
            assert 0 <= surplus < 2**20
        assert law.start == (1 * count - 2 * ours) / (2 * sigma**2)
    assert gaussian_profile._convolved((1, 0), (1, 1)) == (1, 1, 0), "the least product is a unit"


def test_what_is_cut_keeps_its_probability_in_either_tail() -> None:
    """Both tails of one coordinate: the lower one at the lowest loss, the upper one infinite."""
    sigma = Fraction(4)
    law = gaussian_profile._law_of_one(sigma, 20)
    with mp.workdps(60):
        weights = [mp.exp(-mpf(x * x) / 32) for x in range(-80, 81)]
        tail = mp.fsum(weights[:60]) / mp.fsum(weights) * ONE  # below -20, and above 20
        assert law.infinite >= tail
        assert law.weights[0] - law.weights[-1] >= tail


def test_splitting_keeps_the_probability_without_the_unit_and_rounds_both_up() -> None:
    law = gaussian_profile._Law(Fraction(2, 7), Fraction(1, 5), (ONE // 3, 5, ONE // 7), 0)
    split = law.split(Fraction(1, 2))
    with mp.workdps(60):
        before, after = (
            mp.fsum(weight * mp.exp(-mpf(loss.numerator) / loss.denominator) for loss, weight in one.atoms())
            for one in (law, split)
        )
        assert abs(after - before) < 10
    assert sum(law.weights) < sum(split.weights) <= sum(law.weights) + 2 * len(law.weights)


@pytest.mark.parametrize(("sigma", "square"), [(Fraction(3), 1), (Fraction(5, 2), 2**8), (Fraction(2**20), 2**42)])
def test_smoothing_pays_for_its_gap(sigma: Fraction, square: int) -> None:
    """mu, factor and shift of point 2 of the proof, with 120 digits; ours have 90."""
    smoothed = gaussian_profile._smoothed(sigma, square)
    assert smoothed is not None
    mu_square, factor, shift = smoothed
    r_square = sigma**2 - square / mu_square
    assert 2 <= r_square == int(r_square)
    with mp.workdps(120):
        q = mp.exp(-2 * mp.pi**2 * int(r_square))
        t = 2 * q / (1 - q)
        assert square * t < 2**-30
        least = (1 + t) ** square, square * mp.log((1 + t) / (1 - t))
        for number, exact in zip((factor, shift), least, strict=True):
            assert exact <= mpf(number.numerator) / number.denominator < exact + mpf(10) ** -12


def test_the_profile_is_rounded_up_and_counts_factor_shift_and_infinite_losses() -> None:
    """At mu 1: factor (G(epsilon - shift) + what is infinite), and 10^-40 for the digits."""
    law = gaussian_profile._Law(Fraction(1), Fraction(0), (ONE,), ONE // 1024)
    profile = gaussian_profile._Profile(law, Fraction(1), Fraction(5, 4), Fraction(1, 2))
    with mp.workdps(40):
        half = mpf(1) / 2
        gaussian = mp.ncdf(half - half) - mp.exp(half) * mp.ncdf(-half - half)
        stated = profile.delta(Fraction(1))
        assert (
            abs(mpf(stated.numerator) / stated.denominator - mpf(5) / 4 * (gaussian + mpf(1) / 1024)) < mpf(10) ** -35
        )
    least = gaussian_profile._Law(Fraction(1), Fraction(1), (1,), 0)
    discrete = gaussian_profile._Profile(least, Fraction(0), Fraction(1), Fraction(0))
    assert discrete.delta(Fraction(0)) == Fraction(1, ONE) + Fraction(1, 10**40), "a part of a unit counts as one"
    assert discrete.delta(Fraction(3)) == Fraction(1, 10**40)


def test_the_grid_rests_on_no_logarithm_of_doubles() -> None:
    """The double below 1 has the base-2 logarithm 0 in some libraries; the grid decides the last places of a figure."""
    law = gaussian_profile._law_of_ones(Fraction(3), 1, gaussian_profile._half_width(Fraction(3), 1))
    deviations = {Fraction(1): Fraction(1, 64), 1 - Fraction(1, 2**52): Fraction(1, 128), Fraction(3): Fraction(1, 64)}
    assert {square: gaussian_profile._on_one_grid([law], square).step for square in deviations} == deviations


@pytest.mark.parametrize("noises", [[ones(2, 3)], [ones(2), GaussianNoise(Fraction(10**6), square=10**12 // 2)]])
def test_the_figure_is_the_first_multiple_that_passes_the_exact_check(noises: list[GaussianNoise]) -> None:
    profile = gaussian_profile._profile([(noise.sigma, noise.ones, noise.square) for noise in noises])
    assert profile is not None
    stated = composed_epsilon(noises, DELTA)
    assert stated is not None
    unit = Fraction(1, 10**6)
    assert profile.delta(Fraction(stated)) <= DELTA < profile.delta(Fraction(stated) - unit)
    assert profile.delta(Fraction(95)) > 0, "cut tails and rounding always count"
    far = replace(profile, law=replace(profile.law, infinite=ONE // 10**6)).epsilon(DELTA)
    assert far is None, "an infinite loss above delta leaves no epsilon"


@pytest.mark.parametrize("error", [-1e-4, -3e-6, 4e-6])
def test_a_search_that_is_off_changes_nothing(monkeypatch: pytest.MonkeyPatch, error: float) -> None:
    """Doubles only say where to look."""
    honest, noises = gaussian_profile._Profile._search, [ones(Fraction(17, 8), 2)]
    stated = composed_epsilon(noises, DELTA)
    gaussian_profile._composed_epsilon.cache_clear()
    monkeypatch.setattr(gaussian_profile._Profile, "_search", lambda self, delta: (honest(self, delta) or 0) + error)
    assert composed_epsilon(noises, DELTA) == stated
    gaussian_profile._composed_epsilon.cache_clear()
