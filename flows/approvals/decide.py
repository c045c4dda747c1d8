"""A steward's decision: what is decided on, the signed record, and approvals that were signed elsewhere."""

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy.orm import Session

from flows.approvals.build_review import at_publish, at_spend
from flows.approvals.load_review import motion_question, question
from flows.approvals.offline_approval import SignedApproval, write_ask
from flows.approvals.proposal_review import MotionQuestion, at_motion
from flows.approvals.request_review import Question
from flows.approvals.review import Matter
from flows.approvals.review_sections import names_of
from flows.audit.lifetime_claims import claims_of, require_motion
from flows.governance.policy import require_bounds
from flows.workspace.workspace import Workspace
from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services.audit.stored_text import files_of
from models_db.services.catalogue import principals, request_plans, requests
from models_db.services.catalogue.requests import WrongState
from models_db.services.lifecycle import artifacts, gates, proposals
from models_db.services.lifecycle.gates import GateDecision, withdrawal_statement
from models_db.services.lifecycle.proposals import MotionDecided
from models_db.tables import Artifact, Dataset
from models_db.values.gates import Gate
from models_db.values.request_state import WAITS_AT
from tasks.common.files import FileUnfit
from tasks.evaluation.bound_override import NothingToOverride, overriding
from tasks.evaluation.policy_bounds import OutsideBounds
from tasks.release.signatures.attestation import attest, envelope
from tasks.release.signatures.ed25519 import SigningKey, fingerprint, verify

_WAITING: dict[Gate, tuple[str, ...]] = {**WAITS_AT, Gate.MOTION: ("open",)}

_UNSIGNED = "unsigned"
"""In place of the signature of a decision that is only rehearsed."""


def matter(workspace: Workspace, number: int, gate: Gate) -> Matter:
    """What waits at a gate.

    Raises:
        RequestUnknown, MotionUnknown, WrongState: nothing does.
    """
    with workspace.database.read() as session:
        return _MATTERS[gate](workspace, session, number)


def require_waiting(asked: Matter) -> None:
    """Check that an approval is still possible, before anybody is asked to read and type.

    Raises:
        WrongState, MotionDecided: it is not.
        AmountsDiffer, AuthorisationDiffers: it can only be rejected.
    """
    if asked.state in _WAITING[asked.gate]:
        asked.require_approvable()
        return
    if asked.gate is Gate.MOTION:
        raise MotionDecided(asked.number, asked.state)
    raise WrongState(asked.number, asked.state, f"{_WAITING[asked.gate][0]} ({asked.gate} gate)")


def _at_spend(workspace: Workspace, session: Session, number: int) -> Matter:
    return at_spend(question(session, number, Gate.SPEND), workspace.key.public_key)


def _at_publish(workspace: Workspace, session: Session, number: int) -> Matter:
    asked, artifact, folder = _produced(workspace, session, number)
    return at_publish(asked, folder, files_of(artifact), workspace.key.public_key)


def _at_motion(workspace: Workspace, session: Session, number: int) -> Matter:
    try:
        return at_motion(motion_question(session, number), workspace.key.public_key)
    except ValidationError:
        raise MotionUnreadable(number) from None


def _produced(workspace: Workspace, session: Session, number: int) -> tuple[Question, Artifact, Path]:
    asked = question(session, number, Gate.PUBLISH)
    artifact = artifacts.artifact_of(session, number)
    if artifact is None:
        raise WrongState(number, asked.state, "produced (publish gate)")
    return asked, artifact, workspace.home.path_inside("quarantine", artifact.folder)


_MATTERS: dict[Gate, Callable[[Workspace, Session, int], Matter]] = {
    Gate.SPEND: _at_spend,
    Gate.PUBLISH: _at_publish,
    Gate.MOTION: _at_motion,
}


def export(workspace: Workspace, number: int, gate: Gate, path: Path) -> Matter:
    """Write what waits at a gate to the new file `path`, for a steward to sign on another machine.

    Raises:
        RequestUnknown, MotionUnknown, WrongState, MotionDecided: nothing waits there.
        FileUnwritable, AskTooLarge: the file cannot be written.
    """
    asked = matter(workspace, number, gate)
    require_waiting(asked)
    with workspace.database.read() as session:
        put, draft = _EXPORTS[gate](workspace, session, number)
    write_ask(path, gate, put, draft)
    return asked


def _export_publish(workspace: Workspace, session: Session, number: int) -> "tuple[Question, Path]":
    asked, _, folder = _produced(workspace, session, number)
    return asked, folder


