"""Random allocation: the proven figures against laws that are known exactly, and against what breaks the hypotheses.

Three sources that share no code with the module: moments as a sum over bins, every outcome of a small release whose
draws depend on all earlier ones (`tests.toy_release`), and log-normal ratios (`benchmarks.random_allocation`).
"""

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product

import mpmath
import numpy as np
import pytest

from benchmarks.random_allocation import DIRECTIONS, Direction, GaussianAllocation, second_moment_divergence
from tasks.accounting import random_allocation
from tasks.accounting.random_allocation import (
    SUMMED_ORDERS,
    AllocationFigures,
    RandomAllocation,
    allocation_figures,
    closed_form_log_moment,
    log_moments,
    reverse_divergence,
    summed_epsilon,
)
from tasks.accounting.zcdp import InvalidTarget, epsilon_of, pure_dp, rho_of
from tests.toy_release import ToyRelease, least_epsilon

pytestmark = pytest.mark.contract

CONCERNS = ("tasks/accounting",)

DELTA = "1e-5"
TOYS = ((2, 3, 1.0), (4, 3, 0.8), (5, 2, 1.5))
ALLOCATIONS = [
    RandomAllocation(rho, batches, read)
    for rho in (3 * 10**10, 27 * 10**10, 178 * 10**10)
    for batches, read in ((1, 1), (2, 2), (3, 1), (8, 8), (40, 13), (1000, 1000))
]


def binomial_moments(allocation: RandomAllocation, largest: int) -> list[mpmath.mpf]:
    """E[L^k] of log-normal ratios, bin after bin: E[(S + l/N)^k] is the sum of C(k, a) E[S^(k-a)] E[l^a] / N^a."""
    with mpmath.workprec(200):
        rho, size = mpmath.mpf(allocation.rho) / 10**12, mpmath.mpf(allocation.batches)
        sums = [mpmath.mpf(1)] + [mpmath.mpf(0)] * largest
        for place in range(allocation.batches):
            ratio = [mpmath.exp(rho * a * (a - 1)) if place < allocation.read else 1 for a in range(largest + 1)]
            terms = [ratio[a] / size**a for a in range(largest + 1)]
            sums = [
                mpmath.fsum(math.comb(k, a) * terms[a] * sums[k - a] for a in range(k + 1)) for k in range(largest + 1)
            ]
        return sums


@pytest.mark.parametrize("allocation", [one for one in ALLOCATIONS if one.batches <= 40])
def test_moments_are_those_of_log_normal_ratios(allocation: RandomAllocation) -> None:
    largest = 9
    for bound, moment in zip(log_moments(allocation, largest), binomial_moments(allocation, largest), strict=True):
        with mpmath.workprec(200):
            true = mpmath.log(moment)
            assert true - mpmath.mpf(2) ** -180 <= mpmath.mpf(bound.numerator) / bound.denominator <= true + 1e-25


def test_a_moment_is_the_mean_over_balls_of_the_pairs_that_share_a_bin() -> None:
    rho, batches, order = 27 * 10**10, 3, 5
    total = 0.0
    for bins in product(range(batches), repeat=order):
        pairs = sum(bins[k] == bins[n] for n in range(order) for k in range(n))
        total += math.exp(2 * rho / 1e12 * pairs)
    moment = math.log(total / batches**order)
    assert float(log_moments(RandomAllocation.whole(rho, batches), order)[order]) == pytest.approx(moment, abs=1e-12)


@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_moments_stay_below_the_closed_form_and_that_below_a_public_assignment(allocation: RandomAllocation) -> None:
    bounds = log_moments(allocation, 12)
    for order in range(2, 13):
        closed = closed_form_log_moment(allocation, order)
        rounding = Fraction(1, 2**250)
        assert 0 <= bounds[order] <= closed + rounding
        assert closed <= allocation.loss * order * (order - 1) + rounding


def test_one_batch_is_a_public_assignment_and_no_figure_is_above_it() -> None:
    rho = rho_of("4", DELTA)
    alone = allocation_figures(RandomAllocation.whole(rho, 1), DELTA)
    assert alone == AllocationFigures(*[epsilon_of(rho, DELTA)] * 3)
    assert log_moments(RandomAllocation.whole(rho, 1), 30)[30] == pytest.approx(float(rho) * 30 * 29 / 1e12)


