"""View of the live generations that still need a draw; the grammar forces the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from tasks.inference.engine.session import RowValues

Rows = TypeVar("Rows", bound=RowValues)


@dataclass(frozen=True)
class LiveSubset:
    """A choice among L live generations.

    Attributes:
        chosen: their places among the live ones, ascending.
        live: L.
    """

    chosen: Sequence[int]
    live: int

    @property
    def all_chosen(self) -> bool:
        """Return whether the subset holds all live generations."""
        return len(self.chosen) == self.live

    def of(self, every: Tensor) -> Tensor:
        """Return the chosen generations' part of a tensor [L, ...]."""
        return every if self.all_chosen else every[list(self.chosen)]

    def all_of(self, candidates: Tensor | None) -> Tensor | None:
        """Candidates of the chosen, int64 [n, K] -> of all, [L, K]; the others' rows are not looked at again."""
        if candidates is None or self.all_chosen:
            return candidates
        every = candidates.new_zeros((self.live, candidates.shape[1]))
        every[list(self.chosen)] = candidates
        return every

    def rows(self, all_rows: Rows) -> Rows:
        """Return the chosen ones' rows, their generations counted anew from 0."""
        if self.all_chosen:
            return all_rows
        place = torch.full((self.live,), -1, dtype=torch.int64, device=all_rows.generation.device)
        place[list(self.chosen)] = torch.arange(len(self.chosen), device=place.device)
        kept = place[all_rows.generation] >= 0
        return type(all_rows)(all_rows.values[kept], place[all_rows.generation[kept]], all_rows.valid[kept])
