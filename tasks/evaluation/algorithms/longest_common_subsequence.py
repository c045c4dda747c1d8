"""Length of the longest common subsequence, with the bits of an integer as one column of the table.

Hyyrö, "Bit-Parallel LCS-length Computation Revisited", AWOCA 2004, figure 4: each word of the other sequence costs one
addition and a few logical operations on integers of as many bits as this sequence has words.
"""

from collections.abc import Sequence


class CommonSubsequence:
    """A sequence that is compared with many others."""

    def __init__(self, words: Sequence[str]) -> None:
        self._places: dict[str, int] = {}
        for place, word in enumerate(words):
            self._places[word] = self._places.get(word, 0) | 1 << place
        self._all = (1 << len(words)) - 1

    def with_(self, words: Sequence[str]) -> int:
        """Return how many words the longest common subsequence of both has."""
        rest = self._all
        for places in map(self._places.get, words):
            if places is not None:  # a word that this sequence lacks changes nothing
                matched = rest & places
                rest = (rest + matched | rest - matched) & self._all
        return self._all.bit_count() - rest.bit_count()
