"""Policies: recorded once, adopted by an admin, the last adopted one in force."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.policies.rules import DatasetTerms, PolicyTerms
from models_db.services import people
from models_db.services.audit.chain import Actor
from models_db.tables import Dataset, PolicyAdoption, PolicyRule, PolicyVersion
from models_db.tables.principals import limit_columns
from models_db.writes.insert import insert_row, insert_rows


def policy_in_force(session: Session) -> PolicyVersion | None:
    """Return the policy that was adopted last; None in a ledger that has none yet."""
    query = select(PolicyVersion).join(PolicyAdoption, PolicyAdoption.policy_id == PolicyVersion.id)
    return session.scalars(query.order_by(PolicyAdoption.id.desc()).limit(1)).one_or_none()


def list_all(session: Session) -> Sequence[PolicyVersion]:
    """Return all policies that were ever adopted, oldest first."""
    return session.scalars(select(PolicyVersion).order_by(PolicyVersion.id)).all()


def terms_of(session: Session, version: PolicyVersion) -> PolicyTerms:
    """Return the terms of a policy that the ledger enforces: its columns and rules, from the stored rows."""
    columns = {field.name: getattr(version, field.name) for field in fields(PolicyTerms) if field.name != "rules"}
    rules = session.scalars(select(PolicyRule).where(PolicyRule.policy_id == version.id).order_by(PolicyRule.dataset))
    names = [field.name for field in fields(DatasetTerms)]
    dataset_terms = (DatasetTerms(**{name: getattr(rule, name) for name in names}) for rule in rules)
    return PolicyTerms(**columns, rules=tuple(sorted(dataset_terms, key=lambda rule: rule.dataset)))


def adopt(session: Session, actor: Actor, terms: PolicyTerms) -> PolicyVersion:
    """Put a policy in force; the one in force already is left alone.

    Raises:
        RoleRequired: only an admin adopts.
    """
    people.require_role(session, actor, "admin")
    now = policy_in_force(session)
    if now is not None and now.digest == terms.digest:
        return now
    stored = session.scalars(select(PolicyVersion).where(PolicyVersion.digest == terms.digest)).one_or_none()
    version = stored or _find_or_record(session, terms)
    insert_row(session, PolicyAdoption(policy_id=version.id, adopted_by=actor.id, at=utc_now()))
    return version


def _find_or_record(session: Session, terms: PolicyTerms) -> PolicyVersion:
    version = PolicyVersion(
        digest=terms.digest,
        body=terms.body,
        several_roles=terms.several_roles,
        spend_approvals=terms.spend_approvals,
        publish_approvals=terms.publish_approvals,
        proposal_approvals=terms.proposal_approvals,
        rho_max=terms.rho_max,
        delta_max=terms.delta_max,
        attempts=terms.attempts,
        approval_days=terms.approval_days,
        request_days=terms.request_days,
        **limit_columns(terms.renyi_limits),
        created_at=utc_now(),
    )
    insert_row(session, version)
    rules = [
        PolicyRule(
            policy_id=version.id,
            dataset=rule.dataset,
            spend_approvals=rule.spend_approvals,
            publish_approvals=rule.publish_approvals,
            proposal_approvals=rule.proposal_approvals,
            rho_max=rule.rho_max,
            delta_max=rule.delta_max,
            **limit_columns(rule.renyi_limits),
        )
        for rule in terms.rules
    ]
    insert_rows(session, rules)
    return version


@dataclass(frozen=True)
class ApprovalRules:
    """Approvals that policies demand for an account's datasets; the strictest rule holds, because they share people.

    The guards of the database apply the same rule (`migrations.schema.definitions`).
    """

    policies: Mapping[int, PolicyVersion]
    rules: Mapping[tuple[int, str], PolicyRule]
    sharing: Mapping[int, Sequence[str]]
    """Names of the datasets of an account."""

    def required_approvals(self, policy_id: int, account_id: int, gate: str) -> int:
        """Return how many stewards a policy asks for at a gate: the most for any dataset of the account."""
        column, policy = f"{gate}_approvals", self.policies[policy_id]
        own = (getattr(self.rules.get((policy_id, name)), column, None) for name in self.sharing[account_id])
        return max(int(getattr(policy, column) if number is None else number) for number in own)


def load_approval_rules(session: Session, policy_ids: Iterable[int], accounts: Iterable[int]) -> ApprovalRules:
    """Return the approval rules of policies for the datasets of accounts."""
    versions = set(policy_ids)
    policies = session.scalars(select(PolicyVersion).where(PolicyVersion.id.in_(versions)))
    rules = session.scalars(select(PolicyRule).where(PolicyRule.policy_id.in_(versions)))
    query = select(Dataset.account_id, Dataset.name).where(Dataset.account_id.in_(set(accounts)))
    sharing: dict[int, list[str]] = {}
    for account, name in session.execute(query):
        sharing.setdefault(account, []).append(name)
    return ApprovalRules({p.id: p for p in policies}, {(r.policy_id, r.dataset): r for r in rules}, sharing)
