"""Bucket of an S3-compatible store, through fsspec's S3 file system.

Reads are pinned to one state of the object by its entity tag (If-Match); new objects take a free name only
(If-None-Match). Nothing is cached, nothing is deleted, and no bucket is created.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tasks.object_storage.address import Address
from tasks.object_storage.backend import Entry, read_secret
from tasks.object_storage.bucket_settings import S3Settings, is_safe
from tasks.object_storage.errors import EndpointUnsafe, StoreAnswer, translate_store_errors

if TYPE_CHECKING:
    from s3fs import S3FileSystem

_READ_AHEAD: Final = 8 << 20


class S3Bucket:
    """One bucket; a `Backend`."""

    sorted = True

    def __init__(self, system: "S3FileSystem", errors: tuple[type[Exception], ...]) -> None:
        self.system = system
        self.errors = errors

    def find(self, address: Address) -> Entry | None:
        """Return the object at exactly this address, or None."""
        try:
            head = self.system.call_s3("head_object", Bucket=address.bucket, Key=address.key)
        except FileNotFoundError:
            return None
        return _entry(address, head, "ContentLength")

    def pages(self, address: Address, prefix: str) -> Iterator[list[Entry]]:
        """Yield every object whose key begins with `prefix`."""
        more: dict[str, str] = {}
        while True:
            page = self.system.call_s3("list_objects_v2", Bucket=address.bucket, Prefix=prefix, **more)
            yield [
                _entry(replace(address, key=str(item.get("Key", ""))), item, "Size")
                for item in page.get("Contents", ())
            ]
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": str(page["NextContinuationToken"])}

    def open(self, entry: Entry) -> BinaryIO:
        """Open an object for reading in exactly the state of `entry`."""
        try:
            file = self.system.open(
                f"{entry.address.bucket}/{entry.address.key}", "rb", block_size=_READ_AHEAD, cache_type="readahead"
            )
            tag = str(file.details.get("ETag"))
        except FileNotFoundError:
            raise StoreAnswer("404") from None
        except KeyError:
            raise StoreAnswer("no-object") from None
        if tag != entry.tag:
            raise StoreAnswer("412")
        opened: BinaryIO = file
        return opened

    def put(self, address: Address, path: Path, mode: str) -> None:
        """Upload a file under a name, atomically; with mode "create", only if the name is free."""
        self.system.put_file(str(path), f"{address.bucket}/{address.key}", mode=mode)


def _entry(address: Address, item: Mapping[str, Any], size: str) -> Entry:
    if not address.key or size not in item or "ETag" not in item:
        raise StoreAnswer("no-object")
    return Entry(address, int(item[size]), str(item["ETag"]))


@contextmanager
def open_s3(address: Address, settings: S3Settings) -> Iterator[S3Bucket]:
    """Open the bucket of an address until the end of the block. This sends no request yet.

    Raises:
        ImportError: the extra `s3` is not installed.
        CredentialsUnset: a variable that the settings name is empty.
        EndpointUnsafe: the environment names an endpoint over plain http.
    """
    # local imports: they take half a second, and most commands need no store
    from botocore.exceptions import BotoCoreError, ClientError
    from fsspec.asyn import sync

    from tasks.object_storage.timed_s3 import TimedS3

    errors = (ClientError, BotoCoreError)
    with translate_store_errors(address, errors):
        system = TimedS3(**_arguments(address, settings))
        system.retries = 3
        client = system.s3  # connects to nobody yet
    try:
        if not is_safe(str(client.meta.endpoint_url)):
            raise EndpointUnsafe(address)
        yield S3Bucket(system, errors)
    finally:
        sync(system.loop, client.close)


def _arguments(address: Address, settings: S3Settings) -> dict[str, Any]:
    """Return all arguments that decide how a store is reached; fsspec's own files could set any that is left out."""
    from aiobotocore.session import AioSession

    session = AioSession(profile=settings.profile)
    if not settings.instance_role:
        session.get_component("credential_provider").remove("iam-role")  # queries an unconfigured address
    key, secret, token = (
        read_secret(address, variable) for variable in (settings.key_env, settings.secret_env, settings.token_env)
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
