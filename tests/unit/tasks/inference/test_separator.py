"""The line between the texts of a completion prompt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.inference.prompt_spec import text_before


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("", None),
        ("A note.", None),
        ("A note.\n###", None),
        ("A note.\n####\n", None),
        ("A note.\n### \n", None),
        ("A note. ###\n", None),
        ("A note.\n###\n", "A note."),
        ("A note.\n\n###\nAnother.\n###\n", "A note.\n"),
        ("###\nAnother.", ""),
        ("\n###\n", ""),
    ],
)
def test_a_text_ends_before_the_first_line_that_is_the_separator(text: str, before: str | None) -> None:
    assert text_before("###", text) == before


@given(st.text("#a\n", max_size=30), st.text("#a\n", max_size=10))
def test_what_was_found_stays_when_more_is_drawn(text: str, more: str) -> None:
    before = text_before("##", text)
    if before is not None:
        assert text_before("##", text + more) == before
        assert text.startswith(f"{before}\n##\n" if before else ("##\n", "\n##\n"))
