"""The two gates: signed decisions, each bound to the digest of exactly what was shown."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from models_db.base import moment
from models_db.canonical import canonical
from models_db.errors import Refused
from models_db.services import audits, releases
from models_db.services.audits import Actor
from models_db.services.denials import translated
from models_db.tables import (
    Approval,
    Dataset,
    PolicyVersion,
    Principal,
    Request,
)


class GateClosed(Refused):
    """An approval is missing, rejected, expired, or was given for something else."""

    def __init__(self, request_id: int, gate: str, given: int, needed: int) -> None:
        super().__init__(
            f"Request {request_id} has not passed the {gate} gate: {given} of {needed} approvals"
            " that are unexpired and for exactly these bytes.",
            f'A steward decides with `almoner approve {request_id} --gate {gate} --reason "..."`.',
            {"request": request_id, "gate": gate, "given": given, "needed": needed},
        )


@dataclass(frozen=True)
class Decision:
    """A steward's decision on one subject, as it is signed and stored."""

    request_id: int
    gate: str
    subject_digest: str
    verdict: str
    reason: str
    expires_at: str

    def statement(self, approver: str) -> bytes:
        """The canonical bytes a steward signs."""
        return canonical(
            {
                "request": self.request_id,
                "gate": self.gate,
                "subject_sha256": self.subject_digest,
                "decision": self.verdict,
                "reason": self.reason,
                "expires_at": self.expires_at,
                "approver": approver,
            }
        )


def decide(session: Session, actor: Actor, decision: Decision, signature: str) -> str:
    """Record a decision; when the spend gate has what it needs the request becomes approved. Returns its state.

    Raises:
        releases.WrongState: nothing waits at that gate.
        Denied: wrong subject, or the roles must be separate.
    """
    request = releases.find(session, decision.request_id)
    session.refresh(request, with_for_update={"key_share": True})  # two stewards at once must see both decisions
    dataset = session.get_one(Dataset, request.dataset_id)
    state = releases.state_of(session, request.id)
    waiting = {"spend": ("submitted", "approved"), "publish": ("produced",)}[decision.gate]
    if state not in waiting:
        raise releases.WrongState(request.id, state, f"{waiting[0]} ({decision.gate} gate)")
    with translated():
        session.add(
            Approval(
                request_id=request.id,
                gate=decision.gate,
                subject_digest=decision.subject_digest,
                approver_id=actor.id,
                decision=decision.verdict,
                reason=decision.reason,
                at=moment(),
                expires_at=decision.expires_at,
                signature=signature,
            )
        )
        session.flush()
    _follow(session, actor, request, decision)
    audits.append(
        session,
        actor,
        f"request.{decision.verdict}",
        {"gate": decision.gate, "subject": decision.subject_digest, "reason": decision.reason,
         "expires_at": decision.expires_at, "signature": signature},
        dataset=dataset.name,
        request_id=request.id,
    )  # fmt: skip
    return releases.state_of(session, request.id)


def _follow(session: Session, actor: Actor, request: Request, decision: Decision) -> None:
    state = releases.state_of(session, request.id)
    if decision.verdict == "reject":
        releases.move(session, actor, request.id, state, "rejected" if decision.gate == "spend" else "discarded")
    elif state == "submitted" and _open(session, request, "spend", request.digest):
        releases.move(session, actor, request.id, "submitted", "approved")


def approvals(session: Session, request_id: int, gate: str | None = None) -> Sequence[tuple[Approval, Principal]]:
    """The decisions on a request with who took them, oldest first."""
    query = select(Approval, Principal).join(Principal, Principal.id == Approval.approver_id)
    query = query.where(Approval.request_id == request_id).order_by(Approval.id)
    if gate is not None:
        query = query.where(Approval.gate == gate)
    return [(row[0], row[1]) for row in session.execute(query)]


def _open(session: Session, request: Request, gate: str, subject: str) -> bool:
    given, needed = gate_count(session, request, gate, subject)
    return given >= needed


def gate_count(session: Session, request: Request, gate: str, subject: str) -> tuple[int, int]:
    """Valid approvals given for exactly this subject, and how many the policy needs."""
    policy = session.get_one(PolicyVersion, request.policy_id)
    given = session.scalar(
        select(func.count()).where(
            Approval.request_id == request.id,
            Approval.gate == gate,
            Approval.subject_digest == subject,
            Approval.decision == "approve",
            Approval.expires_at > moment(),
        )
    )
    return given or 0, policy.spend_approvals if gate == "spend" else policy.publish_approvals


def require_gate(session: Session, request: Request, gate: str, subject: str) -> None:
    """Check a gate before a step, with figures; the database checks it again.

    Raises:
        GateClosed: it is not passed.
    """
    given, needed = gate_count(session, request, gate, subject)
    if given < needed:
        raise GateClosed(request.id, gate, given, needed)
