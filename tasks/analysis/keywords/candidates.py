"""Candidates for a public keyword set, with their numbers of texts (URANIA, Algorithm 7, step 2).

Three sources, as in the paper: entities, noun chunks and RAKE's phrases. Public rules then replace most of the
paper's prompt to a model (appendix G.6): stop words, vague words, numbers, dates (`keyword_normalisation`) and people's
names are no candidates; forms of one word are one candidate; and a phrase is ranked without the texts that longer
candidates explain.

Public data only: everything here compares texts with each other.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tasks.text.interfaces import Tagger
from tasks.text.keyword_normalisation import normalise_keyword, roots
from tasks.text.rake import key_phrases
from tasks.text.stop_words import STOP_WORDS
from tasks.text.vague_words import VAGUE_WORDS

LONGEST_PHRASE: Final = 3
"""Most words of a candidate."""

_EMPTY = STOP_WORDS | VAGUE_WORDS

UNNAMED: Final = frozenset({"PERSON", "CARDINAL", "DATE", "TIME", "ORDINAL", "MONEY", "PERCENT", "QUANTITY"})
"""Kinds of entities (OntoNotes 5) that are no topics. A person's name is never a candidate."""


@dataclass(frozen=True)
class Candidate:
    """A keyword that may become one of the set.

    Attributes:
        texts: how many texts have all of its words.
        worth: the rank value, the C-value.
    """

    keyword: str
    texts: int
    worth: float


class Occurrences:
    """Index of the public texts in which words occur, in any form."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts: Mapping[str, set[int]] = _postings(texts)

    def __call__(self, keyword: str) -> frozenset[int]:
        """Return the numbers of the texts that have all words of a keyword."""
        text_sets = [self._texts.get(root, set()) for root in roots(keyword)]
        return frozenset(set.intersection(*text_sets)) if text_sets else frozenset()


def candidates(texts: Sequence[str], tag: Tagger, occurrences: Occurrences, least: int = 2) -> list[Candidate]:
    """Return candidates of at least `least` texts, by falling worth; equal ones in the order of the alphabet."""
    forms = _forms(texts, tag)
    names = [max(spellings, key=lambda spelling: (spellings[spelling], spelling)) for spellings in forms.values()]
    counts = {name: len(occurrences(name)) for name in names}
    frequent = {name: count for name, count in counts.items() if count >= least}
    worth = _worth(frequent)
    unranked = [Candidate(name, count, worth[name]) for name, count in frequent.items()]
    return sorted(unranked, key=lambda candidate: (-candidate.worth, candidate.keyword))


def _forms(texts: Sequence[str], tag: Tagger) -> dict[frozenset[str], Counter[str]]:
    """Return the number of texts with each spelling of the same roots."""
    forms: dict[frozenset[str], Counter[str]] = defaultdict(Counter)
    for phrases in _named_phrases(texts, tag):
        for phrase in phrases:
            forms[roots(phrase)][phrase] += 1
    return forms


def _named_phrases(texts: Sequence[str], tag: Tagger) -> Iterator[set[str]]:
    """Yield the phrases of each text that may be candidates."""
    entities, chunks = tag(texts), tag.noun_chunks(texts)
    people = {
        normalise_keyword(entity.text)
        for entities_of_text in entities
        for entity in entities_of_text
        if entity.kind == "PERSON"
    }
    for text, entities_of_text, chunks_of_text in zip(texts, entities, chunks, strict=True):
        names = [entity.text for entity in entities_of_text if entity.kind not in UNNAMED]
        yield set(_spelt([*names, *chunks_of_text, *key_phrases(text)])) - people


def _spelt(phrases: Iterable[str]) -> Iterator[str]:
    for phrase in phrases:
        keyword = normalise_keyword(_core(phrase))
        if keyword is not None and len(keyword.split()) <= LONGEST_PHRASE and not any(map(str.isdecimal, keyword)):
            yield keyword


def _core(phrase: str) -> str:
    """Strip empty words from both ends of a phrase: `the following cities` becomes `cities`."""
    words = phrase.split()
    while words and words[0].casefold() in _EMPTY:
        del words[0]
    while words and words[-1].casefold() in _EMPTY:
        del words[-1]
    return " ".join(words)


def _postings(texts: Sequence[str]) -> dict[str, set[int]]:
    texts_by_root: dict[str, set[int]] = defaultdict(set)
    for number, text in enumerate(texts):
        for root in roots(text):
            texts_by_root[root].add(number)
    return texts_by_root


def _worth(counts: Mapping[str, int]) -> dict[str, float]:
    """Return C-values (Frantzi, Ananiadou, Mima, International Journal on Digital Libraries 3, 2000, section 2.3).

    A phrase is worth its number of texts, less the mean of those of longer candidates that contain it, times the
    logarithm of its length (of one more word than it has, so that single words are worth something).
    """
    longer: dict[str, list[int]] = defaultdict(list)
    own = {name: roots(name) for name in counts}
    holders: dict[str, list[str]] = defaultdict(list)
    for name, words in own.items():
        for word in words:
            holders[word].append(name)
    for name, words in own.items():
        rarest = min(words, key=lambda word: len(holders[word]))
        longer[name] = [counts[other] for other in holders[rarest] if words < own[other]]
    return {
        name: math.log2(1 + len(own[name])) * (count - (sum(longer[name]) / len(longer[name]) if longer[name] else 0))
        for name, count in counts.items()
    }
