"""Decisions of stewards at the gates: loading, signing and recording, here or on another machine."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from sqlalchemy.orm import Session

from flows.approvals.build_review import Draft, build_review, list_signers, load_review_input
from flows.approvals.offline_approval import SignedApproval, encode_review, export_review
from flows.approvals.proposal_review import ProposalReviewInput
from flows.approvals.review import Review
from flows.approvals.review_input import RequestReviewInput, ReviewInput
from flows.approvals.review_sections import names_by_key
from flows.audit.lifetime_claims import claims_of, require_proposal_amounts
from flows.governance.policy import hides_balances, require_bounds
from flows.workspace.policy_file import read_policy_version
from flows.workspace.workspace import Workspace
from models_db.database.base import utc_now
from models_db.errors import AlmonerError, Refused
from models_db.home import PathEscape
from models_db.services import artifacts, datasets, gates, people, proposals, requests
from models_db.services.audit.chain import Actor
from models_db.services.audit.stored_text import UNREADABLE_ERRORS, files_of
from models_db.services.gates import GateDecision, find_decidable, withdrawal_statement
from models_db.services.requests import WrongState
from models_db.tables import Dataset, PolicyVersion
from models_db.values.request_state import Gate, RequestState
from tasks.common.files import FileUnfit
from tasks.evaluation.policy_bounds import OutsideBounds, nothing_to_override, override_reason
from tasks.release.sections import WARNINGS, Warnings, sections_for
from tasks.release.signatures.attestation import attest, envelope
from tasks.release.signatures.ed25519 import SigningKey, fingerprint, verify

NO_SIGNATURE = "unsigned"
"""Placeholder signature of a rehearsed decision."""


def load_review(workspace: Workspace, number: int, gate: Gate, viewer: str | None = None) -> Review:
    """Return the review of a request or proposal that waits at a gate, with the sections that its reader may see.

    Where it cannot be shown (its draft is lost, it is not in its format, it is not what its digest names), the review
    says why, and the only possible decision is a rejection: nobody can jam a gate.

    Args:
        viewer: the public key of its reader, if that is not the home's owner.

    Raises:
        RequestUnknown, ProposalUnknown, WrongState: nothing of that number waits at the gate.
    """
    gate = Gate(gate)  # the Python API is called with names, too
    try:
        review = _load_with_inputs(workspace, number, gate, viewer)[0]
        with workspace.database.read() as session:
            reader = people.acting_principal(session, viewer or workspace.key.public_key)
            balances = not hides_balances(session, reader)
        return replace(review, sections=sections_for(review.sections, balances=balances))
    except WrongState:
        raise
    except (Refused, PathEscape) as unfit:
        with workspace.database.read() as session:
            return _review_to_reject(session, number, gate, unfit)


def _review_to_reject(session: Session, number: int, gate: Gate, unfit: AlmonerError) -> Review:
    """Return the review of what cannot be shown; a rejection of it binds to the digest that the ledger has."""
    subject = find_decidable(session, number, gate)
    line = f"It cannot be shown, so it can only be rejected. {unfit.code}: {unfit.message}"
    return Review(
        number=number,
        gate=gate,
        dataset=session.get_one(Dataset, subject.dataset_id).name,
        state=subject.state,
        subject_digest=subject.subject_digest,
        policy=read_policy_version(session, session.get_one(PolicyVersion, subject.policy_id)),
        sections=(Warnings(WARNINGS, (line,), signed=False),),
        stewards=list_signers(session),
        refusal=unfit,
    )


def gate_of_request(workspace: Workspace, number: int) -> Gate:
    """Return the gate at which a request waits: the publish gate once it is produced, the spend gate before.

    Raises:
        RequestUnknown: the ledger has no such request.
    """
    with workspace.database.read() as session:
        state = requests.state_of(session, requests.find_request(session, number).id)
    return Gate.PUBLISH if state == RequestState.PRODUCED else Gate.SPEND


def export_for_signing(workspace: Workspace, number: int, gate: Gate, path: Path) -> Review:
    """Write a waiting request or proposal to the new file `path`, for a steward to sign on another machine.

    Raises:
        RequestUnknown, ProposalUnknown, WrongState, ProposalDecided: nothing of that number waits at the gate.
        FileUnwritable, ReviewTooLarge: the file cannot be written.
        As `load_review` says of what can only be rejected.
    """
    review, inputs, draft = _load_with_inputs(workspace, number, Gate(gate))
    require_waiting(review)
    export_review(path, gate, inputs, draft[0] if draft else None)
    return review


def question_for_signing(workspace: Workspace, number: int, gate: Gate) -> bytes:
    """Return what `export_for_signing` writes.

    Raises:
        RequestUnknown, ProposalUnknown, WrongState, ProposalDecided, ReviewTooLarge: as `export_for_signing`.
    """
    review, inputs, draft = _load_with_inputs(workspace, number, Gate(gate))
    require_waiting(review)
    return encode_review(gate, inputs, draft[0] if draft else None)


def _load_with_inputs(
    workspace: Workspace, number: int, gate: Gate, viewer: str | None = None
) -> tuple[Review, RequestReviewInput | ProposalReviewInput, Draft | None]:
    """Load a review with what it was built from.

    Raises:
        RequestUnreadable, ProposalUnreadable: a row is not in the format that almoner writes.
        ProposalAltered: a proposal's digest is not that of its content.
        ArtifactChanged, DraftOfAnotherRequest, FileUnfit, PathEscape: the draft is not here, or another.
    """
    with workspace.database.read() as session:
        try:
            inputs = load_review_input(session, number, gate)
            draft = _find_draft(workspace, session, inputs) if gate is Gate.PUBLISH else None
            review = build_review(gate, inputs, draft, viewer or workspace.key.public_key)
        except UNREADABLE_ERRORS as problem:
            raise (_proposal_unreadable if gate is Gate.PROPOSAL else _request_unreadable)(number) from problem
        if gate is Gate.PROPOSAL and find_decidable(session, number, gate).subject_digest != review.subject_digest:
            raise proposals.proposal_altered(number)
        return review, inputs, draft


def _find_draft(workspace: Workspace, session: Session, inputs: ReviewInput) -> Draft:
    artifact = artifacts.artifact_of(session, inputs.number)
    if artifact is None:
        raise WrongState(inputs.number, inputs.state, "produced (publish gate)")
    return workspace.home.draft(artifact.request_id, artifact.attempt), files_of(artifact)


def require_waiting(review: Review) -> None:
    """Check that an approval is still possible, before a steward reads the review and types.

    Raises:
        WrongState, ProposalDecided: the request or proposal no longer waits.
        AmountsDiffer, AuthorisationDiffers: the request or proposal can only be rejected.
    """
    gates.require_waiting(review.gate, review.number, review.state)
    review.require_approvable()


def decide(workspace: Workspace, review: Review, verdict: str, reason: str) -> str:
    """Sign and record a decision; return the new state of the request or proposal.

    Raises:
        OutsideBounds: the release misses bounds of its policy, and the reason does not override them.
    """
    decision = gate_decision(review, verdict, reason)
    signature = workspace.key.sign(decision.statement(workspace.actor.name))
    with workspace.database.write() as session:
        require_bounds_or_override(session, review, verdict, reason)
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
    workspace: Workspace,
    review: Review,
    verdict: str,
    reason: str,
    approver: Actor | None = None,
) -> None:
    """Check a decision against the ledger before a steward reads and types; nothing is signed or recorded.

    Args:
        approver: who decides, if that is not the home's owner.

    Raises:
        OutsideBounds, RoleDenied, RuleViolated: `decide` would raise the same error.
    """
    with workspace.database.rehearse() as session:
        require_bounds_or_override(session, review, verdict, reason)
        decision = gate_decision(review, verdict, reason)
        gates.record_decision(
            session,
            workspace.actor,
            decision,
            NO_SIGNATURE,
            approver=approver,
            amount_check=require_proposal_amounts,
        )


def require_bounds_or_override(session: Session, review: Review, verdict: str, reason: str) -> None:
    """Check that an approval rests on derived amounts, and that the reason overrides all missed bounds.

    The check reads the ledger again and ignores the screen; a rejection is always allowed.
    """
    if verdict == "approve":
        review.require_approvable()
        require_derived_amounts(session, review)
    if review.gate is Gate.PUBLISH and verdict == "approve":
        require_bounds(session, review.number, [reason])


def require_derived_amounts(session: Session, review: Review) -> None:
    """Check the ledger's amounts on which an approval rests.

    Raises:
        AmountsDiffer, AuthorisationDiffers: they do not follow from the text that people read.
        PlanAltered: the ledger would hold the run to another plan than the shown one.
    """
    if review.gate is Gate.PROPOSAL:
        proposal = proposals.find_proposal(session, review.number)
        require_proposal_amounts(proposal)
        if proposal.kind == "retraction":
            return
    else:
        requests.require_plan_intact(session, requests.find_request(session, review.number))
    claims_of(session, datasets.find_dataset(session, review.dataset))


def override_reason_for(review: Review, reason: str) -> str:
    """Return the reason to sign for an approval that overrides the policy's bounds: it names every figure outside them.

    Raises:
        As `Review.require_approvable`.
        NothingToOverride: no figure is outside its bounds.
        OutsideBounds: the policy forbids overrides.
    """
    review.require_approvable()
    if not review.missed_bounds:
        raise nothing_to_override(review.number)
    if not review.policy.rules_for(review.dataset).overrides:
        raise OutsideBounds(review.number, review.missed_bounds)
    return override_reason(review.missed_bounds, reason)


def require_steward(review: Review, key: SigningKey) -> str:
    """Return the name of the steward who owns `key`.

    Raises:
        SignerUnknown: no steward owns the key.
    """
    name = names_by_key(review.stewards).get(key.public_key)
    if name is None:
        raise _signer_unknown(key.public_key)
    return name


def sign_offline(key: SigningKey, review: Review, reason: str) -> SignedApproval:
    """Sign an approval that is recorded later, on the machine with the ledger.

    Raises:
        SignerUnknown: the review names no steward who owns `key`.
        AmountsDiffer, AuthorisationDiffers: the request or proposal can only be rejected.
    """
    review.require_approvable()
    name = require_steward(review, key)
    decision = gate_decision(review, "approve", reason)
    return SignedApproval(
        number=review.number,
        gate=review.gate,
        subject_sha256=review.subject_digest,
        decision="approve",
        reason=reason,
        expires_at=decision.expires_at,
        approver=name,
        public_key=key.public_key,
        signature=key.sign(decision.statement(name)),
        attestation=_sign_attestation(key, review, "approve"),
    )


def import_approval(workspace: Workspace, review: Review, signed: SignedApproval) -> str:
    """Record an approval that was signed elsewhere; return the new state of the request or proposal.

    Raises:
        ApprovalUnusable: the approval is for another subject, forged, expired or used.
        SignerUnknown: its key belongs to no steward.
    """
    check_signed_approval(review, signed)
    with workspace.database.write() as session:
        if signed.signature in recorded_signatures(session, review.number, review.gate):
            raise approval_unusable("was recorded before")
        require_bounds_or_override(session, review, signed.decision, signed.reason)
        approver = people.identify(session, signed.public_key)
        return gates.record_decision(
            session,
            workspace.actor,
            signed.stated,
            signed.signature,
            approver=approver,
            attestation=signed.attestation,
            amount_check=require_proposal_amounts,
        )


def recorded_signatures(session: Session, number: int, gate: Gate) -> set[str]:
    """Return the signatures of all decisions ever recorded on a subject; no withdrawn approval is recorded again."""
    return {approval.signature for approval, _ in gates.decisions_on(session, number, gate)}


def withdraw(workspace: Workspace, number: int, gate: Gate, reason: str) -> str:
    """Sign and record the withdrawal of one's own approval; return the new state of the request or proposal.

    Raises:
        RequestUnknown, ProposalUnknown, NothingToWithdraw: there is no approval to withdraw.
        RuleViolated: the approval has been used.
    """
    actor = workspace.actor
    with workspace.database.write() as session:
        subject = find_decidable(session, number, Gate(gate))
        statement = withdrawal_statement(number, gate, subject.subject_digest, reason, actor.name)
        return gates.withdraw_approval(session, actor, number, gate, reason, workspace.key.sign(statement))


def check_signed_approval(review: Review, signed: SignedApproval) -> None:
    """Check a signed approval against the waiting request or proposal.

    Raises:
        ApprovalUnusable: the approval is for another subject, forged or expired.
        SignerUnknown: its key belongs to no steward.
    """
    if (signed.number, signed.gate) != (review.number, review.gate):
        raise approval_unusable(f"is for number {signed.number} at the {signed.gate} gate")
    if signed.subject_sha256 != review.subject_digest:
        raise approval_unusable("is for another content than the one that waits here now")
    if names_by_key(review.stewards).get(signed.public_key) != signed.approver:
        raise _signer_unknown(signed.public_key)
    if not signed.is_authentic:
        raise approval_unusable("has a wrong signature")
    days = review.policy.approval_days
    if not utc_now() < signed.expires_at <= _approval_expiry(days + 1):  # another machine's clock may be a little ahead
        raise approval_unusable(f"has expired, or is for longer than the {days} days of the policy")
    if not _check_attestation(review, signed):
        raise approval_unusable("lacks its signer's attestation of the waiting release")


def _check_attestation(review: Review, signed: SignedApproval) -> bool:
    if review.payload is None or signed.attestation is None:
        return review.payload is None and signed.attestation is None
    try:
        attested = envelope(review.payload, [signed.attestation])
    except (FileUnfit, ValueError):
        return False
    signature = attested.signatures.get(signed.public_key)
    return signature is not None and verify(signed.public_key, signature.signature, attested.pae())


def gate_decision(review: Review, verdict: str, reason: str) -> GateDecision:
    """Return a decision as it is signed; an approval expires as the policy says."""
    expires = _approval_expiry(review.policy.approval_days)
    return GateDecision(review.number, review.gate, review.subject_digest, verdict, reason, expires)


def _sign_attestation(key: SigningKey, review: Review, verdict: str) -> str | None:
    return attest(review.payload, key) if review.payload is not None and verdict == "approve" else None


def _approval_expiry(days: int) -> str:
    """Return the expiry as the end of a day: approvals are published, and must not disclose the time of the release."""
    last = datetime.now(UTC).date() + timedelta(days=days)
    return utc_now(datetime.combine(last, time(23, 59, 59), UTC))


def _proposal_unreadable(number: int) -> Refused:
    return Refused(
        f"Proposal {number} is not in the format of a proposal, so nobody can approve it.",
        f'A steward rejects it: `almoner reject {number} --gate proposal --reason "..."`. `almoner audit log` shows'
        " who recorded it.",
        {"proposal": number},
        code="ProposalUnreadable",
    )


def _request_unreadable(number: int) -> Refused:
    return Refused(
        f"Request {number} is not in the format of a request, so nobody can approve it.",
        f'Reject it, `almoner reject {number} --reason "..."`, and submit a new request. `almoner audit log` shows'
        " who recorded it.",
        {"request": number},
        code="RequestUnreadable",
    )


def approval_unusable(reason: str) -> Refused:
    """Return the refusal of a signed approval that cannot be recorded at this gate."""
    return Refused(
        f"The signed approval {reason}; nothing was recorded.",
        "Export the review again with `almoner approve ID --gate GATE --export FILE`, and sign the new file.",
        {"reason": reason},
        code="ApprovalUnusable",
    )


def _signer_unknown(key: str) -> Refused:
    return Refused(
        f"The key {fingerprint(key)} ({key}) belongs to no steward of this ledger, under that name.",
        "An admin enrols a steward by the public key; then export the review again.",
        {"key": key},
        code="SignerUnknown",
    )
