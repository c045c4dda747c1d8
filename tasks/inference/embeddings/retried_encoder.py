"""Encoder of public texts that is asked again after a temporary fault of the machine.

A point is a function of its text, so a second one is the first; nothing is drawn or charged by it. Private units are
embedded without it (`tasks.inference.embeddings.parallel_encoder`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tasks.common.progress import Progress
from tasks.common.retry import retry
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.text.interfaces import Embedder, Pieces

STEP: Final = "embedding"


@dataclass(frozen=True)
class RetriedEmbedder:
    """An embedder of public texts: keywords, candidates, released values. Its rows are those of `embed`."""

    embed: Embedder

    @property
    def name(self) -> str:
        """The embedder's."""
        return self.embed.name

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 [n, d]."""
        return retry(partial(self.embed, texts), STEP)

    def pieces(self, texts: Sequence[str]) -> Sequence[Pieces]:
        """Return the same pieces as the embedder."""
        return retry(partial(self.embed.pieces, texts), STEP)

    def points_elsewhere(self, texts: Sequence[str], progress: Progress) -> NDArray[np.float32]:
        """Return float32 [n, d], rows of length 1: asked for by `points_of`."""
        return retry(partial(points_of, self.embed, texts, progress), STEP)
