"""The account in orders: curves, limits and epsilon, against other arithmetic, exact laws and drawn releases."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

from models_db.values.amounts import RENYI_ORDERS, RHO_UNIT, RenyiCurve
from tasks.accounting.random_allocation import RandomAllocation
from tasks.accounting.renyi_account import OrdersBudget, allocation_curve, curve_epsilon, curve_limits
from tasks.accounting.rounding import Exact
from tasks.accounting.zcdp import InvalidTarget, epsilon_of, rho_of
from tests.toy_release import probability

pytestmark = pytest.mark.contract

CONCERNS = ("tasks/accounting",)

ALLOCATIONS = [
    RandomAllocation(rho, batches, read, other)
    for rho in (1, 3 * 10**10, 37 * 10**10, 178 * 10**10)
    for batches, read in ((1, 1), (2, 2), (3, 1), (8, 8), (100, 100), (1000, 100))
    for other in (0, 2 * 10**9)
]


# --- Curves ------------------------------------------------------------------------------------------------------


def multiply(one: Sequence[mpmath.mpf], other: Sequence[mpmath.mpf]) -> list[mpmath.mpf]:
    return [mpmath.fsum(one[k] * other[n - k] for k in range(n + 1)) for n in range(len(one))]


def power(series: Sequence[mpmath.mpf], exponent: int) -> list[mpmath.mpf]:
    """A power series to an integer power, by squaring: what the product uses is a recursion over connected graphs."""
    result, base = [mpmath.mpf(1)] + [mpmath.mpf(0)] * (len(series) - 1), list(series)
    while exponent:
        if exponent & 1:
            result = multiply(result, base)
        exponent //= 2
        if exponent:
            base = multiply(base, base)
    return result


def remove_by_series(one: RandomAllocation) -> list[mpmath.mpf]:
    """n! [z^n] F(z/N)^M e^(z (N-M)/N), its logarithm over n (n-1), and rho' of the others."""
    rho, size, largest = mpmath.mpf(one.rho) / RHO_UNIT, one.batches, RENYI_ORDERS[-1]
    of_batch = [mpmath.exp(rho * a * (a - 1)) / mpmath.factorial(a) / mpmath.mpf(size) ** a for a in range(largest + 1)]
    unread = [(mpmath.mpf(size - one.read) / size) ** a / mpmath.factorial(a) for a in range(largest + 1)]
    series = multiply(power(of_batch, one.read), unread)
    return [
        mpmath.log(mpmath.factorial(n) * series[n]) / (n * (n - 1)) + mpmath.mpf(one.other) / RHO_UNIT
        for n in RENYI_ORDERS
    ]


@pytest.mark.parametrize("one", ALLOCATIONS)
def test_a_curve_is_the_next_integer_above_what_other_arithmetic_gives(one: RandomAllocation) -> None:
    curve = allocation_curve(one)
    with mpmath.workprec(500):
        for value, true in zip(curve.remove, remove_by_series(one), strict=True):
            assert true * RHO_UNIT - mpmath.mpf(2) ** -60 <= value < true * RHO_UNIT + 1 + mpmath.mpf(2) ** -60
        for value, order in zip(curve.add, RENYI_ORDERS, strict=True):
            share = Fraction(one.read * one.rho, one.batches * order) * (1 + Fraction(order - 1, one.batches))
            assert value == min(one.rho + one.other, one.other + math.ceil(share))


@pytest.mark.parametrize("one", ALLOCATIONS)
def test_a_curve_is_never_above_the_whole_rho_nor_below_what_all_balls_in_one_bin_weigh(one: RandomAllocation) -> None:
    curve, whole = allocation_curve(one), one.rho + one.other
    for order, remove, add in zip(RENYI_ORDERS, curve.remove, curve.add, strict=True):
        assert one.other <= min(remove, add) <= max(remove, add) <= whole
        together = one.rho + math.log(one.read / one.batches**order) / (order * (order - 1)) * RHO_UNIT
        assert remove >= one.other + together - 1
    if one.batches == 1:
        assert curve == RenyiCurve.of_rho(whole)


