"""The share of texts in which a template has not been filled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.lexical import placeholder_leak
from tasks.text.doubts import has_placeholder
from tests.unit.tasks.evaluation.subjects import texts


@pytest.mark.parametrize(
    "text",
    [
        "The product is a [TYPE].",
        "The product is a {type}.",
        "The product is a <TYPE>.",
        "Dear [your name],",
        "Dear [ Name ],",
        "Dear <Patient's first name>,",
        "Call {{phone_number}} today",
        "It costs ${price}",
        "{reference}",
        "{1}",  # a slot may be called so
        "[caf\u00e9/bar]",
        "[A [TYPE] of thing]",
        "a <br> and a <NAME>",
        "Seen by Dr. [**Last Name (STitle) 1234**] today.",
        "[Insert here the full name of the doctor who saw this patient]",
        "XXXX was admitted to XXXX on xx/xx.",
        "Name: ________",
    ],
)
def test_placeholders(text: str) -> None:
    assert has_placeholder(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The product is a kettle.",
        "As shown [1, 2], and in (brackets).",
        "[1]",
        "[]",
        "{}",
        "{ }",
        "a < b and c > d, x<3",
        "<br /> <BR><p>text</p>",
        '{"type": "kettle"}',
        '<a href="x">there</a>',
        "[This is a remark by the editor which is a whole sentence.]",
        "[\n\nTYPE]",
        "A size of XXL, Louis XXX, and __init__.",
        "Dobra [\u02c8d\u0254bra] is a village.",
        "_" * 40,  # a line
    ],
)
def test_what_is_none(text: str) -> None:
    assert not has_placeholder(text)


def test_texts_are_counted_once_with_wilsons_interval() -> None:
    found = placeholder_leak(EvaluationInput(texts("a [B] [C]", *["fine"] * 9)))
    assert found.exposure == "public"
    assert found.values == {
        "texts": 10,
        "leaking": 1,
        "leaking_share": "0.1000",
        "leaking_low": "0.0179",  # 1 - 0.9821, see test_records
        "leaking_high": "0.4042",  # 1 - 0.5958
    }
    assert found.line == "1 of 10 texts have a placeholder"


def test_without_texts_there_is_no_share() -> None:
    found = placeholder_leak(EvaluationInput(()))
    assert found.values["leaking"] == 0
    assert [found.values[f"leaking_{end}"] for end in ("share", "low", "high")] == [None] * 3


@given(st.from_regex(r"[A-Za-z0-9_]{1,40}", fullmatch=True), st.text(max_size=20), st.text(max_size=20))
def test_every_slot_of_a_form_is_found_wherever_it_leaks(name: str, before: str, behind: str) -> None:
    assert has_placeholder(f"{before}{{{name}}}{behind}")


@given(st.text(alphabet=st.characters(exclude_characters="[]{}<>xX_")))
def test_what_a_slot_may_be_filled_with_is_never_one(text: str) -> None:
    assert not has_placeholder(text)


def test_long_texts_of_brackets_take_no_time() -> None:
    assert not has_placeholder("[a " * 20_000 + "{a b" * 20_000)
