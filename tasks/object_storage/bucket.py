"""Bucket of an S3-compatible store, through fsspec's S3 file system: lookup, listing, reading and writing.

Reads are pinned to one state of the object by its entity tag (If-Match); new objects take a free name only
(If-None-Match). Nothing is cached, nothing is deleted, and no bucket is created.
"""

import io
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tasks.object_storage.address import Address
from tasks.object_storage.bucket_settings import Buckets, BucketSettings, is_safe
from tasks.object_storage.errors import (
    CredentialsUnset,
    EndpointUnsafe,
    StoreAnswer,
    StoreExtraMissing,
    StoreFailed,
    code_of,
    translate_store_errors,
)

if TYPE_CHECKING:
    from s3fs import S3FileSystem

_BUFFER: Final = 1 << 20
_READ_AHEAD: Final = 8 << 20
_NAME_TAKEN: Final = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
_NOISY_LOGGERS: Final = ("botocore", "aiobotocore", "s3fs", "fsspec")
"""Loggers whose debugging output holds signed requests."""


@dataclass(frozen=True)
class Entry:
    """State of an object: its size in bytes, and a tag that changes with its content."""

    address: Address
    size: int
    tag: str


class Store:
    """One bucket. Every method raises what `translate_store_errors` names.

    Args:
        errors: the errors of the file system's libraries that are no OSError.
    """

    def __init__(self, system: "S3FileSystem", errors: tuple[type[Exception], ...]) -> None:
        self.system = system
        self._errors = errors

    def find(self, address: Address) -> Entry | None:
        """Return the object at exactly this address, or None; a missing bucket looks empty here."""
        with self._translated(address):
            try:
                head = self.system.call_s3("head_object", Bucket=address.bucket, Key=address.key)
            except FileNotFoundError:
                return None
            return _entry(address, head, "ContentLength")

    def list_below(self, address: Address) -> Iterator[Entry]:
        """Yield every object below an address, in byte order of their keys, with the addresses that the store gives.

        Raises:
            StoreFailed: the store lists an object that is not below the address.
        """
        prefix = f"{address.key}/" if address.key else ""
        more: dict[str, str] | None = {}
        while more is not None:
            with self._translated(address):
                page = self.system.call_s3("list_objects_v2", Bucket=address.bucket, Prefix=prefix, **more)
                listed = [
                    _entry(replace(address, key=str(item.get("Key", ""))), item, "Size")
                    for item in page.get("Contents", ())
                ]
                more = {"ContinuationToken": str(page["NextContinuationToken"])} if page.get("IsTruncated") else None
            if not all(entry.address.key.startswith(prefix) for entry in listed):
                raise StoreFailed(address, "it lists objects of another place")
            yield from listed

    def open(self, entry: Entry, shown_address: Address | None = None) -> io.BufferedReader:
        """Open an object for reading, sequentially or with seeks, in exactly the state of `entry`.

        Args:
            shown_address: the address that errors name in place of the object's own, which may name a person.

        Raises:
            ObjectChanged: the object is in another state, now or while it is read.
        """
        shown_address = shown_address or entry.address
        name = f"{entry.address.bucket}/{entry.address.key}"
        with self._translated(shown_address):
            try:
                file = self.system.open(name, "rb", block_size=_READ_AHEAD, cache_type="readahead")
                tag = str(file.details.get("ETag"))
            except FileNotFoundError:
                raise StoreAnswer("404") from None
            except KeyError:
                raise StoreAnswer("no-object") from None
            if tag != entry.tag:
                raise StoreAnswer("412")
        return io.BufferedReader(_TranslatingReader(file, shown_address, self._errors), _BUFFER)

    def create(self, address: Address, path: Path) -> bool:
        """Upload a file under a free name, atomically; return False if the name is taken."""
        with self._translated(address):
            try:
                self._put(address, path, "create")
            except OSError as problem:
                if isinstance(problem, FileExistsError) or code_of(problem) in _NAME_TAKEN:
                    return False
                raise
        return True

    def replace(self, address: Address, path: Path) -> None:
        """Upload a file under a name and replace any object there."""
        with self._translated(address):
            self._put(address, path, "overwrite")

    def _put(self, address: Address, path: Path, mode: str) -> None:
        self.system.put_file(str(path), f"{address.bucket}/{address.key}", mode=mode)

    def _translated(self, address: Address) -> AbstractContextManager[None]:
        return translate_store_errors(address, self._errors)


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
        StoreExtraMissing: the extra `s3` is not installed.
        CredentialsUnset: a variable that the settings name is empty.
        EndpointUnsafe: the environment names an endpoint over plain http.
    """
    for logger in map(logging.getLogger, _NOISY_LOGGERS):
        logger.setLevel(max(logging.WARNING, logger.level))
    try:
        # local imports: they take half a second, and most commands need no store
        from botocore.exceptions import BotoCoreError, ClientError
        from fsspec.asyn import sync

        from tasks.object_storage.timed_s3 import TimedS3
    except ImportError:
        raise StoreExtraMissing from None
    errors = (ClientError, BotoCoreError)
    with translate_store_errors(address, errors):
        system = TimedS3(**_arguments(address, buckets.of(address)))
        system.retries = 3
        client = system.s3  # connects to nobody yet
    try:
        if not is_safe(str(client.meta.endpoint_url)):
            raise EndpointUnsafe(address)
        yield Store(system, errors)
    finally:
        sync(system.loop, client.close)


def _arguments(address: Address, settings: BucketSettings) -> dict[str, Any]:
    """Return all arguments that decide how a store is reached; fsspec's own files could set any that is left out."""
    from aiobotocore.session import AioSession

    session = AioSession(profile=settings.profile)
    if not settings.instance_role:
        session.get_component("credential_provider").remove("iam-role")  # queries an unconfigured address
    key, secret, token = (
        _secret(address, variable) for variable in (settings.key_env, settings.secret_env, settings.token_env)
    )
    proxies = {} if settings.proxy is None else {"http": settings.proxy, "https": settings.proxy}
    encryption = {"ServerSideEncryption": settings.encryption, "SSEKMSKeyId": settings.kms_key}
    return {
        "anon": False,
        "session": session,
        "key": key,
        "secret": secret,
        "token": token,
        "endpoint_url": settings.endpoint_url,
        "use_ssl": True,
        "client_kwargs": {"region_name": settings.region, "verify": settings.ca_file},
        "config_kwargs": {
            "proxies": proxies,
            "connect_timeout": 10,
            "read_timeout": 60,
            "retries": {"mode": "standard", "max_attempts": 2},
            # Stores of other makers know no trailing checksums; what matters is compared by SHA-256 here.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
        "s3_additional_kwargs": {name: value for name, value in encryption.items() if value is not None},
        "requester_pays": False,
        "version_aware": False,
        "cache_regions": False,
        "fixed_upload_size": True,
        "local_expiry_check": False,
        "use_listings_cache": False,
        "skip_instance_cache": True,
    }


def _secret(address: Address, variable: str | None) -> str | None:
    """Return the content of a variable that the settings name; None if they name none.

    Raises:
        CredentialsUnset: the variable is empty.
    """
    if variable is None:
        return None
    if not (value := os.environ.get(variable, "")):
        raise CredentialsUnset(address, variable)
    return value


def _entry(address: Address, item: Mapping[str, Any], size: str) -> Entry:
    if not address.key or size not in item or "ETag" not in item:
        raise StoreAnswer("no-object")
    return Entry(address, int(item[size]), str(item["ETag"]))
