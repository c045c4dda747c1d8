"""The hash chain: append a link in the transaction of the fact it records; walk and verify it.

A link's hash is SHA-256 over canonical JSON (RFC 8785) of everything in the row and the previous hash. The head
row always exists and is locked last in a transaction, so the chain cannot fork and no two writers deadlock on it.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.base import moment
from models_db.canonical import Json, canonical, digest
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


@dataclass(frozen=True)
class ChainReport:
    """Result of a walk: how many links, and at which link the first break is (None: the chain holds)."""

    links: int
    head: Head
    broken_at: int | None
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether every link fits."""
        return self.broken_at is None


def append(
    session: Session,
    actor: Actor,
    kind: str,
    body: dict[str, Json],
    dataset: str | None = None,
    request_id: int | None = None,
) -> Head:
    """Add one link. Call it last in the transaction; `body` must hold no private value."""
    session.flush()
    head = session.scalars(select(AuditHead).with_for_update().execution_options(populate_existing=True)).one()
    link = Audit(
        seq=head.seq + 1,
        prev_hash=head.hash,
        at=moment(),
        actor=actor.name,
        kind=kind,
        dataset=dataset,
        request_id=request_id,
        body=canonical(body).decode(),
    )
    link.row_hash = link_hash(link)
    session.add(link)
    session.flush()
    session.expire(head)
    return Head(link.seq, link.row_hash)


def link_hash(link: Audit) -> str:
    """The hash a link must have, from its own columns."""
    return digest(
        {
            "seq": str(link.seq),
            "prev_hash": link.prev_hash,
            "at": link.at,
            "actor": link.actor,
            "kind": link.kind,
            "dataset": link.dataset,
            "request_id": link.request_id,
            "body": link.body,
        }
    )


def head(session: Session) -> Head:
    """The newest link's number and hash."""
    row = session.scalars(select(AuditHead)).one()
    return Head(row.seq, row.hash)


def record_checkpoint(session: Session, link: str, signature: str, public_key: str) -> None:
    """Remember a signed checkpoint of the link with that hash; `verify` compares it with the chain for ever after."""
    seq = session.scalars(select(Audit.seq).where(Audit.row_hash == link)).one_or_none() or 0
    session.add(Checkpoint(seq=seq, hash=link, at=moment(), signature=signature, public_key=public_key))
    session.flush()


def verify(session: Session) -> ChainReport:
    """Walk the whole chain from the first link, and check every recorded checkpoint against it."""
    points: dict[int, set[str]] = {}
    for point in session.scalars(select(Checkpoint)):
        points.setdefault(point.seq, set()).add(point.hash)
    links = session.scalars(select(Audit).order_by(Audit.seq).execution_options(yield_per=1000))
    with closing(links):
        return _walk(links, head(session), points)


def _walk(links: Iterable[Audit], stored: Head, points: dict[int, set[str]]) -> ChainReport:
    expected, count = GENESIS, 0
    for link in links:
        count += 1
        if problem := _misfit(link, count, expected):
            return ChainReport(count, stored, count, problem)
        expected = link.row_hash
        if points.pop(count, {expected}) != {expected}:
            return ChainReport(count, stored, count, "a signed checkpoint does not lie on the chain")
    if points:
        return ChainReport(count, stored, min(points), "a signed checkpoint does not lie on the chain")
    if (stored.seq, stored.hash) != (count, expected):
        return ChainReport(count, stored, count + 1, "the chain ends before the recorded head")
    return ChainReport(count, stored, None)


def _misfit(link: Audit, number: int, expected: str) -> str:
    if link.seq != number:
        return "a link is missing"
    if link.prev_hash != expected:
        return "a link does not follow the one before"
    if link.row_hash != link_hash(link):
        return "a link was altered"
    return ""


@dataclass(frozen=True)
class LogFilter:
    """What `audit log` asks for; every field narrows, None leaves it open."""

    dataset: str | None = None
    request_id: int | None = None
    actor: str | None = None
    kind: str | None = None
    mechanism: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int | None = None


def log(session: Session, wanted: LogFilter) -> Iterator[Audit]:
    """Links that fit the filter, oldest first; with a limit, the newest that many."""
    query = select(Audit)
    for column, value in (
        (Audit.dataset, wanted.dataset),
        (Audit.request_id, wanted.request_id),
        (Audit.actor, wanted.actor),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.kind is not None:
        query = query.where(Audit.kind.startswith(wanted.kind, autoescape=True))
    if wanted.mechanism is not None:
        query = query.where(Audit.body.contains(f'"{wanted.mechanism}"', autoescape=True))
    if wanted.since is not None:
        query = query.where(Audit.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(Audit.at < wanted.until)
    newest_first = query.order_by(Audit.seq.desc()).limit(wanted.limit)
    yield from reversed(session.scalars(newest_first).all())
