"""Decisions that a passkey signs: prepared from a review, and recorded once its signature verifies.

What is signed, and what is checked before, is the same as for a decision on the command line. Whoever records it acts
for nobody: without the approver's signature there is no decision.
"""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from flows.approvals import decide
from flows.approvals.confirmation import require_confirmation, require_reason
from flows.approvals.review import Review
from flows.audit.lifetime_claims import require_proposal_amounts
from flows.governance.passkey_answers import PasskeyAnswer, find_signer
from flows.workspace.workspace import Workspace
from models_db.errors import Refused, UsageError
from models_db.services.audit.chain import Actor
from models_db.services.catalogue.passkeys import PasskeySignature
from models_db.services.lifecycle import gates
from models_db.services.lifecycle.gate_status import GateStatus, find_decidable
from models_db.services.lifecycle.gates import GateDecision
from models_db.tables import Principal
from models_db.values.gates import Gate
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
    def gate(self) -> Gate:
        """Return the gate of the decision."""
        return Gate(self.decision.gate)

    @property
    def statement(self) -> bytes:
        """Return the bytes that are signed, the same as on the command line."""
        return self.decision.statement(self.approver.name)

    @property
    def challenge(self) -> bytes:
        """Return what the passkey has to answer."""
        return challenge_of(self.statement)


def may_decide(session: Session, person: Actor, number: int, gate: Gate) -> bool:
    """Return whether a person could decide on a request or proposal now, for themselves or as a delegate.

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
    on_behalf_of: str | None = None,
) -> PreparedDecision:
    """Check a decision as the command line does before it signs; nothing is recorded.

    Args:
        review: as its approver reads it.
        confirm: the dataset's name, typed by the approver; an approval needs it.

    Raises:
        VerdictUnknown, DecisionReasonMissing, DecisionReasonLong, ConfirmationMissing, ConfirmationWrong.
        DecidesElsewhere: on PostgreSQL, the approver has a login of their own.
        OutsideBounds, RoleDenied, RuleViolated, WrongState, ProposalDecided: the ledger would not take the decision.
    """
    if verdict not in VERDICTS:
        raise VerdictUnknown
    reason = require_reason(reason)
    if len(reason) > LONGEST_REASON:
        raise DecisionReasonLong
    _require_bringable(workspace, approver)
    if verdict == "approve":
        decide.require_waiting(review)
        require_confirmation(review.dataset, confirm)
    decide.rehearse_decision(workspace, review, verdict, reason, on_behalf_of, approver)
    return PreparedDecision(decide.gate_decision(review, verdict, reason, on_behalf_of), approver, review.dataset)


def record_prepared(workspace: Workspace, prepared: PreparedDecision, answer: PasskeyAnswer, origin: str) -> str:
    """Record a prepared decision that a passkey of its approver has signed; return the state of its subject.

    Raises:
        AnswerRefused: no passkey in force of the approver signed exactly this decision, on pages of `origin`.
        ReviewChanged: something else waits at the gate than what was read.
        ApprovalUnusable: the signature was recorded before.
        The errors of `prepare_decision`.
    """
    stated = prepared.decision
    review = decide.load_review(workspace, stated.number, prepared.gate)
    if review.subject_digest != stated.subject_digest:
        raise ReviewChanged(stated.number)
    with decide.recording(workspace, stated.verdict, stated.number, prepared.gate) as session:
        _, passkey, signature = find_signer(session, answer, origin, prepared.challenge, prepared.approver.id)
        if signature in decide.recorded_signatures(session, stated.number, prepared.gate):
            raise decide.ApprovalUnusable("was recorded before")
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


def _require_bringable(workspace: Workspace, approver: Actor) -> None:
    if workspace.database.is_sqlite or approver.id == workspace.actor.id:
        return
    with workspace.database.read() as session:
        if session.get_one(Principal, approver.id).login is not None:
            raise DecidesElsewhere(approver.name, workspace.actor.name)


class VerdictUnknown(UsageError):
    """A verdict that is neither approval nor rejection."""

    def __init__(self) -> None:
        super().__init__("A decision is `approve` or `reject`.", "Use the buttons of the page.")


class DecisionReasonLong(UsageError):
    """A reason that is too long."""

    def __init__(self) -> None:
        super().__init__(f"A reason has at most {LONGEST_REASON:,} characters.", "Say it in fewer words.")


class ReviewChanged(Refused):
    """Something else waits at the gate than what the approver read."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"What waits under the number {number} is not what you read any more; nothing was recorded.",
            "Open its page again, and read it anew.",
            {"number": number},
        )


class DecidesElsewhere(Refused):
    """On PostgreSQL nobody records a decision of somebody who has a login of their own."""

    def __init__(self, approver: str, owner: str) -> None:
        super().__init__(
            f"{approver!r} has a login of their own, so the database takes no decision of theirs from {owner!r}.",
            "Decide on the command line, or on a dashboard that you start in your own home:"
            " `almoner dashboard --decide`.",
            {"approver": approver, "dashboard": owner},
        )
