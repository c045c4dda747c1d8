"""Requests, their plans as guards look them up, and their course: transitions, approvals, artifacts, publications.

Plans of requests, as guards look them up: written by the database from the request's own text. Nobody inserts into
these tables; runs of equal instalments and of neighbouring blocks are one row each.
"""

from sqlalchemy import CheckConstraint, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models_db.database.base import Base, Body, Digest, Id, Key, Line, Moment, Units, reference
from models_db.values.request_state import LEGAL_TRANSITIONS


class Request(Base):
    """Request of an analyst, in canonical JSON; the spend gate approves its digest."""

    __tablename__ = "request"
    recorded_by = ("analyst",)

    id: Mapped[Key]
    dataset_id: Mapped[int] = mapped_column(reference("dataset"), index=True)
    version_id: Mapped[int] = mapped_column(reference("dataset_version"))
    policy_id: Mapped[int] = mapped_column(reference("policy_version"))
    canonical: Mapped[Body]
    digest: Mapped[Digest] = mapped_column(unique=True)
    requester_id: Mapped[int] = mapped_column(reference("principal"))
    created_at: Mapped[Moment]
    expires_at: Mapped[Moment]
    standing_id: Mapped[int | None] = mapped_column(reference("proposal"), index=True)
    """The standing authorisation under which it runs, of which each of its attempts is a use."""
    config_digest: Mapped[Digest | None]
    """Digest of the request without nonce and version of the data, which a standing authorisation names."""


class Transition(Base):
    """One step in the life of a request; its state is the last step's `to_state`."""

    __tablename__ = "transition"
    __table_args__ = (
        UniqueConstraint("request_id", "number"),
        CheckConstraint(
            " OR ".join(f"(from_state = '{old}' AND to_state = '{new}')" for old, new in LEGAL_TRANSITIONS), "legal"
        ),
    )

    id: Mapped[Key]
    request_id: Mapped[int] = mapped_column(reference("request"))
    number: Mapped[int]
    from_state: Mapped[Line]
    to_state: Mapped[Line]
    detail: Mapped[Body]
    at: Mapped[Moment]
    actor_id: Mapped[int] = mapped_column(reference("principal"))


class Approval(Base):
    """A steward's decision at a gate, bound to the digest of the shown request, artifact or proposal."""

    __tablename__ = "approval"
    __table_args__ = (
        Index("ix_approval_request_id", "request_id"),
        Index("ix_approval_proposal_id", "proposal_id"),
        CheckConstraint("expires_at > at", "ends_after_it_is_given"),
        CheckConstraint("(passkey_id IS NULL) = (assertion IS NULL)", "passkey"),
        CheckConstraint("decision IN ('approve', 'reject')", "decision"),
        CheckConstraint(
            "(gate IN ('spend', 'publish') AND request_id IS NOT NULL AND proposal_id IS NULL)"
            " OR (gate = 'proposal' AND proposal_id IS NOT NULL AND request_id IS NULL)",
            "gate",
        ),
    )
    recorded_by = ("steward",)

    id: Mapped[Key]
    request_id: Mapped[int | None] = mapped_column(reference("request"))
    gate: Mapped[Line]
    subject_digest: Mapped[Digest]
    approver_id: Mapped[int] = mapped_column(reference("principal"))
    decision: Mapped[Line]
    reason: Mapped[Body]
    at: Mapped[Moment]
    expires_at: Mapped[Moment]
    signature: Mapped[Line]
    proposal_id: Mapped[int | None] = mapped_column(reference("proposal"))
    attestation: Mapped[Body | None]
    """The approver's signature of the release's in-toto statement, at the publish gate."""
    brought_by: Mapped[int | None] = mapped_column(reference("principal"))
    """Principal that recorded the decision, if not the approver; on PostgreSQL always set."""
    passkey_id: Mapped[int | None] = mapped_column(reference("passkey"))
    assertion: Mapped[Body | None]
    """What the passkey signed beside the decision's digest; without a passkey the approver's own key signed."""


class Withdrawal(Base):
    """Withdrawal of an approval by its approver, before it was used."""

    __tablename__ = "withdrawal"
    __table_args__ = (CheckConstraint("(passkey_id IS NULL) = (assertion IS NULL)", "passkey"),)

    id: Mapped[Key]
    approval_id: Mapped[int] = mapped_column(reference("approval"), unique=True)
    reason: Mapped[Body]
    signature: Mapped[Line]
    at: Mapped[Moment]
    brought_by: Mapped[int | None] = mapped_column(reference("principal"))
    passkey_id: Mapped[int | None] = mapped_column(reference("passkey"))
    assertion: Mapped[Body | None]
    """As with an approval."""


class Lease(Base):
    """Lease of the process that runs a request. Advisory: the state of its holds fences a late runner."""

    __tablename__ = "lease"
    allows = ("UPDATE", "DELETE", "REPLACE")

    request_id: Mapped[int] = mapped_column(reference("request"), primary_key=True, autoincrement=False)
    attempt: Mapped[int]
    token: Mapped[Line]
    owner: Mapped[Line]
    expires_at: Mapped[Moment]


class Artifact(Base):
    """Output of an attempt, in quarantine; its digest covers every file, so the publish gate approves bytes."""

    __tablename__ = "artifact"
    __table_args__ = (UniqueConstraint("request_id", "attempt"),)
    recorded_by = ("runner",)

    id: Mapped[Key]
    request_id: Mapped[int] = mapped_column(reference("request"))
    attempt: Mapped[int]
    digest: Mapped[Digest] = mapped_column(unique=True)
    files: Mapped[Body]
    size: Mapped[Units]
    created_at: Mapped[Moment]
    created_by: Mapped[int] = mapped_column(reference("principal"))
    values_digest: Mapped[Digest | None]
    """Digest of the values that its mechanisms released, if later releases may use them."""


