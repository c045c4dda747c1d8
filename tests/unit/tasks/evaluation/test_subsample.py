"""A sample of documents: whole where it can be, uniform where not, the same twice."""

from collections import Counter

import numpy as np
import pytest

from tasks.evaluation import evaluation_input
from tasks.evaluation.evaluation_input import halves, sample


def test_few_documents_are_all_taken_in_their_order():
    assert sample(iter("abc"), 3) == ["a", "b", "c"]
    assert sample(iter("abc"), 9) == ["a", "b", "c"]
    assert sample([], 3) == []


def test_a_sample_is_in_order_and_the_same_twice():
    documents = [f"{number:03}" for number in range(200)]
    found = sample(documents, 20)
    assert len(found) == len(set(found)) == 20
    assert found == sorted(found) == sample(documents, 20)


def test_every_document_is_as_likely(monkeypatch):
    """12 documents, 4 taken, 3000 times: each 1000 +- 26; the first four would have 3000 without replacement."""
    starts = iter(range(3000))
    fresh = np.random.default_rng
    monkeypatch.setattr(evaluation_input.np.random, "default_rng", lambda _: fresh(next(starts)))
    counts = Counter(document for _ in range(3000) for document in sample("abcdefghijkl", 4))
    assert all(count == pytest.approx(1000, abs=110) for count in counts.values())


def test_halves_share_nothing_and_are_in_no_order():
    documents = [f"{number:03}" for number in range(100)]
    first, second = halves(documents, 30)
    assert (len(first), len(second), len({*first, *second})) == (30, 30, 60)
    assert first != sorted(first)
    assert 5 < sum(document < "050" for document in first) < 25


def test_halves_of_few_documents_fill_the_first():
    first, second = halves("abc", 2)
    assert (len(first), len(second), sorted(first + second)) == (2, 1, ["a", "b", "c"])
    assert halves([], 2) == ([], [])
