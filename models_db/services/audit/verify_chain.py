"""Verification of the chain: every link, every checkpoint the ledger keeps, and every anchor that others kept.

A chain by itself reveals alterations inside it. A chain that was rewritten as a whole, cut at the end or replaced by an
older copy is revealed only by an anchor: a signed head that is kept elsewhere, in a bundle or a checkpoint file. The
check whether an anchor lies on the chain is certain. The reason why it does not is inferred from the rest of the
ledger, and a writer of all its tables can make one reason look like another.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.services.audit.chain import GENESIS, ChainPosition, read_chain_head
from models_db.services.audit.log import LogFilter, LoggedLink, named_rows, parse_body, stream_chunks
from models_db.tables import (
    Artifact,
    AuditLink,
    Delivery,
    Entry,
    Principal,
    Publication,
    RecordedCheckpoint,
    Transition,
)
from models_db.writes import link_content as chain

OFF_CHAIN = "a signed checkpoint does not lie on the chain"
MOST_UNREADABLE = 10
"""Maximum number of link positions of one kind that a report names."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ChainAnchor:
    """A signed head of the chain that was kept outside the ledger; that of a bundle has no number and no time."""

    hash: str
    public_key: str
    seq: int | None = None
    at: str | None = None
    artifact: str | None = None


@dataclass(frozen=True)
class AnchorPlacement:
    """Position of an anchor relative to the chain.

    Attributes:
        link: the number of its link, None when it does not lie on the chain.
        signer: the principal of this ledger whose key signed it; None if there is none.
        verdict: `on the chain`, or `broken`, `rewritten`, `cut off`, `older copy`, `another ledger`.
        detail: the verdict as a sentence.
    """

    anchor: ChainAnchor
    link: int | None
    signer: str | None
    verdict: str
    detail: str


@dataclass(frozen=True)
class ChainReport:
    """Result of a walk: how many links, and at which link the first break is (None: the chain holds).

    Attributes:
        clock_back: the first links whose time is before that of the link they follow.
        unreadable: the first links whose body no reader parses (`models_db.services.audit.log`).
        placements: where each anchor lies.
    """

    links: int
    head: ChainPosition
    broken_at: int | None
    reason: str = ""
    clock_back: tuple[int, ...] = ()
    unreadable: tuple[int, ...] = ()
    placements: tuple[AnchorPlacement, ...] = ()

    @property
    def holds(self) -> bool:
        """Return whether no link is broken."""
        return self.broken_at is None

    @property
    def sound(self) -> bool:
        """Return whether no link is broken or unreadable, times never decrease, and every anchor is on the chain."""
        placed = all(placement.link is not None for placement in self.placements)
        return self.holds and not self.clock_back and not self.unreadable and placed


@dataclass
class _ChainWalk:
    """State of a walk along the chain."""

    points: dict[int, set[str]]
    anchored_hashes: frozenset[str]
    links_by_hash: dict[str, int] = field(default_factory=dict)
    count: int = 0
    hash: str = GENESIS
    at: str = ""
    clock_back: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)

    def step(self, link: LoggedLink) -> None:
        """Check one link.

        Raises:
            _Broken: it does not fit.
        """
        self.count += 1
        if problem := break_reason(link, self.count, self.hash):
            raise _ChainBroken(self.count, problem)
        self.hash = link.row_hash
        if self.points.pop(self.count, {self.hash}) != {self.hash}:
            raise _ChainBroken(self.count, OFF_CHAIN)
        if self.hash in self.anchored_hashes:
            self.links_by_hash[self.hash] = self.count
        if link.at < self.at and len(self.clock_back) < MOST_UNREADABLE:
            self.clock_back.append(self.count)
        if len(self.unreadable) < MOST_UNREADABLE and parse_body(link.body) is None:
            self.unreadable.append(self.count)
        self.at = link.at

    def end(self, stored: ChainPosition) -> None:
        """Check what must be true after the last link.

        Raises:
            _Broken: a checkpoint or the recorded head is elsewhere.
        """
        if self.points:
            raise _ChainBroken(min(self.points), OFF_CHAIN)
        if (stored.seq, stored.hash) != (self.count, self.hash):
            raise _ChainBroken(self.count + 1, "the chain ends before the recorded head")


class _ChainBroken(Exception):
    """End of a walk at a broken link, with the reason."""

    def __init__(self, link: int, reason: str) -> None:
        super().__init__(reason)
        self.link = link
        self.reason = reason


def verify_chain(
    session: Session, anchors: Sequence[ChainAnchor] = (), progress: Progress | None = None
) -> ChainReport:
    """Walk the whole chain from its first link, with every recorded checkpoint and the given anchors.

    Memory does not grow with the chain. `progress` is called with the numbers of links done and of all links.
    """
    stored = read_chain_head(session)
    walk = _ChainWalk(_recorded_checkpoints(session), frozenset(anchor.hash for anchor in anchors))
    broken_at, reason = None, ""
    try:
        for link in _stored_links(session, stored.seq, progress):
            walk.step(link)
        walk.end(stored)
    except _ChainBroken as broken:
        broken_at, reason = broken.link, broken.reason
    placed = tuple(_place_anchor(session, anchor, walk, broken_at) for anchor in anchors)
    return ChainReport(walk.count, stored, broken_at, reason, tuple(walk.clock_back), tuple(walk.unreadable), placed)


