"""Rollback guard: a home remembers its ledger's head outside the ledger, so that an older copy is noticed.

`seen.json` (0600, replaced as a whole) holds the head of the chain as this home last saw it, the newest signed
checkpoint, and the first link, which names the ledger. It is looked at whenever the workspace is opened and renewed
after every commit, so it can be behind the ledger (a crash in between) and never ahead of it. Who puts back an older
`seen.json` together with an older ledger is found by a bundle only: `almoner audit verify --against`.
"""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from models_db.errors import EnvironmentProblem, Refused
from models_db.home import ProjectHome
from models_db.services.audit.chain import ChainPosition
from models_db.sessions.database import Database, SchemaOutdated
from models_db.tables import AuditLink
from models_db.values.bounded_json import parse_json
from models_db.values.canonical_json import encode_canonical
from models_db.writes.links import record_links
from tasks.common.files import write_over

FORMAT = "almoner-seen/1"
MOST_FILE_BYTES = 1_000_000
"""Bytes of `seen.json`."""

_READ_HEAD = text("""
SELECT h.seq, h.hash, (SELECT row_hash FROM audit WHERE seq = 1), c.seq, c.hash
FROM audit_head h LEFT JOIN checkpoint c ON c.id = (SELECT max(id) FROM checkpoint) WHERE h.seq > 0
""")


@dataclass(frozen=True)
class SeenHeads:
    """A ledger as it was last seen.

    Attributes:
        first: hash of its first link.
        head: its newest link then.
        checkpoint: the newest head that was signed, for a bundle or a file.
    """

    first: str
    head: ChainPosition
    checkpoint: ChainPosition | None = None


