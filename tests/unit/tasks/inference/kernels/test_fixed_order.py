"""PRIVACY §4.2 point 1, §10.1: the fixed-order kernels under Triton's interpreter, and twins of what leaked elsewhere.

Every question that an honest kernel answers is put to a broken twin, too. The same questions are put to a real device
(test_fixed_order_on_device.py).
"""

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import pytest
import torch
from torch import Tensor

from tasks.inference.catalogue.devices import CPU
from tasks.inference.engine import attention, linear_layers
from tasks.inference.engine.attention import fixed_order_attention, grouped_attention
from tasks.inference.engine.engine import _tries
from tasks.inference.engine.isolation import IsolationCheck, RowsNotIsolated
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.linear_layers import DenseLinear, fixed_order_works, linear, linear_of_chosen
from tasks.inference.kernels import kernel_choice
from tasks.inference.kernels.kernel_choice import FIXED_ATTENTION, FIXED_ORDER, PACKED, PLAIN, KernelOrder, kernel_order
from tasks.inference.loading import adopt, weights
from tests.support import require
from tests.unit.tasks.inference.families import READ, adopted, network_of
from tests.unit.tasks.inference.kernels.questions import (
    FAR,
    FROZEN,
    TWO_LAUNCHES,
    AttentionShape,
    Linear,
    as_linear,
    attention_problems,
    linear_problems,
    numbers,
)

CONCERNS = ("tasks/inference/kernels", "tasks/inference/engine")

ROOT = Path(__file__).resolve().parents[5]
EVERY = range(1, 65)
SOME = (1, 2, 5, 43, 44, 45, 46)
DTYPES = (torch.float32, torch.bfloat16)

Spoil = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@pytest.fixture(autouse=True)
def triton_interprets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton interprets (tests/conftest.py), adds in a stated order, and treats NaN as a device does."""
    require(importlib.util.find_spec("triton") is not None, "Triton is missing: it has wheels for Linux alone")
    from triton.runtime.interpreter import InterpreterBuilder

    from tests.unit.tasks.inference.kernels.interpreted import device_maximum, device_minimum, ordered_dot

    monkeypatch.setattr(InterpreterBuilder, "create_dot", ordered_dot)
    monkeypatch.setattr(InterpreterBuilder, "create_minnumf", device_minimum)
    monkeypatch.setattr(InterpreterBuilder, "create_maxnumf", device_maximum)


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return linear(x, weight, bias, FIXED_ORDER)


@pytest.mark.slow_except("torch.float32")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_has_the_same_bits_at_every_number_of_rows_in_five_orders(dtype: torch.dtype) -> None:
    assert linear_problems(product, dtype, "cpu", EVERY) == []


def test_a_row_and_its_own_candidates_have_the_same_bits_at_every_number_of_rows() -> None:
    linear = as_linear(lambda x, weight, bias, chosen: linear_of_chosen(x, weight, bias, chosen, FIXED_ORDER))
    assert linear_problems(linear, torch.float32, "cpu", (1, 2, 5, 12), inputs=300, channels=20) == []
    plain = as_linear(lambda x, weight, bias, chosen: linear_of_chosen(x, weight, bias, chosen.flip(1), FIXED_ORDER))
    assert FAR in linear_problems(plain, torch.float32, "cpu", (1, 2), inputs=300, channels=20)


@pytest.mark.slow_except("one token-torch.bfloat16")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [AttentionShape(), AttentionShape(6, 2, 7, 72, 24)], ids=["one token", "a block of a prompt"]
)
def test_attention_computes_its_definition_for_a_row_alone(dtype: torch.dtype, shape: AttentionShape) -> None:
    assert attention_problems(fixed_order_attention, dtype, "cpu", (1, 4), shape) == []


@pytest.mark.slow
def test_attention_keeps_the_bits_of_a_row_at_many_rows() -> None:
    shape = AttentionShape(heads=2, groups=1, columns=40)
    assert attention_problems(fixed_order_attention, torch.float32, "cpu", (1, 20), shape) == []


def test_attention_without_a_column_is_what_the_reference_has() -> None:
    query, key, value, mask = AttentionShape().numbers(2, torch.float32, "cpu")
    mask[1] = -torch.inf
    with pytest.warns(RuntimeWarning, match="invalid value"):
        mixed, _ = fixed_order_attention(None, query, key, value, mask)
    assert torch.equal(mixed.isnan(), grouped_attention(None, query, key, value, mask)[0].isnan())
    with pytest.raises(ValueError, match="position_bias"):
        fixed_order_attention(None, query, key, value, mask, position_bias=mask)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("what", ["a query", "a key that is seen", "a key that is masked", "infinite scores"])
def test_numbers_that_are_not_finite_are_what_the_reference_has(softcap: float | None, what: str) -> None:
    """A row that is not finite contributes nothing: no cap may turn it into a finite one, nor touch its neighbours."""
    shape = AttentionShape(heads=4, groups=2, queries=3, columns=40)
    query, key, value, mask = shape.numbers(3, torch.float32, "cpu")
    mask[1, :, :, -1], mask[1, :, :, 0] = 0.0, -torch.inf
    if what == "a query":
        query[1, 2, 1, 0] = torch.nan
    elif what == "infinite scores":
        query[1, 2, 1], key[1, 1, -1] = 1e20, 1e20
    else:
        key[1, 1, -1 if what == "a key that is seen" else 0] = torch.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        ours, _ = fixed_order_attention(None, query, key, value, mask, softcap=softcap)
    theirs, _ = grouped_attention(None, query, key, value, mask, softcap=softcap)
    assert theirs[1].isnan().any() == (what != "infinite scores" or softcap is None)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4, equal_nan=True)


def split_at_44_and_45(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A library that cuts the sum in two for some numbers of rows (split-K)."""
    if len(x) not in (44, 45):
        return product(x, weight, bias)
    half = x.shape[1] // 2
    return product(x[:, :half], weight[:, :half], bias) + product(x[:, half:], weight[:, half:], None)


