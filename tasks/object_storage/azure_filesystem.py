"""Azure Blob Storage, through fsspec's file system of it; the state of a blob is its entity tag.

The client below it is made here: the one of adlfs takes proxies and accounts of the environment.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from adlfs import AzureBlobFileSystem
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.pipeline.transport import AioHttpTransport
from azure.identity import aio as identity
from azure.storage.blob import aio as blob

from tasks.object_storage.address import Address
from tasks.object_storage.bucket_settings import AzureSettings, read_secret
from tasks.object_storage.errors import StoreAnswer
from tasks.object_storage.request_limits import deadline, open_session


class AzureFiles(AzureBlobFileSystem):  # type: ignore[misc]  # it has no types
    """One container; an `ObjectFiles`.

    Raises:
        CredentialsUnset: a variable that the settings name is empty.
    """

    protocol = "almoner-az"  # fsspec's own files could set arguments of `az`
    cachable = False
    errors: Final = (AzureError,)

    def __init__(self, address: Address, settings: AzureSettings) -> None:
        self._settings = settings
        super().__init__(
            account_name=settings.account,
            credential=_credential(address, settings),
            max_concurrency=1,
            use_listings_cache=False,
        )

    def do_connect(self) -> None:
        """Make the client; it connects to nobody yet."""
        self.service_client = blob.BlobServiceClient(
            self._settings.endpoint_url or f"https://{self._settings.account}.blob.core.windows.net",
            credential=self.credential,
            transport=_Transport(self._settings),
            retry_policy=blob.ExponentialRetry(initial_backoff=1, increment_base=1, retry_total=2),
            permit_redirects=False,
        )

    async def head(self, bucket: str, key: str) -> tuple[int, str]:
        """Return the size and the entity tag of a blob; a folder of an account with a hierarchy is none."""
        try:
            async with _answers():
                found = await self.service_client.get_blob_client(bucket, key).get_blob_properties()
        except StoreAnswer as problem:
            if problem.args == ("404",):
                raise FileNotFoundError from None
            raise
        if _is_folder(found):
            raise FileNotFoundError
        return _state(found)

    async def page(self, bucket: str, prefix: str, marker: str) -> tuple[list[tuple[str, int, str]], str | None]:
        """Return up to 5,000 blobs."""
        container = self.service_client.get_container_client(bucket)
        pages = container.list_blobs(name_starts_with=prefix, include=["metadata"]).by_page(marker or None)
        async with _answers():
            listed = [found async for found in await anext(pages)]
        return [(found.name, *_state(found)) for found in listed if not _is_folder(found)], pages.continuation_token

    async def read(self, bucket: str, key: str, tag: str, first: int, last: int) -> bytes:
        """Return a range of a blob (If-Match)."""
        size = last - first + 1

        def check_length(answer: Any) -> None:
            headers, status = answer.http_response.headers, answer.http_response.status_code
            if status in (200, 206) and not 0 <= int(headers.get("Content-Length", -1)) <= size:
                answer.http_response.internal_response.close()
                raise ConnectionAbortedError("more than was requested")

        async with _answers(size):
            stream = await self.service_client.get_blob_client(bucket, key).download_blob(
                offset=first,
                length=size,
                etag=f'"{tag}"',
                match_condition=MatchConditions.IfNotModified,
                max_concurrency=1,
                decompress=False,
                raw_response_hook=check_length,
            )
            data: bytes = await stream.readall()
        return data

    async def put(self, bucket: str, key: str, path: Path, mode: str) -> None:
        """Upload a file (If-None-Match in the mode "create"), large ones in parts."""
        try:
            async with _answers(path.stat().st_size):
                await self._put_file(str(path), f"{bucket}/{key}", mode=mode)
        except FileNotFoundError:
            raise StoreAnswer("NoSuchBucket") from None

    async def close(self) -> None:
        """Close the client and what fetches tokens."""
        await self.service_client.close()
        if isinstance(self.credential, identity.ChainedTokenCredential):
            await self.credential.close()


class _Transport(AioHttpTransport):  # type: ignore[misc]  # it has no types
    """Requests over a session that has nothing of the environment."""

    session: Any

    def __init__(self, settings: AzureSettings) -> None:
        super().__init__()
        self._settings = settings

    async def open(self) -> None:
        if self.session is None:
            self.session = open_session(self._settings)
        await super().open()


@asynccontextmanager
async def _answers(size: int = 0) -> AsyncIterator[None]:
    """Name what the store answers inside the block, which has one deadline."""
    try:
        async with deadline(size):
            yield
    except HttpResponseError as problem:
        if problem.status_code is None:
            raise  # there was no answer, or there are no credentials
        is_missing = "ContainerNotFound" in str(getattr(problem, "error_code", ""))
        raise StoreAnswer("NoSuchBucket" if is_missing else str(problem.status_code)) from None


def _is_folder(found: Any) -> bool:
    return "true" in (found.metadata or {}).get("hdi_isfolder", "")


def _state(found: Any) -> tuple[int, str]:
    if found.size is None or not found.etag:
        raise StoreAnswer("no-object")
    return int(found.size), str(found.etag).strip('"')


def _credential(address: Address, settings: AzureSettings) -> Any:
    """Return the account's key, the signature, or an identity: the machine's, the environment's, or of `az login`."""
    if (key := read_secret(address, settings.key_env)) is not None:
        return AzureNamedKeyCredential(settings.account, key)
    if (signature := read_secret(address, settings.sas_env)) is not None:
        return AzureSasCredential(signature)
    transport = {"transport": _Transport(settings), "retry_total": 2, "permit_redirects": False}
    if settings.instance_role:
        return identity.ChainedTokenCredential(identity.ManagedIdentityCredential(**transport))
    if os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return identity.ChainedTokenCredential(identity.WorkloadIdentityCredential(**transport))
    return identity.ChainedTokenCredential(identity.EnvironmentCredential(**transport), identity.AzureCliCredential())
