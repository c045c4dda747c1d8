"""A step without an engine: public logits and rows are given, and what a rule asks for is written down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tasks.decoding.loop import Step
from tasks.inference.engine.session import RowLogits


@dataclass
class FakeSteps:
    """Generations whose public logits and rows are the same at each step.

    Attributes:
        public: [L, V], the public logits of each generation.
        rows: for each generation the logits of its rows, each [V].
        seen: what rules did, in order: ("read", tokens or None), ("let go", number); a test adds its own.
    """

    public: Sequence[Sequence[float]]
    rows: Mapping[int, Sequence[Sequence[float]]] = field(default_factory=dict)
    seen: list[Any] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)

    def step(self, position: int, live: Sequence[int] | None = None) -> Step:
        """The step at which each live generation (all without `live`) draws its token number `position`."""
        numbers = tuple(live if live is not None else range(len(self.public)))
        return Step(
            numbers=numbers,
            positions=(position,) * len(numbers),
            public=torch.tensor([self.public[number] for number in numbers], dtype=torch.float32),
            private=lambda candidates: self._private(numbers, candidates),
            drop_private_rows=lambda index: self._let_go(numbers[index]),
        )

    def of(self, kind: str) -> list[Any]:
        """What was seen of one kind, in order."""
        return [what[1] for what in self.seen if what[0] == kind]

    def _private(self, numbers: Sequence[int], candidates: Tensor | None) -> RowLogits:
        self.seen.append(("read", numbers))
        values, generation = [], []
        for index, number in enumerate(numbers):
            for row in () if number in self.gone else self.rows.get(number, ()):
                logits = torch.tensor(row, dtype=torch.float32)
                values.append(logits if candidates is None else logits[candidates[index]])
                generation.append(index)
        width = len(self.public[0]) if candidates is None else candidates.shape[1]
        found = torch.stack(values) if values else torch.zeros((0, width))
        return RowLogits(found, torch.tensor(generation, dtype=torch.int64), found.isfinite().all(1))

    def _let_go(self, number: int) -> None:
        self.seen.append(("let go", number))
        self.gone.add(number)
