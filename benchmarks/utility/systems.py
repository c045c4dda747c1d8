"""Each system's next-token distribution from given logits, computed by the rule that a release runs.

A rule hands integer scores to its draw; here the draw is a recorder, which keeps the distribution those scores mean
instead of drawing from it. Calibration is the system's own too (`calibrate`), so that what is measured is what runs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch
from torch import Tensor

from tasks.accounting.zcdp import release_amount
from tasks.decoding.loop import DrawMeter, SamplingRule, Step
from tasks.inference.engine.session import RowLogits
from tasks.mechanisms.core.rng import DeterministicRandom, RandomSource
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.integer_table import GRID_EXPONENT, IntegerTableMechanism
from tasks.mechanisms.tokens.sparse_vector import SparseVector, calibrate_tests
from tasks.systems.private_prediction.rule import PrivatePredictionRule
from tasks.systems.registry import SYSTEMS

DELTA = Decimal("1e-5")
TOKENS = 200
"""T, tokens of a text that the budget pays for."""

INK, PAPER, AMIN, AMIN_PRIVATE, ICL = "ink", "ink_paper", "amin", "amin_private", "icl"
PUBLIC, MEAN, SINGLE = "public", "mean", "single"
PRIVATE_SYSTEMS: Mapping[str, tuple[str, dict[str, Any]]] = {
    INK: ("invisible_ink", {"clipping": "log_probability"}),
    PAPER: ("invisible_ink", {"clipping": "logit"}),
    AMIN: ("private_prediction", {}),
    ICL: ("private_icl", {}),
}
TEST_RUNS = 64
"""How often the noise of Amin et al.'s tests is drawn along each text."""


@dataclass(frozen=True)
class Setting:
    """One point of the grid.

    Attributes:
        epsilon: buys the clip norm; None where `clip` is given instead, or nothing is bought.
        top_k: 0 for the whole vocabulary.
    """

    system: str
    epsilon: str | None
    references: int
    temperature: str = "1"
    top_k: int = 100
    clip: str | None = None


@dataclass(frozen=True)
class Distribution:
    """Next-token distributions at n positions.

    Attributes:
        tokens: int64 [n, K], candidates.
        log: float64 [n, K], ln of their probabilities; -inf where there is no candidate.
    """

    tokens: Tensor
    log: Tensor

    def mixed(self, other: Tensor, share: Tensor) -> "Distribution":
        """share times this one and the rest `other` (float64 [n, K], logs over the same candidates)."""
        parts = torch.stack([self.log + share.log()[:, None], other + (1 - share).log()[:, None]])
        return Distribution(self.tokens, parts.logsumexp(0))


@dataclass
class Recorder:
    """Stands in for a draw: keeps the distribution, and returns the likeliest places."""

    draw: IntegerTableMechanism
    log: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.draw, name)

    def draw_each(self, scores: Tensor, allowed: Tensor, rng: RandomSource) -> Tensor:
        """P(v) ~ exp(score u / tau), the ideal of the draw's docstring."""
        scale = float(self.draw.temperature * self.draw.references * 2**self.draw.grid_exponent)
        values = (scores - scores.masked_fill(~allowed, -(2**62)).amax(1, keepdim=True)).double() / scale
        self.log = values.masked_fill(~allowed, -math.inf).log_softmax(1)
        return self.log.argmax(1)


@dataclass
class _AlwaysPrivate:
    """Stands in for Amin et al.'s tests: every token is private, and its distance is kept."""

    references: int
    distances: list[int] = field(default_factory=list)

    def begin(self, threshold: Fraction, rng: RandomSource) -> int:
        return 0

    def below(self, distance: int, noisy_threshold: int, rng: RandomSource) -> bool:
        self.distances.append(distance)
        return False


@dataclass(frozen=True)
class Bound:
    """A setting with what its budget buys."""

    rule: SamplingRule
    draw: IntegerTableMechanism
    tests: SparseVector | None
    private_tokens: int
    threshold: Fraction


