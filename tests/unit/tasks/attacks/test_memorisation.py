"""Replay: copies and near copies are found, and random text has none."""

from tasks.attacks.extraction import CopiedText, Extracted, find_copies
from tasks.text.features import best_containments, containment, joined, shingles
from tests.unit.tasks.attacks.people import random_texts


def test_runs_of_words_by_hand():
    assert shingles("A b c d e a b c d") == {tuple("abcd"), tuple("bcde"), tuple("cdea"), tuple("deab"), tuple("eabc")}
    assert shingles("a b") == {("a", "b")}
    assert shingles("  ") == frozenset()
    assert containment("", joined(["a b c d"])) == 0


def test_the_best_document_counts_and_not_all_together():
    texts = ["a b c d e f", "x y z w", ""]
    documents = ["a b c d q", "q c d e f", "x y z w and more"]
    # Of abcd, bcde, cdef each of the first two documents has one.
    assert best_containments(texts, documents) == [1 / 3, 1, 0]
    assert best_containments([], documents) == []


def test_replay_by_hand():
    found = find_copies(["one two three four five", "six"], ["Zero one two THREE four", "six seven"])
    assert found == CopiedText((4, 1), (1 / 2, 0.0))
    assert found.near == Extracted(1, 2)
    assert find_copies([], ["a"]) == CopiedText((), ())
    assert find_copies(["a b"], []).runs == (0,)


def test_copies_with_small_changes_are_near_copies_and_other_texts_are_not():
    corpus = random_texts(40, 40, 1)
    changed = [" ".join("changed" if place == 20 else word for place, word in enumerate(t.split())) for t in corpus]
    assert find_copies(corpus, corpus).near == Extracted(40, 40)
    found = find_copies(changed, corpus)
    assert found.near == Extracted(40, 40)
    assert set(found.runs) == {20}
    assert find_copies(changed, random_texts(40, 40, 2)).near == Extracted(0, 40)
