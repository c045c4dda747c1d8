"""Sparse vector test of Amin et al. 2024: it selects the tokens that need private text (PRIVACY §4.3).

At each step of a run the distance between the public distribution and the mean of the rows' distributions is compared
with a public threshold theta, both with noise. Below it the token comes from the public model, and the run goes on;
the first test that is not below ends the run, and its token is drawn privately. The next run begins with fresh noise
on the threshold.

Everything is an integer. A row's distribution is p_i in {0, 1, ..}^V with an L1 norm of at most M = 2^30
(`tasks.mechanisms.tokens.utility_scores`), the public one P likewise, and the distance, in units of 1/(s M), is
d = sum_v |s P_v - sum_i p_i,v|, s the public nominal number of rows. With b, the noise multiplier, sigma = b/s, and a
public ratio a: the threshold gets discrete Laplace noise of scale sigma (b M units), each test of scale a sigma (a b M
units).

Why a run costs epsilon = (1 + 2/a)/b, however many tests it has. Fix everything that was released before it, and
let neighbouring batches differ by one row. All other p_i are equal on both sides (row isolation), an absent row
adds exactly zero, and s is public, so each d moves by at most the norm of one row:

1. |d_t - d'_t| <= M for every test, by the triangle inequality, summand by summand. Which query is asked next
   depends on released tokens and public data alone, so it is the same on both sides.
2. Take a run that ends at test k. Its probability is the sum over T of P(theta + noise = T) times the product over
   t < k of P(d_t + nu_t < T) times P(d_k + nu_k >= T). Put T + M for T: P(noise) falls by at most e^(M/(b M)), which
   is e^(1/b).
   For t < k: d_t + nu_t < T implies d'_t + nu_t < T + M, with the same noise, so these factors do not fall at all.
   At k: d'_k + nu_k >= T + M is implied by d_k + (nu_k - 2M) >= T, and shifting nu_k by 2M costs
   e^(2M/(a b M)) = e^(2/(a b)). Together at most e^epsilon; and a run that the end of the text cuts off costs e^(1/b).
3. So a run is epsilon-DP (Dwork and Roth, 2014, Theorem 3.23; that discrete noise has the same ratios is all it needs),
   and its rho is the `pure_dp` row: epsilon tanh(epsilon/2). At a = 2 that is at most 2/(s^2 sigma^2) (PRIVACY §4.3).

A test compares the difference of the two noises, whose variance is 2 (1 + a^2) (b M)^2. At a given epsilon that is
least where a^3 = 2: epsilon is split between threshold and tests as 1 : 2^(2/3), not 1 : 1 as in the paper (Lyu, Su,
Li, "Understanding the Sparse Vector Technique", VLDB 2017, on budget allocation, for one positive answer; a distance
may go either way, so their split for monotonic queries is not ours). Calibrated tests have a = 63/50, and 7 % less
noise than at a = 2.

The token that ends a run is a token draw of its own, charged beside it. Lyu, Su and Li show that the threshold's noise
may even be kept; here it is drawn afresh, because only then runs are mechanisms of their own, whose rho adds up.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from models_db.errors import UsageError
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting import zcdp
from tasks.accounting.rounding import exact, float_above
from tasks.mechanisms.core.opendp import ULPS, Measurement, load_opendp, opendp_charges_more
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.noisy_count import rounded_laplace
from tasks.mechanisms.tokens.integer_table import LARGEST_REFERENCES, budget_too_small, token_draw_invalid

MECHANISM = "sparse_vector"
NORM = 2**30
"""M: a row's distribution in integers; its L1 norm is at most this."""
PAPER_RATIO = Fraction(2)
"""a of Amin et al., and of events that store none."""
LEAST_NOISE_RATIO = Fraction(63, 50)
"""a of calibrated tests: 1.26, the cube root of 2 to four digits."""
# The noise multiplier lies on a grid of 2^-10; up to 2^20 the noise on a distance stays far below 2^63.
NOISE_GRID = 2**10
LARGEST_NOISE = 2**20


