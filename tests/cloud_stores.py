"""Servers on this machine that answer the requests with which almoner reads Google's and Azure's stores.

They check who asks, and misbehave when told to.
"""

import base64
import json
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import yaml
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tasks.object_storage.azure_bucket import shared_key_signature

TOKEN = "ya29.porcelain-heron-marzipan"
SIGNATURE = "velvet%2Bthunder%3D%3D4711"
ACCOUNT = "heronaccount"
ACCOUNT_KEY = base64.b64encode(b"velvet-thunder-marzipan-4711").decode()
SECRETS = (TOKEN, SIGNATURE, unquote(SIGNATURE), ACCOUNT_KEY)


@dataclass
class Reply:
    """What a server sends; `length` is what it claims, if it lies."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None


@dataclass(frozen=True)
class Asked:
    """A request: its kind is `find`, `list`, `read` or `token`."""

    kind: str
    method: str
    url: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]


class CloudStore(ABC):
    """A server until `stop`. Tests fill `objects` and `faults`."""

    scheme: ClassVar[str]
    page: ClassVar[int] = 2

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, tuple[bytes, int]]] = {}
        self.requests: list[Asked] = []
        self.faults: dict[str, list[Callable[[Reply], Reply]]] = defaultdict(list)
        self.before: dict[str, Callable[[], None]] = {}
        self._states = 1000
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                reply = store.answer(self.command, self.path, {name.lower(): v for name, v in self.headers.items()})
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in reply.headers:
                    self.send_header("Content-Length", str(len(reply.body) if reply.length is None else reply.length))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(reply.body)
                if reply.length is not None:
                    self.close_connection = True

            do_GET = _answer  # noqa: N815
            do_HEAD = _answer  # noqa: N815
            do_POST = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Write nothing."""

            def handle(self) -> None:
                with suppress(OSError):
                    super().handle()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        """End it; nobody answers any more."""
        self._server.shutdown()
        self._server.server_close()

    def put(self, place: str, data: bytes) -> None:
        """Put an object at `bucket/key`, in a new state."""
        bucket, _, key = place.partition("/")
        self._states += 1
        self.objects.setdefault(bucket, {})[key] = (data, self._states)

    def remove(self, place: str) -> None:
        """Remove the object at `bucket/key`."""
        bucket, _, key = place.partition("/")
        del self.objects[bucket][key]

    def fail(self, kind: str, fault: Callable[[Reply], Reply], times: int = 1_000) -> None:
        """Misbehave at the next requests of a kind."""
        self.faults[kind] = [fault] * times

    def told_to(self, home: Path, *buckets: str, **more: Any) -> None:
        """Write the settings with which a home finds these buckets here."""
        path = home / "stores.yaml"
        one = {"endpoint_url": self.url, **self.settings(), **more}
        path.write_text(yaml.safe_dump({"buckets": {f"{self.scheme}://{name}": dict(one) for name in buckets}}))
        path.chmod(0o600)

    def answer(self, method: str, url: str, headers: dict[str, str]) -> Reply:
        """Answer a request."""
        asked = self.understood(method, url, headers)
        self.requests.append(asked)
        if (step := self.before.pop(asked.kind, None)) is not None:
            step()
        reply = self.reply(asked)
        return self.faults[asked.kind].pop()(reply) if self.faults[asked.kind] else reply

    def ranged(self, data: bytes, wanted: str) -> Reply:
        """Answer with a range of bytes."""
        first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
        body = data[first : last + 1]
        return Reply(206, body, {"Content-Range": f"bytes {first}-{first + len(body) - 1}/{len(data)}"})

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings of a bucket here, beside the server."""

    @abstractmethod
    def environment(self, folder: Path) -> dict[str, str]:
        """The variables with the credentials."""

    @abstractmethod
    def understood(self, method: str, url: str, headers: dict[str, str]) -> Asked:
        """What a request asks for."""

    @abstractmethod
    def reply(self, asked: Asked) -> Reply:
        """What a store that works answers."""


class GoogleStore(CloudStore):
    """Google Cloud Storage, and the server of its tokens."""

    scheme = "gs"

    def settings(self) -> dict[str, Any]:
        return {"credentials_env": "LAMPLIGHT_GOOGLE"}

    def environment(self, folder: Path) -> dict[str, str]:
        path = folder / "service-account.json"
        key = generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        account = {"type": "service_account", "client_email": "reader@clinic.example", "private_key": key.decode(),
                   "token_uri": f"{self.url}/token", "private_key_id": "1", "project_id": "clinic"}  # fmt: skip
        path.write_text(json.dumps(account))
        return {"LAMPLIGHT_GOOGLE": str(path)}

    def understood(self, method: str, url: str, headers: dict[str, str]) -> Asked:
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if parts.path == "/token":
            return Asked("token", method, url, "", "", query, headers)
        bucket, _, key = parts.path.removeprefix("/storage/v1/b/").partition("/o")
        kind = "list" if not key else "read" if query.get("alt") == "media" else "find"
        return Asked(kind, method, url, bucket, unquote(key.removeprefix("/")), query, headers)

    def reply(self, asked: Asked) -> Reply:
        if asked.kind == "token":
            return _json({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return _json({"error": {"code": 401, "message": "Invalid Credentials"}}, 401)
        if asked.bucket not in self.objects or (asked.kind != "list" and asked.key not in self.objects[asked.bucket]):
            return _json({"error": {"code": 404, "message": f"No such object: {asked.bucket}/{asked.key}"}}, 404)
        objects = self.objects[asked.bucket]
        if asked.kind == "list":
            return self._list(asked, objects)
        data, state = objects[asked.key]
        if asked.kind == "find":
            return _json(_google_item(asked.key, data, state))
        if asked.query["ifGenerationMatch"] != str(state):
            return _json({"error": {"code": 412, "message": "conditionNotMet"}}, 412)
        return self.ranged(data, asked.headers["range"])

    def _list(self, asked: Asked, objects: dict[str, tuple[bytes, int]]) -> Reply:
        names = sorted((name for name in objects if name.startswith(asked.query["prefix"])), key=str.encode)
        start = int(asked.query.get("pageToken", 0))
        shown = names[start : start + self.page]
        page: dict[str, Any] = {"items": [_google_item(name, *objects[name]) for name in shown]} if shown else {}
        return _json(page | ({"nextPageToken": str(start + self.page)} if start + self.page < len(names) else {}))


def _google_item(name: str, data: bytes, state: int) -> dict[str, str]:
    return {"name": name, "size": str(len(data)), "generation": str(state)}


def _json(value: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


class AzureStore(CloudStore):
    """Azure Blob Storage of an account with a hierarchy of folders; it takes a signature or the account's key."""

    scheme = "az"

    def settings(self) -> dict[str, Any]:
        return {"sas_env": "LAMPLIGHT_SAS"}

    def environment(self, folder: Path) -> dict[str, str]:
        return {"LAMPLIGHT_SAS": f"?sv=2023-11-03&sp=rl&sig={SIGNATURE}", "LAMPLIGHT_ACCOUNT_KEY": ACCOUNT_KEY}

    def understood(self, method: str, url: str, headers: dict[str, str]) -> Asked:
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        bucket, _, key = parts.path.removeprefix("/").partition("/")
        kind = "list" if query.get("comp") == "list" else "find" if method == "HEAD" else "read"
        return Asked(kind, method, url, bucket, unquote(key), query, headers)

    def _allowed(self, asked: Asked) -> bool:
        if "sig" in asked.query:
            return asked.query["sig"] == unquote(SIGNATURE)
        sent = {"If-Match" if name == "if-match" else name: value for name, value in asked.headers.items()}
        right = shared_key_signature(ACCOUNT, base64.b64decode(ACCOUNT_KEY), asked.method, asked.url, asked.query, sent)
        return asked.headers.get("authorization") == f"SharedKey {ACCOUNT}:{right}"

    def reply(self, asked: Asked) -> Reply:
        if not self._allowed(asked):
            return _error(403, "AuthenticationFailed")
        if asked.bucket not in self.objects:
            return _error(404, "ContainerNotFound")
        objects = self.objects[asked.bucket]
        if asked.kind == "list":
            return self._list(asked, objects)
        if asked.key not in objects:
            if asked.kind == "find" and any(name.startswith(f"{asked.key}/") for name in objects):
                folder = {"x-ms-meta-hdi_isfolder": "true", "ETag": '"0x1"', "Content-Length": "0"}
                return Reply(200, b"", folder)
            return _error(404, "BlobNotFound")
        data, state = objects[asked.key]
        if asked.kind == "find":
            return Reply(200, b"", {"ETag": f'"{_azure_tag(state)}"', "Content-Length": str(len(data))})
        if asked.headers["if-match"] != f'"{_azure_tag(state)}"':
            return _error(412, "ConditionNotMet")
        return self.ranged(data, asked.headers["x-ms-range"])

    def _list(self, asked: Asked, objects: dict[str, tuple[bytes, int]]) -> Reply:
        names = [name for name in objects if name.startswith(asked.query["prefix"])]
        folders = {str(above) for name in names for above in list(Path(name).parents)[:-1]}
        folders = {name for name in folders if name.startswith(asked.query["prefix"])}
        names = sorted({*names, *folders}, key=lambda name: name.split("/"))
        start = int(asked.query.get("marker", 0))
        rows = "".join(self._row(name, objects) for name in names[start : start + self.page])
        more = str(start + self.page) if start + self.page < len(names) else ""
        page = f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>{rows}</Blobs>'
        page += f"<NextMarker>{more}</NextMarker></EnumerationResults>"
        return Reply(200, b"\xef\xbb\xbf" + page.encode(), {"Content-Type": "application/xml"})

    def _row(self, name: str, objects: dict[str, tuple[bytes, int]]) -> str:
        data, state = objects.get(name, (b"", 1))
        kind = "file" if name in objects else "directory"
        return (
            f"<Blob><Name>{escape(name)}</Name><Properties><Etag>{_azure_tag(state)}</Etag>"
            f"<Content-Length>{len(data)}</Content-Length><ResourceType>{kind}</ResourceType></Properties></Blob>"
        )


