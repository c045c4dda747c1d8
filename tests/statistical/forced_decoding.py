"""The shipped decoding loop and engine on a tiny model, its draws written down or forced.

An attacker who knows everything but whether a unit is there computes the exact likelihood ratio of each text: the loop
is run again on another batch with the text forced, and the scores of its draws are written down.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from tasks.generation.decoding.invisible_ink_rule import InvisibleInkRule
from tasks.generation.decoding.loop import DrawMeter, GenerationJob, SamplingRule, Step, decode
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompts.render import PromptPieces
from tasks.mechanisms.core.rng import OS_RANDOM, RandomSource
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.sampler import TokenMechanism
from tasks.mechanisms.tokens.utility_scores import Candidates
from tests.tiny_model import tiny_model

PUBLIC, PRIVATE = PromptPieces((10, 11), (12,)), PromptPieces((10, 11, 13), (14,))
LONGEST = 8
Batch = tuple[tuple[int, ...], ...]
"""The tokens of each row, LONGEST at most."""
Texts = Mapping[int, Sequence[int]]


@dataclass
class Watched:
    """A rule whose draws are written down, or forced.

    Attributes:
        forced: the tokens of each generation; without it they are drawn.
        tokens, logs: of each generation, what it drew and the logarithm of its probability.
    """

    rule: SamplingRule
    forced: Mapping[int, Sequence[int]] | None = None
    tokens: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    logs: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))

    def next_tokens(self, step: Step) -> list[int]:
        honest = utility_scores.draw_tokens

        def draw(kind: TokenMechanism, found: Candidates, summed: torch.Tensor, rng: RandomSource) -> list[int]:
            given = self.forced
            drawn = [given[n][p] for n, p in zip(step.numbers, step.positions, strict=True)] if given else None
            tokens = drawn or honest(kind, found, summed, rng)
            unit = kind.references * 2**kind.grid_exponent * float(kind.temperature)
            logs = (summed.double() / unit).masked_fill(~found.allowed, -torch.inf).log_softmax(1)
            for row, (number, token) in enumerate(zip(step.numbers, tokens, strict=True)):
                self.tokens[number].append(token)
                self.logs[number] += float(logs[row, found.tokens[row] == token])
            return tokens

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(utility_scores, "draw_tokens", draw)
            return self.rule.next_tokens(step)

    def facts(self, number: int) -> Mapping[str, float]:
        return {}


def decode_batches(
    draw: TokenMechanism, draws: int, rows: int, batches: Sequence[Batch], forced: Texts | None = None
) -> Watched:
    """One text of `draws` draws from each batch; as many at a time as fit into four megabytes, so they come and go.

    Args:
        rows: the nominal number of rows of a batch.
        forced: the tokens of each text, by the number of its batch; without it they are drawn.
    """
    meter = DrawMeter(draws, draws, lambda number: None)
    watched = Watched(InvisibleInkRule(draw, 0, "log_probability", OS_RANDOM, meter), forced)
    sizes = Sizes.of([PUBLIC], [PRIVATE], LONGEST, draws, references=rows)
    jobs = [GenerationJob(PUBLIC, PRIVATE, batch) for batch in batches]
    decode(Engine(tiny_model(), memory=2**22), jobs, len(jobs), sizes, watched)
    return watched
