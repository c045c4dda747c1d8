"""Requests through their life: submitted, decided, run, produced, decided again, published.

Every step is one transition row; the guards in the database check who may take it and when.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from models_db.base import moment
from models_db.canonical import Json, canonical, digest
from models_db.errors import Refused, UsageError
from models_db.services import audits, ledger
from models_db.services.audits import Actor
from models_db.services.denials import AlreadyRecorded, translated
from models_db.tables import (
    Approval,
    Artifact,
    Dataset,
    DatasetVersion,
    Delivery,
    Evaluation,
    Lease,
    PolicyVersion,
    Principal,
    Publication,
    Request,
    Transition,
)

LEASE = timedelta(minutes=10)
"""How long a silent run is believed alive; every armed instalment renews it."""


class RequestUnknown(UsageError):
    """No request with that number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"There is no request {number}.", "See them with `almoner release list`.", {"request": number})


class WrongState(Refused):
    """The request is not where this step begins."""

    def __init__(self, request_id: int, state: str, wanted: str, advice: str = "") -> None:
        super().__init__(
            f"Request {request_id} is {state}; this needs it {wanted}.",
            advice or f"See it with `almoner release show {request_id}`.",
            {"request": request_id, "state": state, "needed": wanted},
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


class StillRunning(Refused):
    """Another process holds the request."""

    def __init__(self, request_id: int, owner: str) -> None:
        super().__init__(
            f"Request {request_id} is being run by {owner}.",
            "Wait for it. If that process is gone, `almoner run sweep` cleans up after it.",
            {"request": request_id, "owner": owner},
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


def submit(
    session: Session,
    actor: Actor,
    dataset: Dataset,
    version: DatasetVersion,
    policy: PolicyVersion,
    body: Mapping[str, Json],
    valid: timedelta,
) -> Request:
    """Record a request; `body` is complete, and its digest is what the spend gate approves."""
    text = canonical(body).decode()
    made = Request(
        dataset_id=dataset.id,
        version_id=version.id,
        policy_id=policy.id,
        canonical=text,
        digest=digest(body),
        requester_id=actor.id,
        created_at=moment(),
        expires_at=moment(datetime.now(UTC) + valid),
    )
    with translated():
        session.add(made)
        session.flush()
    move(session, actor, made.id, "draft", "submitted")
    audits.append(
        session,
        actor,
        "request.submitted",
        {"digest": made.digest, "kind": body["kind"], "mechanism": body["mechanism"], "epsilon": body["epsilon"]},
        dataset=dataset.name,
        request_id=made.id,
    )
    return made


def find(session: Session, request_id: int) -> Request:
    """The request with that number.

    Raises:
        RequestUnknown: there is none.
    """
    found = session.get(Request, request_id)
    if found is None:
        raise RequestUnknown(request_id)
    return found


def every(session: Session) -> Sequence[Request]:
    """All requests, oldest first."""
    return session.scalars(select(Request).order_by(Request.id)).all()


def state_of(session: Session, request_id: int) -> str:
    """Where the request is now."""
    query = select(Transition.to_state).where(Transition.request_id == request_id)
    return session.scalars(query.order_by(Transition.number.desc()).limit(1)).one_or_none() or "draft"


def history(session: Session, request_id: int) -> Sequence[Transition]:
    """Every step the request took."""
    return session.scalars(
        select(Transition).where(Transition.request_id == request_id).order_by(Transition.number)
    ).all()


def move(session: Session, actor: Actor, request_id: int, from_state: str, to_state: str, detail: str = "") -> None:
    """Take one step.

    Raises:
        WrongState: the request is elsewhere, or somebody else was first.
        Denied: the step's conditions are not met.
    """
    number = session.scalar(select(func.count()).where(Transition.request_id == request_id)) or 0
    now = state_of(session, request_id)
    if now != from_state:
        raise WrongState(request_id, now, from_state)
    try:
        with translated():
            session.add(
                Transition(
                    request_id=request_id,
                    number=number + 1,
                    from_state=from_state,
                    to_state=to_state,
                    detail=detail,
                    at=moment(),
                    actor_id=actor.id,
                )
            )
            session.flush()
    except AlreadyRecorded:
        raise WrongState(request_id, "being changed by another process", from_state) from None


def decide(session: Session, actor: Actor, decision: Decision, signature: str) -> str:
    """Record a decision; when the spend gate has what it needs the request becomes approved. Returns its state.

    Raises:
        WrongState: nothing waits at that gate.
        Denied: wrong subject, or the roles must be separate.
    """
    request = find(session, decision.request_id)
    session.refresh(request, with_for_update={"key_share": True})  # two stewards at once must see both decisions
    dataset = session.get_one(Dataset, request.dataset_id)
    state = state_of(session, request.id)
    waiting = {"spend": ("submitted", "approved"), "publish": ("produced",)}[decision.gate]
    if state not in waiting:
        raise WrongState(request.id, state, f"{waiting[0]} ({decision.gate} gate)")
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
    return state_of(session, request.id)


def _follow(session: Session, actor: Actor, request: Request, decision: Decision) -> None:
    state = state_of(session, request.id)
    if decision.verdict == "reject":
        move(session, actor, request.id, state, "rejected" if decision.gate == "spend" else "discarded")
    elif state == "submitted" and _open(session, request, "spend", request.digest):
        move(session, actor, request.id, "submitted", "approved")


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


def withdraw(session: Session, actor: Actor, request_id: int, reason: str) -> None:
    """Take a request back before it has run.

    Raises:
        WrongState: it has run, or is decided.
    """
    request = find(session, request_id)
    state = state_of(session, request_id)
    if state not in ("submitted", "approved"):
        raise WrongState(request_id, state, "submitted or approved")
    move(session, actor, request_id, state, "withdrawn", reason)
    dataset = session.get_one(Dataset, request.dataset_id)
    audits.append(session, actor, "request.withdrawn", {"reason": reason}, dataset.name, request_id)


def require_startable(session: Session, request_id: int) -> Request:
    """The request, if it may be run now.

    Raises:
        StillRunning: another process holds it.
        WrongState, GateClosed: it is not approved (any more).
    """
    request = find(session, request_id)
    state = state_of(session, request_id)
    if state == "running":
        raise StillRunning(request_id, session.get_one(Lease, request_id).owner)
    if state not in ("submitted", "approved"):
        raise WrongState(request_id, state, "approved")
    require_gate(session, request, "spend", request.digest)
    if request.expires_at <= moment():
        raise WrongState(request_id, "expired", "unexpired", "Submit it again: `almoner release request FILE`.")
    return request


def start(session: Session, actor: Actor, request_id: int, token: str, owner: str) -> int:
    """Begin an attempt of an approved request and take its lease. Returns the attempt's number.

    Raises:
        StillRunning, WrongState, GateClosed: see `require_startable`.
    """
    request = require_startable(session, request_id)
    move(session, actor, request_id, "approved", "running")
    attempt = _attempts(session, request_id)
    session.merge(
        Lease(
            request_id=request_id,
            attempt=attempt,
            token=token,
            owner=owner,
            expires_at=moment(datetime.now(UTC) + LEASE),
        )
    )
    dataset = session.get_one(Dataset, request.dataset_id)
    audits.append(session, actor, "run.started", {"attempt": attempt}, dataset.name, request_id)
    return attempt


def renew(session: Session, request_id: int, token: str) -> None:
    """Prolong the lease of a living run.

    Raises:
        Fenced: it is somebody else's now.
    """
    lease = session.get(Lease, request_id)
    if lease is None or lease.token != token:
        raise ledger.Fenced
    lease.expires_at = moment(datetime.now(UTC) + LEASE)


def running(session: Session) -> Sequence[Lease]:
    """The leases of requests that are in the state 'running'."""
    leases = session.scalars(select(Lease).order_by(Lease.request_id)).all()
    return [lease for lease in leases if state_of(session, lease.request_id) == "running"]


def _attempts(session: Session, request_id: int) -> int:
    return sum(step.to_state == "running" for step in history(session, request_id))


def _settle(session: Session, actor: Actor, attempt: ledger.Attempt, outcome: str) -> None:
    """Close the holds of the running attempt; settling has locked its accounts, so nobody ends it meanwhile."""
    ledger.settle(session, actor, attempt, outcome)
    running = state_of(session, attempt.request_id) == "running"
    if not running or _attempts(session, attempt.request_id) != attempt.number:
        raise ledger.Fenced


def fail(session: Session, actor: Actor, attempt: ledger.Attempt, reason: str) -> None:
    """End an attempt without an artifact: what was armed is forfeited, the rest is given back; it may be run again.

    Raises:
        Fenced: the attempt has ended already.
    """
    _settle(session, actor, attempt, "FORFEIT")
    move(session, actor, attempt.request_id, "running", "approved", reason)
    audits.append(
        session, actor, "run.failed", {"attempt": attempt.number, "reason": reason}, attempt.dataset, attempt.request_id
    )


def produce(
    session: Session,
    actor: Actor,
    attempt: ledger.Attempt,
    files: Mapping[str, Json],
    size: int,
    folder: str,
    metrics: Sequence[tuple[str, str, Json]],
) -> Artifact:
    """Commit an attempt: holds, artifact and its (metric, exposure, result) evaluations, in one transaction.

    Raises:
        Fenced: the attempt was swept away meanwhile.
    """
    _settle(session, actor, attempt, "COMMIT")
    made = Artifact(
        request_id=attempt.request_id,
        attempt=attempt.number,
        digest=digest(files),
        files=canonical(files).decode(),
        size=size,
        folder=folder,
        created_at=moment(),
        created_by=actor.id,
    )
    with translated():
        session.add(made)
        session.flush()
    record_metrics(session, made, metrics)
    move(session, actor, attempt.request_id, "running", "produced")
    audits.append(
        session,
        actor,
        "run.produced",
        {"attempt": attempt.number, "artifact": made.digest},
        attempt.dataset,
        attempt.request_id,
    )
    return made


def record_metrics(session: Session, artifact: Artifact, metrics: Sequence[tuple[str, str, Json]]) -> None:
    """Store evaluations of an artifact.

    Raises:
        Denied: an internal metric before the publish decision, on governed data (PRIVACY §7).
    """
    with translated():
        for metric, exposure, result in metrics:
            session.add(
                Evaluation(
                    artifact_id=artifact.id,
                    metric=metric,
                    exposure=exposure,
                    result=canonical(result).decode(),
                    created_at=moment(),
                )
            )
        session.flush()


def evaluations(session: Session, artifact: Artifact) -> Sequence[Evaluation]:
    """The stored evaluations of an artifact."""
    return session.scalars(
        select(Evaluation).where(Evaluation.artifact_id == artifact.id).order_by(Evaluation.id)
    ).all()


def artifact_of(session: Session, request_id: int) -> Artifact | None:
    """What the request's last successful attempt produced."""
    query = select(Artifact).where(Artifact.request_id == request_id).order_by(Artifact.attempt.desc()).limit(1)
    return session.scalars(query).one_or_none()


def require_publishable(session: Session, request_id: int) -> tuple[Request, Artifact]:
    """The request and its artifact, if it may be published (again).

    Raises:
        WrongState: nothing was produced.
        GateClosed: the publish gate is not passed for exactly these bytes.
    """
    request = find(session, request_id)
    artifact = artifact_of(session, request_id)
    state = state_of(session, request_id)
    if artifact is None or state not in ("produced", "published"):
        raise WrongState(request_id, state, "produced")
    if state == "produced":
        require_gate(session, request, "publish", artifact.digest)
    return request, artifact


def publish(session: Session, actor: Actor, request_id: int) -> Publication:
    """Record the publication of the produced artifact, before a byte is copied; the second call finds the first.

    Raises:
        WrongState: nothing was produced.
        GateClosed: the publish gate is not passed for exactly these bytes.
    """
    request, artifact = require_publishable(session, request_id)
    found = session.scalars(select(Publication).where(Publication.artifact_id == artifact.id)).one_or_none()
    if found is not None:
        return found
    with translated():
        found = Publication(artifact_id=artifact.id, at=moment(), actor_id=actor.id)
        session.add(found)
        session.flush()
    move(session, actor, request_id, "produced", "published")
    dataset = session.get_one(Dataset, request.dataset_id)
    audits.append(session, actor, "release.published", {"artifact": artifact.digest}, dataset.name, request_id)
    return found


def delivered(session: Session, actor: Actor, publication: Publication, destination: str, bundle: str) -> None:
    """Record that a bundle arrived whole."""
    session.add(Delivery(publication_id=publication.id, destination=destination, bundle_digest=bundle, at=moment()))
    artifact = session.get_one(Artifact, publication.artifact_id)
    request = session.get_one(Request, artifact.request_id)
    dataset = session.get_one(Dataset, request.dataset_id)
    audits.append(
        session, actor, "release.delivered", {"destination": destination, "bundle": bundle}, dataset.name, request.id
    )


def planned_blocks(request: Request) -> tuple[int, ...]:
    """The blocks the approved plan is eligible to read."""
    return tuple(json.loads(request.canonical)["plan"]["blocks"])


def artifacts(session: Session) -> Sequence[Artifact]:
    """Every artifact ever produced."""
    return session.scalars(select(Artifact).order_by(Artifact.id)).all()


def name_of(session: Session, principal_id: int) -> str:
    """A principal's name."""
    return session.get_one(Principal, principal_id).name


def model_of(request: Request) -> str:
    """The model the approved request names."""
    return str(json.loads(request.canonical)["model"]["name"])
