"""Keys and values of a fixed number of rows, in memory that is allocated once.

Growing a cache by concatenation copies all of it at every token; here a pass writes its own columns in place and
attention reads a view of everything written so far. The object is what transformers calls `past_key_values`: its
attention layers call `update` and nothing else.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.inference.attention import aligned


@dataclass(frozen=True, eq=False)
class KeyValueCache:
    """One key and one value tensor per layer, each [rows, key/value heads, columns, head size].

    Keys lie in memory the way their product with queries reads them, columns innermost. A pass sees whole multiples
    of ALIGNMENT columns; those beyond what is written are masked.

    Memory starts as zeros and not as whatever was there: a masked key weighs 0, but 0 x NaN is NaN.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @classmethod
    def allocate(
        cls, *, layers: int, rows: int, heads: int, columns: int, head_size: int, device: torch.device
    ) -> "KeyValueCache":
        """A cache of zeros, float32, of at least `columns` columns."""
        columns = aligned(columns)
        keys = [torch.zeros((rows, heads, head_size, columns), device=device) for _ in range(layers)]
        values = [torch.zeros((rows, heads, columns, head_size), device=device) for _ in range(layers)]
        return cls(tuple(key.transpose(2, 3) for key in keys), tuple(values))

    def copy_columns(self, source: "KeyValueCache", rows: Tensor, columns: int) -> None:
        """Start every row r with the first `columns` columns of row `rows[r]` of `source`; rows: int64."""
        for mine, theirs in zip(self.keys + self.values, source.keys + source.values, strict=True):
            mine[:, :, :columns] = theirs[rows, :, :columns]

    def window(self, rows: slice, start: int) -> "CacheWindow":
        """The part that a pass over `rows`, beginning at column `start`, reads and writes."""
        return CacheWindow(self, rows, start)


@dataclass(frozen=True, eq=False)
class CacheWindow:
    """The `past_key_values` of one pass."""

    cache: KeyValueCache
    rows: slice
    start: int

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write [R, heads, Q, head size] at this pass's columns; return views of all columns up to them, aligned."""
        stop = self.start + keys.shape[2]
        stored_keys, stored_values = self.cache.keys[layer][self.rows], self.cache.values[layer][self.rows]
        stored_keys[:, :, self.start : stop] = keys
        stored_values[:, :, self.start : stop] = values
        return stored_keys[:, :, : aligned(stop)], stored_values[:, :, : aligned(stop)]

    def get_seq_length(self, *_: object) -> int:
        """The number of columns before this pass."""
        return self.start
