"""Selection of candidates above a public threshold, by noisy counts or by noisy sums of weights (PRIVACY §10.7).

*`GaussianSelection`*: the candidates that enough units share. Each unit names at most k candidates, strings that nobody
has to know beforehand. Every candidate that some unit names gets its number of units plus discrete Gaussian noise of
scale sigma; it is released, with that noisy number, if the number reaches a public threshold (Gopi et al.,
"Differentially Private Set Union", ICML 2020, for the continuous Gaussian; the discrete one of Canonne, Kamath,
Steinke, arXiv 2004.00010, here). One selection is delta-approximate rho-zCDP (Bun and Steinke, arXiv 1605.02065,
Definition 8.1) with

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

*`WeightedSelection`*: as above, but a unit's weight is one in L2, whatever it names: j candidates, at most k of them,
get w_j = floor(G / sqrt(j)) each, integers in steps of 1/G, G = 2^16. So what a unit names besides costs its other
candidates little, and a unit that names one thing counts sqrt(k) times as much there as one that names k. Sums get
discrete Gaussian noise of scale sigma (in steps), and a candidate is released if its noisy sum reaches a public
threshold (Gopi et al., the weighted Gaussian algorithm). One selection is delta-approximate rho-zCDP with

    rho = G^2 / (2 sigma^2)   and   delta = max over j <= k of (j/2) erfc((threshold - w_j - 1/2) / (sigma sqrt(2))).

Proof. Let D' be D and one unit more, which names j candidates, i of them named by no unit of D (new), the others old.
Which candidates a unit names, and so its weights, follow from that unit, and from public and released values; no other
unit's weights change. So D' moves the sums of these j candidates by w_j each, and no other.
1. A candidate that no unit names is never released. A candidate that the unit does not name has the same sum and the
   same noise under D and D'.
2. Let E be the event, under D', that no new candidate is released; under D, everything. Given E the new candidates show
   in no output, and their noise is independent of all other noise. What remains are the noisy sums of the j - i old
   candidates, cut off below the threshold: post-processing of integers that move by a vector of squared norm
   (j - i) w_j^2 <= G^2, because w_j^2 <= G^2 / j. Discrete Gaussian noise on these is G^2 / (2 sigma^2)-zCDP in both
   directions (arXiv 2004.00010, Theorem 14).
3. A new candidate has the sum w_j, and is released if its noise is at least threshold - w_j. P(not E) is at most i
   times the probability of that, by the union bound, and i <= j. `tail_bound` bounds it where
   threshold - w_j - 1/2 >= sigma, which holds for all j if it holds for j = 1. The maximum over j is charged.
4. Released candidates are stored in sorted order; everything made of them afterwards is post-processing.

*Rounds* (`SelectionInRounds`; Swanberg, Desfontaines, Haney, "DP-SIPS", PoPETS 2023): before each round but the first,
units drop what was released, so that other candidates take those places and that weight. Given the earlier outputs a
round is a selection as above, so rounds compose adaptively: rho adds up, and so does delta (arXiv 1605.02065,
Lemma 8.2). Each round is an event of its own.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol, TypeVar

from mpmath.ctx_mp import MPContext
from mpmath.libmp import to_rational

from models_db.errors import UsageError
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting import zcdp
from tasks.accounting.rounding import charge_rounded_up, exact, float_below
from tasks.mechanisms.core.opendp import Measurement, check_with_opendp, load_opendp
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.noisy_count import check_sigma, least_scale, rounded_normal
from tasks.mechanisms.counts.set_histogram import SetHistogram, bound_contributions

GAUSSIAN_SELECTION = "gaussian_selection"
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
        rho = zcdp.gaussian_coordinates(self.contributions, self.sigma).rho
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
            mechanism=GAUSSIAN_SELECTION,
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


WEIGHTED_SELECTION = "weighted_selection"
WEIGHT_STEPS = 2**16
"""G, the weight of a unit that names one candidate. 2^37 units do not overflow what noise is added to."""
MOST_WEIGHTED_THRESHOLD = 2**52
MOST_WEIGHTED_CONTRIBUTIONS = 1000
ROUND_SHARES = (1, 4)
"""Of rho and of delta, by round; chosen on agnews and dbpedia14."""
USUAL_CANDIDATES = 4
"""Candidates of a unit by which `even_count` counts units; chosen likewise."""


@dataclass(frozen=True)
class WeightedSelection:
    """One round: releases the candidates whose noisy sum of weights reaches a threshold, with that sum.

    Attributes:
        sigma: the noise's scale in steps, a multiple of 2^-20 up to 2^32.
        threshold: the least noisy sum that is released, in steps; at least G + sigma + 1/2.
        contributions: k, how many candidates one unit can name.
    """

    sigma: Fraction
    threshold: int
    contributions: int

    def __post_init__(self) -> None:
        check_sigma(self.sigma)
        if not 1 <= self.contributions <= MOST_WEIGHTED_CONTRIBUTIONS:
            raise _candidates_invalid(self.contributions)
        if not WEIGHT_STEPS + self.sigma + Fraction(1, 2) <= self.threshold <= MOST_WEIGHTED_THRESHOLD:
            raise UsageError(
                f"The threshold must be 2^16 + sigma + 1/2 to 2^52 steps, not {self.threshold} at sigma"
                f" {float(self.sigma):.6g}.",
                "Give the selection less delta, or take `selection: truncated_geometric`.",
                code="WeightThresholdInvalid",
            )

    def loss(self) -> Amount:
        """Return the charge of one round, rho and delta, both rounded up."""
        return Amount(zcdp.gaussian(WEIGHT_STEPS, self.sigma).rho, charge_rounded_up(Fraction(0), self.failure).delta)

    @property
    def failure(self) -> Fraction:
        """The probability that one of a unit's candidates is released for that unit alone, at most."""
        return max(
            named * tail_bound(self.sigma, self.threshold - weight_of(named))
            for named in range(1, self.contributions + 1)
        )

    def event(self, count: int = 1) -> PrivacyEvent:
        """`count` rounds of the same units.

        In dp-accounting's words as many Gaussian mechanisms of noise multiplier sigma / G; the delta is in the loss,
        and a reader of the events subtracts it from the claim's (`tasks.accounting.dp_accounting_check`).
        """
        if count < 1:
            raise ValueError(f"an event has at least one selection, not {count}")
        return PrivacyEvent(
            mechanism=WEIGHTED_SELECTION,
            count=count,
            parameters={
                "sigma": str(self.sigma),
                "steps": WEIGHT_STEPS,
                "threshold": self.threshold,
                "contributions": self.contributions,
            },
            loss=self.loss() * count,
            dp_event=zcdp.gaussian_event(float_below(self.sigma / WEIGHT_STEPS), count),
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "WeightedSelection":
        """Return the selection whose parameters `event` stores.

        Raises:
            KeyError, ValueError, UsageError: they are not a selection's.
        """
        stored = event.parameters
        if stored["steps"] != WEIGHT_STEPS:
            raise ValueError("a unit's weight is 2^16 steps")
        return cls(exact(stored["sigma"]), int(stored["threshold"]), int(stored["contributions"]))

    def weigh(self, units: Iterable[Iterable[str]]) -> dict[str, int]:
        """Return the sum of weights of every candidate, in steps; of each unit its first k different ones count."""
        sums: Counter[str] = Counter()
        for items in units:
            own = bound_contributions(items, self.contributions)
            for item in own:
                sums[item] += weight_of(len(own))
        return dict(sums)

    def release(self, sums: Mapping[str, int], rng: RandomSource) -> dict[str, int]:
        """Return the released candidates, sorted, each with its noisy sum in steps.

        Args:
            sums: those of `weigh`, positive.
            rng: the operating system's, through OpenDP; any other source rounds floats, which is not private.

        Raises:
            ValueError: a candidate that no unit names: noise on it would release what the proof says is never seen.
        """
        if any(weight < 1 for weight in sums.values()):
            raise ValueError("a candidate is named by one unit at least")
        names = sorted(sums)
        noisy = self._add_noise([sums[name] for name in names], rng)
        return {name: weight for name, weight in zip(names, noisy, strict=True) if weight >= self.threshold}

    def even_count(self) -> int:
        """Return how many units release a candidate as likely as not, if each names min(k, `USUAL_CANDIDATES`)."""
        return math.ceil(Fraction(self.threshold, weight_of(min(USUAL_CANDIDATES, self.contributions))))

    def _add_noise(self, sums: Sequence[int], rng: RandomSource) -> list[int]:
        if rng.kind != "os":
            return [weight + rounded_normal(float(self.sigma), rng) for weight in sums]
        return [int(value) for value in _measurement(self)(list(sums))] if sums else []


@dataclass(frozen=True)
class SelectionInRounds:
    """Rounds of selection from the same units, each without what earlier rounds released.

    Attributes:
        rounds: in their order, at least one.
    """

    rounds: tuple[WeightedSelection, ...]

    @property
    def contributions(self) -> int:
        """Return k, how many candidates a unit can name in a round."""
        return self.rounds[-1].contributions

    def even_count(self) -> int:
        """Return that of the last round, which has the least noise."""
        return self.rounds[-1].even_count()

    def release(self, candidates: Sequence[Sequence[str]], rng: RandomSource) -> dict[str, int]:
        """Return what all rounds release, sorted, each with its noisy sum in steps.

        Args:
            candidates: each unit's own, the best first; more than k, so that others take the places of released ones.
            rng: as `WeightedSelection.release`.
        """
        released: dict[str, int] = {}
        for selection in self.rounds:
            left = ([item for item in own if item not in released] for own in candidates)
            released |= selection.release(selection.weigh(left), rng)
        return dict(sorted(released.items()))


def weight_of(named: int) -> int:
    """Return w_j = floor(G / sqrt(j)), the weight in steps of each of a unit's j candidates."""
    return math.isqrt(WEIGHT_STEPS**2 // named)


def calibrate_weighted_selection(amount: Amount, contributions: int) -> WeightedSelection:
    """Return the selection with the least noise that `amount` buys, and its lowest threshold.

    Raises:
        ThresholdUnaffordable: there is no delta, or no threshold in range fails so seldom.
        NoiseInvalid: rho is not positive, or so small that sigma would pass 2^32.
        CandidatesInvalid: no such number of candidates of a unit.
    """
    if not 1 <= contributions <= MOST_WEIGHTED_CONTRIBUTIONS:
        raise _candidates_invalid(contributions)
    sigma = least_scale(amount.rho, WEIGHT_STEPS**2)
    check_sigma(sigma)

    def with_threshold(threshold: int) -> WeightedSelection:
        return WeightedSelection(sigma, threshold, contributions)

    least = math.ceil(WEIGHT_STEPS + sigma + Fraction(1, 2))
    return with_lowest_threshold(with_threshold, least, MOST_WEIGHTED_THRESHOLD, amount)


def calibrate_rounds(amount: Amount, contributions: int) -> SelectionInRounds:
    """Return the rounds that `amount` buys, with `ROUND_SHARES` of its rho and of its delta.

    Raises:
        ThresholdUnaffordable, NoiseInvalid, CandidatesInvalid: as `calibrate_weighted_selection`.
    """
    whole = sum(ROUND_SHARES)
    shares = [Amount(amount.rho * share // whole, amount.delta * share // whole) for share in ROUND_SHARES]
    return SelectionInRounds(tuple(calibrate_weighted_selection(share, contributions) for share in shares))


@lru_cache(maxsize=64)
def _measurement(selection: WeightedSelection) -> Measurement:
    """OpenDP's noise on a vector of any length, once its own map has confirmed our charge."""
    dp = load_opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    gaussian = dp.m.make_gaussian(*space, scale=float(selection.sigma))
    return check_with_opendp(gaussian, float(WEIGHT_STEPS), selection.loss())


def _candidates_invalid(contributions: int) -> UsageError:
    return UsageError(
        f"A unit names at most 1 to {MOST_WEIGHTED_CONTRIBUTIONS} candidates, not {contributions}.",
        "Say how many candidates of one unit count.",
        {"contributions": contributions},
        code="CandidatesInvalid",
    )
