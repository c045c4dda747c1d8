"""Features of a text, with weights, by which two sets of texts are compared."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from tasks.text.rake import key_phrases
from tasks.text.stop_words import STOP_WORDS
from tasks.text.words import plain_words

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
