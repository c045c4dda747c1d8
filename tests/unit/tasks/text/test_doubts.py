"""Doubts about texts: what is pointed at, and what is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.text.doubts import LOOKED_FOR, NOT_CHECKED, describe_doubts, find_doubts

EXAMPLE = "The patient is a 61-year-old man with a cough for two weeks. He does not smoke."
PROMPT = ("Short notes that a doctor writes after seeing a patient.", EXAMPLE, "Write one complete note.")


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
        ("An old man with a cough for two weeks. He coughs.", ("copies the prompt",)),
        ("Write one complete note. Chest clear.", ("copies the prompt",)),
        ("I'm sorry, but I can't assist with that request.", ("refusal",)),
        ("I\u2019m sorry, I cannot write a note about a real patient.", ("refusal",)),
        ("As an AI language model, I see no patients.", ("refusal",)),
        ("I am unable to provide realistic medical records.", ("refusal",)),
        ("Unfortunately, I can't help with this.", ("refusal",)),
        ("I don't have access to real patient data.", ("refusal",)),
        ("Dear [Name], your test is normal.", ("placeholder",)),
        ("The patient was seen by Dr. [**Last Name (STitle) 1234**] for a cough and sent home.", ("placeholder",)),
        ("<patient> came on {date}.", ("placeholder",)),
        ("[insert the name of the doctor here, and the day of the visit] saw her.", ("placeholder",)),
        ("XXXX has a cough.", ("placeholder",)),
        ("Her name is ________, she has no fever.", ("placeholder",)),
        ("Sure, here is a short note: cough, no fever.", ("assistant talk",)),
        ("Here's a sample note about a cough.", ("assistant talk",)),
        ("I'd be happy to help. What is the note about?", ("assistant talk",)),
        ("Cough, no fever.\nHuman: Write another", ("assistant talk",)),
        ("Assistant: Cough, no fever.", ("assistant talk",)),
        ("Cough, no fever. User: Another.", ("assistant talk",)),
        ("Cough, no fever.<|im_end|>\n<|im_start|>user", ("assistant talk",)),
        ("Cough, no fever. Let me know if you need another one!", ("assistant talk",)),
        ("Sure! Here is the note for [Name]. I can't help but cough.", ("placeholder", "assistant talk")),
        ("No no no no, she said.", ("repeats itself",)),
        ("#### $$ 12 {} [] 33 <> == !!!", ("hardly any words",)),
        ("A patient came with a cough. BP 120/80, pulse 72, seen on 2024-05-01 at 10:30.", ()),
        ("We saw 14 patients in 2023, and 1,234,567 in all; a score of 3.14159265.", ()),
        ("I'm sorry, but I can't stand the cough any more. I cannot write with this hand, I can't help it.", ()),
        ("She cannot provide for herself. The physician assistant: Mr Ott. As an aid, a stick.", ()),
        ("I cannot share the note with my wife, and I do not have access to my medical records.", ()),
        ("Here is a letter from my doctor. You have given me hope. I am an AI engineer with back pain.", ()),
        ("I'm an AI, so I saw no patient.", ("refusal",)),
        ("Here is where it hurts. Of course she let me know if it got worse and how it went on.", ()),
        ("Doctor: How can I help you today?\nPatient: I was told [1] that p < 0.05, size XXL.", ()),
        ("\u60a3\u8005\u56e0\u54b3\u55fd\u5165\u9662\uff0c\u968f\u8bbf\u4e00\u5468\u3002", ()),
    ],
)  # fmt: skip
def test_a_reader_is_pointed_at_what_is_worth_a_look(text: str, doubts: tuple[str, ...]) -> None:
    assert find_doubts(text, PROMPT) == doubts


@given(st.text(max_size=300), st.tuples(st.text(max_size=100), st.text(max_size=100)))
def test_any_text_has_doubts_of_known_names_in_one_order(text: str, prompt: tuple[str, ...]) -> None:
    found = find_doubts(text, prompt)
    assert list(found) == [name for name in LOOKED_FOR if name in found]


def test_words_of_two_passages_are_no_copy_and_nor_are_few() -> None:
    assert find_doubts("One of a kind, and two of a kind.", ("one of a", "kind and two", "of a kind")) == ()


@pytest.mark.parametrize("doubtful", [0, 3])
def test_a_number_of_doubts_comes_with_what_was_looked_for_and_what_was_not(doubtful: int) -> None:
    said = describe_doubts(doubtful, 1200)
    assert said.startswith(f"{doubtful} of 1,200 texts with a doubt")
    assert NOT_CHECKED in said
    assert [name for name in LOOKED_FOR.values() if name not in said] == []
    assert ("was found" in said) == (doubtful == 0)


@pytest.mark.parametrize(
    "piece", ["[insert ", "\n\n ", "sorry i ", "Let me know if ", "here's a ", "i cannot write a ", "_" * 9 + " "]
)
def test_long_texts_are_read_in_little_time(piece: str) -> None:
    """Each pattern is bounded: the work grows with the text, and not with its square."""
    find_doubts(piece * 20_000, PROMPT)
