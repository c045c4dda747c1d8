"""PRIVACY §4.2 point 1: a row's logits are a function of that row, public inputs and the drawn prefix, to the bit."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from tasks.inference.catalogue.model_store import model_folder, silence_libraries
from tasks.inference.engine import isolation
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.isolation import IsolationCheck, RowsNotIsolated
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompt_rendering import private_prompt, public_prompt, reference_tokens
from tests.unit.tasks.inference.fixtures import Twins
from tests.unit.tasks.inference.naive import naive_logits
from tests.unit.tasks.inference.rows_at_work import DRAWN, MOST, PRIVATE, PUBLIC, by_row, text

CONCERNS = ("tasks/inference",)

pytestmark = [pytest.mark.dear, pytest.mark.contract]

Batches = list[dict[str, list[int]]]
LENGTHS = {"a": 12, "b": 33, "changed": 30, "c": 64, "d": 3, "e": 70, "f": 41, "g": 18, "h": 55}


def batches() -> Batches:
    """Three generations of three, four and two rows; the one that will change is in the first."""
    rows = {name: text(length, salt) for salt, (name, length) in enumerate(LENGTHS.items())}
    return [{name: rows[name] for name in names} for names in (["a", "changed", "b"], list("cdef"), ["g", "h"])]


def _set(new: list[int]) -> Callable[[Batches], Batches]:
    return lambda old: [{**old[0], "changed": new}, *old[1:]]


def _remove(old: Batches) -> Batches:
    return [{name: row for name, row in old[0].items() if name != "changed"}, *old[1:]]


def _permute(old: Batches) -> Batches:
    return [dict(reversed(batch.items())) for batch in old]


def _crowd(old: Batches) -> Batches:
    return [old[0] | {f"new {number}": text(9 + 7 * number, 90 + number) for number in range(9)}, *old[1:]]


CHANGES = {
    "replace": _set(text(30, 99)),
    "lengthen": _set(text(70, 2)),
    "lengthen beyond the limit": _set(text(200, 2)),
    "shorten": _set(text(2, 2)),
    "empty": _set([]),
    "not a text": _set([999_999]),
    "remove": _remove,
    "permute": _permute,
    "more rows than nominal": _crowd,
}


CANDIDATES = {True: torch.arange(60).view(3, 20) * 4, False: None}
Undisturbed = Callable[[int | None, bool], tuple[Engine, dict[str, Tensor]]]


@pytest.fixture(scope="module")
def undisturbed(tiny: Twins) -> Undisturbed:
    """An engine with so many rows a chunk, and what the rows are in it before anything changes; run once each."""

    @cache
    def run(chunk_rows: int | None, chosen: bool) -> tuple[Engine, dict[str, Tensor]]:
        engine = Engine(tiny.model, chunk_rows)
        return engine, by_row(engine, batches(), candidates=CANDIDATES[chosen])

    return run


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("chunk_rows", [None, 4, 12])
@pytest.mark.parametrize("chosen", [True, False], ids=["candidates", "vocabulary"])
def test_other_rows_keep_every_bit(undisturbed: Undisturbed, change: str, chunk_rows: int | None, chosen: bool) -> None:
    engine, before = undisturbed(chunk_rows, chosen)
    after = by_row(engine, CHANGES[change](batches()), candidates=CANDIDATES[chosen])
    others = before.keys() - {"changed"}
    assert len(others) == 8
    for name in others:
        assert torch.equal(before[name], after[name]), f"row {name} felt {change!r}"
    if change == "replace":
        assert not torch.equal(before["changed"], after["changed"])


def test_joint_padding_fails_the_same_test(tiny: Twins) -> None:
    def logits(longest: int) -> dict[str, Tensor]:
        prompts = [PRIVATE.around(row) for row in (text(longest, 2), text(12, 0), text(3, 4))]
        steps = naive_logits(tiny.network, [*prompts, PUBLIC.tokens], DRAWN)
        return {
            name: torch.stack([step[row] for step in steps]) for row, name in enumerate(("long", "a", "d", "public"))
        }

    before = logits(40)
    after = [logits(longest) for longest in range(43, 73, 3)]  # some lengths change nothing, by luck
    assert any(not torch.equal(before[name], one[name]) for one in after for name in ("a", "d", "public"))
    assert torch.allclose(before["a"], after[0]["a"], atol=1e-3)  # only the last bits: enough to tell on a neighbour


NOTES = [
    "Doctor: What brings you in?\nPatient: My knee hurts since Monday.",
    "Patient: I take no medicines.\nDoctor: Any allergies?\nPatient: Penicillin, when I was a child.",
    "Doctor: Any fever?\nPatient: No.",
    "Doctor: How long have you had the cough?\nPatient: Three weeks, and it is worse at night. " * 3,
    "Doctor: Do you smoke?\nPatient: I quit ten years ago, after my father's heart attack.",
]


@pytest.mark.slow
def test_real_model_keeps_every_bit(real: LanguageModel) -> None:
    rows = _notes(real, dict(enumerate(NOTES)))[0]
    long = " ".join(NOTES * 3)
    changes = {
        "replace": rows | {"1": list(reference_tokens(real.tokenizer, "An entirely different text.", 60))},
        "lengthen": rows | {"1": list(reference_tokens(real.tokenizer, long, 60))},
        "shorten": rows | {"1": rows["1"][:3]},
        "remove": {name: row for name, row in rows.items() if name != "1"},
        "permute": dict(reversed(rows.items())),
    }
    engine = Engine(real)
    before = _real_rows(engine, [rows])
    for change, changed in changes.items():
        after = _real_rows(engine, [changed])
        for name in before.keys() - {"1"}:
            assert torch.equal(before[name], after[name]), f"row {name} felt {change!r}"


@pytest.mark.slow
def test_joint_padding_fails_on_the_real_model(real: LanguageModel) -> None:
    with silence_libraries():
        plain = AutoModelForCausalLM.from_pretrained(model_folder(real.name, real.revision), dtype=torch.float32)

    def logits(longest: int) -> Tensor:
        rows = _notes(real, dict(enumerate(NOTES)))[0]
        prompts = [private_prompt(real.tokenizer, "Notes.").around(row) for row in rows.values()]
        prompts[3] = (*prompts[3], *prompts[3])[:longest]
        return torch.stack(naive_logits(plain, prompts, [40]))

    short, long = logits(80), logits(150)
    for row in (0, 1, 2, 4):
        assert torch.allclose(short[:, row], long[:, row], atol=1e-2)
    assert not torch.equal(short[:, [0, 1, 2, 4]], long[:, [0, 1, 2, 4]])


def _notes(model: LanguageModel, notes: dict[int, str]) -> Batches:
    return [{str(name): list(reference_tokens(model.tokenizer, note, 60)) for name, note in notes.items()}]


def _real_rows(engine: Engine, rows: Batches) -> dict[str, Tensor]:
    return by_row(
        engine,
        rows,
        nominal=5,
        public=public_prompt(engine.model.tokenizer, "Notes."),
        private=private_prompt(engine.model.tokenizer, "Notes."),
        most=60,
        drawn=[3000, 28],
    )


def _rigged(model: LanguageModel, spoil: Callable[[Tensor], Tensor]) -> LanguageModel:
    def decoder(**inputs: Any) -> Any:
        output = model.decoder(**inputs)
        output.last_hidden_state = spoil(output.last_hidden_state)
        return output

    return replace(model, decoder=decoder)


SPOILS: dict[str, Callable[[Tensor], Tensor]] = {
    "one scale for all rows": lambda h: torch.round(h / h.abs().max() * 127) * h.abs().max() / 127,
    "the place counts": lambda h: h * (1 + 1e-6 * torch.arange(len(h))[:, None, None]),
    "the neighbour counts": lambda h: h + 1e-6 * h.roll(1, dims=0),
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_device_that_couples_rows_is_found_out(tiny: Twins, spoil: str) -> None:
    with pytest.raises(RowsNotIsolated) as refused:
        IsolationCheck(_rigged(tiny.model, SPOILS[spoil])).layers(8, 1)
    assert refused.value.exit_code == 3
    assert "--device" not in refused.value.advice  # it is a CPU
    assert "precision bfloat16" in refused.value.advice


def test_a_head_that_couples_rows_is_found_out(tiny: Twins) -> None:
    class Coupled(torch.nn.Module):
        def forward(self, hidden: Tensor) -> Tensor:
            return tiny.model.logits(hidden + 1e-5 * hidden.mean(0))

    with pytest.raises(RowsNotIsolated):
        IsolationCheck(replace(tiny.model, packed_head=Coupled())).head(8)  # type: ignore[arg-type]


def test_candidate_products_that_couple_rows_are_found_out(tiny: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LanguageModel, "logits_of", lambda self, hidden, tokens: hidden[:, :1] + hidden.mean())
    with pytest.raises(RowsNotIsolated):
        IsolationCheck(tiny.model).candidates(8, 256)


def test_candidates_of_each_row_that_couple_rows_are_found_out(tiny: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LanguageModel, "logits_of_each", lambda self, hidden, tokens: hidden[:, :1] + hidden.mean())
    with pytest.raises(RowsNotIsolated, match="8 rows, 256 candidates of each row"):
        IsolationCheck(tiny.model).candidates_by_row(8, 256)


def test_attention_that_couples_rows_is_found_out(tiny: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    """From some number of columns on, as a kernel that splits its work does."""
    honest = tiny.model.attention

    def coupled(module: Any, query: Tensor, key: Tensor, *more: Any, **options: Any) -> Any:
        mixed, nothing = honest(module, query, key, *more, **options)
        return mixed + 1e-6 * mixed.roll(1, 0) * (key.shape[2] >= 96), nothing

    monkeypatch.setattr(LanguageModel, "attention", property(lambda self: coupled))
    check = IsolationCheck(tiny.model)
    check.attention(8, 1, [64, 80], 112)
    with pytest.raises(RowsNotIsolated, match="8 rows, 1 x 96 x 112 attention"):
        check.attention(8, 1, [64, 80, 96, 112], 112)


def test_a_shape_is_asked_about_once(tiny: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    check = IsolationCheck(tiny.model)

    def ask() -> None:
        check.layers(8, 1)
        check.attention(8, 1, [96], 112)
        check.head(8)
        check.candidates(8, 256)

    ask()
    monkeypatch.setattr(isolation, "arrangements", lambda *_: pytest.fail("asked again"))
    ask()


def test_reference_limit_is_part_of_the_row_itself(tiny: Twins) -> None:
    long = text(200, 2)
    assert torch.equal(
        by_row(Engine(tiny.model), [{"x": long}])["x"], by_row(Engine(tiny.model), [{"x": long[:MOST]}])["x"]
    )


@pytest.mark.slow_except("candidates")
@pytest.mark.parametrize("chosen", [True, False], ids=["candidates", "vocabulary"])
def test_what_the_device_is_asked_is_public(tiny: Twins, chosen: bool) -> None:
    """Where a device fails at one shape, the run must not end because somebody's text was there, or was long."""

    def asked(rows: Batches) -> frozenset[tuple[str | int, ...]]:
        engine = Engine(tiny.model, 4)
        by_row(engine, rows, candidates=CANDIDATES[chosen])
        return engine.isolation.tested_shapes

    expected = asked(batches())
    for change in CHANGES.values():
        assert asked(change(batches())) == expected
    assert asked([{}, {}, {}]) == expected
    assert asked([{"one": text(1, 1)}, {}, {"empty": []}]) == expected


def test_a_session_asks_nothing_that_was_not_asked_when_it_was_opened(tiny: Twins) -> None:
    for chunk_rows in (None, 4):
        engine = Engine(tiny.model, chunk_rows)
        session = engine.session(Sizes.of([PUBLIC], [PRIVATE], MOST, 40, 3), 2, drawn=[7])
        before = engine.isolation.tested_shapes
        session.enter(0, PUBLIC, PRIVATE, [text(9, 1)], drawn=text(7, 5))
        for step in range(39 - 7):
            if step == 3:
                session.enter(1, PUBLIC, PRIVATE, [text(MOST, 2), text(1, 3)])
            some = torch.arange(4 + step)[None].expand(len(session.numbers), -1)
            session.private_logits(some if step % 3 else None)
            session.advance([40 + step] * len(session.numbers))
        assert engine.isolation.tested_shapes == before