def _stored_links(session: Session, total: int, progress: Progress | None) -> Iterable[LoggedLink]:
    done = 0
    for chunk in stream_chunks(session, LogFilter()):
        yield from chunk
        done += len(chunk)
        if progress:
            progress(done, total)


def _recorded_checkpoints(session: Session) -> dict[int, set[str]]:
    points: dict[int, set[str]] = {}
    for seq, link in session.connection().execute(select(RecordedCheckpoint.seq, RecordedCheckpoint.hash)):
        points.setdefault(seq, set()).add(link)
    return points


def break_reason(link: LoggedLink, number: int, expected: str) -> str:
    """Return why a link cannot be link `number`, after a link with the hash `expected`; empty if it can be."""
    if link.seq != number:
        return "a link is missing"
    if link.prev_hash != expected:
        return "a link does not follow the one before"
    try:
        return "" if link.row_hash == link_hash(link) else "a link was altered"
    except (TypeError, ValueError):  # a value of another type than its column's, which SQLite keeps
        return "a link was altered"


def link_hash(link: LoggedLink) -> str:
    """Return the hash a link must have; see `models_db.writes.link_content`."""
    return chain.link_hash(
        link.seq, link.prev_hash, link.at, link.actor, link.kind, link.dataset, link.request_id, link.body
    )


def _place_anchor(session: Session, anchor: ChainAnchor, walk: _ChainWalk, broken_at: int | None) -> AnchorPlacement:
    signer = session.scalar(select(Principal.name).where(Principal.public_key == anchor.public_key))
    link = walk.links_by_hash.get(anchor.hash)
    if link is not None:
        wrong = anchor.seq not in (None, link)
        verdict = ("rewritten", f"it says link {anchor.seq}") if wrong else ("on the chain", f"it is link {link}")
        return AnchorPlacement(anchor, None if wrong else link, signer, *verdict)
    verdict = _reason_off_chain(session, anchor, signer, walk, broken_at)
    return AnchorPlacement(anchor, None, signer, *verdict)


def _reason_off_chain(
    session: Session, anchor: ChainAnchor, signer: str | None, walk: _ChainWalk, broken_at: int | None
) -> tuple[str, str]:
    """Return why an anchor does not lie on the chain, as far as the rest of the ledger shows."""
    recorded = session.scalar(select(RecordedCheckpoint.seq).where(RecordedCheckpoint.hash == anchor.hash).limit(1))
    number = anchor.seq if anchor.seq is not None else recorded or None
    if number is not None and number <= walk.count:
        return _conflicting_link(session, anchor, signer, number)
    if broken_at is not None and broken_at <= walk.count:
        return "broken", f"the chain is broken at link {broken_at}, and this does not lie before"
    if signer is None:
        return "another ledger", "no principal of this ledger has the key that signed it"
    if recorded or _later_facts(session, anchor, walk):
        return "cut off", f"the chain ends at link {walk.count}, and the ledger's other tables know of later facts"
    if anchor.artifact is not None and _names_published(session, anchor.artifact):
        return "rewritten", "the chain names this release, with another history"
    return "older copy", f"the ledger ends at link {walk.count} and knows nothing later: an older copy was put back"


def _conflicting_link(session: Session, anchor: ChainAnchor, signer: str | None, number: int) -> tuple[str, str]:
    first, link_at = (
        str(session.scalar(select(AuditLink.at).where(AuditLink.seq == seq)) or "") for seq in (1, number)
    )
    if signer is None or (anchor.at is not None and first > anchor.at):
        return "another ledger", f"link {number} is another one, and the ledger began without this signer or later"
    if anchor.at is not None and link_at > anchor.at:
        return "older copy", f"link {number} was written after this was signed: an older copy was put back and went on"
    return "rewritten", f"link {number} is another one, and everything since was hashed anew"


def _later_facts(session: Session, anchor: ChainAnchor, walk: _ChainWalk) -> bool:
    """Return whether a table holds what happened after the last link: the link of a fact is written after the fact."""
    newest = (
        str(session.scalar(select(table.at).order_by(table.id.desc()).limit(1)) or "")
        for table in (Entry, Transition, Publication, Delivery)
    )
    published = select(Artifact.id).where(Artifact.digest == (anchor.artifact or ""))
    unlinked = session.scalar(published) is not None and not _names_published(session, anchor.artifact or "")
    return unlinked or any(at > walk.at for at in newest)


def _names_published(session: Session, artifact: str) -> bool:
    """Return whether a link names the artifact as published."""
    published = select(Publication.id, Artifact.request_id).join(Artifact, Artifact.id == Publication.artifact_id)
    row = session.execute(published.where(Artifact.digest == artifact)).one_or_none()
    if row is None:
        return False
    bodies = session.scalars(select(AuditLink.body).where(AuditLink.request_id == row.request_id))
    rows = (each for body in bodies for each in named_rows(parse_body(body) or {}))
    return any(each.table == "publication" and row.id in each.numbers for each in rows)
