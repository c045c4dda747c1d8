"""A steward's decision: what is decided on, the signed record, and approvals that were signed elsewhere."""

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy.orm import Session

from flows.approvals.build_review import build_publish_review, build_spend_review
from flows.approvals.load_review import load_proposal_review, load_request_review
from flows.approvals.offline_approval import SignedApproval, export_review
from flows.approvals.proposal_review import ProposalReviewInput, build_proposal_review
from flows.approvals.request_review import RequestReviewInput
from flows.approvals.review import Review
from flows.approvals.review_sections import names_by_key
from flows.audit.lifetime_claims import claims_of, require_proposal_amounts
from flows.governance.policy import require_bounds
from flows.workspace.workspace import Workspace
from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services.audit.stored_text import files_of
from models_db.services.catalogue import principals, request_plans, requests
from models_db.services.catalogue.requests import WrongState
from models_db.services.lifecycle import artifacts, gates, proposals
from models_db.services.lifecycle.gates import GateDecision, withdrawal_statement
from models_db.services.lifecycle.proposals import ProposalDecided
from models_db.tables import Artifact, Dataset
from models_db.values.gates import Gate
from models_db.values.request_state import WAITS_AT
from tasks.common.files import FileUnfit
from tasks.evaluation.bound_override import NothingToOverride, override_reason
from tasks.evaluation.policy_bounds import OutsideBounds
from tasks.release.signatures.attestation import attest, envelope
from tasks.release.signatures.ed25519 import SigningKey, fingerprint, verify

_WAITING_STATES: dict[Gate, tuple[str, ...]] = {**WAITS_AT, Gate.PROPOSAL: ("open",)}

_NO_SIGNATURE = "unsigned"
"""In place of the signature of a decision that is only rehearsed."""


def load_review(workspace: Workspace, number: int, gate: Gate) -> Review:
    """What waits at a gate.

    Raises:
        RequestUnknown, ProposalUnknown, WrongState: nothing does.
    """
    with workspace.database.read() as session:
        return _REVIEW_LOADERS[gate](workspace, session, number)


def require_waiting(review: Review) -> None:
    """Check that an approval is still possible, before anybody is asked to read and type.

    Raises:
        WrongState, ProposalDecided: it is not.
        AmountsDiffer, AuthorisationDiffers: it can only be rejected.
    """
    if review.state in _WAITING_STATES[review.gate]:
        review.require_approvable()
        return
    if review.gate is Gate.PROPOSAL:
        raise ProposalDecided(review.number, review.state)
    raise WrongState(review.number, review.state, f"{_WAITING_STATES[review.gate][0]} ({review.gate} gate)")


def _load_spend_review(workspace: Workspace, session: Session, number: int) -> Review:
    return build_spend_review(load_request_review(session, number, Gate.SPEND), workspace.key.public_key)


def _load_publish_review(workspace: Workspace, session: Session, number: int) -> Review:
    asked, artifact, folder = _load_produced(workspace, session, number)
    return build_publish_review(asked, folder, files_of(artifact), workspace.key.public_key)


def _load_proposal_review(workspace: Workspace, session: Session, number: int) -> Review:
    try:
        return build_proposal_review(load_proposal_review(session, number), workspace.key.public_key)
    except ValidationError:
        raise ProposalUnreadable(number) from None


def _load_produced(workspace: Workspace, session: Session, number: int) -> tuple[RequestReviewInput, Artifact, Path]:
    asked = load_request_review(session, number, Gate.PUBLISH)
    artifact = artifacts.artifact_of(session, number)
    if artifact is None:
        raise WrongState(number, asked.state, "produced (publish gate)")
    return asked, artifact, workspace.home.path_inside("quarantine", artifact.folder)


_REVIEW_LOADERS: dict[Gate, Callable[[Workspace, Session, int], Review]] = {
    Gate.SPEND: _load_spend_review,
    Gate.PUBLISH: _load_publish_review,
    Gate.PROPOSAL: _load_proposal_review,
}


def export_for_signing(workspace: Workspace, number: int, gate: Gate, path: Path) -> Review:
    """Write what waits at a gate to the new file `path`, for a steward to sign on another machine.

    Raises:
        RequestUnknown, ProposalUnknown, WrongState, ProposalDecided: nothing waits there.
        FileUnwritable, ReviewTooLarge: the file cannot be written.
    """
    asked = load_review(workspace, number, gate)
    require_waiting(asked)
    with workspace.database.read() as session:
        put, draft = _EXPORT_INPUTS[gate](workspace, session, number)
    export_review(path, gate, put, draft)
    return asked


def _export_publish(workspace: Workspace, session: Session, number: int) -> "tuple[RequestReviewInput, Path]":
    asked, _, folder = _load_produced(workspace, session, number)
    return asked, folder


