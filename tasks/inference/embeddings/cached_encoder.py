"""Encoder with a cache: each text is embedded once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tasks.text.interfaces import Embedder, Pieces


@dataclass
class CachedEmbedder:
    """An embedder that works out each text once."""

    embed: Embedder
    _rows: dict[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The embedder's own."""
        return self.embed.name

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 [n, d]; equal texts have equal rows, bit for bit."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if missing:
            self._rows.update(zip(missing, self.embed(missing), strict=True))
        return np.stack([self._rows[text] for text in texts]) if texts else self.embed([])

    def pieces(self, texts: Sequence[str]) -> Sequence[Pieces]:
        """Return the embedder's own, worked out again: they are too many to keep."""
        return self.embed.pieces(texts)


def without_cache(embed: Embedder) -> Embedder:
    """Return an embedder that stores no text: for one private unit after the other."""
    return embed.embed if isinstance(embed, CachedEmbedder) else embed
