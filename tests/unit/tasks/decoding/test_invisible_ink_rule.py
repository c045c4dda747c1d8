"""What InvisibleInk's rule asks for, pays for and counts."""

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from tasks.decoding.loop import DrawMeter, Step
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.inference.engine.session import RowLogits
from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.mechanisms.tokens.integer_table import GRID_EXPONENT, IntegerTableMechanism

PUBLIC = torch.tensor([[5.0, 4.0, 3.0, 2.0, -40.0, -41.0]])


def no_rows(candidates: Tensor | None) -> RowLogits:
    width = 6 if candidates is None else candidates.shape[1]
    none = torch.zeros(0, dtype=torch.int64)
    return RowLogits(torch.zeros((0, width)), none, none.bool())


def step(public: Tensor = PUBLIC, private: Callable[[Tensor | None], RowLogits] = no_rows, at: int = 0) -> Step:
    live = len(public)
    return Step(tuple(range(live)), (at,) * live, public, private, lambda index: None)


def rule(top_k: int | None, clip: float = 1.0, arm: Callable[[int], None] = lambda number: None) -> InvisibleInkRule:
    draw = IntegerTableMechanism(
        clip_steps=round(clip * 2**GRID_EXPONENT), references=2, temperature=Fraction(1), head_room=8 * 2**GRID_EXPONENT
    )
    return InvisibleInkRule(draw, top_k, "logit", DeterministicRandom("rule"), DrawMeter(1, 400, arm))


def test_only_candidates_are_asked_for_and_they_come_from_public_logits() -> None:
    asked: list[list[int]] = []

    def private(candidates: Tensor | None) -> RowLogits:
        assert candidates is not None
        asked.append(sorted(candidates[0].tolist()))
        return no_rows(candidates)

    rule(2).next_tokens(step(private=private))
    assert asked == [[0, 1, 2]]  # two, and what is within 2C/B = 1 of the second


def test_the_whole_vocabulary_is_asked_for_as_such() -> None:
    asked: list[Tensor | None] = []

    def private(candidates: Tensor | None) -> RowLogits:
        asked.append(candidates)
        return no_rows(candidates)

    for top_k in (None, 0, 6, 100):
        rule(top_k).next_tokens(step(private=private))
    assert asked == [None] * 4


def test_a_draw_is_paid_for_before_rows_are_read() -> None:
    seen: list[object] = []

    def private(candidates: Tensor | None) -> RowLogits:
        seen.append("read")
        return no_rows(candidates)

    rule(2, arm=seen.append).next_tokens(step(private=private, at=1))
    assert seen == [0, 1, "read"]


def test_figures_count_candidates_and_draws_from_the_expansion() -> None:
    drawing, tokens = rule(1), []
    for at in range(300):
        tokens += drawing.next_tokens(step(at=at))
    facts = drawing.facts(0)
    assert facts["effective_k"] == 2.0  # the likeliest, and the one that is 2C/B = 1 below
    assert facts["from_expansion"] == sum(token == 1 for token in tokens) > 0
    assert drawing.facts(9) == {"draws": 0.0, "effective_k": 0.0, "from_expansion": 0.0}


@pytest.mark.parametrize("allowed", [1, 2])
def test_a_constraint_may_leave_fewer_tokens_than_k(allowed: int) -> None:
    public = PUBLIC.clone()
    public[:, allowed:] = -torch.inf
    drawing = rule(4)
    assert drawing.next_tokens(step(public))[0] < allowed
    assert drawing.facts(0) == {"draws": 1.0, "effective_k": float(allowed), "from_expansion": 0.0}
