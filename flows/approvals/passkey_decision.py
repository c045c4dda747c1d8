"""Decisions and withdrawals that a passkey signs: prepared first, and recorded once the signature verifies.

What is signed, and what is checked before, is the same as for a decision on the command line. Whoever records it acts
for nobody: without the approver's signature there is no decision.
"""

from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy.orm import Session

from flows.approvals import decide
from flows.approvals.confirmation import require_confirmation, require_reason
from flows.approvals.review import Review
from flows.audit.lifetime_claims import require_proposal_amounts
from flows.governance.passkeys import PasskeyAnswer, find_signer
from flows.workspace.workspace import Workspace
from models_db.errors import Refused, UsageError
from models_db.services import gates
from models_db.services.audit.chain import Actor
from models_db.services.gates import GateDecision, GateStatus, find_decidable, withdrawal_statement
from models_db.services.people import PasskeySignature
from models_db.tables import Dataset, Principal
from models_db.values.request_state import Gate
from tasks.release.signatures.webauthn import challenge_of

VERDICTS = ("approve", "reject")
LONGEST_REASON = 5_000


@dataclass(frozen=True)
class PreparedDecision:
    """A decision that waits for its signature."""

    decision: GateDecision
    approver: Actor
    dataset: str

    @property
    def number(self) -> int:
        """Return the number of the request or proposal."""
        return self.decision.number

    @property
    def gate(self) -> Gate:
        """Return the gate of the decision."""
        return Gate(self.decision.gate)

    @property
    def act(self) -> str:
        """Return what is signed: `approve` or `reject`."""
        return self.decision.verdict

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """Return what is signed, for its approver to read."""
        stated = self.decision
        return (("decision", stated.verdict), ("reason", stated.reason), ("expires", stated.expires_at[:10]))

    @property
    def statement(self) -> bytes:
        """Return the bytes that are signed, the same as on the command line."""
        return self.decision.statement(self.approver.name)

    @property
    def challenge(self) -> bytes:
        """Return what the passkey has to answer."""
        return challenge_of(self.statement)


@dataclass(frozen=True)
class PreparedWithdrawal:
    """The withdrawal of an approval, as it waits for its signature."""

    number: int
    gate: Gate
    subject_digest: str
    reason: str
    approver: Actor
    dataset: str
    act: str = "withdraw"

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """Return what is signed, for its approver to read."""
        return (("decision", "take the approval back"), ("reason", self.reason))

    @property
    def statement(self) -> bytes:
        """Return the bytes that are signed, the same as on the command line."""
        return withdrawal_statement(self.number, self.gate, self.subject_digest, self.reason, self.approver.name)

    @property
    def challenge(self) -> bytes:
        """Return what the passkey has to answer."""
        return challenge_of(self.statement)


Prepared: TypeAlias = PreparedDecision | PreparedWithdrawal


def may_decide(session: Session, person: Actor, number: int, gate: Gate) -> bool:
    """Return whether a person could decide on a request or proposal now.

    Raises:
        RequestUnknown, ProposalUnknown: there is none of that number.
    """
    subject = find_decidable(session, number, gate)
    return person.id in GateStatus.load(session, [subject]).deciders(subject)


def prepare_decision(
    workspace: Workspace,
    approver: Actor,
    review: Review,
    verdict: str,
    reason: str,
    confirm: str,
    *,
    override: bool = False,
) -> PreparedDecision:
    """Check a decision as the command line does before it signs; nothing is recorded.

    Args:
        review: as its approver reads it.
        confirm: the dataset's name, typed by the approver; an approval needs it.
        override: whether an approval overrides the bounds of the policy that the release misses, for that reason.

    Raises:
        NothingToOverride: the release misses no bounds.
        VerdictUnknown, DecisionReasonMissing, DecisionReasonLong, ConfirmationMissing, ConfirmationWrong.
        DecidesElsewhere: on PostgreSQL, the approver has a login of their own.
        OutsideBounds, RoleDenied, RuleViolated, WrongState, ProposalDecided: the ledger would not take the decision.
    """
    if verdict not in VERDICTS:
        raise UsageError("A decision is `approve` or `reject`.", "Use the buttons of the page.", code="VerdictUnknown")
    reason = _require_short_reason(reason)
    _require_bringable(workspace, approver)
    if verdict == "approve":
        decide.require_waiting(review)
        require_confirmation(review.dataset, confirm)
        reason = decide.override_reason_for(review, reason) if override else reason
    decide.rehearse_decision(workspace, review, verdict, reason, approver)
    return PreparedDecision(decide.gate_decision(review, verdict, reason), approver, review.dataset)


