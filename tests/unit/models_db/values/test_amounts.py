"""Amounts add, subtract and compare exactly."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.amounts import Amount, total_amount

amounts = st.builds(Amount, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))


@given(amounts, amounts)
def test_addition_is_exact_and_undone_by_subtraction(a: Amount, b: Amount) -> None:
    assert (a + b) - b == a
    assert a + b == b + a
    assert (a + b).rho == a.rho + b.rho
    assert (a + b).delta == a.delta + b.delta


@given(amounts, st.integers(0, 1000))
def test_multiplication_repeats_addition(a: Amount, times: int) -> None:
    assert a * times == total_amount([a] * times)


@given(amounts, amounts)
def test_what_fits_can_be_taken_away(a: Amount, room: Amount) -> None:
    if a.fits(room):
        assert (room - a) + a == room
    else:
        with pytest.raises(ValueError, match="must not be negative"):
            room - a


@pytest.mark.parametrize(
    ("a", "room", "fits"),
    [
        (Amount(1, 1), Amount(1, 1), True),
        (Amount(2, 0), Amount(1, 9), False),
        (Amount(0, 2), Amount(9, 1), False),
        (Amount(), Amount(), True),
    ],
)
def test_both_parts_have_to_fit(a: Amount, room: Amount, fits: bool) -> None:
    assert a.fits(room) is fits


@given(amounts)
def test_the_text_is_exact(a: Amount) -> None:
    assert Decimal(a.rho_text) * 10**12 == a.rho
    assert Decimal(a.delta_text) * 10**18 == a.delta
    assert "E" not in (a.rho_text + a.delta_text).upper()


def test_the_text_of_a_known_amount() -> None:
    assert Amount(266_313_968_610, 10**11).rho_text == "0.26631396861"
    assert Amount(266_313_968_610, 10**11).delta_text == "0.0000001"
    assert Amount().rho_text == "0"


@pytest.mark.parametrize("wrong", [0.5, "1", True, None, Decimal(1)])
@pytest.mark.parametrize("part", ["rho", "delta"])
def test_only_integers_are_amounts(part: str, wrong: object) -> None:
    with pytest.raises(TypeError, match=f"{part} must be an int"):
        Amount(**{part: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["rho", "delta"])
def test_no_amount_is_negative(part: str) -> None:
    with pytest.raises(ValueError, match=f"{part} must not be negative"):
        Amount(**{part: -1})


def test_the_total_of_nothing_is_nothing() -> None:
    assert total_amount([]) == Amount(0, 0)