class StoredEvaluation(Base):
    """One metric of one artifact; `exposure` says who may see it and when (PRIVACY §7)."""

    __tablename__ = "evaluation"
    __table_args__ = (
        CheckConstraint("exposure <> 'charged' OR invocation_id IS NOT NULL", "charge"),
        CheckConstraint("exposure IN ('public', 'charged', 'internal')", "exposure"),
    )
    recorded_by = ("runner", "steward")

    id: Mapped[Key]
    artifact_id: Mapped[int] = mapped_column(reference("artifact"), index=True)
    metric: Mapped[Line]
    exposure: Mapped[Line]
    invocation_id: Mapped[int | None] = mapped_column(reference("invocation"))
    result: Mapped[Body]
    created_at: Mapped[Moment]
    created_by: Mapped[int | None] = mapped_column(reference("principal"))


class InternalView(Base):
    """View of an artifact's unprotected figures: a permanent mark on its account (PRIVACY §10.3)."""

    __tablename__ = "internal_view"
    __table_args__ = (CheckConstraint("kind IN ('computed', 'shown')", "kind"),)

    id: Mapped[Key]
    account_id: Mapped[int] = mapped_column(reference("account"), index=True)
    """The root account of the dataset."""
    artifact_id: Mapped[int] = mapped_column(reference("artifact"))
    actor_id: Mapped[int] = mapped_column(reference("principal"))
    kind: Mapped[Line]
    """`computed` with the figures, or `shown` when they were stored already."""
    at: Mapped[Moment]


class AssignmentExposure(Base):
    """An assignment of units to texts that a request was charged for got out, since when, and how: a claim's end."""

    __tablename__ = "assignment_exposure"
    __table_args__ = (CheckConstraint("since <= at", "since"),)
    recorded_by = ("steward", "admin")

    id: Mapped[Key]
    request_id: Mapped[int] = mapped_column(reference("request"), unique=True)
    since: Mapped[Moment]
    reason: Mapped[Body]
    actor_id: Mapped[int] = mapped_column(reference("principal"))
    at: Mapped[Moment]


class Publication(Base):
    """The decision to publish an artifact, recorded before the first byte is copied."""

    __tablename__ = "publication"
    recorded_by = ("runner", "steward")

    id: Mapped[Key]
    artifact_id: Mapped[int] = mapped_column(reference("artifact"), unique=True)
    at: Mapped[Moment]
    actor_id: Mapped[int] = mapped_column(reference("principal"))


class Delivery(Base):
    """A bundle that arrived whole at its destination."""

    __tablename__ = "delivery"
    recorded_by = ("runner", "steward")

    id: Mapped[Key]
    publication_id: Mapped[int] = mapped_column(reference("publication"))
    destination: Mapped[Body]
    bundle_digest: Mapped[Digest]
    at: Mapped[Moment]
    created_by: Mapped[int | None] = mapped_column(reference("principal"))


class TwinAttack(Base):
    """Attack on a configuration on public data: the attacks, and the digest of the result."""

    __tablename__ = "twin_attack"
    recorded_by = ("runner",)

    id: Mapped[Key]
    dataset: Mapped[Line]
    """The public twin."""
    request_id: Mapped[int | None] = mapped_column(reference("request"))
    configuration: Mapped[Digest]
    result: Mapped[Digest]
    attacks: Mapped[Body]
    at: Mapped[Moment]
    actor_id: Mapped[int] = mapped_column(reference("principal"))


class Rehearsal(Base):
    """A configuration was rehearsed on public data: the figures, all of them public."""

    __tablename__ = "rehearsal"

    id: Mapped[Key]
    dataset: Mapped[Line]
    """The public twin."""
    request_id: Mapped[int | None] = mapped_column(reference("request"))
    """The request that was named; another one of the same configuration has the rehearsal too."""
    configuration: Mapped[Digest]
    result: Mapped[Body]
    at: Mapped[Moment]
    actor_id: Mapped[int] = mapped_column(reference("principal"))


class PlannedRelease(Base):
    """A request has a plan; without this row it was recorded before plans were, and its text says none."""

    __tablename__ = "planned_release"

    request_id: Mapped[int] = mapped_column(Id, reference("request"), primary_key=True, autoincrement=False)
    invocations: Mapped[int]


class PlannedBlock(Base):
    """Neighbouring blocks that the request may read."""

    __tablename__ = "planned_block"
    __table_args__ = (CheckConstraint("first_block >= 0 AND last_block >= first_block", "run"),)

    request_id: Mapped[int] = mapped_column(Id, reference("request"), primary_key=True, autoincrement=False)
    first_block: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last_block: Mapped[int]


class PlannedInvocation(Base):
    """One mechanism of the plan, with its event in canonical JSON."""

    __tablename__ = "planned_invocation"

    request_id: Mapped[int] = mapped_column(Id, reference("request"), primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    mechanism: Mapped[Line]
    event: Mapped[Body]
    instalments: Mapped[int]


class PlannedInstalment(Base):
    """Neighbouring instalments of one mechanism that cost the same."""

    __tablename__ = "planned_instalment"
    __table_args__ = (
        CheckConstraint(
            "first_instalment >= 0 AND last_instalment >= first_instalment AND rho >= 0 AND delta >= 0", "run"
        ),
    )

    request_id: Mapped[int] = mapped_column(Id, reference("request"), primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    first_instalment: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last_instalment: Mapped[int]
    rho: Mapped[Units]
    delta: Mapped[Units]
