"""Selection of the candidates that enough units share, from unboundedly many: `PartitionSelection` (PRIVACY §2, §5).

Each unit names at most k candidates, strings that nobody has to know beforehand. A candidate that n units name is kept
with probability p(n), each by a coin of its own: p(0) = 0, and from then on p grows as fast as (a, d)-differential
privacy lets it, a = epsilon / k, d = 1 - (1 - delta)^(1/k) (Desfontaines, Voss, Gipson, Mandayam, "Differentially
Private Partition Selection", PoPETS 2022, Theorem 1; URANIA, appendix A.2, where the text's epsilon/k is what is
meant):

    p(n + 1) <= e^a p(n) + d    and    1 - p(n) <= e^a (1 - p(n + 1)) + d        for every n >= 0.

Why that costs rho = epsilon tanh(epsilon / (2k)) and delta:
1. The universe of candidates may be infinite and private. One that no unit names is never kept, so it is in no
   output whether or not anybody looks at it; the released set is that of independent coins, one for each string there
   is. `counts` are numbers of UNITS: a unit that names a candidate in ten documents adds 1.
2. Adding or removing a unit moves the counts of at most k candidates, by 1 each. All other coins are the same.
3. Each of those k coins is (a, d)-DP by the two inequalities (the other two follow, because p does not fall), so with
   probability 1 - d it behaves as an a-DP one (Kairouz, Oh, Viswanath, ICML 2015). All k do with probability
   (1 - d)^k = 1 - delta, and then k coins of a-DP are `independent_coordinates(epsilon, k)`.
4. The kept set is published in sorted order, which is a function of the set: no order of reading shows.

In doubles the inequalities hold up to rounding, a few 1e-15 measured against a in [2^-14, 4]. So each coin is charged
d + 2^-44, delta + k 2^-44 together. PyDP's truncated geometric strategy computes p; where PyDP is not installed,
because it has no wheel for the platform, the recursion of the theorem does. Whichever it is, before the first draw
every p(n), up to the n from which all is kept, is put into both inequalities (`_probabilities`): the charge rests on
that check alone. The coins are not PyDP's: its generator reads the operating system ahead into a buffer, and two
processes forked from one give the same bits. They come through `tasks.mechanisms.core.rng`, and are exact: a double is
a fraction, and a uniform integer below its denominator decides.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec
from itertools import count, pairwise

from models_db.errors import EnvironmentProblem, UsageError
from models_db.values.amounts import DELTA_UNIT, Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting import zcdp
from tasks.accounting.rounding import charge_rounded_up, exact, float_above, float_below
from tasks.mechanisms.core.rng import RandomSource

MECHANISM = "partition_selection"
MOST_CONTRIBUTIONS = 2**16
# Epsilon lies on a grid of 2^-30, where every value met here is a double: PyDP gets exactly what is charged for.
EPSILON_GRID = 2**30
# Of one candidate. Below, p climbs for more than half a million units; above, e^a magnifies the rounding of 1 - p.
LEAST_EPSILON, LARGEST_EPSILON = Fraction(1, 2**14), Fraction(4)
ROUNDING = Fraction(1, 2**44)
"""Surcharge on d for each of the k coins, because p is computed in doubles."""
# Our own check is in doubles too, and errs by less than this.
_CHECK = 2.0**-50


@dataclass(frozen=True)
class PartitionSelection:
    """Keeps the candidates that enough units name.

    Attributes:
        epsilon: of all k candidates of a unit together: a multiple of 2^-30, k 2^-14 to 4 k.
        delta: of all k together, exactly a double, more than k 2^-44 and below 1/2.
        contributions: k, how many candidates one unit can name.
    """

    epsilon: Fraction
    delta: Fraction
    contributions: int

    def __post_init__(self) -> None:
        if not 1 <= self.contributions <= MOST_CONTRIBUTIONS:
            raise _selection_invalid(f"A unit names at most 1 to {MOST_CONTRIBUTIONS} candidates.")
        each = self.epsilon / self.contributions
        if not LEAST_EPSILON <= each <= LARGEST_EPSILON or (self.epsilon * EPSILON_GRID).denominator != 1:
            raise _selection_invalid(f"Epsilon must be a multiple of 2^-30 and 2^-14 to 4 a candidate, not {each}.")
        if not self._rounding < self.delta < Fraction(1, 2) or Fraction(float(self.delta)) != self.delta:
            raise _selection_invalid("Delta must be a double, above 2^-44 a candidate and below a half.")

    @property
    def _rounding(self) -> Fraction:
        return self.contributions * ROUNDING

    def loss(self) -> Amount:
        """Return the charge of one selection: epsilon tanh(epsilon/(2k)), and delta + k 2^-44; both rounded up."""
        rho = zcdp.independent_coordinates(self.epsilon, self.contributions).rho
        return Amount(rho, charge_rounded_up(Fraction(0), self.delta + self._rounding).delta)

    def event(self, count: int = 1) -> PrivacyEvent:
        """`count` selections from the same units.

        dp-accounting 0.6 has no event for (epsilon, delta). In its words it is k discrete Laplace mechanisms of
        parameter a and sensitivity 1, which dominate k a-DP coins; the delta is in the loss, and a reader of the
        events subtracts it from the claim's (`tasks.accounting.dp_accounting_check`).
        """
        if count < 1:
            raise ValueError(f"an event has at least one selection, not {count}")
        each = float_above(self.epsilon / self.contributions)
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=count,
            parameters={
                "epsilon": str(self.epsilon),
                "delta": str(self.delta),
                "contributions": self.contributions,
            },
            loss=self.loss() * count,
            dp_event=zcdp.discrete_laplace_event(each, self.contributions * count),
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "PartitionSelection":
        """Return the selection whose parameters `event` stores.

        Raises:
            KeyError, ValueError, SelectionInvalid: they are not a selection's.
        """
        stored = event.parameters
        return cls(exact(stored["epsilon"]), exact(stored["delta"]), int(stored["contributions"]))

    def probability(self, units: int) -> float:
        """Return p(units), the probability that a candidate of `units` units is kept.

        Raises:
            StrategyDisagrees: the probabilities do not keep what is charged.
        """
        probabilities = _probabilities(self)
        return probabilities[min(max(units, 0), len(probabilities) - 1)]

    def keep(self, counts: Mapping[str, int], rng: RandomSource) -> list[str]:
        """Return the candidates that are kept, sorted.

        Args:
            counts: for each candidate the number of units that name it; each unit is in at most k of them, once.
            rng: where the coins come from.

        Raises:
            StrategyDisagrees: the probabilities do not keep what is charged; no coin was thrown.
        """
        chances = {units: Fraction(self.probability(units)) for units in set(counts.values())}
        return [name for name in sorted(counts) if _happens(chances[counts[name]], rng)]

    def units_for(self, probability: float) -> int:
        """Return the fewest units whose candidate is kept with at least that probability; public, for plans.

        Args:
            probability: above 0, at most 1.
        """
        probabilities = _probabilities(self)
        return next(units for units, chance in enumerate(probabilities) if chance >= probability)

    def even_count(self) -> int:
        """Return about how many units' candidate is kept as likely as not.

        The inflection of the probability (Desfontaines et al., PoPETS 2022, Theorem 1), in closed form: PyDP, which
        gives it to the unit, takes longer to load than pricing a request.
        """
        each = float(self.epsilon) / self.contributions
        failure = -math.expm1(math.log1p(-float(self.delta)) / self.contributions)
        return 1 + int(math.log((math.expm1(each) + 2 * failure) / ((math.exp(each) + 1) * failure)) / each)


def calibrate_selection(amount: Amount, contributions: int) -> PartitionSelection:
    """Return the selection that keeps most for `amount`: all of its delta, and the largest epsilon on the grid.

    Raises:
        SelectionUnaffordable: rho or delta buys no selection that could be drawn.
        SelectionInvalid: no such number of contributions.
    """
    if not 1 <= contributions <= MOST_CONTRIBUTIONS:
        raise _selection_invalid(f"A unit names at most 1 to {MOST_CONTRIBUTIONS} candidates.")
    delta = Fraction(amount.delta, DELTA_UNIT) - contributions * ROUNDING
    if delta <= contributions * ROUNDING:
        raise SelectionUnaffordable(amount, contributions)
    delta = min(Fraction(float_below(delta)), Fraction(float_below(Fraction(1, 2) - ROUNDING)))

    def affordable(steps: int) -> bool:
        epsilon = Fraction(steps, EPSILON_GRID)
        return zcdp.independent_coordinates(epsilon, contributions).rho <= amount.rho

    least, most = (int(end * contributions * EPSILON_GRID) for end in (LEAST_EPSILON, LARGEST_EPSILON))
    if not affordable(least):
        raise SelectionUnaffordable(amount, contributions)
    while least < most:  # the loss grows with epsilon
        middle = (least + most + 1) // 2
        least, most = (middle, most) if affordable(middle) else (least, middle - 1)
    return PartitionSelection(Fraction(least, EPSILON_GRID), delta, contributions)


def _happens(chance: Fraction, rng: RandomSource) -> bool:
    """A coin that is exact: a uniform integer below the denominator."""
    return rng.uniform_below(chance.denominator) < chance.numerator


@lru_cache(maxsize=16)
def _probabilities(selection: PartitionSelection) -> tuple[float, ...]:
    """p(0), p(1), ... up to the first 1, from where on it stays there: PyDP's, or without it those of the recursion.

    Raises:
        StrategyDisagrees: one of them breaks an inequality that the charge rests on.
    """
    source = by_recursion if find_spec("pydp") is None else _by_pydp
    probabilities: list[float] = []
    for chance in source(selection):
        probabilities.append(chance)
        if chance >= 1:
            break
        if len(probabilities) > MOST_UNITS:
            raise _strategy_disagrees()
    if not satisfies_dp(probabilities, selection):
        raise _strategy_disagrees()
    return tuple(probabilities)


def _by_pydp(selection: PartitionSelection) -> Iterator[float]:
    """Yield p(0), p(1), ... without end, as PyDP's truncated geometric strategy computes them."""
    from pydp.algorithms.partition_selection import create_truncated_geometric_partition_strategy as strategy  # heavy

    reference = strategy(float(selection.epsilon), float(selection.delta), selection.contributions)
    return (float(reference.probability_of_keep(units)) for units in count())


