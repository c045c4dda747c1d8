"""A public keyword set from a public corpus: KwSet-Public (URANIA, section 4.1 and Algorithm 7).

Candidates (`keywords.candidates`) are thinned out by closeness of their embeddings, cut to size, and, with a model,
revised round by round: it is shown part of the set and a few texts, and says which keywords to leave out and which to
add. What it adds has to occur in the texts, and what it leaves out makes room for the next candidate.

Nothing is charged, so nothing of a governed dataset may be in the corpus. Nobody can see in a list of words what it was
made from: the file says it, with the corpus' SHA-256, and whoever approves a request with it has to believe it.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from models_db.errors import UsageError
from models_db.values.canonical_json import Json
from tasks.analysis.keywords.candidates import Candidate, Occurrences, candidates
from tasks.analysis.keywords.parameters import MOST_WORDS
from tasks.analysis.keywords.refine import Embed, Write
from tasks.corpus.readers.readers import read_documents
from tasks.corpus.readers.sources import name_of, source_digest
from tasks.text.interfaces import Tagger
from tasks.text.keyword_normalisation import normalise_keyword, roots

FORMAT: Final = "almoner keywords 1"
LIKE: Final = 0.8
"""From this cosine on two candidates say the same, and the worthier one is kept."""
CONSIDERED: Final = 5
"""So many times the size of the set is embedded, and kept in reserve."""

SHOWN, TEXTS_AT_ONCE, CHARACTERS, CHANGED = 60, 5, 400, 5
"""Keywords and texts that the model sees at one time, characters of a text, words it may leave out and may add."""

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
"""What is to go, by its number, and what is to come."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class PublicTexts:
    """A public corpus, or a sample of it.

    Attributes:
        file: its name, without its folder.
        digest: SHA-256 of its bytes, as 64 hexadecimal digits.
        there: how many texts it has.
        texts: those that are read, in its order.
    """

    file: str
    digest: str
    there: int
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Built:
    """A keyword set, and what became of it.

    Attributes:
        found: its candidates, the worthiest first.
        considered: how many candidates there were.
        alike: how many of those were left out because they are like another one.
        removed, appended: how many the model left out and added.
    """

    found: tuple[Candidate, ...]
    considered: int
    alike: int
    removed: int = 0
    appended: int = 0

    def to_json(self, source: PublicTexts, made_with: Mapping[str, Json]) -> dict[str, Json]:
        """The file that `keywords.parameters.with_words_from_file` reads."""
        return {
            "format": FORMAT,
            "words": [each.keyword for each in self.found],
            "texts_with": [each.texts for each in self.found],
            "source": {
                "file": source.file,
                "sha256": source.digest,
                "texts": source.there,
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
    """At most `most` texts of a public corpus: those whose numbers have the smallest SHA-256, a repeatable sample.

    Raises:
        SourceMissing, UnknownFileType, SourceUnreadable, SourceEmpty, ColumnMissing, BadRecord: as `read_documents`.
    """
    there, sample = 0, list[tuple[int, int, str]]()
    with closing(read_documents(path, None, text_field)) as documents:
        for there, document in enumerate(documents, 1):
            place = -int.from_bytes(sha256(there.to_bytes(8, "big")).digest(), "big")
            (heapq.heappush if len(sample) < most else heapq.heappushpop)(sample, (place, there, document.text))
    texts = tuple(text for _, _, text in sorted(sample, key=lambda each: each[1]))
    digest = source_digest(path).hex()  # the corpus is public, so its plain hash may be told
    return PublicTexts(name_of(path), digest, there, texts)


def build(
    texts: Sequence[str],
    size: int,
    tag: Tagger,
    embed: Embed,
    write: Write | None = None,
    rounds: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> Built:
    """At most `size` keywords of public texts.

    Args:
        write: a public model that was made for REVISE_SCHEMA; None for cheap rules alone.
        rounds: how often it revises; each time it reads TEXTS_AT_ONCE further texts, and begins anew at the end.

    Raises:
        SizeInvalid: no such size of a set.
        NothingNamed: no word is in two texts.
    """
    if not 1 <= size <= MOST_WORDS:
        raise SizeInvalid(size)
    occurrences = Occurrences(texts)
    ranked = candidates(texts, tag, occurrences)
    if not ranked:
        raise NothingNamed(len(texts))
    kept = different(ranked[: CONSIDERED * size], embed)
    built = Built(tuple(kept[:size]), len(ranked), min(len(ranked), CONSIDERED * size) - len(kept))
    if write is None or not rounds:
        return built
    return _Revision(texts, occurrences, write, size).rounds(built, kept[size:], rounds, progress)


def different(ranked: Sequence[Candidate], embed: Embed) -> list[Candidate]:
    """The candidates without those that are like a worthier one."""
    points = embed([each.keyword for each in ranked])
    close = points @ points.T
    kept: list[int] = []
    for place in range(len(ranked)):
        if not kept or close[place, kept].max() < LIKE:
            kept.append(place)
    return [ranked[place] for place in kept]


@dataclass(frozen=True)
class _Revision:
    """What a model is asked, and what is made of its answers."""

    texts: Sequence[str]
    occurrences: Occurrences
    write: Write
    size: int

    def rounds(self, built: Built, reserve: Sequence[Candidate], rounds: int, progress: Progress) -> Built:
        """One answer at a time, because each question shows what became of the one before."""
        left = list(reserve)
        for turn in range(rounds):
            shown = _window(built.found, turn)
            answer = self.write([revise_prompt([each.keyword for each in shown], self._some(turn))], REVISE_SCHEMA)[0]
            built = self._revised(built, shown, answer, left)
            progress("revising", turn + 1, rounds)
        return built

    def _some(self, turn: int) -> list[str]:
        start = turn * TEXTS_AT_ONCE
        return [self.texts[(start + step) % len(self.texts)] for step in range(min(TEXTS_AT_ONCE, len(self.texts)))]

    def _revised(
        self, built: Built, shown: Sequence[Candidate], answer: Mapping[str, Any], reserve: list[Candidate]
    ) -> Built:
        """The set after an answer, the least worthy left out if it became too large, and filled up from the reserve."""
        numbers = [n for n in _items(answer, "remove") if type(n) is int and 1 <= n <= len(shown)]
        gone = {shown[n - 1].keyword for n in numbers[: self._removable(built)]}
        stay = [each for each in built.found if each.keyword not in gone]
        known = {roots(each.keyword) for each in built.found}
        new = self._new(_items(answer, "append"), known)
        added = sorted([*stay, *new], key=lambda each: (-each.worth, each.keyword))[: self.size]
        while len(added) < self.size and reserve:
            added.append(reserve.pop(0))
        return replace(
            built,
            found=tuple(added),
            removed=built.removed + len(built.found) - len(stay),
            appended=built.appended + sum(each in added for each in new),
        )

    def _removable(self, built: Built) -> int:
        """A tenth of the set in a round, half of it in all: a small model would remove whatever it is shown."""
        return max(0, min(CHANGED, -(-self.size // 10), self.size // 2 - built.removed))

    def _new(self, said: Iterable[object], known: set[frozenset[str]]) -> list[Candidate]:
        """What the model wants to add, if it is a keyword, in two texts at least, and there in no form."""
        found: dict[frozenset[str], Candidate] = {}
        for keyword in filter(None, (normalise_keyword(word) for word in said if isinstance(word, str))):
            texts = len(self.occurrences(keyword))
            if texts >= 2 and roots(keyword) not in known:
                found.setdefault(roots(keyword), Candidate(keyword, texts, float(texts)))
        return list(found.values())[:CHANGED]


def revise_prompt(keywords: Sequence[str], texts: Sequence[str]) -> str:
    """What the model is asked in a round (after URANIA, G.6, in our words)."""
    numbered = "\n".join(f"{number}. {keyword}" for number, keyword in enumerate(keywords, 1))
    quoted = "\n\n".join(f"Text: {' '.join(text.split())[:CHARACTERS]}" for text in texts)
    return (
        f"These keywords say what a collection of texts is about:\n\n{numbered}\n\nHere are some of the texts:\n\n"
        f"{quoted}\n\nUnder `remove`, give the numbers of at most {CHANGED} keywords that are vague, name a person, or"
        f" say the same as another one. Under `append`, give at most {CHANGED} topics of these texts, each in one to"
        " three words, that no keyword names."
    )


def _window(found: Sequence[Candidate], turn: int) -> list[Candidate]:
    """The part of the set that is shown in this round; after enough rounds every keyword was."""
    start = turn * SHOWN % max(len(found), 1)
    return list(found[start : start + SHOWN])


def _items(answer: Mapping[str, Any], name: str) -> list[object]:
    found = answer.get(name)
    return list(found) if isinstance(found, list) else []


class SizeInvalid(UsageError):
    """A set of no keywords, or of too many."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"A keyword set has 1 to {MOST_WORDS} keywords, not {size}.", "Give another --size.", {"size": size}
        )


class NothingNamed(UsageError):
    """Public texts from which no keyword can be made."""

    def __init__(self, texts: int) -> None:
        super().__init__(
            f"No word or phrase that could be a keyword is in two of the {texts} texts.",
            "Take more texts that are like those that the keywords are for.",
            {"texts": texts},
        )