_EXPORTS: "dict[Gate, Callable[[Workspace, Session, int], tuple[Question | MotionQuestion, Path | None]]]" = {
    Gate.SPEND: lambda workspace, session, number: (question(session, number, Gate.SPEND), None),
    Gate.PUBLISH: _export_publish,
    Gate.MOTION: lambda _, session, number: (motion_question(session, number), None),
}


def decide(workspace: Workspace, asked: Matter, verdict: str, reason: str, on_behalf_of: str | None = None) -> str:
    """Sign and record a decision; returns the new state of what was decided on.

    Raises:
        OutsideBounds: an approval of a release whose figures are not what its policy demands, without an override.
    """
    decision = _decision(asked, verdict, reason, on_behalf_of)
    signature = workspace.key.sign(decision.statement(workspace.actor.name))
    with workspace.database.write() as session:
        _require_good_enough(session, asked, verdict, reason)
        attestation = _attestation(workspace.key, asked, verdict)
        return gates.record_decision(
            session, workspace.actor, decision, signature, attestation=attestation, amount_check=require_motion
        )


def require_acceptable(
    workspace: Workspace, asked: Matter, verdict: str, reason: str, on_behalf_of: str | None = None
) -> None:
    """Let the ledger refuse a decision before anybody is asked to read and type; nothing is signed or recorded.

    Raises:
        OutsideBounds, RoleMissing, Denied: what `decide` would raise.
    """
    with workspace.database.rehearse() as session:
        _require_good_enough(session, asked, verdict, reason)
        decision = _decision(asked, verdict, reason, on_behalf_of)
        gates.record_decision(session, workspace.actor, decision, _UNSIGNED, amount_check=require_motion)


def _require_good_enough(session: Session, asked: Matter, verdict: str, reason: str) -> None:
    """A release outside the bounds of its policy can be rejected, and approved by a reason that overrides them.

    What rests on amounts that do not follow from their text can only be rejected, whatever the screen has shown.
    """
    if verdict == "approve":
        asked.require_approvable()
        require_derived_amounts(session, asked)
    if asked.gate is Gate.PUBLISH and verdict == "approve":
        require_bounds(session, asked.number, [reason])


def require_derived_amounts(session: Session, asked: Matter) -> None:
    """Check, in the ledger itself, the amounts that an approval rests on.

    Raises:
        AmountsDiffer, AuthorisationDiffers: they do not follow from what people read.
        PlanAltered: the ledger would hold the run to another plan than the one that is shown.
    """
    if asked.gate is Gate.MOTION:
        motion = proposals.find_proposal(session, asked.number)
        require_motion(motion)
        if motion.kind == "retraction":
            return
        dataset_id = motion.dataset_id
    else:
        request = requests.find_request(session, asked.number)
        request_plans.require_plan_intact(session, request)
        dataset_id = request.dataset_id
    claims_of(session, session.get_one(Dataset, dataset_id))


def override(asked: Matter, reason: str) -> str:
    """The reason to sign for an approval in spite of the policy's bounds: it names every figure that is outside.

    Raises:
        NothingToOverride: none is.
        OutsideBounds: the policy lets nobody override its bounds.
    """
    if not asked.outside:
        raise NothingToOverride(asked.number)
    if not asked.policy.rules_for(asked.dataset).overrides:
        raise OutsideBounds(asked.number, asked.outside)
    return overriding(asked.outside, reason)


def require_steward(asked: Matter, key: SigningKey) -> str:
    """The name under which the ledger knows the owner of `key` as a steward.

    Raises:
        SignerUnknown: under none.
    """
    name = names_of(asked.stewards).get(key.public_key)
    if name is None:
        raise SignerUnknown(key.public_key)
    return name


def sign_elsewhere(key: SigningKey, asked: Matter, reason: str, on_behalf_of: str | None = None) -> SignedApproval:
    """An approval to be carried to the ledger, signed by a steward whom the question names.

    Raises:
        SignerUnknown: it does not name the owner of `key`.
        AmountsDiffer, AuthorisationDiffers: it can only be rejected.
    """
    asked.require_approvable()
    name = require_steward(asked, key)
    decision = _decision(asked, "approve", reason, on_behalf_of)
    return SignedApproval(
        number=asked.number,
        gate=asked.gate,
        subject_sha256=asked.subject_digest,
        decision="approve",
        reason=reason,
        expires_at=decision.expires_at,
        on_behalf_of=on_behalf_of,
        approver=name,
        public_key=key.public_key,
        signature=key.sign(decision.statement(name)),
        attestation=_attestation(key, asked, "approve"),
    )


