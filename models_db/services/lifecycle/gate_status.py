"""Requests and proposals at their gates as one value, and the state of the decisions on them.

Which approvals count, how many are needed and who may still decide is computed here for any number of them with the
same few statements. The guards of the database enforce the same conditions (`migrations.schema.conditions`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.services.catalogue import requests
from models_db.services.catalogue.policies import ApprovalRules, load_approval_rules
from models_db.services.lifecycle import proposals
from models_db.tables import (
    Approval,
    Artifact,
    Dataset,
    Invocation,
    PasskeyEnd,
    Proposal,
    Request,
    RoleGrant,
    RoleRevocation,
    Withdrawal,
)
from models_db.values.gates import Gate
from models_db.values.request_state import WAITS_AT

DECIDABLE_STATES: Final[Mapping[Gate, tuple[str, ...]]] = {**WAITS_AT, Gate.PROPOSAL: ("open",)}
"""The states in which decisions are taken at each gate, the one that needs them first."""


@dataclass(frozen=True)
class Decidable:
    """A request or a proposal at one of its gates.

    Attributes:
        number: of the request, or of the proposal.
        subject_digest: what an approval binds to: the digest of the request, of its artifact, or of the proposal.
        participants: principals who took part in it; where roles are separate, they may not decide.
        revocable: whether it is a standing authorisation in force, which one rejection ends.
    """

    gate: Gate
    number: int
    subject_digest: str
    dataset_id: int
    account_id: int
    policy_id: int
    state: str
    participants: frozenset[int]
    revocable: bool = False

    @classmethod
    def of_request(
        cls,
        request: Request,
        gate: Gate,
        state: str,
        dataset: Dataset,
        artifact: Artifact | None,
        runners: Collection[tuple[int, int]],
    ) -> "Decidable":
        """Return a request at its spend or publish gate; `runners` as `runners_by_request` returns them."""
        subject = request.digest if gate is Gate.SPEND or artifact is None else artifact.digest
        ran = {person for number, person in runners if number == request.id}
        return cls(gate, request.id, subject, dataset.id, dataset.account_id, request.policy_id, state,
                   frozenset({request.requester_id, *ran}))  # fmt: skip

    @classmethod
    def of_proposal(cls, proposal: Proposal, state: str, dataset: Dataset) -> "Decidable":
        """Return a proposal at its gate."""
        revocable = (proposal.kind, state) == ("standing", "carried")
        return cls(Gate.PROPOSAL, proposal.id, proposal.digest, dataset.id, dataset.account_id, proposal.policy_id,
                   state, frozenset({proposal.proposer_id}), revocable)  # fmt: skip

    def is_subject_of(self, approval: Approval) -> bool:
        """Return whether a decision was taken on exactly this."""
        number = approval.proposal_id if self.gate is Gate.PROPOSAL else approval.request_id
        return (number, approval.gate, approval.subject_digest) == (self.number, self.gate, self.subject_digest)


def find_decidable(session: Session, number: int, gate: Gate) -> Decidable:
    """Return the request or proposal with that number at a gate.

    Raises:
        RequestUnknown, ProposalUnknown: there is none.
    """
    if gate is Gate.PROPOSAL:
        proposal = proposals.find_proposal(session, number)
        state, dataset = proposals.state_of(session, proposal), session.get_one(Dataset, proposal.dataset_id)
        return Decidable.of_proposal(proposal, state, dataset)
    request = requests.find_request(session, number)
    state, dataset = requests.state_of(session, number), session.get_one(Dataset, request.dataset_id)
    artifact = artifacts_by_request(session, [number]).get(number)
    return Decidable.of_request(request, gate, state, dataset, artifact, runners_by_request(session, [number]))


def artifacts_by_request(session: Session, request_ids: Collection[int]) -> dict[int, Artifact]:
    """Return the artifact of the last successful attempt of each request."""
    query = select(Artifact).where(Artifact.request_id.in_(request_ids)).order_by(Artifact.attempt)
    return {artifact.request_id: artifact for artifact in session.scalars(query)}


def runners_by_request(session: Session, request_ids: Collection[int]) -> set[tuple[int, int]]:
    """Return the principals that have recorded invocations of requests, as pairs (request, principal)."""
    query = select(Invocation.request_id, Invocation.created_by).where(Invocation.request_id.in_(request_ids))
    return {(row[0], row[1]) for row in session.execute(query.distinct())}


@dataclass(frozen=True)
class DecidingPeople:
    """Stewards and admins of now."""

    stewards: frozenset[int]
    admins: frozenset[int]


@dataclass(frozen=True)
class GateStatus:
    """The decisions on some decidables, and the people and rules that they depend on, as they are now."""

    people: DecidingPeople
    rules: ApprovalRules
    decisions: Sequence[Approval]
    revoked: frozenset[int]
    """Passkeys that were revoked; what they approved counts no more."""

    @classmethod
    def load(cls, session: Session, decidables: Collection[Decidable]) -> "GateStatus":
        """Load the status of some decidables from the ledger."""
        accounts = {decidable.account_id for decidable in decidables}
        return cls(
            _deciding_people(session),
            load_approval_rules(session, {decidable.policy_id for decidable in decidables}, accounts),
            _possible_decisions(session, decidables),
            frozenset(session.scalars(select(PasskeyEnd.passkey_id))),
        )

    def needed(self, subject: Decidable) -> int:
        """Return how many stewards must approve."""
        return self.rules.required_approvals(subject.policy_id, subject.account_id, subject.gate)

    def counting(self, subject: Decidable) -> list[Approval]:
        """Return the decisions that count: rejections, and unexpired, standing approvals by present stewards."""
        return [
            decision
            for decision in self.decisions
            if subject.is_subject_of(decision) and (decision.decision == "reject" or self._is_in_force(decision))
        ]

    def _is_in_force(self, approval: Approval) -> bool:
        return approval.passkey_id not in self.revoked and approval.approver_id in self.people.stewards

    def approvals_of(self, subject: Decidable, person: int) -> list[Approval]:
        """Return the approvals that a person has given and may take back, also those that do not count now."""
        return [
            decision
            for decision in self.decisions
            if subject.is_subject_of(decision) and (decision.decision, decision.approver_id) == ("approve", person)
        ]

    def approvers(self, subject: Decidable) -> frozenset[int]:
        """Return the people whose approvals count."""
        return frozenset(each.approver_id for each in self.counting(subject) if each.decision == "approve")

    def is_rejected(self, subject: Decidable) -> bool:
        """Return whether it was rejected; one rejection is enough."""
        return any(decision.decision == "reject" for decision in self.counting(subject))

    def is_passed(self, subject: Decidable) -> bool:
        """Return whether the gate is open."""
        return len(self.approvers(subject)) >= self.needed(subject) and not self.is_rejected(subject)

    def deciders(self, subject: Decidable) -> frozenset[int]:
        """Return the principals who could give one more approval now."""
        if self.is_rejected(subject):
            return frozenset()
        excluded = {decision.approver_id for decision in self.decisions if subject.is_subject_of(decision)}
        if not self.rules.policies[subject.policy_id].several_roles:
            excluded |= subject.participants | self.people.admins
        return self.people.stewards - excluded


def count_approvals(session: Session, subject: Decidable) -> tuple[int, int]:
    """Return the number of approvals that count, and the number that the policy needs."""
    status = GateStatus.load(session, [subject])
    return len(status.approvers(subject)), status.needed(subject)


def _deciding_people(session: Session) -> DecidingPeople:
    now = utc_now()
    granted = select(RoleGrant.role, RoleGrant.principal_id).where(
        RoleGrant.role.in_(("steward", "admin")),
        RoleGrant.valid_from <= now,
        or_(RoleGrant.valid_to.is_(None), RoleGrant.valid_to > now),
        RoleGrant.id.not_in(select(RoleRevocation.grant_id)),
    )
    holders: dict[str, set[int]] = {"steward": set(), "admin": set()}
    for role, principal in session.execute(granted):
        holders[role].add(principal)
    return DecidingPeople(frozenset(holders["steward"]), frozenset(holders["admin"]))


def _possible_decisions(session: Session, decidables: Collection[Decidable]) -> list[Approval]:
    """Return the decisions that may count: rejections, and approvals that have not expired and were not withdrawn."""
    proposal_ids = {decidable.number for decidable in decidables if decidable.gate is Gate.PROPOSAL}
    request_ids = {decidable.number for decidable in decidables if decidable.gate is not Gate.PROPOSAL}
    query = select(Approval).where(
        or_(Approval.request_id.in_(request_ids), Approval.proposal_id.in_(proposal_ids)),
        or_(Approval.decision == "reject", Approval.expires_at > utc_now()),
        Approval.id.not_in(select(Withdrawal.approval_id)),
    )
    return list(session.scalars(query.order_by(Approval.id)))
