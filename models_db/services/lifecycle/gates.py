"""The gates: signed decisions, each bound to the digest of exactly what was shown."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services.audit.chain import Actor
from models_db.services.catalogue import erasures, internal_views, principals, requests
from models_db.services.lifecycle import proposals
from models_db.services.lifecycle.amount_derivation import AmountCheck, require_applicable
from models_db.tables import (
    Approval,
    Dataset,
    Delegation,
    DelegationEnd,
    PolicyRule,
    PolicyVersion,
    Principal,
    Proposal,
    Request,
    Withdrawal,
)
from models_db.values.canonical_json import Json, encode_canonical
from models_db.values.gates import Gate
from models_db.values.request_state import WAITS_AT, RequestState
from models_db.writes.insert import insert_row, lock_proposal, lock_request


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
            f"See the decisions with `almoner {'proposal' if gate == 'proposal' else 'release'} show {number}`.",
            {"number": number, "gate": gate},
        )


@dataclass(frozen=True)
class GateDecision:
    """A steward's decision on one subject, as it is signed and stored.

    Attributes:
        request_id: the request's number; at the gate `proposal`, the proposal's.
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
            "proposal" if self.gate == Gate.PROPOSAL else "request": self.request_id,
            "gate": self.gate,
            "subject_sha256": self.subject_digest,
            "decision": self.verdict,
            "reason": self.reason,
            "expires_at": self.expires_at,
            "approver": approver,
        }
        return encode_canonical(said | ({"on_behalf_of": self.on_behalf_of} if self.on_behalf_of else {}))


def withdrawal_statement(number: int, gate: str, subject_digest: str, reason: str, approver: str) -> bytes:
    """The canonical bytes a steward signs to take an approval back."""
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
    amount_check: AmountCheck | None = None,
) -> str:
    """Record a decision; when the gate has what it needs, what waits there moves on. Returns its state.

    Args:
        actor: who brings the decision.
        approver: who has signed it, if that is somebody else.
        amount_check: checks a proposal before it is approved and before it takes effect; nothing here can compute what
            an epsilon costs.

    Raises:
        ValueError: a proposal is approved, and nothing checks it.
        releases.WrongState, proposals.ProposalDecided: nothing waits at that gate.
        RoleDenied, RuleViolated: no steward, wrong subject, decided already, or the roles must be separate.
    """
    if decision.gate == Gate.PROPOSAL:
        return _decide_proposal(session, actor, decision, signature, approver or actor, amount_check)
    lock_request(session, decision.request_id)  # two stewards at once must see both decisions
    request = requests.find_request(session, decision.request_id)
    state = requests.state_of(session, request.id)
    waiting = WAITS_AT[Gate(decision.gate)]
    if state not in waiting:
        raise requests.WrongState(request.id, state, f"{waiting[0]} ({decision.gate} gate)")
    made = _approval_row(session, decision, signature, approver or actor, actor)
    made.request_id, made.attestation = request.id, attestation
    _require_not_barred(session, request, made)
    if (decision.gate, decision.verdict) == (Gate.SPEND, "approve"):
        erasures.require_not_erased(session, request.version_id)
    insert_row(session, made)
    _move_request(session, actor, request, decision)
    return requests.state_of(session, request.id)


def _approval_row(session: Session, decision: GateDecision, signature: str, approver: Actor, by: Actor) -> Approval:
    giver = principals.find_principal(session, decision.on_behalf_of).id if decision.on_behalf_of else None
    return Approval(
        gate=decision.gate,
        subject_digest=decision.subject_digest,
        approver_id=approver.id,
        on_behalf_of=giver,
        decision=decision.verdict,
        reason=decision.reason,
        at=utc_now(),
        expires_at=decision.expires_at,
        signature=signature,
        brought_by=by.id,
    )


def _require_not_barred(session: Session, subject: Request | Proposal, approval: Approval) -> None:
    policy, dataset = session.get_one(PolicyVersion, subject.policy_id), session.get_one(Dataset, subject.dataset_id)
    people = (approval.approver_id, approval.on_behalf_of)
    internal_views.require_not_barred(session, policy, dataset, people, f"the {approval.gate} gate")


