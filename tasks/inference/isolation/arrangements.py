"""Arrangements of contents in slots that expose a row whose bits depend on its place or its neighbours.

PRIVACY §4.2 point 1 and §10.1: a row's bits are a function of its content alone. So a few contents are computed in
several arrangements, and every content must have one result, in any slot and beside any other contents:

1. the same content in every slot: a kernel that treats slots unlike, by tile, thread or alignment, shows at once;
2. the longest content in every slot: whatever follows the largest position or value of a pass follows it now, and what
   is kept from one pass to the next has been changed;
3. all contents, the longest beside the shortest;
4. the same contents, shuffled;
5. half of them in other slots, the others replaced by copies of some: other sums, other loads, other maxima;
6. one content in nearly every slot, in all but one and in seven eighths: where rows are routed they pile up on one
   expert, and the few others make small groups, which other kernels compute.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

import torch
from torch import Tensor

FEWEST = 8
"""Contents, also where there are fewer slots."""

SHORT, LONG = 0, 1
"""The contents that stand alone in all slots: an ordinary one, and the longest that there is."""

EVERY: Final = 2
"""Index of the arrangement with as many contents as there are slots, `SHORT` and `LONG` among them."""

_FEW, _ROUNDS_OF_FEW = 2, 6
_ROUNDS = 1
_FEW_OTHERS = 8


def contents_of(slots: int) -> int:
    """Return how many contents there are for a pass of so many rows."""
    return max(slots, FEWEST)


@cache
def arrangements(slots: int) -> tuple[Tensor, ...]:
    """Return arrangements of contents in slots: int64 [slots] each, deterministic for each number of slots.

    With few slots, 3 to 5 are made more often.
    """
    chance = torch.Generator().manual_seed(slots)  # what is tried is public, and is to be the same every time
    lengths = [torch.full((slots,), SHORT), torch.full((slots,), LONG)]
    for _ in range(_ROUNDS_OF_FEW if slots <= _FEW else _ROUNDS):
        lengths += _companies(slots, chance)
    lengths += [_piled(slots, others, chance) for others in sorted({1, max(1, slots // _FEW_OTHERS)})]
    return tuple(lengths)


def _companies(slots: int, chance: torch.Generator) -> Iterator[Tensor]:
    others = torch.randperm(contents_of(slots) - 2, generator=chance) + 2
    together = torch.cat([torch.tensor([SHORT, LONG]), others])[:slots]
    yield together
    shuffled = together[torch.randperm(slots, generator=chance)]
    yield shuffled
    copied = torch.randint(contents_of(slots), (slots,), generator=chance)
    stays = torch.arange(slots) % 2 == 0
    stays[shuffled == SHORT] = True
    yield torch.where(stays, shuffled, copied).roll(1)


def _piled(slots: int, others: int, chance: torch.Generator) -> Tensor:
    """Return an arrangement with one content in all but `others` slots, which hold different ones."""
    contents = torch.randperm(contents_of(slots), generator=chance)
    piled = torch.full((slots,), int(contents[0]))
    piled[torch.randperm(slots, generator=chance)[:others]] = contents[1 : others + 1]
    return piled


class FirstResults:
    """The first result of every content; each later result must equal it.

    Args:
        contents: how many there are.
    """

    def __init__(self, contents: int) -> None:
        self._recorded = torch.zeros(contents, dtype=torch.bool)
        self._first: Tensor | None = None
        self.holds = True

    def compare(self, contents: Tensor, results: Tensor) -> None:
        """The results of the slots, [slots, ...], and the content that stood in each of them."""
        rows, where = results.flatten(1), contents.to(results.device)
        if self._first is None:
            self._first = rows.new_zeros((len(self._recorded), rows.shape[1]))
        new = ~self._recorded[contents]
        self._first[where[new.to(where.device)]] = rows[new.to(where.device)]
        self._recorded[contents] = True
        # NaN is a result like any other: it must come out everywhere.
        self.holds &= torch.allclose(rows, self._first[where], rtol=0.0, atol=0.0, equal_nan=True)
