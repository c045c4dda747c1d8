"""Private source as a whole, a file or a folder of files of one format: its files, state, digest and problems.

It lies on this machine or in an object store; readers ask the same of both.
"""

import gzip
import hashlib
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BufferedReader
from pathlib import Path, PurePath, PurePosixPath
from types import MappingProxyType
from typing import BinaryIO, Final, TypeAlias
from urllib.parse import unquote

from models_db.errors import EnvironmentProblem, UsageError
from tasks.common.extensions import READERS, extensions, unfit
from tasks.common.files import open_user_file
from tasks.corpus.keys import length_prefixed
from tasks.corpus.readers.source_folders import (
    COMMITS,
    SAVED_SPLITS,
    SAVED_STATE,
    CommittedWrites,
    NotPlain,
    StoredSource,
    commits_beside,
    is_saved_cache,
    saved_names,
    table_around,
    table_kind,
    table_of_listing,
)
from tasks.object_storage.errors import ObjectChanged

Source: TypeAlias = Path | StoredSource

TEXT: Final = ".txt"
FORMATS: Final = (
    TEXT, ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".csv", ".csv.gz", ".parquet", ".arrow", ".feather",
)  # fmt: skip
"""The formats of files that almoner reads itself, by the ends of their names."""
GZIP: Final = ".gz"
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_DATA: Final = (
    ".json", ".json.gz", ".jsons", ".geojson", ".bson", ".xml", ".xml.gz", ".tsv", ".tsv.gz", ".tab", ".psv",
    ".dat", ".xls", ".xlsx", ".xlsm", ".xlsb", ".ods", ".avro", ".orc", ".parq", ".pq", ".ipc", ".arrows", ".lance",
    ".msgpack", ".pkl", ".pickle", ".npy", ".npz", ".h5", ".hdf5", ".tfrecord", ".sqlite", ".sqlite3", ".db",
    ".duckdb", ".mdb", ".accdb", ".sql", ".sav", ".dta", ".sas7bdat", ".rds", ".rdata", ".gz", ".zst", ".zstd",
    ".bz2", ".xz", ".lz4", ".snappy", ".br", ".z", ".zip", ".tar", ".tgz", ".7z", ".rar",
)  # fmt: skip
"""Ends of names that data has which almoner does not read."""
_DOCUMENTS: Final = (".doc", ".docx", ".odt", ".rtf", ".pdf", ".eml", ".msg", ".htm", ".html", ".text")
"""Those of texts, which beside tables are taken for their documentation."""
_DESCRIPTIONS: Final = (
    SAVED_STATE, SAVED_SPLITS, "dataset_info.json", "dataset_infos.json", "datapackage.json", "croissant.json",
    "schema.json", "metadata.json", "manifest.json", "config.json", "package.json",
)  # fmt: skip
_DESCRIPTION_ENDS: Final = (".metadata.json", "-metadata.json")
"""Files in JSON that describe data."""
_COPY: Final = re.compile(r"(\.(?:jsonl|ndjson|csv|parquet|arrow|feather|txt))(?:\.[^.]+|~)$")
"""The name of a copy or a part of a file that would be read: `x.csv.bak`, `x.jsonl~`, `x.csv.1`."""


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
    """State of a source.

    Attributes:
        size: its bytes.
        stamp: differs once any of its files was changed, replaced or renamed.
        format: the format of its files (`format_of`); None of a file or folder without data.
    """

    size: int
    stamp: bytes
    format: str | None


def source_state(path: Source) -> SourceState:
    """Return the present state of the source, from its files' metadata (in a store: from the objects' tags).

    Raises:
        SourceUnreadable: it cannot be looked at.
        FileTwice: links lead to one file twice.
        The errors of `data_files`.
    """
    size, stamp, kind = 0, hashlib.sha256(), None
    seen: set[tuple[int, int]] = set()
    with named_problems(path):
        for number, (inside, file) in enumerate(_files_of(path), 1):
            kind = kind or format_of(file)
            facts = file.state if isinstance(file, StoredSource) else _file_state(file)
            if isinstance(file, Path):
                status = file.stat()
                if (place := (status.st_dev, status.st_ino)) in seen:
                    raise UsageError(
                        f"File {number} of {name_of(path)!r} is a link to an earlier file of the folder.",
                        "Remove it. Files are counted in byte order of their paths.",
                        {"file": name_of(path), "number": number},
                        code="FileTwice",
                    )
                seen.add(place)
            size += facts[1]
            stamp.update(length_prefixed(os.fsencode(inside)) + repr(facts).encode())
    return SourceState(size, stamp.digest(), kind)


