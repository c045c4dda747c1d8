"""One spelling for what means the same, and nothing that could break a page or a prompt."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.text.words import LONGEST, near, normalise_keyword, normalise_keywords, roots, tokens_of

pytestmark = pytest.mark.dear


@pytest.mark.parametrize(
    ("raw", "spelt"),
    [
        ("  Machine\n Learning. ", "machine learning"),
        ("C++", "c++"),
        ('"Q&A"', "q&a"),
        ("Node.js", "node.js"),
        ("Cafe\u0301", "café"),
        ("İstanbul", unicodedata.normalize("NFC", "i̇stanbul")),
        ("機械学習", "機械学習"),
        ("猫", "猫"),
        ("машинное обучение", "машинное обучение"),
        ("हिन्दी", "हिन्दी"),
        ("good morning", "good morning"),  # vague beside a word that is not
    ],
)
def test_a_keyword_has_one_spelling(raw, spelt):
    assert normalise_keyword(raw) == spelt


@pytest.mark.parametrize(
    "raw",
    [
        "", "   ", "...", "a", "é", "2024", "12/31", "the", "of the", "good thing", "x" * (LONGEST + 1),
        "<script>alert", "a](http", "{reference}", "tab\x00null", "bidi \u202e override", "zero\u200bwidth",
        "half \ud800 pair", "`code` here", "<|im_end|>", "say \"this\" word",
    ],
)  # fmt: skip
def test_what_says_nothing_or_could_break_something_is_none(raw):
    assert normalise_keyword(raw) is None


@given(st.text(max_size=80))
def test_a_spelling_is_its_own_and_always_harmless(raw):
    found = normalise_keyword(raw)
    if found is not None:
        assert normalise_keyword(found) == found
        assert 1 <= len(found) <= LONGEST
        assert found.isprintable()
        assert not set(found) & set('<>{}[]()|\\"`$;:\n')
        assert found.encode() == unicodedata.normalize("NFC", found).encode()


def test_the_first_different_keywords_are_taken():
    assert normalise_keywords(("Law", "the", "law ", "tax", "court"), 2) == ("law", "tax")


def test_tokens_are_words_that_could_be_keywords():
    found = tokens_of("The court, the COURT! 42 judges_1 good x " + "y" * 70)
    assert found == {"court": 2, "judges_1": 1}


@given(st.text(alphabet=st.sampled_from("aAbBzZ éß'_1 .漢字"), max_size=60))
def test_tokens_are_keywords(text):
    assert all(normalise_keyword(token) == token for token in tokens_of(text))


def test_near_is_what_says_no_more():
    public = [roots("Python"), roots("tax returns")]
    assert near("python decorators", public)
    assert near("tax return", public)
    assert near("the pythons", public)
    assert not near("tax", public)
    assert not near("courts", public)


@pytest.mark.parametrize(
    ("many", "one"),
    [("cities", "city"), ("classes", "class"), ("boxes", "box"), ("cats", "cat"), ("virus", "virus"), ("bus", "bus")],
)
def test_plurals_count_as_the_word(many, one):
    assert roots(many) == roots(one)
