"""Dataset versions as folders of the project home: creation, removal, and cleaning up after a crash.

`corpora/<uid>/` is a complete version and never changes. `corpora/.incoming-*/` is one that is being written
or removed; its maker holds an flock on it, so that a sweep can distinguish a dead one from a live one. An
flock follows the folder through a rename and dies with its process.
"""

import fcntl
import os
import re
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome, describe_free_space

_UID = re.compile(r"[0-9a-f]{32}")


def is_uid(text: str) -> bool:
    """Return whether a text can be the uid of a version: 32 hexadecimal digits."""
    return _UID.fullmatch(text) is not None


def version_uids(home: ProjectHome) -> list[str]:
    """Return the uids of the complete versions in the home, sorted, whether or not the ledger knows them."""
    return sorted(entry.name for entry in home.require().corpora.iterdir() if is_uid(entry.name))


def version_folder(home: ProjectHome, uid: str) -> Path:
    """Return the folder of a complete version.

    Raises:
        VersionMissing: the home holds no version of that uid.
    """
    folder = home.require().corpora / uid
    if not is_uid(uid) or not folder.is_dir():
        raise VersionMissing(uid)
    return folder


@contextmanager
def incoming(home: ProjectHome) -> Iterator[Path]:
    """Create a locked folder for a new version; any rest of it is removed at the end of the block.

    Raises:
        StoreNotWritable: it cannot be made or filled.
    """
    with ExitStack() as stack, _place_named(home.corpora):
        with named_problems(), _locked(home.corpora):  # no sweep can see the folder before it is locked
            folder = _incoming_path(home)
            folder.mkdir(mode=0o700)
            stack.enter_context(_locked(folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _place_named(folder: Path) -> Iterator[None]:
    """Add the folder, and the room on its disk, to a StoreNotWritable of the block."""
    try:
        yield
    except StoreNotWritable as problem:
        raise StoreNotWritable(str(problem.facts["reason"]), folder) from None


def put_in_place(home: ProjectHome, folder: Path, uid: str) -> None:
    """Turn a complete incoming folder into the version `uid`, on disk when this returns.

    Raises:
        StoreNotWritable: it cannot be made durable; then it is not in place.
    """
    final = home.corpora / uid
    with named_problems():
        sync(folder)
        folder.rename(final)
        try:
            sync(home.corpora)
        except BaseException:
            shutil.rmtree(final, ignore_errors=True)
            raise


def remove_version(home: ProjectHome, uid: str) -> None:
    """Remove a version: at once for every reader, even if the removal itself is cut short.

    Raises:
        VersionMissing: the home holds no version of that uid.
    """
    with _locked(home.require().corpora):
        _remove(home, version_folder(home, uid))


def sweep_incoming(home: ProjectHome) -> int:
    """Remove remains of killed ingests, and nothing of a live one; return the number of removed folders."""
    with _locked(home.require().corpora):
        dead = [folder for folder in home.corpora.glob(".incoming-*") if not _is_live(folder)]
        for folder in dead:
            _remove(home, folder)
        return len(dead)


def sweep_unrecorded(home: ProjectHome, is_recorded: Callable[[str], bool]) -> int:
    """Remove complete versions whose ingest died before it could record them; how many went.

    `is_recorded` asks the ledger about a uid. It is asked only once the version's ingest has let go of it, so
    a version that is just being recorded is safe.
    """
    with _locked(home.require().corpora):
        settled = [folder for folder in home.corpora.iterdir() if is_uid(folder.name)]
        orphans = [folder for folder in settled if not _is_live(folder) and not is_recorded(folder.name)]
        for folder in orphans:
            _remove(home, folder)
        return len(orphans)


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def named_problems() -> Iterator[None]:
    """Turn errors of the operating system or SQLite while writing into StoreNotWritable."""
    try:
        yield
    except OSError as error:
        raise StoreNotWritable(error.strerror or "input/output error") from None
    except sqlite3.Error as error:  # its text may quote what was to be written; its name does not
        full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        reason = "the disk is full" if full else getattr(error, "sqlite_errorname", type(error).__name__)
        raise StoreNotWritable(reason) from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the exclusive flock of a folder, waiting for it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_live(folder: Path) -> bool:
    """Return whether an ingest still holds the folder (or has just renamed or removed it)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return not folder.exists()


def _remove(home: ProjectHome, folder: Path) -> None:
    """Remove a folder of `corpora`, under its lock: first out of sight, then for good."""
    doomed = _incoming_path(home)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _incoming_path(home: ProjectHome) -> Path:
    return home.corpora / f".incoming-{secrets.token_hex(8)}"


class VersionMissing(EnvironmentProblem):
    """A dataset version that the home does not hold."""

    def __init__(self, uid: str) -> None:
        super().__init__(
            f"The project home holds no dataset version {uid!r}.",
            "Restore the folder `corpora` from a backup, or ingest the dataset again.",
            {"version": uid},
        )


class StoreNotWritable(EnvironmentProblem):
    """The project home cannot take a dataset version; nothing of it is kept."""

    def __init__(self, reason: str, folder: Path | None = None) -> None:
        where = "" if folder is None else f" ({folder}, {describe_free_space(folder)})"
        super().__init__(
            f"The dataset version cannot be written into the project home{where}: {reason}.",
            "Make room on its disk (a version takes about the size of its source), then ingest again.",
            {"reason": reason},
        )
