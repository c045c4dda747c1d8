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
from functools import partial

import torch
from torch import Tensor

from tasks.inference.engine.row_batch import RowBatch
from tasks.inference.network.attention import ALIGNMENT, aligned
from tasks.inference.network.kv_cache import KeyValueCache
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.network.recorded_passes import PassRecorder, RecordedPasses

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
