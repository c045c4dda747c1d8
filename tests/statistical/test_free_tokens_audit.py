"""An audit of texts with free tokens (PRIVACY §8): shipped loop, engine, rule, sampler and `FreeTokens`.

As in test_decoding_audit.py the attacker knows everything but whether the unit is there, and computes the exact
likelihood ratio of each text: the loop is run again on both batches with the text forced. Here the length of a text is
part of it: where the loop would have ended the text sooner or later, the text is impossible. The claim is the epsilon
1 at DELTA of T charged draws, however many tokens are free beside them.

The broken twins: one decides by the mean of the private rows whether a position is free; one never counts a charged
draw, so that charged draws go on up to the bound on a text's tokens.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.generation.decoding.free_tokens import FreeTokens
from tasks.generation.decoding.invisible_ink_rule import InvisibleInkRule
from tasks.generation.decoding.loop import DrawMeter, GenerationJob, Step, decode, open_session
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.session import Session
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompts.render import PromptPieces
from tasks.mechanisms.core.rng import OS_RANDOM, RandomSource
from tasks.mechanisms.tokens import sampler, utility_scores
from tasks.mechanisms.tokens.sampler import TokenMechanism
from tasks.mechanisms.tokens.utility_scores import Candidates
from tests.tiny_model import tiny_model

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

CONFIDENCE, DELTA, CLAIM = 0.9999, "0.03", 1.0
DRAWS, TOKENS, ROWS = 3, 6, 2
TEMPERATURE, ABOVE = "0.25", Fraction("0.6")
IMPOSSIBLE, ENDLESS = -1e9, 10**6
PUBLIC, PRIVATE = PromptPieces((10, 11), (12,)), PromptPieces((10, 11, 13), (14,))
OTHER, UNIT = (30, 31, 32, 33), (77, 78, 200, 90, 150)
Batch = tuple[tuple[int, ...], ...]
Texts = Mapping[int, Sequence[int]]
MakesFree = Callable[[Session, int], FreeTokens]


@dataclass
class Draws:
    """Every draw of a run, of the rule or of a free token: written down, or forced.

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

    def draw(self, kind: TokenMechanism, found: Candidates, summed: Tensor, rng: RandomSource) -> list[int]:
        """As `utility_scores.draw_tokens`."""
        tokens = self.honest(kind, found, summed, rng) if self.forced is None else [self._next(n) for n in self.numbers]
        unit = kind.references * 2**kind.grid_exponent * float(kind.temperature)
        logs = (summed.double() / unit).masked_fill(~found.allowed, -torch.inf).log_softmax(1)
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
    """A rule, or what draws free tokens; says whose tokens are being drawn."""

    inner: Any
    draws: Draws

    def next_tokens(self, step: Any, public: Tensor | None = None) -> list[Any]:
        if isinstance(step, Step):
            self.draws.numbers = step.numbers
            return self.inner.next_tokens(step)  # type: ignore[no-any-return]
        assert public is not None
        self.draws.numbers = [step[place] for place in self.inner._confident(public)]
        return self.inner.next_tokens(step, public)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def honest(session: Session, draws: int) -> FreeTokens:
    """What a release with free tokens has."""
    return FreeTokens(ABOVE, sampler.public_sampler(TEMPERATURE, "table"), 0, draws, OS_RANDOM)


class FreeByPrivateRows(FreeTokens):
    """A broken twin: a position is free where the mean of the private rows is sure of it."""

    def next_tokens(self, numbers: Sequence[int], public: Tensor) -> list[int | None]:
        self.__dict__["now"] = numbers
        return super().next_tokens(numbers, public)

    def _confident(self, public: Tensor) -> list[int]:
        session: Session = self.__dict__["session"]
        rows, live = session.private_logits(), session.numbers
        means = torch.stack([rows.values[rows.generation == place].mean(0) for place in range(len(live))])
        return super()._confident(means[[live.index(number) for number in self.__dict__["now"]]])


class WatchedTwin(Watched):
    """The twin has to know whose public rows it is given before it is asked which are free."""

    def next_tokens(self, step: Any, public: Tensor | None = None) -> list[Any]:
        if not isinstance(step, Step):
            self.inner.__dict__["now"] = step
        return super().next_tokens(step, public)


def by_private_rows(session: Session, draws: int) -> FreeTokens:
    twin = FreeByPrivateRows(ABOVE, sampler.public_sampler(TEMPERATURE, "table"), 0, draws, OS_RANDOM)
    twin.__dict__["session"] = session
    return twin


def uncounted(session: Session, draws: int) -> FreeTokens:
    """A broken twin: charged draws do not bring the end of the text nearer."""
    return honest(session, ENDLESS)


@contextmanager
def watching(draws: Draws) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utility_scores, "draw_tokens", draws.draw)
        yield


def run(
    draw: TokenMechanism,
    batch: Batch,
    trials: int,
    free: MakesFree,
    draws_per_text: int = DRAWS,
    tokens: int = TOKENS,
    forced: Texts | None = None,
) -> Draws:
    """`trials` texts, each from this batch; as many at a time as fit into 16 megabytes, so they come and go."""
    draws, sizes = Draws(forced), Sizes.of([PUBLIC], [PRIVATE], 8, tokens, references=ROWS)
    engine = Engine(tiny_model(), memory=2**24)
    session = open_session(engine, trials, sizes)
    admitted = ENDLESS if free is uncounted else draws_per_text
    meter = DrawMeter(admitted, admitted, lambda number: None)
    rule = Watched(InvisibleInkRule(draw, 0, "log_probability", OS_RANDOM, meter), draws)
    watched: Any = (WatchedTwin if free is by_private_rows else Watched)(free(session, draws_per_text), draws)
    jobs = [GenerationJob(PUBLIC, PRIVATE, batch)] * trials
    with watching(draws):
        decode(engine, jobs, trials, sizes, rule, free=watched, session=session)
    return draws


def calibrated(draws: int) -> TokenMechanism:
    """So many draws cost epsilon 1."""
    draw = sampler.calibrate("table", rho_of("1", DELTA), draws, ROWS, TEMPERATURE)
    assert 0.999 < epsilon_of(draw.event(draws).loss.rho, DELTA) <= CLAIM
    return draw


def audit(free: MakesFree, trials: int, draws: int = DRAWS, tokens: int = TOKENS) -> float:
    """A lower bound on epsilon."""
    draw = calibrated(draws)
    batches: tuple[Batch, Batch] = ((OTHER, UNIT), (OTHER,))
    ratios = []
    for batch in batches:
        texts = dict(run(draw, batch, trials, free, draws, tokens).tokens)
        with_it, without = (run(draw, each, trials, free, draws, tokens, texts).likelihoods(texts) for each in batches)
        ratios.append([with_it[number] - without[number] for number in sorted(texts)])
    return epsilon_lower_bound(*ratios, float(DELTA), CONFIDENCE).epsilon


def test_texts_stay_below_the_claim_however_many_of_their_tokens_are_free() -> None:
    texts = run(calibrated(DRAWS), (OTHER, UNIT), 400, honest).tokens.values()
    assert sum(len(tokens) - DRAWS for tokens in texts) > 0.1 * sum(map(len, texts))  # there is something to audit
    assert audit(honest, 4000) < CLAIM


def test_positions_that_are_free_by_private_rows_are_caught() -> None:
    assert audit(by_private_rows, 1000) > CLAIM


def test_charged_draws_that_are_not_counted_are_caught() -> None:
    assert audit(uncounted, 1500, draws=2, tokens=90) > CLAIM
