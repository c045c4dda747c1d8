"""Random allocation: the loss of each unit if the batch that reads the unit is unknown.

A release states these figures beside its unconditional claim, never in place of it (decision 0132). A request may be
calibrated to them (decision 0132); rho is charged as ever. docs/proofs/secret-assignment.md has the proofs, the
hypotheses and the conditions.

A unit is in one of N batches, uniformly, by a secret. M of them are read; each makes draws that cost rho (zCDP). Let
L_1, .., L_N be the batches' likelihood ratios, the unit present against the unit absent (1 for a batch that is not
read), and L their mean: the likelihood ratio of the whole release. The expectations are under the law without the
unit.

Remove (with against without), integer orders alpha >= 2: E[L^alpha] is at most

    alpha! [z^alpha] F(z/N)^M exp(z (N-M)/N),    F(z) = sum_a exp(rho a (a-1)) z^a / a!

which is the mean of exp(2 rho C) for alpha balls thrown into N bins, C the number of pairs that share a bin that is
read (Feldman and Shenfeld, arXiv 2502.08202, have integer orders as sums over partitions). It is at most the product
of 1 + (exp(2 rho k) - 1)/N over k = 1, .., alpha - 1: the closed form.

Add (without against with), every order alpha > 1: E[L^(1-alpha)] <= exp((alpha-1) (M/N) rho (1 + (alpha-1)/N)), from
the inequality of the arithmetic and the geometric mean.

Both hold for draws of all batches in any order, each chosen by all draws before it, because one draw after the other
can be averaged out of either product. They need no privacy loss distribution, so they compose in Renyi orders.

Other mechanisms of the release, which do not read the assignment and cost rho' together, have the same law whatever the
batch of the unit is. Their divergence, at most alpha rho' in both directions, adds at every order.

Each direction becomes (epsilon, delta) by the inequality behind Proposition 12 of Canonne, Kamath and Steinke (arXiv
2004.00010), which is about one ordered pair of laws. All is computed in intervals and rounded up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from models_db.values.amounts import RHO_UNIT, Amount
from tasks.accounting.rounding import Exact, Interval, decimal_above, enclose, exact, iv, upper
from tasks.accounting.zcdp import EPSILON_PLACES, InvalidTarget, epsilon_of

LARGEST_ORDER = 256
"""Highest order that is tried: the time grows with the square of the order, and every order gives a valid figure."""
FIRST_ORDERS = 16
"""So many orders are computed first; twice as many as long as the highest is the best."""


@dataclass(frozen=True)
class RandomAllocation:
    """A unit's place in a release: one of `batches`, uniform and secret.

    Attributes:
        rho: zCDP of all draws that one batch makes, in units of 1e-12.
        batches: N, the public number of batches of the unit's block and label.
        read: M, how many of them make draws.
        other: zCDP of all mechanisms of the release that do not read the assignment, in units of 1e-12.
    """

    rho: int
    batches: int
    read: int
    other: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.read <= self.batches:
            raise ValueError(f"{self.read} of {self.batches} batches cannot be read")
        Amount(self.rho), Amount(self.other)  # refuse what is negative or too large

    @classmethod
    def whole(cls, rho: int, batches: int) -> "RandomAllocation":
        """Return the allocation to batches that are all read."""
        return cls(rho, batches, batches)

    @property
    def loss(self) -> Fraction:
        """Return rho of a batch, exact."""
        return Fraction(self.rho, RHO_UNIT)

    @property
    def other_loss(self) -> Fraction:
        """Return rho of the other mechanisms, exact."""
        return Fraction(self.other, RHO_UNIT)


@dataclass(frozen=True)
class AllocationFigures:
    """The epsilons of one release at one delta, rounded up.

    Attributes:
        remove: the law with the unit against the law without.
        add: the law without the unit against the law with it.
        public: the figure of the same release if the unit's batch is known; it still holds if the key leaks.
    """

    remove: Decimal
    add: Decimal
    public: Decimal

    @property
    def epsilon(self) -> Decimal:
        """Return the epsilon of both directions."""
        return max(self.remove, self.add)


@lru_cache(maxsize=256)
def allocation_figures(allocation: RandomAllocation, delta: Exact) -> AllocationFigures:
    """Return the figures of a release at `delta`; none is above the figure of a public assignment.

    Raises:
        InvalidTarget: delta is not in (0, 1).

    >>> str(allocation_figures(RandomAllocation.whole(266313968646, 100), "1e-7").epsilon)[:5]
    '0.840'
    """
    target = exact(delta)
    if not 0 < target < 1:
        raise InvalidTarget(f"Delta must be above 0 and below 1, not {delta}.")
    public = epsilon_of(allocation.rho + allocation.other, target)
    return AllocationFigures(
        remove=min(public, _remove_epsilon(allocation, target)),
        add=min(public, _add_epsilon(allocation, target)),
        public=public,
    )


@lru_cache(maxsize=4096)
def claims_at_most(allocation: RandomAllocation, epsilon: Decimal, delta: Exact) -> bool:
    """Return whether the epsilon of `allocation_figures` is at most this; high orders only where low ones do not say.

    A search asks this of many sizes, and small figures take the highest orders, whose time grows with their square.

    Raises:
        InvalidTarget: delta is not in (0, 1).
    """
    target = exact(delta)
    if not 0 < target < 1:
        raise InvalidTarget(f"Delta must be above 0 and below 1, not {delta}.")
    if epsilon_of(allocation.rho + allocation.other, target) <= epsilon:
        return True
    return _add_epsilon(allocation, target) <= epsilon and _remove_epsilon(allocation, target, epsilon) <= epsilon


SUMMED_ORDERS = (*range(2, 33), 40, 48, 56, 64)
"""Integer orders at which divergences of several releases are added, in both directions."""


def summed_epsilon(allocations: Sequence[RandomAllocation], rest: int, delta: Exact) -> Decimal:
    """Return the epsilon of several releases together, each with an assignment of its own, rounded up.

    Divergences add at each order, also where outputs of one release steer the draws of another, but their sizes must be
    fixed beforehand (docs/proofs/secret-assignment.md, *Composition*). Never above the figure of the same releases with
    public assignments. For display: an account admits nothing by it.

    Args:
        rest: rho of all that has no secret assignment, in units of 1e-12.

    Raises:
        InvalidTarget: delta is not in (0, 1).
    """
    target, other = exact(delta), Fraction(rest, RHO_UNIT)
    remove, add = ([order * other for order in SUMMED_ORDERS] for _ in range(2))
    for allocation in allocations:
        one_way, other_way = _divergences(allocation)
        remove = [sum(pair, Fraction(0)) for pair in zip(remove, one_way, strict=True)]
        add = [sum(pair, Fraction(0)) for pair in zip(add, other_way, strict=True)]
    public = epsilon_of(rest + sum(one.rho + one.other for one in allocations), target)
    directions = [
        min(
            _epsilon_at(Fraction(order), (order - 1) * divergence, target)
            for order, divergence in zip(SUMMED_ORDERS, divergences, strict=True)
        )
        for divergences in (remove, add)
    ]
    return min(public, decimal_above(max(*directions, Fraction(0)), EPSILON_PLACES))


@lru_cache(maxsize=4096)
def _divergences(allocation: RandomAllocation) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """Return bounds on the divergences of one release at `SUMMED_ORDERS`, for remove and for add."""
    moments = log_moments(allocation, SUMMED_ORDERS[-1])
    return (
        tuple(moments[order] / (order - 1) + order * allocation.other_loss for order in SUMMED_ORDERS),
        tuple(
            reverse_divergence(allocation, Fraction(order)) + order * allocation.other_loss for order in SUMMED_ORDERS
        ),
    )


def log_moments(allocation: RandomAllocation, largest: int) -> tuple[Fraction, ...]:
    """Return upper bounds on ln E[L^n] of the batches, n = 0, .., `largest`.

    For remove, that is (n - 1) times the divergence of order n.

    exp(rho a (a-1)) is the sum over all graphs of a vertices of (exp(2 rho) - 1)^edges, so ln F has the sums kappa_n
    over connected ones. Without vertex 1, the component of vertex 2 has k vertices, some edge to vertex 1, and a
    connected rest: kappa_n = sum over k of C(n-2, k-1) (exp(2 rho k) - 1) kappa_k kappa_(n-k). With
    v_n = kappa_n/(n-1)! and E[L^n] = n! c_n, n c_n = c_(n-1) + M sum over k >= 2 of v_k c_(n-k) / N^k. No term is
    negative, so nothing cancels.
    """
    size, weights = iv.mpf(allocation.batches), _connected_weights(allocation, largest)
    steps = [allocation.read * weight / size**k for k, weight in enumerate(weights)]
    moments, factorial, bounds = [iv.mpf(1)], iv.mpf(1), [Fraction(0)]
    for n in range(1, largest + 1):
        total = moments[n - 1]
        for k in range(2, n + 1):
            total += steps[k] * moments[n - k]
        moments.append(total / n)
        factorial *= n
        bounds.append(upper(iv.log(factorial * moments[n])) if n > 1 else Fraction(0))
    return tuple(bounds)


def closed_form_log_moment(allocation: RandomAllocation, order: int) -> Fraction:
    """Return the closed upper bound on ln E[L^order]: the sum of ln(1 + (exp(2 rho k) - 1)/N) over 1 <= k < order."""
    total = iv.mpf(0)
    for k in range(1, order):
        total += iv.log(1 + (iv.exp(2 * k * enclose(allocation.loss)) - 1) / allocation.batches)
    return upper(total)


def reverse_divergence(allocation: RandomAllocation, order: Fraction) -> Fraction:
    """Return a bound on the batches' divergence for add, at any order above 1: (M/N) rho (1 + (order-1)/N), exact."""
    if order <= 1:
        raise ValueError(f"an order is above 1, not {order}")
    share = Fraction(allocation.read, allocation.batches)
    return share * allocation.loss * (1 + (order - 1) / allocation.batches)


