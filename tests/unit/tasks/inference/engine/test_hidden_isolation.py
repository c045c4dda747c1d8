"""PRIVACY §4.2 point 1 for hidden states, at every precision: no bit of the others moves when one row changes."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache

import pytest
import torch
from torch import Tensor

from tasks.inference.catalogue.model_check import PRECISIONS, Precision
from tasks.inference.engine import linear_layers
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.hidden_states import last_hidden
from tasks.inference.engine.isolation import IsolationCheck, RowsNotIsolated
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.session import RowHidden
from tasks.inference.engine.shapes import Sizes
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_rendering import PromptPieces
from tests.unit.tasks.inference.catalogue.test_precision_isolation import REAL_CHANGES, lowered, one_scale
from tests.unit.tasks.inference.engine.test_isolation import CHANGES, NOTES, Batches, batches
from tests.unit.tasks.inference.fixtures import REAL, Twins
from tests.unit.tasks.inference.processors import expect_refusal
from tests.unit.tasks.inference.rows_at_work import DRAWN, MOST, PRIVATE, PUBLIC, by_row, text

CONCERNS = ("tasks/inference",)

pytestmark = [pytest.mark.dear, pytest.mark.contract]

Read = Callable[[Engine, Batches], dict[str, Tensor]]


def while_drawing(engine: Engine, rows: Batches) -> dict[str, Tensor]:
    """[steps, D] of every valid row of a session."""
    return by_row(engine, rows, hidden=True)


def at_once(engine: Engine, rows: Batches) -> dict[str, Tensor]:
    """[D] of every valid row, without a session; the groups have different prompts and share a window."""
    pieces = [PRIVATE, PromptPieces((1, 50), (56,)), PRIVATE][: len(rows)]
    sizes = Sizes.of([PUBLIC], pieces, MOST, 1, 3)
    return named(rows, last_hidden(engine, pieces, [list(batch.values()) for batch in rows], sizes))


def named(rows: Batches, groups: Iterable[RowHidden]) -> dict[str, Tensor]:
    """The states of valid rows by the names of the rows."""
    return {
        name: values
        for batch, group in zip(rows, groups, strict=True)
        for name, values, valid in zip(batch, group.values, group.valid, strict=True)
        if valid
    }


READS: dict[str, Read] = {
    "while drawing": while_drawing,
    "at once": at_once,
}


@cache
def undisturbed(precision: Precision, read: str) -> tuple[Engine, dict[str, Tensor]]:
    """An engine in `precision`, and what the rows are in it before anything changes."""
    engine = Engine(lowered(precision))
    return engine, READS[read](engine, batches())


def felt_by_others(before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    """The other rows whose bits are not those from before."""
    others = before.keys() - {"changed"}
    assert len(others) == 8
    return sorted(name for name in others if not torch.equal(before[name], after[name]))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_other_rows_keep_every_bit(precision: Precision, read: str, change: str) -> None:
    if expect_refusal(precision):
        return
    engine, before = undisturbed(precision, read)
    after = READS[read](engine, CHANGES[change](batches()))
    assert felt_by_others(before, after) == []
    if change in ("replace", "lengthen", "shorten"):
        assert not torch.equal(before["changed"], after["changed"])
    if change in ("empty", "not a text", "remove"):
        assert "changed" not in after


@pytest.mark.parametrize("precision", PRECISIONS)
def test_public_rows_keep_every_bit(precision: Precision) -> None:
    if expect_refusal(precision):
        return

    def public(rows: Batches) -> Tensor:
        session = Engine(lowered(precision)).session(Sizes.of([PUBLIC], [PRIVATE], MOST, len(DRAWN) + 1, 3), len(rows))
        for number, batch in enumerate(rows):
            session.enter(number, PUBLIC, PRIVATE, list(batch.values()))
        found = []
        for token in DRAWN:
            session.private_hidden()
            found.append(session.public_hidden())
            session.advance([token] * len(rows))
        return torch.stack(found)

    before = public(batches())
    assert before.shape == (3, 3, 64)
    for change in ("lengthen", "remove", "more rows than nominal"):
        assert torch.equal(public(CHANGES[change](batches())), before)


@pytest.mark.parametrize("read", READS)
def test_one_scale_for_all_rows_fails_the_same_test(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: int8 with one activation scale per tensor."""
    if expect_refusal("int8"):
        return
    model = lowered("int8")
    monkeypatch.setattr(linear_layers, "quantised_rows", one_scale)
    with pytest.raises(RowsNotIsolated):
        IsolationCheck(model).layers(4, 32)
    monkeypatch.setattr(IsolationCheck, "_require", lambda *_: None)
    engine = Engine(model)
    before = READS[read](engine, batches())
    for change in ("replace", "lengthen", "shorten", "remove"):
        assert felt_by_others(before, READS[read](engine, CHANGES[change](batches()))), f"{change!r} was not felt"


@pytest.mark.slow_except("while drawing")
@pytest.mark.parametrize("read", READS)
def test_what_the_device_is_asked_is_public(tiny: Twins, read: str) -> None:
    """Where a device fails at one shape, the run must not end because somebody's text was there, or was long."""

    def asked(rows: Batches) -> frozenset[tuple[str | int, ...]]:
        engine = Engine(tiny.model, 4)
        READS[read](engine, rows)
        return engine.isolation.tested_shapes

    expected = asked(batches())
    assert expected
    for change in CHANGES.values():
        assert asked(change(batches())) == expected
    assert asked([{}, {}, {}]) == expected
    assert asked([{"one": text(1, 1)}, {}, {"empty": []}]) == expected


def _real(model: LanguageModel, notes: Sequence[str]) -> dict[str, list[int]]:
    return {str(number): model.tokenizer(note)["input_ids"][:60] for number, note in enumerate(notes)}


def _check_real(model: LanguageModel, reads: Sequence[str]) -> None:
    engine, rows = Engine(model), _real(model, NOTES)
    for read in reads:
        before = READS[read](engine, [rows])
        assert all(torch.isfinite(values).all() for values in before.values())
        for change, make in REAL_CHANGES.items():
            after = READS[read](engine, [make(rows)])
            for name in before.keys() - {"1"}:
                assert torch.equal(before[name], after[name]), f"row {name} felt {change!r} {read}"


@pytest.mark.slow
def test_real_model_keeps_every_bit(real: LanguageModel) -> None:
    _check_real(real, ["at once"])


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_real_model_keeps_every_bit_at_every_precision(real: LanguageModel, precision: Precision) -> None:
    if expect_refusal(precision):
        return
    _check_real(real if precision == "float32" else load(REAL, "cpu", precision), list(READS))
