"""Public keyword set from a public corpus: KwSet-Public (URANIA, section 4.1 and Algorithm 7).

Candidates for a public keyword set, with their numbers of texts (URANIA, Algorithm 7, step 2). Three sources, as in the
paper: entities, noun chunks and RAKE's phrases. Public rules then replace most of the paper's prompt to a model
(appendix G.6): stop words, vague words, numbers, dates (`keyword_normalisation`) and people's names are no candidates;
forms of one word are one candidate; and a phrase is ranked without the texts that longer candidates explain.

Public data only: everything here compares texts with each other.

Candidates (`keywords.candidates`) are thinned out by closeness of their embeddings, cut to size, and, with a model,
revised round by round: the model sees part of the set and a few texts, and names keywords to remove and to add. Added
keywords have to occur in the texts, and removed ones make room for the next candidates.

Nothing is charged, so nothing of a governed dataset may be in the corpus. A list of words does not show its source: the
file states it, with the corpus' SHA-256, and the stewards who approve a request with it have to trust that statement.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from models_db.errors import UsageError
from models_db.values.canonical_json import Json
from tasks.analysis.keywords.keyword_set import Embed, Write
from tasks.analysis.keywords.parameters import MOST_WORDS
from tasks.corpus.readers.readers import read_documents
from tasks.corpus.readers.sources import name_of, source_digest
from tasks.text.public_models import Tagger
from tasks.text.words import STOP_WORDS, VAGUE_WORDS, key_phrases, normalise_keyword, roots

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


FORMAT: Final = "almoner keywords 1"
LIKE: Final = 0.8
"""Least cosine of two candidates that count as the same; the one of higher value is kept."""
CONSIDERED: Final = 5
"""Candidates that are embedded and kept in reserve, as a multiple of the size of the set."""

SHOWN, TEXTS_AT_ONCE, CHARACTERS, CHANGED = 60, 5, 400, 5
"""Keywords and texts that the model sees at one time, characters of a text, words it may remove and may add."""

REVISE_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "remove": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": SHOWN},
            "maxItems": CHANGED,
        },
        "append": {
            "type": "array",
            "items": {"type": "string", "minLength": 2, "maxLength": 30},
            "maxItems": CHANGED,
        },
    },
    "required": ["remove", "append"],
    "additionalProperties": False,
}
"""Keywords to remove, by number, and keywords to add."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class PublicTexts:
    """A public corpus, or a sample of it.

    Attributes:
        file: its name, without its folder.
        digest: SHA-256 of its bytes, as 64 hexadecimal digits.
        total: how many texts the corpus has.
        texts: the texts that are read, in its order.
    """

    file: str
    digest: str
    total: int
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Built:
    """A keyword set with the counts of its construction.

    Attributes:
        keywords: its keywords, those of most worth first.
        considered: how many candidates there were.
        alike: how many of those were left out because they are similar to another one.
        removed, appended: how many the model left out and added.
    """

    keywords: tuple[Candidate, ...]
    considered: int
    alike: int
    removed: int = 0
    appended: int = 0

    def to_json(self, source: PublicTexts, made_with: Mapping[str, Json]) -> dict[str, Json]:
        """Return the content of the file that `keywords.parameters.with_words_from_file` reads."""
        return {
            "format": FORMAT,
            "words": [candidate.keyword for candidate in self.keywords],
            "texts_with": [candidate.texts for candidate in self.keywords],
            "source": {
                "file": source.file,
                "sha256": source.digest,
                "texts": source.total,
                "texts_read": len(source.texts),
                "declared": "public",
            },
            "made_with": dict(made_with),
            "counts": {
                "candidates": self.considered,
                "alike": self.alike,
                "removed": self.removed,
                "appended": self.appended,
            },
        }


def read_public(path: Path, text_field: str = "text", most: int = 2000) -> PublicTexts:
    """Read at most `most` texts of a public corpus: those whose numbers have the smallest SHA-256, a repeatable sample.

    Raises:
        SourceMissing, UnknownFileType, SourceUnreadable, SourceEmpty, ColumnMissing, BadRecord: as `read_documents`.
    """
    number, sample = 0, list[tuple[int, int, str]]()
    with closing(read_documents(path, None, text_field)) as documents:
        for number, document in enumerate(documents, 1):
            priority = -int.from_bytes(sha256(number.to_bytes(8, "big")).digest(), "big")
            (heapq.heappush if len(sample) < most else heapq.heappushpop)(sample, (priority, number, document.text))
    texts = tuple(text for _, _, text in sorted(sample, key=lambda entry: entry[1]))
    digest = source_digest(path).whole.hex()  # the corpus is public, so its plain hash may be published
    return PublicTexts(name_of(path), digest, number, texts)


