"""PRIVACY §4.2 point 1 at every precision: what one row is leaves every bit of the others as it was."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig

from tasks.inference.catalogue.devices import CPU
from tasks.inference.catalogue.model_check import PRECISIONS, Precision
from tasks.inference.engine import linear_layers
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.isolation import IsolationCheck, RowsNotIsolated
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.adopt import wrap_network
from tasks.inference.loading.load_model import load
from tasks.inference.loading.weights import type_to_read
from tests.own_home import on_request
from tests.unit.tasks.inference.engine.test_isolation import CANDIDATES, CHANGES, NOTES, batches
from tests.unit.tasks.inference.fixtures import REAL, tiny_network
from tests.unit.tasks.inference.processors import expect_refusal
from tests.unit.tasks.inference.rows_at_work import by_row, text

pytestmark = [pytest.mark.dear, pytest.mark.contract]

RECOMMENDED = "qwen2.5-coder-1.5b-instruct"
LOWERED = [precision for precision in PRECISIONS if precision != "float32"]


def adopted_in(precision: Precision) -> LanguageModel:
    """The tiny model of the other tests in `precision`."""
    return wrap_network(tiny_network(), None, name="tiny", revision="1", digest="d", device=CPU, precision=precision)


lowered = cache(adopted_in)
"""The same, once; this processor must have the precision (`expect_refusal`)."""


@cache
def undisturbed(precision: Precision, chosen: bool) -> tuple[Engine, dict[str, Tensor]]:
    """An engine in `precision`, and what the rows are in it before anything changes."""
    engine = Engine(lowered(precision))
    return engine, by_row(engine, batches(), candidates=CANDIDATES[chosen])


def felt_by_others(engine: Engine, before: dict[str, Tensor], change: str, chosen: bool = False) -> list[str]:
    """The rows that `change` of one row gave other bits than `before`."""
    after = by_row(engine, CHANGES[change](batches()), candidates=CANDIDATES[chosen])
    others = before.keys() - {"changed"}
    assert len(others) == 8
    return [name for name in others if not torch.equal(before[name], after[name])]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("precision", LOWERED)
@pytest.mark.parametrize("chosen", [True, False], ids=["candidates", "vocabulary"])
def test_other_rows_keep_every_bit(precision: Precision, change: str, chosen: bool) -> None:
    if expect_refusal(precision):
        return
    engine, before = undisturbed(precision, chosen)
    assert felt_by_others(engine, before, change, chosen) == []


@pytest.mark.parametrize("precision", PRECISIONS)
def test_logits_are_float32_and_the_rows_own(precision: Precision) -> None:
    if expect_refusal(precision):
        return
    engine, rows = Engine(lowered(precision)), batches()
    before = by_row(engine, rows)
    after = by_row(engine, [{**rows[0], "changed": text(30, 99)}, *rows[1:]])
    assert {values.dtype for values in before.values()} == {torch.float32}
    assert not torch.equal(before["changed"], after["changed"])


def one_scale(x: Tensor) -> tuple[Tensor, Tensor]:
    """The broken twin: as `quantised_rows`, but the loudest row sets the scale of all."""
    largest = x.abs().amax().clamp_min(1e-30)
    integers = (x * (127 / largest)).round_().to(torch.int8)
    return integers.view(torch.uint8).bitwise_xor_(128), (largest / 127).expand(len(x), 1)


def test_one_scale_for_all_rows_fails_the_same_test(monkeypatch: pytest.MonkeyPatch) -> None:
    if expect_refusal("int8"):
        return

    def unchecked(self: IsolationCheck, *shape: object) -> None:
        """The device is not asked."""

    coupled = lowered("int8")
    monkeypatch.setattr(linear_layers, "quantised_rows", one_scale)
    monkeypatch.setattr(IsolationCheck, "_require", unchecked)
    engine = Engine(coupled)
    before = by_row(engine, batches())
    for change in ("replace", "lengthen", "shorten", "remove"):
        assert felt_by_others(engine, before, change), f"{change!r} was not felt"


def test_one_scale_for_all_rows_is_noticed_by_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    if expect_refusal("int8"):
        return
    coupled = lowered("int8")
    monkeypatch.setattr(linear_layers, "quantised_rows", one_scale)
    with pytest.raises(RowsNotIsolated, match="beside it") as refused:
        IsolationCheck(coupled).layers(8, 1)
    assert refused.value.facts["precision"] == "int8"
    assert "precision float32 or bfloat16" in refused.value.advice
    engine = Engine(coupled)
    before = by_row(engine, batches())
    for change in ("replace", "lengthen", "shorten", "remove"):
        assert not felt_by_others(engine, before, change), "one row at a time has no neighbours"


REAL_CHANGES: dict[str, Callable[[dict[str, list[int]]], dict[str, list[int]]]] = {
    "replace": lambda rows: rows | {"1": rows["3"][::-1]},
    "lengthen": lambda rows: rows | {"1": (rows["1"] * 9)[:60]},
    "shorten": lambda rows: rows | {"1": rows["1"][:3]},
    "remove": lambda rows: {name: row for name, row in rows.items() if name != "1"},
    "permute": lambda rows: dict(reversed(rows.items())),
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", LOWERED)
def test_real_model_keeps_every_bit(real: LanguageModel, precision: Precision) -> None:
    if expect_refusal(precision):
        return
    model = load(REAL, "cpu", precision)
    assert (model.digest, model.precision) == (real.digest, precision)
    require_kept_bits(model)


@pytest.mark.slow
def test_the_recommended_model_keeps_every_bit_in_the_type_of_its_files() -> None:
    with on_request(RECOMMENDED) as folder:
        model = load(RECOMMENDED, "cpu", "bfloat16")
        assert type_to_read(AutoConfig.from_pretrained(folder), folder) == torch.bfloat16
    assert model.tokenizer.convert_ids_to_tokens(model.stop_tokens) == ["<|endoftext|>", "<|im_end|>"]
    require_kept_bits(model)


def require_kept_bits(model: LanguageModel) -> None:
    """Check that no row of some notes feels a change of the second one."""
    tokens = [model.tokenizer(note)["input_ids"][:60] for note in NOTES]
    rows = {str(number): row for number, row in enumerate(tokens)}
    engine = Engine(model)
    before = by_row(engine, [rows], nominal=5)
    for change, make in REAL_CHANGES.items():
        after = by_row(engine, [make(rows)], nominal=5)
        for name in before.keys() - {"1"}:
            assert torch.equal(before[name], after[name]), f"row {name} felt {change!r}"
    assert all(torch.isfinite(values).all() for values in before.values())
