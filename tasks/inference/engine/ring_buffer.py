"""Ring buffer of columns: one batch of one shape, whose rows come and go at any step.

All rows share a clock. At time t a step writes column t mod L of every row, L the length of the ring. A row that
enters at time t has its prompt in the columns before t, wherever they lie on the ring, and everything else masked; it
may stay until it would meet its own prompt again, which is longer than its generation lives. Entering and leaving so
change no shape, and nothing in a row depends on who had its slot before: the slot is emptied first.

Row isolation (PRIVACY §4.2 point 1): the bits of a row depend on the columns it stands in, that is, on the time it
entered. So the time of entry must be public; the slot may be any.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.inference.engine.row_batch import RowBatch
from tasks.inference.network.attention import aligned
from tasks.inference.network.kv_cache import KeyValueCache
from tasks.inference.network.language_model import LanguageModel


@dataclass
class Clock:
    """Clock of the ring: the next column to write, and the number of columns that a step reads.

    Attributes:
        columns: L, a multiple of ALIGNMENT.
        now: steps and prompt columns so far.
        wrapped: whether a row in use reaches over the end of the ring.
    """

    columns: int
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
        return self.columns if self.wrapped or self.now >= self.columns else aligned(self.now + 1)

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
        self, model: LanguageModel, rows: int, columns: int, check: Callable[[int, int, int, int], None]
    ) -> None:
        self.model, self.rows, self._check = model, rows, check
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
        column, visible_columns = clock.column, clock.visible_columns
        self._check(self.rows, 1, visible_columns, self._columns)
        self._bias[:, column] = 0.0
        bias = self._bias[:, None, None, :visible_columns]
        window = self._cache.window(slice(0, self.rows), column, visible_columns)
        self.hidden = self.model.hidden(tokens[:, None], self._positions[:, None], bias, window)[:, -1]
        self._positions += self._live
