"""Lines as they are published, and whether they speak of what they should."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.text.output_cleaning import (
    count_mentioned,
    ends_sentence,
    first_words,
    has_content_word,
    is_rambling,
    is_repetitive,
    line,
    plain_text,
    sentences,
    whole_words,
)


@given(st.text(), st.integers(1, 50))
def test_a_line_is_one_line_that_can_be_written(text: str, longest: int) -> None:
    found = line(text, longest)
    assert len(found) <= longest
    assert found == found.strip()
    assert found.isprintable()
    found.encode()
    assert line(found, longest) == found


@pytest.mark.parametrize("no_text", [None, 7, ["a"], {"a": 1}, True])
def test_what_is_no_text_is_an_empty_line(no_text: object) -> None:
    assert line(no_text) == ""


@given(st.text(), st.integers(1, 5))
def test_cut_texts_begin_like_the_whole(text: str, most: int) -> None:
    plain = line(text)
    cut = first_words(plain, most)
    assert plain.startswith(cut)
    assert len(cut.split()) <= most


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("", 2, ""),
        ("No end", 2, "No end."),
        ("No end,", 2, "No end."),
        ("One. Two! Three?", 2, "One. Two!"),
        ("One. And half", 2, "One."),
        ("It costs 3.5 of them. Yes.", 1, "It costs 3.5 of them."),
        ("你好。再见。还有", 2, "你好。 再见。"),
    ],
)
def test_sentences_are_finished(text: str, most: int, expected: str) -> None:
    assert sentences(text, most) == expected


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("It hurts.", True),
        ("Does it hurt?  ", True),
        ('She said: "No."', True),
        ("(It was good!)", True),
        ("Well…", True),
        ("痛い。", True),
        ("A line\n", True),
        ("A line\n\n", True),
        ("It hurts", False),
        ("It hurts,", False),
        ("It was 3.", False),
        ("I saw Dr.", False),
        ("by J.", False),
        ("Doctor:", False),
        ("He is 34!", True),
        ("one. two", False),
        (".", True),
        ("", False),
        ("\n", False),
    ],
)
def test_a_sentence_has_ended_by_its_mark_or_its_line(text: str, ended: bool) -> None:
    assert ends_sentence(text) == ended


def test_only_a_line_at_its_limit_may_have_been_cut() -> None:
    assert whole_words("short one", 10) == "short one"
    assert whole_words("cut within", 10) == "cut"
    assert whole_words("Dishes to bring to the par", 26) == "Dishes to bring"
    assert whole_words("onelongword", 5) == "onelongword"


def test_circles() -> None:
    assert is_rambling("the derivative of the integral of the derivative of the integral of the derivative")
    assert is_rambling("")
    assert not is_rambling("These texts are about Python and pandas. They deal with data frames and csv files.")
    assert is_repetitive("Best, Breakfast, Dinner, Breakfast, Best")
    assert is_repetitive("Love, love, love")
    assert not is_repetitive("Guitar and the theory of the guitar")


def test_words_alone() -> None:
    assert plain_text("Taxes, of  SELF-employed!") == plain_text("taxes of self employed")
    assert plain_text("?!") == "?!"


@pytest.mark.parametrize(
    ("text", "words", "count"),
    [
        ("Recipes with garlic", ["recipe", "oven"], 1),
        ("Cars", ["carpet"], 0),  # four letters at least must be common
        ("Carpets", ["car"], 0),
        ("Going by car", ["car", "train"], 1),
        ("How to swim", ["how to cook"], 0),
        ("What is it", ["it"], 1),  # of a stop word alone nothing else can be asked
        ("数据库查询优化", ["查询", "音乐"], 1),
        ("", ["a"], 0),
        ("anything", [], 0),
    ],
)
def test_what_is_spoken_of(text: str, words: list[str], count: int) -> None:
    assert count_mentioned(text, words) == count


@pytest.mark.parametrize(
    ("name", "told"),
    [("Growing tomatoes", True), ("and", False), ("The", False), ("12", False), ("", False), ("语言", True)],
)
def test_a_name_tells_something(name: str, told: bool) -> None:
    assert has_content_word(name) == told