def build(
    texts: Sequence[str],
    size: int,
    tag: Tagger,
    embed: Embed,
    write: Write | None = None,
    rounds: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> Built:
    """Build at most `size` keywords from public texts.

    Args:
        write: a public model prepared for REVISE_SCHEMA; None for rules alone.
        rounds: how often it revises; each time it reads TEXTS_AT_ONCE further texts, starting over at the end.

    Raises:
        SizeInvalid: the size is out of range.
        KeywordCandidatesMissing: no word is in two texts.
    """
    if not 1 <= size <= MOST_WORDS:
        raise UsageError(
            f"A keyword set has 1 to {MOST_WORDS} keywords, not {size}.",
            "Give another --size.",
            {"size": size},
            code="SizeInvalid",
        )
    occurrences = Occurrences(texts)
    ranked = candidates(texts, tag, occurrences)
    if not ranked:
        raise _keyword_candidates_missing(len(texts))
    selected = different(ranked[: CONSIDERED * size], embed)
    built = Built(tuple(selected[:size]), len(ranked), min(len(ranked), CONSIDERED * size) - len(selected))
    if write is None or not rounds:
        return built
    return _Revision(texts, occurrences, write, size).rounds(built, selected[size:], rounds, progress)


def different(ranked: Sequence[Candidate], embed: Embed) -> list[Candidate]:
    """Return the candidates without those that are similar to one of more worth."""
    points = embed([candidate.keyword for candidate in ranked])
    similarity = points @ points.T
    distinct: list[int] = []
    for place in range(len(ranked)):
        if not distinct or similarity[place, distinct].max() < LIKE:
            distinct.append(place)
    return [ranked[place] for place in distinct]


@dataclass(frozen=True)
class _Revision:
    """Revision of a set by a model."""

    texts: Sequence[str]
    occurrences: Occurrences
    write: Write
    size: int

    def rounds(self, built: Built, reserve: Sequence[Candidate], rounds: int, progress: Progress) -> Built:
        """Revise round by round: each prompt shows the result of the round before."""
        remaining = list(reserve)
        for turn in range(rounds):
            window = _window(built.keywords, turn)
            answer = self.write(
                [revise_prompt([candidate.keyword for candidate in window], self._texts_of_round(turn))], REVISE_SCHEMA
            )[0]
            built = self._apply_answer(built, window, answer, remaining)
            progress("revising", turn + 1, rounds)
        return built

    def _texts_of_round(self, turn: int) -> list[str]:
        start = turn * TEXTS_AT_ONCE
        return [self.texts[(start + step) % len(self.texts)] for step in range(min(TEXTS_AT_ONCE, len(self.texts)))]

    def _apply_answer(
        self, built: Built, window: Sequence[Candidate], answer: Mapping[str, Any], reserve: list[Candidate]
    ) -> Built:
        """Apply an answer: cut the set by worth if it became too large, or fill it up from the reserve."""
        numbers = [n for n in _answer_list(answer, "remove") if type(n) is int and 1 <= n <= len(window)]
        removed = {window[n - 1].keyword for n in numbers[: self._most_removals(built)]}
        kept = [candidate for candidate in built.keywords if candidate.keyword not in removed]
        known_roots = {roots(candidate.keyword) for candidate in built.keywords}
        additions = self._new_candidates(_answer_list(answer, "append"), known_roots)
        added = sorted([*kept, *additions], key=lambda candidate: (-candidate.worth, candidate.keyword))[: self.size]
        while len(added) < self.size and reserve:
            added.append(reserve.pop(0))
        return replace(
            built,
            keywords=tuple(added),
            removed=built.removed + len(built.keywords) - len(kept),
            appended=built.appended + sum(candidate in added for candidate in additions),
        )

    def _most_removals(self, built: Built) -> int:
        """Limit removals to a tenth of the set per round, half of it in all: a small model would remove everything."""
        return max(0, min(CHANGED, -(-self.size // 10), self.size // 2 - built.removed))

    def _new_candidates(self, words: Iterable[object], known_roots: set[frozenset[str]]) -> list[Candidate]:
        """Return the model's additions that are keywords, occur in at least two texts, and are new in every form."""
        candidate_by_roots: dict[frozenset[str], Candidate] = {}
        for keyword in filter(None, (normalise_keyword(word) for word in words if isinstance(word, str))):
            texts = len(self.occurrences(keyword))
            if texts >= 2 and roots(keyword) not in known_roots:
                candidate_by_roots.setdefault(roots(keyword), Candidate(keyword, texts, float(texts)))
        return list(candidate_by_roots.values())[:CHANGED]


def revise_prompt(keywords: Sequence[str], texts: Sequence[str]) -> str:
    """Return the prompt of a round (after URANIA, G.6, in our words)."""
    numbered = "\n".join(f"{number}. {keyword}" for number, keyword in enumerate(keywords, 1))
    quoted = "\n\n".join(f"Text: {' '.join(text.split())[:CHARACTERS]}" for text in texts)
    return (
        f"These keywords say what a collection of texts is about:\n\n{numbered}\n\nHere are some of the texts:\n\n"
        f"{quoted}\n\nUnder `remove`, give the numbers of at most {CHANGED} keywords that are vague, name a person, or"
        f" say the same as another one. Under `append`, give at most {CHANGED} topics of these texts, each in one to"
        " three words, that no keyword names."
    )


def _window(candidates: Sequence[Candidate], turn: int) -> list[Candidate]:
    """Return the part of the set for this round; enough rounds show every keyword."""
    start = turn * SHOWN % max(len(candidates), 1)
    return list(candidates[start : start + SHOWN])


def _answer_list(answer: Mapping[str, Any], name: str) -> list[object]:
    items = answer.get(name)
    return list(items) if isinstance(items, list) else []


def _keyword_candidates_missing(texts: int) -> UsageError:
    return UsageError(
        f"No candidate keyword occurs in two of the {texts} texts.",
        "Use more texts that resemble those that the keywords are for.",
        {"texts": texts},
        code="KeywordCandidatesMissing",
    )
