"""The hash chain: append a link in the transaction of the fact it records.

A link's hash is SHA-256 over canonical JSON (RFC 8785) of everything in the row and the previous hash. The head
row always exists and is locked last in a transaction, so the chain cannot fork and no two writers deadlock on it.
`audit_log` reads the chain, `audit_check` walks and verifies it.
"""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.base import moment
from models_db.canonical import Json, canonical
from models_db.recording import append_link, record
from models_db.tables import Audit, AuditHead, Checkpoint

GENESIS = "0" * 64


@dataclass(frozen=True)
class Actor:
    """Who does something: a principal's id and name."""

    id: int
    name: str


@dataclass(frozen=True)
class Head:
    """The newest link."""

    seq: int
    hash: str


def append(
    session: Session,
    actor: Actor,
    kind: str,
    body: dict[str, Json],
    dataset: str | None = None,
    request_id: int | None = None,
) -> Head:
    """Add one link. Call it last in the transaction; `body` must hold no private value.

    Raises:
        ClockWentBack: the newest link is from a later time than now.
    """
    return Head(*append_link(session, actor.name, kind, canonical(body).decode(), dataset, request_id))


def head(session: Session) -> Head:
    """The newest link's number and hash."""
    row = session.scalars(select(AuditHead)).one()
    return Head(row.seq, row.hash)


def record_checkpoint(session: Session, link: str, signature: str, public_key: str) -> None:
    """Remember a signed checkpoint of the link with that hash; `verify` compares it with the chain for ever after."""
    seq = session.scalars(select(Audit.seq).where(Audit.row_hash == link)).one_or_none() or 0
    record(session, Checkpoint(seq=seq, hash=link, at=moment(), signature=signature, public_key=public_key))
