"""Memory beside keys and values on an accelerator: counted from public numbers, and not less than a pass takes."""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.rows import RowBatch
from tasks.inference.engine.shapes import (
    WITH_ALL_ELSE,
    Sizes,
    generations_at_once,
    likely_rows,
    pass_bytes,
    rows_per_chunk,
    working_bytes,
)
from tasks.inference.kernels.kernel_choice import FIXED_ATTENTION, PLAIN, KernelOrder
from tasks.inference.loading import adopt, weights
from tests.unit.tasks.inference.families import READ, adopted, network_of
from tests.unit.tasks.inference.rows_at_work import text

CONCERNS = ("tasks/inference/engine",)

CUDA = torch.device("cuda")


class PeakBytes(TorchDispatchMode):
    """The most bytes of results that were alive at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        results = func(*args, **options)
        before = {each.untyped_storage()._cdata for each in _tensors((args, options))}
        for leaf in _tensors(results):
            if leaf.untyped_storage()._cdata not in self._known | before:
                self._take(leaf)
        return results

    def _take(self, tensor: Tensor) -> None:
        storage, size = tensor.untyped_storage(), tensor.untyped_storage().nbytes()
        self._known.add(storage._cdata)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._let_go, storage._cdata, size)

    def _let_go(self, which: int, size: int) -> None:
        self._known.discard(which)
        self.now -= size


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


@pytest.fixture
def dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers keep their weights as on an accelerator."""
    monkeypatch.setattr(weights, "can_pack", lambda *_: False)
    monkeypatch.setattr(adopt, "can_pack", lambda *_: False)


@pytest.mark.slow_except("Llama", "Gemma 2", "Falcon", "GPT-NeoX", "Ministral 3")
@pytest.mark.usefixtures("dense")
@pytest.mark.parametrize("family", READ)
def test_a_pass_takes_no_more_than_is_counted(family: str) -> None:
    model = adopted(network_of(*READ[family]))
    for rows, queries in ((24, 1), (4, 32)):
        batch = RowBatch(model, rows, 64)
        batch.read([text(20, row) for row in range(rows)], 24)
        with torch.inference_mode(), PeakBytes() as taken:
            batch.read([text(queries, row) for row in range(rows)], queries)
        assert taken.peak > 0
        assert taken.peak <= pass_bytes(model, rows, queries, 64)


@pytest.fixture
def on_cuda(dense: None) -> LanguageModel:
    """A model as an accelerator has it, where nothing is computed."""
    model = adopted(network_of(*READ["Llama"]))
    return replace(model, device=CUDA, kernel_order=KernelOrder((PLAIN,)))


SIZES = Sizes(50, 40, 170, 47, 150, 7)


def test_on_a_cpu_nothing_is_counted(on_cuda: LanguageModel) -> None:
    assert working_bytes(replace(on_cuda, device=torch.device("cpu")), 9, 70, 64, 97, 257) == 0


def test_each_part_grows_with_what_it_depends_on(on_cuda: LanguageModel) -> None:
    least = working_bytes(on_cuda, 1, 16, 16, 97, 257)
    assert least > 4 * 2**26  # rows of the head that are gathered
    assert working_bytes(on_cuda, 2, 16, 16, 97, 257) - least > 4 * on_cuda.vocabulary
    assert working_bytes(on_cuda, 1, 32, 16, 97, 257) - least > 16 * 4 * on_cuda.vocabulary
    assert working_bytes(on_cuda, 1, 16, 4096, 97, 257) - least > 2000 * 4 * on_cuda.width
    assert working_bytes(on_cuda, 1, 16, 16, 97, 1024) > least
    fixed = replace(on_cuda, kernel_order=KernelOrder((FIXED_ATTENTION,)))
    assert working_bytes(fixed, 1, 16, 16, 97, 257) < least  # no scores in memory


def test_a_large_vocabulary_leaves_room_for_fewer_generations(on_cuda: LanguageModel) -> None:
    memory = 2**33
    few_tokens = generations_at_once(on_cuda, SIZES, memory)
    wide = replace(on_cuda, head_weight=torch.empty(200_000, on_cuda.width, device="meta"))
    fits = generations_at_once(wide, SIZES, memory)
    assert 1 < fits < few_tokens / 2
    column = 2 * wide.cache_dtype.itemsize * wide.layers * wide.key_value_heads * wide.head_size

    def needed(generations: int) -> int:
        chunk = rows_per_chunk(generations, 7, CUDA)
        rows = -(-likely_rows(generations, 7) // chunk) * chunk
        caches = (rows + 16) * SIZES.private_columns + generations * SIZES.public_columns
        beside = working_bytes(wide, generations, rows, chunk, SIZES.public_columns, SIZES.private_columns)
        return column * caches + beside

    assert needed(fits) <= WITH_ALL_ELSE * memory < needed(fits + 1)
    assert generations_at_once(wide, SIZES, 0) == 1  # one is always tried


def test_with_room_for_all_else_keys_and_values_decide(on_cuda: LanguageModel) -> None:
    """As measured on an H100: the generations of a model whose vocabulary is small beside its cache are as before."""
    deep = replace(on_cuda, layers=400)
    column = 2 * deep.cache_dtype.itemsize * deep.layers * deep.key_value_heads * deep.head_size
    memory = 2**34
    fits = generations_at_once(deep, SIZES, memory)
    assert column * fits * (7 * SIZES.private_columns + SIZES.public_columns) > 0.85 * memory