def _remove_epsilon(allocation: RandomAllocation, delta: Fraction, enough: Decimal | None = None) -> Decimal:
    """Return the least epsilon over orders up to `LARGEST_ORDER`; any order is valid.

    With `enough`, no further orders are tried once the epsilon is at most that.

    The logarithm of a moment is convex in the order, and so are n (n-1) rho' and (n-1) ln(n-1) - n ln n: the epsilon of
    an order is a convex function over n - 1, which falls and then rises. So no order beyond one that is worse than its
    predecessor gains anything, and orders are added until one is.
    """
    largest = FIRST_ORDERS
    while True:
        bounds = [
            bound + order * (order - 1) * allocation.other_loss
            for order, bound in enumerate(log_moments(allocation, largest))
        ]
        epsilons = [_epsilon_at(Fraction(order), bounds[order], delta) for order in range(2, largest + 1)]
        found = decimal_above(max(min(epsilons), Fraction(0)), EPSILON_PLACES)
        if epsilons[-1] > epsilons[-2] or largest >= LARGEST_ORDER or (enough is not None and found <= enough):
            return found
        largest = min(2 * largest, LARGEST_ORDER)


def _add_epsilon(allocation: RandomAllocation, delta: Fraction) -> Decimal:
    """Return the least epsilon over orders, and at most ln(N/(N-M)) plus that of the other mechanisms alone.

    The batches' L is never below (N-M)/N, so their divergence is at most ln(N/(N-M)) at every order. The best order is
    1 + x where x^2 (M rho/N^2 + rho') + ln(1 + x) = ln(1/delta), by bisection in ln x; any order is valid.
    """
    log_delta = math.log(delta.numerator) - math.log(delta.denominator)
    slope = float(allocation.loss * allocation.read / allocation.batches**2 + allocation.other_loss)

    def rising(x: float) -> float:
        return x * x * slope + math.log1p(x) + log_delta

    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(math.exp(middle)) < 0 else (low, middle)
    order = 1 + Fraction(math.exp(high))
    divergence = reverse_divergence(allocation, order) + order * allocation.other_loss
    found = _epsilon_at(order, (order - 1) * divergence, delta)
    if allocation.read < allocation.batches:
        ratio = Fraction(allocation.batches, allocation.batches - allocation.read)
        found = min(found, upper(iv.log(enclose(ratio))) + Fraction(epsilon_of(allocation.other, delta)))
    return decimal_above(max(found, Fraction(0)), EPSILON_PLACES)


def _epsilon_at(order: Fraction, log_moment: Fraction, delta: Fraction) -> Fraction:
    """Return an upper bound on the epsilon that one order proves; `log_moment` is order - 1 times its divergence."""
    alpha, rest = enclose(order), enclose(order - 1)
    logs = rest * iv.log(rest) - alpha * iv.log(alpha) - iv.log(enclose(delta))
    return upper((enclose(log_moment) + logs) / rest)


def _connected_weights(allocation: RandomAllocation, largest: int) -> list[Interval]:
    """Return v_0, .., v_largest of `log_moments`; the first two are 0 and 1."""
    growth = [iv.exp(2 * k * enclose(allocation.loss)) - 1 for k in range(largest + 1)]
    weights = [iv.mpf(0), iv.mpf(1)]
    for n in range(2, largest + 1):
        total = iv.mpf(0)
        for k in range(1, n):
            total += growth[k] * weights[k] * weights[n - k]
        weights.append(total / (n - 1))
    return weights
