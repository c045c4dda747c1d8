"""RAKE on the example of its paper, and at its edges."""

import pytest

from tasks.text.words import STOP_WORDS, key_phrases, phrase_scores

# Rose et al. 2010, figure 1.1.
ABSTRACT = """
Compatibility of systems of linear constraints over the set of natural numbers. Criteria of compatibility of a system of
linear Diophantine equations, strict inequations, and nonstrict inequations are considered. Upper bounds for components
of a minimal set of solutions and algorithms of construction of minimal generating sets of solutions for all types of
systems are given. These criteria and the corresponding algorithms for constructing a minimal supporting set of
solutions can be used in solving all the considered types of systems and systems of mixed types.
"""


def test_the_papers_example():
    """The nine keywords with their scores, figure 1.5: degrees by frequencies, added up."""
    scores = {" ".join(phrase): round(score, 1) for phrase, score in phrase_scores(ABSTRACT).items()}
    expected = {
        "minimal generating sets": 8.7,
        "linear diophantine equations": 8.5,
        "minimal supporting set": 7.7,
        "minimal set": 4.7,
        "linear constraints": 4.5,
        "natural numbers": 4.0,
        "strict inequations": 4.0,
        "nonstrict inequations": 4.0,
        "upper bounds": 4.0,
    }
    assert {name: scores[name] for name in expected} == expected
    assert set(key_phrases(ABSTRACT)) == set(expected)
    assert key_phrases(ABSTRACT)[:5] == list(expected)[:5]


@pytest.mark.parametrize("text", ["", " ", "the of and", "?!", "word", "two words"])
def test_little_text_has_no_key_phrases(text):
    assert key_phrases(text) == []


def test_signs_blank_lines_and_stop_words_end_a_phrase():
    text = "red fox, brown dog\n\nwhite cat's long-haired kitten won't eat"
    assert {" ".join(phrase) for phrase in phrase_scores(text)} == {
        "red fox",
        "brown dog",
        "white cat's long-haired kitten",
        "eat",
    }


def test_unicode_is_one_spelling():
    phrase = ("caf\u00e9", "\u00e9cole")
    assert set(phrase_scores("Caf\u0065\u0301 \u00c9cole")) == set(phrase_scores(" ".join(phrase))) == {phrase}


def test_stop_words_are_lower_case_and_no_nouns_of_ours():
    assert all(word == word.lower() for word in STOP_WORDS)
    assert not STOP_WORDS & {"patient", "time", "systems", "types", "set", "year"}
