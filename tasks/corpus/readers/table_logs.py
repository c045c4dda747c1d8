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

_MARKS: Final = {
    "Delta Lake": r"_delta_log",
    "Hudi": r"\.hoodie|\.hoodie_partition_metadata",
    "Iceberg": r"(?:metadata/)?[^/]+\.metadata\.json(?:\.gz)?|metadata/version-hint\.text",
    "Paimon": r"snapshot/(?:snapshot-\d+|LATEST)",
    "Spark streaming": r"_spark_metadata",
    "lakeFS": r"_lakefs",
    "Hive with transactions": r"(?:delete_)?delta_\d{7,}_\d{7,}(?:_\d+)?|base_\d{7,}(?:_v\d+)?|_orc_acid_version",
    "DuckLake": r"ducklake-[^/]+\.parquet",
    "a write that has not ended": r"_temporary",
}
"""Kinds of tables, and their marks: parts of a path that follow one another."""
_MARK: Final = re.compile(f"(?:^|/)(?:{'|'.join(f'({marks})' for marks in _MARKS.values())})(?:/|$)")
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


def _kind_of_folder(folder: Path) -> str | None:
    """Return the kind of table with a log that a folder is, by a few names in it."""
    inside = [name for name in (*_LOGS, *_FILES) if (folder / name).exists() or (folder / name).is_symlink()]
    for name in _FOLDERS:
        if (folder / name).is_dir():
            inside += [f"{name}/{entry.name}" for entry in (folder / name).iterdir()]
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
