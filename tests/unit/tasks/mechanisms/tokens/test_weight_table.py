"""The integer weights: what they are, and that they fall no faster than the bound says."""

import hashlib
from dataclasses import replace
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.accounting.rounding import enclose, iv, upper
from tasks.mechanisms.tokens.integer_table import weight_table

GOLDEN_DIGEST = "ee03fb6fcb0e0c90077bf8ff9f04749a99ceefbf648c9ca7204d5a0a258cce19"
# Tables of at most some thousand places, so that everything about them can be tried.
STEPS = st.builds(Fraction, st.integers(1, 400), st.just(400))
SMALL = st.builds(weight_table, STEPS, st.integers(22, 34), st.just(20))


def weights_of(table):
    """All weights, and some beyond the table's end."""
    return [table.weight(index) for index in range(table.end + 40)]


def steepest_fall(table, distance):
    """A by brute force: over all pairs of places at most `distance` apart, in exact arithmetic."""
    weights = weights_of(table)
    pairs = ((i, k) for i in range(len(weights)) for k in range(i, min(i + distance + 1, len(weights))))
    return max(max(Fraction(weights[i], weights[k]), Fraction(weights[k], weights[i])) for i, k in pairs)


def log_above(ratio):
    return upper(iv.log(enclose(ratio)))


@settings(max_examples=60)
@given(st.builds(weight_table, st.integers(4, 40).map(lambda n: Fraction(n, 40)), st.integers(21, 26), st.just(20)))
def test_every_pair_of_places_is_within_the_bound(table):
    for distance in (1, 2, 3, len(table.low) - 1, len(table.low), len(table.low) + 1, table.end, table.end + 3):
        assert table.bound(distance) >= log_above(steepest_fall(table, distance))


@settings(max_examples=200)
@given(SMALL, st.data())
def test_the_bound_is_above_the_steepest_fall_and_close_to_it(table, data):
    """With falling weights the pairs at exactly the distance are the steepest."""
    distance = data.draw(st.integers(0, table.end + 20))
    weights = weights_of(table)
    assert weights == sorted(weights, reverse=True)
    steepest = max(
        (Fraction(one, other) for one, other in zip(weights, weights[distance:], strict=False)),
        default=Fraction(weights[0], table.floor),
    )
    bound = table.bound(distance)
    assert bound >= log_above(steepest)
    # The floor costs 1/F for the rounding of either weight, the tables a few parts in 2^31.
    assert bound <= log_above(steepest) + Fraction(2, table.floor) + Fraction(1, 2**28)


@settings(max_examples=100)
@given(SMALL, st.integers(0, 3000), st.integers(0, 3000))
def test_a_longer_way_costs_no_less(table, one, other):
    assert table.bound(max(one, other)) + Fraction(1, 2**28) >= table.bound(min(one, other))


@pytest.mark.parametrize("step", [Fraction(1, 8), Fraction(1, 65), Fraction(100003, 2**37), Fraction(1, 2**24)])
def test_the_weights_are_exponentials(step):
    """To one part in 2^23, computed again with 60 digits, down to the floor; and the floor after it."""
    table = weight_table(step, 62, 24)
    with mpmath.workdps(60):
        nats = mpmath.mpf(step.numerator) / step.denominator
        for index in range(0, table.end, max(1, table.end // 997)):
            exact = max(mpmath.mpf(2) ** 62 * mpmath.exp(-index * nats), 2**24)
            assert abs(table.weight(index) / exact - 1) <= 2.0**-23
    assert table.weight(0) == 2**62
    assert [table.weight(index) for index in (table.end, table.end + 1, 2**70)] == [2**24] * 3
    assert table.end * step >= Fraction(38) * Fraction(6931, 10000)


@pytest.mark.parametrize("distance", [1, 1000, 123_456, 2_000_003])
def test_the_bound_of_the_shipped_table_is_close_to_the_ideal(distance):
    step = Fraction(1, 2**20)
    bound = weight_table(step, 62, 24).bound(distance)
    assert distance * step < bound < distance * step + Fraction(1, 2**23)


def test_a_table_is_small():
    """However fine the step: 48,000 integers stand for half a billion weights."""
    table = weight_table(Fraction(1, 2**24), 62, 24)
    assert table.end > 400_000_000
    assert len(table.high) + len(table.low) < 50_000


def test_golden_table():
    """The default bits at a step of 2^-20: stored charges depend on every bit of it."""
    table = weight_table(Fraction(1, 2**20), 62, 24)
    text = ";".join(",".join(map(str, part)) for part in (table.high, table.shift, table.low))
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN_DIGEST
    # 2^62 / e is 1696544475317221318.68; one part in 2^31 of it is 8 * 10^8.
    assert table.weight(2**20) == 1696544475637088256
    assert table.bound(1000) == Fraction(1099581825811801, 2**60)


def test_what_does_not_fall_is_no_table():
    table = weight_table(Fraction(1, 20), 30, 20)
    longer = (*table.high[:-2], table.high[-2], 2**31)
    broken = [
        {"low": table.low[::-1]},
        {"low": (*table.low[:-1], table.low[-2] + 1)},
        {"high": longer, "shift": (*table.shift[:-1], table.shift[-2])},
        {"shift": (*table.shift[:-1], table.shift[-2] - 1)},
        {"floor": 2**10},
        {"shift": tuple(shift + 40 for shift in table.shift)},
    ]
    for change in broken:
        with pytest.raises(ArithmeticError):
            replace(table, **change)


@pytest.mark.parametrize("step", [Fraction(0), Fraction(1, 2**24 + 1), Fraction(1001, 1000)])
def test_a_step_out_of_range_is_refused(step):
    with pytest.raises(ValueError, match="step"):
        weight_table(step, 62, 24)