@pytest.mark.slow
def test_a_release_in_two_splits_costs_no_more_than_its_whole_curve() -> None:
    """An attempt from nothing has a split of its own: what it draws and what was drawn before are under one charge."""
    for one in ALLOCATIONS:
        whole = allocation_curve(one)
        for part in (one.rho // 3, one.rho // 2):
            parts = [RandomAllocation(rho, one.batches, one.read) for rho in (part, one.rho - part)]
            split = allocation_curve(parts[0]) + allocation_curve(parts[1]) + RenyiCurve.of_rho(one.other)
            for values, together in ((split.remove, whole.remove), (split.add, whole.add)):
                assert all(a <= b + 2 for a, b in zip(values, together, strict=True)), "rounded up twice"


@pytest.mark.parametrize("values", [(1,) * 7, (1,) * 9, (-1,) * 8])
def test_a_curve_has_one_number_of_each_order(values: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"orders|negative"):
        RenyiCurve(values, (1,) * 8)
    with pytest.raises(ValueError, match=r"orders|negative"):
        RenyiCurve((1,) * 8, values)


def test_a_curve_is_of_integers() -> None:
    with pytest.raises(TypeError):
        RenyiCurve((1.5,) * 8, (1,) * 8)  # type: ignore[arg-type]


# --- Claims ------------------------------------------------------------------------------------------------------

CLAIMS = [("1", "1e-5"), ("0.5", "1e-7"), ("4", "1e-5"), ("10", "1e-7"), ("0.1", "1e-2")]


@pytest.mark.parametrize(("epsilon", "delta"), CLAIMS)
def test_limits_are_those_of_the_conversion_at_a_share_of_delta(epsilon: str, delta: str) -> None:
    for order, limit in zip(RENYI_ORDERS, curve_limits(epsilon, delta), strict=True):
        with mpmath.workdps(60):

            def implied(value: int, n: int = order) -> mpmath.mpf:
                """Delta of order n, its divergence n times the value, by Proposition 12 of Canonne and others."""
                excess = mpmath.mpf(n * value) / RHO_UNIT - mpmath.mpf(epsilon)
                return mpmath.exp((n - 1) * excess) / (n - 1) * (1 - mpmath.mpf(1) / n) ** n

            share = mpmath.mpf(delta) / len(RENYI_ORDERS)
            assert limit == 0 or implied(limit) <= share * (1 + mpmath.mpf(10) ** -50)
            assert implied(limit + 1) > share


@pytest.mark.parametrize(("epsilon", "delta"), CLAIMS)
def test_a_sum_fits_a_claim_if_its_epsilon_is_at_most_the_claims(epsilon: str, delta: str) -> None:
    limits = curve_limits(epsilon, delta)
    for place, limit in enumerate(limits):
        if not limit:
            continue
        largest = [limit + 10**13] * len(limits)
        largest[place] = limit
        inside = RenyiCurve(tuple(largest), RenyiCurve.of_rho(1).add)
        largest[place] = limit + 1
        outside = RenyiCurve(tuple(largest), RenyiCurve.of_rho(1).add)
        assert inside.fits(limits)
        assert not outside.fits(limits)
        assert not RenyiCurve(outside.add, outside.remove).fits(limits), "each direction has to fit"
        assert Fraction(curve_epsilon(inside, delta)) <= Fraction(epsilon) < Fraction(curve_epsilon(outside, delta))


def test_directions_may_fit_at_different_orders() -> None:
    limits = curve_limits("1", "1e-5")
    large = 10**14
    low = (*([large] * 4), *limits[4:])
    high = (large, large, large, limits[3], *([large] * 4))
    assert RenyiCurve(low, high).fits(limits)
    assert not RenyiCurve(low, (large,) * 8).fits(limits)


def test_the_epsilon_of_rho_alone_is_not_below_that_of_all_orders() -> None:
    for claim, delta in CLAIMS:
        rho = rho_of(claim, delta)
        assert curve_epsilon(RenyiCurve.of_rho(rho), delta) >= epsilon_of(rho, delta)
    assert curve_epsilon(RenyiCurve.of_rho(0), "1e-5") == Decimal(0)


@pytest.mark.parametrize(("epsilon", "delta"), [("0", "1e-5"), ("-1", "1e-5"), ("1000001", "1e-5"), ("1", "0"),
                                                ("1", "1"), ("0.01", "1e-9")])  # fmt: skip
def test_impossible_claims_are_refused(epsilon: Exact, delta: Exact) -> None:
    with pytest.raises(InvalidTarget):
        curve_limits(epsilon, delta)


def test_an_impossible_delta_is_refused() -> None:
    with pytest.raises(InvalidTarget):
        curve_epsilon(RenyiCurve.of_rho(1), "1")


# --- Adaptive sizes: all outcomes --------------------------------------------------------------------------------

ETA = 0.7
FIRST = (2, 3)
"""Batches and draws of each of the first release."""
LATER = {0: (3, 1), 1: (2, 2)}
"""Sizes of the second, by whether the first round of the first has an odd number of ones."""


def curve_of(batches: int, draws: int) -> RenyiCurve:
    return allocation_curve(RandomAllocation.whole(math.ceil(draws * ETA**2 / 8 * 1e12), batches))


@dataclass
class Outcome:
    """One outcome of two releases at once, the second opened by an output of the first.

    Attributes:
        without: its probability without the unit.
        ratios: of each release, by what a batch multiplies it.
        charged: the sum of both curves.
    """

    without: float
    ratios: tuple[list[float], list[float]]
    charged: RenyiCurve

    @property
    def ratio(self) -> float:
        """L: the mean over both secret places, which are independent."""
        return math.prod(sum(one) / len(one) for one in self.ratios)

    @property
    def known(self) -> float:
        """The ratio of a unit that is known to be in the first batch of both."""
        return self.ratios[0][0] * self.ratios[1][0]


def outcomes() -> Iterator[Outcome]:
    """All outcomes: three rounds of the first release; from the second round on the other one draws beside it."""
    for first_round in product((0, 1), repeat=FIRST[0]):
        size, draws = LATER[sum(first_round) % 2]
        rounds = [FIRST[0]] + [FIRST[0] + (size if number < draws else 0) for number in range(FIRST[1] - 1)]
        for rest in product((0, 1), repeat=sum(rounds) - FIRST[0]):
            bits = iter((*first_round, *rest))
            without, ones = 1.0, 0
            ratios: tuple[list[float], list[float]] = ([1.0] * FIRST[0], [1.0] * size)
            for live in rounds:
                drawn = [next(bits) for _ in range(live)]
                for place, bit in enumerate(drawn):
                    release, batch = (0, place) if place < FIRST[0] else (1, place - FIRST[0])
                    absent, present = (probability(place, ones, shift)[bit] for shift in (0.0, ETA))
                    without *= absent
                    ratios[release][batch] *= present / absent
                ones += sum(drawn)
            yield Outcome(without, ratios, curve_of(*FIRST) + curve_of(size, draws))


def weights(ratio: float, charged: RenyiCurve) -> Iterator[float]:
    """L^n e^(-(n-1) D) of remove and L^(1-n) e^(-(n-1) D) of add at each order, D what was charged."""
    for order, remove, add in zip(RENYI_ORDERS, charged.remove, charged.add, strict=True):
        yield math.exp(order * math.log(ratio) - (order - 1) * order * remove / RHO_UNIT)
        yield math.exp((1 - order) * math.log(ratio) - (order - 1) * order * add / RHO_UNIT)


def test_charges_hold_where_outputs_decide_about_sizes_and_both_releases_draw_at_once() -> None:
    """The mean of L^n over what was charged is at most 1: the inequality on which the account rests."""
    every = list(outcomes())
    assert math.isclose(sum(one.without for one in every), 1)
    assert len({one.charged for one in every}) == len(LATER)
    means = np.sum([np.array(list(weights(one.ratio, one.charged))) * one.without for one in every], axis=0)
    assert (means <= 1 + 1e-9).all()
    assert means.max() > 0.85, "the inequality is near"
    known = np.sum([np.array(list(weights(one.known, one.charged))) * one.without for one in every], axis=0)
    assert known.max() > 2, "a known assignment exceeds it"


# --- Drawn releases ----------------------------------------------------------------------------------------------


def drawn_means(seed: int, charged_batches: int) -> tuple[float, float]:
    """Mean and standard error of L^2 e^(-2 D) at order 3, with the unit: two Gaussian releases, one after the other.

    The second has 4 or 8 batches, by the sign of what the first released. Each has an assignment of its own.
    """
    generator, trials, rho = np.random.default_rng(seed), 400_000, 0.15
    shift = math.sqrt(2 * rho)

    def release(batches: int) -> tuple[np.ndarray, np.ndarray]:
        noise = generator.standard_normal((trials, batches))
        place = generator.integers(batches, size=trials)
        noise[np.arange(trials), place] += shift
        return noise.sum(axis=1), np.exp(shift * noise - rho).mean(axis=1)

    released, ratio = release(4)
    (_, small), (_, large) = release(4), release(8)
    ratio = ratio * np.where(released > 0, small, large)
    charges = {n: allocation_curve(RandomAllocation.whole(int(rho * RHO_UNIT), n)).remove[0] for n in (4, 8, 16)}
    charged = np.where(released > 0, charges[charged_batches], charges[2 * charged_batches]) + charges[charged_batches]
    values = ratio**2 * np.exp(-2 * 3 * charged / RHO_UNIT)
    return float(values.mean()), float(values.std() / math.sqrt(trials))


def test_drawn_releases_stay_within_the_charges_and_near_them() -> None:
    """Gaussian batches attain the remove bound; charges of twice as many batches are exceeded."""
    mean, error = drawn_means(17, 4)
    assert mean - 4 * error <= 1
    assert mean + 4 * error >= 0.98
    mean, error = drawn_means(18, 8)
    assert mean - 4 * error > 1


# --- Which order -------------------------------------------------------------------------------------------------


def divergence(order: int, ratio: float, mass: float) -> float:
    """Of a law that has the ratio with a mass (without the unit), and is nearly public otherwise."""
    rest = (1 - mass * ratio) / (1 - mass)
    return math.log(mass * ratio**order + (1 - mass) * rest**order) / (order - 1)


def fullest(order: int, limit: float, ratio: float) -> float:
    """The largest mass for which the divergence stays within a limit, by bisection."""
    low, high = 0.0, 1 / ratio
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(order, ratio, middle) <= limit else (low, middle)
    return low


def delta_of_two_steps(limits: dict[int, float], epsilon: float) -> float:
    """The delta of an adversary who asks a second question that depends on the answer to the first.

    Where the answer points to the unit, the sum stays within the limit of the higher order alone, else of the lower.
    """
    low, high = sorted(limits)
    ratio, mass = math.exp(0.3), 10**-1.5
    total = 0.0
    for likelihood, share, order in ((ratio, mass, high), ((1 - mass * ratio) / (1 - mass), 1 - mass, low)):
        left = limits[order] - divergence(order, ratio, mass)
        step = math.exp(epsilon) * order / (order - 1) / likelihood
        rare = fullest(order, left, step)
        for then, part in ((step, rare), ((1 - rare * step) / (1 - rare), 1 - rare)):
            total += share * part * max(0.0, likelihood * then - math.exp(epsilon))
    return total


def test_one_of_several_orders_needs_a_share_of_delta_for_each() -> None:
    """Limits with the whole delta at each order, of which one has to hold, are no filter: delta is exceeded by half."""
    epsilon, delta = 2.0, 1e-3

    def limits(target: float) -> dict[int, float]:
        return {
            n: epsilon - ((n - 1) * math.log(n - 1) - n * math.log(n) - math.log(target)) / (n - 1) for n in (4, 32)
        }

    assert delta_of_two_steps(limits(delta), epsilon) > 1.5 * delta
    assert delta_of_two_steps(limits(delta / 2), epsilon) <= delta
    ours = curve_limits("2", "1e-3")
    mine = {n: n * ours[RENYI_ORDERS.index(n)] / RHO_UNIT for n in (4, 32)}
    assert delta_of_two_steps(mine, epsilon) <= delta


# --- What a price compares ---------------------------------------------------------------------------------------

TIGHT, WIDE = (Decimal(1), Decimal("1e-6")), (Decimal(2), Decimal("1e-6"))


def test_a_price_compares_each_block_that_is_read_with_each_claim() -> None:
    limits = curve_limits(*TIGHT)
    whole = max(limits)
    full = OrdersBudget((TIGHT, WIDE), {3: RenyiCurve.of_rho(whole)})
    one = RenyiCurve.of_rho(1)
    assert full.passed_by(one, (0, 1, 2)) is None, "other blocks have nothing"
    assert full.passed_by(one, (2, 3)) == TIGHT
    assert full.passed_by(RenyiCurve.of_rho(0), (3,)) is None, "nothing passes no limit"
    assert OrdersBudget((WIDE,), full.charged).passed_by(one, (3,)) is None
    assert full.passed_by(RenyiCurve.of_rho(max(curve_limits(*WIDE))), (3,)) == TIGHT
    assert (full.room(TIGHT, (3,)), full.room(TIGHT, (0,)), full.room(TIGHT, (0, 3))) == (0, whole, 0)
    assert (full.strictest((3,)), full.epsilon(TIGHT[1], (0,))) == (TIGHT, 0)
    assert full.epsilon(TIGHT[1], (0, 3)) == curve_epsilon(RenyiCurve.of_rho(whole), TIGHT[1])


def test_the_room_admits_every_plan_of_that_rho_and_no_more() -> None:
    budget = OrdersBudget((TIGHT,), {0: allocation_curve(RandomAllocation(RHO_UNIT // 50, 100, 50))})
    room = budget.room(TIGHT, (0,))
    assert room > 0
    assert budget.passed_by(RenyiCurve.of_rho(room), (0,)) is None
    assert budget.passed_by(RenyiCurve.of_rho(room + 1), (0,)) == TIGHT


def test_the_claim_with_least_room_is_not_always_the_smaller_epsilon() -> None:
    small_delta = (Decimal("1.2"), Decimal("1e-15"))
    budget = OrdersBudget((TIGHT, small_delta), {})
    assert budget.strictest((0,)) == small_delta


def curves(source: np.random.Generator, largest: int) -> RenyiCurve:
    return RenyiCurve.of_values([int(value) for value in source.integers(0, largest, 2 * len(RENYI_ORDERS))])


@pytest.mark.parametrize("seed", range(20))
def test_so_many_charges_fit_as_are_counted(seed: int) -> None:
    """One more after the other until a limit is passed: random curves on two blocks, under two limits."""
    source = np.random.default_rng(seed)
    largest = max(max(curve_limits(*claim)) for claim in (TIGHT, WIDE))
    cost, charged = curves(source, largest // 5), {0: curves(source, largest // 9), 1: curves(source, largest // 9)}
    counted, taken = OrdersBudget((TIGHT, WIDE), charged).count(cost, (0, 1, 2)), 0
    charged[2] = RenyiCurve.of_rho(0)
    while OrdersBudget((TIGHT, WIDE), charged).passed_by(cost, (0, 1, 2)) is None:
        charged, taken = {block: curve + cost for block, curve in charged.items()}, taken + 1
    assert counted == taken


def test_what_costs_nothing_at_an_order_within_its_limit_fits_any_number_of_times() -> None:
    budget = OrdersBudget((TIGHT,), {0: RenyiCurve.of_rho(1)})
    assert budget.count(RenyiCurve.of_rho(0), (0,)) is None
    assert budget.count(RenyiCurve((1,) * 7 + (0,), (0,) * 8), (0,)) is None
    past = OrdersBudget((TIGHT,), {0: RenyiCurve.of_rho(max(curve_limits(*TIGHT)) + 1)})
    assert past.count(RenyiCurve.of_rho(0), (0,)) == 0
