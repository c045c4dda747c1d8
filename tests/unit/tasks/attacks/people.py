"""Random text, and tools that are cheap and public: what attacks are tested with."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

VOCABULARY = [f"{a}{b}{c}" for a in "bdkmt" for b in "aeiou" for c in "lnrs"]


def random_texts(count: int, length: int, seed: int) -> list[str]:
    """Texts of `length` words that have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(VOCABULARY, length)) for _ in range(count)]


class WordEmbedder:
    """Each word is a direction: texts are near that have words in common."""

    name = "words"

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32 [n, 64]."""
        rows = np.zeros((len(texts), 64), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.split():
                row += np.random.default_rng(sum(ord(c) * 131**i for i, c in enumerate(word))).normal(size=64)
        return rows


def uniform_score(texts: Sequence[str]) -> list[tuple[float, int]]:
    """A public model for which every word is as likely as any other."""
    return [(-float(np.log(len(VOCABULARY))) * len(text.split()), len(text.split())) for text in texts]
