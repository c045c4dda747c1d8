"""Backup of a home (docs/backup.md): its creation, and the file that it is.

The ledger comes first, then the files of the home that it knows. Whatever the ledger's copy records lies in the home at
that moment and is never changed, so nothing has to stand still. Left out is what a later run could take for more than
it is (unfinished runs), and what can be worked out again.

The file is a tar archive with its members in order, and last a manifest with the digest of each. The digests lie beside
their data, in a file that holds the home's keys: they reveal nothing more to an owner of the file, and they are written
nowhere else (docs/decisions/0004).
"""

import hashlib
import os
import sqlite3
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Final, Literal

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from flows.workspace import rollback_guard
from flows.workspace.home_keys import require_own_keys
from flows.workspace.leftovers import noted, partial_path, remove_leftovers
from flows.workspace.workspace import Workspace
from flows.workspace.yaml_files import file_unreadable, file_unwritable
from models_db.database.base import utc_now
from models_db.errors import EnvironmentProblem, Refused
from models_db.home import ProjectHome, describe_free_space, draft_name, home_missing, home_unwritable, sqlite_url
from models_db.services import artifacts
from models_db.sessions.database import Database, ledger_unreadable, shows_damage
from models_db.tables import DatasetVersion
from tasks.common.files import FileUnfit, decode_json, encode_json, open_regular_file, open_user_file, sync_folder
from tasks.common.published_values import Digest, Name, Strict, read_as

ARCHIVE_FORMAT: Final = "almoner-backup/1"
MANIFEST_FILE: Final = "manifest.json"
LEDGER_FILE: Final = "almoner.db"
_CHUNK = 1 << 20
_LARGEST_MANIFEST = 256 << 20


class ArchiveMember(Strict):
    """One file of the home."""

    sha256: Digest
    bytes: int


class LedgerHead(Strict):
    """The ledger when the backup was taken: its first link, and its newest."""

    first: Digest
    seq: int
    hash: Digest


class Manifest(Strict):
    """Content of a backup: its files and their digests.

    Attributes:
        ledger: the place of the ledger; a ledger on PostgreSQL is not in the archive.
        database: the revision of its schema.
        almoner: the version that wrote the archive.
    """

    format: Literal["almoner-backup/1"] = ARCHIVE_FORMAT
    at: str
    almoner: Name
    ledger: Literal["sqlite", "postgresql"]
    database: Name
    seen: LedgerHead
    files: dict[str, ArchiveMember]


class ArchiveWriter:
    """Writes files into an archive and records their digests."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self.files: dict[str, ArchiveMember] = {}

    def add(self, name: str, path: Path) -> None:
        """Put a plain file into the archive.

        Raises:
            HomeChanged: the file is gone, is no plain file, or became shorter meanwhile.
        """
        try:
            with open_regular_file(path) as file:
                info = _member_info(name, os.fstat(file.fileno()).st_size)
                reading = _HashingReader(file)
                self._archive.addfile(info, reading)
        except FileUnfit as problem:
            raise _home_changed(name, problem.reason) from None
        except OSError as problem:
            if "unexpected end" not in str(problem):
                raise
            raise _home_changed(name, "became shorter while it was read") from None
        self.files[name] = ArchiveMember(sha256=reading.hash.hexdigest(), bytes=info.size)

    def close(self, manifest: Manifest) -> None:
        """Write the manifest as the last member."""
        data = encode_json(manifest.model_dump())
        self._archive.addfile(_member_info(MANIFEST_FILE, len(data)), _BytesReader(data))


class _HashingReader:
    """Reader that hashes the bytes it returns."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = self._file.read(size)
        self.hash.update(data)
        return data


class _BytesReader:
    """Bytes as a stream to be read once."""

    def __init__(self, data: bytes) -> None:
        self._left = data

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        size = len(self._left) if size < 0 else size
        chunk, self._left = self._left[:size], self._left[size:]
        return chunk


