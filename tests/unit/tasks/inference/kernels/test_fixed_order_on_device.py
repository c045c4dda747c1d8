"""The fixed-order kernels, compiled on a real device: results, isolation, capture, and a network in the engine.

`benchmarks/gpu.sh` runs this file without the project's fixtures; elsewhere tests/conftest.py has Triton interpret.
"""

import copy
import os

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import pytest
import torch
from torch import Tensor

from tasks.inference.engine.attention import fixed_order_attention
from tasks.inference.engine.isolation import IsolationCheck
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.linear_layers import fixed_order_works, linear, linear_of_chosen
from tasks.inference.kernels.kernel_choice import CANDIDATE_TILES, FIXED_ATTENTION, FIXED_ORDER, Tile
from tasks.inference.loading.adopt import wrap_network
from tests.unit.tasks.inference.conformance import differences, is_isolated
from tests.unit.tasks.inference.families import READ, adopted, network_of
from tests.unit.tasks.inference.kernels.questions import (
    AttentionShape,
    as_linear,
    attention_problems,
    linear_problems,
    numbers,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or "TRITON_INTERPRET" in os.environ,
        reason="no CUDA device, or Triton interprets: benchmarks/gpu.sh runs it",
    ),
]

CUDA = "cuda"
DTYPES = (torch.float32, torch.bfloat16)
COUNTS = (*range(1, 65), 100, 127, 128, 129, 200, 255, 256, 257, 299, 300)
SHAPES = {
    "one token": AttentionShape(8, 2, 1, 336, 64),
    "one token of one head each": AttentionShape(4, 4, 1, 80, 128),
    "a block of a prompt": AttentionShape(4, 2, 33, 96, 64),
    "heads of 80": AttentionShape(6, 2, 2, 48, 80),
}


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return linear(x, weight, bias, FIXED_ORDER)


def test_they_compile_and_work() -> None:
    assert fixed_order_works(torch.device(CUDA), 64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(72, 40), (256, 384), (200, 4200)], ids=str)
def test_linear(dtype: torch.dtype, sizes: tuple[int, int]) -> None:
    assert linear_problems(product, dtype, CUDA, COUNTS, inputs=sizes[0], channels=sizes[1]) == []


def test_chosen_channels() -> None:
    chosen = as_linear(lambda x, weight, bias, chosen: linear_of_chosen(x, weight, bias, chosen, FIXED_ORDER))
    assert linear_problems(chosen, torch.float32, CUDA, COUNTS, inputs=300, channels=40) == []


@pytest.mark.parametrize("tile", [tile for tiles in CANDIDATE_TILES.values() for tile in tiles.values()], ids=str)
def test_every_tile_computes_the_same_and_keeps_rows_apart(tile: Tile) -> None:
    from tasks.inference.kernels import linear_kernel

    dtype = next(dtype for dtype, tiles in CANDIDATE_TILES.items() if tile in tiles.values())

    def tiled(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return linear_kernel.linear(x, weight, bias, tile)

    assert (
        linear_problems(tiled, dtype, CUDA, (1, 2, 44, 45, 64, 65, 300), inputs=256, channels=320, with_bias=True) == []
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention(dtype: torch.dtype, shape: str) -> None:
    assert attention_problems(fixed_order_attention, dtype, CUDA, COUNTS, SHAPES[shape]) == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.inference_mode()
def test_launches_are_captured_in_a_graph(dtype: torch.dtype) -> None:
    x, weight = (numbers(*shape, dtype=dtype, device=CUDA) for shape in ((44, 256), (384, 256)))
    query, key, value, mask = AttentionShape(8, 2, 1, 96, 64).numbers(44, dtype, CUDA)
    eager = product(x, weight, None), fixed_order_attention(None, query, key, value, mask)[0]
    inputs = x.clone(), query.clone()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = product(x, weight, None), fixed_order_attention(None, query, key, value, mask)[0]
    x.zero_()
    query.zero_()
    graph.replay()
    assert not captured[0].any()
    x.copy_(inputs[0])
    query.copy_(inputs[1])
    graph.replay()
    assert all(torch.equal(one, other) for one, other in zip(captured, eager, strict=True))


def test_a_network_computes_what_transformers_computes_and_keeps_rows_apart() -> None:
    network = network_of(*READ["Llama"])
    plain = copy.deepcopy(network)
    model = adopted(network, torch.device(CUDA))
    assert model.kernels == "plain"
    assert model.use_next_kernels()
    assert model.kernels == FIXED_ORDER
    difference, logits = differences(model, plain)
    assert difference <= 1e-4 * max(1.0, logits / 10)
    assert is_isolated(model)


def _bfloat16() -> LanguageModel:
    network = network_of(*READ["Llama"])
    return wrap_network(
        network, None, name="tiny", revision="1", digest="d", device=torch.device(CUDA), precision="bfloat16"
    )


def test_bfloat16_is_near_cublas_and_passes_the_check() -> None:
    model = _bfloat16()
    assert model.kernels == FIXED_ATTENTION
    hidden = numbers(44, model.width, device=CUDA)
    library = model.logits(hidden)
    assert model.use_next_kernels()
    torch.testing.assert_close(model.logits(hidden), library, rtol=1e-4, atol=1e-4)
    check = IsolationCheck(model)
    for rows in (7, 44, 304):
        check.before_pass(rows, 1, 48, 64)
        check.head(rows)
        check.candidates(rows, 512)
        check.candidates_by_row(rows, 512)
    check.before_pass(16, 128, 128, 256)
