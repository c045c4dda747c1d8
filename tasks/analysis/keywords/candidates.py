"""Candidates for a public keyword set: what public texts name, and in how many of them (URANIA, Algorithm 7, step 2).

Three sources, as in the paper: entities, noun chunks and RAKE's phrases. Cheap public rules then do most of what the
paper asks a model for (appendix G.6): stop words, vague words, numbers and dates are none (`keyword_normalisation`),
nor are people's names; forms of one word are one candidate; and a phrase is ranked without what longer ones explain of
it.

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
"""Words of a candidate at most."""

_EMPTY = STOP_WORDS | VAGUE_WORDS

UNNAMED: Final = frozenset({"PERSON", "CARDINAL", "DATE", "TIME", "ORDINAL", "MONEY", "PERCENT", "QUANTITY"})
"""Kinds of entities (OntoNotes 5) that are no topics. A phrase that is a person's name is no candidate at all."""


@dataclass(frozen=True)
class Candidate:
    """One keyword that may become one of the set.

    Attributes:
        texts: how many texts have all of its words.
        worth: by which candidates are ranked.
    """

    keyword: str
    texts: int
    worth: float


class Occurrences:
    """In which of some public texts words occur, in whatever form."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts: Mapping[str, set[int]] = _postings(texts)

    def __call__(self, keyword: str) -> frozenset[int]:
        """The numbers of the texts that have all words of a keyword."""
        found = [self._texts.get(root, set()) for root in roots(keyword)]
        return frozenset(set.intersection(*found)) if found else frozenset()


def candidates(texts: Sequence[str], tag: Tagger, occurrences: Occurrences, least: int = 2) -> list[Candidate]:
    """Candidates of at least `least` texts, the worthiest first; equal ones in the order of the alphabet."""
    forms = _forms(texts, tag)
    names = [max(spellings, key=lambda each: (spellings[each], each)) for spellings in forms.values()]
    counts = {name: len(occurrences(name)) for name in names}
    kept = {name: count for name, count in counts.items() if count >= least}
    worth = _worth(kept)
    found = [Candidate(name, count, worth[name]) for name, count in kept.items()]
    return sorted(found, key=lambda each: (-each.worth, each.keyword))


def _forms(texts: Sequence[str], tag: Tagger) -> dict[frozenset[str], Counter[str]]:
    """How often each spelling of the same roots is named; in how many texts."""
    forms: dict[frozenset[str], Counter[str]] = defaultdict(Counter)
    for phrases in _named(texts, tag):
        for phrase in phrases:
            forms[roots(phrase)][phrase] += 1
    return forms


def _named(texts: Sequence[str], tag: Tagger) -> Iterator[set[str]]:
    """For each text what it names."""
    entities, chunks = tag(texts), tag.noun_chunks(texts)
    people = {normalise_keyword(entity.text) for found in entities for entity in found if entity.kind == "PERSON"}
    for text, found, own in zip(texts, entities, chunks, strict=True):
        names = [entity.text for entity in found if entity.kind not in UNNAMED]
        yield set(_spelt([*names, *own, *key_phrases(text)])) - people


def _spelt(phrases: Iterable[str]) -> Iterator[str]:
    for phrase in phrases:
        keyword = normalise_keyword(_core(phrase))
        if keyword is not None and len(keyword.split()) <= LONGEST_PHRASE and not any(map(str.isdecimal, keyword)):
            yield keyword


def _core(phrase: str) -> str:
    """A phrase without the words at its ends that say nothing: `the following cities` are cities."""
    words = phrase.split()
    while words and words[0].casefold() in _EMPTY:
        del words[0]
    while words and words[-1].casefold() in _EMPTY:
        del words[-1]
    return " ".join(words)


def _postings(texts: Sequence[str]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for number, text in enumerate(texts):
        for root in roots(text):
            found[root].add(number)
    return found


def _worth(counts: Mapping[str, int]) -> dict[str, float]:
    """C-value (Frantzi, Ananiadou, Mima, International Journal on Digital Libraries 3, 2000, section 2.3).

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
