"""Bucket of an object store, through fsspec's file system of its kind: lookup, listing, reading and writing.

Reads are pinned to one state of the object, by its entity tag or generation; new objects take a free name only.
Nothing is cached, nothing is deleted, and no bucket is created.
"""

import asyncio
import io
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from tasks.object_storage.address import Address
from tasks.object_storage.bucket_settings import AnySettings, Buckets, GoogleSettings, S3Settings
from tasks.object_storage.errors import (
    StoreAnswer,
    code_of,
    store_extra_missing,
    store_failed,
    translate_store_errors,
)

_READ_AHEAD: Final = 8 << 20
_NAME_TAKEN: Final = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
_TALKATIVE_LOGGERS: Final = ("adlfs", "aiobotocore", "azure", "botocore", "fsspec", "gcsfs", "google", "s3fs")
"""Their messages hold signed requests, names of objects and words of servers; what matters comes as an error."""


@dataclass(frozen=True)
class Entry:
    """State of an object: its size in bytes, and a tag that changes with its content."""

    address: Address
    size: int
    tag: str


class ObjectFiles(Protocol):
    """fsspec's file system of one kind of store, with reads of one state and listings by pages.

    Its methods raise OSError, and `StoreAnswer` where the store answered.

    Attributes:
        loop: where its coroutines run.
        errors: the errors of its library that are no OSError.
    """

    loop: asyncio.AbstractEventLoop
    errors: tuple[type[Exception], ...]

    async def head(self, bucket: str, key: str) -> tuple[int, str]:
        """Return the size and the tag of an object, or raise FileNotFoundError."""

    async def page(self, bucket: str, prefix: str, marker: str) -> tuple[list[tuple[str, int, str]], str | None]:
        """Return key, size and tag of objects whose keys begin with `prefix`, and the marker of the next page."""

    async def read(self, bucket: str, key: str, tag: str, first: int, last: int) -> bytes:
        """Return a range of an object's bytes as they are stored, in the state of `tag`."""

    async def put(self, bucket: str, key: str, path: Path, mode: str) -> None:
        """Upload a file as a whole; in the mode "create" raise FileExistsError, or 412, if the name is taken."""

    async def close(self) -> None:
        """Close every connection."""


class Store:
    """One bucket. Every method raises what `translate_store_errors` names."""

    def __init__(self, system: ObjectFiles) -> None:
        from fsspec.asyn import sync

        self.system = system
        self._wait_for = partial(sync, system.loop)

    def find(self, address: Address) -> Entry | None:
        """Return the object at exactly this address, or None; a missing bucket looks empty here."""
        with self._translated(address):
            try:
                return Entry(address, *self._wait_for(self.system.head, address.bucket, address.key))
            except FileNotFoundError:
                return None

    def list_below(self, address: Address) -> Iterator[Entry]:
        """Yield every object below an address, with the addresses that the store gives.

        They come in byte order of their keys; Azure's accounts with a hierarchy of folders list folder by folder.

        Raises:
            StoreFailed: the store lists an object that is not below the address.
        """
        prefix = f"{address.key}/" if address.key else ""
        marker: str | None = ""
        while marker is not None:
            with self._translated(address):
                listed, marker = self._wait_for(self.system.page, address.bucket, prefix, marker)
            if not all(key.startswith(prefix) and key for key, _, _ in listed):
                raise store_failed(address, "it lists objects of another place")
            for key, size, tag in listed:
                yield Entry(replace(address, key=key), size, tag)

    def open(self, entry: Entry, shown_address: Address | None = None) -> io.BufferedReader:
        """Open an object for reading, sequentially or with seeks, in exactly the state of `entry`.

        Args:
            shown_address: the address that errors name in place of the object's own, which may name a person.

        Raises:
            ObjectChanged: the object is in another state, now or while it is read.
        """
        bucket, key, shown_address = entry.address.bucket, entry.address.key, shown_address or entry.address
        with self._translated(shown_address):
            if self._wait_for(self.system.head, bucket, key) != (entry.size, entry.tag):
                raise StoreAnswer("412")

        def read(first: int, last: int) -> bytes:
            with self._translated(shown_address):
                data: bytes = self._wait_for(self.system.read, bucket, key, entry.tag, first, last)
                if len(data) != last - first + 1:
                    raise ConnectionAbortedError("not the range that was requested")
            return data

        return io.BufferedReader(_ObjectReader(read, entry.size), max(1, min(entry.size, _READ_AHEAD)))

    def create(self, address: Address, path: Path) -> bool:
        """Upload a file under a free name, atomically; return False if the name is taken."""
        with self._translated(address):
            try:
                self._wait_for(self.system.put, address.bucket, address.key, path, "create")
            except OSError as problem:
                if isinstance(problem, FileExistsError) or code_of(problem) in _NAME_TAKEN:
                    return False
                raise
        return True

    def replace(self, address: Address, path: Path) -> None:
        """Upload a file under a name and replace any object there."""
        with self._translated(address):
            self._wait_for(self.system.put, address.bucket, address.key, path, "overwrite")

    @contextmanager
    def _translated(self, address: Address) -> Iterator[None]:
        with translate_store_errors(address, self.system.errors):
            try:
                yield
            except FileNotFoundError as problem:
                if code_of(problem) is not None:
                    raise
                raise StoreAnswer("404") from None


class _ObjectReader(io.RawIOBase):
    """Object of a store, read by ranges."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = min(len(buffer), self._size - self._position, _READ_AHEAD)
        if count <= 0:
            return 0
        buffer[:count] = self._read(self._position, self._position + count - 1)
        self._position += count
        return count

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_READ_AHEAD), b""))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError("a position is not negative")
        self._position = start + offset
        return self._position


@contextmanager
def open_store(address: Address, buckets: Buckets) -> Iterator[Store]:
    """Open the bucket of an address until the end of the block. This sends no request yet.

    Raises:
        StoreExtraMissing: the extra for this kind of store is not installed.
        CredentialsUnset: a variable that the settings name is empty.
        StoreDenied: there are no credentials.
        EndpointUnsafe: the environment names an endpoint over plain http.
        EnvironmentProblem: as `Buckets.of`.
    """
    for logger in map(logging.getLogger, _TALKATIVE_LOGGERS):
        logger.setLevel(logging.CRITICAL)
    settings = buckets.of(address)
    try:
        system = _open_files(address, settings)
    except ImportError:
        raise store_extra_missing(address.scheme) from None
    store = Store(system)
    try:
        yield store
    finally:
        store._wait_for(system.close)


def _open_files(address: Address, settings: AnySettings) -> ObjectFiles:
    # local imports: they take half a second, and most commands need no store
    if isinstance(settings, S3Settings):
        from tasks.object_storage.s3_filesystem import open_s3

        return open_s3(address, settings)
    if isinstance(settings, GoogleSettings):
        from tasks.object_storage.google_filesystem import GoogleFiles

        return GoogleFiles(address, settings)
    from tasks.object_storage.azure_filesystem import AzureFiles

    return AzureFiles(address, settings)
