"""Bucket of Google Cloud Storage, through its JSON API; the state of an object is its generation.

Google, "Cloud Storage JSON API v1".
"""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tasks.common.files import open_user_file
from tasks.object_storage.address import Address
from tasks.object_storage.backend import Entry, read_secret
from tasks.object_storage.bucket_settings import GoogleSettings
from tasks.object_storage.errors import NoCredentialsError, StoreAnswer, translate_store_errors
from tasks.object_storage.http_bucket import Answer, HttpBucket, Session

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

_SERVER: Final = "https://storage.googleapis.com"
_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_only"
_ITEM: Final = "name,size,generation"


class GoogleBucket(HttpBucket):
    """One bucket."""

    sorted = True

    def __init__(self, session: Session, url: str, credentials: "Credentials") -> None:
        from google.auth.transport.requests import Request

        super().__init__(session, f"{url}/storage/v1/b")
        self._credentials = credentials
        self._refreshing = Request(session)

    def find(self, address: Address) -> Entry | None:
        """Return the object at exactly this address, or None."""
        try:
            answer = self.request("GET", _object_path(address), {"fields": _ITEM}, {})
        except StoreAnswer as problem:
            if problem.args == ("404",):
                return None
            raise
        return _entry(address, _decoded(answer))

    def pages(self, address: Address, prefix: str) -> Iterator[list[Entry]]:
        """Yield every object whose key begins with `prefix`."""
        parameters = {"prefix": prefix, "fields": f"items({_ITEM}),nextPageToken", "maxResults": "1000"}
        while True:
            try:
                page = _decoded(self.request("GET", f"{address.bucket}/o", parameters, {}))
            except StoreAnswer as problem:
                raise StoreAnswer("NoSuchBucket") if problem.args == ("404",) else problem from None
            yield [_entry(address, item) for item in page.get("items", ())]
            if not page.get("nextPageToken"):
                return
            parameters["pageToken"] = str(page["nextPageToken"])

    def read(self, entry: Entry, first: int, last: int) -> Answer:
        """Request a range of the bytes as stored: `Accept-Encoding: gzip` keeps the store from unpacking them."""
        return self.request(
            "GET",
            _object_path(entry.address),
            {"alt": "media", "ifGenerationMatch": entry.tag},
            {"Range": f"bytes={first}-{last}", "Accept-Encoding": "gzip"},
            last - first + 1,
        )

    def authorize(self, method: str, url: str, parameters: dict[str, str], headers: dict[str, str]) -> None:
        """Add a token, and renew it where it has run out."""
        from google.auth.exceptions import GoogleAuthError, TransportError
        from requests.exceptions import ConnectTimeout

        if not self._credentials.valid:
            try:
                self._credentials.refresh(self._refreshing)
            except (GoogleAuthError, ValueError) as problem:
                if isinstance(problem, TransportError) or getattr(problem, "retryable", False):
                    raise ConnectTimeout("no token") from problem
                raise StoreAnswer("401") from None
        headers["Authorization"] = f"Bearer {self._credentials.token}"
        headers.setdefault("Accept-Encoding", "identity")

    def code(self, answer: Answer) -> str:
        """Return the status: what else Google says quotes names."""
        return str(answer.status)


def _object_path(address: Address) -> str:
    return f"{address.bucket}/o/{quote(address.key, safe='')}"


def _decoded(answer: Answer) -> dict[str, Any]:
    try:
        value = json.loads(answer.body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise StoreAnswer("no-json")
    return value


def _entry(address: Address, item: dict[str, Any]) -> Entry:
    try:
        return Entry(replace(address, key=str(item["name"])), int(item["size"]), str(int(item["generation"])))
    except (KeyError, TypeError, ValueError):
        raise StoreAnswer("no-object") from None


@contextmanager
def open_google(address: Address, settings: GoogleSettings) -> Iterator[GoogleBucket]:
    """Open the bucket of an address until the end of the block. This sends no request yet.

    Raises:
        ImportError: the extra `gcs` is not installed.
        CredentialsUnset: a variable that the settings name is empty.
        StoreDenied: there are no credentials.
    """
    with translate_store_errors(address):
        credentials = _credentials(address, settings)
    with Session(settings) as session:
        yield GoogleBucket(session, settings.endpoint_url or _SERVER, credentials)


def _credentials(address: Address, settings: GoogleSettings) -> "Credentials":
    """Return the credentials of the file that the settings or Google's variable name, or of the user's own file."""
    from google import auth
    from google.auth import compute_engine
    from google.auth.exceptions import GoogleAuthError

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
        raise NoCredentialsError from None
    return credentials
