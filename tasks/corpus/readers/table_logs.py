"""Tables whose files are not their present state: a log, a catalogue or a commit protocol says which of them count.

Files of deleted records may still lie in such a table. One pattern knows all marks of them. Not every table has one: of
a partition that was dropped from Hive's catalogue nothing in the folder says so.
"""

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import Final

from tasks.corpus.readers.object_source import StoredSource
from tasks.object_storage.errors import StoreDenied

_DAY: Final = r"(?:0[1-9]|[12]\d|3[01])"
_MONTH: Final = r"(?:0[1-9]|1[0-2])"
_YEAR: Final = r"(?:19|20)\d\d"
_WRITE_ID: Final = rf"(?:\d{{7}}|(?!{_YEAR}{_MONTH}{_DAY}|{_MONTH}{_DAY}{_YEAR}|{_DAY}{_MONTH}{_YEAR})\d{{8}}|\d{{9}})"
"""Hive's number of a write: seven digits with zeros before it, more after ten million writes; no date of eight."""
_MARKS: Final = {
    "Delta Lake": r"_delta_log",
    "Hudi": r"\.hoodie|\.hoodie_partition_metadata",
    "Iceberg": (
        r"metadata/(?:(?:v\d+|\d{5,}-[0-9A-Fa-f-]{36})(?:\.gz)?\.metadata\.json(?:\.gz)?|version-hint\.text"
        r"|snap-\d+-\d+-[0-9A-Fa-f-]{36}\.avro)"
    ),
    "Paimon": r"snapshot/snapshot-\d{1,7}",
    "Spark streaming": r"_spark_metadata",
    "lakeFS": r"_lakefs",
    "Hive with transactions": (
        rf"delta_{_WRITE_ID}_{_WRITE_ID}(?:_\d+)?(?:_v\d+)?|delete_delta_\d{{7,}}_\d{{7,}}(?:_\d+)?(?:_v\d+)?"
        rf"|base_(?:{_WRITE_ID}|\d{{7,}}_v\d{{7,}})|_orc_acid_version"
    ),
    "DuckLake": r"ducklake-[^/]+\.parquet",
    "a write that has not ended": r"_temporary",
}
"""Kinds of tables, and their marks: parts of a path in sequence. Paimon's numbers are shorter than dates."""
_MARK: Final = re.compile(f"(?:^|/)(?:{'|'.join(f'({marks})' for marks in _MARKS.values())})(?:/|$)")
COMMITS: Final = "commits of Databricks"
_COMMIT: Final = re.compile(r"_(started|committed)_(\d+)")
_WRITE: Final = re.compile(r"-tid-(\d+)-")
_LOGS: Final = ("_delta_log", ".hoodie", "_spark_metadata", "_lakefs", "_temporary")
"""Folders at the top of a table."""
_FILES: Final = (".hoodie_partition_metadata", "_orc_acid_version")
_FOLDERS: Final = ("metadata", "snapshot")
_MOST_LISTED: Final = 1000
"""Objects of such a folder in a store that are looked at: the marks come first in byte order."""


def table_kind(path: PurePath | str) -> str | None:
    """Return the kind of table with a log that a path belongs to by its parts; None for any other."""
    found = _MARK.search(path if isinstance(path, str) else path.as_posix())
    return None if found is None else list(_MARKS)[(found.lastindex or 1) - 1]


def table_around(source: Path | StoredSource) -> str | None:
    """Return the kind of table with a log in which a source lies: by its path, its siblings and what is above it.

    Of a local link also the place that it leads to counts. Above a folder of a store that this account must not list
    nothing is known.

    Raises:
        OSError: a folder above it cannot be listed.
    """
    if isinstance(source, StoredSource):
        return table_kind(source.key) or _first(_kinds_above_stored(source))
    places = dict.fromkeys((source.absolute(), Path(os.path.realpath(source))))
    return _first(
        table_kind(place) or _first(map(_kind_of_folder, (*([place] if place.is_dir() else []), *place.parents)))
        for place in places
    )


def table_of_listing(path: PurePosixPath, names: Iterable[PurePosixPath]) -> str | None:
    """Return the kind of table with a log in which a path lies, by the names of all files around it."""
    for name in names:
        found = _MARK.search(name.as_posix())
        if found is not None and PurePosixPath(name.as_posix()[: found.start()]) in (path, *path.parents):
            return table_kind(name)
    return None


class CommittedWrites:
    """Databricks' commits in the folders of a source: `_started_N` and `_committed_N` beside the files of write N.

    Files that a later write replaced, or that a broken one left, stay until somebody removes them. So a folder counts
    whole only if all of its files are of one write that has ended, as after an export into a new folder.
    """

    def __init__(self) -> None:
        self._begun: dict[PurePath, set[str]] = {}
        self._ended: dict[PurePath, set[str]] = {}
        self._written: dict[PurePath, set[str]] = {}

    def see(self, path: PurePath, *, is_data: bool) -> None:
        """Look at the name of a file; of a file that is read, it says the write."""
        if found := _COMMIT.fullmatch(path.name):
            by_folder = self._begun if found[1] == "started" else self._ended
            by_folder.setdefault(path.parent, set()).add(found[2])
        elif is_data:
            write = _WRITE.search(path.name)
            self._written.setdefault(path.parent, set()).add(write[1] if write else "")

    @property
    def unclear(self) -> bool:
        """Return whether they leave open which files of a folder count."""
        return any(
            len(self._ended.get(folder, ())) != 1
            or not self._begun.get(folder, set()) | self._written.get(folder, set()) <= self._ended[folder]
            for folder in self._begun.keys() | self._ended.keys()
        )


def commits_beside(file: Path | StoredSource) -> CommittedWrites:
    """Return the commits of Databricks in the folder of one file, which is all that is read of it."""
    writes = CommittedWrites()
    writes.see(PurePath(file.name), is_data=True)
    for name in _names_beside(file):
        writes.see(PurePath(name), is_data=False)
    return writes


def _names_beside(file: Path | StoredSource) -> list[str]:
    if isinstance(file, Path):
        return os.listdir(file.absolute().parent)
    folder = next(file.parents())
    try:
        paths = [one.relative_to(folder) for one in islice(folder.files(), _MOST_LISTED)]
    except StoreDenied:
        return []
    return [path.name for path in paths if len(path.parts) == 1]


def _kind_of_folder(folder: Path) -> str | None:
    """Return the kind of table with a log that a folder is, by a few names in it."""
    inside = [name for name in (*_LOGS, *_FILES) if (folder / name).exists() or (folder / name).is_symlink()]
    for name in _FOLDERS:
        if (folder / name).is_dir():
            inside += [f"{name}/{entry.name}" for entry in (folder / name).iterdir() if not entry.is_dir()]
    return _first(map(table_kind, inside))


def _kinds_above_stored(source: StoredSource) -> Iterator[str | None]:
    try:
        for folder in source.parents():
            for name in _LOGS:
                yield from (table_kind(name) for _ in islice((folder / name).files(), 1))
            for name in _FOLDERS:
                yield from (table_kind(f"{name}/{file.name}") for file in islice((folder / name).files(), _MOST_LISTED))
            for name in _FILES:
                if (folder / name).is_object():
                    yield table_kind(name)
    except StoreDenied:
        return


def _first(kinds: Iterable[str | None]) -> str | None:
    return next(filter(None, kinds), None)
