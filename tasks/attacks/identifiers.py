"""What an attacker reads from released texts: identifiers, copies of documents, attributes of a person.

Extraction of personal identifiers: released e-mail addresses, telephone numbers and names of a corpus. A model can
write an address that is in the corpus without having seen it there. So the share of the corpus's identifiers that
appear is compared with that of identifiers which could not leak: those of texts of the same kind that were held out.
Lukas et al., "Analyzing Leakage of Personally Identifiable Information in Language Models", IEEE S&P 2023, call the
first extraction recall; the held-out share is its chance level.

Memorisation: released texts that copy a document, word for word or nearly. Word for word: the longest run of words that
a released text shares with any document (`SuffixAutomaton`; Lee et al., ACL 2022). Nearly: the largest share of a
text's four-word runs that one single document has (Broder 1997), which small changes cannot hide. Both are compared
with documents of the same kind that the release cannot have seen.

Attribute inference: a guess about a person from the released texts nearest to that person. The attacker knows a part of
somebody's text, a public set of people whose attribute is known, and the release. It finds the released texts nearest
to what it knows, lets each vote by its nearest public people, and takes the winner. If a release carries over more of a
person than what everybody of that kind has in common, the guess is right more often for people of the corpus than for
people who were held out. The guess at held-out people is the level to compare with: what can be inferred about anybody
is no leak (Jayaraman and Evans, "Are Attribute Inference Attacks Just Imputation?", CCS 2022). The share of the
commonest value stands beside both.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.auditing.epsilon_lower_bound import clopper_pearson_lower, clopper_pearson_upper
from tasks.evaluation.algorithms import SuffixAutomaton
from tasks.evaluation.intervals import CONFIDENCE, Interval
from tasks.text.features import best_containments
from tasks.text.public_models import Embedder
from tasks.text.words import words

_EMAIL = re.compile(r"[A-Za-z0-9][\w.+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_PHONE = re.compile(r"(?<![\w.-])\+?\(?\d{1,4}\)?(?:[ .\-/]?\(?\d{2,4}\)?){2,4}(?![\w-])")
_FEWEST_DIGITS, _MOST_DIGITS = 7, 15  # ITU-T E.164 has at most 15


@dataclass(frozen=True)
class Extracted:
    """Number of identifiers that appear in a release, out of all."""

    appearing: int
    of: int

    @property
    def share(self) -> float | None:
        """Appearing identifiers divided by all; None if there are none."""
        return self.appearing / self.of if self.of else None

    @property
    def interval(self) -> Interval | None:
        """95 % Clopper-Pearson interval of the share; None if there are no identifiers."""
        if not self.of:
            return None
        failure = (1 - CONFIDENCE) / 2
        return (
            clopper_pearson_lower(self.appearing, self.of, failure),
            clopper_pearson_upper(self.appearing, self.of, failure),
        )


@dataclass(frozen=True)
class Extraction:
    """Extraction counts for identifiers of the corpus and for held-out identifiers."""

    corpus: Extracted
    held_out: Extracted


def emails(text: str) -> set[str]:
    """Return the e-mail addresses of a text, in lower case."""
    return {email.rstrip(".").lower() for email in _EMAIL.findall(text)}


def phones(text: str) -> set[str]:
    """Runs of 7 to 15 digits in groups, as they are written; years and dates in ISO form are none."""
    numbers = {match.strip() for match in _PHONE.findall(text)}
    return {
        number for number in numbers if _FEWEST_DIGITS <= sum(c.isdigit() for c in number) <= _MOST_DIGITS
    } - _dates(numbers)


def _dates(numbers: Iterable[str]) -> set[str]:
    return {
        number for number in numbers if re.fullmatch(r"\d{4}[-./]\d{2}[-./]\d{2}|\d{2}[-./]\d{2}[-./]\d{4}", number)
    }


PATTERNS = {"emails": emails, "phones": phones}
"""Kinds of identifiers that are found by their form, and how."""


def extraction(corpus: Iterable[str], held_out: Iterable[str], released: Sequence[str]) -> Extraction:
    """Look for identifiers of the corpus, and for held-out ones, in the released texts.

    Identifiers are compared as runs of whole words (`tasks.text.words`); an identifier in both sets can come from
    either and counts in neither.
    """
    inside, outside = _normalised(corpus), _normalised(held_out)
    haystack = "\n".join(f" {' '.join(words(text))} " for text in released)
    occurrences = {each: f" {each} " in haystack for each in inside.keys() ^ outside.keys()}
    return Extraction(
        *(_count(occurrences, own.keys() - other.keys()) for own, other in ((inside, outside), (outside, inside)))
    )


def _normalised(identifiers: Iterable[str]) -> dict[str, None]:
    spelt = (" ".join(words(each)) for each in identifiers)
    return {each: None for each in spelt if each}


def _count(occurrences: Mapping[str, bool], identifiers: Iterable[str]) -> Extracted:
    hits = [occurrences[each] for each in identifiers]
    return Extracted(sum(hits), len(hits))


NEAR = 0.5
"""A text whose runs stand in one document to this share is a near copy of it."""


@dataclass(frozen=True)
class CopiedText:
    """Word overlap of released texts with documents.

    Attributes:
        runs: for each text the longest shared run, words.
        shares: for each text the largest share of its four-word runs in one document.
    """

    runs: tuple[int, ...]
    shares: tuple[float, ...]

    @property
    def near(self) -> Extracted:
        """Texts that are near copies."""
        return Extracted(sum(share >= NEAR for share in self.shares), len(self.shares))


def find_copies(released: Sequence[str], documents: Sequence[str]) -> CopiedText:
    """Compare released texts with documents; without documents nothing is shared."""
    if not released:
        return CopiedText((), ())
    automaton = SuffixAutomaton([words(text) for text in released])
    runs = automaton.longest_shared(words(document) for document in documents)
    return CopiedText(tuple(runs), tuple(best_containments(released, documents)))


NEAREST_TEXTS = 3
NEAREST_PEOPLE = 5


@dataclass(frozen=True)
class Person:
    """Target of an attribute inference.

    Attributes:
        known_text: the part of their text that the attacker knows.
        value: the attribute.
    """

    known_text: str
    value: str


@dataclass(frozen=True)
class Inference:
    """Counts of correct guesses of the attribute.

    Attributes:
        members, held_out: correct guesses about people of the corpus, and about held-out people.
        commonest: correct guesses by the baseline, which always guesses the most common value of the public people.
    """

    members: Extracted
    held_out: Extracted
    commonest: Extracted


def infer(
    embed: Embedder,
    released: Sequence[str],
    public: Sequence[Person],
    members: Sequence[Person],
    held_out: Sequence[Person],
) -> Inference | None:
    """Guess for members and for held-out people; None if nothing was released or nobody public is known."""
    if not released or not public:
        return None
    answers = _votes(embed, released, public)
    people = [*members, *held_out]
    right = [False] * len(people)
    if people:
        near = _nearest(embed([person.known_text for person in people]), embed(released), NEAREST_TEXTS)
        right = [
            _winner([answers[place] for place in places]) == person.value
            for places, person in zip(near, people, strict=True)
        ]
    guess = _winner([Counter(person.value for person in public)])
    return Inference(
        members=Extracted(sum(right[: len(members)]), len(members)),
        held_out=Extracted(sum(right[len(members) :]), len(held_out)),
        commonest=Extracted(sum(person.value == guess for person in people), len(people)),
    )


def _votes(embed: Embedder, released: Sequence[str], public: Sequence[Person]) -> list[Counter[str]]:
    """Return for each released text the values of the public people nearest to it."""
    near = _nearest(embed(released), embed([person.known_text for person in public]), NEAREST_PEOPLE)
    return [Counter(public[place].value for place in places) for places in near]


def _winner(votes: Sequence[Counter[str]]) -> str:
    """Return the value with most votes; of several, the first by name."""
    total: Counter[str] = sum(votes, Counter())
    return min(total, key=lambda value: (-total[value], value))


def _nearest(points: NDArray[np.float32], others: NDArray[np.float32], most: int) -> list[list[int]]:
    """Return for each point the places of the nearest others by cosine, nearest first."""
    ours, theirs = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in (points, others))
    order: list[list[int]] = np.argsort(-(ours @ theirs.T), axis=1, kind="stable")[:, :most].tolist()
    return order
