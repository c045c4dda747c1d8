"""Bucket: lookup, listing, reading and writing, in a store of any kind.

Reads are pinned to one state of the object by its tag. Nothing is cached, nothing is deleted, and no bucket is created.
"""

import io
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from tasks.object_storage.address import Address
from tasks.object_storage.backend import Backend, Entry
from tasks.object_storage.bucket_settings import AnySettings, AzureSettings, Buckets, GoogleSettings
from tasks.object_storage.errors import (
    StoreExtraMissing,
    StoreFailed,
    code_of,
    translate_store_errors,
)

_BUFFER: Final = 1 << 20
_NAME_TAKEN: Final = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
_NOISY_LOGGERS: Final = ("botocore", "aiobotocore", "s3fs", "fsspec")
"""Loggers whose debugging output holds signed requests."""
_SILENT_LOGGERS: Final = ("urllib3", "google", "azure", "msal")
"""Loggers whose warnings quote addresses, which may hold a signature, or names of objects."""


class Store:
    """One bucket. Every method raises what `translate_store_errors` names."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def sorted(self) -> bool:
        """Whether objects are listed in byte order of their keys."""
        return self._backend.sorted

    def find(self, address: Address) -> Entry | None:
        """Return the object at exactly this address, or None; a missing bucket looks empty here."""
        with self._translated(address):
            return self._backend.find(address)

    def list_below(self, address: Address) -> Iterator[Entry]:
        """Yield every object below an address, in the order of the store, with the addresses that it gives.

        Raises:
            StoreFailed: the store lists an object that is not below the address.
        """
        prefix = f"{address.key}/" if address.key else ""
        pages = self._backend.pages(address, prefix)
        while True:
            with self._translated(address):
                page = next(pages, None)
            if page is None:
                return
            if not all(entry.address.key.startswith(prefix) for entry in page):
                raise StoreFailed(address, "it lists objects of another place")
            yield from page

    def open(self, entry: Entry, shown_address: Address | None = None) -> io.BufferedReader:
        """Open an object for reading, sequentially or with seeks, in exactly the state of `entry`.

        Args:
            shown_address: the address that errors name in place of the object's own, which may name a person.

        Raises:
            ObjectChanged: the object is in another state, now or while it is read.
        """
        shown_address = shown_address or entry.address
        with self._translated(shown_address):
            file = self._backend.open(entry)
        return io.BufferedReader(_TranslatingReader(file, shown_address, self._backend.errors), _BUFFER)

    def create(self, address: Address, path: Path) -> bool:
        """Upload a file under a free name, atomically; return False if the name is taken."""
        with self._translated(address):
            try:
                self._backend.put(address, path, "create")
            except OSError as problem:
                if isinstance(problem, FileExistsError) or code_of(problem) in _NAME_TAKEN:
                    return False
                raise
        return True

    def replace(self, address: Address, path: Path) -> None:
        """Upload a file under a name and replace any object there."""
        with self._translated(address):
            self._backend.put(address, path, "overwrite")

    def _translated(self, address: Address) -> AbstractContextManager[None]:
        return translate_store_errors(address, self._backend.errors)


class _TranslatingReader(io.RawIOBase):
    """Reader of an object that translates the errors of libraries."""

    def __init__(self, file: BinaryIO, address: Address, errors: tuple[type[Exception], ...]) -> None:
        self._file = file
        self._address = address
        self._errors = errors

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        with translate_store_errors(self._address, self._errors):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@contextmanager
def open_store(address: Address, buckets: Buckets) -> Iterator[Store]:
    """Open the bucket of an address until the end of the block. This sends no request yet.

    Raises:
        StoreExtraMissing: the extra of this kind of store is not installed.
        CredentialsUnset: a variable that the settings name is empty.
        EndpointUnsafe: the environment names an endpoint over plain http.
        AccountMissing: the settings name no account of Azure.
    """
    for names, level in ((_NOISY_LOGGERS, logging.WARNING), (_SILENT_LOGGERS, logging.CRITICAL)):
        for logger in map(logging.getLogger, names):
            logger.setLevel(max(level, logger.level))
    with ExitStack() as opened:
        try:
            backend = opened.enter_context(_open_backend(address, buckets.of(address)))
        except ImportError:
            raise StoreExtraMissing(address.scheme) from None
        yield Store(backend)


def _open_backend(address: Address, settings: AnySettings) -> AbstractContextManager[Backend]:
    if isinstance(settings, GoogleSettings):
        from tasks.object_storage.google_bucket import open_google

        return open_google(address, settings)
    if isinstance(settings, AzureSettings):
        from tasks.object_storage.azure_bucket import open_azure

        return open_azure(address, settings)
    from tasks.object_storage.s3_bucket import open_s3

    return open_s3(address, settings)