def scaled_per_tensor(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Quantised activations with one scale over all rows: the loudest row decides how the others are rounded."""
    scale = x.float().abs().max() / 127
    return product(((x.float() / scale).round() * scale).to(x.dtype), weight, bias)


def chosen_by_content(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A kernel that is chosen by what the batch holds: another one where some row is loud."""
    return product(x.flip(1), weight.flip(1), bias) if x.float().abs().max() > 50 else product(x, weight, bias)


def tiled_by_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A kernel that is chosen, or tuned, for the number of rows."""
    from tasks.inference.kernels import linear_kernel

    tile = kernel_choice.tile_of(weight)
    return linear_kernel.linear(x, weight, bias, replace(tile, depth=16) if len(x) > 44 else tile)


class AlternatingLaunches:
    """Sums whose order differs from one launch to the next, as with atomics."""

    def __init__(self) -> None:
        self._launches = count()

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return product(x.flip(1), weight.flip(1), bias) if next(self._launches) % 2 else product(x, weight, bias)


TWINS: dict[str, tuple[Callable[[], Linear], set[str]]] = {
    "a difference at 44 and 45 rows": (lambda: split_at_44_and_45, {"44 rows", "45 rows"}),
    "one scale over all rows": (lambda: scaled_per_tensor, {"44 rows", FAR}),
    "a kernel chosen by the batch's content": (lambda: chosen_by_content, {"2 rows"}),
    "a tile chosen by the number of rows": (lambda: tiled_by_rows, {"45 rows", "46 rows"}),
    "launches that differ": (AlternatingLaunches, {TWO_LAUNCHES, "44 rows"}),
}


@pytest.mark.slow_except("a difference at 44 and 45 rows", "a kernel chosen by the batch's content")
@pytest.mark.parametrize("twin", TWINS)
def test_what_leaked_elsewhere_is_found(twin: str) -> None:
    make, expected = TWINS[twin]
    found = linear_problems(make(), torch.float32, "cpu", SOME)
    assert set(found) >= expected, found
    assert ("43 rows" in found) == ("44 rows" in found and twin != "a difference at 44 and 45 rows"), found


def twin_of(name: str, old: str, new: str, folder: Path) -> ModuleType:
    """A module of the kernels in which one text is another."""
    source = Path(importlib.import_module(f"tasks.inference.kernels.{name}").__file__ or "").read_text()
    assert old in source
    path = folder / f"twin_of_{name}.py"
    path.write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LINEAR_MUTANTS = {
    "float32 as TF32": ('input_precision="ieee"', 'input_precision="tf32"', torch.float32),
    "sums in bfloat16": ("weight, sums,", "weight, sums.to(tl.bfloat16).to(tl.float32),", torch.bfloat16),
    "the last block of the sum is left out": ("range(0, inputs,", "range(0, inputs - TILE_DEPTH,", torch.float32),
    "what is missing from a block counts": ("other=0.0", "other=1.0", torch.float32),
}  # fmt: skip


@pytest.mark.parametrize("mutant", LINEAR_MUTANTS)
def test_other_arithmetic_is_found(mutant: str, tmp_path: Path) -> None:
    old, new, dtype = LINEAR_MUTANTS[mutant]
    twin = twin_of("linear_kernel", old, new, tmp_path)
    # Sums of bfloat16 are told from one rounding of the result where many blocks are added.
    assert FAR in linear_problems(twin.linear, dtype, "cpu", (2, 5), inputs=520)


def words_of_compiled_code(*arguments: str) -> dict[str, dict[str, int]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.unit.tasks.inference.kernels.compiled", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compiled: dict[str, dict[str, int]] = json.loads(done.stdout)
    return compiled


@pytest.mark.slow
def test_code_for_an_h100_has_no_tf32_and_no_atomics() -> None:
    """Triton compiles without a device: float32 is fused multiplication and addition, bfloat16 a matrix instruction."""
    for name, words in words_of_compiled_code().items():
        assert (words["tf32"], words["atom."], words[" red."]) == (0, 0, 0), name
        instructions = ("fma.rn.f32",) if "fp32" in name or name == "chosen" else ("wgmma.mma_async", "mma.sync")
        assert sum(words[one] for one in instructions) > 0, name
    twin = words_of_compiled_code("tf32")
    assert {name for name, words in twin.items() if words["tf32"]} == {name for name in twin if "fp32" in name}


@pytest.mark.slow
def test_a_table_that_the_first_call_has_frozen_is_found() -> None:
    frozen: list[Tensor] = []

    def attention(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **options: Any) -> Any:
        frozen.append(mask)
        same = frozen[0].shape == mask.shape
        return fixed_order_attention(module, query, key, value, frozen[0] if same else mask, **options)

    assert FROZEN in attention_problems(attention, torch.float32, "cpu", (2, 3), AttentionShape())


@pytest.mark.slow
def test_columns_split_by_the_number_of_rows_are_found() -> None:
    """Decoding kernels split the columns among programs where rows are few."""

    def attention(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **options: Any) -> Any:
        if len(query) < 3:
            key, value, mask = key.flip(2), value.flip(2), mask.flip(3)
        return fixed_order_attention(module, query, key, value, mask, **options)

    found = attention_problems(attention, torch.float32, "cpu", (2, 4), AttentionShape())
    assert found == ["4 rows"]


@pytest.mark.parametrize("change", ["another type", "two types", "other sizes"])
def test_what_does_not_fit_is_refused(change: str) -> None:
    x, weight = torch.zeros(3, 16), torch.zeros(8, 16)
    if change == "another type":
        x, weight = x.half(), weight.half()
    elif change == "two types":
        x = x.bfloat16()
    else:
        x = torch.zeros(3, 17)
    with pytest.raises(ValueError, match=r"not of torch.float16|do not fit"):
        product(x, weight, None)


def test_tiles_follow_from_the_weight_alone() -> None:
    for dtype, candidates in kernel_choice.CANDIDATE_TILES.items():
        for channels in (1, 512, 2048, 4096, 128_256):
            assert kernel_choice.tile_of(torch.empty(channels, 64, dtype=dtype, device="meta")) in candidates.values()
    assert product(torch.zeros(0, 16), torch.zeros(8, 16), None).shape == (0, 8)
    unaligned = numbers(3 * 16 + 1)[1:].view(3, 16)
    assert torch.equal(product(unaligned, numbers(8, 16), None), product(unaligned.clone(), numbers(8, 16), None))


def test_where_a_derivative_is_wanted_torch_computes() -> None:
    query, key, value = (torch.randn(1, 2, 16, 16, requires_grad=True) for _ in range(3))
    mixed, _ = fixed_order_attention(None, query, key, value, torch.zeros(1, 1, 16, 16))
    mixed.sum().backward()
    assert all(part.grad is not None and part.grad.any() for part in (query, key, value))


def test_orders() -> None:
    cuda = torch.device("cuda")
    assert kernel_order(CPU, "float32", packed=True, fixed=False).names == (PACKED, PLAIN)
    assert kernel_order(CPU, "float32", packed=False, fixed=False).names == (PLAIN,)
    assert kernel_order(cuda, "bfloat16", packed=False, fixed=False).names == (PLAIN,)
    assert kernel_order(cuda, "float32", packed=False, fixed=True).names == (PLAIN, FIXED_ORDER)
    order = kernel_order(cuda, "bfloat16", packed=False, fixed=True)
    assert (order.names, order.fewer_rows_first) == ((FIXED_ATTENTION, FIXED_ORDER), False)
    assert (order.advance(), order.advance(), order.current) == (True, False, FIXED_ORDER)


def test_a_device_whose_compiler_fails_has_no_fixed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fixed_order_works.__wrapped__(CPU, 32)

    def fail(*_: object) -> bool:
        raise OSError("no compiler")

    monkeypatch.setattr(linear_layers, "linear", fail)
    assert not fixed_order_works.__wrapped__(CPU, 32)
    monkeypatch.setattr(linear_layers, "linear", lambda x, weight, bias, kernels: x @ weight.T)
    assert not fixed_order_works.__wrapped__(CPU, 32)


def test_a_device_with_too_little_memory_for_wide_heads_has_no_fixed_order_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of an RTX 4090: Triton refuses to launch what takes more than 99 KiB."""
    from tasks.inference.kernels import attention_kernel

    mixed = attention_kernel.attention

    def small(query: Tensor, *arguments: Any) -> Tensor:
        if query.shape[1] // 2 * query.shape[2] >= 64 and query.shape[3] > 128:
            raise RuntimeError("out of resource: shared memory")
        return mixed(query, *arguments)

    monkeypatch.setattr(attention_kernel, "attention", small)
    assert fixed_order_works.__wrapped__(CPU, 128)
    assert not fixed_order_works.__wrapped__(CPU, 256)


@pytest.mark.parametrize("head_size", [16, 80, 128, 256])
def test_the_kernels_work_at_every_size_of_a_head(head_size: int) -> None:
    assert fixed_order_works.__wrapped__(CPU, head_size)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    """A tiny Llama with dense layers, as on CUDA: torch's own products first, then those of fixed order."""
    monkeypatch.setattr(weights, "can_pack", lambda *_: False)
    monkeypatch.setattr(adopt, "can_pack", lambda *_: False)
    made = adopted(network_of(*READ["Llama"]))
    return replace(made, kernel_order=KernelOrder((PLAIN, FIXED_ORDER), fewer_rows_first=False))


def test_all_products_of_a_model_change_together(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers, attention and both heads: torch's own product and attention are not called any more."""
    hidden, tokens = numbers(3, model.width), torch.arange(20)

    def results() -> list[Tensor]:
        heads = model.logits(hidden), model.logits_of(hidden, tokens), model.logits_of_each(hidden, tokens.repeat(3, 1))
        return [IsolationCheck(model)._passes(3, 2)(torch.arange(3)), *heads]

    before = results()
    copied = replace(model)
    assert model.use_next_kernels()
    assert (model.kernels, copied.kernels) == (FIXED_ORDER, FIXED_ORDER)
    layers = [layer for layer in model.decoder.modules() if isinstance(layer, DenseLinear)]
    assert len(layers) == 2 * 7

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("torch's own")

    for module, name in ((torch.nn.functional, "linear"), (torch, "bmm"), (attention, "grouped_attention")):
        monkeypatch.setattr(module, name, fail)
    for one, other in zip(before, results(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert not model.use_next_kernels()


@pytest.mark.slow
def test_a_library_that_couples_rows_is_left_for_the_fixed_order(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the same number of rows: the check passes with them, and it has asked them."""
    library = torch.nn.functional.linear

    def coupled(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return library(x, weight, bias) * (1 + 1e-6 * torch.arange(len(x)).view(-1, *[1] * (x.dim() - 1)))

    monkeypatch.setattr(torch.nn.functional, "linear", coupled)
    check = IsolationCheck(model)
    with pytest.raises(RowsNotIsolated):
        check.layers(3, 1)
    tries = _tries(model, 8)
    assert [next(tries), next(tries)] == [8, 8]
    assert model.kernels == FIXED_ORDER
    check.layers(3, 1)
    check.attention(3, 1, [16], 16)
    check.head(3)
    check.candidates(3, 40)
    check.candidates_by_row(3, 40)
    assert list(tries) == [4, 2, 1]
    assert {shape[0] for shape in check.tested_shapes} == {PLAIN, FIXED_ORDER}
