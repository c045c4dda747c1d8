"""Words of names without support, and the public words that fill a keyword set up."""

import pytest

from tasks.text.public_topics import PUBLIC_TOPICS, topic_words
from tasks.text.words import normalise_keyword, roots, unsupported_words


@pytest.mark.parametrize(
    ("name", "keywords", "without"),
    [
        ("Films and directors", ["film"], {"director"}),
        ("Questions about the film", ["films"], set()),
        ("", [], set()),
        ("China", [], {"china"}),
        ("Machine learning", ["machine", "deep learning"], set()),
        ("Recipes for women", ["recipe"], {"women"}),
        ("Films of 1998", ["film"], {"1998"}),
        ("ФИЛЬМЫ", ["фильмы"], set()),
    ],
)
def test_a_word_has_support_if_a_keyword_has_it(name: str, keywords: list[str], without: set[str]) -> None:
    assert unsupported_words(name, keywords) == without


def test_public_words_are_keywords_of_one_word_each_once() -> None:
    words = topic_words()
    assert len(words) > 500
    assert words == sorted(set(words))
    assert all(normalise_keyword(word) == word and len(word.split()) == 1 for word in words)
    assert len({roots(word) for word in words}) == len(words), "a word and its plural are one"
    spoken = set().union(*(topic.split() for topic in PUBLIC_TOPICS))
    assert len(set(words) - spoken) < 30, "but for signs within them they stand in the topics"
