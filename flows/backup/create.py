"""Creation of a backup: the ledger first, then the files of the home that it knows (docs/backup.md).

Whatever the ledger's copy records lies in the home at that moment and is never changed, so nothing has to stand still.
Left out is what a later run could take for more than it is (unfinished runs), and what can be worked out again.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from flows.backup.archive import LEDGER_FILE, LedgerHead, Manifest, new_archive
from flows.workspace import rollback_guard
from flows.workspace.home_keys import require_own_keys
from flows.workspace.leftovers import remove_leftovers
from flows.workspace.workspace import Workspace
from models_db.database.base import utc_now
from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome, describe_free_space, draft_name, home_missing, sqlite_url
from models_db.services import artifacts
from models_db.sessions.database import Database, ledger_unreadable, shows_damage
from models_db.tables import DatasetVersion

EXCLUDED_NAMES = ("almoner.db", "almoner.db-wal", "almoner.db-shm", "seen.json", "scratch", "unfinished", "derived")
"""Left out: the ledger is copied separately, the manifest holds the remembered heads, the rest can be recomputed."""


@dataclass(frozen=True)
class Backup:
    """A finished backup.

    Attributes:
        seq: the newest link of the ledger in it or, on PostgreSQL, the newest link that the home had seen.
    """

    file: Path
    at: str
    ledger: str
    seq: int
    files: int


@dataclass(frozen=True)
class _LedgerFacts:
    """Facts of the home that its ledger states at one moment."""

    seen: LedgerHead
    schema: str
    versions: frozenset[str]
    folders: frozenset[str]


def create_backup(workspace: Workspace, to: Path) -> Backup:
    """Write the home, and the ledger if it is a file, into a new archive.

    Raises:
        FileUnwritable: the archive exists, or cannot be written.
        HomeChanged: a file vanished during the copy, or is a link.
        KeyTooOpen, KeyDiffers: a key of this home is not the one of the beginning, and a restored home would not be it.
    """
    at = utc_now()
    with workspace.database.read() as session:
        require_own_keys(workspace.home, session)
    remove_leftovers(workspace.home)
    with (
        TemporaryDirectory(prefix="backup-", dir=workspace.home.scratch) as scratch,
        new_archive(workspace.home, to) as out,
    ):
        copied = _copy_ledger(workspace.database, Path(scratch) / LEDGER_FILE)
        with (copied or workspace.database).read() as session:
            facts = _ledger_facts(session, workspace.home)
        if copied is not None:
            copied.dispose()
            out.add(LEDGER_FILE, Path(scratch) / LEDGER_FILE)
        for path in sorted(_files_to_save(workspace.home.root, facts)):
            out.add(path.relative_to(workspace.home.root).as_posix(), path)
        ledger: Literal["sqlite", "postgresql"] = "postgresql" if copied is None else "sqlite"
        out.close(
            Manifest(
                at=at,
                almoner=version("almoner"),
                ledger=ledger,
                database=facts.schema,
                seen=facts.seen,
                files=out.files,
            )
        )
        return Backup(to, at, ledger, facts.seen.seq, len(out.files))


def _copy_ledger(database: Database, to: Path) -> Database | None:
    """Copy a ledger that is a file, while others may write to it; return None for a ledger on a server."""
    if not database.is_sqlite:
        return None
    path = Path(database.engine.url.database or "")
    try:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # so that the file is all of it
    except (sqlite3.Error, UnicodeDecodeError) as problem:
        if shows_damage(problem):
            raise ledger_unreadable(str(path)) from problem
        needed = f"the copy takes {path.stat().st_size / 2**20:.1f} MiB, and its disk has {describe_free_space(to)}"
        full = getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        raise EnvironmentProblem(
            f"The ledger cannot be copied to {to}: {needed if full else type(problem).__name__}.",
            "Make room on the disk of the home (`almoner run sweep` empties its scratch folder), then back up again.",
            {"path": str(to)},
            code="LedgerNotCopied",
        ) from problem
    os.chmod(to, 0o600)
    return Database(sqlite_url(to))


def _ledger_facts(session: Session, home: ProjectHome) -> _LedgerFacts:
    head = rollback_guard.read_head(session)
    if head is None:  # nobody is enrolled, so there is nothing to keep
        raise home_missing(home.root)
    return _LedgerFacts(
        LedgerHead(first=head.first, seq=head.head.seq, hash=head.head.hash),
        str(session.scalar(text("SELECT version_num FROM alembic_version"))),
        frozenset(session.scalars(select(DatasetVersion.uid))),
        frozenset(draft_name(each.request_id, each.attempt) for each in artifacts.list_all(session)),
    )


def _files_to_save(root: Path, facts: _LedgerFacts) -> Iterator[Path]:
    """Yield the files of a home for a backup, including links, which the archive then refuses."""
    for top in root.iterdir():
        if top.name in EXCLUDED_NAMES or top.name.startswith("."):
            continue
        kept = {"corpora": facts.versions, "quarantine": facts.folders}.get(top.name)
        if kept is None:
            yield from _files_below(top)
        else:
            for folder in top.iterdir():
                if folder.name in kept:
                    yield from _files_below(folder)


def _files_below(path: Path) -> Iterator[Path]:
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for each in path.iterdir():
        yield from _files_below(each)
