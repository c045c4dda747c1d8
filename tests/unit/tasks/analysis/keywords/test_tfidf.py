"""Noisy document frequencies: who counts where, and that a choice depends on its unit and the table alone."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.analysis.keywords.keyword_set import TermWeights, best_words, counting_words
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts.set_histogram import SetHistogram
from tasks.values.results import Facets

KEY = b"k" * 32
BAGS = st.dictionaries(st.sampled_from([f"word{n}" for n in range(12)]), st.integers(1, 9), max_size=12)


def unit(text):
    return Facets({"summary": (text,)})


def weights(counted=3, chosen=2, least=0, scale=Fraction(1)):
    return TermWeights(SetHistogram(None, counted + 1, "gaussian", scale), counted, chosen, least)


def test_an_idf_is_the_logarithm_and_never_negative():
    table = {"rare": 10, "common": 90, "everywhere": 130, "absent": -7}
    assert best_words({"rare": 1, "common": 1, "everywhere": 9}, table, 100, 3, 0) == ("rare", "common", "everywhere")
    assert best_words({"rare": 1, "common": 30}, table, 100, 1, 0) == ("common",), "30 ln(100/90) > ln(10)"
    assert best_words({"rare": 1, "absent": 1}, table, -5, 2, -100) == ("absent", "rare"), "ln(1/10) is 0, too"


def test_words_that_would_hardly_be_selected_take_no_place():
    table = {"rare": 3, "common": 90}
    assert best_words({"rare": 5, "common": 1}, table, 100, 1, 0) == ("rare",)
    assert best_words({"rare": 5, "common": 1}, table, 100, 1, 50) == ("common",)
    assert best_words({"rare": 5}, table, 100, 1, 50) == ()


@given(BAGS, st.integers(0, 12))
def test_a_choice_is_of_a_unit_s_own_words(bag, most):
    table = dict.fromkeys(bag, 7) | {"foreign": 1}
    found = best_words(bag, table, 100, most, 0)
    assert set(found) <= set(bag)
    assert len(found) == min(most, len(bag))


@given(BAGS, st.integers(1, 12), st.binary(min_size=32, max_size=32))
def test_the_words_that_count_are_the_unit_s_and_so_many(bag, most, key):
    found = counting_words(bag, most, key)
    assert set(found) <= set(bag)
    assert len(set(found)) == len(found) == min(most, len(bag))
    again = counting_words(dict(reversed(bag.items())), most, key)
    assert set(again) == set(found), "whatever order the words were read in"


def test_every_word_has_its_turn():
    """With a public order of words the same ones would never count, in no unit."""
    bag = {f"word{n}": 1 for n in range(10)}
    counted = Counter(word for n in range(500) for word in counting_words(bag | {f"own{n}": 1}, 3, KEY))
    assert min(counted[word] for word in bag) > 80  # 136 expected, standard deviation 10
    other = Counter(word for n in range(256) for word in counting_words(bag, 3, bytes([n]) * 32))
    assert min(other.values()) > 40  # 77 expected, standard deviation 7


def test_a_unit_moves_at_most_w_frequencies_and_n_by_one():
    texts = ["tea pottery chess opera", "tea", "pottery pottery tea chess ballet opera", ""]
    mechanism = weights(counted=3)
    whole = mechanism.count([unit(text) for text in texts], DeterministicRandom("key"))
    for missing in range(len(texts)):
        rest = [unit(text) for index, text in enumerate(texts) if index != missing]
        less = mechanism.count(rest, DeterministicRandom("key"))
        moved = Counter(whole.frequency)
        moved.subtract(less.frequency)
        assert set(moved.values()) <= {0, 1}
        assert sum(moved.values()) <= 3
        assert len(whole.bags) - len(less.bags) == 1


def test_the_order_of_units_changes_no_choice_but_the_noise():
    """Without noise to speak of, units choose alike wherever they stand."""
    texts = [f"tea pottery chess word{n % 4}" for n in range(40)]
    mechanism = weights(counted=9, chosen=2, scale=Fraction(1, 2**20))
    forward = mechanism.count([unit(text) for text in texts], OS_RANDOM)
    backward = mechanism.count([unit(text) for text in reversed(texts)], OS_RANDOM)
    assert list(mechanism.choose(forward, OS_RANDOM)) == list(mechanism.choose(backward, OS_RANDOM))[::-1]


def test_noise_is_drawn_once_for_each_word_and_for_n(monkeypatch):
    calls = []

    def draw(self, counts, rng):
        calls.append(list(counts))
        return list(counts)

    monkeypatch.setattr(SetHistogram, "draw", draw)
    mechanism = weights(counted=1)
    counted = mechanism.count([unit("tea chess"), unit("tea"), unit("chess tea")], DeterministicRandom("key"))
    list(mechanism.choose(counted, OS_RANDOM))
    assert len(calls) == 1
    assert calls[0][0] == 3
    assert len(calls[0]) == 3, "n and two words, also the one that counted nowhere"
    assert sum(calls[0][1:]) == 3


def test_an_empty_corpus_is_counted_too():
    mechanism = weights()
    assert list(mechanism.choose(mechanism.count([], OS_RANDOM), OS_RANDOM)) == []


def test_a_histogram_for_fewer_bins_than_a_unit_has_is_refused():
    with pytest.raises(ValueError, match="more bins than 3"):
        TermWeights(SetHistogram(None, 3, "gaussian", Fraction(1)), 3, 2, 0)


def test_what_is_private_is_absent_from_its_repr():
    counted = weights().count([unit("secretword tea")], OS_RANDOM)
    assert "secretword" not in repr(counted)
