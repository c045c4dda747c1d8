"""Interfaces of public models that read text: embedders and taggers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Pieces: TypeAlias = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""The word pieces of a text: rows float32 [t, d] of length 1, and which are its own, not marks around it, bool [t]."""


class Embedder(Protocol):
    """A public model that puts texts into a space."""

    @property
    def name(self) -> str:
        """Identity that is recorded beside a figure: the model and its revision."""

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 [n, d], one finite row for each text, also for an empty one."""

    def pieces(self, texts: Sequence[str]) -> Sequence[Pieces]:
        """Return the word pieces of each text, in its own context."""


@dataclass(frozen=True)
class Entity:
    """One mention: its kind (PERSON, DATE, ...) and its words."""

    kind: str
    text: str


class Tagger(Protocol):
    """Public model that finds entities."""

    @property
    def name(self) -> str:
        """Identity that is recorded beside a figure: the tagger and its version."""

    def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[Entity]]:
        """Return the mentions in each text, in their order."""

    def noun_chunks(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """Return the base noun phrases of each text, in their order."""


Points = NDArray[np.float64]
"""float64 [n, d], rows of length 1."""
