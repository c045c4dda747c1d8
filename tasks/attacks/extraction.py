"""Extraction attacks: personal identifiers and copies of documents in released texts.

Extraction of personal identifiers: released e-mail addresses, telephone numbers and names of a corpus. A model can
write an address that is in the corpus without having seen it there. So the share of the corpus's identifiers that
appear is compared with that of identifiers which could not leak: those of texts of the same kind that were held out.
Lukas et al., "Analyzing Leakage of Personally Identifiable Information in Language Models", IEEE S&P 2023, call the
first extraction recall; the held-out share is its chance level.

Memorisation: released texts that copy a document, word for word or nearly. Word for word: the longest run of words that
a released text shares with any document (`SuffixAutomaton`; Lee et al., ACL 2022). Nearly: the largest share of a
text's four-word runs that one single document has (Broder 1997), which small changes cannot hide. Both are compared
with documents of the same kind that the release cannot have seen.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tasks.auditing.epsilon_lower_bound import clopper_pearson_lower, clopper_pearson_upper
from tasks.evaluation.algorithms import SuffixAutomaton
from tasks.evaluation.intervals import CONFIDENCE, Interval
from tasks.text.features import best_containments
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