def _member_info(name: str, size: int) -> tarfile.TarInfo:
    """Return a member without owner and time, so that the archive reveals nothing about the machine."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member


@contextmanager
def new_archive(home: ProjectHome, to: Path) -> Iterator[ArchiveWriter]:
    """Open a new archive of a home, 0600, which gets its name when it is complete and on disk.

    Raises:
        FileUnwritable: the file exists, or cannot be written.
    """
    if not to.name:
        raise file_unwritable(to, "it is a folder")
    beside = partial_path(to)
    try:
        if os.path.lexists(to):
            raise FileExistsError(17, "File exists")
        with noted(home, to), ExitStack() as afterwards:
            afterwards.callback(beside.unlink, missing_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o600)
                with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
                    yield ArchiveWriter(archive)
                file.flush()
                os.fsync(descriptor)
            os.link(beside, to)  # unlike a rename it replaces nothing
            sync_folder(to.parent)
    except OSError as problem:
        raise file_unwritable(to, problem.strerror or type(problem).__name__) from None


def unpack_archive(archive: Path, into: Path, only: Sequence[str] = ()) -> Manifest:
    """Write the members of an archive below a new, empty folder, and check every one against the manifest.

    Args:
        only: the names to write; empty means all. All members are checked.

    Raises:
        FileUnreadable: the archive cannot be read.
        BackupDamaged: the file is not an archive of almoner, or was altered.
        HomeUnwritable: the disk is full, or refuses the write.
    """
    members: dict[str, ArchiveMember] = {}
    manifest: Manifest | None = None
    try:
        with open_user_file(archive) as file, tarfile.open(fileobj=file, mode="r:") as opened:
            for info in opened:
                if manifest is not None or info.name in members:
                    raise backup_damaged("a member is repeated, or follows the manifest")
                if info.name == MANIFEST_FILE:
                    manifest = _parse_manifest(_read_member(opened, info))
                else:
                    members[info.name] = _unpack_member(opened, info, into if not only or info.name in only else None)
    except tarfile.TarError:
        raise backup_damaged("it is not a tar archive, or it is truncated") from None
    except OSError as problem:
        raise file_unreadable(archive, problem.strerror or type(problem).__name__) from None
    if manifest is None or members != manifest.files:
        raise backup_damaged(
            "the manifest is missing" if manifest is None else _manifest_difference(members, manifest.files)
        )
    return manifest


def _read_member(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(info) if info.isreg() and info.size <= _LARGEST_MANIFEST else None
    if file is None:
        raise backup_damaged("the manifest is not a file that almoner wrote")
    return file.read()


def _parse_manifest(data: bytes) -> Manifest:
    try:
        return read_as(Manifest, decode_json(data, MANIFEST_FILE), MANIFEST_FILE)
    except FileUnfit as problem:
        raise backup_damaged(f"the manifest {problem.reason}") from None


def _unpack_member(archive: tarfile.TarFile, info: tarfile.TarInfo, into: Path | None) -> ArchiveMember:
    """Read one member, and write it below `into` unless that is None."""
    path = PurePosixPath(info.name)
    file = archive.extractfile(info) if info.isreg() else None
    if file is None or path.is_absolute() or ".." in path.parts or str(path) != info.name:
        raise backup_damaged("a member is not a regular file of a home")
    reading = _HashingReader(file)
    if into is None:
        while reading.read(_CHUNK):
            pass
    else:
        _write_member(into, path, reading)
    return ArchiveMember(sha256=reading.hash.hexdigest(), bytes=info.size)


def _write_member(into: Path, name: PurePosixPath, reading: _HashingReader) -> None:
    """Copy the reader's content to a new file below `into`.

    Raises:
        HomeUnwritable: the disk is full, or refuses the write.
    """
    try:
        with _new_member_file(into, name) as out:
            while chunk := reading.read(_CHUNK):
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
    except OSError as problem:
        raise home_unwritable(into, problem.strerror or type(problem).__name__) from None


def _new_member_file(into: Path, name: PurePosixPath) -> IO[bytes]:
    """Open a new file, 0600, in folders that are 0700."""
    folder = into
    for part in name.parts[:-1]:
        folder /= part
        folder.mkdir(mode=0o700, exist_ok=True)
    return open(os.open(into / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")


def _manifest_difference(read: dict[str, ArchiveMember], stated: dict[str, ArchiveMember]) -> str:
    if missing := sorted(stated.keys() - read.keys()):
        return f"{missing[0]} is missing"
    if more := sorted(read.keys() - stated.keys()):
        return f"{more[0]} is not in the manifest"
    return f"{next(name for name in sorted(stated) if stated[name] != read[name])} is not as it was written"


def _home_changed(name: str, reason: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{name} in the project home {reason}; no backup was made.",
        "If a process changed the home meanwhile, take the backup again. A home has no links: put files in place"
        " of them.",
        {"file": name, "reason": reason},
        code="HomeChanged",
    )


def backup_damaged(reason: str) -> Refused:
    """Return the refusal of an archive that differs from the written one."""
    return Refused(
        f"The backup is damaged: {reason}. Nothing was restored.",
        "Use another copy of it, or an earlier backup.",
        {"reason": reason},
        code="BackupDamaged",
    )


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
