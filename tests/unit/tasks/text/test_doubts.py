"""Doubts about texts: what is pointed at, and what is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.text.doubts import find_doubts

PROMPT = "Short notes that a doctor writes after seeing a patient."


@pytest.mark.parametrize(
    ("text", "doubts"),
    [
        ("", ("empty",)),
        ("  \n", ("empty",)),
        ("Write to ana.silva@example.org today.", ("e-mail address",)),
        ("See https://example.org/a for more.", ("web address",)),
        ("Call 030 1234 5678 or come by.", ("telephone number",)),
        ("Please call the ward at +49 (0)30 12 34 56 78.", ("telephone number",)),
        ("Record 12345678 was closed.", ("long number",)),
        ("Here are short notes that a doctor writes after seeing nobody.", ("copies the prompt",)),
        ("He was fine and he was fine and he was fine and he was fine.", ("repeats itself",)),
        ("No no no no, she said.", ("repeats itself",)),
        ("#### $$ 12 {} [] 33 <> == !!!", ("hardly any words",)),
        ("A patient came with a cough. BP 120/80, pulse 72, seen on 2024-05-01 at 10:30.", ()),
        ("We saw 14 patients in 2023, and 1,234,567 in all; a score of 3.14159265.", ()),
        ("\u60a3\u8005\u56e0\u54b3\u55fd\u5165\u9662\uff0c\u968f\u8bbf\u4e00\u5468\u3002", ()),
    ],
)  # fmt: skip
def test_a_reader_is_pointed_at_what_is_worth_a_look(text: str, doubts: tuple[str, ...]) -> None:
    assert find_doubts(text, PROMPT) == doubts


@given(st.text(max_size=300), st.text(max_size=100))
def test_any_text_has_doubts_of_known_names(text: str, prompt: str) -> None:
    assert set(find_doubts(text, prompt)) <= {
        "empty", "e-mail address", "web address", "telephone number", "long number", "copies the prompt",
        "repeats itself", "hardly any words",
    }  # fmt: skip
