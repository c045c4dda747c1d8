"""Token draw of InvisibleInk and its family: its parameters, its loss, its draw (PRIVACY §4.1, §4.2).

Scores live on an integer grid. Row i's clipped vector is q_i in {-S, .., S}^V, S = C/g with grid g = 2^-20,
and the score of candidate v is the integer k_v = round(phi_pub,v / u) + sum_i q_i,v in units of u = g/B: no
division, so no rounding depends on the sum. One token is drawn with P(v) ~ exp(k_v u / tau).

Why a draw costs C^2 / (2 B^2 tau^2). Fix the prefix (earlier outputs) and everything public. Two neighbouring
batches differ by one unit, which is one row:

1. the candidate set and phi_pub are functions of the prefix and of public data, so both sides have them
equal; 2. the other rows' q are functions of their own row alone (row isolation,
`tasks.mechanisms.tokens.utility_scores`), and
   an absent row adds exactly zero, so the integer scores differ by exactly q_i: by at most S in each entry,
   in either direction;
3. hence ln(P(v)/P'(v)) spans a range of at most eta = 2 S u / tau = 2C / (B tau) over v: score differences
give
   +-S u / tau and the normalising constants cancel in the range. The draw has bounded range eta;
4. so it is eta^2/8-zCDP (`tasks.accounting.conversions.bounded_range`), adaptively composable with anything.

OpenDP's noisy maximum with Gumbel noise of scale tau/u is that draw exactly. Its metric must be the
non-monotonic one: the monotonic one assumes that all scores move the same way, and charges a quarter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from models_db.errors import Refused, UsageError
from models_db.values.amounts import RHO_UNIT, Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting import conversions, dp_events
from tasks.accounting.rounding import Exact, exact, float_above
from tasks.mechanisms.core.opendp_check import Measurement, check_with_opendp
from tasks.mechanisms.core.opendp_library import dp
from tasks.mechanisms.core.rng import RandomSource

if TYPE_CHECKING:
    from torch import Tensor

MECHANISM = "token_draw"
GRID_EXPONENT = 20
# 2^31 grid steps are a clip norm of 2048, where clipping has long stopped to matter; with it, 2^31 rows
# cannot overflow a 64-bit sum.
LARGEST_CLIP_STEPS = 2**31 - 1
LARGEST_REFERENCES = 2**20


@dataclass(frozen=True)
class ExponentialMechanism:
    """One kind of token draw.

    Attributes:
        clip_steps: S, the clip norm C in grid steps of 2^-20 logits.
        references: B, the public nominal number of rows; every row weighs 1/B.
        temperature: tau, exact.
    """

    clip_steps: int
    references: int
    temperature: Fraction

    def __post_init__(self) -> None:
        if not 1 <= self.clip_steps <= LARGEST_CLIP_STEPS:
            raise TokenDrawInvalid(f"The clip norm must be 1 to 2^31 - 1 grid steps, not {self.clip_steps}.")
        check_public(self.references, self.temperature)

    @property
    def grid_exponent(self) -> int:
        """The grid is 2^-grid_exponent logits, the same for all draws of this kind."""
        return GRID_EXPONENT

    @property
    def clip_norm(self) -> Fraction:
        """C, in logits."""
        return Fraction(self.clip_steps, 2**GRID_EXPONENT)

    @property
    def bounded_range(self) -> Fraction:
        """eta = 2C / (B tau): how far the log-probability ratios of two neighbours can spread."""
        return 2 * self.clip_norm / (self.references * self.temperature)

    @property
    def scale(self) -> float:
        """tau/u, the Gumbel scale in score units, rounded up: never less noise than is charged for."""
        return float_above(self.temperature * self.references * 2**GRID_EXPONENT)

    def loss(self) -> Amount:
        """Return the charge of one draw, eta^2/8 = C^2 / (2 B^2 tau^2), rounded up to a whole unit.

        Rounding each draw, not their sum, makes instalments of draws add up to exactly the plan (PRIVACY §6).
        """
        return conversions.bounded_range(self.bounded_range)

    def event(self, draws: int) -> PrivacyEvent:
        """`draws` draws in a row on the same rows, the one that yields the end of the text included."""
        if draws < 1:
            raise ValueError(f"an event has at least one draw, not {draws}")
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=draws,
            parameters={
                "clip_steps": self.clip_steps,
                "grid_exponent": GRID_EXPONENT,
                "references": self.references,
                "temperature": str(self.temperature),
                "eta": str(self.bounded_range),
            },
            loss=self.loss() * draws,
            dp_event=dp_events.zcdp(self.loss().rho, draws),
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "ExponentialMechanism":
        """Return the draw whose parameters `event` stores.

        Raises:
            KeyError, ValueError, TokenDrawInvalid: they are not a token draw's.
        """
        if event.parameters["grid_exponent"] != GRID_EXPONENT:
            raise ValueError("a token draw's grid is 2^-20")
        return cls(
            clip_steps=int(event.parameters["clip_steps"]),
            references=int(event.parameters["references"]),
            temperature=exact(event.parameters["temperature"]),
        )

    def draw(self, scores: Sequence[int], rng: RandomSource) -> int:
        """Draws one index with probability proportional to exp(score u / tau), exactly.

        Args:
            scores: int64 scores of the candidates alone (no padding), in units of u = g/B; shifting all of
                them by one public number changes nothing.
            rng: the operating system's, through OpenDP; any other source draws by a float inverse CDF, which
                is not private, as its kind says.

        Raises:
            ValueError: no candidate.
        """
        if not scores:
            raise ValueError("a draw needs at least one candidate")
        if rng.kind == "os":
            return int(_noisy_max(self)(list(scores)))
        return _inverse_cdf(scores, self.scale, rng)

    def draw_each(self, scores: "Tensor", allowed: "Tensor", rng: RandomSource) -> "Tensor":
        """Draw one place for each generation, one after the other on the CPU.

        Args:
            scores: int64 [G, K].
            allowed: bool [G, K], false where there is no candidate.

        Raises:
            ValueError: a generation without candidates.
        """
        places = []
        for row, usable in zip(scores.cpu(), allowed.cpu(), strict=True):
            candidates = usable.nonzero()[:, 0]
            places.append(int(candidates[self.draw(row[candidates].tolist(), rng)]))
        return scores.new_tensor(places)


def calibrate(rho: int, draws: int, references: int, temperature: Exact) -> ExponentialMechanism:
    """Return the token draw with the largest clip norm whose `draws` draws cost at most `rho` (units of 1e-12).

    C = tau B sqrt(2 rho / T), with rho/T first cut to whole units and C floored to the grid: the plan never
    costs more than `rho`, and at least 99.9 % of it as long as a draw may cost 1e-9 and C is at least 2^-9.

    Raises:
        BudgetTooSmall: not even one grid step of clip norm is affordable.
        TokenDrawInvalid: draws, references or temperature is out of range.
    """
    tau = exact(temperature)
    if draws < 1:
        raise TokenDrawInvalid(f"A text takes at least one draw, not {draws}.")
    check_public(references, tau)
    # S^2 = C^2 4^20 with C^2 = 2 rho (B tau)^2 / T, all exact.
    per_draw = Fraction(rho // draws, RHO_UNIT)
    steps = math.isqrt(math.floor(2 * per_draw * (references * tau) ** 2 * 4**GRID_EXPONENT))
    if steps < 1:
        raise BudgetTooSmall(draws, references)
    mechanism = ExponentialMechanism(min(steps, LARGEST_CLIP_STEPS), references, tau)
    if not (mechanism.loss() * draws).fits(Amount(rho)):
        raise ArithmeticError(f"{draws} draws of {mechanism} cost more than {rho}")
    return mechanism


@lru_cache(maxsize=64)
def _noisy_max(draw: ExponentialMechanism) -> Measurement:
    scores = dp.vector_domain(dp.atom_domain(T="i64"))
    metric = dp.linf_distance(T="i64", monotonic=False)
    measurement = dp.m.make_noisy_max(scores, metric, dp.zero_concentrated_divergence(), scale=draw.scale)
    return check_with_opendp(measurement, draw.clip_steps, draw.loss())


def _inverse_cdf(scores: Sequence[int], scale: float, rng: RandomSource) -> int:
    """Return the test mode's sampler, for a repeatable pipeline: floats, NOT PRIVATE."""
    top = max(scores)
    weights = [math.exp((score - top) / scale) for score in scores]
    remaining = rng.uniform_below(2**53) / 2**53 * math.fsum(weights)
    for index, weight in enumerate(weights):
        remaining -= weight
        if remaining < 0:
            return index
    return scores.index(top)


def check_public(references: int, temperature: Fraction) -> None:
    """Refuse a number of references or a temperature that no token draw takes.

    Raises:
        TokenDrawInvalid: one of them is out of range.
    """
    if not 1 <= references <= LARGEST_REFERENCES:
        raise TokenDrawInvalid(f"The number of references must be 1 to 2^20, not {references}.")
    if not Fraction(1, 1000) <= temperature <= 1000:
        raise TokenDrawInvalid(f"The temperature must be 0.001 to 1000, not {temperature}.")


class TokenDrawInvalid(UsageError):
    """A parameter of the token draw is out of range."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "Correct the parameters of the request.")


class BudgetTooSmall(Refused):
    """The budget buys no clip norm at all."""

    def __init__(self, draws: int, references: int) -> None:
        super().__init__(
            f"The budget is too small for {draws} draws with {references} references: the clip norm is zero.",
            "Ask for a larger epsilon, fewer new tokens, or more references.",
            {"draws": draws, "references": references},
        )
