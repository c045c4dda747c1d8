"""Algorithms of metrics: divergence frontiers, logistic regression, common subsequences, and suffix automata.

Divergence of two histograms: the area under their frontier, which is MAUVE of two quantised samples. Pillutla et al.,
"MAUVE: Measuring the Gap Between Neural Text and Human Text using Divergence Frontiers", NeurIPS 2021, section 2: for
mixtures R = w P + (1 - w) Q, the points (exp(-c KL(Q|R)), exp(-c KL(P|R))). The grid of w and its ends are those of the
package mauve-text, so that both give the same figure for the same histograms.

Length of the longest common subsequence, with the bits of an integer as one column of the table. Hyyrö, "Bit-Parallel
LCS-length Computation Revisited", AWOCA 2004, figure 4: each word of the other sequence costs one addition and a few
logical operations on integers of as many bits as this sequence has words.

Suffix automaton: the longest runs that texts share with a stream of documents, in linear time. A suffix automaton
(Blumer et al., "The Smallest Automaton Recognizing the Subwords of a Text", TCS 40, 1985) of all texts, joined by a
separator that no document contains; documents are read through it once and never stored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.text.public_models import Points

SCALING = 0.9
"""The c of the paper: InvisibleInk's, whose space is one of sentences too; the package's default 5 is for GPT-2's."""

_MIXTURES = np.linspace(1e-6, 1 - 1e-6, 25)

Histogram = NDArray[np.float64]
"""float64 [..., k], not negative, each of sum 1."""


def frontier_area(p: Histogram, q: Histogram, scaling: float = SCALING) -> NDArray[np.float64]:
    """MAUVE of histograms [..., k] and [..., k], [...]: 1 if they are equal, near 0 if they share nothing."""
    weights = _MIXTURES.reshape(-1, *[1] * p.ndim)
    mixed = weights * p + (1 - weights) * q
    x, y = (np.exp(-scaling * _kl(side, mixed)) for side in (q, p))
    ends = np.ones((1, *p.shape[:-1])), np.zeros((1, *p.shape[:-1]))
    x, y = np.concatenate([ends[0], x, ends[1]]), np.concatenate([ends[1], y, ends[0]])
    # From (1, 0) to (0, 1): x falls and y rises along the frontier, so no points need sorting.
    return np.asarray(((x[:-1] - x[1:]) * (y[:-1] + y[1:]) / 2).sum(0), np.float64)


def smoothed_histogram(counts: NDArray[np.int64]) -> Histogram:
    """Histograms of counts [..., k] with half an item added everywhere (Krichevsky and Trofimov, 1981).

    With it the area is MAUVE* of Pillutla et al., JMLR 24, 2023, section 5, which small samples bias less.
    """
    return plain_histogram(counts + 0.5)


def plain_histogram(counts: NDArray[Any]) -> Histogram:
    """Histograms of counts [..., k], each with at least one item."""
    return np.asarray(counts / counts.sum(-1, keepdims=True), np.float64)


def _kl(p: Histogram, r: Histogram) -> NDArray[np.float64]:
    """KL(p | r) in nats over the last axis; r is a mixture that holds p."""
    held = p > 0
    ratio = np.divide(p, r, out=np.ones(np.broadcast_shapes(p.shape, r.shape)), where=held)
    return np.asarray((p * np.log(ratio)).sum(-1), np.float64)


CORAL_WEIGHT = 1.0
_STEPS = 500

Classes = NDArray[np.int64]
"""int64 [n], each below the number of classes."""


@dataclass(frozen=True)
class Softmax:
    """A linear classifier.

    Attributes:
        weights: float64 [d, k].
        offsets: float64 [k].
    """

    weights: NDArray[np.float64]
    offsets: NDArray[np.float64]

    def __call__(self, points: Points) -> Classes:
        """Return the likeliest class of each point."""
        return np.asarray((points @ self.weights + self.offsets).argmax(1), np.int64)


def fit_softmax(points: Points, classes: Classes, count: int, target: Points | None = None) -> Softmax:
    """Return the minimum of the mean log-loss plus |W|^2 / 2n, as scikit-learn's LogisticRegression with C = 1.

    Args:
        points: [n, d], what is learned from.
        classes: [n], each below `count`.
        target: [m, d] without labels, at least two rows: add the CORAL loss between the logits of `points` and these,
            |C_S - C_T|_F^2 / 4k^2, with weight 1 (Sun and Saenko, "Deep CORAL", ECCV 2016 workshops, equations 1 and
            6; there too the loss stands at the classifier's layer). The encoder below it stays as it is.
    """
    from scipy.optimize import minimize  # slow to import, and registries are read by every request
    from scipy.special import log_softmax

    width = points.shape[1]
    gap = None if target is None else np.cov(points.T) - np.cov(target.T)
    one_hot = np.eye(count)[classes]

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights, offsets = flat[: width * count].reshape(width, count), flat[width * count :]
        logs = log_softmax(points @ weights + offsets, axis=1)
        errors = (np.exp(logs) - one_hot) / len(points)
        value = float((weights**2).sum() / 2 - (one_hot * logs).sum()) / len(points)
        slope = points.T @ errors + weights / len(points)
        if gap is not None:
            pulled = gap @ weights
            apart = weights.T @ pulled
            value += CORAL_WEIGHT * float((apart**2).sum()) / (4 * count**2)
            slope += CORAL_WEIGHT * pulled @ apart / count**2
        return value, np.concatenate([slope.ravel(), errors.sum(0)])

    start = np.zeros((width + 1) * count)
    solution = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "gtol": 1e-7}).x
    return Softmax(solution[: width * count].reshape(width, count), solution[width * count :])


def macro_f1(true: Classes, predicted: Classes, count: int) -> float:
    """Return the mean F1 over `count` classes; a class that is neither present nor predicted has 0."""
    table = np.bincount(true * count + predicted, minlength=count * count).reshape(count, count)
    sums = table.sum(0) + table.sum(1)
    return float((2 * np.diag(table) / np.maximum(sums, 1)).mean())


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