@dataclass(frozen=True)
class SourceDigest:
    """Digest of a source.

    Attributes:
        whole: the SHA-256 of a file's bytes; in a folder, of each data file's path and digest. Private: it goes
            nowhere but into `source_mark`.
        repeated: numbers of the tables in a folder that hold, once unpacked, the bytes of an earlier one with the same
            fields in its path, each with the number of that one. Two without a record are equal and repeat nobody.
    """

    whole: bytes
    repeated: Mapping[int, int]


def source_digest(path: Source) -> SourceDigest:
    """Return the digest of the source, from its bytes.

    Raises:
        SourceUnreadable: it cannot be read.
        PathFieldUnfit: as `shards_of`.
        The errors of `data_files`.
    """
    with named_problems(path):
        if not path.is_dir():
            return SourceDigest(_file_digest(path), {})
        whole, first, repeated = hashlib.sha256(), dict[bytes, int](), dict[int, int]()
        for number, (inside, file) in enumerate(data_files(path), 1):
            digest = _file_digest(file)
            whole.update(length_prefixed(os.fsencode(inside)) + digest)
            if format_of(inside) != TEXT and (content := _content_digest(file, digest)) is not None:
                fixed = repr(sorted(_constants(path, number, inside).items())).encode()
                earlier = first.setdefault(hashlib.sha256(content + fixed).digest(), number)
                if earlier != number:
                    repeated[number] = earlier
        return SourceDigest(whole.digest(), repeated)


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


def require_present_state(source: Source) -> None:
    """Check that the files of a source are all that there is to know of its records, and each of them counts.

    Raises:
        TableLogUnread: it lies in a table with a log.
        SavedDatasetUnfit: it is a file beside those of a saved dataset.
        SourceUnreadable: the folders around it cannot be looked at.
    """
    with named_problems(source):
        if (kind := table_around(source)) is not None:
            raise _table_log_unread(source, kind)
        if source.is_dir():
            return
        if commits_beside(source).unclear:
            raise _table_log_unread(source, COMMITS)
        beside = (
            next(source.parents()) if isinstance(source, StoredSource) else source.absolute().parent
        ) / SAVED_STATE
        found = beside.is_object() if isinstance(beside, StoredSource) else beside.exists() and not beside.is_dir()
        listed = _names_listed(source, beside) if found else None
    if source.name not in listed if listed is not None else is_saved_cache(source.name):
        raise _saved_dataset_unfit(source, "it is a result that `datasets` keeps, and no part of the dataset")


def data_files(folder: Source) -> Iterator[tuple[PurePath, Source]]:
    """Yield every data file below `folder` with its path inside it, in byte order of the whole path.

    All of them have one format. Those are passed over whose file or folder begins with a dot or an underscore, such as
    `_SUCCESS`, and is no field such as `_year=2020`; links to folders are not followed. Of a folder that
    `datasets.save_to_disk` wrote, the files that its description lists are all. What is no regular file, such as a link
    to nothing or a pipe, is yielded as a file, so that whoever opens it learns that the source is not whole.

    Raises:
        FolderMixed: two files have different formats.
        TableLogUnread: a log says which of its files are current.
        SavedDatasetUnfit: the description of a saved dataset is damaged, or files that it lists are missing.
        FilesUnread: at the end, if it holds data in formats that are not read.
    """
    contents, led_to = _Contents(folder), set[str]()
    for inside, file in _files_below(folder):
        if (
            isinstance(file, Path)
            and file.is_symlink()
            and (place := str(Path(os.path.realpath(file)).parent)) not in led_to
        ):
            led_to.add(place)
            if (kind := table_around(file)) is not None:
                raise _table_log_unread(folder, kind)
        if contents.has_data(inside):
            if is_saved_cache(inside.name):
                raise _saved_dataset_unfit(
                    folder, "it keeps results of `datasets`, and says not which files are the data"
                )
            yield inside, file
    contents.require_read()


def files_to_copy(path: PurePosixPath, names: Sequence[PurePosixPath]) -> list[PurePosixPath]:
    """Return the files of a repository that are read of the file or folder at `path`, before they are copied.

    Args:
        names: the paths of all files of the repository.

    Raises:
        FolderMixed, TableLogUnread, FilesUnread: as `data_files`.
    """
    source = Path(path.name or "repository")
    if (kind := table_of_listing(path, names)) is not None:
        raise _table_log_unread(source, kind)
    if path in names:
        return [name for name in names if name in (path, path.parent / SAVED_STATE)]
    below = [name.relative_to(path) for name in names if path in name.parents]
    contents = _Contents(source)
    chosen = [
        path / inside for inside in below if contents.has_data(inside) or inside.name in (SAVED_STATE, SAVED_SPLITS)
    ]
    contents.require_read()
    return chosen


