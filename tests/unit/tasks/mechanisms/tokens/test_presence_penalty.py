"""The presence penalty: what is lowered, and that nothing private can see or move it."""

from fractions import Fraction

import torch

from tasks.generation.decoding.invisible_ink_rule import InvisibleInkRule
from tasks.generation.decoding.loop import DrawMeter, Step
from tasks.inference.engine.session import RowLogits
from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.mechanisms.tokens import sampler, utility_scores
from tasks.mechanisms.tokens.presence_penalty import penalised

PUBLIC = torch.tensor([[5.0, 4.0, 3.0, -torch.inf], [1.0, 2.0, 3.0, 4.0]])


def test_each_token_that_a_text_has_is_lowered_once() -> None:
    lowered = penalised(PUBLIC, [[0, 2, 0, 3], []], Fraction("0.5"))
    assert lowered.tolist() == [[4.5, 4.0, 2.5, -torch.inf], [1.0, 2.0, 3.0, 4.0]]
    assert PUBLIC[0, 0] == 5.0
    assert lowered.dtype == torch.float32
    assert penalised(PUBLIC, [[0], [1]], None) is PUBLIC


def test_the_rows_contribute_what_they_contribute_without_it(monkeypatch) -> None:
    """The scores differ from those without a penalty by the penalty alone, to the unit, and so does what a row adds."""
    seen: list[torch.Tensor] = []
    draw_tokens = utility_scores.draw_tokens

    def draw(kind, found, summed, rng):
        order = found.tokens.argsort(1)
        seen.append(summed.gather(1, order))
        return draw_tokens(kind, found, summed, rng)

    monkeypatch.setattr(utility_scores, "draw_tokens", draw)
    mechanism = sampler.calibrate("table", 10**11, 4, 2, "1")
    rule = InvisibleInkRule(
        mechanism, 0, "log_probability", DeterministicRandom("a"), DrawMeter(4, 4, lambda number: None)
    )
    public = PUBLIC[1:]
    private = torch.tensor([[4.0, 1.0, 0.0, 2.0], [0.0, 9.0, 0.0, 0.0]])

    def scores(rows: torch.Tensor, drawn: list[int]) -> torch.Tensor:
        logits = RowLogits(rows, torch.zeros(len(rows), dtype=torch.int64), torch.ones(len(rows), dtype=torch.bool))
        lowered = penalised(public, [drawn], Fraction(1))
        rule.next_tokens(Step((0,), (0,), public, lowered, lambda candidates: logits, lambda index: None))
        return seen.pop()

    unit = 2 * 2**mechanism.grid_exponent
    plain, with_penalty = scores(private, []), scores(private, [1])
    assert (with_penalty - plain).tolist() == [[0, -unit, 0, 0]]
    moved = scores(private, [1]) - scores(private[:1], [1])
    assert torch.equal(moved, scores(private, []) - scores(private[:1], []))
    assert 0 < moved.abs().max() <= mechanism.clip_steps
