"""Section `kernels`: the fixed-order kernels beside cuBLAS and torch's products, at the shapes of two Llamas.

Every time is that of launches in a CUDA graph, by events, so that no launch from Python is in it; weights are taken by
turns from more memory than the cache of the device holds. `best` names the fastest of `tiles.CANDIDATES`; `tile` is the
one that the engine takes (`tiles.tile_of`), and `ratio` is its time over cuBLAS's.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch
from torch import Tensor

from benchmarks.gpu import networks, speed
from benchmarks.gpu.networks import LLAMA_1B, LLAMA_8B, memory_returned
from benchmarks.gpu.section import Bench
from tasks.inference.engine.attention import fixed_order_attention, grouped_attention
from tasks.inference.engine.rows import prefill_shape
from tasks.inference.kernels import linear_kernel
from tasks.inference.kernels.kernel_choice import CANDIDATE_TILES, tile_of

_REPEATED: Final = 16
"""Launches of a graph, at most."""
_COLD: Final = 2**28
"""Bytes of the weights that are taken by turns."""
_LARGE: Final = 2**30
"""Bytes of a weight from which on fewer launches are enough."""


@dataclass(frozen=True)
class Shape:
    """The products of a model.

    Attributes:
        products: name -> channels, inputs, type.
        heads, groups, size: of attention.
    """

    name: str
    products: Mapping[str, tuple[int, int, torch.dtype]]
    heads: int
    groups: int
    size: int


def _llama(name: str, width: int, inner: int, groups: int, size: int, vocabulary: int = 128_256) -> Shape:
    bfloat16 = torch.bfloat16
    products = {
        "q and o": (width, width, bfloat16),
        "k and v": (groups * size, width, bfloat16),
        "gate and up": (inner, width, bfloat16),
        "down": (width, inner, bfloat16),
        "head": (vocabulary, width, torch.float32),
        "1,024 candidates": (1024, width, torch.float32),
    }
    return Shape(name, products, width // size, groups, size)


SHAPES: Final = (_llama(LLAMA_1B, 2048, 8192, 8, 64), _llama(LLAMA_8B, 4096, 14336, 8, 128))
ROWS: Final = (304, 512)
"""Private rows of a pass at 7 and at 31 references."""
COLUMNS: Final = 352
_SMALL: Final = Shape("tiny", {"q and o": (48, 40, torch.float32), "head": (70, 40, torch.float32)}, 4, 2, 16)


def measure(bench: Bench) -> None:
    """Products, attention, and a model of 1B with both kinds of kernels; what decides most comes first."""
    shapes, counts = ((_SMALL,), (5,)) if bench.small else (SHAPES, ROWS)
    for shape in shapes:
        _shape(bench, shape, counts[0])
    for fixed in (True, False):
        with memory_returned():
            name = "fixed order" if fixed else "torch's own"
            bench.row(f"{LLAMA_1B}, engine, {name}", partial(_engine, bench, fixed))
    for rows in counts[1:]:
        for shape in shapes:
            _shape(bench, shape, rows)


def _shape(bench: Bench, shape: Shape, rows: int) -> None:
    """Rows of one model at one number of rows, and its attention to a block of prompts."""
    columns, (few, many) = (16, (4, 3)) if bench.small else (COLUMNS, prefill_shape(torch.device(bench.device)))
    attention = partial(_attention, bench.device, shape)
    measured = {
        f"{name}, {rows} rows": partial(_product, bench.device, rows, *product)
        for name, product in shape.products.items()
    }
    measured[f"attention, {rows} rows"] = partial(attention, rows, 1, columns)
    measured["attention, prompts"] = partial(attention, few, many, max(16, 2 * many))
    for name, measure_it in measured.items():
        with memory_returned():
            bench.row(f"{shape.name}, {name}", measure_it)


def _product(device: str, rows: int, channels: int, inputs: int, dtype: torch.dtype) -> Mapping[str, Any]:
    torch.manual_seed(1)
    x = torch.randn(rows, inputs, device=device, dtype=dtype)
    size = channels * inputs * dtype.itemsize
    copies = max(1, min(_REPEATED, _COLD // size))
    weights = [torch.randn(channels, inputs, device=device, dtype=dtype) for _ in range(copies)]
    launches = _REPEATED // 4 if size >= _LARGE else _REPEATED

    def milliseconds(product: Callable[[Tensor, Tensor], Tensor]) -> float:
        return _milliseconds(device, [partial(product, x, weights[one % copies]) for one in range(launches)])

    library = milliseconds(torch.nn.functional.linear)
    times = {
        name: milliseconds(partial(_tiled, tile=tile)) for name, tile in CANDIDATE_TILES[dtype].items()
    }  # fmt: skip
    chosen = next(name for name, tile in CANDIDATE_TILES[dtype].items() if tile == tile_of(weights[0]))
    difference = (linear_kernel.linear(x, weights[0]) - torch.nn.functional.linear(x, weights[0])).abs().max()
    return {
        "N x K": f"{channels} x {inputs}",
        "cuBLAS ms": library,
        **{f"{name} ms": took for name, took in times.items()},
        "tile": chosen,
        "best": min(times, key=lambda name: times[name]),
        "ratio": times[chosen] / library,
        "TFLOP/s": 2 * rows * channels * inputs / times[chosen] / 1e9,
        "largest difference": float(difference),
    }


def _tiled(x: Tensor, weight: Tensor, tile: Any) -> Tensor:
    return linear_kernel.linear(x, weight, None, tile)


def _attention(device: str, shape: Shape, rows: int, queries: int, columns: int) -> Mapping[str, Any]:
    torch.manual_seed(2)
    dtype = torch.float32 if shape is _SMALL else torch.bfloat16
    numbers = partial(torch.randn, device=device, dtype=dtype)
    query = numbers(rows, queries, shape.heads, shape.size).transpose(1, 2)
    keys = [numbers(rows, shape.groups, shape.size, columns).transpose(2, 3) for _ in range(4)]
    values = [numbers(rows, shape.groups, columns, shape.size) for _ in range(4)]
    mask = torch.zeros(rows, 1, queries, columns, device=device)
    mask[::2, ..., : columns // 4] = -torch.inf

    def attend(attention: Any, one: int) -> Tensor:
        mixed: Tensor = attention(None, query, keys[one], values[one], mask)[0]
        return mixed

    def milliseconds(attention: Any) -> float:
        return _milliseconds(device, [partial(attend, attention, one % 4) for one in range(_REPEATED)])

    theirs, ours = milliseconds(grouped_attention), milliseconds(fixed_order_attention)
    difference = (attend(grouped_attention, 0) - attend(fixed_order_attention, 0)).abs().max()
    read = keys[0].nbytes + values[0].nbytes
    return {
        "heads": f"{shape.heads} / {shape.groups} of {shape.size}",
        "queries": queries,
        "columns": columns,
        "grouped ms": theirs,
        "fixed order ms": ours,
        "ratio": ours / theirs,
        "GB/s": read / ours / 1e6,
        "largest difference": float(difference),
    }


def _milliseconds(device: str, launches: Sequence[Callable[[], object]], rounds: int = 5) -> float:
    """Milliseconds of one launch: the least of a few rounds."""
    for launch in launches[:2]:
        launch()  # compiles
    if not device.startswith("cuda"):
        began = time.perf_counter()
        for launch in launches:
            launch()
        return (time.perf_counter() - began) / len(launches) * 1000
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    took = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        took.append(start.elapsed_time(end) / len(launches))
    return min(took[1:])


def _engine(bench: Bench, fixed: bool) -> Mapping[str, Any]:
    """Tokens per second of the engine, with the isolation check before; `fixed`: with the fixed-order kernels."""
    if bench.small:
        return {"not measured": "an interpreted kernel has no speed; the tests decode with one"}
    plan = speed.Plan(LLAMA_1B, (7,), seconds=2.0, most=32)
    model = networks.random_model(plan.model, bench.device, plan.precision)
    if fixed:
        assert model.use_next_kernels(), "Triton's kernels do not work here"
    figures = speed.engine_row(bench, plan, model, 7)
    return {"kernels": model.kernels, **figures}