def test_more_batches_and_fewer_read_ones_cost_less() -> None:
    rho = rho_of("4", DELTA)
    figures = [allocation_figures(RandomAllocation(rho, *sizes), DELTA) for sizes in ((8, 8), (100, 100), (100, 20))]
    assert [one.public for one in figures] == [epsilon_of(rho, DELTA)] * 3
    for larger, smaller in pairwise(figures):
        assert smaller.remove < larger.remove
        assert smaller.add < larger.add


def test_the_remove_figure_is_that_of_the_best_of_all_orders() -> None:
    """A small loss of many batches, whose best order is far beyond that of the closed form."""
    allocation, target = RandomAllocation.whole(rho_of("1", DELTA), 64), Fraction(DELTA)
    bounds = log_moments(allocation, 160)
    epsilons = {n: random_allocation._epsilon_at(Fraction(n), bounds[n], target) for n in range(2, 161)}
    best = min(epsilons, key=epsilons.__getitem__)
    assert 100 < best < 140
    assert 0 <= Fraction(allocation_figures(allocation, DELTA).remove) - epsilons[best] <= Fraction(1, 10**12)


def test_the_least_ratio_bounds_add_without_any_delta() -> None:
    figures = allocation_figures(RandomAllocation(rho_of("10", DELTA), 1000, 100), "1e-17")
    assert math.log(1000 / 900) <= figures.add < math.log(1000 / 900) + 1e-11


# The worst case of zCDP at every order is the Gaussian, so a figure below its exact one would be false.


@lru_cache
def gaussian(claim: str, batches: int, direction: Direction) -> GaussianAllocation:
    return GaussianAllocation(rho_of(claim, DELTA) / 1e12, batches, direction, upper=False, points=2**18)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("claim", "batches"), [("1", 8), ("4", 32), ("10", 8)])
def test_figures_hold_for_gaussians_and_those_of_eight_times_the_batches_do_not(
    claim: str, batches: int, direction: Direction
) -> None:
    law, rho = gaussian(claim, batches, direction), rho_of(claim, DELTA)
    honest, broken = (allocation_figures(RandomAllocation.whole(rho, n), DELTA) for n in (batches, 8 * batches))
    assert law.delta(float(getattr(honest, direction))) <= float(DELTA)
    assert law.delta(float(getattr(broken, direction))) > float(DELTA)


def test_two_releases_with_one_assignment_exceed_what_two_fresh_ones_prove() -> None:
    """Fresh assignments compose order by order; one assignment used twice is one allocation of twice the rho."""
    rho, batches = rho_of("4", DELTA), 32
    bounds = log_moments(RandomAllocation.whole(rho, batches), 24)
    target = Fraction(DELTA)
    fresh = min(random_allocation._epsilon_at(Fraction(order), 2 * bounds[order], target) for order in range(2, 25))
    reused = GaussianAllocation(2 * rho / 1e12, batches, "remove", upper=False, points=2**18)
    assert reused.delta(float(fresh)) > float(DELTA)


# Small releases, every outcome: the law is exact, and each draw depends on all earlier ones of all batches.


@lru_cache
def toy(batches: int, draws: int, eta: float) -> ToyRelease:
    return ToyRelease.of(batches, draws, eta)


@pytest.mark.parametrize("delta", ["0.1", "0.01", "0.001"])
@pytest.mark.parametrize("sizes", TOYS)
def test_figures_hold_for_draws_that_depend_on_all_earlier_ones(sizes: tuple[int, int, float], delta: str) -> None:
    release = toy(*sizes)
    figures = allocation_figures(RandomAllocation.whole(release.rho, release.batches), delta)
    present, absent = release.allocated(), release.without
    assert 0 < least_epsilon(present, absent, float(delta)) <= figures.remove
    assert 0 < least_epsilon(absent, present, float(delta)) <= figures.add


