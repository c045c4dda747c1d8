"""The engine computes what the network would compute for every row alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.session import Session
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompt_rendering import PromptPieces, private_prompt, public_prompt, reference_tokens
from tests.unit.tasks.inference.fixtures import Twins
from tests.unit.tasks.inference.rows_at_work import MOST, PRIVATE, PUBLIC, by_row, text

CONCERNS = ("tasks/inference",)

pytestmark = [pytest.mark.dear, pytest.mark.contract]

OTHER_PUBLIC = PromptPieces((1, 50, 51), (52, 53, 54, 55))
OTHER_PRIVATE = PromptPieces((1, 50), (56,))


def start(engine: Engine, references: Sequence[Sequence[Sequence[int]]], *, new: int = 4, nominal: int = 3) -> Session:
    """The first generation under one pair of prompts, all others under another."""
    sizes = Sizes.of([PUBLIC, OTHER_PUBLIC], [PRIVATE, OTHER_PRIVATE], MOST, new, nominal)
    session = engine.session(sizes, places=len(references))
    for number, batch in enumerate(references):
        pieces = (OTHER_PUBLIC, OTHER_PRIVATE) if number else (PUBLIC, PRIVATE)
        session.enter(number, *pieces, batch)
    return session


def plain(engine: Engine, prompts: Sequence[Sequence[int]], new: int) -> Session:
    """Generations without private rows."""
    pieces = [PromptPieces((), tuple(prompt)) for prompt in prompts]
    session = engine.session(Sizes.of(pieces, [], 0, new), places=len(prompts))
    for number, prompt in enumerate(pieces):
        session.enter(number, prompt, None, [])
    return session


@torch.inference_mode()
def alone(network: Any, tokens: Sequence[int]) -> Tensor:
    """transformers' own next-token logits for one unpadded row."""
    logits: Tensor = network(torch.tensor([list(tokens)])).logits[0, -1]
    return logits


REFERENCES = [
    [text(12, 0), text(64, 1), text(200, 2)],
    [text(3, number) for number in range(3, 9)],
    [],
    [text(33, 9)],
]


@pytest.mark.parametrize("chunk_rows", [None, 4])
def test_every_row_as_if_alone(tiny: Twins, chunk_rows: int | None) -> None:
    session = start(Engine(tiny.model, chunk_rows), REFERENCES)
    generations = [number for number, batch in enumerate(REFERENCES) for _ in batch]
    prompts = [OTHER_PRIVATE if number else PRIVATE for number in generations]
    rows = [[*p.around(r[:MOST])] for p, r in zip(prompts, [r for batch in REFERENCES for r in batch], strict=True)]
    public = [[*PUBLIC.tokens], *[[*OTHER_PUBLIC.tokens]] * 3]
    candidates = torch.arange(4 * 25).view(4, 25) * 3 % 300
    drawn = torch.tensor([[40, 41, 42, 43], [60, 61, 62, 63], [80, 81, 82, 83]])
    for tokens in [*drawn, None]:
        torch.testing.assert_close(
            session.public_logits(), torch.stack([alone(tiny.network, row) for row in public]), atol=1e-4, rtol=1e-4
        )
        logits = session.private_logits(candidates)
        expected = [alone(tiny.network, row)[candidates[g]] for g, row in zip(generations, rows, strict=True)]
        torch.testing.assert_close(logits.values, torch.stack(expected), atol=1e-4, rtol=1e-4)
        assert logits.generation.tolist() == generations
        assert logits.valid.all()
        assert logits.values.dtype == torch.float32
        if tokens is not None:
            session.advance(tokens.tolist())
            public = [[*row, int(token)] for row, token in zip(public, tokens, strict=True)]
            rows = [[*row, int(tokens[g])] for g, row in zip(generations, rows, strict=True)]


