"""Does this device give a row the same bits wherever it stands and whoever stands beside it?

PRIVACY §4.2 point 1 needs it: when one unit leaves, the rows behind it move up, and when a text changes its length
rows are sorted anew. Fixed shapes make it true only where a kernel treats all rows alike; some do not (MKL's float32
product at 5, 6, 7 and 9 to 11 rows; torch's CPU attention, see `attention`; work-splitting kernels on accelerators).
So the engine asks the device itself, once for every shape it is about to use and with public numbers: rows in one
order, then half of them in reverse order among other neighbours.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from models_db.errors import EnvironmentProblem
from tasks.inference.attention import grouped_attention
from tasks.inference.cache import KeyValueCache
from tasks.inference.language_model import LanguageModel
from tasks.inference.precision import PRECISIONS, Precision
from tasks.inference.rows import RowBatch


class RowsNotIsolated(EnvironmentProblem):
    """This device's arithmetic lets a row's bits depend on its place or its neighbours."""

    def __init__(self, device: str, shape: str, precision: Precision) -> None:
        others = " or ".join(name for name in PRECISIONS if name != precision)
        super().__init__(
            f"On {device} in {precision}, the results of a row ({shape}) depend on the rows beside it; "
            "a private row must not influence another.",
            f"Use --device cpu, or request precision {others}.",
            {"device": device, "shape": shape, "precision": precision},
        )


class IsolationCheck:
    """Checks every shape once, the first time it is about to be used.

    Its methods raise RowsNotIsolated if some row came out with other bits.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._passed: set[tuple[str | int, ...]] = set()

    def before_pass(self, rows: int, queries: int, seen: int, columns: int) -> None:
        """A pass over `queries` new tokens for each of `rows` rows that see `seen` of a cache's `columns` columns.

        The length of the cache belongs to the shape: it is the distance between rows in memory.
        """
        self.whole_pass(rows, queries)
        self.attention(rows, queries, seen, columns)

    def whole_pass(self, rows: int, columns: int) -> None:
        """All layers and the full head, `columns` new tokens for each of `rows` rows."""

        def run(tokens: Tensor) -> Tensor:
            hidden = RowBatch(self._model, rows, columns).read(tokens.tolist(), columns)
            return torch.cat([hidden, self._model.logits(hidden)], dim=1)

        self._once("new tokens", (rows, columns, columns), run, lambda salt: self._tokens(rows, columns, salt))

    def attention(self, rows: int, queries: int, seen: int, columns: int) -> None:
        """Attention of `queries` tokens per row to the first `seen` of `columns` columns of a cache."""
        heads, groups, size = self._model.heads, self._model.key_value_heads, self._model.head_size
        mask = torch.zeros((rows, 1, queries, seen), device=self._model.device)

        def run(numbers: Tensor) -> Tensor:
            query = numbers[:, : heads * queries * size].view(rows, heads, queries, size)
            both = numbers[:, heads * queries * size :].view(rows, 2, groups, seen, size)
            cache = KeyValueCache.allocate(self._model, rows, columns, layers=1)
            key, value = cache.window(slice(0, rows), 0).update(both[:, 0], both[:, 1], 0)
            return grouped_attention(None, query, key, value, mask)[0].flatten(1)

        width = (heads * queries + 2 * groups * seen) * size
        self._once("attention", (rows, queries, seen, columns), run, lambda salt: self._numbers(rows, width, salt))

    def candidates(self, rows: int, candidates: int) -> None:
        """The head over `candidates` candidate tokens."""
        some = torch.arange(candidates, device=self._model.device) % self._model.vocabulary
        self._once(
            "candidates",
            (rows, 1, candidates),
            lambda hidden: self._model.logits_of(hidden, some),
            lambda salt: self._numbers(rows, self._model.width, salt),
        )

    def _once(
        self,
        what: str,
        shape: tuple[int, ...],
        run: Callable[[Tensor], Tensor],
        make: Callable[[int], Tensor],
    ) -> None:
        if (what, *shape) in self._passed:
            return
        rows, other = make(1), make(2)
        other[::2] = rows[::2]
        straight, turned = run(rows)[::2], run(other.flip(0)).flip(0)[::2]
        if not torch.allclose(straight, turned, rtol=0.0, atol=0.0, equal_nan=True):
            sizes = f"{shape[0]} rows, {' x '.join(map(str, shape[1:]))} {what}"
            raise RowsNotIsolated(str(self._model.device), sizes, self._model.precision)
        self._passed.add((what, *shape))

    def _tokens(self, rows: int, columns: int, salt: int) -> Tensor:
        index = torch.arange(rows * columns, device=self._model.device).view(rows, columns)
        return (index * 7919 + salt * 104729) % self._model.vocabulary

    def _numbers(self, rows: int, width: int, salt: int) -> Tensor:
        index = torch.arange(rows * width, device=self._model.device, dtype=torch.float32)
        return (index + salt).sin().view(rows, width)