def bind(setting: Setting, tokens: int = TOKENS) -> Bound:
    """The system's own rule at the clip norm that epsilon buys, or at the one that is given."""
    name, own = PRIVATE_SYSTEMS[AMIN if setting.system == AMIN_PRIVATE else setting.system]
    system = SYSTEMS[name]
    wanted = system.parameters.model_validate(
        own
        | {
            "samples": 1,
            "references": setting.references,
            "max_new_tokens": tokens,
            "temperature": setting.temperature,
            "top_k": setting.top_k,
            **({"public_temperature": setting.temperature} if name == "private_prediction" else {}),
        }
    )
    if setting.clip is None:
        rho = release_amount(Decimal(setting.epsilon or ""), DELTA).rho
        events = system.calibrate(rho, wanted).events
    else:
        twice = 2 if setting.system == ICL else 1  # its blend is a draw at twice the temperature
        steps = round(Decimal(setting.clip) * 2**GRID_EXPONENT)
        draw = IntegerTableMechanism(steps, setting.references, Fraction(setting.temperature) * twice, 0)
        events = (draw.event(tokens), calibrate_tests(10**12, tokens, setting.references).event(tokens))
        events = events if name == "private_prediction" else events[:1]
    rule = system.rule(events, wanted, DrawMeter(tokens, tokens, lambda number: None), DeterministicRandom("utility"))
    return Bound(
        rule=rule,
        draw=IntegerTableMechanism.from_event(events[0]),
        tests=SparseVector.from_event(events[1]) if len(events) > 1 else None,
        private_tokens=events[0].count,
        threshold=Fraction(getattr(wanted, "threshold", 0)),
    )


def private_distribution(
    setting: Setting, bound: Bound, public: Tensor, rows: Tensor
) -> tuple[Distribution, list[int]]:
    """What the system's own rule would draw from at each position, and the distances its tests would see.

    Args:
        public: float32 [n, V].
        rows: float32 [B, n, V].

    Returns:
        the distribution of a token that is drawn privately; distances in units of 1/(s M), for Amin et al. alone.
    """
    recorder = Recorder(bound.draw)
    rule: Any = replace(bound.rule, draw=recorder)  # type: ignore[type-var]
    tests = _AlwaysPrivate(setting.references)
    if isinstance(rule, PrivatePredictionRule):
        endless = DrawMeter(2**62, 2**62, lambda number: None)
        rule = replace(rule, tests=tests, private_tokens=2**62, meter=endless)
    rule.next_tokens(_step(public, rows))
    if recorder.log is None:
        raise AssertionError("the rule has drawn nothing")
    return Distribution(
        utility_scores.candidates(public, setting.top_k, bound.draw).tokens, recorder.log
    ), tests.distances


def distribution(setting: Setting, bound: Bound, public: Tensor, rows: Tensor, seed: str) -> Distribution:
    """As `private_distribution`, for Amin et al. with their free public tokens.

    There the next token is private with the probability that the tests say so: the share of `TEST_RUNS` runs along
    the text, each with the noise of the real tests. It is a mixture of the private and the public distribution. A text
    that has used up its r private tokens goes on from the public model; along so few positions none has.
    """
    found, distances = private_distribution(setting, bound, public, rows)
    if setting.system != AMIN or bound.tests is None:
        return found
    share = torch.tensor(private_share(bound, distances, seed), dtype=torch.float64)
    # Public tokens come from the public softmax over the same candidates, here at the same temperature.
    known = public.double().gather(1, found.tokens).masked_fill(found.log == -math.inf, -math.inf)
    return found.mixed((known / float(setting.temperature)).log_softmax(1), share)


def private_share(bound: Bound, distances: Sequence[int], seed: str, runs: int = TEST_RUNS) -> list[float]:
    """At each position, in which share of runs its test is not below the threshold."""
    if bound.tests is None:
        raise ValueError("only Amin et al. have tests")
    tests, rng, private = bound.tests, DeterministicRandom(seed), [0] * len(distances)
    for _ in range(runs):
        ended, threshold = 0, tests.begin(bound.threshold, rng)
        for place, distance in enumerate(distances):
            if ended < bound.private_tokens and not tests.below(distance, threshold, rng):
                private[place] += 1
                ended, threshold = ended + 1, tests.begin(bound.threshold, rng)
    return [count / runs for count in private]


def unprotected(logits: Tensor, temperature: str, top_k: int = 0) -> Distribution:
    """The softmax of given logits, float32 [n, V]: of the public row, of one row, or of the rows' mean."""
    scaled = logits.double() / float(temperature)
    if not top_k or top_k >= logits.shape[1]:
        everything = torch.arange(logits.shape[1]).expand_as(logits)
        return Distribution(everything, scaled.log_softmax(1))
    best = scaled.topk(top_k, dim=1)
    return Distribution(best.indices, best.values.log_softmax(1))


def _step(public: Tensor, rows: Tensor) -> Step:
    count, positions = len(rows), len(public)
    generation = torch.arange(positions).repeat(count)

    def private(candidates: Tensor | None) -> RowLogits:
        some = rows if candidates is None else rows.gather(2, candidates.expand(count, -1, -1))
        return RowLogits(some.flatten(0, 1), generation, torch.ones_like(generation, dtype=torch.bool))

    return Step(tuple(range(positions)), (0,) * positions, public, private, lambda index: None)