@dataclass(frozen=True)
class SparseVector:
    """Runs of tests, each until the first distance that is not below the threshold.

    Attributes:
        noise: b = s sigma, the noise multiplier: a multiple of 2^-10 up to 2^20.
        references: s, the public nominal number of rows.
        test_ratio: a, by how much a test's noise is wider than the threshold's; 1/16 to 16.
    """

    noise: Fraction
    references: int
    test_ratio: Fraction = PAPER_RATIO

    def __post_init__(self) -> None:
        if not 0 < self.noise <= LARGEST_NOISE or (self.noise * NOISE_GRID).denominator != 1:
            raise _threshold_noise_invalid(
                f"The noise multiplier must be a multiple of 2^-10 up to 2^20, not {self.noise}."
            )
        if not Fraction(1, 16) <= self.test_ratio <= 16:
            raise _threshold_noise_invalid(
                f"The noise of a test is 1/16 to 16 of the threshold's, not {self.test_ratio}."
            )
        if not 1 <= self.references <= LARGEST_REFERENCES:
            raise token_draw_invalid(f"The number of references must be 1 to 2^20, not {self.references}.")

    @property
    def epsilon(self) -> Fraction:
        """Return (1 + 2/a)/b, the pure differential privacy loss of one run."""
        return (1 + 2 / self.test_ratio) / self.noise

    @property
    def sigma(self) -> Fraction:
        """The scale of the threshold's noise, as a distance between distributions."""
        return self.noise / self.references

    @property
    def threshold_scale(self) -> Fraction:
        """The scale of the threshold's noise, in units of 1/(s M)."""
        return self.noise * NORM

    @property
    def test_scale(self) -> Fraction:
        """The scale of the noise of each test, in units of 1/(s M)."""
        return self.test_ratio * self.noise * NORM

    def loss(self) -> Amount:
        """Return the charge of one run, epsilon tanh(epsilon/2), rounded up."""
        return zcdp.pure_dp(self.epsilon)

    def event(self, runs: int) -> PrivacyEvent:
        """`runs` runs in a row on the same rows, the last one even if the text ends inside it."""
        if runs < 1:
            raise ValueError(f"an event has at least one run, not {runs}")
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=runs,
            parameters={
                "noise_multiplier": str(self.noise),
                "references": self.references,
                "norm": NORM,
                "sigma": str(self.sigma),
                "epsilon": str(self.epsilon),
                **({} if self.test_ratio == PAPER_RATIO else {"test_ratio": str(self.test_ratio)}),
            },
            loss=self.loss() * runs,
            dp_event=zcdp.zcdp_event(self.loss().rho, runs),
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "SparseVector":
        """Return the tests whose parameters `event` stores.

        Raises:
            KeyError, ValueError, ThresholdNoiseInvalid, TokenDrawInvalid: they are not a sparse vector's.
        """
        if event.parameters["norm"] != NORM:
            raise ValueError("a row's distribution has a norm of 2^30")
        noise, references = exact(event.parameters["noise_multiplier"]), int(event.parameters["references"])
        return cls(noise, references, exact(event.parameters.get("test_ratio", str(PAPER_RATIO))))

    def begin(self, threshold: Fraction, rng: RandomSource) -> int:
        """Return a noisy threshold for one run, in units of 1/(s M).

        Args:
            threshold: theta, a distance between distributions (0 to 2); public.
        """
        public = math.floor(threshold * self.references * NORM)
        if rng.kind != "os":
            return public + rounded_laplace(float(self.threshold_scale), rng)
        return public + int(_confirmed_samplers(self).threshold(0))

    def below(self, distance: int, noisy_threshold: int, rng: RandomSource) -> bool:
        """Return whether `distance` (in units of 1/(s M)) is below the run's threshold, with fresh noise: one test."""
        if rng.kind != "os":
            return distance + rounded_laplace(float(self.test_scale), rng) < noisy_threshold
        return distance + int(_confirmed_samplers(self).test(0)) < noisy_threshold


def calibrate_tests(rho: int, runs: int, references: int) -> SparseVector:
    """Return the tests with the least noise whose `runs` runs cost at most `rho` (units of 1e-12).

    Raises:
        BudgetTooSmall: not even the largest noise is affordable.
        TokenDrawInvalid: runs or references is out of range.
    """
    if runs < 1:
        raise token_draw_invalid(f"A text has at least one private token, not {runs}.")
    least, most = 1, LARGEST_NOISE * NOISE_GRID

    def affordable(steps: int) -> bool:
        return _calibrated(steps, references).loss().rho * runs <= rho

    if not affordable(most):
        raise budget_too_small(runs, references)
    while least < most:  # the loss falls as the noise grows
        middle = (least + most) // 2
        least, most = (least, middle) if affordable(middle) else (middle + 1, most)
    return _calibrated(least, references)


def _calibrated(steps: int, references: int) -> SparseVector:
    return SparseVector(Fraction(steps, NOISE_GRID), references, LEAST_NOISE_RATIO)


@dataclass(frozen=True)
class _Samplers:
    """The noise of a run, as OpenDP has confirmed it: these very measurements are drawn from."""

    threshold: Measurement
    test: Measurement


@lru_cache(maxsize=64)
def _confirmed_samplers(tests: SparseVector) -> _Samplers:
    """Return the two discrete Laplace measurements of a run, after OpenDP confirms the loss of the proof's two shifts.

    Raises:
        OpenDPChargesMore: it charges more.
    """
    samplers = _Samplers(_discrete_laplace(tests.threshold_scale), _discrete_laplace(tests.test_scale))
    if samplers.threshold.map(NORM) + samplers.test.map(2 * NORM) > tests.epsilon * (1 + ULPS):
        raise opendp_charges_more()
    return samplers


def _discrete_laplace(scale: Fraction) -> Measurement:
    dp = load_opendp()
    return dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=float_above(scale))


def _threshold_noise_invalid(message: str) -> UsageError:
    return UsageError(message, "Give the tests another share of the budget.", code="ThresholdNoiseInvalid")