def _move_request(session: Session, actor: Actor, request: Request, decision: GateDecision) -> None:
    state = requests.state_of(session, request.id)
    if decision.verdict == "reject":
        end = RequestState.REJECTED if decision.gate == Gate.SPEND else RequestState.DISCARDED
        requests.record_transition(session, actor, request.id, state, end)
    elif state == RequestState.SUBMITTED and _is_gate_open(session, request, Gate.SPEND, request.digest):
        requests.record_transition(session, actor, request.id, RequestState.SUBMITTED, RequestState.APPROVED)


def _decide_proposal(
    session: Session,
    actor: Actor,
    decision: GateDecision,
    signature: str,
    approver: Actor,
    applicable: AmountCheck | None,
) -> str:
    lock_proposal(session, decision.request_id)
    proposal = proposals.find_proposal(session, decision.request_id)
    if decision.verdict == "approve":
        require_applicable(proposal, applicable)
    state = proposals.state_of(session, proposal)
    ends_standing = state == "carried" and proposal.kind == "standing" and decision.verdict == "reject"
    if state != "open" and not ends_standing:
        raise proposals.ProposalDecided(proposal.id, state)
    made = _approval_row(session, decision, signature, approver, actor)
    made.proposal_id = proposal.id
    _require_not_barred(session, proposal, made)
    insert_row(session, made)
    given, needed = count_proposal_approvals(session, proposal)
    carries = decision.verdict == "approve" and given >= needed
    if carries:
        proposals.apply_proposal(session, actor, proposal, applicable)
    return proposals.state_of(session, proposal)


def withdraw_approval(session: Session, actor: Actor, number: int, gate: str, reason: str, signature: str) -> str:
    """Take the actor's approval back before it is used; what lacks one then waits again. Returns its state.

    Raises:
        NothingToWithdraw: there is none that counts.
        RuleViolated: it has been used.
    """
    (lock_proposal if gate == Gate.PROPOSAL else lock_request)(session, number)
    found = own_approvals(session, actor, number, gate)
    for each in (a for a in found if a.subject_digest == found[-1].subject_digest):
        insert_row(session, Withdrawal(approval_id=each.id, reason=reason, signature=signature, at=utc_now(),
                                   brought_by=actor.id))  # fmt: skip
    if gate == Gate.PROPOSAL:
        proposal = proposals.find_proposal(session, number)
        return proposals.state_of(session, proposal)
    request = requests.find_request(session, number)
    state = requests.state_of(session, number)
    if state == RequestState.APPROVED and not _is_gate_open(session, request, Gate.SPEND, request.digest):
        requests.record_transition(session, actor, number, state, RequestState.SUBMITTED, "an approval was withdrawn")
    return requests.state_of(session, number)


def own_approvals(session: Session, actor: Actor, number: int, gate: str) -> Sequence[Approval]:
    """The actor's own approvals at a gate that count now, the newest last.

    Raises:
        NothingToWithdraw: there is none.
    """
    if gate == Gate.PROPOSAL:
        dataset_id = proposals.find_proposal(session, number).dataset_id
        decisions = proposal_decisions(session, number)
    else:
        dataset_id = requests.find_request(session, number).dataset_id
        decisions = request_decisions(session, number, gate)
    own = [a for a, by in decisions if by.id == actor.id and _approval_counts(session, a, dataset_id)]
    if not own:
        raise NothingToWithdraw(number, gate)
    return own


def request_decisions(
    session: Session, request_id: int, gate: str | None = None
) -> Sequence[tuple[Approval, Principal]]:
    """The decisions on a request with who took them, oldest first, whether they count or not."""
    return _decisions_with_people(session, Approval.request_id == request_id, gate)


def decisions_for_bundle(session: Session, request_id: int) -> Sequence[tuple[Approval, Principal]]:
    """What a bundle carries: decisions on a request, and the approvals of the standing authorisation it came under.

    Those that expired after they were used are among them, those taken back are not; so it is the same at any time.
    """
    standing = requests.find_request(session, request_id).standing_id
    on_request = _decisions_with_people(session, Approval.request_id == request_id, None)
    on_proposal = proposal_decisions(session, standing) if standing else []
    decided = [*on_request, *((a, p) for a, p in on_proposal if a.decision == "approve")]
    query = select(Withdrawal.approval_id).where(Withdrawal.approval_id.in_([a.id for a, _ in decided]))
    withdrawn = set(session.scalars(query))
    return [(a, p) for a, p in decided if a.id not in withdrawn]


