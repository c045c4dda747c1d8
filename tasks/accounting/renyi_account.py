"""Account in Rényi orders: curves of releases whose assignment is secret, limits on their sum, and its epsilon.

docs/proofs/secret-assignment.md, *Account in orders*, has the proofs. In short: at a fixed integer order and in one
direction, the divergences of releases with assignments of their own add up, whatever outputs decide about later sizes,
and a sum that never passes a limit bounds the divergence of everything together (Feldman and Zrnic, NeurIPS 2021;
Lécuyer, arXiv 2103.01379). Outputs may decide at which order a sum stays within its limit. So a claim (epsilon, delta)
gives each of the K orders delta/K: with the whole delta at each order and one that fits, the claim would be false
(`test_one_of_several_orders_needs_a_share_of_delta_for_each`).

Everything is computed in intervals; charges are rounded up and limits down.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from models_db.policies.checks import PolicyBounds
from models_db.policies.policy import DatasetRules, EffectiveRules, LifetimeLimit, Policy, ReleaseLimits
from models_db.policies.rules import DatasetTerms, PolicyTerms
from models_db.values.amounts import RENYI_ORDERS, RHO_UNIT, RenyiCurve
from models_db.values.canonical_json import digest, encode_canonical
from models_db.values.requests import model_to_json
from tasks.accounting import rounding, zcdp
from tasks.accounting.random_allocation import RandomAllocation, log_moments, reverse_divergence
from tasks.accounting.rounding import Exact, Interval, decimal_above, enclose, exact, iv, lower, upper
from tasks.accounting.zcdp import EPSILON_PLACES, LARGEST_EPSILON, InvalidTarget


@lru_cache(maxsize=4096)
def allocation_curve(allocation: RandomAllocation) -> RenyiCurve:
    """Return the curve of a release whose assignment is secret, rounded up; never above its whole rho.

    Remove at order n: ln E[L^n] / (n-1), plus n rho' of mechanisms that do not read the assignment. Add: (M/N) rho (1 +
    (n-1)/N), plus n rho'. The bound ln(N/(N-M)) of unread batches is not used: it would be no bound for a release that
    is drawn in part under one split and in part under another.
    """
    whole, moments = allocation.rho + allocation.other, log_moments(allocation, RENYI_ORDERS[-1])

    def charge(divergence: Fraction, order: int) -> int:
        return min(whole, allocation.other + math.ceil(divergence / order * RHO_UNIT))

    return RenyiCurve(
        tuple(charge(moments[order] / (order - 1), order) for order in RENYI_ORDERS),
        tuple(charge(reverse_divergence(allocation, Fraction(order)), order) for order in RENYI_ORDERS),
    )


@lru_cache(maxsize=256)
def curve_limits(epsilon: Exact, delta: Exact) -> tuple[int, ...]:
    """Return the largest sums that prove (epsilon, delta) at each of `RENYI_ORDERS`, in units of 1e-12 of rho.

    By the inequality behind Proposition 12 of Canonne, Kamath and Steinke (arXiv 2004.00010), at delta divided by the
    number of orders. 0 where an order proves the claim of nothing at all alone.

    Raises:
        InvalidTarget: epsilon or delta is out of range, or no order admits anything.
    """
    claim, target = exact(epsilon), exact(delta)
    if not 0 < claim <= LARGEST_EPSILON:
        raise InvalidTarget(f"Epsilon must be above 0 and at most {LARGEST_EPSILON}, not {epsilon}.")
    if not 0 < target < 1:
        raise InvalidTarget(f"Delta must be above 0 and below 1, not {delta}.")
    limits = tuple(
        max(0, math.floor(lower((enclose(claim) - _conversion(order, target)) / order) * RHO_UNIT))
        for order in RENYI_ORDERS
    )
    if not any(limits):
        raise InvalidTarget(f"Epsilon {epsilon} at delta {delta} admits nothing at orders up to {RENYI_ORDERS[-1]}.")
    return limits


def curve_epsilon(curve: RenyiCurve, delta: Exact) -> Decimal:
    """Return the epsilon that a sum of curves proves at `delta`, rounded up; it may be above the one of the whole rho.

    The inverse of `curve_limits`: a sum fits the limits of a claim if and only if its epsilon is at most the claim's,
    but for the rounding of limits.

    Raises:
        InvalidTarget: delta is not in (0, 1).
    """
    target = exact(delta)
    if not 0 < target < 1:
        raise InvalidTarget(f"Delta must be above 0 and below 1, not {delta}.")
    worst = Fraction(0)
    for values in (curve.remove, curve.add):
        if 0 not in values:  # two laws without a divergence are the same
            worst = max(
                worst,
                min(
                    upper(enclose(Fraction(order * value, RHO_UNIT)) + _conversion(order, target))
                    for order, value in zip(RENYI_ORDERS, values, strict=True)
                ),
            )
    return decimal_above(worst, EPSILON_PLACES)


@dataclass(frozen=True)
class OrdersBudget:
    """The limits on an account in orders, and what its blocks are charged; the ledger's guard compares the same.

    Attributes:
        claims: (epsilon, delta) of every limit that the policy in force sets for a dataset of the account.
        charged: the sum of charges on each block that has any.
    """

    claims: tuple[tuple[Decimal, Decimal], ...]
    charged: Mapping[int, RenyiCurve]

    def sums(self, blocks: Iterable[int]) -> set[RenyiCurve]:
        """Return the sums of these blocks, each once."""
        return {self.charged.get(block, _NOTHING) for block in blocks}

    def room(self, claim: tuple[Decimal, Decimal], blocks: Iterable[int]) -> int:
        """Return the rho, in units of 1e-12, of which every plan fits one limit on these blocks: the least room."""
        limits = curve_limits(*claim)
        rooms = (
            max(limit - value for limit, value in zip(limits, values, strict=True))
            for curve in self.sums(blocks)
            for values in (curve.remove, curve.add)
        )
        return max(0, min(rooms))

    def strictest(self, blocks: Iterable[int]) -> tuple[Decimal, Decimal]:
        """Return the limit with the least room on these blocks."""
        return min(self.claims, key=lambda claim: (self.room(claim, blocks), claim))

    def passed_by(self, curve: RenyiCurve, blocks: Iterable[int]) -> tuple[Decimal, Decimal] | None:
        """Return a limit that a charge on these blocks would pass; None if it fits all, as one of nothing does."""
        if curve == _NOTHING:
            return None
        sums = self.sums(blocks)
        over = [one for one in self.claims if not all((each + curve).fits(curve_limits(*one)) for each in sums)]
        return min(over, key=lambda claim: (self.room(claim, blocks), claim), default=None)

    def count(self, curve: RenyiCurve, blocks: Iterable[int]) -> int | None:
        """Return how many charges of `curve` on each of these blocks fit all limits; None if any number does."""
        counts = [
            _count_one_way(curve_limits(*claim), values, cost)
            for charged in self.sums(blocks)
            for claim in self.claims
            for values, cost in ((charged.remove, curve.remove), (charged.add, curve.add))
        ]
        return min((count for count in counts if count is not None), default=None)

    def epsilon(self, delta: Exact, blocks: Iterable[int], curve: RenyiCurve | None = None) -> Decimal:
        """Return the epsilon of the fullest of these blocks, with a further charge if there is one; rounded up."""
        return max((curve_epsilon(each + (curve or _NOTHING), delta) for each in self.sums(blocks)), default=Decimal(0))


_NOTHING = RenyiCurve.of_rho(0)


def _count_one_way(limits: Iterable[int], charged: Iterable[int], costs: Iterable[int]) -> int | None:
    """Return how many charges fit in one direction: the most that fit at some order; None if a charge costs nothing.

    The account admits a release if some order is within its limit, so the order with most room counts.
    """
    most = 0
    for limit, value, cost in zip(limits, charged, costs, strict=True):
        if not cost and value <= limit:
            return None
        most = max(most, (limit - value) // cost if cost else 0)
    return most


def _conversion(order: int, delta: Fraction) -> Interval:
    """Enclose what is added to a divergence of one order for its epsilon at this order's share of delta."""
    rest = order - 1
    share = delta / len(RENYI_ORDERS)
    return (rest * iv.log(iv.mpf(rest)) - order * iv.log(iv.mpf(order)) - iv.log(enclose(share))) / rest


