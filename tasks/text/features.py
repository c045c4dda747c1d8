"""Features by which texts are compared: shingles, which near copies share, and weighted terms.

Shingles: sets of short word runs, which near copies share. Broder, "On the resemblance and containment of documents",
SEQUENCES 1997. Sets are exact: at the size of a release nothing has to be sampled.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import pairwise
from typing import TypeAlias

from tasks.text.words import STOP_WORDS, key_phrases, plain_words, words

SIZE = 4

Shingle: TypeAlias = tuple[str, ...]


def shingles(text: str, size: int = SIZE) -> frozenset[Shingle]:
    """Return the different runs of `size` words of a text (`tasks.text.words`); of a shorter text itself, if any."""
    return frozenset(_runs(words(text), size))


def containment(text: str, reference: Set[Shingle], size: int = SIZE) -> float:
    """Return the share of the text's runs that are among `reference`; 0 for a text without words."""
    own = shingles(text, size)
    return len(own & reference) / len(own) if own else 0.0


def joined(texts: Iterable[str], size: int = SIZE) -> frozenset[Shingle]:
    """Return all runs of all texts."""
    return frozenset(run for text in texts for run in shingles(text, size))


def best_containments(texts: Sequence[str], documents: Iterable[str], size: int = SIZE) -> list[float]:
    """Return for each text the largest share of its runs that one single document holds.

    Documents are read once and never kept; time grows with what they share with the texts.
    """
    own = [shingles(text, size) for text in texts]
    holders: dict[Shingle, list[int]] = defaultdict(list)
    for place, runs in enumerate(own):
        for run in runs:
            holders[run].append(place)
    best = [0.0] * len(texts)
    for document in documents:
        shared = Counter(place for run in shingles(document, size) for place in holders.get(run, ()))
        for place, count in shared.items():
            best[place] = max(best[place], count / len(own[place]))
    return best


def _runs(read: Sequence[str], size: int) -> Iterator[Shingle]:
    if 0 < len(read) < size:
        yield tuple(read)
    for start in range(len(read) - size + 1):
        yield tuple(read[start : start + size])


Features = Mapping[str, float]
"""The features of one text; a weight counts only where the heaviest are chosen."""


def tokens(texts: Sequence[str]) -> list[Features]:
    """Return the different words of each text."""
    return [dict.fromkeys(plain_words(text), 1.0) for text in texts]


def pairs(texts: Sequence[str]) -> list[Features]:
    """Return the different pairs of neighbouring words of each text."""
    split = [plain_words(text) for text in texts]
    return [dict.fromkeys(map(" ".join, pairwise(words)), 1.0) for words in split]


def phrases(texts: Sequence[str]) -> list[Features]:
    """Return the key phrases of each text."""
    return [dict.fromkeys(key_phrases(text), 1.0) for text in texts]


def chunks(chunks_of_texts: Sequence[Sequence[str]]) -> list[Features]:
    """Return the noun phrases of each text by a tagger, without leading stop words; pronouns are left out."""
    return [dict.fromkeys(filter(None, map(_head, chunks_of_text)), 1.0) for chunks_of_text in chunks_of_texts]


def weighted_terms(texts: Sequence[str]) -> list[Features]:
    """Return TF-IDF of the words of each text that are no stop words, each text's weights of length 1.

    Salton and Buckley, "Term-weighting approaches in automatic text retrieval", 1988; with 1 added to every count of
    texts and to the logarithm, as scikit-learn does by default: (ln((1 + n) / (1 + n_t)) + 1) for a term in n_t of n.
    """
    counts = [Counter(word for word in plain_words(text) if word not in STOP_WORDS) for text in texts]
    spread = Counter(term for terms in counts for term in terms)
    rarity = {term: math.log((1 + len(texts)) / (1 + among)) + 1 for term, among in spread.items()}
    return [_of_length_one({term: count * rarity[term] for term, count in terms.items()}) for terms in counts]


def _of_length_one(weights: dict[str, float]) -> Features:
    length = math.sqrt(sum(weight * weight for weight in weights.values()))
    return {term: weight / length for term, weight in weights.items()}


def _head(chunk: str) -> str:
    words = plain_words(chunk)
    while words and words[0] in STOP_WORDS:
        del words[0]
    return " ".join(words)
