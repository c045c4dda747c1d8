"""Bucket: lookup, listing, reading and writing through fsspec's S3 file system.

What is read is pinned to one state of the object by its entity tag (If-Match); what is created takes a name that is
free (If-None-Match). Nothing is cached, nothing is deleted, and no bucket is made.
"""

import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tasks.object_storage.address import Address
from tasks.object_storage.bucket_settings import Bucket, Buckets, is_safe
from tasks.object_storage.errors import (
    CredentialsUnset,
    EndpointUnsafe,
    ObjectChanged,
    StoreExtraMissing,
    code_of,
    named,
)

if TYPE_CHECKING:
    from s3fs import S3FileSystem

_READ_AHEAD: Final = 8 << 20
_BUFFER: Final = 1 << 20
_TAKEN: Final = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
_TALKATIVE: Final = ("botocore", "aiobotocore", "s3fs", "fsspec")
"""Their debugging output holds signed requests."""


@dataclass(frozen=True)
class Entry:
    """An object as it is now: its size in bytes, and a tag that differs once its content does."""

    address: Address
    size: int
    tag: str


class Store:
    """One bucket. Every method raises what `object_storage.errors.named` names."""

    def __init__(self, system: "S3FileSystem", bucket: str) -> None:
        self._system = system
        self._bucket = Address(bucket)

    def look(self, address: Address) -> Entry | None:
        """The object at exactly this address, if there is one; a bucket that is missing looks empty here."""
        with named(address):
            try:
                found = self._system.call_s3("head_object", Bucket=address.bucket, Key=address.key)
            except FileNotFoundError:
                return None
        return Entry(address, int(found["ContentLength"]), str(found["ETag"]))

    def below(self, address: Address) -> Iterator[Entry]:
        """Every object below an address, in byte order of the keys; their addresses are as the store has them."""
        more: dict[str, str] = {}
        prefix = f"{address.key}/" if address.key else ""
        while True:
            with named(address):
                page = self._system.call_s3("list_objects_v2", Bucket=address.bucket, Prefix=prefix, **more)
            for one in page.get("Contents", ()):
                yield Entry(Address(address.bucket, str(one["Key"])), int(one["Size"]), str(one["ETag"]))
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": str(page["NextContinuationToken"])}

    def open(self, entry: Entry, told: Address | None = None) -> io.BufferedReader:
        """Read an object, front to back or anywhere, in exactly the state of `entry`.

        Args:
            told: what errors name in place of its own address, which may name a person.

        Raises:
            ObjectChanged: here or while it is read, if it is in another state.
        """
        address, told = entry.address, told or entry.address
        with named(told):
            try:
                file = self._system.open(
                    f"{address.bucket}/{address.key}", "rb", block_size=_READ_AHEAD, cache_type="readahead"
                )
                tag = str(file.details["ETag"])
            except FileNotFoundError:
                raise ObjectChanged(told) from None
        if tag != entry.tag:
            raise ObjectChanged(told)
        return io.BufferedReader(_Named(file, told), _BUFFER)

    def create(self, address: Address, path: Path) -> bool:
        """Put a file under a name that is free; False if it is not. Nobody sees half of it."""
        with named(address):
            try:
                self._system.put_file(str(path), f"{address.bucket}/{address.key}", mode="create")
            except OSError as problem:
                if isinstance(problem, FileExistsError) or code_of(problem) in _TAKEN:
                    return False
                raise
        return True

    def replace(self, address: Address, path: Path) -> None:
        """Put a file under a name, whatever was there."""
        with named(address):
            self._system.put_file(str(path), f"{address.bucket}/{address.key}")


class _Named(io.RawIOBase):
    """An object that is read; what goes wrong is an error of ours."""

    def __init__(self, file: Any, address: Address) -> None:
        self._file = file
        self._address = address

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        with named(self._address):
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
def opened(address: Address, buckets: Buckets) -> Iterator[Store]:
    """The bucket of an address, until the end of the block. Nothing is asked of it yet.

    Raises:
        StoreExtraMissing: the extra `s3` is not installed.
        CredentialsUnset: a variable that the settings name is empty.
        EndpointUnsafe: the environment names an endpoint over plain http.
    """
    try:
        import s3fs  # here, because it takes half a second and most commands do without
        from fsspec.asyn import sync
    except ImportError:
        raise StoreExtraMissing from None
    for talkative in map(logging.getLogger, _TALKATIVE):
        talkative.setLevel(max(logging.WARNING, talkative.level))
    known = buckets.of(address.bucket)
    with named(address):
        system = s3fs.S3FileSystem(**_arguments(address, known))
        system.retries = 3
        client = system.s3  # connects to nobody yet
    try:
        if not is_safe(str(client.meta.endpoint_url)):
            raise EndpointUnsafe(address)
        yield Store(system, address.bucket)
    finally:
        sync(system.loop, client.close)


def _arguments(address: Address, known: Bucket) -> dict[str, Any]:
    """Everything that decides how a store is reached; what is left out, fsspec's own files could set."""
    from aiobotocore.session import AioSession

    session = AioSession(profile=known.profile)
    if not known.instance_role:
        session.get_component("credential_provider").remove("iam-role")  # it would ask an address nobody configured
    key, secret, token = (_secret(address, variable) for variable in (known.key_env, known.secret_env, known.token_env))
    proxies = {} if known.proxy is None else {"http": known.proxy, "https": known.proxy}
    written = {"ServerSideEncryption": known.encryption, "SSEKMSKeyId": known.kms_key}
    return {
        "anon": False,
        "session": session,
        "key": key,
        "secret": secret,
        "token": token,
        "endpoint_url": known.endpoint_url,
        "use_ssl": True,
        "client_kwargs": {"region_name": known.region, "verify": known.ca_file},
        "config_kwargs": {
            "proxies": proxies,
            "connect_timeout": 10,
            "read_timeout": 60,
            "retries": {"mode": "standard", "max_attempts": 2},
            # Stores of other makers know no trailing checksums; what matters is compared by SHA-256 here.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
        "s3_additional_kwargs": {name: value for name, value in written.items() if value is not None},
        "requester_pays": False,
        "version_aware": False,
        "cache_regions": False,
        "fixed_upload_size": True,
        "local_expiry_check": False,
        "use_listings_cache": False,
        "skip_instance_cache": True,
    }


def _secret(address: Address, variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (found := os.environ.get(variable, "")):
        raise CredentialsUnset(address, variable)
    return found
