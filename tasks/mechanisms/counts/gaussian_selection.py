"""Selection of the candidates that enough units share by noisy counts: `GaussianSelection` (PRIVACY §10.7).

Each unit names at most k candidates, strings that nobody has to know beforehand. Every candidate that some unit names
gets its number of units plus discrete Gaussian noise of scale sigma; it is released, with that noisy number, if the
number reaches a public threshold (Gopi et al., "Differentially Private Set Union", ICML 2020, for the continuous
Gaussian; the discrete one of Canonne, Kamath, Steinke, arXiv 2004.00010, here). One selection is delta-approximate
rho-zCDP (Bun and Steinke, arXiv 1605.02065, Definition 8.1) with

    rho = k / (2 sigma^2)        and        delta = (k / 2) erfc((threshold - 3/2) / (sigma sqrt(2))).

Proof. Let D' be D and one unit more, which names the candidates of S, at most k of them. Those of S that a unit of D
names too are old, the others new; j of them are new. `counts` are numbers of UNITS, so the unit adds 1 to each.
1. No candidate outside S changes: its noise, and whether anybody draws it, are the same under D and D'. A candidate
   that no unit names is never released, so it shows in no output.
2. A new candidate is released under D' alone, and if its noise is at least m = threshold - 1. Let E be the event, under
   D', that none of the j is; under D let E be everything. Given E the new candidates show in no output, and their noise
   is independent of all other noise. So what remains are the noisy counts of the old ones, cut off below the threshold:
   post-processing of at most k - j counts that differ by 1, which is (k - j) / (2 sigma^2)-zCDP in both directions
   (arXiv 2004.00010, Theorem 14). That is at most rho.
3. P(not E) is at most j times q, q = P(Z >= m), by the union bound, and at most k q.
4. q is the sum of f(x) = exp(-x^2 / (2 sigma^2)) over integers x >= m, divided by its sum over all integers. That is at
   least sigma sqrt(2 pi), because every term of its Poisson sum is positive. And f is convex where x >= sigma, so
   f(x) is at most its integral from x - 1/2 to x + 1/2 (Hermite and Hadamard); where m - 1/2 >= sigma the numerator is
   at most the integral from m - 1/2 on. Hence q <= erfc((m - 1/2) / (sigma sqrt(2))) / 2, and delta is k times that.
5. The released candidates are stored in sorted order, which is a function of the set; their numbers follow from the
   released values alone. Everything made of them afterwards is post-processing.

The same rho and delta release what two to three times fewer units share than with `partition_selection`, and the noisy
numbers need no histogram of their own. That mechanism is better where delta is large beside rho (from about 1e-4).

Erfc is computed with 60 digits; 10^-30 of it is charged more.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeVar

from mpmath.ctx_mp import MPContext
from mpmath.libmp import to_rational

from models_db.errors import UsageError
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting import conversions
from tasks.accounting.rounding import charge_rounded_up, exact
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.noisy_count import least_scale
from tasks.mechanisms.counts.set_histogram import SetHistogram

MECHANISM = "gaussian_selection"
MOST_THRESHOLD = 2**40
_LARGEST_QUANTILE = 16
"""Standard deviations of the noise above which a threshold fails less than any delta of the ledger's unit asks for."""
LEAST_TAIL = Fraction(1, 2**1000)
"""The least probability that `tail_bound` returns."""
_ROUNDING = 1 + Fraction(1, 10**30)
_mp = MPContext()  # our own context: mpmath's global one is shared mutable state
_mp.dps = 60


class ThresholdSelection(Protocol):
    """A selection of candidates whose noisy number reaches a threshold, as far as its calibration needs it."""

    @property
    def sigma(self) -> Fraction:
        """The noise's scale, in the threshold's unit."""

    @property
    def contributions(self) -> int:
        """k, how many candidates one unit can name."""

    def loss(self) -> Amount:
        """Return the charge of one selection, rho and delta."""


Selection = TypeVar("Selection", bound=ThresholdSelection)


