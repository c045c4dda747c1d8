"""The gates: what waits there, which decisions on it count, and signed decisions, each bound to what was shown.

Which approvals count, how many are needed and who may still decide is computed for any number of requests and proposals
with the same few statements. The guards of the database enforce the same conditions (`migrations.schema.definitions`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services import erasures, proposals, requests
from models_db.services.audit.chain import Actor
from models_db.services.people import PasskeySignature
from models_db.services.policies import ApprovalRules, load_approval_rules
from models_db.services.proposals import AmountCheck, require_applicable
from models_db.tables import (
    Approval,
    Artifact,
    Dataset,
    Invocation,
    PasskeyEnd,
    Principal,
    Proposal,
    Publication,
    Request,
    RoleGrant,
    RoleRevocation,
    Withdrawal,
)
from models_db.values.canonical_json import encode_canonical
from models_db.values.request_state import REQUEST_GATES, WAITS_AT, Gate, RequestState
from models_db.writes.insert import insert_row

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


class GateClosed(Refused):
    """An approval is missing, rejected, expired, withdrawn, or was given for something else."""

    def __init__(self, request_id: int, gate: str, approvals: int, needed: int) -> None:
        super().__init__(
            f"Request {request_id} has not passed the {gate} gate: {approvals} of {needed} approvals"
            " that are unexpired and for exactly these bytes.",
            f'A steward decides with `almoner approve {request_id} --gate {gate} --reason "..."`.',
            {"request": request_id, "gate": gate, "given": approvals, "needed": needed},
        )


def nothing_to_withdraw(number: int, gate: Gate) -> Refused:
    """Return the refusal of a withdrawal where the steward has no approval that could be taken back."""
    return Refused(
        f"You have no approval at the {gate} gate of {number} that is neither withdrawn nor expired.",
        f"See the decisions with `almoner {'proposal' if gate is Gate.PROPOSAL else 'release'} show {number}`.",
        {"number": number, "gate": gate},
        code="NothingToWithdraw",
    )


@dataclass(frozen=True)
class GateDecision:
    """A steward's decision on one subject, as it is signed and stored.

    Attributes:
        number: of the request; at the gate `proposal`, of the proposal.
    """

    number: int
    gate: str
    subject_digest: str
    verdict: str
    reason: str
    expires_at: str

    def statement(self, approver: str) -> bytes:
        """Return the canonical bytes a steward signs."""
        return encode_canonical(
            {
                Gate(self.gate).subject: self.number,
                "gate": self.gate,
                "subject_sha256": self.subject_digest,
                "decision": self.verdict,
                "reason": self.reason,
                "expires_at": self.expires_at,
                "approver": approver,
            }
        )


def withdrawal_statement(number: int, gate: str, subject_digest: str, reason: str, approver: str) -> bytes:
    """Return the canonical bytes a steward signs to take an approval back."""
    return encode_canonical(
        {
            "withdrawal": number,
            "gate": gate,
            "subject_sha256": subject_digest,
            "reason": reason,
            "approver": approver,
        }
    )


def record_decision(
    session: Session,
    actor: Actor,
    decision: GateDecision,
    signature: str,
    *,
    attestation: str | None = None,
    approver: Actor | None = None,
    passkey: PasskeySignature | None = None,
    amount_check: AmountCheck | None = None,
) -> str:
    """Record a decision and move its subject on when the gate has enough approvals. Returns its state.

    Args:
        actor: the principal that records the decision.
        approver: the principal that signed it, if not the actor.
        passkey: the approver's passkey that made the signature, in place of the approver's own key.
        amount_check: checks a proposal before it is approved and before it takes effect; nothing here can compute what
            an epsilon costs.

    Raises:
        ValueError: a proposal is approved, and nothing checks it.
        WrongState, ProposalDecided: nothing waits at that gate.
        RoleDenied, RuleViolated: no steward, wrong subject, decided already, or the roles must be separate.
    """
    subject = find_decidable(session, decision.number, Gate(decision.gate))
    if subject.gate is Gate.PROPOSAL and decision.verdict == "approve":
        require_applicable(proposals.find_proposal(session, subject.number), amount_check)
    if not (subject.revocable and decision.verdict == "reject"):
        require_waiting(subject.gate, subject.number, subject.state)
    approval = _approval_row(session, subject, decision, signature, approver or actor, actor)
    approval.attestation = attestation
    if passkey is not None:
        approval.passkey_id, approval.assertion = passkey.passkey_id, passkey.stored
    if (subject.gate, decision.verdict) == (Gate.SPEND, "approve"):
        erasures.require_not_erased(session, requests.find_request(session, subject.number).version_id)
    insert_row(session, approval)
    _apply_decision(session, actor, subject, decision.verdict, amount_check)
    return find_decidable(session, subject.number, subject.gate).state


def require_waiting(gate: Gate, number: int, state: str) -> None:
    """Check that a subject in `state` waits at `gate`.

    Raises:
        WrongState, ProposalDecided: they are not.
    """
    if state in DECIDABLE_STATES[gate]:
        return
    if gate is Gate.PROPOSAL:
        raise proposals.proposal_decided(number, state)
    raise requests.WrongState(number, state, f"{DECIDABLE_STATES[gate][0]} ({gate} gate)")


def _approval_row(
    session: Session, subject: Decidable, decision: GateDecision, signature: str, approver: Actor, by: Actor
) -> Approval:
    return Approval(
        request_id=None if subject.gate is Gate.PROPOSAL else subject.number,
        proposal_id=subject.number if subject.gate is Gate.PROPOSAL else None,
        gate=decision.gate,
        subject_digest=decision.subject_digest,
        approver_id=approver.id,
        decision=decision.verdict,
        reason=decision.reason,
        at=utc_now(),
        expires_at=decision.expires_at,
        signature=signature,
        brought_by=by.id,
    )


def _apply_decision(
    session: Session, actor: Actor, subject: Decidable, verdict: str, amount_check: AmountCheck | None
) -> None:
    """Move a request on, or let a proposal take effect; a rejection of a proposal is its end by itself."""
    if subject.gate is Gate.PROPOSAL:
        if verdict == "approve" and _has_enough_approvals(session, subject):
            proposal = proposals.find_proposal(session, subject.number)
            proposals.apply_proposal(session, actor, proposal, amount_check)
    elif verdict == "reject":
        end = RequestState.REJECTED if subject.gate is Gate.SPEND else RequestState.DISCARDED
        requests.record_transition(session, actor, subject.number, subject.state, end)
    elif subject.state == RequestState.SUBMITTED and _has_enough_approvals(session, subject):
        requests.record_transition(session, actor, subject.number, subject.state, RequestState.APPROVED)


def withdraw_approval(
    session: Session,
    actor: Actor,
    number: int,
    gate: str,
    reason: str,
    signature: str,
    *,
    approver: Actor | None = None,
    passkey: PasskeySignature | None = None,
) -> str:
    """Take a person's approval back before it is used; its subject may wait again. Returns its state.

    Args:
        actor: the principal that records it.
        approver: the principal that gave the approval and signed this, if not the actor.
        passkey: the approver's passkey that made the signature, in place of the approver's own key.

    Raises:
        NothingToWithdraw: there is none, or it has expired.
        RuleViolated: it has been used.
    """
    subject = find_decidable(session, number, Gate(gate))
    own_approvals = GateStatus.load(session, [subject]).approvals_of(subject, (approver or actor).id)
    if not own_approvals:
        raise nothing_to_withdraw(number, subject.gate)
    for approval in own_approvals:
        row = Withdrawal(approval_id=approval.id, reason=reason, signature=signature, at=utc_now(), brought_by=actor.id)
        if passkey is not None:
            row.passkey_id, row.assertion = passkey.passkey_id, passkey.stored
        insert_row(session, row)
    if subject.state == RequestState.APPROVED and not _has_enough_approvals(session, subject):
        requests.record_transition(
            session, actor, number, subject.state, RequestState.SUBMITTED, "an approval was withdrawn"
        )
    return find_decidable(session, number, subject.gate).state


def unused_approvals(session: Session, person: int) -> list[tuple[Decidable, Approval]]:
    """Return what a person has approved and may take back: unexpired approvals that nobody has used, oldest first."""
    query = select(Approval).where(
        Approval.approver_id == person,
        Approval.decision == "approve",
        Approval.expires_at > utc_now(),
        Approval.id.not_in(select(Withdrawal.approval_id)),
    )
    given = session.scalars(query.order_by(Approval.id)).all()
    found = [(find_decidable(session, a.proposal_id or a.request_id or 0, Gate(a.gate)), a) for a in given]
    return [(subject, approval) for subject, approval in found if _is_unused(session, subject, approval)]


def _is_unused(session: Session, subject: Decidable, approval: Approval) -> bool:
    waits = subject.is_subject_of(approval) and subject.state in DECIDABLE_STATES[subject.gate]
    return waits and not (subject.gate is Gate.PUBLISH and _is_published(session, subject.number))


def _is_published(session: Session, number: int) -> bool:
    query = select(Publication.id).join(Artifact, Artifact.id == Publication.artifact_id)
    return session.scalars(query.where(Artifact.request_id == number)).first() is not None


def withdrawal_signatures(session: Session, number: int, gate: Gate) -> set[str]:
    """Return the signatures of all withdrawals of approvals of a subject; none is recorded again."""
    column = Approval.proposal_id if gate is Gate.PROPOSAL else Approval.request_id
    query = select(Withdrawal.signature).join(Approval, Approval.id == Withdrawal.approval_id)
    return set(session.scalars(query.where(column == number, Approval.gate == gate)))


def decisions_on(session: Session, number: int, *at: Gate) -> Sequence[tuple[Approval, Principal]]:
    """Return the decisions on a request or a proposal with their approvers, oldest first, whether they count or not.

    Args:
        at: the gate of a proposal, or those of a request that are looked at.
    """
    column = Approval.proposal_id if Gate.PROPOSAL in at else Approval.request_id
    query = select(Approval, Principal).join(Principal, Principal.id == Approval.approver_id)
    query = query.where(column == number, Approval.gate.in_(at)).order_by(Approval.id)
    return [(row[0], row[1]) for row in session.execute(query)]


def decisions_for_bundle(session: Session, request_id: int) -> Sequence[tuple[Approval, Principal]]:
    """Return the decisions for a bundle: those on a request, and the approvals of its standing authorisation.

    Those that expired after they were used are among them, those taken back are not; so it is the same at any time.
    """
    standing_id = requests.find_request(session, request_id).standing_id
    on_request = decisions_on(session, request_id, *REQUEST_GATES)
    on_proposal = decisions_on(session, standing_id, Gate.PROPOSAL) if standing_id else []
    decided = [*on_request, *((a, p) for a, p in on_proposal if a.decision == "approve")]
    query = select(Withdrawal.approval_id).where(Withdrawal.approval_id.in_([a.id for a, _ in decided]))
    withdrawn = set(session.scalars(query))
    return [(a, p) for a, p in decided if a.id not in withdrawn]


def _has_enough_approvals(session: Session, subject: Decidable) -> bool:
    approvals, needed = count_approvals(session, subject)
    return approvals >= needed


def require_gate(session: Session, request_id: int, gate: Gate) -> None:
    """Check a gate before a step, with figures; the database checks it again.

    Raises:
        GateClosed: it is not passed.
    """
    approvals, needed = count_approvals(session, find_decidable(session, request_id, gate))
    if approvals < needed:
        raise GateClosed(request_id, gate, approvals, needed)
