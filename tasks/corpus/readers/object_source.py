"""Private source in an object store: read as a stream, and copied nowhere but into the home.

It answers what the readers ask of a path. Objects have no time of change that can be trusted, so its state is that of
their entity tags; whatever is read is pinned to the tag it was found with.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from io import BufferedReader
from pathlib import PurePosixPath

from tasks.object_storage.address import AZURE, Address
from tasks.object_storage.bucket import Entry, Store


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
