"""Rollback guard: a home remembers its ledger's head outside the ledger, so that an older copy is noticed.

`seen.json` (0600, replaced as a whole) holds the head of the chain as this home last saw it, the newest signed
checkpoint, and the first link, which names the ledger. It is read whenever the workspace is opened and renewed
after every commit, so it can be behind the ledger (a crash in between) and never ahead of it. If an older `seen.json`
is put back together with an older ledger, only a bundle reveals it: `almoner audit verify --against`.
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
from models_db.values.canonical_json import encode_canonical, parse_json
from models_db.writes.links import record_link
from tasks.common.files import open_user_file, write_over

FORMAT = "almoner-seen/1"
MOST_FILE_BYTES = 1_000_000
"""Largest size of `seen.json` in bytes."""

_READ_HEAD = text("""
SELECT h.seq, h.hash, (SELECT row_hash FROM audit WHERE seq = 1), c.seq, c.hash
FROM audit_head h LEFT JOIN checkpoint c ON c.id = (SELECT max(id) FROM checkpoint) WHERE h.seq > 0
""")


@dataclass(frozen=True)
class SeenHeads:
    """The state of a ledger at its last use.

    Attributes:
        first: the hash of its first link.
        head: its newest link at that time.
        checkpoint: the newest signed head, for a bundle or a file.
    """

    first: str
    head: ChainPosition
    checkpoint: ChainPosition | None = None


class RollbackGuardedDatabase(Database):
    """The ledger of a home; its head is saved in the home after every commit."""

    def __init__(self, home: ProjectHome) -> None:
        super().__init__(home.database_url)
        self._home = home

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a write transaction; see `Database.write`."""
        heads = None
        with super().write() as session:
            yield session
            if session.in_transaction():
                record_link(session)  # the head is theirs
                heads = read_head(session)
        # The commit stands even if saving fails: the home then only remembers an older head.
        with contextlib.suppress(SeenFileUnwritable):
            save_head(self._home, heads)


def read_head(session: Session) -> SeenHeads | None:
    """Return the present state of the ledger; None while its chain is empty."""
    row = session.execute(_READ_HEAD).one_or_none()
    if row is None:
        return None
    seq, link, first, signed_seq, signed = row
    return SeenHeads(first, ChainPosition(seq, link), ChainPosition(signed_seq, signed) if signed_seq else None)


def save_head(home: ProjectHome, heads: SeenHeads | None, *, durable: bool = False) -> None:
    """Save the state in place of the earlier one; `durable` waits for the disk.

    Raises:
        SeenFileUnwritable: the home cannot be written.
    """
    if heads is None:
        return
    try:
        write_over(home.seen, _encode_heads(heads), 0o600, durable=durable)
    except OSError as problem:
        raise SeenFileUnwritable(home, problem) from None


def load_head(home: ProjectHome) -> SeenHeads | None:
    """Return the remembered head; None if there is none (a power cut can leave an empty file).

    Raises:
        SeenFileUnusable: the file has another format or cannot be read.
    """
    try:
        with open_user_file(home.seen) as file:
            data = file.read(MOST_FILE_BYTES + 1)
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


def missing_links(session: Session, heads: SeenHeads) -> str:
    """Return how the ledger contradicts the remembered head, as the end of a sentence; empty if it does not."""
    expected = {1: heads.first, heads.head.seq: heads.head.hash}
    if heads.checkpoint:
        expected[heads.checkpoint.seq] = heads.checkpoint.hash
    rows = session.execute(select(AuditLink.seq, AuditLink.row_hash).where(AuditLink.seq.in_([*expected])))
    stored = {row.seq: row.row_hash for row in rows}
    if stored == expected:
        return ""
    if stored.get(1) != heads.first:
        return "it begins with another link, so it is another ledger" if stored else "it has no links"
    released = heads.checkpoint is not None and stored.get(heads.checkpoint.seq) != heads.checkpoint.hash
    older = ", and it is older than the newest signed checkpoint" if released else ""
    if heads.head.seq not in stored:
        return f"link {heads.head.seq}, which this home has seen, is gone{older}"
    return f"link {heads.head.seq} is not the one this home has seen{older}"


def require_seen(session: Session, heads: SeenHeads | None) -> SeenHeads | None:
    """Check with one look-up that the ledger continues from the remembered head; return its state if it has grown.

    Load the remembered head before the session begins, because the session sees the ledger as of its beginning.

    Raises:
        LedgerRolledBack: the ledger does not continue from that head.
    """
    if heads is not None and (how := missing_links(session, heads)):
        raise _ledger_rolled_back(how, heads)
    now = read_head(session)
    return None if now == heads else now


def check_rollback(home: ProjectHome, database: Database) -> str:
    """Return how the ledger contradicts the remembered head, or why that is unknown; for readers.

    Raises:
        LedgerRolledBack: it has not even tables.
    """
    try:
        heads = load_head(home)
    except SeenFileUnusable as problem:
        return problem.message
    if heads is None:
        return ""
    try:
        with database.read() as session:
            how = missing_links(session, heads)
    except SchemaOutdated:
        raise _ledger_rolled_back("it has no links", heads) from None
    return f"The ledger differs from the one that this home has seen: {how}." if how else ""


def require_same_ledger(home: ProjectHome, database: Database) -> None:
    """Check the ledger before its schema is created or upgraded, so that no new ledger replaces a known one.

    Raises:
        LedgerRolledBack, SeenFileUnusable: see `require_seen` and `load_head`.
    """
    heads = load_head(home)
    if heads is None:
        return
    try:
        with database.read() as session:
            require_seen(session, heads)
    except SchemaOutdated:
        raise _ledger_rolled_back("it has no links", heads) from None


def require_none_seen(home: ProjectHome) -> None:
    """Check that this home has seen no ledger, where there is no file of one now.

    Raises:
        LedgerRolledBack, SeenFileUnusable.
    """
    if (heads := load_head(home)) is not None:
        raise _ledger_rolled_back("it has no links", heads)


def _encode_heads(heads: SeenHeads) -> bytes:
    return encode_canonical({
        "format": FORMAT,
        "first": heads.first,
        "seq": heads.head.seq,
        "hash": heads.head.hash,
        "checkpoint": {"seq": heads.checkpoint.seq, "hash": heads.checkpoint.hash} if heads.checkpoint else None,
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


def _ledger_rolled_back(how: str, heads: SeenHeads) -> Refused:
    return Refused(
        f"The ledger differs from the one that this home has seen: {how}. Nothing was done.",
        "An older copy lacks later spending. Restore the newest ledger (`almoner restore`); `almoner audit verify"
        " --against BUNDLE` shows which one is genuine, and docs/backup.md says what to do if it is lost.",
        {"seen_link": heads.head.seq, "seen_hash": heads.head.hash, "finding": how},
        code="LedgerRolledBack",
    )


class SeenFileUnusable(EnvironmentProblem):
    """The home's file of seen heads is unreadable."""

    def __init__(self, home: ProjectHome, reason: str) -> None:
        super().__init__(
            f"{home.seen}, the home's copy of the ledger's head, cannot be used: {reason}.",
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
