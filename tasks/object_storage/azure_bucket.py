"""Container of Azure Blob Storage, through its REST API; the state of a blob is its entity tag.

https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from email.utils import formatdate
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree

from tasks.object_storage.address import Address
from tasks.object_storage.backend import Entry, read_secret
from tasks.object_storage.bucket_settings import AzureSettings
from tasks.object_storage.errors import AccountMissing, NoCredentialsError, StoreAnswer, translate_store_errors
from tasks.object_storage.http_bucket import Answer, HttpBucket, Session

_VERSION: Final = "2023-11-03"
_SCOPE: Final = "https://storage.azure.com/.default"
_TOKEN_MARGIN: Final = 300.0
"""Seconds before its end from which a token is renewed."""
_CODES: Final = {
    "ContainerNotFound": "NoSuchBucket",
    "ContainerBeingDeleted": "NoSuchBucket",
    "ConditionNotMet": "412",
    "BlobNotFound": "404",
    "NoAuthenticationInformation": "401",
    "PublicAccessNotPermitted": "403",
}
_CODE: Final = re.compile(r"[A-Za-z0-9]{1,60}")

Authorize: TypeAlias = Callable[[str, str, dict[str, str], dict[str, str]], None]
"""Adds to a method, an URL, parameters and headers what proves who asks."""


class AzureBucket(HttpBucket):
    """One container."""

    sorted = False  # accounts with a hierarchy of folders list by folder

    def __init__(self, session: Session, url: str, authorize: Authorize) -> None:
        super().__init__(session, url)
        self._authorize = authorize

    def find(self, address: Address) -> Entry | None:
        """Return the blob at exactly this address, or None; a folder of an account with a hierarchy is none."""
        try:
            answer = self.request("HEAD", _blob_path(address), {}, {})
        except StoreAnswer as problem:
            if problem.args[0] in ("404", "NoSuchBucket"):
                return None
            raise
        headers = answer.headers
        if headers.get("x-ms-meta-hdi_isfolder") == "true" or headers.get("x-ms-resource-type") == "directory":
            return None
        return _entry(address, headers.get("Content-Length"), headers.get("ETag"))

    def pages(self, address: Address, prefix: str) -> Iterator[list[Entry]]:
        """Yield every blob whose name begins with `prefix`."""
        parameters = {"restype": "container", "comp": "list", "prefix": prefix, "include": "metadata",
                      "maxresults": "1000"}  # fmt: skip
        while True:
            page = _decoded(self.request("GET", address.bucket, parameters, {}))
            yield [_listed(address, blob) for blob in page.iterfind("Blobs/Blob") if not _is_folder(blob)]
            if not (marker := page.findtext("NextMarker")):
                return
            parameters["marker"] = marker

    def read(self, entry: Entry, first: int, last: int) -> Answer:
        """Request a range of the blob's bytes."""
        return self.request(
            "GET",
            _blob_path(entry.address),
            {},
            {"If-Match": f'"{entry.tag}"', "x-ms-range": f"bytes={first}-{last}"},
            last - first + 1,
        )

    def authorize(self, method: str, url: str, parameters: dict[str, str], headers: dict[str, str]) -> None:
        """Add the version of the protocol, and what proves who asks."""
        headers |= {
            "x-ms-version": _VERSION,
            "x-ms-date": formatdate(usegmt=True),
            "Accept-Encoding": "identity",
        }
        self._authorize(method, url, parameters, headers)

    def code(self, answer: Answer) -> str:
        """Return the code of the answer's header, or its status where there is no known one."""
        code = answer.headers.get("x-ms-error-code", "")
        if code in _CODES:
            return _CODES[code]
        if answer.status in (401, 403, 404, 412) or not _CODE.fullmatch(code):
            return str(answer.status)
        return code


def _blob_path(address: Address) -> str:
    if any(part in (".", "..") for part in address.key.split("/")):
        raise StoreAnswer("name")  # an URL has no such part: it would name another blob
    return f"{address.bucket}/{quote(address.key, safe='/')}"


def _decoded(answer: Answer) -> ElementTree.Element:
    """Return the root of an answer in XML; a declaration of entities, which could grow without limit, is refused."""
    try:
        text = answer.body.decode("utf-8-sig")
        if "<!DOCTYPE" in text:
            raise StoreAnswer("no-XML")
        return ElementTree.fromstring(text)  # noqa: S314 - there are no entities in it
    except (UnicodeDecodeError, ElementTree.ParseError):
        raise StoreAnswer("no-XML") from None


def _is_folder(blob: ElementTree.Element) -> bool:
    kind, mark = blob.findtext("Properties/ResourceType"), blob.findtext("Metadata/hdi_isfolder")
    return kind == "directory" or mark == "true"


