"""The one form of what people write; and what a request file says of cohorts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import (
    MOST_COHORTS,
    ExactDecimal,
    Prompt,
    ReleaseRequest,
    RequestModel,
    model_to_json,
    parse_model,
)
from tests.refusals import refusal

WRITTEN = {
    "dataset": "clinic",
    "kind": "synthetic_corpus",
    "mechanism": "invisible_ink",
    "model": "a-model",
    "prompt": {"description": "Notes."},
}


def asked(cohorts: object) -> ReleaseRequest:
    return parse_model(ReleaseRequest, WRITTEN | {"cohorts": cohorts}, "The request")


@pytest.mark.parametrize("cohorts", ["newest", [1], [2, 5], None])
def test_cohorts_are_named_by_a_word_or_by_their_numbers(cohorts: object) -> None:
    stored = model_to_json(asked(cohorts))
    assert isinstance(stored, dict)
    assert stored.get("cohorts") == cohorts


@pytest.mark.parametrize(
    "cohorts",
    [[], [2, 1], [1, 1], [0], [-1], [True], [1.0], ["1"], [[1]], 1, "oldest", {}, [*range(1, MOST_COHORTS + 2)]],
)
def test_what_names_no_cohorts_is_told_in_one_sentence(cohorts: object) -> None:
    """And not once for each form that it could have had."""
    with refusal("FileInvalid") as invalid:
        asked(cohorts)
    problems = invalid.value.facts["problems"]
    assert problems == [
        "cohorts: `newest`, or the numbers of cohorts, once each and in ascending order, such as [1, 3]"
    ]


# --- the one form ------------------------------------------------------------------------------------------------


class Inner(RequestModel):
    """All of it is empty by default."""

    note: str | None = None
    names: tuple[str, ...] = ()


class Outer(RequestModel):
    """Each way in which a field can have a default."""

    needed: int
    text: str | None = None
    names: tuple[str, ...] = ()
    facts: dict[str, int] = Field(default_factory=dict)
    inner: Inner = Inner()
    number: int = 0
    share: ExactDecimal = "0.1"  # type: ignore[assignment]
    flag: bool = False
    word: str = ""
    listed: tuple[str, ...] = ("a",)
    chosen: str | None = "b"


def test_problems_are_described_in_the_words_of_yaml() -> None:
    with refusal("FileInvalid") as invalid:
        parse_model(Outer, {"needed": 1, "names": "one", "facts": [1], "inner": 4}, "The file")
    assert invalid.value.facts["problems"] == [
        "names: input should be a list", "facts: input should be a mapping", "inner: input should be a mapping",
    ]  # fmt: skip
    with refusal("FileInvalid") as invalid:
        parse_model(Prompt, {"description": "Notes.", "examples": ["a"] * 21}, "The file")
    assert invalid.value.facts["problems"] == ["examples: the list should have at most 20 items, not 21"]


def read(**fields: Any) -> Outer:
    return parse_model(Outer, {"needed": 1} | fields, "The file")


def test_empty_defaults_are_left_out_and_every_other_default_is_written() -> None:
    assert model_to_json(read()) == {
        "needed": 1,
        "number": 0,
        "share": "0.1",
        "flag": False,
        "word": "",
        "listed": ["a"],
        "chosen": "b",
    }


def test_what_is_empty_and_not_by_default_is_written() -> None:
    stored = model_to_json(read(listed=[], chosen=None, inner={"names": ["x"]}))
    assert isinstance(stored, dict)
    assert (stored["listed"], stored["chosen"], stored["inner"]) == ([], None, {"names": ["x"]})


TEXT = st.text("ab", max_size=1)
VALUES = st.builds(
    read,
    text=st.none() | TEXT,
    names=st.lists(TEXT, max_size=1),
    facts=st.dictionaries(TEXT, st.integers(0, 1), max_size=1),
    inner=st.builds(dict, note=st.none() | TEXT, names=st.lists(TEXT, max_size=1)),
    number=st.integers(0, 1),
    share=st.sampled_from(["0.1", "0.10", "0", "1"]),
    flag=st.booleans(),
    word=TEXT,
    listed=st.lists(TEXT, max_size=1),
    chosen=st.none() | TEXT,
)


@given(one=VALUES, other=VALUES)
def test_two_values_have_the_same_bytes_exactly_if_they_are_equal(one: Outer, other: Outer) -> None:
    assert (encode_canonical(model_to_json(one)) == encode_canonical(model_to_json(other))) == (one == other)
    assert Outer.model_validate(json.loads(encode_canonical(model_to_json(one)))) == one
    assert one.model_dump() == model_to_json(one)