def proposal_decisions(session: Session, proposal_id: int) -> Sequence[tuple[Approval, Principal]]:
    """The decisions on a proposal with who took them, oldest first, whether they count or not."""
    return _decisions_with_people(session, Approval.proposal_id == proposal_id, None)


def _decisions_with_people(
    session: Session, condition: ColumnElement[bool], gate: str | None
) -> Sequence[tuple[Approval, Principal]]:
    query = select(Approval, Principal).join(Principal, Principal.id == Approval.approver_id)
    query = query.where(condition).order_by(Approval.id)
    if gate is not None:
        query = query.where(Approval.gate == gate)
    return [(row[0], row[1]) for row in session.execute(query)]


def counting_decisions(session: Session, request_id: int, gate: str) -> Sequence[tuple[Approval, Principal]]:
    """The decisions that count now: rejections, and approvals that are unexpired, not withdrawn, by a steward still."""
    dataset_id = requests.find_request(session, request_id).dataset_id
    found = request_decisions(session, request_id, gate)
    return [(a, p) for a, p in found if a.decision == "reject" or _approval_counts(session, a, dataset_id)]


def _approval_counts(session: Session, approval: Approval, dataset_id: int) -> bool:
    """As the database counts (`migrations.schema.conditions`)."""
    withdrawn = session.scalar(select(func.count()).where(Withdrawal.approval_id == approval.id))
    if approval.decision != "approve" or approval.expires_at <= utc_now() or withdrawn:
        return False
    giver = approval.on_behalf_of
    if "steward" not in principals.roles_of(session, giver or approval.approver_id):
        return False
    return giver is None or _is_delegated(session, giver, approval.approver_id, dataset_id)


def _is_delegated(session: Session, giver: int, taker: int, dataset_id: int) -> bool:
    now = utc_now()
    query = select(func.count()).where(
        Delegation.from_id == giver,
        Delegation.to_id == taker,
        Delegation.dataset_id == dataset_id,
        Delegation.valid_from <= now,
        Delegation.valid_to > now,
        Delegation.id.not_in(select(DelegationEnd.delegation_id)),
    )
    return bool(session.scalar(query))


def _is_gate_open(session: Session, request: Request, gate: str, subject: str) -> bool:
    given, needed = count_approvals(session, request, gate, subject)
    return given >= needed


def count_approvals(session: Session, request: Request, gate: str, subject: str) -> tuple[int, int]:
    """Approvals that count for exactly this subject, and how many the policy needs."""
    given = [a for a, _ in request_decisions(session, request.id, gate) if a.subject_digest == subject]
    counted = sum(_approval_counts(session, each, request.dataset_id) for each in given)
    return counted, required_approvals(session, request.policy_id, request.dataset_id, gate)


def count_proposal_approvals(session: Session, proposal: Proposal) -> tuple[int, int]:
    """Approvals of a proposal that count, and how many the policy needs."""
    counted = sum(
        _approval_counts(session, each, proposal.dataset_id) for each, _ in proposal_decisions(session, proposal.id)
    )
    return counted, required_approvals(session, proposal.policy_id, proposal.dataset_id, Gate.PROPOSAL)


def required_approvals(session: Session, policy_id: int, dataset_id: int, gate: str) -> int:
    """How many stewards a policy asks for at a gate: the most for any dataset of the account."""
    policy = session.get_one(PolicyVersion, policy_id)
    column = f"{gate}_approvals"
    of_all: int = getattr(policy, column)
    account = session.get_one(Dataset, dataset_id).account_id
    names = session.scalars(select(Dataset.name).where(Dataset.account_id == account)).all()
    rules = session.scalars(select(PolicyRule).where(PolicyRule.policy_id == policy_id)).all()
    own = {rule.dataset: getattr(rule, column) for rule in rules}
    return max(of_all if own.get(name) is None else own[name] for name in names)


def require_gate(session: Session, request: Request, gate: str, subject: str) -> None:
    """Check a gate before a step, with figures; the database checks it again.

    Raises:
        GateClosed: it is not passed.
    """
    given, wanted = count_approvals(session, request, gate, subject)
    if given < wanted:
        raise GateClosed(request.id, gate, given, wanted)
