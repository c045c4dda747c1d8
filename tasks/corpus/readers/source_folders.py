"""Folders of sources that are more than their files: in an object store, of a table with a log, of a saved dataset.

A private source in an object store is read as a stream, and copied nowhere but into the home. It answers what the
readers ask of a path. Objects have no time of change that can be trusted, so its state is that of their entity tags;
whatever is read is pinned to the tag it was found with.

Of some tables the files are not their present state: a log, a catalogue or a commit protocol says which of them count,
and files of deleted records may still lie there. One pattern knows all marks of them. Not every table has one: of a
partition that was dropped from Hive's catalogue nothing in the folder says so.

Beside the dataset in a folder that `datasets.save_to_disk` wrote lie results of `map` and `filter` that the library
keeps, which hold the same records again; a description says which of the files are the dataset.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from io import BufferedReader
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import BinaryIO, Final

from models_db.values.canonical_json import InvalidJson, parse_json
from tasks.object_storage.address import AZURE, Address
from tasks.object_storage.bucket import Entry, Store
from tasks.object_storage.errors import StoreDenied


class StoredSource:
    """Object in a store, or the folder of all objects below an address."""

    def __init__(
        self, store: Store, address: Address, entry: Entry | None = None, folder: Address | None = None
    ) -> None:
        self._store = store
        self._address = address
        self._found = entry
        self._told = folder or address  # a file of a folder may be called like a person

    @cached_property
    def _entry(self) -> Entry | None:
        """Entry of the object at the first look-up."""
        return self._found or (self._store.find(self._address) if self._address.key else None)

    @property
    def name(self) -> str:
        """The last part of its address."""
        return self._address.name

    @property
    def key(self) -> str:
        """Its key in the store."""
        return self._address.key

    @property
    def stem(self) -> str:
        """Name without the suffix."""
        return PurePosixPath(self.name).stem

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return 0 if self._entry is None else self._entry.size

    def exists(self) -> bool:
        """Return whether there is an object at the key, or below it."""
        return self._entry is not None or self.is_dir()

    def is_object(self) -> bool:
        """Return whether there is an object at exactly the key."""
        return self._entry is not None

    def is_symlink(self) -> bool:
        """Return False: stores have no links."""
        return False

    def is_dir(self) -> bool:
        """Return whether the address is no object and has objects below it."""
        return self._entry is None and self._has_more

    @cached_property
    def _has_more(self) -> bool:
        return next(self._store.list_below(self._address), None) is not None

    def open(self, mode: str) -> BufferedReader:
        """Return the content, pinned to the state in which it was found; only for reading bytes.

        Raises:
            ObjectChanged, FileNotFoundError.
        """
        if mode != "rb":
            raise ValueError("a source is read as bytes")
        if self._entry is None:
            raise FileNotFoundError(2, "No such file or directory")
        return self._store.open(self._entry, self._told)

    def relative_to(self, folder: "StoredSource") -> PurePosixPath:
        """Return the path inside a folder in which the object was listed."""
        return PurePosixPath(self._address.key.removeprefix(folder._address.key).lstrip("/"))

    def files(self) -> Iterator["StoredSource"]:
        """Yield every object below it, in byte order of the whole path, as a local folder has them."""
        listed = self._store.list_below(self._address)
        if self._address.scheme == AZURE:  # an account with a hierarchy lists folder by folder
            listed = iter(sorted(listed, key=lambda entry: entry.address.key.encode()))
        for entry in listed:
            yield StoredSource(self._store, entry.address, entry, self._address)

    def parents(self) -> Iterator["StoredSource"]:
        """Yield the folders that it lies in, from the nearest to the bucket."""
        parts = self.key.split("/") if self.key else []
        for count in reversed(range(len(parts))):
            yield StoredSource(self._store, replace(self._address, key="/".join(parts[:count])))

    def __truediv__(self, name: str) -> "StoredSource":
        return StoredSource(self._store, self._address / name)

    def current(self) -> "StoredSource":
        """Return the object as it is now, looked up again."""
        return StoredSource(self._store, self._address)

    @property
    def state(self) -> tuple[str, int, str]:
        """Its key, its bytes and its entity tag."""
        return self._address.key, self.size, "" if self._entry is None else self._entry.tag


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
_MARKED_FILES: Final = (".hoodie_partition_metadata", "_orc_acid_version")
_MARKED_FOLDERS: Final = ("metadata", "snapshot")
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
    inside = [name for name in (*_LOGS, *_MARKED_FILES) if (folder / name).exists() or (folder / name).is_symlink()]
    for name in _MARKED_FOLDERS:
        if (folder / name).is_dir():
            inside += [f"{name}/{entry.name}" for entry in (folder / name).iterdir() if not entry.is_dir()]
    return _first(map(table_kind, inside))


def _kinds_above_stored(source: StoredSource) -> Iterator[str | None]:
    try:
        for folder in source.parents():
            for name in _LOGS:
                yield from (table_kind(name) for _ in islice((folder / name).files(), 1))
            for name in _MARKED_FOLDERS:
                yield from (table_kind(f"{name}/{file.name}") for file in islice((folder / name).files(), _MOST_LISTED))
            for name in _MARKED_FILES:
                if (folder / name).is_object():
                    yield table_kind(name)
    except StoreDenied:
        return


def _first(kinds: Iterable[str | None]) -> str | None:
    return next(filter(None, kinds), None)


SAVED_STATE: Final = "state.json"
SAVED_SPLITS: Final = "dataset_dict.json"
_MOST_BYTES: Final = 16 << 20
_CACHE: Final = re.compile(r"cache-[0-9a-f]{16}(?:_\d{5}_of_\d{5})?\.arrow")
_PLAIN: Final = re.compile(r"(?!\.{1,2}$)[^/\\\x00]+")


class NotPlain(ValueError):
    """A description that names no plain files of its folder; the reason is the text."""


def is_saved_cache(name: str) -> bool:
    """Return whether `datasets` gives such a name to a result that it keeps."""
    return _CACHE.fullmatch(name) is not None


def saved_names(file: BinaryIO, name: str) -> frozenset[str] | None:
    """Return what a description lists in its folder: the data files of a `state.json`, the splits of a dictionary.

    None of a file that describes no dataset.

    Args:
        name: STATE or SPLITS.

    Raises:
        NotPlain: it lists something else than plain names, each once, or none of them; or an index over its rows.
    """
    try:
        described = parse_json(file.read(_MOST_BYTES + 1), most_bytes=_MOST_BYTES)
    except InvalidJson:
        raise NotPlain(f"its {name} is damaged") from None
    key = "_data_files" if name == SAVED_STATE else "splits"
    if not isinstance(described, dict) or key not in described:
        return None
    if described.get("_indices_data_files"):
        raise NotPlain("it keeps an index of the rows that count, which almoner does not read")
    listed = described[key]
    if not isinstance(listed, list):
        raise NotPlain(f"its {name} is damaged")
    found = [each.get("filename") if isinstance(each, dict) else each for each in listed]
    names = frozenset(each for each in found if isinstance(each, str) and _PLAIN.fullmatch(each))
    if not names or len(names) < len(found):
        raise NotPlain(f"its {name} lists nothing, something twice, or something else than names in its folder")
    return names