@pytest.mark.slow
def test_real_rows_as_if_alone(real: LanguageModel) -> None:
    notes = ["Doctor: Any fever?\nPatient: No.", "Patient: My knee hurts since Monday, mostly on stairs."]
    private, public = (make(real.tokenizer, "Visits to a doctor.") for make in (private_prompt, public_prompt))
    references = [reference_tokens(real.tokenizer, note, 40) for note in notes]
    session = Engine(real).session(Sizes.of([public], [private], 40, 2, 2), places=1)
    session.enter(0, public, private, references)
    session.advance([3000])
    for reference, values in zip(references, session.private_logits().values, strict=True):
        expected = plain(Engine(real), [[*private.around(reference), 3000]], 1).public_logits()[0]
        torch.testing.assert_close(values, expected, atol=1e-3, rtol=1e-4)


def test_whole_vocabulary_agrees_with_candidates(tiny: Twins) -> None:
    every = start(Engine(tiny.model), REFERENCES).private_logits()
    some = start(Engine(tiny.model), REFERENCES).private_logits(torch.tensor([[7, 299, 0]] * 4))
    assert every.values.shape == (10, 300)
    torch.testing.assert_close(every.values[:, [7, 299, 0]], some.values, atol=1e-4, rtol=1e-4)


def test_without_any_row(tiny: Twins) -> None:
    session = start(Engine(tiny.model), [[], []])
    logits = session.private_logits(torch.zeros((2, 5), dtype=torch.int64))
    assert logits.values.shape == (0, 5)
    assert logits.generation.shape == logits.valid.shape == (0,)
    session.advance([40, 41])
    expected = [alone(tiny.network, [*PUBLIC.tokens, 40]), alone(tiny.network, [*OTHER_PUBLIC.tokens, 41])]
    torch.testing.assert_close(session.public_logits(), torch.stack(expected), atol=1e-4, rtol=1e-4)


def test_plain_prompts_need_no_rows(tiny: Twins) -> None:
    prompts = [[1, 40, 41, 42], [*PRIVATE.around(text(60, 5))], [1, 40, 41, 42]]
    session = plain(Engine(tiny.model), prompts, 2)
    for tokens in (torch.tensor([50, 60, 70]), None):
        expected = torch.stack([alone(tiny.network, prompt) for prompt in prompts])
        torch.testing.assert_close(session.public_logits(), expected, atol=1e-4, rtol=1e-4)
        if tokens is not None:
            session.advance(tokens.tolist())
            prompts = [[*prompt, int(token)] for prompt, token in zip(prompts, tokens, strict=True)]


@pytest.mark.parametrize("null", [[], [300], [-1], [5, 10**9]])
def test_what_is_no_text_makes_a_null_row(tiny: Twins, null: list[int]) -> None:
    logits = start(Engine(tiny.model), [[text(9, 1), null], [text(4, 2)]]).private_logits()
    assert logits.valid.tolist() == [True, False, True]
    assert logits.generation.tolist() == [0, 0, 1]
    assert not logits.values[1].any()


def test_a_row_of_nan_is_null_and_alone_in_it(tiny: Twins) -> None:
    poison = 299

    def decoder(**inputs: Any) -> Any:
        output = tiny.model.decoder(**inputs)
        hit = (inputs["input_ids"] == poison).any(1)
        cache = inputs["past_key_values"]
        for values in cache.cache.values:  # as a NaN in the row's own layers would leave them
            values[cache.rows][hit] = torch.nan
        output.last_hidden_state[hit] = torch.nan
        return output

    model = replace(tiny.model, decoder=decoder)
    rows = {"a": text(12, 0), "sick": [9, 10, 11], "b": text(33, 1), "c": text(5, 2)}
    healthy = by_row(Engine(model), [rows])
    sick = by_row(Engine(model), [rows | {"sick": [9, poison, 11]}])
    assert sick.keys() == {"a", "b", "c"}
    assert all(torch.equal(sick[name], healthy[name]) for name in sick)


def test_infinite_logits_are_null(tiny: Twins) -> None:
    weight = tiny.model.head_weight.clone()
    weight[4] = torch.inf
    session = start(Engine(replace(tiny.model, head_weight=weight)), [[text(9, 1)]])
    assert not session.private_logits(torch.tensor([[3, 4]])).valid.any()
    assert session.private_logits(torch.tensor([[3, 5]])).valid.all()


