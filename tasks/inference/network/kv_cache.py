"""KV cache: keys and values of a fixed number of rows, in memory that is allocated once.

Growing a cache by concatenation copies all of it at every token; here a pass writes its own columns in place and
attention reads a view of the columns in use. The object is what transformers calls `past_key_values`: its attention
layers call `update` and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

from tasks.inference.network.attention import aligned
from tasks.inference.network.language_model import LanguageModel


@dataclass(frozen=True, eq=False)
class KeyValueCache:
    """One key and one value tensor per layer, each [rows, key/value heads, columns, head size], on the layer's device.

    Keys lie in memory the way their product with queries reads them, columns innermost. A pass sees whole multiples
    of ALIGNMENT columns; those that hold nothing of a row's own are masked.

    Memory starts as zeros and not as whatever was there: a masked key weighs 0, but 0 x NaN is NaN.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @classmethod
    def allocate(
        cls, model: LanguageModel, rows: int, columns: int, *, layers: Sequence[int] | None = None
    ) -> "KeyValueCache":
        """Zeros for `rows` rows of `model`, of at least `columns` columns; `layers`: which, by default all."""
        heads, size, columns = model.key_value_heads, model.head_size, aligned(columns)
        devices = [model.device_of_layer(layer) for layer in (range(model.layers) if layers is None else layers)]

        def zeros(*shape: int) -> tuple[Tensor, ...]:
            each = (rows, heads, *shape)
            return tuple(torch.zeros(each, device=device, dtype=model.cache_dtype) for device in devices)

        return cls(tuple(key.transpose(2, 3) for key in zeros(size, columns)), zeros(columns, size))

    def copy_columns(self, source: "KeyValueCache", rows: Tensor, columns: int) -> None:
        """Start every row r with the first `columns` columns of row `rows[r]` of `source`; rows: int64."""
        rows_on = cache(rows.to)  # once for each device
        for mine, theirs in self._beside(source):
            mine[:, :, :columns] = theirs[rows_on(mine.device), :, :columns]

    def put(self, slots: Tensor, start: int, source: "KeyValueCache", rows: Tensor, columns: slice) -> None:
        """Copy `columns` of the rows `rows` of `source` to the columns from `start` on of the rows `slots`."""
        stop = start + columns.stop - columns.start
        slots_on, rows_on = cache(slots.to), cache(rows.to)
        for mine, theirs in self._beside(source):
            mine[slots_on(mine.device), :, start:stop] = theirs[rows_on(mine.device), :, columns]

    def take_over(self, slots: Tensor, source: "KeyValueCache", rows: Tensor) -> None:
        """Copy whole rows of a cache of the same length."""
        slots_on, rows_on = cache(slots.to), cache(rows.to)
        for mine, theirs in self._beside(source):
            mine[slots_on(mine.device)] = theirs[rows_on(mine.device)]

    def clear(self, slots: Tensor | None = None) -> None:
        """Set all rows, or those in `slots`, to zero: no value of an earlier row, NaN above all, may reach the next."""
        slots_on = None if slots is None else cache(slots.to)
        for mine in self.keys + self.values:
            if slots_on is None:
                mine.zero_()
            else:
                mine[slots_on(mine.device)] = 0.0

    def window(self, rows: slice, start: int | Tensor, visible_columns: int | None = None) -> "CacheWindow":
        """Return the part of a pass over `rows` that writes from column `start` on.

        Args:
            start: int64 [1] on the model's device for a pass over one token of each row, which then may be recorded
                and replayed for another column.
            visible_columns: it reads the first so many columns; if not given, all up to those it writes, or all.
        """
        return CacheWindow(self, rows, start, visible_columns)

    def _beside(self, source: "KeyValueCache") -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.keys + self.values, source.keys + source.values, strict=True))


@dataclass(frozen=True, eq=False)
class CacheWindow:
    """The `past_key_values` of one pass."""

    cache: KeyValueCache
    rows: slice
    start: int | Tensor
    visible_columns: int | None
    _starts: dict[torch.device, Tensor] = field(default_factory=dict)

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write [R, heads, Q, head size] at this pass's columns; return views of the columns it reads."""
        stored = self.cache.keys[layer][self.rows], self.cache.values[layer][self.rows]
        visible = self.visible_columns
        if isinstance(self.start, Tensor):
            for held, new in zip(stored, (keys, values), strict=True):
                held.index_copy_(2, self._on(held.device, self.start), new.to(held.dtype))
        else:
            stop = self.start + keys.shape[2]
            visible = aligned(stop) if visible is None else visible
            for held, new in zip(stored, (keys, values), strict=True):
                held[:, :, self.start : stop] = new
        return stored[0][:, :, :visible], stored[1][:, :, :visible]

    def _on(self, device: torch.device, start: Tensor) -> Tensor:
        """Return `start` on the device of a layer, to which it moves once for each pass."""
        if device not in self._starts:
            self._starts[device] = start.to(device)
        return self._starts[device]

    def newest(self, queries: int) -> int | Tensor:
        """Return the column of the last of `queries` tokens; int64 [1] where `start` is."""
        return self.start + queries - 1

    def get_seq_length(self, *_: object) -> int | Tensor:
        """Return the number of columns before this pass; int64 [] where `start` is a tensor.

        What a network computes from it is recorded with the rest; a network that decides by it is not recorded.
        """
        return self.start[0] if isinstance(self.start, Tensor) else self.start
