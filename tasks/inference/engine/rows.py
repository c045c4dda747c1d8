"""Rows: passes of one fixed shape over rows of different length, rings whose rows come and go, and pools of rings.

*Batches.* Every row is padded on the left, so that the last token of all rows stands in the same column and a decoding
step writes one column for all. A padded column is never seen by a real token: its score gets -inf, its weight is an
exact zero. Row isolation (PRIVACY §4.2 point 1) rests on that, on shapes that are public, and on arithmetic whose bits
do not depend on a row's place in the batch, which `isolation` checks on the device at hand.

*Rings.* One batch of one shape, whose rows come and go at any step. All rows share a clock. At time t a step writes
column t mod L of every row, L the length of the ring. A row that enters at time t has its prompt in the columns before
t, wherever they lie on the ring, and everything else masked; it may stay until it would meet its own prompt again,
which is longer than its generation lives. Entering and leaving so change no shape, and nothing in a row depends on who
had its slot before: the slot is emptied first. The bits of a row depend on the columns it stands in, that is, on the
time it entered. So the time of entry must be public; the slot may be any.

*Pools.* As many rings of one shape as their rows need, on one clock. Which slot a row has depends on how many rows
there are, which is private; a row's bits do not depend on its slot. The shape of a ring and the clock are public (see
`session`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from tasks.inference.engine.attention import ALIGNMENT, aligned
from tasks.inference.engine.language_model import KeyValueCache, LanguageModel
from tasks.inference.engine.recorded_passes import PassRecorder, RecordedPasses

# Long texts are read in passes of this many rows x columns: few enough that short texts, sorted together, skip the
# columns that are padding for all of them; enough tokens to use the processor well.
_PREFILL = {"cpu": (4, 32), "cuda": (16, 128)}


def prefill_shape(device: torch.device) -> tuple[int, int]:
    """Return the rows and columns of a prefill pass on `device`; every chunk is a multiple of these rows."""
    return _PREFILL.get(device.type, _PREFILL["cpu"])


def left_padded(sequences: Sequence[Sequence[int]], columns: int) -> tuple[Tensor, Tensor]:
    """Sequences of at most `columns` tokens -> tokens int64 [R, columns] and real bool [R, columns]."""
    tokens = torch.zeros((len(sequences), columns), dtype=torch.int64)
    real = torch.zeros((len(sequences), columns), dtype=torch.bool)
    for row, sequence in enumerate(sequences):
        if sequence:
            tokens[row, columns - len(sequence) :] = torch.tensor(list(sequence), dtype=torch.int64)
            real[row, columns - len(sequence) :] = True
    return tokens, real


def _unchecked(rows: int, queries: int, visible_columns: int, columns: int) -> None:
    """Public rows need no isolation from each other."""


class RowBatch:
    """`rows` rows that are read together, over one preallocated cache of `columns` columns.

    `check` hears the shape of each pass (rows, tokens of each, columns seen, columns of the cache) before it runs, and
    `recorder` records it: for a batch that is cleared and read again.

    Attributes:
        columns: as given.
        bias: float32 [rows, aligned columns], 0 if a column holds a real token, else -inf.
        positions: int64 [rows], the number of real tokens read so far.
        filled: the number of columns written so far, the same for all rows.
    """

    def __init__(
        self,
        model: LanguageModel,
        rows: int,
        columns: int,
        check: Callable[[int, int, int, int], None] = _unchecked,
        recorder: PassRecorder | None = None,
    ) -> None:
        self.model, self.rows, self.filled = model, rows, 0
        self.columns, self._check = columns, check
        self._recorded = RecordedPasses(recorder)
        self.cache = KeyValueCache.allocate(model, rows, columns)
        self.bias = torch.full((rows, aligned(columns)), -torch.inf, device=model.device)
        self.positions = torch.zeros(rows, dtype=torch.int64, device=model.device)

    def clear(self) -> None:
        """Forget everything: as new."""
        self.cache.clear()
        self.bias.fill_(-torch.inf)
        self.positions.zero_()
        self.filled = 0

    def begin_with(self, source: "RowBatch", rows: Sequence[int]) -> None:
        """Start each row r as a copy of row `rows[r]` of `source`."""
        chosen, columns = torch.tensor(rows, device=self.model.device), source.filled
        self.cache.copy_columns(source.cache, chosen, columns)
        self.bias[:, :columns] = source.bias[chosen, :columns]
        self.positions.copy_(source.positions[chosen])
        self.filled = columns

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of every row: int64 [rows] -> hidden states float32 [rows, D].

        Raises:
            ValueError: all columns are written.
        """
        if self.filled == self.columns:
            raise ValueError(f"all {self.filled} columns are written: max_new_tokens is reached")
        real = torch.ones((self.rows, 1), dtype=torch.bool, device=self.model.device)
        hidden = self._read(tokens[:, None], real, slice(0, self.rows), self.filled)
        self.filled += 1
        return hidden[:, -1]

    def read(self, sequences: Sequence[Sequence[int]], columns: int) -> Tensor:
        """Read one sequence per row, padded to `columns`, in one pass; return the last hidden states [rows, D]."""
        return self.read_all(sequences, columns)[:, -1]

    def read_all(self, sequences: Sequence[Sequence[int]], columns: int) -> Tensor:
        """Read as `read` does; return all hidden states [rows, columns, D]."""
        tokens, real = (part.to(self.model.device) for part in left_padded(sequences, columns))
        hidden = self._read(tokens, real, slice(0, self.rows), self.filled)
        self.filled += columns
        return hidden

    def read_long(self, sequences: Sequence[Sequence[int]], columns: int) -> Tensor:
        """Read as `read` does, in passes of `prefill_shape`; cheapest if neighbours have similar lengths.

        A pass that holds nothing but padding is left out: padding is invisible to what follows. Rows without any
        token may keep hidden state zero.

        Raises:
            ValueError: `rows` are more than the prefill shape's and no multiple of them.
        """
        hidden = torch.zeros((self.rows, self.model.width), device=self.model.device)
        for some, _, states in self._passes(sequences, columns):
            hidden[some] = states[:, -1]
        return hidden

    def _passes(self, sequences: Sequence[Sequence[int]], columns: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield the rows of each pass, which of its columns hold real tokens, bool [r, q], and all its hidden states.

        Raises:
            ValueError: as `read_long`.
        """
        height, width = prefill_shape(self.model.device)
        height = min(height, self.rows)
        if self.rows % height:
            raise ValueError(f"a batch of {self.rows} rows cannot be read {height} rows at a time")
        tokens, real = (part.to(self.model.device) for part in left_padded(sequences, columns))
        for first in range(0, self.rows, height):
            some = slice(first, first + height)
            longest = max(len(sequence) for sequence in sequences[some])
            for block in blocks(columns, width):
                if block.stop > columns - longest:
                    start = self.filled + block.start
                    yield some, real[some, block], self._read(tokens[some, block], real[some, block], some, start)
        self.filled += columns

    def _read(self, tokens: Tensor, real: Tensor, rows: slice, start: int) -> Tensor:
        """Read one pass: int64 and bool [r, q] -> [r, q, D]; valid until the next pass of the same columns."""
        stop = start + tokens.shape[1]
        self._check(tokens.shape[0], tokens.shape[1], aligned(stop), self.bias.shape[1])
        key = self.model.kernels, rows.start, rows.stop, start, stop
        return self._recorded.run(key, partial(self._pass, rows, start), tokens, real)

    def _pass(self, rows: slice, start: int, tokens: Tensor, real: Tensor) -> Tensor:
        stop = start + tokens.shape[1]
        self.bias[rows, start:stop].masked_fill_(real, 0.0)
        count = real.cumsum(1)
        positions = (self.positions[rows, None] + count - 1).clamp_min(0)
        self.positions[rows] += count[:, -1]
        bias = _causal(self.bias[rows, : aligned(stop)], start, stop)
        return self.model.hidden(tokens, positions, bias, self.cache.window(rows, start))


def blocks(columns: int, width: int) -> list[slice]:
    """Return all columns, cut from the right into blocks of `width`; only the first may be narrower."""
    edges = [0, *range(columns % width or width, columns + 1, width)]
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _causal(bias: Tensor, start: int, stop: int) -> Tensor:
    """Map [R, S] -> [R, 1, Q, S] for queries in columns start..stop-1: the real columns up to the query, and itself.

    Padding sees itself so that no softmax is empty; nothing real ever sees padding.
    """
    keys = torch.arange(bias.shape[1], device=bias.device)
    queries = keys[start:stop, None]
    visible = bias[:, None, None, :].masked_fill(keys > queries, -torch.inf)
    return visible.masked_fill(keys == queries, 0.0)


# A step reads a multiple of so many columns: each number is a shape, which an accelerator records (`recorded_passes`).
_COLUMNS_AT_ONCE = {"cpu": ALIGNMENT, "cuda": 8 * ALIGNMENT}


def visible_counts(least: int, columns: int, device: torch.device) -> list[int]:
    """Return every number of columns that a step may read of `columns` if `least` are written; ascending."""
    unit = _COLUMNS_AT_ONCE.get(device.type, ALIGNMENT)
    return [*range(min(-(-least // unit) * unit, columns), columns, unit), columns]


@dataclass
class Clock:
    """Clock of the ring: the next column to write, and the number of columns that a step reads.

    Attributes:
        columns: L, a multiple of ALIGNMENT.
        device: of the ring.
        now: steps and prompt columns so far.
        wrapped: whether a row in use reaches over the end of the ring.
    """

    columns: int
    device: torch.device
    now: int = 0
    wrapped: bool = False

    def restart(self) -> None:
        """Begin at the first column again, when no generation is live: fewer columns are read there."""
        self.now, self.wrapped = 0, False

    def make_room(self, columns: int) -> None:
        """Prepare for a prompt of `columns` columns; after a restart the clock begins behind it."""
        if not self.now:
            self.now = columns
        self.wrapped |= columns > self.now

    def tick(self) -> None:
        """Count one step."""
        self.now += 1

    @property
    def column(self) -> int:
        """Column that the next step writes."""
        return self.now % self.columns

    @property
    def visible_columns(self) -> int:
        """Number of columns, from the first on, that the next step reads."""
        return self.columns if self.wrapped else visible_counts(self.now + 1, self.columns, self.device)[0]

    def before(self, columns: int) -> list[tuple[int, int]]:
        """Return the last `columns` columns as pieces (first, length), oldest first."""
        start = (self.now - columns) % self.columns
        first = min(columns, self.columns - start)
        return [(start, first), (0, columns - first)] if first < columns else [(start, columns)]


class Ring:
    """`rows` slots over a preallocated ring of `columns` columns.

    `check` hears the shape of each pass (rows, tokens of each, columns seen, columns of the cache) before it runs.

    Attributes:
        hidden: float32 [rows, D], last hidden states; of no meaning in a free slot.
    """

    def __init__(
        self,
        model: LanguageModel,
        rows: int,
        columns: int,
        check: Callable[[int, int, int, int], None],
        recorder: PassRecorder,
    ) -> None:
        self.model, self.rows, self._check = model, rows, check
        self._recorded = RecordedPasses(recorder)
        self._cache = KeyValueCache.allocate(model, rows, columns)
        self._columns = aligned(columns)
        self._bias = torch.full((rows, self._columns), -torch.inf, device=model.device)
        self._positions = torch.zeros(rows, dtype=torch.int64, device=model.device)
        self._live = torch.zeros(rows, dtype=torch.int64, device=model.device)
        self.hidden = torch.zeros((rows, model.width), device=model.device)

    def enter(self, slots: Tensor, source: RowBatch, rows: Tensor, hidden: Tensor, clock: Clock) -> None:
        """Put rows of `source`, just read, into free slots: their columns end right before the clock.

        Args:
            slots, rows: int64 [n].
            hidden: float32 [n, D], their last hidden states.
        """
        self._cache.clear(slots)
        self._bias[slots] = -torch.inf
        done = 0
        for start, length in clock.before(source.filled):
            columns = slice(done, done + length)
            self._cache.put(slots, start, source.cache, rows, columns)
            self._bias[slots, start : start + length] = source.bias[rows, columns]
            done += length
        self._positions[slots] = source.positions[rows]
        self._live[slots] = 1
        self.hidden[slots] = hidden

    def leave(self, slots: Tensor) -> None:
        """Free slots. A free one goes on as a null row at position 0."""
        self._live[slots] = 0
        self._positions[slots] = 0

    def take_over(self, slots: Tensor, source: "Ring", rows: Tensor) -> None:
        """Move rows here from another ring of the same clock: every column keeps its place."""
        self._cache.take_over(slots, source._cache, rows)
        for mine, theirs in (
            (self._bias, source._bias),
            (self._positions, source._positions),
            (self._live, source._live),
            (self.hidden, source.hidden),
        ):
            mine[slots] = theirs[rows]

    def step(self, tokens: Tensor, clock: Clock) -> None:
        """Read one more token of every row, int64 [rows]; a null row's is any."""
        visible_columns = clock.visible_columns
        self._check(self.rows, 1, visible_columns, self._columns)
        column = torch.full((1,), clock.column, device=tokens.device)
        key = self.model.kernels, visible_columns
        self.hidden = self._recorded.run(key, partial(self._step, visible_columns), tokens, column)

    def _step(self, visible_columns: int, tokens: Tensor, column: Tensor) -> Tensor:
        """Read int64 [rows] tokens into the column int64 [1]: -> hidden states [rows, D]."""
        self._bias.index_fill_(1, column, 0.0)
        bias = self._bias[:, None, None, :visible_columns]
        window = self._cache.window(slice(0, self.rows), column, visible_columns)
        hidden = self.model.hidden(tokens[:, None], self._positions[:, None], bias, window)[:, -1]
        self._positions += self._live
        return hidden


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
