"""Selection by noisy sums of weights, in rounds: `WeightedSelection`, `SelectionInRounds` (PRIVACY §10.7).

As `gaussian_selection`, but a unit's weight is one in L2, whatever it names: j candidates, at most k of them, get
w_j = floor(G / sqrt(j)) each, integers in steps of 1/G, G = 2^16. So what a unit names besides costs its other
candidates little, and a unit that names one thing counts sqrt(k) times as much there as one that names k. Sums get
discrete Gaussian noise of scale sigma (in steps), and a candidate is released if its noisy sum reaches a public
threshold (Gopi et al., "Differentially Private Set Union", ICML 2020, the weighted Gaussian algorithm). One selection
is delta-approximate rho-zCDP (Bun and Steinke, arXiv 1605.02065, Definition 8.1) with

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
   directions (Canonne, Kamath, Steinke, arXiv 2004.00010, Theorem 14).
3. A new candidate has the sum w_j, and is released if its noise is at least threshold - w_j. P(not E) is at most i
   times the probability of that, by the union bound, and i <= j. `gaussian_selection.tail_bound` bounds it where
   threshold - w_j - 1/2 >= sigma, which holds for all j if it holds for j = 1. The maximum over j is charged.
4. Released candidates are stored in sorted order; everything made of them afterwards is post-processing.

Rounds (Swanberg, Desfontaines, Haney, "DP-SIPS", PoPETS 2023): before each round but the first, units drop what was
released, so that other candidates take those places and that weight. Given the earlier outputs a round is a selection
as above, so rounds compose adaptively: rho adds up, and so does delta (arXiv 1605.02065, Lemma 8.2). Each round is an
event of its own.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from models_db.errors import UsageError
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting import conversions
from tasks.accounting.rounding import charge_rounded_up, exact, float_below
from tasks.mechanisms.core.opendp import Measurement, check_with_opendp, load_opendp
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.gaussian_selection import tail_bound, with_lowest_threshold
from tasks.mechanisms.counts.noisy_count import check_sigma, least_scale, rounded_normal
from tasks.mechanisms.counts.set_histogram import bound_contributions

MECHANISM = "weighted_selection"
STEPS = 2**16
"""G, the weight of a unit that names one candidate. 2^37 units do not overflow what noise is added to."""
MOST_THRESHOLD = 2**52
MOST_CONTRIBUTIONS = 1000
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
        if not 1 <= self.contributions <= MOST_CONTRIBUTIONS:
            raise _candidates_invalid(self.contributions)
        if not STEPS + self.sigma + Fraction(1, 2) <= self.threshold <= MOST_THRESHOLD:
            raise UsageError(
                f"The threshold must be 2^16 + sigma + 1/2 to 2^52 steps, not {self.threshold} at sigma"
                f" {float(self.sigma):.6g}.",
                "Give the selection less delta, or take `selection: truncated_geometric`.",
                code="WeightThresholdInvalid",
            )

    def loss(self) -> Amount:
        """Return the charge of one round, rho and delta, both rounded up."""
        return Amount(conversions.gaussian(STEPS, self.sigma).rho, charge_rounded_up(Fraction(0), self.failure).delta)

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
            mechanism=MECHANISM,
            count=count,
            parameters={
                "sigma": str(self.sigma),
                "steps": STEPS,
                "threshold": self.threshold,
                "contributions": self.contributions,
            },
            loss=self.loss() * count,
            dp_event=conversions.gaussian_event(float_below(self.sigma / STEPS), count),
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "WeightedSelection":
        """Return the selection whose parameters `event` stores.

        Raises:
            KeyError, ValueError, UsageError: they are not a selection's.
        """
        stored = event.parameters
        if stored["steps"] != STEPS:
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
    return math.isqrt(STEPS**2 // named)


def calibrate_weighted_selection(amount: Amount, contributions: int) -> WeightedSelection:
    """Return the selection with the least noise that `amount` buys, and its lowest threshold.

    Raises:
        ThresholdUnaffordable: there is no delta, or no threshold in range fails so seldom.
        NoiseInvalid: rho is not positive, or so small that sigma would pass 2^32.
        CandidatesInvalid: no such number of candidates of a unit.
    """
    if not 1 <= contributions <= MOST_CONTRIBUTIONS:
        raise _candidates_invalid(contributions)
    sigma = least_scale(amount.rho, STEPS**2)
    check_sigma(sigma)

    def with_threshold(threshold: int) -> WeightedSelection:
        return WeightedSelection(sigma, threshold, contributions)

    least = math.ceil(STEPS + sigma + Fraction(1, 2))
    return with_lowest_threshold(with_threshold, least, MOST_THRESHOLD, amount)


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
    return check_with_opendp(gaussian, float(STEPS), selection.loss())


def _candidates_invalid(contributions: int) -> UsageError:
    return UsageError(
        f"A unit names at most 1 to {MOST_CONTRIBUTIONS} candidates, not {contributions}.",
        "Say how many candidates of one unit count.",
        {"contributions": contributions},
        code="CandidatesInvalid",
    )
