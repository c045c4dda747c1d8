"""Last hidden states of public and private rows: the engine's are the network's own, and the logits come from them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.inference.engine.engine import Engine
from tasks.inference.engine.memory import MemoryRanOut
from tests.refusals import refusal
from tests.unit.tasks.inference.engine.test_engine import OTHER_PRIVATE, OTHER_PUBLIC, REFERENCES, start
from tests.unit.tasks.inference.fixtures import Twins
from tests.unit.tasks.inference.rows_at_work import MOST, PRIVATE, PUBLIC, text

pytestmark = pytest.mark.dear

GENERATIONS = [number for number, batch in enumerate(REFERENCES) for _ in batch]


@torch.inference_mode()
def alone(network: Any, tokens: Sequence[int]) -> Tensor:
    """transformers' own last hidden state for one unpadded row."""
    states: Tensor = network.model(torch.tensor([list(tokens)])).last_hidden_state[0, -1]
    return states


@pytest.mark.parametrize("chunk_rows", [None, 4])
def test_every_row_as_if_alone(tiny: Twins, chunk_rows: int | None) -> None:
    session = start(Engine(tiny.model, chunk_rows), REFERENCES)
    pieces = [OTHER_PRIVATE if number else PRIVATE for number in GENERATIONS]
    references = [row[:MOST] for batch in REFERENCES for row in batch]
    rows = [[*p.around(reference)] for p, reference in zip(pieces, references, strict=True)]
    public = [[*PUBLIC.tokens], *[[*OTHER_PUBLIC.tokens]] * 3]
    for tokens in ([40, 41, 42, 43], [60, 61, 62, 63], None):
        expected = torch.stack([alone(tiny.network, row) for row in public])
        torch.testing.assert_close(session.public_hidden(), expected, atol=1e-4, rtol=1e-4)
        hidden = session.private_hidden()
        expected = torch.stack([alone(tiny.network, row) for row in rows])
        torch.testing.assert_close(hidden.values, expected, atol=1e-4, rtol=1e-4)
        assert hidden.generation.tolist() == GENERATIONS
        assert hidden.valid.all()
        assert hidden.values.dtype == torch.float32
        if tokens is not None:
            session.advance(tokens)
            public = [[*row, token] for row, token in zip(public, tokens, strict=True)]
            rows = [[*row, tokens[number]] for number, row in zip(GENERATIONS, rows, strict=True)]


def test_logits_are_the_head_of_hidden_states(tiny: Twins) -> None:
    session = start(Engine(tiny.model), REFERENCES)
    for _ in range(3):
        hidden, logits = session.private_hidden(), session.private_logits()
        torch.testing.assert_close(tiny.model.logits(hidden.values), logits.values, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            tiny.model.logits(session.public_hidden()), session.public_logits(), atol=1e-5, rtol=1e-5
        )
        session.advance([40, 41, 42, 43])


def test_asking_changes_nothing(tiny: Twins) -> None:
    """Nor does the next step change what was given out."""
    asked, silent = (start(Engine(tiny.model), REFERENCES) for _ in range(2))
    for token in (40, 41):
        private, public = asked.private_hidden(), asked.public_hidden()
        kept = private.values.clone(), public.clone()
        for session in (asked, silent):
            session.public_logits(), session.private_logits()
            session.advance([token] * 4)
        asked.private_logits(), asked.public_logits()
        assert torch.equal(private.values, kept[0])
        assert torch.equal(public, kept[1])
    assert torch.equal(asked.private_logits().values, silent.private_logits().values)
    assert torch.equal(asked.public_logits(), silent.public_logits())


def test_hidden_states_can_be_trained_on(tiny: Twins) -> None:
    """They are ordinary tensors: those of inference mode cannot be saved for a backward pass."""
    session = start(Engine(tiny.model), REFERENCES)
    for values in (session.private_hidden().values, session.public_hidden()):
        linear = torch.nn.Linear(64, 2)
        linear(values).sum().backward()
        assert linear.weight.grad is not None


@pytest.mark.parametrize("null", [[], [300], [-1], [5, 10**9]])
def test_what_is_no_text_makes_a_null_row(tiny: Twins, null: list[int]) -> None:
    hidden = start(Engine(tiny.model), [[text(9, 1), null], [text(4, 2)]]).private_hidden()
    assert hidden.valid.tolist() == [True, False, True]
    assert hidden.generation.tolist() == [0, 0, 1]
    assert not hidden.values[1].any()
    assert hidden.values[[0, 2]].any(1).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_not_finite_is_null_and_alone_in_it(tiny: Twins, value: float) -> None:
    poison = 299

    def decoder(**inputs: Any) -> Any:
        output = tiny.model.decoder(**inputs)
        output.last_hidden_state[(inputs["input_ids"] == poison).any(1), :, 3] = value
        return output

    engine = Engine(replace(tiny.model, decoder=decoder))
    rows = [text(12, 0), [9, 10, 11], text(33, 1)]
    healthy = start(engine, [rows]).private_hidden()
    sick = start(engine, [[rows[0], [9, 10, poison], rows[2]]]).private_hidden()
    assert healthy.valid.all()
    assert sick.valid.tolist() == [True, False, True]
    assert not sick.values[1].any()
    assert torch.equal(sick.values[[0, 2]], healthy.values[[0, 2]])


def test_without_any_row(tiny: Twins) -> None:
    hidden = start(Engine(tiny.model), [[], []]).private_hidden()
    assert hidden.values.shape == (0, 64)
    assert hidden.generation.shape == hidden.valid.shape == (0,)


def test_where_memory_runs_out_the_session_ends(tiny: Twins) -> None:
    """Which rows there are is private: nothing is computed in another shape because they are many."""
    fails = False

    def decoder(**inputs: Any) -> Any:
        if fails:
            raise MemoryError
        return tiny.model.decoder(**inputs)

    session = start(Engine(replace(tiny.model, decoder=decoder), 4), REFERENCES)
    fails = True
    for ask in ("private_hidden", "public_hidden"):
        with pytest.raises(MemoryRanOut):
            getattr(session, ask)()


def test_where_not_even_one_generation_fits(tiny: Twins) -> None:
    def decoder(**inputs: Any) -> Any:
        raise MemoryError

    with refusal("NotEnoughMemory"):
        start(Engine(replace(tiny.model, decoder=decoder), 4), REFERENCES)