def _azure_tag(state: int) -> str:
    return "0x" + md5(str(state).encode(), usedforsecurity=False).hexdigest()[:15].upper()


def _error(status: int, code: str) -> Reply:
    body = f"<Error><Code>{code}</Code><Message>{code} {SIGNATURE}</Message></Error>".encode()
    return Reply(status, body, {"x-ms-error-code": code})


def status(code: int) -> Callable[[Reply], Reply]:
    """A fault: an error of that status, with words that quote a secret."""
    return lambda _: Reply(code, f"{TOKEN} {SIGNATURE} Zebulon Quartermaine".encode())


def cut(reply: Reply) -> Reply:
    """A fault: the connection ends before the body does."""
    return Reply(reply.status, reply.body[:-1], reply.headers, len(reply.body))


def shorter(reply: Reply) -> Reply:
    """A fault: a byte less, and the length says so."""
    return Reply(reply.status, reply.body[:-1], reply.headers)


def longer(reply: Reply) -> Reply:
    """A fault: a byte more, and the length says so."""
    return Reply(reply.status, reply.body + b"\n", reply.headers)


def whole(reply: Reply) -> Reply:
    """A fault: the answer to a request without a range."""
    return Reply(200, reply.body, {})


def shifted(reply: Reply) -> Reply:
    """A fault: another range than was asked for."""
    return Reply(206, reply.body, {"Content-Range": "bytes 1-2/3"})


def elsewhere(url: str) -> Callable[[Reply], Reply]:
    """A fault: a redirection."""
    return lambda _: Reply(302, b"", {"Location": url})


def slow(reply: Reply) -> Reply:
    """A fault: an answer that comes when nobody waits for it any more."""
    time.sleep(1)
    return reply


STORES = {kind.scheme: kind for kind in (GoogleStore, AzureStore)}
