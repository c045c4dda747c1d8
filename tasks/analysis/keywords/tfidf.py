"""KwSet-TFIDF: candidate words of a unit by noisy document frequencies (URANIA, Alg. 5; PRIVACY §5).

Each unit counts in the number of units and in the document frequencies of at most w of its words, so the frequencies
and n together are one histogram to which a unit adds at most w + 1 bins. Then, all of it from the noisy table,

    n~ = max(n~, 1),   df~(v) = max(df~(v), 1),   idf(v) = max(0, ln(n~ / df~(v))),

and a unit's candidates are the k of its OWN words with the largest tf * idf, equal ones in the order of the alphabet.

The proof, step by step.

1. Which w words count is a function of the unit and of a fresh key that is drawn without looking at anything: an order
   of its words by HMAC. Words are integers 0 or 1 there, never shares of a whole: adding or removing a unit moves at
   most w + 1 counts by 1 each. (The paper scales a row of term counts down to an L1 norm. Then counts are fractions,
   integer noise on which has unbounded loss.) Given the key, the claim holds; and a mixture over keys that do not
   depend on the data satisfies what all of its parts satisfy.
2. The table has a bin for EVERY string there is, infinitely many, with independent noise in each. Two neighbours'
   tables differ in distribution in at most w + 1 bins; in all others they are the same product, which adds nothing to
   any divergence. So the whole table costs what w + 1 bins cost, and may be used by whatever comes next, adaptively.
3. Noise on a bin that nobody looks at need not be drawn: independent coordinates can be drawn in any order, late, or
   never, without changing the joint distribution of those that are looked at, if each is drawn once and remembered.
   Which bins are looked at are the words of the corpus, and that is private. It never leaves this module: what goes out
   is a unit's choice, and it is handed to another mechanism that is charged for each choice (`partition_selection`).
4. A choice reads the table and the unit's own words, nothing of any other unit. So in the selection, given the table,
   one unit more or less adds or removes at most k candidates. (If idf could be negative, or if a unit could be given
   words it does not have, an absent word would win in rows that do not mention it, and one person's word would be
   counted once for everybody.)

Steps 2 and 4 add up: rho of the histogram and of the selection, delta of the selection. The table is not written down:
as an infinite table it is a release like any other, but a file of the bins that were asked for lists the corpus' words.
So histogram and selection are drawn together (`StageBudget.release` of several numbers), and a run that dies between
the two has lost both.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tasks.corpus.keys import KEY_BYTES, keyed_hash
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.set_histogram import SetHistogram
from tasks.text.keyword_normalisation import tokens_of
from tasks.values.results import Facets

Bag = Mapping[str, int]
"""A unit's words with their counts."""


@dataclass(frozen=True)
class DocumentFrequencies:
    """Words of a corpus before anything is drawn; private.

    Attributes:
        bags: each unit's words.
        frequency: in how many units each word counts.
    """

    bags: Sequence[Bag] = field(repr=False)
    frequency: Mapping[str, int] = field(repr=False)


@dataclass(frozen=True)
class TermWeights:
    """Choice of each unit among its own words.

    Attributes:
        histogram: of n and the document frequencies, over an open set of bins.
        counted: w, of how many words a unit counts at most.
        chosen: k, how many a unit chooses at most.
        least: words of a lower noisy document frequency are passed over. They would hardly be selected, and would
            take the places of others: the rarest words have the largest idf.
    """

    histogram: SetHistogram
    counted: int
    chosen: int
    least: int

    def __post_init__(self) -> None:
        if self.histogram.contributions < self.counted + 1:
            raise ValueError(f"{self.counted} words and n are more bins than {self.histogram.contributions}")

    def count(self, facets: Sequence[Facets], rng: RandomSource) -> DocumentFrequencies:
        """Read the units' words; no noise is drawn, only a key."""
        key = rng.random_bytes(KEY_BYTES)
        bags: list[Bag] = [tokens_of(unit.text) for unit in facets]
        counting = (token for bag in bags for token in counting_words(bag, self.counted, key))
        return DocumentFrequencies(bags, Counter(counting))

    def choose(self, counted: DocumentFrequencies, rng: RandomSource) -> Iterator[tuple[str, ...]]:
        """Draw the needed part of the table, and choose for each unit at most k of its own words."""
        tokens = list({token: None for bag in counted.bags for token in bag})
        true_counts = [len(counted.bags), *(counted.frequency.get(token, 0) for token in tokens)]
        units, *noisy = self.histogram.draw(true_counts, rng)
        table = dict(zip(tokens, noisy, strict=True))
        for bag in counted.bags:
            yield best_words(bag, table, units, self.chosen, self.least)


def counting_words(bag: Bag, most: int, key: bytes) -> list[str]:
    """Return at most `most` of a unit's words, a function of the key and of that unit alone."""
    if len(bag) <= most:
        return list(bag)
    own = keyed_hash(key, "a unit's words", *sorted(bag))
    return sorted(bag, key=lambda token: keyed_hash(own, "order", token))[:most]


def best_words(bag: Bag, table: Mapping[str, int], units: int, most: int, least: int) -> tuple[str, ...]:
    """Return the words of a bag with the largest tf * idf, the best first.

    Args:
        table: noisy document frequencies of all its words.
        units: the noisy number of units.
        least: words of a lower noisy frequency are left out.
    """
    size = math.log(max(units, 1))
    weights = {
        token: count * max(0.0, size - math.log(max(table[token], 1)))
        for token, count in bag.items()
        if table[token] >= least
    }
    return tuple(sorted(weights, key=lambda token: (-weights[token], token))[:most])
