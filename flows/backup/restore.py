"""Restoration of a backup into an empty home: checked before anything gets the home's name, and recorded.

The absence of spending after a backup cannot be proved, only refuted: by a bundle, a signed head, or the head that the
old home has seen. So a restoration needs a stated reason, which is a link of the chain.
"""

import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.audit.verify import verify_record
from flows.backup.backup import LEDGER_FILE, Manifest, backup_damaged, unpack_archive
from flows.workspace import rollback_guard
from flows.workspace.file_system import require_local_ledger
from flows.workspace.home_keys import require_own_keys
from flows.workspace.workspace import Workspace, open_read_only, open_workspace
from models_db.database.base import utc_now
from models_db.errors import EnvironmentProblem, Refused, UsageError
from models_db.home import ProjectHome, home_unwritable
from models_db.services.audit import chain
from models_db.services.audit.chain import ChainPosition
from models_db.services.queries import health
from models_db.sessions.database import Database, SchemaOutdated
from models_db.tables import Restoration
from models_db.writes.insert import insert_row
from models_db.writes.links import record_link
from tasks.common.files import sync_folder
from tasks.object_storage.address import Place


@dataclass(frozen=True)
class RestoredHome:
    """A restored home; `head` is the ledger's newest link now."""

    home: Path
    taken_at: str
    seq: int
    head: int


def restore_home(
    archive: Path, home: ProjectHome, reason: str, against: Sequence[Place] = (), old_home: Path | None = None
) -> RestoredHome:
    """Restore a backup into an empty home, if it is whole and no anchor shows that it is outdated.

    Args:
        against: bundles and files of `almoner audit checkpoint`; each must lie on the ledger's chain. Stores are
            reached as the backup's `stores.yaml` says.
        old_home: the lost home: the links that it has seen must be in the ledger.

    Raises:
        HomeNotEmpty: the home is not empty.
        NetworkFileSystem: the ledger would be a SQLite file on one.
        LedgerLocationMismatch: ALMONER_DATABASE_URL and the backup name different places of the ledger.
        BackupDamaged, FileUnreadable: the archive is not whole.
        BackupOfAnotherVersion: its ledger needs another version of almoner.
        BackupOutdated: the ledger went on after the backup or, on PostgreSQL, is older than the backup.
        KeyDiffers: a key in the backup is not the one of the beginning.
    """
    _require_free(home)
    with _StagedHome(home) as staged:
        manifest = unpack_archive(archive, staged.root)
        _require_ledger_place(manifest)
        staged.create()
        heads = rollback_guard.SeenHeads(manifest.seen.first, ChainPosition(manifest.seen.seq, manifest.seen.hash))
        _require_sound(staged, manifest)
        _require_newest(staged, heads, against, old_home)
        rollback_guard.save_head(staged, heads, durable=True)
        workspace = open_workspace(staged)
        with workspace.database.read() as session:
            require_own_keys(staged, session)
        head = _record_restoration(workspace, manifest, reason)
        workspace.database.dispose()  # so that the ledger's file is whole when it is moved
        _move_staged(staged, home)
    return RestoredHome(home.root, manifest.at, manifest.seen.seq, head)


def restore_ledger(archive: Path, home: ProjectHome) -> RestoredHome:
    """Restore only the ledger of a backup into an empty home, for reading: without keys nothing can be changed.

    Raises:
        HomeNotEmpty, NetworkFileSystem, LedgerLocationMismatch, BackupDamaged, FileUnreadable: see `restore_home`.
    """
    _require_free(home)
    with _StagedHome(home) as staged:
        manifest = unpack_archive(archive, staged.root, only=[LEDGER_FILE])
        _require_ledger_place(manifest)
        if manifest.ledger != "sqlite":
            raise _ledger_location_mismatch("postgresql")
        _move_staged(staged, home)
    return RestoredHome(home.root, manifest.at, manifest.seen.seq, manifest.seen.seq)


class _StagedHome:
    """A temporary home beside the final one; it is removed at the end unless it was moved there."""

    def __init__(self, home: ProjectHome) -> None:
        self._home = ProjectHome(home.root.with_name(f".{home.root.name}.{secrets.token_hex(8)}"))

    def __enter__(self) -> ProjectHome:
        try:
            self._home.root.mkdir(mode=0o700, parents=True)
        except OSError as problem:
            raise home_unwritable(self._home.root, problem.strerror or type(problem).__name__) from None
        return self._home

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._home.root, ignore_errors=True)