class _Contents:
    """What the files of a folder are, by their names."""

    def __init__(self, folder: Source) -> None:
        self._folder = folder
        self._format: str | None = None
        self._unread: Counter[str] = Counter()
        self._documents: Counter[str] = Counter()
        self._writes = CommittedWrites()

    def has_data(self, inside: PurePath) -> bool:
        """Return whether a file is data that is read.

        Raises:
            FolderMixed, TableLogUnread.
        """
        if (table := table_kind(inside)) is not None:
            raise _table_log_unread(self._folder, table)
        is_hidden = any(map(_is_hidden, inside.parts))
        self._writes.see(inside, is_data=not is_hidden and format_of(inside) is not None)
        if is_hidden:
            return False
        if (kind := format_of(inside)) is None:
            self._unread.update(_ends(inside.name.lower(), _DATA))
            self._documents.update(_ends(inside.name.lower(), _DOCUMENTS))
            return False
        if (kind := _alike(kind)) != (found := self._format or kind):
            raise UsageError(
                f"The folder {name_of(self._folder)!r} holds {found} and {kind} files.",
                "Move the files of one format elsewhere: it is not known which of them are the corpus.",
                {"file": name_of(self._folder), "formats": sorted((found, kind))},
                code="FolderMixed",
            )
        self._format = kind
        return True

    def require_read(self) -> None:
        """Raise FilesUnread if some of them look like data, and are not read; TableLogUnread of unclear commits."""
        if self._writes.unclear:
            raise _table_log_unread(self._folder, COMMITS)
        unread = self._unread + (self._documents if self._format in (None, TEXT) else Counter())
        if unread:
            raise _files_unread(self._folder, unread)


def _alike(kind: str) -> str:
    """Return the format of which this one is another spelling: packed, or with the other ending of JSON lines."""
    kind = kind.removesuffix(GZIP)
    return ".jsonl" if kind == ".ndjson" else kind


def _ends(name: str, known: tuple[str, ...]) -> list[str]:
    """Return the end by which the name of a file looks like one of the known kinds; nothing else of the name."""
    if name in _DESCRIPTIONS or name.endswith(_DESCRIPTION_ENDS):
        return []
    if found := next((end for end in known if name.endswith(end)), None):
        return [found]
    copied = _COPY.search(name) if known is _DATA else None
    return [f"{copied[1]}*"] if copied else []


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
            raise _path_field_unfit(folder, number, "fixes a field twice")
        try:
            constants[name] = None if value == _NO_VALUE else unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise _path_field_unfit(folder, number, "has a value that is not UTF-8 behind its percent signs") from None
    return constants


def _files_below(folder: Source) -> Iterator[tuple[PurePath, Source]]:
    if isinstance(folder, StoredSource):
        yield from _stored_files(folder)
    else:
        yield from ((path.relative_to(folder), path) for path in _local_files(folder, folder))


def _local_files(whole: Path, folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=_path_order)
    wanted = _names_wanted(
        whole, {entry.name: Path(entry.path) for entry in listed if entry.name in (SAVED_STATE, SAVED_SPLITS)}
    )
    if wanted is not None and not wanted <= {entry.name for entry in listed}:
        raise _saved_dataset_unfit(whole, "files that it lists are missing")
    for entry in listed:
        if wanted is not None and entry.name not in wanted:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _local_files(whole, Path(entry.path))
        elif not entry.is_dir():
            yield Path(entry.path)


def _stored_files(folder: StoredSource) -> Iterator[tuple[PurePath, Source]]:
    """Yield the objects below a folder, but of a saved dataset those only that it lists."""
    files = [(file.relative_to(folder), file) for file in folder.files()]
    described: dict[PurePath, dict[str, Source]] = {}
    for inside, file in files:
        if inside.name in (SAVED_STATE, SAVED_SPLITS):
            described.setdefault(inside.parent, {})[inside.name] = file
    wanted = {place: _names_wanted(folder, found) for place, found in described.items()}
    listings = {place: names for place, names in wanted.items() if names is not None}

    def counts(path: PurePath) -> bool:
        """Return whether each folder that lists what is in it has the path, or the folder above it, in its list."""
        above = path.parents
        inside = (path, *above)
        return all(
            below.name in listings[place] for below, place in zip(inside, above, strict=False) if place in listings
        )

    for place, names in listings.items():
        held = {inside.relative_to(place).parts[0] for inside, _ in files if place in inside.parents}
        if counts(place) and not names <= held:
            raise _saved_dataset_unfit(folder, "files that it lists are missing")
    yield from ((inside, file) for inside, file in files if counts(inside))


def _names_wanted(whole: Source, described: Mapping[str, Source]) -> frozenset[str] | None:
    """Return the names in a folder that belong to its saved dataset, by its descriptions; None if it holds none."""
    return next(filter(None, (_names_listed(whole, described[name]) for name in sorted(described, reverse=True))), None)