def bring(workspace: Workspace, asked: Matter, signed: SignedApproval) -> str:
    """Record an approval that was signed elsewhere; returns the new state of what was decided on.

    Raises:
        ApprovalUnusable: it is on something else, forged, expired or used; SignerUnknown: by nobody we know.
    """
    check(asked, signed)
    with workspace.database.write() as session:
        if signed.signature in _signatures(session, asked):
            raise ApprovalUnusable("has been brought here before")
        _require_good_enough(session, asked, signed.decision, signed.reason)
        approver = principals.identify(session, signed.public_key)
        return gates.record_decision(
            session,
            workspace.actor,
            signed.stated,
            signed.signature,
            approver=approver,
            attestation=signed.attestation,
            amount_check=require_motion,
        )


def _signatures(session: Session, asked: Matter) -> set[str]:
    """Of all decisions there have been on it: a withdrawn approval does not come back out of its file."""
    motion = asked.gate is Gate.MOTION
    found = (
        gates.proposal_decisions(session, asked.number) if motion else gates.request_decisions(session, asked.number)
    )
    return {approval.signature for approval, _ in found}


def withdraw(workspace: Workspace, number: int, gate: str, reason: str) -> str:
    """Sign and record that one's own approval is taken back; returns the new state of what it was for.

    Raises:
        RequestUnknown, NothingToWithdraw: there is none.
        Denied: it has been used.
    """
    actor = workspace.actor
    with workspace.database.write() as session:
        own = gates.own_approvals(session, actor, number, gate)
        said = withdrawal_statement(number, gate, own[-1].subject_digest, reason, actor.name)
        return gates.withdraw_approval(session, actor, number, gate, reason, workspace.key.sign(said))


def check(asked: Matter, signed: SignedApproval) -> None:
    """Check a signed approval against what waits here.

    Raises:
        ApprovalUnusable: it is on something else, forged or expired.
        SignerUnknown: by nobody we know.
    """
    if (signed.number, signed.gate) != (asked.number, asked.gate):
        raise ApprovalUnusable(f"is for number {signed.number} at the {signed.gate} gate")
    if signed.subject_sha256 != asked.subject_digest:
        raise ApprovalUnusable("is on something else than what waits here now")
    if names_of(asked.stewards).get(signed.public_key) != signed.approver:
        raise SignerUnknown(signed.public_key)
    if not signed.authentic:
        raise ApprovalUnusable("has a signature that does not fit")
    days = asked.policy.approval_days
    if not utc_now() < signed.expires_at <= _expiry(days + 1):  # another machine's clock may be a little ahead
        raise ApprovalUnusable(f"has expired, or is for longer than the {days} days of the policy")
    if not _attested(asked, signed):
        raise ApprovalUnusable("does not carry its signer's attestation of what waits here")


def _attested(asked: Matter, signed: SignedApproval) -> bool:
    if asked.payload is None or signed.attestation is None:
        return asked.payload is None and signed.attestation is None
    try:
        made = envelope(asked.payload, [signed.attestation])
    except (FileUnfit, ValueError):
        return False
    found = made.signatures.get(signed.public_key)
    return found is not None and verify(signed.public_key, found.signature, made.pae())


def _decision(asked: Matter, verdict: str, reason: str, on_behalf_of: str | None) -> GateDecision:
    expires = _expiry(asked.policy.approval_days)
    return GateDecision(
        asked.number, asked.gate, asked.subject_digest, verdict, reason, expires, on_behalf_of=on_behalf_of
    )


def _attestation(key: SigningKey, asked: Matter, verdict: str) -> str | None:
    return attest(asked.payload, key) if asked.payload is not None and verdict == "approve" else None


def _expiry(days: int) -> str:
    """The end of a day: an approval is published with the release, and should not tell when the run took place."""
    last = datetime.now(UTC).date() + timedelta(days=days)
    return utc_now(datetime.combine(last, time(23, 59, 59), UTC))


class MotionUnreadable(Refused):
    """A motion whose row says nothing that could be shown; almoner has not recorded it."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"Motion {number} does not say what a motion says, so there is nothing to decide on; it will expire.",
            "Find out who recorded it: `almoner audit log`; see the list with `almoner motion list`.",
            {"motion": number},
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