@pytest.mark.parametrize("sizes", TOYS)
def test_moments_of_small_releases_stay_below_their_bounds(sizes: tuple[int, int, float]) -> None:
    release = toy(*sizes)
    allocation = RandomAllocation.whole(release.rho, release.batches)
    bounds, ratio = log_moments(allocation, 12), release.ratios.mean(axis=0)
    for order in range(2, 13):
        assert math.log(release.without @ ratio**order) <= float(bounds[order])
    for real in (Fraction(3, 2), Fraction(2), Fraction(5), Fraction(20)):
        moment = math.log(release.without @ ratio ** float(1 - real))
        assert moment <= float((real - 1) * reverse_divergence(allocation, real))


@pytest.mark.parametrize("sizes", TOYS)
def test_the_second_bound_for_add_holds_too(sizes: tuple[int, int, float]) -> None:
    """The one by the variance, which is not in use."""
    release = toy(*sizes)
    ratio, rho = release.ratios.mean(axis=0), release.rho / 1e12
    for order in (2, 3, 4, 8, 20):
        moment = math.log(release.without @ ratio ** float(1 - order)) / (order - 1)
        assert moment <= second_moment_divergence(rho, release.batches, order)


def test_the_second_bound_for_add_is_near_the_truth_of_gaussians_at_low_orders() -> None:
    """Drawn ones: 200,000 means of 100 independent log-normal ratios. So a bound for four times as many is false."""
    rng, rho, batches = np.random.default_rng(1), 0.03, 100
    mean = np.concatenate(
        [np.exp(rng.normal(-rho, math.sqrt(2 * rho), (20_000, batches))).mean(axis=1) for _ in range(10)]
    )
    for order in (2, 3, 4):
        drawn = mean ** (1.0 - order)
        error = 5 * drawn.std() / math.sqrt(len(drawn))
        low, high = (math.log(drawn.mean() + sign * error) / (order - 1) for sign in (-1, 1))
        assert low <= second_moment_divergence(rho, batches, order) < 2 * high
        assert second_moment_divergence(rho, 4 * batches, order) < low


def test_twins_that_break_a_hypothesis_exceed_the_figures() -> None:
    """A unit whose batch is known; one that is in two batches; one that is likelier in one batch than in others."""
    release, delta = toy(4, 3, 0.8), "0.01"
    figures = allocation_figures(RandomAllocation.whole(release.rho, release.batches), delta)
    twins = {
        "known": release.placed([(0,)]),
        "in two batches": release.placed([(place, (place + 1) % 4) for place in range(4)]),
        "not uniform": release.placed([(0,)] * 17 + [(1,), (2,), (3,)]),
    }
    for name, present in twins.items():
        assert least_epsilon(present, release.without, float(delta)) > figures.remove, name
        assert least_epsilon(release.without, present, float(delta)) > figures.add, name


def test_what_a_second_moment_proves_of_independent_batches_is_false_here() -> None:
    """Why no bound of the module assumes that batches are independent: an outcome of one may steer all others."""
    release = toy(4, 3, 0.8)
    joint = release.without @ (release.ratios[0] * release.ratios[1] ** 2)
    apart = (release.without @ release.ratios[0]) * (release.without @ release.ratios[1] ** 2)
    assert np.isclose(release.without @ release.ratios[0], 1)
    assert not np.isclose(joint, apart, rtol=1e-6)


@pytest.mark.parametrize("sizes", [(0, 0), (3, 0), (3, 4), (3, -1)])
def test_impossible_sizes_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        RandomAllocation(10**9, *sizes)


def test_a_negative_loss_an_order_of_one_and_an_impossible_delta_are_refused() -> None:
    with pytest.raises(ValueError):
        RandomAllocation.whole(-1, 3)
    with pytest.raises(ValueError, match="above 1"):
        reverse_divergence(RandomAllocation.whole(1, 3), Fraction(1))
    for delta in ("0", "1", "-1"):
        with pytest.raises(InvalidTarget):
            allocation_figures(RandomAllocation.whole(10**9, 3), delta)


@pytest.mark.slow_except("1")
@pytest.mark.parametrize("rho", [0, 1, 10**6])
def test_next_to_nothing_costs_next_to_nothing(rho: int) -> None:
    """High orders of tiny losses, where a sum with terms of both signs would lose every digit."""
    bounds = log_moments(RandomAllocation.whole(rho, 3), 100)
    assert all(
        0 <= bound <= Fraction(rho, 10**12) * n * (n - 1) + Fraction(1, 2**200) for n, bound in enumerate(bounds)
    )
    assert allocation_figures(RandomAllocation.whole(rho, 3), DELTA).epsilon <= epsilon_of(rho, DELTA)


