"""Google Cloud Storage, through fsspec's file system of its JSON API; the state of an object is its generation.

It is gcsfs's core class: the one that the package shows also asks a control server by gRPC. Tokens are fetched over the
same session as objects, because gcsfs would use the environment's proxies and has no deadline for them.
"""

import asyncio
import json
import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError
from google import auth
from google.auth import compute_engine
from google.auth.exceptions import GoogleAuthError, TransportError

from tasks.common.files import open_user_file
from tasks.object_storage.address import Address
from tasks.object_storage.bucket_settings import GoogleSettings, is_safe, read_secret
from tasks.object_storage.errors import StoreAnswer, StoreDenied
from tasks.object_storage.request_limits import deadline, open_session

_SERVER: Final = "https://storage.googleapis.com"
_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
_MACHINE_ROLE_HOSTS: Final = {"169.254.169.254", "metadata.google.internal"}
_ITEM: Final = "name,size,generation"


class GoogleFiles(GCSFileSystem):  # type: ignore[misc]  # it has no types
    """One bucket; an `ObjectFiles`.

    Raises:
        CredentialsUnset: a variable that the settings name is empty.
        StoreDenied: there are no credentials.
    """

    protocol = "almoner-gs"  # fsspec's own files could set arguments of `gs`
    cachable = False
    _session: aiohttp.ClientSession | None
    errors: Final = (aiohttp.ClientError, GoogleAuthError)

    def __init__(self, address: Address, settings: GoogleSettings) -> None:
        credentials = _credentials(address, settings)
        server = settings.endpoint_url or _SERVER
        super().__init__(token="anon", endpoint_url=server, use_listings_cache=False)  # noqa: S106 - no gcsfs credentials
        self.credentials = credentials
        self._settings = settings

    async def head(self, bucket: str, key: str) -> tuple[int, str]:
        """Return the size and the generation of an object."""
        _, size, generation = _entry(await self._ask("b/{}/o/{}", bucket, key, fields=_ITEM))
        return size, generation

    async def page(self, bucket: str, prefix: str, marker: str) -> tuple[list[tuple[str, int, str]], str | None]:
        """Return up to 1,000 objects."""
        try:
            answer = await self._ask(
                "b/{}/o", bucket, prefix=prefix, pageToken=marker or None, fields=f"items({_ITEM}),nextPageToken"
            )
        except FileNotFoundError:
            raise StoreAnswer("NoSuchBucket") from None
        return [_entry(item) for item in answer.get("items", ())], answer.get("nextPageToken")

    async def read(self, bucket: str, key: str, tag: str, first: int, last: int) -> bytes:
        """Return a range of an object; `Accept-Encoding: gzip` keeps the store from unpacking it."""
        try:
            _, data = await self._call(
                "GET",
                f"{self._location}/download/storage/v1/b/{{}}/o/{{}}",
                bucket,
                key,
                headers={"Range": f"bytes={first}-{last}", "Accept-Encoding": "gzip"},
                alt="media",
                ifGenerationMatch=tag,
            )
        except (FileNotFoundError, FileExistsError):
            raise StoreAnswer("412") from None
        return bytes(data)

    async def put(self, bucket: str, key: str, path: Path, mode: str) -> None:
        """Upload a file (ifGenerationMatch=0 in the mode "create"), large ones in parts."""
        try:
            await self._put_file(str(path), f"{bucket}/{key}", mode=mode)
        except FileNotFoundError:
            raise StoreAnswer("NoSuchBucket") from None

    async def close(self) -> None:
        """Close the session."""
        await (await self._set_session()).close()

    async def _set_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = open_session(self._settings)
        return self._session

    async def _ask(self, path: str, *given: str, **parameters: str | None) -> dict[str, Any]:
        _, body = await self._call("GET", path, *given, **parameters)
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise StoreAnswer("no-json")
        return answer

    async def _request(self, method: str, path: str, *given: Any, **options: Any) -> Any:
        if path.startswith("http") and not path.startswith(f"{self._location}/"):
            raise StoreAnswer("another-server")  # the store says where an upload goes on
        async with deadline(len(options.get("data") or b"")):
            if not self.credentials.valid:
                await self._renew_token()
            try:
                return await super()._request(method, path, *given, **options)
            except HttpError as problem:
                raise StoreAnswer(str(problem.code)) from None
            except ValueError:
                raise StoreAnswer("400") from None
            except OSError as problem:
                if str(problem).startswith("Forbidden"):
                    raise StoreAnswer("403") from None
                raise

    async def _renew_token(self) -> None:
        try:
            await asyncio.to_thread(self.credentials.refresh, self._request_token)
        except (GoogleAuthError, ValueError) as problem:
            if isinstance(problem, TransportError) or getattr(problem, "retryable", False):
                raise
            raise StoreAnswer("401") from None

    def _request_token(
        self, url: str, method: str = "GET", body: Any = None, headers: Any = None, **_: Any
    ) -> SimpleNamespace:
        """Send a request of Google's library, from its thread."""
        is_role = self._settings.instance_role and urlsplit(url).hostname in _MACHINE_ROLE_HOSTS
        if not is_safe(url) and not is_role:
            raise StoreAnswer("PlainHttp")

        async def send() -> SimpleNamespace:
            async with deadline():
                session = await self._set_session()
                async with session.request(method, url, data=body, headers=headers) as answer:
                    return SimpleNamespace(status=answer.status, headers=answer.headers, data=await answer.read())

        return asyncio.run_coroutine_threadsafe(send(), self.loop).result()


def _entry(item: Any) -> tuple[str, int, str]:
    try:
        return str(item["name"]), int(item["size"]), str(int(item["generation"]))
    except (KeyError, TypeError, ValueError):
        raise StoreAnswer("no-object") from None


def _credentials(address: Address, settings: GoogleSettings) -> Any:
    """Return the credentials of the file that the settings or Google's variable name, or of the user's own file."""
    if settings.instance_role:
        return compute_engine.Credentials(scopes=[_SCOPE])
    path = read_secret(address, settings.credentials_env) or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    folder = Path(os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config" / "gcloud")
    try:
        with open_user_file(Path(path or folder / "application_default_credentials.json")) as file:
            written = json.load(file)
        with warnings.catch_warnings(action="ignore"):  # it warns of files from elsewhere; this is the operator's own
            credentials, _ = auth.load_credentials_from_dict(written, scopes=[_SCOPE])
    except (OSError, ValueError, AttributeError, GoogleAuthError):
        raise StoreDenied(address, "there are no credentials") from None
    return credentials
