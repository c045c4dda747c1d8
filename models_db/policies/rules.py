"""A policy as the ledger keeps it: its text, and those of its rules that the database itself enforces."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DatasetTerms:
    """Terms of one dataset that differ from the policy; None leaves a term as the policy has it."""

    dataset: str
    spend_approvals: int | None
    publish_approvals: int | None
    proposal_approvals: int | None
    rho_max: int | None
    delta_max: int | None
    renyi_limits: tuple[int, ...] | None = None


@dataclass(frozen=True)
class PolicyTerms:
    """The columns of `policy_version`, and the rows of `policy_rule`."""

    digest: str
    body: str
    several_roles: bool
    spend_approvals: int
    publish_approvals: int
    proposal_approvals: int
    rho_max: int | None
    delta_max: int | None
    attempts: int
    approval_days: int
    request_days: int
    rules: tuple[DatasetTerms, ...]
    renyi_limits: tuple[int, ...] | None = None
    """Limits on the sums of charges at `RENYI_ORDERS`; None: no limit."""
