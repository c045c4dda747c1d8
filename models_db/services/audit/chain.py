"""The hash chain: its head, and signed checkpoints of it.

A link's hash is SHA-256 over canonical JSON (RFC 8785) of everything in the row and the previous hash. Links are made
from the rows that a transaction has recorded, when it ends (`models_db.writes.links`). The head row always exists; on
PostgreSQL every writer locks it first, so there is one at a time and the chain cannot fork. `audit_log` reads the
chain, `verify_chain` walks and verifies it, `verify_rows` compares the tables with it.
"""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.tables import Artifact, AuditHead, AuditLink, RecordedCheckpoint
from models_db.writes.insert import insert_row

GENESIS = "0" * 64


@dataclass(frozen=True)
class Actor:
    """Principal who acts: id and name."""

    id: int
    name: str


@dataclass(frozen=True)
class ChainPosition:
    """The newest link."""

    seq: int
    hash: str


def ledger_id(session: Session) -> str:
    """Return the hash of the first link, which names the ledger on every machine; empty if it was removed."""
    return session.scalar(select(AuditLink.row_hash).where(AuditLink.seq == 1)) or ""


def read_chain_head(session: Session) -> ChainPosition:
    """Return the newest link's number and hash."""
    row = session.scalars(select(AuditHead).where(AuditHead.id == 1)).one_or_none()
    return ChainPosition(row.seq, row.hash) if row else ChainPosition(0, "")  # of no chain, if somebody has removed it


def record_checkpoint(
    session: Session,
    actor: Actor,
    link: str,
    signature: str,
    public_key: str,
    signed: Artifact | str,
) -> None:
    """Record a signed checkpoint of the link with that hash; `verify` compares it with the chain from then on.

    Args:
        signed: what was signed with the link: the artifact whose bundle it lies in, or the time in its file.
    """
    seq = session.scalars(select(AuditLink.seq).where(AuditLink.row_hash == link)).one_or_none() or 0
    checkpoint = RecordedCheckpoint(
        seq=seq,
        hash=link,
        at=utc_now(),
        signature=signature,
        public_key=public_key,
        created_by=actor.id,
        artifact_id=signed.id if isinstance(signed, Artifact) else None,
        signed_at=None if isinstance(signed, Artifact) else signed,
    )
    insert_row(session, checkpoint)
