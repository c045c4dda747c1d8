"""Private source as a whole, a file or a folder of files of one format: its files, state, digest and problems.

It lies on this machine or in an object store; readers ask the same of both.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import BinaryIO, Final, TypeAlias
from urllib.parse import unquote

from models_db.errors import EnvironmentProblem, UsageError
from tasks.common.extensions import READERS, extensions, unfit
from tasks.corpus.identity.keys import length_prefixed
from tasks.corpus.readers.object_source import StoredSource
from tasks.object_storage.errors import ObjectChanged

Source: TypeAlias = Path | StoredSource

TEXT: Final = ".txt"
FORMATS: Final = (TEXT, ".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet", ".arrow", ".feather")
"""The formats of files that almoner reads itself, by the ends of their names."""
GZIP: Final = ".gz"
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_TABLE_LOGS: Final = ("_delta_log", ".hoodie")
_ICEBERG_SNAPSHOTS: Final = (".metadata.json", ".metadata.json.gz")
LOG_FILES: Final = (*(f"{log}/*" for log in _TABLE_LOGS), *_ICEBERG_SNAPSHOTS)
"""Ends of paths, as patterns, of the files that a table with a log is known by."""


@dataclass(frozen=True)
class Shard:
    """One file of a folder of tables.

    Attributes:
        file: the file.
        folder: the folder.
        number: its place among the folder's data files, from 1.
        constants: the fields that its path fixes for all of its records, `stars=5/part-0.parquet`; None is no value.
    """

    file: Source
    folder: Source
    number: int
    constants: Mapping[str, str | None]


AnySource: TypeAlias = Source | Shard


@dataclass(frozen=True)
class SourceState:
    """Size of a source in bytes, and a stamp that differs once any of its files was changed, replaced or renamed."""

    size: int
    stamp: bytes


def source_state(path: Source) -> SourceState:
    """Return the present state of the source, from its files' metadata (in a store: from the objects' tags).

    Raises:
        SourceUnreadable: it cannot be looked at.
        FolderMixed, TableLogUnread: as `folders.data_files`.
    """
    size, stamp = 0, hashlib.sha256()
    with named_problems(path):
        for inside, file in _files_of(path):
            facts = file.state if isinstance(file, StoredSource) else _file_state(file)
            size += facts[1]
            stamp.update(length_prefixed(os.fsencode(inside)) + repr(facts).encode())
    return SourceState(size, stamp.digest())


def source_digest(path: Source) -> bytes:
    """Return the SHA-256 of the source: of a file's bytes; in a folder, of each data file's path and digest.

    Private: it goes nowhere but into `fingerprints.source_mark`.

    Raises:
        SourceUnreadable: it cannot be read.
        FolderMixed, TableLogUnread: as `folders.data_files`.
    """
    with named_problems(path):
        if not path.is_dir():
            return _file_digest(path)
        whole = hashlib.sha256()
        for inside, file in data_files(path):
            whole.update(length_prefixed(os.fsencode(inside)) + _file_digest(file))
        return whole.digest()


def format_of(path: AnySource | PurePath) -> str | None:
    """Return the format of a file by its name; None for files that are no data."""
    name = (path.file if isinstance(path, Shard) else path).name.lower()
    return next((each for each in formats() if name.endswith(each)), None)


@cache
def formats() -> tuple[str, ...]:
    """Return the formats of files, by the ends of their names; those of extensions come last, the longest first.

    Raises:
        ExtensionUnfit: an extension reads what almoner reads itself, or cannot be used.
    """
    names = [name for extension in extensions() for group, name in extension.entries if group == READERS]
    for name in names:
        if name.endswith(FORMATS):
            raise unfit(READERS, name, "almoner reads such files itself")
    return FORMATS + tuple(sorted(names, key=len, reverse=True))


def data_files(folder: Source) -> Iterator[tuple[PurePath, Source]]:
    """Yield every data file below `folder` with its path inside it, in byte order of the whole path.

    All of them have one format. Of tables those are passed over whose file or folder begins with a dot or an
    underscore, such as `_SUCCESS`, and is no field such as `_year=2020`; links to folders are not followed. A link to
    nothing is yielded as a file, so that whoever opens it learns that the source is not whole.

    Raises:
        FolderMixed: two files have different formats.
        TableLogUnread: a log says which of its files are current.
    """
    found: str | None = None
    for inside, file in _files_below(folder):
        if inside.name.endswith(_ICEBERG_SNAPSHOTS) or not set(_TABLE_LOGS).isdisjoint(inside.parts):
            raise TableLogUnread(folder)
        kind = format_of(inside)
        if kind is None or (kind != TEXT and any(map(_is_hidden, inside.parts))):
            continue
        if (kind := kind.removesuffix(GZIP)) != (found := found or kind):
            raise FolderMixed(folder, found, kind)
        yield inside, file


def _is_hidden(part: str) -> bool:
    """Return whether a part of a path is a marker or hidden; `_year=2020` is a field."""
    return part.startswith((".", "_")) and "=" not in part


def shards_of(folder: Source) -> Iterator[Shard]:
    """Yield the files of a folder of tables, with the fields that their paths fix.

    Raises:
        FolderMixed, TableLogUnread: as `data_files`.
        PathFieldUnfit: the path of a file fixes a field twice, or a value is not UTF-8 where it is decoded.
    """
    for number, (inside, file) in enumerate(data_files(folder), 1):
        yield Shard(file, folder, number, MappingProxyType(_constants(folder, number, inside)))


def _constants(folder: Source, number: int, inside: PurePath) -> dict[str, str | None]:
    """Return the fields that a path fixes. To guess one would make two persons one unit, or one person another."""
    constants: dict[str, str | None] = {}
    for name, value in (part.split("=", 1) for part in inside.parent.parts if "=" in part):
        if name in constants:
            raise PathFieldUnfit(folder, number, "fixes a field twice")
        try:
            constants[name] = None if value == _NO_VALUE else unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise PathFieldUnfit(folder, number, "has a value that is not UTF-8 behind its percent signs") from None
    return constants


def _files_below(folder: Source) -> Iterator[tuple[PurePath, Source]]:
    if isinstance(folder, StoredSource):
        yield from ((file.relative_to(folder), file) for file in folder.files())
    else:
        yield from ((path.relative_to(folder), path) for path in _local_files(folder))


def _local_files(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=_path_order)
    for entry in listed:
        if entry.is_dir(follow_symlinks=False):
            yield from _local_files(Path(entry.path))
        elif entry.is_file() or not Path(entry.path).exists():
            yield Path(entry.path)


@contextmanager
def named_problems(source: AnySource) -> Iterator[None]:
    """Turn an OSError, whose text quotes paths that may name people, into SourceUnreadable."""
    try:
        yield
    except ObjectChanged:  # its address may name a person, too
        raise SourceChanged(source) from None
    except OSError as error:
        raise SourceUnreadable(source, error.strerror or "it is damaged") from None


def name_of(source: AnySource) -> str:
    """Return the last part of the source's path, as messages show it; a file of a folder has its number only.

    Names of files and folders below the source may be those of persons.
    """
    if isinstance(source, Shard):
        return f"{name_of(source.folder)}, file {source.number}"
    return source.name if isinstance(source, StoredSource) else source.absolute().name


def size_of(source: AnySource) -> int:
    """Return the bytes of a source that is one file."""
    file = source.file if isinstance(source, Shard) else source
    return file.size if isinstance(file, StoredSource) else file.stat().st_size


def open_bytes(source: AnySource) -> BinaryIO:
    """Open a source that is one file, for reading bytes."""
    return (source.file if isinstance(source, Shard) else source).open("rb")


def _files_of(path: Source) -> Iterator[tuple[PurePath, Source]]:
    """Yield the files of a source as they are now, with their paths inside it."""
    if path.is_dir():
        yield from data_files(path)
    else:
        yield PurePath(), path.current() if isinstance(path, StoredSource) else path


def _file_state(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


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
    """A source that the operating system or a library cannot read."""

    def __init__(self, source: AnySource, reason: str) -> None:
        super().__init__(
            f"{name_of(source)!r} cannot be read: {reason}.",
            "Check the file and its permissions.",
            {"file": name_of(source)},
        )


class SourceEmpty(UsageError):
    """A source without any document."""

    def __init__(self, source: AnySource) -> None:
        super().__init__(
            f"{name_of(source)!r} holds no document.",
            "Check that it is the right one.",
            {"file": name_of(source)},
        )


class SourceChanged(UsageError):
    """A source that was written to while it was being read."""

    def __init__(self, source: AnySource) -> None:
        super().__init__(
            f"{name_of(source)!r} changed while it was being read; nothing of it was kept.",
            "Wait until nothing writes to it, then ingest again.",
            {"file": name_of(source)},
        )


class PathFieldUnfit(UsageError):
    """A file of a folder whose path does not say plainly what its fields are."""

    def __init__(self, folder: Source, number: int, problem: str) -> None:
        super().__init__(
            f"The path of file {number} of {name_of(folder)!r} {problem}.",
            "Rename its folders, then ingest again; nothing of this attempt was kept. Files are counted in byte order"
            " of their paths.",
            {"file": name_of(folder), "number": number},
        )


class FolderMixed(UsageError):
    """A folder with data files of two formats."""

    def __init__(self, source: Source, first: str, second: str) -> None:
        super().__init__(
            f"The folder {name_of(source)!r} holds {first} and {second} files.",
            "Move the files of one format elsewhere: it is not known which of them are the corpus.",
            {"file": name_of(source), "formats": sorted((first, second))},
        )


class TableLogUnread(UsageError):
    """A table of Delta Lake, Hudi or Iceberg: files of deleted records may still lie in its folder."""

    def __init__(self, source: Source) -> None:
        super().__init__(
            f"The folder {name_of(source)!r} is a table with a log (Delta Lake, Hudi, Iceberg), which almoner does not"
            " read: its files may hold deleted records.",
            "Export its present state as Parquet into a folder of its own, then ingest that.",
            {"file": name_of(source)},
        )