# Mechanisms of the release that do not read the assignment: a count, charged metrics.

WITH_OTHERS = [
    RandomAllocation(rho_of("4", DELTA), 20, 20, rho_of("1", DELTA)),
    RandomAllocation(rho_of("1", DELTA), 30, 9, rho_of("2", DELTA)),
    RandomAllocation(rho_of("10", DELTA), 40, 2, 10**6),
]


def prop_12(order: mpmath.mpf, moment: mpmath.mpf) -> mpmath.mpf:
    """The epsilon of one order at DELTA, from (order - 1) times its divergence, by Proposition 12 solved in floats."""
    rest = order - 1
    logs = rest * mpmath.log(rest) - order * mpmath.log(order) - mpmath.log(mpmath.mpf(DELTA))
    return (moment + logs) / rest


@pytest.mark.parametrize("allocation", WITH_OTHERS)
def test_other_mechanisms_add_at_every_order_of_remove(allocation: RandomAllocation) -> None:
    """Against sums over bins, each with the exact moment of a Gaussian beside the batches."""
    with mpmath.workprec(200):
        other = mpmath.mpf(allocation.other) / 10**12
        moments = binomial_moments(allocation, 60)
        least = min(
            prop_12(mpmath.mpf(n), mpmath.log(moments[n]) + n * (n - 1) * other) for n in range(2, len(moments))
        )
        expected = min(least, mpmath.mpf(str(epsilon_of(allocation.rho + allocation.other, DELTA))))
        assert 0 <= mpmath.mpf(str(allocation_figures(allocation, DELTA).remove)) - expected <= 1e-11


@pytest.mark.slow_except("allocation1")
@pytest.mark.parametrize("allocation", WITH_OTHERS)
def test_other_mechanisms_add_at_every_order_of_add(allocation: RandomAllocation) -> None:
    """Against a search over 20,000 orders with a divergence that this test writes down itself."""
    with mpmath.workprec(100):
        rho, other = mpmath.mpf(allocation.rho) / 10**12, mpmath.mpf(allocation.other) / 10**12
        size, read = mpmath.mpf(allocation.batches), mpmath.mpf(allocation.read)
        powers = [mpmath.mpf(10) ** (mpmath.mpf(step) / 2000 - 3) for step in range(20_000)]
        least = min(prop_12(1 + x, read * (x / size + (x / size) ** 2) * rho + x * (1 + x) * other) for x in powers)
        if read < size:
            alone = mpmath.mpf(str(epsilon_of(allocation.other, DELTA)))
            least = min(least, mpmath.log(size / (size - read)) + alone)
        assert abs(mpmath.mpf(str(allocation_figures(allocation, DELTA).add)) - least) <= 1e-5


def test_the_cap_without_a_delta_is_only_that_of_the_batches() -> None:
    figures = allocation_figures(RandomAllocation(rho_of("10", DELTA), 1000, 10, 10**6), DELTA)
    alone = epsilon_of(10**6, DELTA)
    assert float(figures.add) == pytest.approx(float(alone) + math.log(1000 / 990), abs=1e-11)


@pytest.mark.parametrize("delta", ["0.1", "0.01"])
def test_figures_hold_for_a_release_with_an_answer_beside_its_batches(delta: str) -> None:
    """Every outcome of batches and of a randomised response about the unit; figures without it are exceeded."""
    release, answers = toy(4, 3, 0.8), np.array([0.75, 0.25])
    other = pure_dp("1.0986122886681100").rho  # a little more than ln 3
    present = np.multiply.outer(release.allocated(), answers).ravel()
    absent = np.multiply.outer(release.without, answers[::-1]).ravel()
    honest = allocation_figures(RandomAllocation(release.rho, 4, 4, other), delta)
    broken = allocation_figures(RandomAllocation(release.rho, 4, 4), delta)
    for direction, law in (("remove", (present, absent)), ("add", (absent, present))):
        found = least_epsilon(*law, float(delta))
        assert getattr(broken, direction) < found <= getattr(honest, direction)


