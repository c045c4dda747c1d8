"""Memorisation: released texts that copy a document, word for word or nearly.

Word for word: the longest run of words that a released text shares with any document (`suffix_automaton`; Lee et al.,
ACL 2022). Nearly: the largest share of a text's four-word runs that one single document has (Broder 1997), which small
changes cannot hide. Both are compared with documents of the same kind that the release cannot have seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.attacks.identifier_extraction import Extracted
from tasks.evaluation.algorithms.suffix_automaton import SuffixAutomaton
from tasks.text.shingles import best_containments
from tasks.text.words import words

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