def test_who_leaves_frees_slots_and_a_spared_chunk_goes(tiny: Twins) -> None:
    references = [[text(9 + n, n) for n in range(4)], [text(20 + n, n) for n in range(4)], [text(30, 7)]]
    whole, partly = (start(Engine(tiny.model, 4), references) for _ in range(2))
    for session in (whole, partly):
        session.private_logits()
    partly.leave(1)
    assert (len(whole._private.chunks), len(partly._private.chunks)) == (3, 2)
    whole.advance([40, 41, 42])
    partly.advance([40, 42])
    logits, fewer = whole.private_logits(), partly.private_logits()
    assert fewer.generation.tolist() == [0, 0, 0, 0, 1]
    assert torch.equal(fewer.values, logits.values[[0, 1, 2, 3, 8]])
    for number in (0, 2):
        partly.leave(number)
    assert partly.numbers == ()
    assert partly.private_logits().values.shape == (0, 300)
    assert not partly._private.chunks


def test_rows_of_a_chunk_that_is_spared_move_to_others_bit_for_bit(tiny: Twins) -> None:
    references = [[text(9 + n, n) for n in range(3)], [text(30 + n, n) for n in range(5)], [text(50, 7)]]
    whole, partly = (start(Engine(tiny.model, 4), references) for _ in range(2))
    for session in (whole, partly):
        session.private_logits()
        session.advance([40, 41, 42])
        session.private_logits()
    partly.leave(0)  # of nine rows in three chunks six are left, which two can hold
    assert len(partly._private.chunks) == 2
    whole.advance([50, 51, 52])
    partly.advance([51, 52])
    assert torch.equal(partly.private_logits().values, whole.private_logits().values[3:])


def test_rows_that_are_let_go_are_gone_and_the_public_row_goes_on(tiny: Twins) -> None:
    whole, partly = (start(Engine(tiny.model), REFERENCES) for _ in range(2))
    partly.private_logits()
    partly.let_go(1)
    logits = partly.private_logits()
    assert logits.generation.tolist() == [0, 0, 0, 3]
    assert torch.equal(logits.values, whole.private_logits().values[[0, 1, 2, 9]])
    assert torch.equal(partly.public_logits(), whole.public_logits())


def test_skipped_private_logits_are_caught_up(tiny: Twins) -> None:
    patient, hasty = (start(Engine(tiny.model), REFERENCES) for _ in range(2))
    for session in (patient, hasty):
        session.public_logits()
        session.private_logits()
    for token in (40, 41, 42):
        patient.private_logits()
        patient.public_logits()
        for session in (patient, hasty):
            session.advance([token] * 4)
    assert torch.equal(patient.private_logits().values, hasty.private_logits().values)
    assert torch.equal(patient.public_logits(), hasty.public_logits())


def test_private_rows_first_asked_for_late_have_read_what_was_drawn(tiny: Twins) -> None:
    patient, late = (start(Engine(tiny.model), REFERENCES) for _ in range(2))
    for token in (40, 41, 42):
        patient.private_logits()
        late.public_logits()
        for session in (patient, late):
            session.advance([token] * 4)
    torch.testing.assert_close(late.private_logits().values, patient.private_logits().values, atol=1e-4, rtol=1e-4)


class Recorder:
    """A decoder that remembers the shape of every pass, and whether it held a private token."""

    def __init__(self, model: LanguageModel, private: set[int]) -> None:
        self._decoder, self._private = model.decoder, private
        self.public: set[tuple[int, ...]] = set()
        self.with_private: set[tuple[int, ...]] = set()

    def __call__(self, **inputs: Any) -> Any:
        shape = (*inputs["input_ids"].shape, inputs["attention_mask"].shape[-1])
        secret = self._private & set(inputs["input_ids"].flatten().tolist())
        (self.with_private if secret else self.public).add(shape)
        return self._decoder(**inputs)


