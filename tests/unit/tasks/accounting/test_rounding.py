"""Rounding towards privacy: charges up, caps down, floats refused."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.amounts import Amount
from tasks.accounting.rounding import (
    InexactNumber,
    cap_rounded_down,
    charge_rounded_up,
    decimal_above,
    enclose,
    exact,
    float_above,
    float_below,
    iv,
    lower,
    terminating,
    upper,
)

pytestmark = [pytest.mark.dear, pytest.mark.contract]


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        ("4.0", Fraction(4)),
        (" 1e-7 ", Fraction(1, 10**7)),
        ("9/10", Fraction(9, 10)),
        (3, Fraction(3)),
        (Decimal("0.1"), Fraction(1, 10)),
        (Fraction(1, 3), Fraction(1, 3)),
    ],
)
def test_exact_reads_what_was_written(given_value, expected):
    assert exact(given_value) == expected


@pytest.mark.parametrize(
    "bad", [0.1, True, None, "", "abc", "1/0", "1/2/3", "nan", "inf", "-Infinity", "1e-99999999", "9" * 401]
)
def test_exact_refuses_everything_else(bad):
    with pytest.raises(InexactNumber) as refusal:
        exact(bad)
    assert refusal.value.exit_code == 2
    assert "decimals in quotes" in refusal.value.advice


def test_charges_round_up_and_caps_down():
    third = Fraction(1, 3)
    assert charge_rounded_up(third, third) == Amount(333333333334, 333333333333333334)
    assert cap_rounded_down(third, third) == Amount(333333333333, 333333333333333333)


def test_whole_units_are_not_rounded_away():
    assert charge_rounded_up(Fraction(5, 10**12)) == cap_rounded_down(Fraction(5, 10**12)) == Amount(5)


def test_an_interval_is_charged_by_its_upper_and_capped_by_its_lower_bound():
    wide = iv.mpf(["0.25", "0.5"])
    assert charge_rounded_up(wide).rho == 5 * 10**11
    assert cap_rounded_down(wide).rho == 25 * 10**10


@given(st.fractions(min_value=0, max_value=10**9))
def test_enclosures_contain_the_number(value):
    interval = enclose(value)
    assert lower(interval) <= value <= upper(interval)
    assert upper(interval) - lower(interval) <= value * Fraction(1, 2**290)


@given(st.fractions(min_value=-(10**9), max_value=10**9))
def test_neighbouring_doubles_bracket_the_number(value):
    above, below = float_above(value), float_below(value)
    assert Fraction(below) <= value <= Fraction(above)
    assert above == below or math.nextafter(below, math.inf) == above


@given(st.fractions(min_value=0, max_value=10**40), st.integers(0, 40))
def test_decimals_round_up_by_less_than_one_place(value, places):
    found = Fraction(decimal_above(value, places))
    assert value <= found < value + Fraction(1, 10**places)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=18))
def test_terminating_is_exact(value):
    assert Fraction(terminating(Fraction(value))) == Fraction(value)


def test_terminating_refuses_a_third():
    with pytest.raises(InexactNumber):
        terminating(Fraction(1, 3))