_EXPORT_INPUTS: dict[
    Gate, "Callable[[Workspace, Session, int], tuple[RequestReviewInput | ProposalReviewInput, Path | None]]"
] = {
    Gate.SPEND: lambda workspace, session, number: (load_request_review(session, number, Gate.SPEND), None),
    Gate.PUBLISH: _export_publish,
    Gate.PROPOSAL: lambda _, session, number: (load_proposal_review(session, number), None),
}


def decide(workspace: Workspace, review: Review, verdict: str, reason: str, on_behalf_of: str | None = None) -> str:
    """Sign and record a decision; returns the new state of what was decided on.

    Raises:
        OutsideBounds: an approval of a release whose figures are not what its policy demands, without an override.
    """
    decision = _gate_decision(review, verdict, reason, on_behalf_of)
    signature = workspace.key.sign(decision.statement(workspace.actor.name))
    with workspace.database.write() as session:
        _require_bounds_or_override(session, review, verdict, reason)
        attestation = _sign_attestation(workspace.key, review, verdict)
        return gates.record_decision(
            session,
            workspace.actor,
            decision,
            signature,
            attestation=attestation,
            amount_check=require_proposal_amounts,
        )


def rehearse_decision(
    workspace: Workspace, review: Review, verdict: str, reason: str, on_behalf_of: str | None = None
) -> None:
    """Let the ledger refuse a decision before anybody is asked to read and type; nothing is signed or recorded.

    Raises:
        OutsideBounds, RoleDenied, RuleViolated: what `decide` would raise.
    """
    with workspace.database.rehearse() as session:
        _require_bounds_or_override(session, review, verdict, reason)
        decision = _gate_decision(review, verdict, reason, on_behalf_of)
        gates.record_decision(session, workspace.actor, decision, _NO_SIGNATURE, amount_check=require_proposal_amounts)


def _require_bounds_or_override(session: Session, review: Review, verdict: str, reason: str) -> None:
    """A release outside the bounds of its policy can be rejected, and approved by a reason that overrides them.

    What rests on amounts that do not follow from their text can only be rejected, whatever the screen has shown.
    """
    if verdict == "approve":
        review.require_approvable()
        require_derived_amounts(session, review)
    if review.gate is Gate.PUBLISH and verdict == "approve":
        require_bounds(session, review.number, [reason])


def require_derived_amounts(session: Session, review: Review) -> None:
    """Check, in the ledger itself, the amounts that an approval rests on.

    Raises:
        AmountsDiffer, AuthorisationDiffers: they do not follow from what people read.
        PlanAltered: the ledger would hold the run to another plan than the one that is shown.
    """
    if review.gate is Gate.PROPOSAL:
        proposal = proposals.find_proposal(session, review.number)
        require_proposal_amounts(proposal)
        if proposal.kind == "retraction":
            return
        dataset_id = proposal.dataset_id
    else:
        request = requests.find_request(session, review.number)
        request_plans.require_plan_intact(session, request)
        dataset_id = request.dataset_id
    claims_of(session, session.get_one(Dataset, dataset_id))


def override_reason_for(review: Review, reason: str) -> str:
    """The reason to sign for an approval in spite of the policy's bounds: it names every figure that is outside.

    Raises:
        NothingToOverride: none is.
        OutsideBounds: the policy lets nobody override its bounds.
    """
    if not review.missed_bounds:
        raise NothingToOverride(review.number)
    if not review.policy.rules_for(review.dataset).overrides:
        raise OutsideBounds(review.number, review.missed_bounds)
    return override_reason(review.missed_bounds, reason)


def require_steward(review: Review, key: SigningKey) -> str:
    """The name under which the ledger knows the owner of `key` as a steward.

    Raises:
        SignerUnknown: under none.
    """
    name = names_by_key(review.stewards).get(key.public_key)
    if name is None:
        raise SignerUnknown(key.public_key)
    return name


def sign_offline(key: SigningKey, review: Review, reason: str, on_behalf_of: str | None = None) -> SignedApproval:
    """An approval to be carried to the ledger, signed by a steward whom the question names.

    Raises:
        SignerUnknown: it does not name the owner of `key`.
        AmountsDiffer, AuthorisationDiffers: it can only be rejected.
    """
    review.require_approvable()
    name = require_steward(review, key)
    decision = _gate_decision(review, "approve", reason, on_behalf_of)
    return SignedApproval(
        number=review.number,
        gate=review.gate,
        subject_sha256=review.subject_digest,
        decision="approve",
        reason=reason,
        expires_at=decision.expires_at,
        on_behalf_of=on_behalf_of,
        approver=name,
        public_key=key.public_key,
        signature=key.sign(decision.statement(name)),
        attestation=_sign_attestation(key, review, "approve"),
    )