def test_shapes_are_public(tiny: Twins) -> None:
    """Contents, lengths and numbers of private rows change how often a pass runs, never its shape."""

    def shapes(references: list[list[list[int]]]) -> set[tuple[int, ...]]:
        recorder = Recorder(tiny.model, set())
        session = start(Engine(replace(tiny.model, decoder=recorder)), references)
        for token in (40, 41, 42):
            session.private_logits(torch.zeros((2, 9), dtype=torch.int64))
            session.advance([token] * 2)
        return recorder.public

    possible = shapes([[text(MOST, 1)] * 3, [text(MOST, 2)] * 3])
    for references in (
        [[text(1, 1)], [text(2, 2)]],
        [[text(500, 1), []], []],
        [[text(30 + n, n) for n in range(20)], [text(4, 3)]],
    ):
        assert shapes(references) <= possible


def test_public_rows_never_share_a_pass_with_private_text(tiny: Twins) -> None:
    secret = 123
    recorder = Recorder(tiny.model, {secret})
    engine = Engine(replace(tiny.model, decoder=recorder))
    alone_shapes = Recorder(tiny.model, set())
    alone = start(Engine(replace(tiny.model, decoder=alone_shapes)), [[], []])
    session = start(engine, [[[secret] * 30], [[secret] * 60, [secret]]])
    for each in (alone_shapes, recorder):  # of what the device is asked before there is any text
        each.public.clear()
        each.with_private.clear()
    alone.public_logits()
    session.public_logits()
    session.private_logits()
    assert alone_shapes.public <= recorder.public
    assert not alone_shapes.public & recorder.with_private


def test_every_stop_token_is_known(tiny: Twins) -> None:
    assert tiny.model.stop_tokens == (2, 5, 7)


def test_more_tokens_than_declared_are_an_error(tiny: Twins) -> None:
    session = start(Engine(tiny.model), [[text(5, 1)]], new=2)
    session.advance([40])
    with pytest.raises(ValueError, match="max_new_tokens"):
        session.advance([40])


def test_a_context_beyond_the_model_is_refused(tiny: Twins) -> None:
    with pytest.raises(ContextTooLong) as refused:
        start(Engine(tiny.model), [[]], new=600)
    assert refused.value.facts["possible"] == 512
    with pytest.raises(ContextTooLong):
        plain(Engine(tiny.model), [[1] * 500], 13)
    plain(Engine(tiny.model), [[1] * 500], 12)


def test_calls_that_make_no_sense(tiny: Twins) -> None:
    for public, private, most, new in (([], [PRIVATE], 5, 1), ([PUBLIC], [PRIVATE], 0, 1), ([PUBLIC], [PRIVATE], 5, 0)):
        with pytest.raises(ValueError, match="at least one"):
            Sizes.of(public, private, most, new)
    sizes = Sizes.of([PUBLIC], [PRIVATE], 5, 3, 1)
    with pytest.raises(ValueError, match="place"):
        Engine(tiny.model).session(sizes, places=0)
    with pytest.raises(ValueError, match="rows"):
        Engine(tiny.model, 5)
    session = Engine(tiny.model).session(sizes, places=1)
    long = (1,) * 9
    for public, private in (
        (PromptPieces((), ()), PRIVATE),
        (PromptPieces(long, ()), PRIVATE),
        (PUBLIC, PromptPieces((1,), ())),
        (PUBLIC, PromptPieces((), (1,))),
        (PUBLIC, PromptPieces(long, (1,))),
        (PUBLIC, PromptPieces((1,), long)),
    ):
        with pytest.raises(ValueError):
            session.enter(0, public, private, [])
    session.enter(0, PUBLIC, PRIVATE, [])
    for number in (0, 1):
        with pytest.raises(ValueError, match="places"):
            session.enter(number, PUBLIC, PRIVATE, [])


def test_wrong_tensors(tiny: Twins) -> None:
    session = start(Engine(tiny.model), [[text(5, 1)], []])
    with pytest.raises(ValueError, match="token each"):
        session.advance([1])
    with pytest.raises(ValueError, match="candidates"):
        session.private_logits(torch.zeros((3, 4), dtype=torch.int64))
