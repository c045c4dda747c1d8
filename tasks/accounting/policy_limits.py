"""Limits of a policy in integers of the ledger, always rounded down."""

from fractions import Fraction

from models_db.policies.checks import PolicyBounds
from models_db.policies.policy import DatasetRules, EffectiveRules, LifetimeLimit, Policy, ReleaseLimits
from models_db.policies.rules import DatasetTerms, PolicyTerms
from models_db.values.canonical_json import digest, encode_canonical
from models_db.values.requests import model_to_json
from tasks.accounting import rounding, zcdp
from tasks.accounting.renyi_account import curve_limits


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