def by_recursion(selection: PartitionSelection) -> Iterator[float]:
    """Yield p(0), p(1), ... without end, in doubles: each as large as both inequalities allow, and at most 1.

    Theorem 1 of Desfontaines et al. in its recursive form: p(n + 1) = min(e^a p(n) + d, 1 - e^-a (1 - p(n) - d), 1).
    A step errs by less than e^4 2^-52 < 2^-46, which the 2^-44 that each coin is charged cover; the caller checks it.
    """
    growth = math.exp(float_below(selection.epsilon / selection.contributions))
    failure = -math.expm1(math.log1p(-float(selection.delta)) / selection.contributions)
    chance = 0.0
    while True:
        yield chance
        chance = min(growth * chance + failure, 1 - (1 - chance - failure) / growth, 1.0)


MOST_UNITS = 2**21
"""Upper bound on the units that keep a candidate with certainty, for every selection in range."""


def satisfies_dp(probabilities: Iterable[float], selection: PartitionSelection) -> bool:
    """Return whether keeping n units' candidates with these probabilities stays within the charge of `selection`."""
    chances = list(probabilities)
    each = float_below(selection.epsilon / selection.contributions)
    growth = math.exp(each) * (1 - 2.0**-51)  # at most e^a, whatever exp rounds to
    failure = -math.expm1(math.log1p(-float(selection.delta)) / selection.contributions) + float(ROUNDING) - _CHECK
    pairs = pairwise(chances)
    return chances[0] == 0 and all(
        less <= more and more - growth * less <= failure and (1 - less) - growth * (1 - more) <= failure
        for less, more in pairs
    )


def _selection_invalid(message: str) -> UsageError:
    return UsageError(
        message, "Give the keyword set another share of the budget, or let a unit name fewer.", code="SelectionInvalid"
    )


class SelectionUnaffordable(UsageError):
    """Too little rho or delta for any selection."""

    def __init__(self, amount: Amount, contributions: int) -> None:
        super().__init__(
            f"Rho {amount.rho_text} with delta {amount.delta_text} buys no selection among the candidates of units "
            f"that name {contributions} each.",
            "Partition selection needs a delta of its own, above 1e-12 for each candidate of a unit, and a larger "
            "share of rho where that is small; or take a public keyword set, which needs neither.",
            {"rho": amount.rho_text, "delta": amount.delta_text, "contributions": contributions},
        )


def _strategy_disagrees() -> EnvironmentProblem:
    return EnvironmentProblem(
        "The probabilities computed here do not confirm the charge of partition selection.",
        "Install the PyDP version of the lock file; nothing was drawn with these.",
        code="StrategyDisagrees",
    )