def prepare_withdrawal(
    workspace: Workspace, approver: Actor, number: int, gate: Gate, reason: str
) -> PreparedWithdrawal:
    """Check the withdrawal of a person's approval as the command line does; nothing is recorded.

    Raises:
        DecisionReasonMissing, DecisionReasonLong.
        DecidesElsewhere: on PostgreSQL, the approver has a login of their own.
        RequestUnknown, ProposalUnknown, NothingToWithdraw: there is no approval to withdraw.
        RuleViolated: the approval has been used.
    """
    reason = _require_short_reason(reason)
    _require_bringable(workspace, approver)
    with workspace.database.rehearse() as session:
        subject = find_decidable(session, number, gate)
        gates.withdraw_approval(session, workspace.actor, number, gate, reason, decide.NO_SIGNATURE, approver=approver)
        dataset = session.get_one(Dataset, subject.dataset_id).name
    return PreparedWithdrawal(number, gate, subject.subject_digest, reason, approver, dataset)


def record_prepared(workspace: Workspace, prepared: Prepared, answer: PasskeyAnswer, origin: str) -> str:
    """Record a prepared decision or withdrawal that a passkey of its approver has signed; return its subject's state.

    Raises:
        AnswerRefused: no passkey in force of the approver signed exactly this, on pages of `origin`.
        ReviewChanged: something else waits at the gate than what was read.
        ApprovalUnusable, WithdrawalUsed: the signature was recorded before.
        The errors of `prepare_decision` and `prepare_withdrawal`.
    """
    if isinstance(prepared, PreparedWithdrawal):
        return _record_withdrawal(workspace, prepared, answer, origin)
    return _record_decision(workspace, prepared, answer, origin)


def _record_withdrawal(workspace: Workspace, prepared: PreparedWithdrawal, answer: PasskeyAnswer, origin: str) -> str:
    number, gate = prepared.number, prepared.gate
    with workspace.database.write() as session:
        if find_decidable(session, number, gate).subject_digest != prepared.subject_digest:
            raise review_changed(number)
        _, passkey, signature = find_signer(session, answer, origin, prepared.challenge, prepared.approver.id)
        if signature in gates.withdrawal_signatures(session, number, gate):
            raise Refused(
                f"That signature has taken back an earlier approval of {number}; nothing was recorded.",
                "Begin again at /mine, and sign anew.",
                {"number": number},
                code="WithdrawalUsed",
            )
        return gates.withdraw_approval(
            session,
            workspace.actor,
            number,
            gate,
            prepared.reason,
            signature,
            approver=prepared.approver,
            passkey=PasskeySignature(passkey.id, answer.authenticator_data, answer.client_data),
        )


def _record_decision(workspace: Workspace, prepared: PreparedDecision, answer: PasskeyAnswer, origin: str) -> str:
    stated = prepared.decision
    review = decide.load_review(workspace, stated.number, prepared.gate)
    if review.subject_digest != stated.subject_digest:
        raise review_changed(stated.number)
    with workspace.database.write() as session:
        _, passkey, signature = find_signer(session, answer, origin, prepared.challenge, prepared.approver.id)
        if signature in decide.recorded_signatures(session, stated.number, prepared.gate):
            raise decide.approval_unusable("was recorded before")
        decide.require_bounds_or_override(session, review, stated.verdict, stated.reason)
        return gates.record_decision(
            session,
            workspace.actor,
            stated,
            signature,
            approver=prepared.approver,
            passkey=PasskeySignature(passkey.id, answer.authenticator_data, answer.client_data),
            amount_check=require_proposal_amounts,
        )


def _require_short_reason(reason: str) -> str:
    reason = require_reason(reason)
    if len(reason) > LONGEST_REASON:
        raise UsageError(
            f"A reason has at most {LONGEST_REASON:,} characters.", "Say it in fewer words.", code="DecisionReasonLong"
        )
    return reason


def _require_bringable(workspace: Workspace, approver: Actor) -> None:
    if workspace.database.is_sqlite or approver.id == workspace.actor.id:
        return
    with workspace.database.read() as session:
        if session.get_one(Principal, approver.id).login is not None:
            raise Refused(
                f"{approver.name!r} has a login of their own, so the database takes no decision of theirs from"
                f" {workspace.actor.name!r}.",
                "Decide on the command line, or on a dashboard that you start in your own home:"
                " `almoner dashboard --decide`.",
                {"approver": approver.name, "dashboard": workspace.actor.name},
                code="DecidesElsewhere",
            )


def review_changed(number: int) -> Refused:
    """Return the refusal of a decision where something else waits at the gate than what its approver read."""
    return Refused(
        f"What waits under the number {number} is not what you read any more; nothing was recorded.",
        "Open its page again, and read it anew.",
        {"number": number},
        code="ReviewChanged",
    )