@dataclass(frozen=True)
class GaussianSelection:
    """Releases the candidates whose noisy number of units reaches a threshold, with that number.

    Attributes:
        sigma: the noise's scale, a multiple of 2^-20 up to 2^32.
        threshold: the least noisy number that is released, in units; at least sigma + 3/2.
        contributions: k, how many candidates one unit can name.
    """

    sigma: Fraction
    threshold: int
    contributions: int

    def __post_init__(self) -> None:
        self._noise()  # refuses what is out of range
        if not self.sigma + Fraction(3, 2) <= self.threshold <= MOST_THRESHOLD:
            raise UsageError(
                f"The threshold must be sigma + 3/2 to {MOST_THRESHOLD}, not {self.threshold} at sigma"
                f" {float(self.sigma):.6g}.",
                "Give the selection less delta, or take `selection: truncated_geometric`.",
                code="ThresholdInvalid",
            )

    def loss(self) -> Amount:
        """Return the charge of one selection, rho and delta, both rounded up."""
        rho = conversions.gaussian_coordinates(self.contributions, self.sigma).rho
        return Amount(rho, charge_rounded_up(Fraction(0), self.failure).delta)

    @property
    def failure(self) -> Fraction:
        """The probability that one of a unit's candidates is released for that unit alone, at most."""
        return self.contributions * tail_bound(self.sigma, self.threshold - 1)

    def event(self, count: int = 1) -> PrivacyEvent:
        """`count` selections from the same units.

        In dp-accounting's words as many Gaussian mechanisms of noise multiplier sigma / sqrt(k); the delta is in the
        loss, and a reader of the events subtracts it from the claim's (`tasks.accounting.dp_accounting_check`).
        """
        noise = self._noise().event(count)
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=count,
            parameters={
                "sigma": str(self.sigma),
                "threshold": self.threshold,
                "contributions": self.contributions,
            },
            loss=self.loss() * count,
            dp_event=noise.dp_event,
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "GaussianSelection":
        """Return the selection whose parameters `event` stores.

        Raises:
            KeyError, ValueError, UsageError: they are not a selection's.
        """
        stored = event.parameters
        return cls(exact(stored["sigma"]), int(stored["threshold"]), int(stored["contributions"]))

    def release(self, counts: Mapping[str, int], rng: RandomSource) -> dict[str, int]:
        """Return the released candidates, sorted, each with its noisy number of units.

        Args:
            counts: for each candidate the number of units that name it, 1 at least; each unit is in at most k of them,
                once.
            rng: the operating system's, through OpenDP; any other source rounds floats, which is not private.

        Raises:
            ValueError: a candidate that no unit names: noise on it would release what the proof says is never seen.
        """
        if any(number < 1 for number in counts.values()):
            raise ValueError("a candidate is named by one unit at least")
        names = sorted(counts)
        noisy = self._noise().draw([counts[name] for name in names], rng)
        return {name: number for name, number in zip(names, noisy, strict=True) if number >= self.threshold}

    def even_count(self) -> int:
        """Return the number of units whose candidate is released as likely as not, or a little more often."""
        return self.threshold

    def _noise(self) -> SetHistogram:
        """Return the noise of the numbers: a histogram over all strings, of which those named are drawn."""
        return SetHistogram(None, self.contributions, "gaussian", self.sigma)


def tail_bound(sigma: Fraction, least: int) -> Fraction:
    """Return an upper bound on P(Z >= least), Z discrete Gaussian of scale sigma; least - 1/2 >= sigma.

    Point 4 of the proof above: erfc((least - 1/2) / (sigma sqrt(2))) / 2, or `LEAST_TAIL` where that is less: the
    digits of a smaller one would fill the memory, and charges are multiples of 10^-18.
    """
    quantile = (least - Fraction(1, 2)) / sigma
    tail = _mp.erfc(_mp.mpf(quantile.numerator) / quantile.denominator / _mp.sqrt(2))
    if tail < _mp.mpf(LEAST_TAIL.numerator) / LEAST_TAIL.denominator:
        return LEAST_TAIL
    return Fraction(*to_rational(tail._mpf_)) / 2 * _ROUNDING


def calibrate_gaussian_selection(amount: Amount, contributions: int) -> GaussianSelection:
    """Return the selection with the least noise that `amount` buys, and its lowest threshold.

    Raises:
        ThresholdUnaffordable: there is no delta, or no threshold in range fails so seldom.
        NoiseInvalid: rho is not positive, or so small that sigma would pass 2^32.
        ContributionsInvalid: no such number of candidates of a unit.
    """
    SetHistogram(None, contributions, "gaussian", Fraction(1))  # refuses the number of contributions
    sigma = least_scale(amount.rho, contributions)

    def with_threshold(threshold: int) -> GaussianSelection:
        return GaussianSelection(sigma, threshold, contributions)

    return with_lowest_threshold(with_threshold, math.ceil(sigma + Fraction(3, 2)), MOST_THRESHOLD, amount)


def with_lowest_threshold(
    with_threshold: Callable[[int], Selection], least: int, highest: int, amount: Amount
) -> Selection:
    """Return the selection with the lowest threshold whose failure the delta of an amount pays for.

    Args:
        with_threshold: the selection with a threshold; its failure probability falls as that rises.
        least: the lowest threshold for which the failure probability is proved.
        highest: the highest that is in range; above the lowest for every scale of noise.

    Raises:
        ThresholdUnaffordable: no threshold in range fails so seldom.
    """

    def affordable(threshold: int) -> bool:
        return with_threshold(threshold).loss().delta <= amount.delta

    selection = with_threshold(highest)
    most = least + math.ceil(_LARGEST_QUANTILE * selection.sigma)
    if most > highest or not affordable(most):
        raise _threshold_unaffordable(amount, selection.contributions)
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if affordable(middle) else (middle + 1, most)
    return with_threshold(least)


def _threshold_unaffordable(amount: Amount, contributions: int) -> UsageError:
    return UsageError(
        f"Rho {amount.rho_text} with delta {amount.delta_text} buys no threshold among the candidates of units "
        f"that name {contributions} each.",
        "Selection needs a delta of its own, and a larger share of rho where that is small; or take a public "
        "keyword set, which needs neither.",
        {"rho": amount.rho_text, "delta": amount.delta_text, "contributions": contributions},
        code="ThresholdUnaffordable",
    )