def import_approval(workspace: Workspace, review: Review, signed: SignedApproval) -> str:
    """Record an approval that was signed elsewhere; returns the new state of what was decided on.

    Raises:
        ApprovalUnusable: it is on something else, forged, expired or used; SignerUnknown: by nobody we know.
    """
    check_signed_approval(review, signed)
    with workspace.database.write() as session:
        if signed.signature in _recorded_signatures(session, review):
            raise ApprovalUnusable("has been brought here before")
        _require_bounds_or_override(session, review, signed.decision, signed.reason)
        approver = principals.identify(session, signed.public_key)
        return gates.record_decision(
            session,
            workspace.actor,
            signed.stated,
            signed.signature,
            approver=approver,
            attestation=signed.attestation,
            amount_check=require_proposal_amounts,
        )


def _recorded_signatures(session: Session, review: Review) -> set[str]:
    """Of all decisions there have been on it: a withdrawn approval does not come back out of its file."""
    proposal = review.gate is Gate.PROPOSAL
    found = (
        gates.proposal_decisions(session, review.number)
        if proposal
        else gates.request_decisions(session, review.number)
    )
    return {approval.signature for approval, _ in found}


def withdraw(workspace: Workspace, number: int, gate: str, reason: str) -> str:
    """Sign and record that one's own approval is taken back; returns the new state of what it was for.

    Raises:
        RequestUnknown, NothingToWithdraw: there is none.
        RuleViolated: it has been used.
    """
    actor = workspace.actor
    with workspace.database.write() as session:
        own = gates.own_approvals(session, actor, number, gate)
        said = withdrawal_statement(number, gate, own[-1].subject_digest, reason, actor.name)
        return gates.withdraw_approval(session, actor, number, gate, reason, workspace.key.sign(said))


def check_signed_approval(review: Review, signed: SignedApproval) -> None:
    """Check a signed approval against what waits here.

    Raises:
        ApprovalUnusable: it is on something else, forged or expired.
        SignerUnknown: by nobody we know.
    """
    if (signed.number, signed.gate) != (review.number, review.gate):
        raise ApprovalUnusable(f"is for number {signed.number} at the {signed.gate} gate")
    if signed.subject_sha256 != review.subject_digest:
        raise ApprovalUnusable("is on something else than what waits here now")
    if names_by_key(review.stewards).get(signed.public_key) != signed.approver:
        raise SignerUnknown(signed.public_key)
    if not signed.is_authentic:
        raise ApprovalUnusable("has a signature that does not fit")
    days = review.policy.approval_days
    if not utc_now() < signed.expires_at <= _approval_expiry(days + 1):  # another machine's clock may be a little ahead
        raise ApprovalUnusable(f"has expired, or is for longer than the {days} days of the policy")
    if not _check_attestation(review, signed):
        raise ApprovalUnusable("does not carry its signer's attestation of what waits here")


def _check_attestation(review: Review, signed: SignedApproval) -> bool:
    if review.payload is None or signed.attestation is None:
        return review.payload is None and signed.attestation is None
    try:
        made = envelope(review.payload, [signed.attestation])
    except (FileUnfit, ValueError):
        return False
    found = made.signatures.get(signed.public_key)
    return found is not None and verify(signed.public_key, found.signature, made.pae())


def _gate_decision(review: Review, verdict: str, reason: str, on_behalf_of: str | None) -> GateDecision:
    expires = _approval_expiry(review.policy.approval_days)
    return GateDecision(
        review.number, review.gate, review.subject_digest, verdict, reason, expires, on_behalf_of=on_behalf_of
    )


def _sign_attestation(key: SigningKey, review: Review, verdict: str) -> str | None:
    return attest(review.payload, key) if review.payload is not None and verdict == "approve" else None


def _approval_expiry(days: int) -> str:
    """The end of a day: an approval is published with the release, and should not tell when the run took place."""
    last = datetime.now(UTC).date() + timedelta(days=days)
    return utc_now(datetime.combine(last, time(23, 59, 59), UTC))


class ProposalUnreadable(Refused):
    """A proposal whose row says nothing that could be shown; almoner has not recorded it."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"Proposal {number} does not say what a proposal says, so there is nothing to decide on; it will expire.",
            "Find out who recorded it: `almoner audit log`; see the list with `almoner proposal list`.",
            {"proposal": number},
        )


class ApprovalUnusable(Refused):
    """A signed approval that does not open this gate."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The signed approval {reason}; nothing was recorded.",
            "Export the question again, with `almoner approve ID --gate GATE --export FILE`, and have that one signed.",
            {"reason": reason},
        )


class SignerUnknown(Refused):
    """A key that is none of the stewards'."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The key {fingerprint(key)} ({key}) belongs to no steward of this ledger, under that name.",
            "An admin enrols a steward by the public key; then export the question again.",
            {"key": key},
        )