def _move_staged(staged: ProjectHome, home: ProjectHome) -> None:
    try:
        if home.root.exists():
            home.root.rmdir()  # empty, or this fails
        os.rename(staged.root, home.root)
    except OSError as problem:
        raise home_unwritable(home.root, problem.strerror or type(problem).__name__) from None
    sync_folder(home.root.parent)


def _require_free(home: ProjectHome) -> None:
    require_local_ledger(home)
    if home.root.is_symlink() or (home.root.exists() and (not home.root.is_dir() or any(home.root.iterdir()))):
        raise UsageError(
            f"{home.root} is not empty; a backup is restored only into an empty home.",
            "Move it aside (do not remove it) and name it with --old-home: the links that it has seen are compared.",
            {"home": str(home.root)},
            code="HomeNotEmpty",
        )


def _require_ledger_place(manifest: Manifest) -> None:
    """Check that the ledger is either only in the backup, or on a server and not in the backup."""
    url = os.environ.get("ALMONER_DATABASE_URL", "")
    if (manifest.ledger == "sqlite") == bool(url) or url.startswith("sqlite"):
        raise _ledger_location_mismatch(manifest.ledger)


def _require_sound(staged: ProjectHome, manifest: Manifest) -> None:
    """Check that the ledger passes `almoner doctor`, and that the manifest names it."""
    if manifest.ledger != "sqlite":
        return
    database = Database(staged.database_url)
    try:
        with database.read() as session:
            wrong = [each.check for each in health.check_health(session) if not each.ok]
            head = chain.read_chain_head(session)
    except SchemaOutdated:
        raise EnvironmentProblem(
            f"The ledger in this backup has schema {manifest.database}, made by almoner {manifest.almoner}.",
            "Restore with that version of almoner; then install this one, and `almoner init` upgrades the ledger.",
            {"schema": manifest.database, "almoner": manifest.almoner},
            code="BackupOfAnotherVersion",
        ) from None
    finally:
        database.dispose()
    if wrong:
        raise backup_damaged(f"its ledger fails the check of {', '.join(wrong)}")
    if head != ChainPosition(manifest.seen.seq, manifest.seen.hash):
        raise backup_damaged("its ledger is not the one that the manifest names")


def _require_newest(
    staged: ProjectHome, heads: rollback_guard.SeenHeads, against: Sequence[Place], old_home: Path | None
) -> None:
    """Check that no anchor names a link that the ledger lacks."""
    remembered = rollback_guard.load_head(ProjectHome(old_home)) if old_home is not None else None
    record = open_read_only(staged)
    with record.database.read() as session:
        for what, known_heads in (("this backup", heads), (f"the home {old_home}", remembered)):
            if known_heads is not None and (how := rollback_guard.missing_links(session, known_heads)):
                raise _backup_outdated(what, how)
    verification = verify_record(record, against)
    for anchor, placed in verification.anchors:
        if not anchor.is_genuine:
            raise _backup_outdated(str(anchor.path), "its signature does not fit, so it proves nothing")
        if placed.link is None:
            raise _backup_outdated(str(anchor.path), f"{placed.verdict}: {placed.detail}")


def _record_restoration(workspace: Workspace, manifest: Manifest, reason: str) -> int:
    """Record the restoration: readers of the audit log then know where spending may be missing."""
    restoration = Restoration(taken_at=manifest.at, link=manifest.seen.seq, reason=reason, at=utc_now(),
                       actor_id=workspace.actor.id)  # fmt: skip
    with workspace.database.write() as session:
        insert_row(session, restoration)
        record_link(session)
        return chain.read_chain_head(session).seq


def _ledger_location_mismatch(ledger: str) -> UsageError:
    where = "in the backup" if ledger == "sqlite" else "on PostgreSQL and not in the backup"
    advice = "Unset ALMONER_DATABASE_URL" if ledger == "sqlite" else "Restore the ledger, set ALMONER_DATABASE_URL"
    return UsageError(
        f"The ledger of this backup lies {where}. Nothing was restored.",
        f"{advice}, and run the command again (docs/backup.md).",
        {"ledger": ledger},
        code="LedgerLocationMismatch",
    )


def _backup_outdated(what: str, how: str) -> Refused:
    return Refused(
        f"The backup holds an older ledger: {what} shows a later state ({how}). Nothing was restored.",
        "An older copy lacks later spending. Use the newest backup, or the newest dump of the ledger;"
        " docs/backup.md says what to do if there is none.",
        {"witness": what, "finding": how},
        code="BackupOutdated",
    )
