"""S3-compatible stores: fsspec's S3 file system, each of whose requests has one deadline and a bounded answer."""

from pathlib import Path
from typing import Any, Final

from aiobotocore.session import AioSession
from botocore.exceptions import BotoCoreError, ClientError
from fsspec.asyn import sync
from s3fs import S3FileSystem
from s3fs.core import _error_wrapper

from tasks.object_storage.address import Address
from tasks.object_storage.bucket_settings import S3Settings, is_safe, read_secret
from tasks.object_storage.errors import StoreAnswer, endpoint_unsafe, translate_store_errors
from tasks.object_storage.request_limits import deadline, read_bounded


class S3Files(S3FileSystem):  # type: ignore[misc]  # it has no types
    """One bucket; an `ObjectFiles`. The state of an object is its entity tag."""

    errors: Final = (ClientError, BotoCoreError)
    retries = 3

    async def head(self, bucket: str, key: str) -> tuple[int, str]:
        """Return the size and the entity tag of an object."""
        answer = await self._call_s3("head_object", Bucket=bucket, Key=key)
        return _state(answer.get("ContentLength"), answer.get("ETag"))

    async def page(self, bucket: str, prefix: str, marker: str) -> tuple[list[tuple[str, int, str]], str | None]:
        """Return up to 1,000 objects."""
        more = {"ContinuationToken": marker} if marker else {}
        answer = await self._call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **more)
        listed = [
            (str(item.get("Key", "")), *_state(item.get("Size"), item.get("ETag")))
            for item in answer.get("Contents", ())
        ]
        return listed, str(answer["NextContinuationToken"]) if answer.get("IsTruncated") else None

    async def read(self, bucket: str, key: str, tag: str, first: int, last: int) -> bytes:
        """Return a range of an object (If-Match); the body is read again where the connection broke."""
        size = last - first + 1

        async def read_once() -> bytes:
            answer = await self._call_s3(
                "get_object", Bucket=bucket, Key=key, IfMatch=tag, Range=f"bytes={first}-{last}"
            )
            async with answer["Body"] as body:
                return await read_bounded(body.iter_chunks(1 << 16), size)

        async with deadline(size):
            data: bytes = await _error_wrapper(read_once, retries=self.retries)
        return data

    async def put(self, bucket: str, key: str, path: Path, mode: str) -> None:
        """Upload a file (If-None-Match in the mode "create"), large ones in parts."""
        await self._put_file(str(path), f"{bucket}/{key}", mode=mode)

    async def close(self) -> None:
        """Close the client."""
        await self.s3.close()

    async def _call_s3(self, method: str, *given: Any, **options: Any) -> Any:
        async with deadline(len(options.get("Body", b""))):
            return await super()._call_s3(method, *given, **options)


def _state(size: int | None, tag: str | None) -> tuple[int, str]:
    if size is None or tag is None:
        raise StoreAnswer("no-object")
    return int(size), str(tag)


def open_s3(address: Address, settings: S3Settings) -> S3Files:
    """Open the bucket of an address. This sends no request yet.

    Raises:
        CredentialsUnset: a variable that the settings name is empty.
        EndpointUnsafe: the environment names an endpoint over plain http.
    """
    with translate_store_errors(address, S3Files.errors):
        files = S3Files(**_arguments(address, settings))
        endpoint = str(files.s3.meta.endpoint_url)  # this connects to nobody
    if not is_safe(endpoint):
        sync(files.loop, files.close)
        raise endpoint_unsafe(address)
    return files


def _arguments(address: Address, settings: S3Settings) -> dict[str, Any]:
    """Return all arguments that decide how a store is reached; fsspec's own files could set any that is left out."""
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
