"""Pool of rows: as many rings of one shape as they need, on one clock.

Which slot a row has depends on how many rows there are, which is private; a row's bits do not depend on its slot
(`isolation.check` checks that). The shape of a ring and the clock are public (see `session`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tasks.inference.engine.ring_buffer import Clock, Ring
from tasks.inference.engine.row_batch import RowBatch
from tasks.inference.network.attention import aligned
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.network.recorded_passes import PassRecorder

Key = tuple[int, int]
"""A row: its generation, and which of that generation's rows it is."""


@dataclass(eq=False)
class RowChunk:
    """Ring and the owners of its slots."""

    ring: Ring
    owners: list[Key | None]

    @property
    def free(self) -> list[int]:
        """Free slots, ascending."""
        return [slot for slot, owner in enumerate(self.owners) if owner is None]

    @property
    def taken(self) -> list[int]:
        """Slots in use, ascending."""
        return [slot for slot, owner in enumerate(self.owners) if owner is not None]


@dataclass(eq=False)
class RowPool:
    """Rows that come and go.

    The clock is a function of which generations entered and left and when, never of how many rows they have: a
    generation without any row is a member like the others, and time passes for it.

    Attributes:
        per_chunk: slots of each ring.
        columns: the length of the rings.
        check: hears the shape of each pass before it runs.
        recorder: of steps.
        members: the generations that have entered, with rows or without.
    """

    model: LanguageModel
    per_chunk: int
    columns: int
    check: Callable[[int, int, int, int], None]
    recorder: PassRecorder
    members: set[int] = field(default_factory=set)
    chunks: list[RowChunk] = field(default_factory=list)
    _waiting: deque[Mapping[int, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.clock = Clock(aligned(self.columns), self.model.device)

    def places(self) -> dict[Key, int]:
        """Return the place of each row, counting the slots of all chunks in order."""
        return {
            owner: index * self.per_chunk + slot
            for index, chunk in enumerate(self.chunks)
            for slot, owner in enumerate(chunk.owners)
            if owner is not None
        }

    def admit(self, numbers: Iterable[int], columns: int) -> None:
        """Generations are about to enter, whose prompts take `columns` columns."""
        self.clock.make_room(columns)
        self.members.update(numbers)

    def enter(self, keys: Sequence[Key], source: RowBatch, rows: Sequence[int], hidden: Tensor) -> None:
        """Give slots to rows of admitted generations, just read into `source`; if none is free, open another ring."""
        waiting = list(zip(keys, rows, strict=True))
        while waiting:
            chunk = next((chunk for chunk in self.chunks if chunk.free), None) or self._open_chunk()
            slots = chunk.free[: len(waiting)]
            now, waiting = waiting[: len(slots)], waiting[len(slots) :]
            which = self._tensor([row for _, row in now])
            chunk.ring.enter(self._tensor(slots), source, which, hidden[which], self.clock)
            for slot, (key, _) in zip(slots, now, strict=True):
                chunk.owners[slot] = key

    def leave(self, numbers: Iterable[int]) -> None:
        """Let all rows of some generations go, and move the others together if that spares a ring."""
        gone = set(numbers)
        self.members -= gone
        for chunk in self.chunks:
            slots = [slot for slot in chunk.taken if (chunk.owners[slot] or (-1, 0))[0] in gone]
            if slots:
                chunk.ring.leave(self._tensor(slots))
                for slot in slots:
                    chunk.owners[slot] = None
        self._repack()
        if not self.members:
            self.clear()

    def clear(self) -> None:
        """Let everything go, the memory too, and begin anew."""
        self.members.clear()
        self.chunks.clear()
        self._waiting.clear()
        self.clock.restart()

    def feed(self, tokens: Mapping[int, int]) -> None:
        """The next token of each generation; read when the rows are next looked at."""
        if self.members:
            self._waiting.append(dict(tokens))

    def replay(self) -> None:
        """Read all tokens that were fed."""
        while self._waiting:
            tokens = self._waiting.popleft()
            # Also where there is no chunk: whether the device fails must not depend on how many rows there are.
            self.check(self.per_chunk, 1, self.clock.visible_columns, self.clock.columns)
            for chunk in self.chunks:
                ids = [0 if owner is None else tokens.get(owner[0], 0) for owner in chunk.owners]
                chunk.ring.step(self._tensor(ids), self.clock)
            self.clock.tick()

    def _open_chunk(self) -> RowChunk:
        ring = Ring(self.model, self.per_chunk, self.columns, self.check, self.recorder)
        chunk = RowChunk(ring, [None] * self.per_chunk)
        self.chunks.append(chunk)
        return chunk

    def _repack(self) -> None:
        while self.chunks:
            emptiest = min(self.chunks, key=lambda chunk: len(chunk.taken))
            others = [chunk for chunk in self.chunks if chunk is not emptiest]
            if len(emptiest.taken) > sum(len(chunk.free) for chunk in others):
                return
            self._empty(emptiest, others)
            self.chunks = others

    def _empty(self, source: RowChunk, others: Sequence[RowChunk]) -> None:
        remaining = source.taken
        for chunk in others:
            slots = chunk.free[: len(remaining)]
            now, remaining = remaining[: len(slots)], remaining[len(slots) :]
            if slots:
                chunk.ring.take_over(self._tensor(slots), source.ring, self._tensor(now))
                for slot, old in zip(slots, now, strict=True):
                    chunk.owners[slot] = source.owners[old]

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self.model.device)
