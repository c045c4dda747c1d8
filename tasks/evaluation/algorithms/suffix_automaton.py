"""Suffix automaton: the longest runs that texts share with a stream of documents, in linear time.

A suffix automaton (Blumer et al., "The Smallest Automaton Recognizing the Subwords of a Text", TCS 40, 1985) of all
texts, joined by a separator that no document contains; documents are read through it once and never stored.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

_SEPARATOR = -1


class SuffixAutomaton:
    """Recognises every run of words of `texts`.

    About 0.7 kB per word of the texts; documents take no memory.
    """

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self._ids: dict[str, int] = {}
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._ends: list[list[int]] = []
        last = 0
        for text in texts:
            ends = []
            for word in text:
                last = self._extend(last, self._ids.setdefault(word, len(self._ids)))
                ends.append(last)
            self._ends.append(ends)
            last = self._extend(last, _SEPARATOR)

    def longest_shared(self, documents: Iterable[Sequence[str]]) -> list[int]:
        """Return for each text the length of the longest run of words that a document contains, too."""
        return self.longest(self.matched(documents))

    def matched(self, documents: Iterable[Sequence[str]]) -> NDArray[np.int32]:
        """Return the longest run of a document that ends in each state, int32 [states].

        Of documents in several parts it is the maximum of those of the parts: equal texts make equal states.
        """
        matched = [0] * len(self._next)
        for document in documents:
            self._follow(document, matched)
        return np.array(matched, np.int32)

    def longest(self, matched: NDArray[np.int32]) -> list[int]:
        """Return for each text the length of its longest matched run."""
        best = self._spread(matched.tolist())
        return [max((best[state] for state in ends), default=0) for ends in self._ends]

    def _extend(self, last: int, symbol: int) -> int:
        state = self._state({}, self._length[last] + 1, 0)
        while last >= 0 and symbol not in self._next[last]:
            self._next[last][symbol] = state
            last = self._link[last]
        if last >= 0:
            self._link[state] = self._split(last, symbol)
        return state

    def _split(self, parent: int, symbol: int) -> int:
        """Return the state for the longest suffix already known, cloned off where a longer run shares its state."""
        target = self._next[parent][symbol]
        if self._length[target] == self._length[parent] + 1:
            return target
        clone = self._state(dict(self._next[target]), self._length[parent] + 1, self._link[target])
        self._link[target] = clone
        while parent >= 0 and self._next[parent].get(symbol) == target:
            self._next[parent][symbol] = clone
            parent = self._link[parent]
        return clone

    def _state(self, transitions: dict[int, int], length: int, link: int) -> int:
        self._next.append(transitions)
        self._length.append(length)
        self._link.append(link)
        return len(self._next) - 1

    def _follow(self, document: Sequence[str], matched: list[int]) -> None:
        """Record in `matched` the longest run of `document` that ends in each state."""
        state = run = 0
        for word in document:
            symbol = self._ids.get(word)
            if symbol is None:
                state = run = 0
                continue
            while state and symbol not in self._next[state]:
                state = self._link[state]
                run = self._length[state]
            state = self._next[state].get(symbol, 0)
            run = run + 1 if state else 0
            if run > matched[state]:
                matched[state] = run

    def _spread(self, matched: Sequence[int]) -> list[int]:
        """Return for each state the longest matched run that ends where it ends: its own or a suffix's."""
        best = list(matched)
        order = sorted(range(1, len(best)), key=self._length.__getitem__)
        for state in reversed(order):
            if best[state]:  # a matched run holds all its suffixes
                best[self._link[state]] = self._length[self._link[state]]
        for state in order:
            best[state] = best[state] or best[self._link[state]]
        return best