class RollbackGuardedDatabase(Database):
    """The ledger of a home, which remembers its head after every commit."""

    def __init__(self, home: ProjectHome) -> None:
        super().__init__(home.database_url)
        self._home = home

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One write transaction; see `Database.write`."""
        seen = None
        with super().write() as session:
            yield session
            if session.in_transaction():
                record_links(session)  # the head is theirs
                seen = read_head(session)
        # The commit stands whatever happens here: a home that cannot be written only remembers less.
        with contextlib.suppress(SeenFileUnwritable):
            save_head(self._home, seen)


def read_head(session: Session) -> SeenHeads | None:
    """The ledger as it is now; None while its chain is empty."""
    row = session.execute(_READ_HEAD).one_or_none()
    if row is None:
        return None
    seq, link, first, signed_seq, signed = row
    return SeenHeads(first, ChainPosition(seq, link), ChainPosition(signed_seq, signed) if signed_seq else None)


def save_head(home: ProjectHome, seen: SeenHeads | None, *, durable: bool = False) -> None:
    """Remember it in place of what was remembered before; `durable` waits for the disk.

    Raises:
        SeenFileUnwritable: the home cannot be written.
    """
    if seen is None:
        return
    try:
        write_over(home.seen, _encode_heads(seen), 0o600, durable=durable)
    except OSError as problem:
        raise SeenFileUnwritable(home, problem) from None


def load_head(home: ProjectHome) -> SeenHeads | None:
    """Return the remembered head; None if there is none (a power cut can leave an empty file).

    Raises:
        SeenFileUnusable: the file is not ours or cannot be read.
    """
    try:
        data = home.seen.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise SeenFileUnusable(home, problem.strerror or "it cannot be read") from None
    if not data.strip(b"\0\n"):
        return None
    try:
        return _decode_heads(parse_json(data, most_bytes=MOST_FILE_BYTES))
    except (ValueError, KeyError, TypeError):
        raise SeenFileUnusable(home, "it is not in its format") from None


def missing_links(session: Session, seen: SeenHeads) -> str:
    """Return how the ledger contradicts the remembered head, as the end of a sentence; empty if it does not."""
    expected = {1: seen.first, seen.head.seq: seen.head.hash}
    if seen.checkpoint:
        expected[seen.checkpoint.seq] = seen.checkpoint.hash
    rows = session.execute(select(AuditLink.seq, AuditLink.row_hash).where(AuditLink.seq.in_([*expected])))
    stored = {row.seq: row.row_hash for row in rows}
    if stored == expected:
        return ""
    if stored.get(1) != seen.first:
        return "it begins with another link, so it is another ledger" if stored else "it has no links"
    released = seen.checkpoint is not None and stored.get(seen.checkpoint.seq) != seen.checkpoint.hash
    older = ", and it is older than the newest signed checkpoint" if released else ""
    if seen.head.seq not in stored:
        return f"link {seen.head.seq}, which this home has seen, is gone{older}"
    return f"link {seen.head.seq} is not the one this home has seen{older}"


def require_seen(session: Session, seen: SeenHeads | None) -> SeenHeads | None:
    """Check that the ledger goes on from what was seen of it, with one look-up. Returns what it is now, if it is more.

    What was seen must be recalled before the session begins: the session sees the ledger as it was then.

    Raises:
        LedgerRolledBack: it does not.
    """
    if seen is not None and (how := missing_links(session, seen)):
        raise LedgerRolledBack(how, seen)
    now = read_head(session)
    return None if now == seen else now


def check_rollback(home: ProjectHome, database: Database) -> str:
    """For readers: return how the ledger contradicts the remembered head, or why that is unknown."""
    try:
        seen = load_head(home)
    except SeenFileUnusable as problem:
        return problem.message
    if seen is None:
        return ""
    with database.read() as session:
        how = missing_links(session, seen)
    return f"The ledger differs from the one that this home has seen: {how}." if how else ""


def require_same_ledger(home: ProjectHome, database: Database) -> None:
    """The same before a schema is made or upgraded: nothing may be built where a known ledger is missing.

    Raises:
        LedgerRolledBack, SeenFileUnusable: see `require_seen` and `load_head`.
    """
    seen = load_head(home)
    if seen is None:
        return
    try:
        with database.read() as session:
            require_seen(session, seen)
    except SchemaOutdated:
        raise LedgerRolledBack("it has no links", seen) from None


def _encode_heads(seen: SeenHeads) -> bytes:
    return encode_canonical({
        "format": FORMAT,
        "first": seen.first,
        "seq": seen.head.seq,
        "hash": seen.head.hash,
        "checkpoint": {"seq": seen.checkpoint.seq, "hash": seen.checkpoint.hash} if seen.checkpoint else None,
    }) + b"\n"  # fmt: skip


def _decode_heads(stored: dict[str, Any]) -> SeenHeads:
    if stored["format"] != FORMAT:
        raise ValueError(stored["format"])
    point = stored["checkpoint"]
    return SeenHeads(str(stored["first"]), _decode_position(stored), _decode_position(point) if point else None)


def _decode_position(stored: dict[str, Any]) -> ChainPosition:
    seq, link = stored["seq"], stored["hash"]
    if type(seq) is not int or type(link) is not str:
        raise TypeError("a head is a number and a hash")
    return ChainPosition(seq, link)


class LedgerRolledBack(Refused):
    """The ledger does not continue from the head that this home has seen."""

    def __init__(self, how: str, seen: SeenHeads) -> None:
        super().__init__(
            f"The ledger differs from the one that this home has seen: {how}. Nothing was done.",
            "An older copy forgets what was spent. Put the newest ledger back; `almoner audit verify --against BUNDLE`"
            " tells which one is genuine, and docs/backup.md what to do if it is lost.",
            {"seen_link": seen.head.seq, "seen_hash": seen.head.hash, "finding": how},
        )


class SeenFileUnusable(EnvironmentProblem):
    """The home's file of seen heads is unreadable."""

    def __init__(self, home: ProjectHome, reason: str) -> None:
        super().__init__(
            f"{home.seen}, the home's record of the ledger's head, cannot be used: {reason}.",
            "Find out who changed it. Compare the ledger with a bundle (`almoner audit verify --against BUNDLE`) before"
            " you remove the file.",
            {"path": str(home.seen), "reason": reason},
        )


class SeenFileUnwritable(EnvironmentProblem):
    """The home's file of seen heads cannot be written."""

    def __init__(self, home: ProjectHome, problem: OSError) -> None:
        super().__init__(
            f"{home.seen} cannot be written: {problem.strerror or type(problem).__name__}.",
            "Make room, or use the home with the account that owns it.",
            {"path": str(home.seen)},
        )