def _listed(address: Address, blob: ElementTree.Element) -> Entry:
    name = blob.find("Name")
    if name is None or not name.text:
        raise StoreAnswer("no-blob")
    key = unquote(name.text) if name.get("Encoded") == "true" else name.text
    size, tag = blob.findtext("Properties/Content-Length"), blob.findtext("Properties/Etag")
    return _entry(replace(address, key=key), size, tag)


def _entry(address: Address, size: str | None, tag: str | None) -> Entry:
    if not tag or size is None or not size.isdecimal():
        raise StoreAnswer("no-blob")
    return Entry(address, int(size), tag.strip('"'))


@contextmanager
def open_azure(address: Address, settings: AzureSettings) -> Iterator[AzureBucket]:
    """Open the container of an address until the end of the block. This sends no request yet.

    Raises:
        ImportError: an identity of Microsoft Entra is needed, and the extra `azure` is not installed.
        AccountMissing: the settings name neither an account nor a server.
        CredentialsUnset: a variable that the settings name is empty.
        StoreDenied: there are no credentials.
    """
    if settings.account is None and settings.endpoint_url is None:
        raise AccountMissing(address)
    url = settings.endpoint_url or f"https://{settings.account}.blob.core.windows.net"
    with Session(settings) as session:
        with translate_store_errors(address):
            authorize = _authorization(address, settings, session)
        yield AzureBucket(session, url, authorize)


def _authorization(address: Address, settings: AzureSettings, session: Session) -> Authorize:
    key = read_secret(address, settings.key_env)
    signature = read_secret(address, settings.sas_env)
    if signature is not None:
        proof = dict(parse_qsl(signature.lstrip("?"), keep_blank_values=True))
        return lambda _method, _url, parameters, _headers: parameters.update(proof)
    if key is not None:
        try:
            raw_key = base64.b64decode(key, validate=True)
        except binascii.Error:
            raise NoCredentialsError from None
        account = str(settings.account)

        def sign(method: str, url: str, parameters: dict[str, str], headers: dict[str, str]) -> None:
            signed = shared_key_signature(account, raw_key, method, url, parameters, headers)
            headers["Authorization"] = f"SharedKey {account}:{signed}"

        return sign
    return _Entra(settings, session)


def shared_key_signature(
    account: str, key: bytes, method: str, url: str, parameters: Mapping[str, str], headers: Mapping[str, str]
) -> str:
    """Return the signature of a request without a body with the key of an account.

    https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key, "Constructing the signature string".
    Of the standard headers only `If-Match` is used.
    """
    own = sorted((name.lower(), value) for name, value in headers.items() if name.lower().startswith("x-ms-"))
    lines = [method, *[""] * 7, headers.get("If-Match", ""), *[""] * 3]
    lines += [f"{name}:{value}" for name, value in own]
    lines.append(f"/{account}{urlsplit(url).path}")
    lines += [f"{name.lower()}:{value}" for name, value in sorted(parameters.items())]
    return base64.b64encode(hmac.digest(key, "\n".join(lines).encode(), hashlib.sha256)).decode()


class _Entra:
    """Authorization by an identity of Microsoft Entra: the machine's, the environment's, or that of `az login`."""

    def __init__(self, settings: AzureSettings, session: Session) -> None:
        from azure import identity
        from azure.core.pipeline.transport import RequestsTransport

        transport: dict[str, Any] = {
            "transport": RequestsTransport(session=session, session_owner=False, use_env_settings=False),
            "proxies": session.proxies,
            "connection_verify": session.verify,
            "retry_total": 2,
        }
        if settings.instance_role:
            self._sources: tuple[Any, ...] = (identity.ManagedIdentityCredential(**transport),)
        elif os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
            self._sources = (identity.WorkloadIdentityCredential(**transport),)
        else:
            self._sources = (identity.EnvironmentCredential(**transport), identity.AzureCliCredential())
        self._token = ""
        self._until = 0.0

    def __call__(self, method: str, url: str, parameters: dict[str, str], headers: dict[str, str]) -> None:
        if self._until < time.time() + _TOKEN_MARGIN:
            self._renew()
        headers["Authorization"] = f"Bearer {self._token}"

    def _renew(self) -> None:
        """Get a token from the first source that has one.

        Raises:
            NoCredentialsError, StoreAnswer, requests.ConnectionError.
        """
        from azure.core.exceptions import AzureError, ClientAuthenticationError
        from azure.identity import CredentialUnavailableError
        from requests.exceptions import ConnectTimeout

        for source in self._sources:
            try:
                found = source.get_token(_SCOPE)
            except CredentialUnavailableError:
                continue
            except (ClientAuthenticationError, ValueError):
                raise StoreAnswer("401") from None
            except AzureError as problem:
                raise ConnectTimeout("no token") from problem
            self._token, self._until = found.token, found.expires_on
            return
        raise NoCredentialsError
