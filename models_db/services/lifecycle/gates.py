"""Decisions at the gates: signed decisions, each bound to the digest of exactly what was shown."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services.audit.chain import Actor
from models_db.services.catalogue import erasures, requests
from models_db.services.catalogue.passkeys import PasskeySignature
from models_db.services.lifecycle import proposals
from models_db.services.lifecycle.amount_derivation import AmountCheck, require_applicable
from models_db.services.lifecycle.gate_status import (
    DECIDABLE_STATES,
    Decidable,
    GateStatus,
    count_approvals,
    find_decidable,
)
from models_db.tables import Approval, Artifact, Principal, Publication, Withdrawal
from models_db.values.canonical_json import encode_canonical
from models_db.values.gates import REQUEST_GATES, Gate
from models_db.values.request_state import RequestState
from models_db.writes.insert import insert_row


class GateClosed(Refused):
    """An approval is missing, rejected, expired, withdrawn, or was given for something else."""

    def __init__(self, request_id: int, gate: str, approvals: int, needed: int) -> None:
        super().__init__(
            f"Request {request_id} has not passed the {gate} gate: {approvals} of {needed} approvals"
            " that are unexpired and for exactly these bytes.",
            f'A steward decides with `almoner approve {request_id} --gate {gate} --reason "..."`.',
            {"request": request_id, "gate": gate, "given": approvals, "needed": needed},
        )


class NothingToWithdraw(Refused):
    """The steward has no approval there that could be taken back."""

    def __init__(self, number: int, gate: Gate) -> None:
        super().__init__(
            f"You have no approval at the {gate} gate of {number} that is neither withdrawn nor expired.",
            f"See the decisions with `almoner {'proposal' if gate is Gate.PROPOSAL else 'release'} show {number}`.",
            {"number": number, "gate": gate},
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
        releases.WrongState, proposals.ProposalDecided: nothing waits at that gate.
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
        raise proposals.ProposalDecided(number, state)
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
        raise NothingToWithdraw(number, subject.gate)
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
