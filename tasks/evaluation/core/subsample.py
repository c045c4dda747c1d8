"""Subsample of many documents, for metrics whose cost grows with each."""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

Document = TypeVar("Document")


def sample(documents: Iterable[Document], most: int) -> list[Document]:
    """Return a uniform sample of at most `most` documents, in their order; one pass that holds no more than these.

    Vitter, "Random Sampling with a Reservoir", ACM TOMS 11, 1985, algorithm R, from an ordinary generator with a fixed
    start: it serves internal figures only, and a figure should come out the same twice.
    """
    generator = np.random.default_rng(0)
    reservoir: list[tuple[int, Document]] = []
    for number, document in enumerate(documents):
        if number < most:
            reservoir.append((number, document))
        elif (place := int(generator.integers(number + 1))) < most:
            reservoir[place] = (number, document)
    return [document for _, document in sorted(reservoir, key=lambda pair: pair[0])]


def halves(documents: Iterable[str], most: int) -> tuple[list[str], list[str]]:
    """Return two disjoint samples of at most `most` documents each, in no order; drawn as `sample` draws."""
    sampled = sample(documents, 2 * most)
    order: list[int] = np.random.default_rng(1).permutation(len(sampled)).tolist()
    shuffled = [sampled[place] for place in order]
    return shuffled[:most], shuffled[most:]