def test_other_mechanisms_of_one_batch_are_a_public_assignment() -> None:
    rho, other = rho_of("3", DELTA), rho_of("2", DELTA)
    alone = allocation_figures(RandomAllocation(rho, 1, 1, other), DELTA)
    assert alone == AllocationFigures(*[epsilon_of(rho + other, DELTA)] * 3)
    with pytest.raises(ValueError):
        RandomAllocation(rho, 2, 2, -1)


# Several releases, each with an assignment of its own.


def test_the_sum_is_that_of_independent_moments_and_gaussians_do_not_exceed_it() -> None:
    """Two releases and a rest, against sums over bins at every order; the rest as a Gaussian's moments."""
    releases, rest = [RandomAllocation(rho_of("2", DELTA), 20, 20), RandomAllocation(rho_of("1", DELTA), 30, 9)], 10**10
    with mpmath.workprec(200):
        moments = [binomial_moments(one, 64) for one in releases]
        other = mpmath.mpf(rest) / 10**12
        remove = min(
            prop_12(mpmath.mpf(n), mpmath.fsum(mpmath.log(one[n]) for one in moments) + n * (n - 1) * other)
            for n in SUMMED_ORDERS
        )
        add = min(
            prop_12(mpmath.mpf(n), (n - 1) * (mpmath.fsum(mean_bound(one, n) for one in releases) + n * other))
            for n in SUMMED_ORDERS
        )
        found = mpmath.mpf(str(summed_epsilon(releases, rest, DELTA)))
        assert 0 <= found - max(remove, add) <= 1e-11


def mean_bound(one: RandomAllocation, order: int) -> mpmath.mpf:
    """The divergence for add, written down again."""
    size = mpmath.mpf(one.batches)
    return mpmath.mpf(one.rho) / 10**12 * one.read / size * (1 + (order - 1) / size)


def test_one_release_alone_is_near_its_own_figure_and_never_below_it() -> None:
    for allocation in (RandomAllocation(rho_of("4", DELTA), 20, 20), RandomAllocation(rho_of("4", DELTA), 50, 6)):
        alone = allocation_figures(allocation, DELTA).epsilon
        assert alone <= summed_epsilon([allocation], 0, DELTA) <= alone * Decimal("1.1")


def test_a_sum_is_never_above_that_of_public_assignments() -> None:
    rho = rho_of("4", DELTA)
    assert summed_epsilon([RandomAllocation(rho, 2, 2)] * 3, rho, DELTA) <= epsilon_of(4 * rho, DELTA)
    assert summed_epsilon([], rho, DELTA) == epsilon_of(rho, DELTA)
    assert summed_epsilon([RandomAllocation(rho, 100, 100)] * 2, 0, DELTA) < epsilon_of(2 * rho, DELTA)
    with pytest.raises(InvalidTarget):
        summed_epsilon([], rho, "0")


def test_two_splits_cost_no_more_than_one_of_both_losses() -> None:
    """Why an attempt's loss may be counted with that of another split of the same release."""
    rho = rho_of("2", DELTA)
    for share in (1, 3, 7):
        parts = [RandomAllocation(rho * share // 10, 20, 12), RandomAllocation(rho - rho * share // 10, 20, 12)]
        assert summed_epsilon(parts, 0, DELTA) <= summed_epsilon([RandomAllocation(rho, 20, 12)], 0, DELTA)


USERS = ["tasks/accounting/renyi_account.py", "tasks/planning/secret_assignment.py"]
"""What may call the module: the claim of a release beside the unconditional one, and the account in orders."""


def test_only_claims_of_releases_use_it() -> None:
    """Decisions 0132 and 0150: nothing else may rest on a secret assignment."""
    from pathlib import Path

    root = Path(random_allocation.__file__).parents[2]
    users = [
        str(path.relative_to(root))
        for room in ("almoner", "cli", "flows", "migrations", "models_db", "tasks")
        for path in sorted((root / room).rglob("*.py"))
        if "random_allocation" in path.read_text(encoding="utf-8")
    ]
    assert users == USERS
