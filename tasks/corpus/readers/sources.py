"""Private source as a whole, a file or a folder of text files: its state, digest and problems.

It lies on this machine or in an object store; readers ask the same of both.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TypeAlias

from models_db.errors import EnvironmentProblem, UsageError
from tasks.corpus.identity.keys import length_prefixed
from tasks.corpus.readers.object_source import StoredSource
from tasks.object_storage.errors import ObjectChanged

Source: TypeAlias = Path | StoredSource


@dataclass(frozen=True)
class SourceState:
    """Size of a source in bytes, and a stamp that differs once any of its files was changed or replaced."""

    size: int
    stamp: bytes


def source_state(path: Source) -> SourceState:
    """Return the present state of the source, from its files' metadata (in a store: from the objects' tags).

    Raises:
        SourceUnreadable: it cannot be looked at.
    """
    if isinstance(path, StoredSource):
        return SourceState(*path.state())
    size, stamp = 0, hashlib.sha256()
    with named_problems(path):
        for file in _files_of(path):
            status = file.stat()
            size += status.st_size
            stamp.update(repr((status.st_ino, status.st_size, status.st_mtime_ns)).encode("ascii"))
    return SourceState(size, stamp.digest())


def source_digest(path: Source) -> bytes:
    """Return the SHA-256 of the source: of a file's bytes; in a folder, of each text file's path and digest.

    Private: it goes nowhere but into `fingerprints.source_mark`.

    Raises:
        SourceUnreadable: it cannot be read.
    """
    with named_problems(path):
        if not path.is_dir():
            return _file_digest(path)
        whole = hashlib.sha256()
        for inside, file in texts_of(path):
            whole.update(length_prefixed(os.fsencode(inside)) + _file_digest(file))
        return whole.digest()


def texts_of(folder: Source) -> Iterator[tuple[PurePath, Source]]:
    """Yield every text file below `folder`, with its path inside it."""
    if isinstance(folder, StoredSource):
        yield from ((file.relative_to(folder), file) for file in folder.texts())
    else:
        yield from ((path.relative_to(folder), path) for path in text_files(folder))


def text_files(folder: Path) -> Iterator[Path]:
    """Yield every *.txt below `folder`, in byte order of the whole path; links to folders are not followed."""
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=_path_order)
    for entry in listed:
        if entry.is_dir(follow_symlinks=False):
            yield from text_files(Path(entry.path))
        elif entry.name.lower().endswith(".txt") and entry.is_file():
            yield Path(entry.path)


@contextmanager
def named_problems(source: Source) -> Iterator[None]:
    """Turn an OSError, whose text quotes paths that may name people, into SourceUnreadable."""
    try:
        yield
    except ObjectChanged:  # its address may name a person, too
        raise SourceChanged(source) from None
    except OSError as error:
        raise SourceUnreadable(source, error.strerror or "it is damaged") from None


def name_of(source: Source) -> str:
    """Return the last part of the source's path, as messages show it."""
    return source.name if isinstance(source, StoredSource) else source.absolute().name


def size_of(source: Source) -> int:
    """Return the bytes of a source that is one file."""
    return source.size if isinstance(source, StoredSource) else source.stat().st_size


def _files_of(path: Path) -> Iterator[Path]:
    return text_files(path) if path.is_dir() else iter((path,))


def _file_digest(path: Source) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _path_order(entry: "os.DirEntry[str]") -> bytes:
    return os.fsencode(entry.name) + (b"/" if entry.is_dir(follow_symlinks=False) else b"")


class SourceMissing(UsageError):
    """No file or folder at the given path."""

    def __init__(self, source: Source) -> None:
        super().__init__(
            f"There is no file or folder {name_of(source)!r} at the path given.",
            "Check the path.",
            {"file": name_of(source)},
        )


class SourceUnreadable(EnvironmentProblem):
    """A source that the operating system or the Parquet library cannot read."""

    def __init__(self, source: Source, reason: str) -> None:
        super().__init__(
            f"{name_of(source)!r} cannot be read: {reason}.",
            "Check the file and its permissions.",
            {"file": name_of(source)},
        )


class SourceEmpty(UsageError):
    """A source without any document."""

    def __init__(self, source: Source) -> None:
        super().__init__(
            f"{name_of(source)!r} holds no document.",
            "Check that it is the right one.",
            {"file": name_of(source)},
        )


class SourceChanged(UsageError):
    """A source that was written to while it was being read."""

    def __init__(self, source: Source) -> None:
        super().__init__(
            f"{name_of(source)!r} changed while it was being read; nothing of it was kept.",
            "Wait until nothing writes to it, then ingest again.",
            {"file": name_of(source)},
        )
