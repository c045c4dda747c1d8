"""An embedder for tests, without weights: a text is how often it has each letter."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.inference.catalogue import registry
from tasks.inference.catalogue.registry import ListedModel
from tasks.text.public_models import Pieces

LETTERS = "abcdefghijklmnopqrstuvwxyz"


LISTED = ListedModel("all-minilm-l6-v2", "0.1.0", "tests", "Apache-2.0", "letters", True, "e" * 64)
"""Stands in for the default embedder where requests are priced."""


class Letters:
    """Counts of letters and of everything else, scaled to length 1; a word piece is a word.

    Attributes:
        asked: every text that was embedded, in order.
    """

    name = "letters 1"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += texts
        return np.stack([_row(text) for text in texts]) if texts else np.empty((0, 27), np.float32)

    def pieces(self, texts: Sequence[str]) -> list[Pieces]:
        return [_pieces(text.split()) for text in texts]


def _row(text: str) -> NDArray[np.float32]:
    """An empty text stands apart from every other."""
    counts = [text.lower().count(letter) for letter in LETTERS]
    row = np.array([*counts, max(len(text) - sum(counts), 1)], np.float32)
    return row / np.float32(np.linalg.norm(row))


def _pieces(words: Sequence[str]) -> Pieces:
    marked = np.array([False, *[True] * len(words), False])
    return np.stack([_row(word) for word in ("", *words, "")]), marked


def install(patch: pytest.MonkeyPatch) -> None:
    """Let everything that a run embeds be embedded by letters."""
    import tasks.evaluate
    import tasks.systems.insights.private_units
    import tasks.systems.keyphrase_seeding.run
    import tasks.systems.private_evolution.run

    own = (tasks.systems.private_evolution.run, tasks.systems.keyphrase_seeding.run)
    for room in (tasks.evaluate, tasks.systems.insights.private_units, *own):
        patch.setattr(room, "load_embedder", lambda *_, **__: Letters())
    listed = registry.list_models()
    others = [model for model in listed if model.name != LISTED.name]
    patch.setattr(registry, "list_models", lambda: [*others, LISTED])


class KeepingLetters(Letters):
    """Embeds each text once."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, np.ndarray] = {}

    def __call__(self, texts: Any) -> Any:
        self.known |= {
            text: super(KeepingLetters, self).__call__([text])[0] for text in texts if text not in self.known
        }
        return np.stack([self.known[text] for text in texts]) if texts else super().__call__([])
