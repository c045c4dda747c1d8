"""Audits of what keyword sets are composed of (PRIVACY §8, §9): the honest way below its claim, each broken twin above.

The mechanisms by themselves are audited in test_keyword_audits.py. Here a unit's way into them is tried: how many of
its words count, that they count as whole ones, that it proposes its own words alone, and at most k of them.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from models_db.values.amounts import DELTA_UNIT, Amount, total_amount
from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.analysis.keywords import keyword_set as keyword_sets
from tasks.analysis.keywords import keyword_set as tfidf
from tasks.analysis.keywords.keyword_set import Bag, KeywordSet, TermWeights, keyword_set_for
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.set_histogram import calibrate_set_histogram
from tasks.values.results import Facets

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms")

CONFIDENCE, DELTA = 0.9999, 0.03
AMOUNT = Amount(rho_of("1", str(DELTA)), DELTA_UNIT // 100)
TRIALS, TRIALS_OF_SETS = 6000, 2500
WORDS = 4
SPOKEN = tuple(f"word{first}{second}" for first in "abcdefgh" for second in "abcdef")
"""Twelve times as many words as count."""


def unit(*words: str) -> Facets:
    return Facets({"keywords": words})


def bound(sample: Callable[[bool], int], delta: float = DELTA, trials: int = TRIALS) -> float:
    seen, unseen = ([sample(present) for _ in range(trials)] for present in (True, False))
    return epsilon_lower_bound(seen, unseen, delta, CONFIDENCE).epsilon


# What a unit does to the table of document frequencies.

WEIGHTS = TermWeights(calibrate_set_histogram(AMOUNT.rho, None, WORDS + 1), WORDS, 2, 0)
CLAIMED = epsilon_of(WEIGHTS.histogram.loss().rho, str(DELTA))


def of_the_table(present: bool) -> int:
    """The noisy n and frequencies of the words that count in the unit, added up: as if an attacker knew the key.

    Without the unit the same bins are zero.
    """
    moved = len(WEIGHTS.count([unit(*SPOKEN)], OS_RANDOM).frequency)
    return sum(WEIGHTS.histogram.draw([int(present)] * (1 + moved), OS_RANDOM))


def test_a_unit_moves_the_table_by_no_more_than_is_charged():
    assert 0.99 < CLAIMED <= 1
    assert 0.05 < bound(of_the_table) < CLAIMED


@pytest.mark.slow
def test_a_unit_all_of_whose_words_count_exceeds_the_claim(monkeypatch):
    """The noise is for w words of a unit."""
    monkeypatch.setattr(tfidf, "counting_words", lambda bag, most, key: list(bag))
    assert bound(of_the_table) > CLAIMED


def shares_of_a_whole(present: bool) -> int:
    """The paper's row of term counts, scaled to an L1 norm of w: a word counts w/16, and noise is on the integers."""
    true = WORDS / len(SPOKEN) if present else 0.0
    noisy = true + WEIGHTS.histogram.draw([0], OS_RANDOM)[0]
    return int(noisy != int(noisy))


def test_words_that_count_as_parts_of_one_exceed_the_claim():
    """What is behind the decimal point bears no noise at all; our histogram takes no such count."""
    assert bound(shares_of_a_whole) > 3 * CLAIMED
    with pytest.raises(TypeError):
        WEIGHTS.histogram.draw([WORDS / len(SPOKEN)], OS_RANDOM)


# What a unit does to a whole set.


class Purse:
    def release(self, numbers, prepare, draw):
        return json.loads(json.dumps(draw(prepare())))


def set_of(method: str, k: int) -> KeywordSet:
    return keyword_set_for(KeywordSettings(method=method, per_unit=k, tokens_per_unit=WORDS), AMOUNT)


def claim_of(keyword_set: KeywordSet) -> tuple[float, float]:
    """Epsilon and delta of all that a set is charged."""
    spent = total_amount([event.loss for event in keyword_set.events])
    return epsilon_of(spent.rho, str(DELTA)), DELTA + spent.delta / DELTA_UNIT


def released(keyword_set: KeywordSet, others: Sequence[Facets], own: Facets) -> Callable[[bool], int]:
    """How many keywords of a unit are released, with that unit and without it."""

    def sample(present: bool) -> int:
        found = keyword_set.draw(Purse(), lambda: [*others, *([own] if present else [])], OS_RANDOM)
        return len(set(found) & set(own.keywords))

    return sample


def others_like(own: Facets, keyword_set: KeywordSet) -> list[Facets]:
    """So many that the one more decides."""
    return [own] * (keyword_set.selecting.selection.even_count() - 1)


@pytest.mark.parametrize("method", ["tfidf", "model"])
def test_a_set_tells_no_more_of_a_unit_than_is_charged(method):
    keyword_set, own = set_of(method, 2), unit(*SPOKEN[:2])
    epsilon, delta = claim_of(keyword_set)
    assert epsilon <= 1
    assert bound(released(keyword_set, others_like(own, keyword_set), own), delta, TRIALS_OF_SETS) < epsilon


@pytest.mark.slow
def test_a_unit_that_proposes_all_its_keywords_exceeds_the_claim(monkeypatch):
    """The coins are for k keywords of a unit, and here it throws sixteen of them."""
    keyword_set, own = set_of("model", 2), unit(*SPOKEN)
    epsilon, delta = claim_of(keyword_set)
    sample = released(keyword_set, others_like(own, keyword_set), own)
    assert bound(sample, delta, TRIALS_OF_SETS) < epsilon, "cut after k keywords, whatever it has"
    monkeypatch.setattr(keyword_sets.OwnKeywords, "of", lambda self, unit: unit.keywords)
    assert bound(sample, delta, TRIALS_OF_SETS) < epsilon, "cut again where units are counted"
    monkeypatch.setattr(
        keyword_sets, "count_units_by_item", lambda units, most: Counter(word for own in units for word in own)
    )
    assert bound(sample, delta, TRIALS_OF_SETS) > epsilon


def from_the_whole_table(bag: Bag, table: dict[str, int], units: int, most: int, least: int) -> tuple[str, ...]:
    """Every row has every word, those it lacks with tf 0, and idf may be negative: an absent word is the best."""
    size = math.log(max(units, 1))
    weights = {word: bag.get(word, 0) * (size - math.log(max(table[word], 1))) for word in table}
    return tuple(sorted(weights, key=lambda word: (-weights[word], word))[:most])


@pytest.mark.slow
def test_a_unit_that_is_given_another_s_words_exceeds_the_claim(monkeypatch):
    """One person says a word, and everybody proposes it."""
    keyword_set = set_of("tfidf", 1)
    epsilon, delta = claim_of(keyword_set)
    sample = released(keyword_set, [unit("tea")] * 30, unit("zebra"))
    assert bound(sample, delta, TRIALS_OF_SETS) < epsilon
    monkeypatch.setattr(tfidf, "best_words", from_the_whole_table)
    assert bound(sample, delta, TRIALS_OF_SETS) > epsilon
