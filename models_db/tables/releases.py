"""Requests and what becomes of them: transitions, approvals, leases, artifacts, evaluations, publications."""

from sqlalchemy import CheckConstraint, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models_db.base import Base, Body, Digest, Key, Line, Moment, Units, reference

TRANSITIONS = (
    ("draft", "submitted"),
    ("submitted", "approved"),
    ("submitted", "rejected"),
    ("submitted", "withdrawn"),
    ("approved", "rejected"),
    ("approved", "withdrawn"),
    ("approved", "running"),
    ("running", "approved"),
    ("running", "produced"),
    ("produced", "discarded"),
    ("produced", "published"),
)
"""The only moves a request can make; 'running' goes back to 'approved' when an attempt failed."""


class Request(Base):
    """What an analyst asks for, in canonical JSON; its digest is what the spend gate approves."""

    __tablename__ = "request"

    id: Mapped[Key]
    dataset_id: Mapped[int] = mapped_column(reference("dataset"), index=True)
    version_id: Mapped[int] = mapped_column(reference("dataset_version"))
    policy_id: Mapped[int] = mapped_column(reference("policy_version"))
    canonical: Mapped[Body]
    digest: Mapped[Digest] = mapped_column(unique=True)
    requester_id: Mapped[int] = mapped_column(reference("principal"))
    created_at: Mapped[Moment]
    expires_at: Mapped[Moment]


class Transition(Base):
    """One step in the life of a request; its state is the last step's `to_state`."""

    __tablename__ = "transition"
    __table_args__ = (
        UniqueConstraint("request_id", "number"),
        CheckConstraint(
            " OR ".join(f"(from_state = '{a}' AND to_state = '{b}')" for a, b in TRANSITIONS), name="legal"
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
    """A steward's decision at one gate, bound to the digest of what was shown."""

    __tablename__ = "approval"
    __table_args__ = (
        UniqueConstraint("request_id", "gate", "subject_digest", "approver_id"),
        CheckConstraint("gate IN ('spend', 'publish')", name="gate"),
        CheckConstraint("decision IN ('approve', 'reject')", name="decision"),
        CheckConstraint("length(trim(reason)) > 0", name="reason"),
    )

    id: Mapped[Key]
    request_id: Mapped[int] = mapped_column(reference("request"))
    gate: Mapped[Line]
    subject_digest: Mapped[Digest]
    approver_id: Mapped[int] = mapped_column(reference("principal"))
    decision: Mapped[Line]
    reason: Mapped[Body]
    at: Mapped[Moment]
    expires_at: Mapped[Moment]
    signature: Mapped[Line]


class Lease(Base):
    """Who is running a request right now. Advisory: what fences a late runner is the state of its holds."""

    __tablename__ = "lease"

    request_id: Mapped[int] = mapped_column(reference("request"), primary_key=True, autoincrement=False)
    attempt: Mapped[int]
    token: Mapped[Line]
    owner: Mapped[Line]
    expires_at: Mapped[Moment]


class Artifact(Base):
    """What an attempt produced, in quarantine; its digest covers every file, so the publish gate approves bytes."""

    __tablename__ = "artifact"
    __table_args__ = (UniqueConstraint("request_id", "attempt"),)

    id: Mapped[Key]
    request_id: Mapped[int] = mapped_column(reference("request"))
    attempt: Mapped[int]
    digest: Mapped[Digest] = mapped_column(unique=True)
    files: Mapped[Body]
    size: Mapped[Units]
    folder: Mapped[Line]
    created_at: Mapped[Moment]
    created_by: Mapped[int] = mapped_column(reference("principal"))


class Evaluation(Base):
    """One metric of one artifact; `exposure` says who may see it and when (PRIVACY §7)."""

    __tablename__ = "evaluation"
    __table_args__ = (
        CheckConstraint("exposure IN ('public', 'charged', 'internal')", name="exposure"),
        CheckConstraint("exposure <> 'charged' OR invocation_id IS NOT NULL", name="charge"),
    )

    id: Mapped[Key]
    artifact_id: Mapped[int] = mapped_column(reference("artifact"), index=True)
    metric: Mapped[Line]
    exposure: Mapped[Line]
    invocation_id: Mapped[int | None] = mapped_column(reference("invocation"))
    result: Mapped[Body]
    created_at: Mapped[Moment]


class Publication(Base):
    """The decision to publish an artifact, recorded before the first byte is copied."""

    __tablename__ = "publication"

    id: Mapped[Key]
    artifact_id: Mapped[int] = mapped_column(reference("artifact"), unique=True)
    at: Mapped[Moment]
    actor_id: Mapped[int] = mapped_column(reference("principal"))


class Delivery(Base):
    """A bundle that arrived whole at its destination."""

    __tablename__ = "delivery"

    id: Mapped[Key]
    publication_id: Mapped[int] = mapped_column(reference("publication"))
    destination: Mapped[Body]
    bundle_digest: Mapped[Digest]
    at: Mapped[Moment]
