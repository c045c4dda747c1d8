"""Audits of whole texts: every draw of the shipped loop is written down, or forced, with its exact probability.

The attacker knows everything but whether the unit is there, and computes the exact likelihood ratio of each text: the
loop is run again on both batches with the text forced. The length of a text is part of it: where the loop would have
ended the text sooner or later, the text is impossible.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.decoding.loop import (
    BudgetMeter,
    DrawMeter,
    GenerationJob,
    SamplingRule,
    Step,
    decode,
    open_session,
)
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.session import Session
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompt_rendering import PromptPieces
from tasks.mechanisms.core.rng import OS_RANDOM, RandomSource
from tasks.mechanisms.tokens import integer_table, utility_scores
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.mechanisms.tokens.utility_scores import Candidates
from tests.tiny_model import tiny_model

CONFIDENCE, DELTA, CLAIM = 0.9999, "0.03", 1.0
ROWS, TEMPERATURE, IMPOSSIBLE = 2, "0.25", -1e9
PUBLIC, PRIVATE = PromptPieces((10, 11), (12,)), PromptPieces((10, 11, 13), (14,))
OTHER, UNIT = (30, 31, 32, 33), (77, 78, 200, 90, 150)
LONGEST = 8
Batch = tuple[tuple[int, ...], ...]
"""The tokens of each row, LONGEST at most."""
BATCHES: tuple[Batch, Batch] = ((OTHER, UNIT), (OTHER,))
Texts = Mapping[int, Sequence[int]]
MakesRule = Callable[[IntegerTableMechanism, BudgetMeter], SamplingRule]


@dataclass
class Draws:
    """Every draw of a run, of the rule or of the public model: written down, or forced.

    Attributes:
        forced: the tokens of each text, its end included; without it they are drawn.
        tokens, logs: of each text, what it drew and the logarithm of its probability.
        numbers: whose tokens are being drawn.
    """

    forced: Texts | None = None
    tokens: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    logs: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    numbers: Sequence[int] = ()
    honest: Any = utility_scores.draw_tokens

    def draw(self, kind: IntegerTableMechanism, found: Candidates, summed: Any, rng: RandomSource) -> list[int]:
        """As `utility_scores.draw_tokens`."""
        tokens = self.honest(kind, found, summed, rng) if self.forced is None else [self._next(n) for n in self.numbers]
        unit = kind.references * 2**kind.grid_exponent * float(kind.temperature)
        logs = (summed.double() / unit).masked_fill(~found.allowed, -float("inf")).log_softmax(1)
        for row, (number, token) in enumerate(zip(self.numbers, tokens, strict=True)):
            if self.forced is not None and len(self.tokens[number]) >= len(self.forced[number]):
                self.logs[number] = IMPOSSIBLE  # this batch's text would go on
            self.tokens[number].append(token)
            self.logs[number] += float(logs[row, found.tokens[row] == token])
        return tokens

    def likelihoods(self, texts: Texts) -> dict[int, float]:
        """Of each forced text; one that this batch would have ended sooner is impossible."""
        return {n: self.logs[n] if len(self.tokens[n]) >= len(tokens) else IMPOSSIBLE for n, tokens in texts.items()}

    def _next(self, number: int) -> int:
        tokens, place = (self.forced or {})[number], len(self.tokens[number])
        return tokens[place] if place < len(tokens) else tiny_model().stop_tokens[0]


@dataclass
class Watched:
    """A rule, or what draws public tokens; says whose tokens are being drawn."""

    inner: Any
    draws: Draws

    def next_tokens(self, step: Any, public: Any = None) -> list[Any]:
        if isinstance(step, Step):
            self.draws.numbers = step.numbers
            return self.inner.next_tokens(step)  # type: ignore[no-any-return]
        self.draws.numbers = self._numbers(step, public)
        return self.inner.next_tokens(step, public)  # type: ignore[no-any-return]

    def _numbers(self, numbers: Sequence[int], public: Any) -> Sequence[int]:
        """Whose tokens are drawn, of those whose public logits are given."""
        return numbers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass(frozen=True)
class Trial:
    """How the audited texts are drawn.

    Attributes:
        draws: T, charged draws of a text.
        tokens: the most tokens of a text.
        options: further arguments of `decode`, for an open session.
        rule: InvisibleInk's, with whatever is audited of it.
        admitted: draws of a text that the meter admits, where a twin makes more than T.
    """

    draws: int
    tokens: int
    options: Callable[[Session, Draws], Mapping[str, Any]] = lambda session, draws: {}
    rule: MakesRule = lambda draw, meter: InvisibleInkRule(draw, 0, "log_probability", OS_RANDOM, meter)
    admitted: int | None = None

    def run(self, draw: IntegerTableMechanism, batch: Batch, count: int, forced: Texts | None = None) -> Draws:
        """`count` texts, each from this batch; as many at a time as fit into 16 megabytes, so they come and go."""
        draws, sizes = Draws(forced), Sizes.of([PUBLIC], [PRIVATE], LONGEST, self.tokens, references=ROWS)
        engine = Engine(tiny_model(), memory=2**24)
        session = open_session(engine, count, sizes)
        admitted = self.admitted or self.draws
        rule = Watched(self.rule(draw, DrawMeter(admitted, admitted, lambda number: None)), draws)
        jobs = [GenerationJob(PUBLIC, PRIVATE, batch)] * count
        with watching(draws):
            decode(engine, jobs, count, sizes, rule, session=session, **self.options(session, draws))
        return draws

    def audit(self, count: int) -> float:
        """A lower bound on epsilon from `count` texts of each of the two batches."""
        draw = calibrated(self.draws)
        ratios = []
        for batch in BATCHES:
            texts = dict(self.run(draw, batch, count).tokens)
            with_it, without = (self.run(draw, each, count, texts).likelihoods(texts) for each in BATCHES)
            ratios.append([with_it[number] - without[number] for number in sorted(texts)])
        return epsilon_lower_bound(*ratios, float(DELTA), CONFIDENCE).epsilon


def decode_batches(
    draw: IntegerTableMechanism, count: int, rows: int, batches: Sequence[Batch], forced: Texts | None = None
) -> Draws:
    """One text of `count` draws by InvisibleInk from each batch; as many at a time as fit into four megabytes.

    Args:
        rows: the nominal number of rows of a batch.
        forced: the tokens of each text, by the number of its batch; without it they are drawn.
    """
    draws, sizes = Draws(forced), Sizes.of([PUBLIC], [PRIVATE], LONGEST, count, references=rows)
    meter = DrawMeter(count, count, lambda number: None)
    rule = Watched(InvisibleInkRule(draw, 0, "log_probability", OS_RANDOM, meter), draws)
    jobs = [GenerationJob(PUBLIC, PRIVATE, batch) for batch in batches]
    with watching(draws):
        decode(Engine(tiny_model(), memory=2**22), jobs, len(jobs), sizes, rule)
    return draws


@contextmanager
def watching(draws: Draws) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utility_scores, "draw_tokens", draws.draw)
        yield


def calibrated(draws: int) -> IntegerTableMechanism:
    """So many draws cost epsilon 1."""
    draw = integer_table.calibrate(rho_of("1", DELTA), draws, ROWS, TEMPERATURE)
    assert 0.999 < epsilon_of(draw.event(draws).loss.rho, DELTA) <= CLAIM
    return draw
