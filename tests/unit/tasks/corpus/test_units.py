"""One spelling for every named unit; a fresh one for every unnamed record."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.services.people import comparable_name, normalise_name
from models_db.values.untrusted_text import is_unseen, is_visible
from tasks.corpus.units import UnitFault, UnitInvalid, normalise_unit, random_unit, read_unit
from tests.refusals import refusal

NAMED = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"])).filter(
    lambda text: is_visible(text) and not any(is_unseen(sign) or sign in "\ufffc\ufffd" for sign in text)
)
HIDDEN = (
    "\0\x1b\t\n\u00ad\u034f\u115f\u1160\u200b\u200c\u200d\u200e\u2028\u202a\u202c\u2060\u2800\u3164\ufe0f\ufeff\uffa0"
)


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


def test_case_width_and_words_tell_units_apart() -> None:
    names = ("ab", "AB", "a b", "\N{FULLWIDTH LATIN SMALL LETTER A}b", "\N{CYRILLIC SMALL LETTER A}b")
    assert len({normalise_unit(name) for name in names}) == len(names)


@pytest.mark.parametrize("space", ["  ", "\u00a0", "\u202f", "\u2009", "\u3000 "])
def test_white_space_inside_is_one_space(space: str) -> None:
    assert normalise_unit(f"+49{space}170") == normalise_unit("+49 170")


@pytest.mark.parametrize("sign", HIDDEN)
def test_what_nobody_sees_makes_no_second_person(sign: str) -> None:
    """Dropped at the ends, refused inside; nothing else than that is no id."""
    for spelling in (f"{sign}Ana", f"Ana{sign}", f"{sign} {sign}Ana{sign}"):
        assert normalise_unit(spelling) == "Ana"
    for spelling, fault in (
        (f"An{sign}a", UnitFault.HIDDEN),
        (sign, UnitFault.MISSING),
        (f" {sign} ", UnitFault.MISSING),
    ):
        with pytest.raises(UnitInvalid) as refused:
            normalise_unit(spelling)
        assert refused.value.fault is fault


def test_people_who_decide_are_compared_by_the_same_characters() -> None:
    """Names took variation selectors and Hangul fillers, which are printable for Python."""
    for sign in HIDDEN:
        assert comparable_name(f"An{sign}a") == comparable_name("Ana")
        with refusal("InvalidPersonName"):
            normalise_name(f"An{sign}a")


@pytest.mark.parametrize(
    "value",
    [
        "\\N", "NULL", "null", "NA", "N/A", "n/a", "nan", "NaN", "None", "-", "?", "--", "#N/A", "nil", "undefined",
        "NaT", "(null)", "<NA>", "[deleted]", "Unknown", "...", "'null'", "\u200bNULL ",
        "\uff2e\uff35\uff2c\uff2c", "\N{EM DASH}", "[object Object]", "00000000-0000-0000-0000-000000000000",
        "{FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF}", "0" * 24, "0" * 32, "f" * 24, "F" * 32, "#ДЕЛ/0!",
        "#¿NOMBRE?", "#I/T", "\u201cnull\u201d",
        "\u201enull\u201c", "\u2018NULL\u2019", "«none»", "`null`", "\u00b4null\u00b4", '""null""', '\\"null\\"',
        "(\u201cnull\u201d)", "'NULL", "#NV", "#WERT!", "#N/D", "#\u00a1REF!", "#SPILL!", "#GETTING_DATA", "None None",
        "NULL_NULL", "unknown, unknown", "(blank)", "\\\\N", ".",
    ],
)  # fmt: skip
def test_words_for_a_missing_value_are_nobody(value: str) -> None:
    with pytest.raises(UnitInvalid) as refused:
        read_unit(value)
    assert refused.value.fault is UnitFault.NULL
    assert refused.value.word is not None
    normalised = normalise_unit(value)
    assert read_unit(value, {normalised}) == normalised


@pytest.mark.parametrize(
    "value",
    ["M\ufffdller", "\ufffdller", "Mull\ufffd", "\ufffd", "M\u00ef\u00bf\u00bdller", "a\ufffcb",
     "\ue000x", "x\U000f0000", "x\U0010fffd", "x\ufdd0y", "\ufdef", "x\ufffe", "x\uffff", "x\U0003fffe"],
)  # fmt: skip
def test_ids_of_a_broken_decode_and_characters_without_a_meaning_are_refused(value: str) -> None:
    for read in (read_unit, normalise_unit):
        with pytest.raises(UnitInvalid) as refused:
            read(value)
        assert refused.value.fault is UnitFault.BROKEN


def test_only_the_allowed_spelling_is_a_person() -> None:
    assert read_unit("Na", {"Na"}) == "Na"
    for other in ("NA", "na", "null"):
        with pytest.raises(UnitInvalid):
            read_unit(other, {"Na"})


@pytest.mark.parametrize(
    "value",
    [
        "Nana", "Nullmann", "anna", "7", "0", "-7", "N", "\N{CAT FACE}", "'t Hooft", "none-7", "N/A-12", "Anna Null",
        "Null-M\u00fcller", "Na Na", "E. Null", "Blank", "(anna)", "#anna", "#N12", "#nb", "1E11", "4E12", "0000",
        "#wow!", "#channel?", "#Wow!", "#\u738b!", "5E-3", "12E+04", "1e3", "e" * 32, "x\u0378",
        "\u738b\U00032000", "\U000323af", "\u2163", "\u738b\u5c0f\u660e", "00000000-0000-0000-0000-000000000001",
    ],
)  # fmt: skip
def test_names_and_numbers_are_people(value: str) -> None:
    assert read_unit(value) == value


@pytest.mark.parametrize(
    "value",
    ['="007"', "=007", "'007", "1.23E+11", "1,23E+11", "5E+15", "1.5e+7", "1.2E11", "1,0e10", "-1.5E7", "1.5e3",
     "2.5E-3", "2.E11", "12.5E07", "1e-05"],
)  # fmt: skip
def test_ids_that_a_spreadsheet_wrote_are_refused(value: str) -> None:
    with pytest.raises(UnitInvalid) as refused:
        read_unit(value)
    assert refused.value.fault is UnitFault.SPREADSHEET


@pytest.mark.parametrize("value", ["", "  \t\n", None, True, False, 1.0, 1.5, ["a"], {"a": 1}, b"a", "\ud800"])
def test_what_cannot_name_a_unit_is_refused(value: object) -> None:
    with pytest.raises(UnitInvalid):
        normalise_unit(value)


def test_random_units_are_128_bits_and_never_twice_the_same() -> None:
    units = {random_unit() for _ in range(1000)}
    assert len(units) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", unit) for unit in units)
