"""Shingles: sets of short word runs, which near copies share.

Broder, "On the resemblance and containment of documents", SEQUENCES 1997. Sets are exact: at the size of a release
nothing has to be sampled.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TypeAlias

from tasks.text.words import words

SIZE = 4

Shingle: TypeAlias = tuple[str, ...]


def shingles(text: str, size: int = SIZE) -> frozenset[Shingle]:
    """Return the different runs of `size` words of a text (`tasks.text.words`); of a shorter text itself, if any."""
    return frozenset(_runs(words(text), size))


def containment(text: str, reference: Set[Shingle], size: int = SIZE) -> float:
    """Return the share of the text's runs that are among `reference`; 0 for a text without words."""
    own = shingles(text, size)
    return len(own & reference) / len(own) if own else 0.0


def joined(texts: Iterable[str], size: int = SIZE) -> frozenset[Shingle]:
    """Return all runs of all texts."""
    return frozenset(run for text in texts for run in shingles(text, size))


def best_containments(texts: Sequence[str], documents: Iterable[str], size: int = SIZE) -> list[float]:
    """Return for each text the largest share of its runs that one single document holds.

    Documents are read once and never kept; time grows with what they share with the texts.
    """
    own = [shingles(text, size) for text in texts]
    holders: dict[Shingle, list[int]] = defaultdict(list)
    for place, runs in enumerate(own):
        for run in runs:
            holders[run].append(place)
    best = [0.0] * len(texts)
    for document in documents:
        shared = Counter(place for run in shingles(document, size) for place in holders.get(run, ()))
        for place, count in shared.items():
            best[place] = max(best[place], count / len(own[place]))
    return best


def _runs(read: Sequence[str], size: int) -> Iterator[Shingle]:
    if 0 < len(read) < size:
        yield tuple(read)
    for start in range(len(read) - size + 1):
        yield tuple(read[start : start + size])
