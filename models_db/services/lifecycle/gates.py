"""The gates: signed decisions, each bound to the digest of exactly what was shown."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from models_db.database.base import moment
from models_db.errors import Refused
from models_db.services.audit.chain import Actor
from models_db.services.catalogue import erasures, internal_views, principals, requests
from models_db.services.lifecycle import proposals
from models_db.services.lifecycle.amount_derivation import Applicable, require_applicable
from models_db.tables import (
    Approval,
    Dataset,
    Delegation,
    DelegationEnd,
    Motion,
    PolicyRule,
    PolicyVersion,
    Principal,
    Request,
    Withdrawal,
)
from models_db.values.canonical_json import Json, canonical
from models_db.values.gates import Gate
from models_db.values.request_state import WAITS_AT, RequestState
from models_db.writes.insert import lock_motion, lock_request, record

MOTION_APPROVALS = 2
"""What a policy older than motions asks for."""


class GateClosed(Refused):
    """An approval is missing, rejected, expired, withdrawn, or was given for something else."""

    def __init__(self, request_id: int, gate: str, given: int, needed: int) -> None:
        super().__init__(
            f"Request {request_id} has not passed the {gate} gate: {given} of {needed} approvals"
            " that are unexpired and for exactly these bytes.",
            f'A steward decides with `almoner approve {request_id} --gate {gate} --reason "..."`.',
            {"request": request_id, "gate": gate, "given": given, "needed": needed},
        )


class NothingToWithdraw(Refused):
    """The steward has no approval there that could be taken back."""

    def __init__(self, number: int, gate: str) -> None:
        super().__init__(
            f"You have no approval at the {gate} gate of {number} that counts.",
            f"See the decisions with `almoner {'motion' if gate == 'motion' else 'release'} show {number}`.",
            {"number": number, "gate": gate},
        )


@dataclass(frozen=True)
class Decision:
    """A steward's decision on one subject, as it is signed and stored.

    Attributes:
        request_id: the request's number; at the gate `motion`, the motion's.
        on_behalf_of: the steward who delegated the decision, by name.
    """

    request_id: int
    gate: str
    subject_digest: str
    verdict: str
    reason: str
    expires_at: str
    on_behalf_of: str | None = None

    def statement(self, approver: str) -> bytes:
        """The canonical bytes a steward signs."""
        said: dict[str, Json] = {
            "motion" if self.gate == Gate.MOTION else "request": self.request_id,
            "gate": self.gate,
            "subject_sha256": self.subject_digest,
            "decision": self.verdict,
            "reason": self.reason,
            "expires_at": self.expires_at,
            "approver": approver,
        }
        return canonical(said | ({"on_behalf_of": self.on_behalf_of} if self.on_behalf_of else {}))


def withdrawal_statement(number: int, gate: str, subject_digest: str, reason: str, approver: str) -> bytes:
    """The canonical bytes a steward signs to take an approval back."""
    return canonical(
        {
            "withdrawal": number,
            "gate": gate,
            "subject_sha256": subject_digest,
            "reason": reason,
            "approver": approver,
        }
    )


def decide(
    session: Session,
    actor: Actor,
    decision: Decision,
    signature: str,
    *,
    attestation: str | None = None,
    approver: Actor | None = None,
    applicable: Applicable | None = None,
) -> str:
    """Record a decision; when the gate has what it needs, what waits there moves on. Returns its state.

    Args:
        actor: who brings the decision.
        approver: who has signed it, if that is somebody else.
        applicable: checks a motion before it is approved and before it takes effect; nothing here can compute what an
            epsilon costs.

    Raises:
        ValueError: a motion is approved, and nothing checks it.
        releases.WrongState, motions.MotionDecided: nothing waits at that gate.
        RoleMissing, Denied: no steward, wrong subject, decided already, or the roles must be separate.
    """
    if decision.gate == Gate.MOTION:
        return _decide_motion(session, actor, decision, signature, approver or actor, applicable)
    lock_request(session, decision.request_id)  # two stewards at once must see both decisions
    request = requests.find(session, decision.request_id)
    state = requests.state_of(session, request.id)
    waiting = WAITS_AT[Gate(decision.gate)]
    if state not in waiting:
        raise requests.WrongState(request.id, state, f"{waiting[0]} ({decision.gate} gate)")
    made = _approval(session, decision, signature, approver or actor, actor)
    made.request_id, made.attestation = request.id, attestation
    _require_not_barred(session, request, made)
    if (decision.gate, decision.verdict) == (Gate.SPEND, "approve"):
        erasures.require_left(session, request.version_id)
    record(session, made)
    _follow(session, actor, request, decision)
    return requests.state_of(session, request.id)


def _approval(session: Session, decision: Decision, signature: str, approver: Actor, by: Actor) -> Approval:
    giver = principals.find(session, decision.on_behalf_of).id if decision.on_behalf_of else None
    return Approval(
        gate=decision.gate,
        subject_digest=decision.subject_digest,
        approver_id=approver.id,
        on_behalf_of=giver,
        decision=decision.verdict,
        reason=decision.reason,
        at=moment(),
        expires_at=decision.expires_at,
        signature=signature,
        brought_by=by.id,
    )


def _require_not_barred(session: Session, asked: Request | Motion, made: Approval) -> None:
    policy, dataset = session.get_one(PolicyVersion, asked.policy_id), session.get_one(Dataset, asked.dataset_id)
    people = (made.approver_id, made.on_behalf_of)
    internal_views.require_not_barred(session, policy, dataset, people, f"the {made.gate} gate")


def _follow(session: Session, actor: Actor, request: Request, decision: Decision) -> None:
    state = requests.state_of(session, request.id)
    if decision.verdict == "reject":
        end = RequestState.REJECTED if decision.gate == Gate.SPEND else RequestState.DISCARDED
        requests.move(session, actor, request.id, state, end)
    elif state == RequestState.SUBMITTED and _open(session, request, Gate.SPEND, request.digest):
        requests.move(session, actor, request.id, RequestState.SUBMITTED, RequestState.APPROVED)


def _decide_motion(
    session: Session,
    actor: Actor,
    decision: Decision,
    signature: str,
    approver: Actor,
    applicable: Applicable | None,
) -> str:
    lock_motion(session, decision.request_id)
    motion = proposals.find(session, decision.request_id)
    if decision.verdict == "approve":
        require_applicable(motion, applicable)
    state = proposals.state_of(session, motion)
    ends_standing = state == "carried" and motion.kind == "standing" and decision.verdict == "reject"
    if state != "open" and not ends_standing:
        raise proposals.MotionDecided(motion.id, state)
    made = _approval(session, decision, signature, approver, actor)
    made.motion_id = motion.id
    _require_not_barred(session, motion, made)
    record(session, made)
    given, needed = motion_count(session, motion)
    carries = decision.verdict == "approve" and given >= needed
    if carries:
        proposals.carry(session, actor, motion, applicable)
    return proposals.state_of(session, motion)


def withdraw_approval(session: Session, actor: Actor, number: int, gate: str, reason: str, signature: str) -> str:
    """Take the actor's approval back before it is used; what lacks one then waits again. Returns its state.

    Raises:
        NothingToWithdraw: there is none that counts.
        Denied: it has been used.
    """
    (lock_motion if gate == Gate.MOTION else lock_request)(session, number)
    found = standing_of(session, actor, number, gate)
    for each in (a for a in found if a.subject_digest == found[-1].subject_digest):
        record(session, Withdrawal(approval_id=each.id, reason=reason, signature=signature, at=moment(),
                                   brought_by=actor.id))  # fmt: skip
    if gate == Gate.MOTION:
        motion = proposals.find(session, number)
        return proposals.state_of(session, motion)
    request = requests.find(session, number)
    state = requests.state_of(session, number)
    if state == RequestState.APPROVED and not _open(session, request, Gate.SPEND, request.digest):
        requests.move(session, actor, number, state, RequestState.SUBMITTED, "an approval was withdrawn")
    return requests.state_of(session, number)


def standing_of(session: Session, actor: Actor, number: int, gate: str) -> Sequence[Approval]:
    """The actor's own approvals at a gate that count now, the newest last.

    Raises:
        NothingToWithdraw: there is none.
    """
    if gate == Gate.MOTION:
        dataset_id = proposals.find(session, number).dataset_id
        decisions = motion_approvals(session, number)
    else:
        dataset_id = requests.find(session, number).dataset_id
        decisions = approvals(session, number, gate)
    own = [a for a, by in decisions if by.id == actor.id and _stands(session, a, dataset_id)]
    if not own:
        raise NothingToWithdraw(number, gate)
    return own


def approvals(session: Session, request_id: int, gate: str | None = None) -> Sequence[tuple[Approval, Principal]]:
    """The decisions on a request with who took them, oldest first, whether they count or not."""
    return _with_people(session, Approval.request_id == request_id, gate)


def given(session: Session, request_id: int) -> Sequence[tuple[Approval, Principal]]:
    """What a bundle carries: decisions on a request, and the approvals of the standing authorisation it came under.

    Those that expired after they were used are among them, those taken back are not; so it is the same at any time.
    """
    standing = requests.find(session, request_id).standing_id
    on_request = _with_people(session, Approval.request_id == request_id, None)
    on_motion = motion_approvals(session, standing) if standing else []
    decided = [*on_request, *((a, p) for a, p in on_motion if a.decision == "approve")]
    query = select(Withdrawal.approval_id).where(Withdrawal.approval_id.in_([a.id for a, _ in decided]))
    withdrawn = set(session.scalars(query))
    return [(a, p) for a, p in decided if a.id not in withdrawn]


def motion_approvals(session: Session, motion_id: int) -> Sequence[tuple[Approval, Principal]]:
    """The decisions on a motion with who took them, oldest first, whether they count or not."""
    return _with_people(session, Approval.motion_id == motion_id, None)


def _with_people(
    session: Session, condition: ColumnElement[bool], gate: str | None
) -> Sequence[tuple[Approval, Principal]]:
    query = select(Approval, Principal).join(Principal, Principal.id == Approval.approver_id)
    query = query.where(condition).order_by(Approval.id)
    if gate is not None:
        query = query.where(Approval.gate == gate)
    return [(row[0], row[1]) for row in session.execute(query)]


def valid(session: Session, request_id: int, gate: str) -> Sequence[tuple[Approval, Principal]]:
    """The decisions that count now: rejections, and approvals that are unexpired, not withdrawn, by a steward still."""
    dataset_id = requests.find(session, request_id).dataset_id
    found = approvals(session, request_id, gate)
    return [(a, p) for a, p in found if a.decision == "reject" or _stands(session, a, dataset_id)]


def _stands(session: Session, approval: Approval, dataset_id: int) -> bool:
    """As the database counts (`migrations.schema.conditions`)."""
    withdrawn = session.scalar(select(func.count()).where(Withdrawal.approval_id == approval.id))
    if approval.decision != "approve" or approval.expires_at <= moment() or withdrawn:
        return False
    giver = approval.on_behalf_of
    if "steward" not in principals.roles_of(session, giver or approval.approver_id):
        return False
    return giver is None or _is_delegated(session, giver, approval.approver_id, dataset_id)


def _is_delegated(session: Session, giver: int, taker: int, dataset_id: int) -> bool:
    now = moment()
    query = select(func.count()).where(
        Delegation.from_id == giver,
        Delegation.to_id == taker,
        Delegation.dataset_id == dataset_id,
        Delegation.valid_from <= now,
        Delegation.valid_to > now,
        Delegation.id.not_in(select(DelegationEnd.delegation_id)),
    )
    return bool(session.scalar(query))


def _open(session: Session, request: Request, gate: str, subject: str) -> bool:
    given, needed = gate_count(session, request, gate, subject)
    return given >= needed


def gate_count(session: Session, request: Request, gate: str, subject: str) -> tuple[int, int]:
    """Approvals that count for exactly this subject, and how many the policy needs."""
    given = [a for a, _ in approvals(session, request.id, gate) if a.subject_digest == subject]
    counted = sum(_stands(session, each, request.dataset_id) for each in given)
    return counted, needed(session, request.policy_id, request.dataset_id, gate)


def motion_count(session: Session, motion: Motion) -> tuple[int, int]:
    """Approvals of a motion that count, and how many the policy needs."""
    counted = sum(_stands(session, each, motion.dataset_id) for each, _ in motion_approvals(session, motion.id))
    return counted, needed(session, motion.policy_id, motion.dataset_id, Gate.MOTION)


def needed(session: Session, policy_id: int, dataset_id: int, gate: str) -> int:
    """How many stewards a policy asks for at a gate: the most for any dataset of the account."""
    policy = session.get_one(PolicyVersion, policy_id)
    column = f"{gate}_approvals"
    of_all = getattr(policy, column)
    account = session.get_one(Dataset, dataset_id).account_id
    names = session.scalars(select(Dataset.name).where(Dataset.account_id == account)).all()
    rules = session.scalars(select(PolicyRule).where(PolicyRule.policy_id == policy_id)).all()
    own = {rule.dataset: getattr(rule, column) for rule in rules}
    default = MOTION_APPROVALS if of_all is None else of_all
    return max(default if own.get(name) is None else own[name] for name in names)


def require_gate(session: Session, request: Request, gate: str, subject: str) -> None:
    """Check a gate before a step, with figures; the database checks it again.

    Raises:
        GateClosed: it is not passed.
    """
    given, wanted = gate_count(session, request, gate, subject)
    if given < wanted:
        raise GateClosed(request.id, gate, given, wanted)
