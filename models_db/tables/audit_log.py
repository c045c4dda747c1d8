"""Audit log: a hash chain of everything that was done, its head, and signed checkpoints of it."""

from sqlalchemy import CheckConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from models_db.database.base import Base, Body, Digest, Id, Key, Line, Moment, SerialKey, reference
from models_db.values.canonical_json import digest


class AuditLink(Base):
    """One link. `body` is canonical JSON without private values; `row_hash` covers all of it and the previous hash."""

    __tablename__ = "audit"
    __table_args__ = (
        Index("ix_audit_dataset_seq", "dataset", "seq"),
        Index("ix_audit_request_id_seq", "request_id", "seq"),
        Index("ix_audit_actor_seq", "actor", "seq"),
        Index("ix_audit_kind_seq", "kind", "seq"),
    )

    seq: Mapped[int] = mapped_column(Id, primary_key=True, autoincrement=False)
    prev_hash: Mapped[Digest] = mapped_column(unique=True)
    row_hash: Mapped[Digest] = mapped_column(unique=True)
    at: Mapped[Moment] = mapped_column(index=True)
    actor: Mapped[Line]
    kind: Mapped[Line]
    dataset: Mapped[Line | None]
    request_id: Mapped[int | None]
    body: Mapped[Body]

    @property
    def computed_hash(self) -> str:
        """Return the hash that this link must have, from its own columns."""
        return digest(
            {
                "seq": str(self.seq),
                "prev_hash": self.prev_hash,
                "at": self.at,
                "actor": self.actor,
                "kind": self.kind,
                "dataset": self.dataset,
                "request_id": self.request_id,
                "body": self.body,
            }
        )


class AuditHead(Base):
    """The one row. On PostgreSQL every writer locks it first, so there is one at a time and the chain cannot fork."""

    __tablename__ = "audit_head"
    __table_args__ = (CheckConstraint("id = 1", "single"),)
    allows = ("UPDATE", "REPLACE")

    id: Mapped[int] = mapped_column(Id, primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(Id)
    hash: Mapped[Digest]


class RecordedCheckpoint(Base):
    """A signed head of the chain, as it was put into the bundle of an artifact, or into a file at a time."""

    __tablename__ = "checkpoint"
    __table_args__ = (CheckConstraint("(artifact_id IS NULL) <> (signed_at IS NULL)", "signed"),)
    recorded_by = ("runner", "steward", "auditor", "admin")

    id: Mapped[Key]
    seq: Mapped[int] = mapped_column(Id)
    hash: Mapped[Digest]
    at: Mapped[Moment]
    signature: Mapped[Line]
    public_key: Mapped[Line]
    created_by: Mapped[int | None] = mapped_column(reference("principal"))
    artifact_id: Mapped[int | None] = mapped_column(reference("artifact"))
    signed_at: Mapped[Moment | None]


class Restoration(Base):
    """A backup was put back: between the link that it had last and this one, facts may be missing."""

    __tablename__ = "restoration"
    recorded_by = ("admin",)

    id: Mapped[Key]
    taken_at: Mapped[Moment]
    link: Mapped[int] = mapped_column(Id)
    reason: Mapped[Body]
    at: Mapped[Moment]
    actor_id: Mapped[int] = mapped_column(reference("principal"))


class PendingLink(Base):
    """Rows that a transaction on PostgreSQL has added and that have no link yet; empty between transactions."""

    __tablename__ = "pending_link"
    allows = ("UPDATE", "DELETE", "REPLACE")

    id: Mapped[SerialKey]
    table_name: Mapped[Line]
    first_id: Mapped[int] = mapped_column(Id)
    last_id: Mapped[int] = mapped_column(Id)
    account_id: Mapped[int | None] = mapped_column(Id)
