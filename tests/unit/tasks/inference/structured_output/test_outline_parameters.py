"""What a request may ask of an outline, and what is released of a text that was drawn with one."""

from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.inference.structured_output.outline_parameters import (
    Outline,
    OutlineConflict,
    OutlineParameters,
    OutlineTooLong,
    OutlineTooShort,
    outline_facts,
    outline_of,
    sections_of,
    without_outline,
)
from tasks.planning.precision_parameters import PrecisionParameters
from tasks.values.generated import GeneratedText
from tests.unit.tasks.generation.asking import ink

TEXT = "Outline:\n1. Onset\n2. Plan\n\n# Onset\nOn Monday.\nIt hurts.\n\n# Plan\nRest.\n\nFluids."


@pytest.mark.parametrize(
    "wrong",
    [
        {"sections": 1},
        {"sections": 21, "tokens": 100},
        {"tokens": 3},
        {"tokens": 1001},
        {"share": "0"},
        {"share": "1"},
        {"share": "much"},
        {"headings": "some"},
        {"depth": 2},
    ],
)
def test_outlines_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Outline.model_validate({"sections": 2, "tokens": 20} | wrong)


def test_titles_need_two_tokens_each() -> None:
    assert Outline(sections=10, tokens=20).title_tokens == 2
    with pytest.raises(OutlineTooShort):
        Outline(sections=10, tokens=19)


def test_sections_need_draws() -> None:
    outline = {"sections": 3, "tokens": 40}
    assert ink(max_new_tokens=64, outline=outline).outline == Outline(sections=3, tokens=40)
    with pytest.raises(OutlineTooLong) as refused:
        ink(max_new_tokens=63, outline=outline)
    assert refused.value.facts == {"max_new_tokens": 63, "needed": 64}


@pytest.mark.parametrize(
    "other",
    [
        {"form": "The product is a {type}."},
        {"schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
        {"complete_sentence": 8},
        {"free_above": "0.9"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_also_decides_on_the_next_token_or_the_end_is_refused(other: dict[str, Any]) -> None:
    ink(max_new_tokens=100, **other)
    with pytest.raises(OutlineConflict) as refused:
        ink(max_new_tokens=100, outline={"sections": 2, "tokens": 20}, **other)
    assert refused.value.facts == {"parameter": next(iter(other))}


def test_a_share_that_is_left_out_makes_all_draws_cost_the_same() -> None:
    assert Outline(sections=2, tokens=20).share_of(200) == Fraction(1, 10)
    assert Outline.model_validate({"sections": 2, "tokens": 20, "share": "0.3"}).share_of(200) == Fraction(3, 10)


def test_without_an_outline_nothing_of_it_is_stored() -> None:
    assert "outline" not in ink().stored_fields
    assert OutlineParameters().outline_tokens == 0
    assert (outline_of(OutlineParameters()), outline_of(PrecisionParameters())) == (None, None)
    assert outline_facts(OutlineParameters()) == {}
    written = ink(max_new_tokens=80, outline={"sections": 2, "tokens": 20, "share": "0.30"}).model_dump()["outline"]
    assert written == {"sections": 2, "tokens": 20, "share": "0.3", "headings": True}


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        (TEXT, [("Onset", "On Monday.\nIt hurts."), ("Plan", "Rest.\n\nFluids.")]),
        ("", []),
        ("Outline:\n1. Ons", []),
        ("Outline:\n1. Onset\n2. Plan", []),
        ("Outline:\n1. Onset\n2. Plan\n\n# Onset\nOn Mon", [("Onset", "On Mon")]),
        ("Outline:\n1. A. B\n2. A. B\n\n# A. B\nx\n\n# A. B\ny", [("A. B", "x"), ("A. B", "y")]),
        ("Outline:\n1. A\n2. B\n\n# A\n# B\nx\n\n# B\ny", [("A", "# B\nx"), ("B", "y")]),
        ("Outline:\n1. A (+\n2. B\n\n# A (+\nx\n\n# B", [("A (+", "x")]),
    ],
)
def test_the_sections_of_a_text(text: str, sections: list[tuple[str, str]]) -> None:
    assert list(sections_of(text)) == sections


@pytest.mark.parametrize(
    ("headings", "released"),
    [
        (True, "Onset\nOn Monday.\nIt hurts.\n\nPlan\nRest.\n\nFluids."),
        (False, "On Monday.\nIt hurts.\n\nRest.\n\nFluids."),
    ],
)
def test_the_list_of_titles_is_not_released(headings: bool, released: str) -> None:
    asked = OutlineParameters(outline=Outline(sections=2, tokens=20, headings=headings))
    text = GeneratedText(TEXT, 50, True, facts={"draws": 30.0})
    (found,) = without_outline([text], asked)
    assert (found.text, found.tokens, found.complete, found.facts) == (released, 50, True, text.facts)
    assert without_outline([text], OutlineParameters()) == [text]
    assert ("without" in outline_facts(asked)["outline"]) is not headings