def bounds_of(rules: EffectiveRules) -> PolicyBounds:
    """Return the integers that hold for one dataset.

    rho_max is the largest rho with delta(rho, epsilon_max) <= delta_max, as for a lifetime cap (PRIVACY §2): whatever
    epsilon and delta within the limits a release claims, it charges no more.

    Raises:
        InvalidTarget: the limits buy less than the ledger can count.
    """
    return PolicyBounds(*_release(rules.release))


def terms_of(policy: Policy) -> PolicyTerms:
    """Return the terms of a policy that the ledger stores.

    Raises:
        InvalidTarget: its limits, or those for a dataset, buy less than the ledger can count.
    """
    body = model_to_json(policy)
    rho_max, delta_max = _release(policy.release)
    return PolicyTerms(
        digest=digest(body),
        body=encode_canonical(body).decode(),
        several_roles=policy.several_roles,
        spend_approvals=policy.approvals.spend,
        publish_approvals=policy.approvals.publish,
        proposal_approvals=policy.approvals.proposal,
        rho_max=rho_max,
        delta_max=delta_max,
        attempts=policy.attempts,
        approval_days=policy.approval_days,
        request_days=policy.request_days,
        rules=tuple(_dataset_terms(name, rules) for name, rules in sorted(policy.datasets.items())),
        renyi_limits=_in_orders(policy.lifetime_while_secret),
    )


def _dataset_terms(name: str, rules: DatasetRules) -> DatasetTerms:
    approvals, limits = rules.approvals, _in_orders(rules.lifetime_while_secret)
    return DatasetTerms(name, approvals.spend, approvals.publish, approvals.proposal, *_release(rules.release), limits)


def _in_orders(limit: LifetimeLimit | None) -> tuple[int, ...] | None:
    return None if limit is None else curve_limits(limit.epsilon, limit.delta)


def _release(limits: ReleaseLimits | None) -> tuple[int | None, int | None]:
    if limits is None:
        return None, None
    rho = zcdp.release_amount(limits.epsilon_max, limits.delta_max).rho
    return rho, rounding.cap_rounded_down(Fraction(0), rounding.exact(limits.delta_max)).delta
