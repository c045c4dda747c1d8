"""One spelling for every named unit; a fresh one for every unnamed record."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.corpus.identity.units import UnitInvalid, normalise_unit, random_unit

NAMED = st.text().filter(lambda text: bool(text.strip()))


@given(NAMED)
def test_normalising_twice_changes_nothing(name: str) -> None:
    assert normalise_unit(normalise_unit(name)) == normalise_unit(name)


@given(NAMED)
def test_composed_and_decomposed_spellings_are_one_unit(name: str) -> None:
    spellings = {unicodedata.normalize(form, name) for form in ("NFC", "NFD")}
    assert len({normalise_unit(f"\t{spelling} \n") for spelling in spellings}) == 1


@given(st.integers())
def test_an_integer_is_its_decimal_string(number: int) -> None:
    assert normalise_unit(number) == normalise_unit(f" {number} ") == str(number)


def test_case_and_inner_spaces_tell_units_apart() -> None:
    assert len({normalise_unit(name) for name in ("ab", "AB", "a b", "a  b")}) == 4


@pytest.mark.parametrize("value", ["", "  \t\n", None, True, False, 1.0, 1.5, ["a"], {"a": 1}, b"a", "\ud800"])
def test_what_cannot_name_a_unit_is_refused(value: object) -> None:
    with pytest.raises(UnitInvalid):
        normalise_unit(value)


def test_random_units_are_128_bits_and_never_twice_the_same() -> None:
    units = {random_unit() for _ in range(1000)}
    assert len(units) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", unit) for unit in units)
