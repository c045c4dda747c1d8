"""Passes of one fixed shape over rows of different length.

Every row is padded on the left, so that the last token of all rows stands in the same column and a decoding step
writes one column for all. A padded column is never seen by a real token: its score gets -inf, its weight is an exact
zero. Row isolation (PRIVACY §4.2 point 1) rests on that, on shapes that are public, and on arithmetic whose bits do
not depend on a row's place in the batch, which `isolation.check` checks on the device at hand.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from tasks.inference.network.attention import aligned
from tasks.inference.network.kv_cache import KeyValueCache
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.network.recorded_passes import PassRecorder, RecordedPasses

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