def _names_listed(whole: Source, description: Source) -> frozenset[str] | None:
    try:
        with _open(description) as file:
            return saved_names(file, description.name)
    except NotPlain as problem:
        raise _saved_dataset_unfit(whole, str(problem)) from None


@contextmanager
def named_problems(source: AnySource) -> Iterator[None]:
    """Turn an OSError, whose text quotes paths that may name people, into SourceUnreadable."""
    try:
        yield
    except ObjectChanged:  # its address may name a person, too
        raise source_changed(source) from None
    except OSError as error:
        raise source_unreadable(source, error.strerror or "it is damaged") from None


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
    return _open(source.file if isinstance(source, Shard) else source)


def _open(file: Source) -> BufferedReader:
    return file.open("rb") if isinstance(file, StoredSource) else open_user_file(file)


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
    with _open(path) as file:
        return hashlib.file_digest(file, "sha256").digest()


def _content_digest(path: Source, digest: bytes) -> bytes | None:
    """Return the SHA-256 of a file once unpacked; None if it cannot be, which its reader says.

    Args:
        digest: that of its bytes.
    """
    if not (format_of(path) or "").endswith(GZIP):
        return digest
    with _open(path) as file, gzip.GzipFile(fileobj=file, mode="rb") as content:
        try:
            return hashlib.file_digest(content, "sha256").digest()
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return None


def _path_order(entry: "os.DirEntry[str]") -> bytes:
    return os.fsencode(entry.name) + (b"/" if entry.is_dir(follow_symlinks=False) else b"")


def source_missing(source: Source) -> UsageError:
    """Return the error of a path at which there is no file or folder."""
    return UsageError(
        f"There is no file or folder {name_of(source)!r} at the path given.",
        "Check the path.",
        {"file": name_of(source)},
        code="SourceMissing",
    )


def source_unreadable(source: AnySource, reason: str) -> EnvironmentProblem:
    """Return the error of a source that the operating system or a library cannot read."""
    return EnvironmentProblem(
        f"{name_of(source)!r} cannot be read: {reason}.",
        "Check the file and its permissions.",
        {"file": name_of(source)},
        code="SourceUnreadable",
    )


def source_empty(source: AnySource) -> UsageError:
    """Return the error of a source without any document."""
    return UsageError(
        f"{name_of(source)!r} holds no document.",
        "Check that it is the right one.",
        {"file": name_of(source)},
        code="SourceEmpty",
    )


def source_changed(source: AnySource) -> UsageError:
    """Return the error of a source that was written to while it was being read."""
    return UsageError(
        f"{name_of(source)!r} changed while it was being read; nothing of it was kept.",
        "Wait until nothing writes to it, then ingest again.",
        {"file": name_of(source)},
        code="SourceChanged",
    )


def _path_field_unfit(folder: Source, number: int, problem: str) -> UsageError:
    return UsageError(
        f"The path of file {number} of {name_of(folder)!r} {problem}.",
        "Rename its folders, then ingest again; nothing of this attempt was kept. Files are counted in byte order"
        " of their paths.",
        {"file": name_of(folder), "number": number},
        code="PathFieldUnfit",
    )


def _table_log_unread(source: Source, kind: str) -> UsageError:
    return UsageError(
        f"{name_of(source)!r} belongs to a table with a log ({kind}), which almoner does not read: its files may"
        " hold deleted records.",
        "Export its present state as Parquet into a folder outside of the table, then ingest that.",
        {"file": name_of(source), "table": kind},
        code="TableLogUnread",
    )


def _saved_dataset_unfit(source: Source, problem: str) -> UsageError:
    return UsageError(
        f"{name_of(source)!r} is not a dataset as `datasets.save_to_disk` writes it: {problem}.",
        "Save the dataset into a new folder with `save_to_disk`, then ingest that.",
        {"file": name_of(source), "reason": problem},
        code="SavedDatasetUnfit",
    )


def _files_unread(source: Source, ends: Mapping[str, int]) -> UsageError:
    listed = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    return UsageError(
        f"The folder {name_of(source)!r} holds files that look like data and are not read: {listed}.",
        "Convert them, or move what is not part of the corpus elsewhere. A table with tabs is read once it is"
        " called .csv.",
        {"file": name_of(source), "ends": sorted(ends)},
        code="FilesUnread",
    )


def file_repeated(source: Source, number: int, earlier: int) -> UsageError:
    """Return the error of a table in a folder that holds the records of another one."""
    return UsageError(
        f"File {number} of {name_of(source)!r} holds the same bytes as file {earlier}, packed or not.",
        "Remove one of them: without a unit field, a record that comes twice is two units. Nothing of this attempt"
        " was kept. Files are counted in byte order of their paths.",
        {"file": name_of(source), "number": number, "earlier": earlier},
        code="FileRepeated",
    )
