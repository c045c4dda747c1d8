"""Servers on this machine that answer the requests with which gcsfs and adlfs reach Google's and Azure's stores.

They are written from the documentation of the two APIs, check who asks, keep what they are sent, and misbehave when a
test says so. Nothing here shows how the real servers behave.
"""

import json
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import yaml
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

TOKEN = "ya29.porcelain-heron-marzipan"
SIGNATURE = "velvet+thunder==4711"
SECRETS = (TOKEN, SIGNATURE, "velvet%2Bthunder%3D%3D4711")


@dataclass
class Reply:
    """What a server sends; `length` is what it claims, if it lies."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None


@dataclass(frozen=True)
class Asked:
    """A request; its kind is `find`, `list`, `read`, `write` or `token`."""

    kind: str
    method: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class CloudStore(ABC):
    """A server until `stop`. Tests fill `objects` and `faults`."""

    scheme: ClassVar[str]
    page: ClassVar[int] = 2

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, tuple[bytes, int]]] = {}
        self.requests: list[Asked] = []
        self.faults: dict[str, list[Callable[[Reply], Reply]]] = defaultdict(list)
        self._states = 1000
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                reply = store.answer(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
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

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

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

    def get(self, place: str) -> bytes:
        """The object at `bucket/key`."""
        bucket, _, key = place.partition("/")
        return self.objects[bucket][key][0]

    def fail(self, kind: str, fault: Callable[[Reply], Reply], times: int = 1_000) -> None:
        """Misbehave at the next requests of a kind."""
        self.faults[kind] = [fault] * times

    def told_to(self, home: Path, *buckets: str) -> None:
        """Write the settings with which a home finds these buckets here."""
        path = home / "stores.yaml"
        path.write_text(
            yaml.safe_dump(
                {"buckets": {f"{self.scheme}://{b}": {"endpoint_url": self.url, **self.settings} for b in buckets}}
            )
        )
        path.chmod(0o600)

    def answer(self, method: str, url: str, headers: dict[str, str], body: bytes) -> Reply:
        """Answer a request."""
        asked = self.understood(method, urlsplit(url).path, dict(parse_qsl(urlsplit(url).query)), headers, body)
        self.requests.append(asked)
        reply = self.reply(asked)
        return self.faults[asked.kind].pop()(reply) if self.faults[asked.kind] else reply

    settings: ClassVar[dict[str, Any]]

    @abstractmethod
    def environment(self, folder: Path) -> dict[str, str]:
        """The variables with the credentials."""

    @abstractmethod
    def understood(self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> Asked:
        """What a request asks for."""

    @abstractmethod
    def reply(self, asked: Asked) -> Reply:
        """What a store that works answers."""


def ranged(data: bytes, wanted: str) -> Reply:
    """Answer with a range of bytes."""
    first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
    body = data[first : last + 1]
    return Reply(206, body, {"Content-Range": f"bytes {first}-{first + len(body) - 1}/{len(data)}"})


class GoogleStore(CloudStore):
    """Google Cloud Storage, and the server of its tokens."""

    scheme = "gs"
    settings: ClassVar = {"credentials_env": "LAMPLIGHT_GOOGLE"}

    def environment(self, folder: Path) -> dict[str, str]:
        return {"LAMPLIGHT_GOOGLE": str(service_account(folder, f"{self.url}/token"))}

    def understood(self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> Asked:
        if path == "/token":
            return Asked("token", method, "", "", query, headers, body)
        bucket, _, key = path.partition("/storage/v1/b/")[2].partition("/o")
        key = query.get("name") or unquote(key.removeprefix("/"))
        kind = "write" if path.startswith("/upload/") else "read" if "alt" in query else "find" if key else "list"
        return Asked(kind, method, bucket, key, query, headers, body)

    def reply(self, asked: Asked) -> Reply:
        if asked.kind == "token":
            return _json({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return _json({"error": {"code": 401, "message": "Invalid Credentials"}}, 401)
        objects = self.objects.get(asked.bucket, {})
        if asked.bucket not in self.objects or (asked.kind in ("find", "read") and asked.key not in objects):
            return _json({"error": {"code": 404, "message": f"No such object: {asked.bucket}/{asked.key}"}}, 404)
        if asked.kind == "list":
            return self._list(asked, objects)
        if asked.kind == "write":
            return self._write(asked, objects)
        data, state = objects[asked.key]
        if asked.kind == "find":
            return _json(_google_item(asked.key, data, state))
        if asked.query["ifGenerationMatch"] != str(state):
            return _json({"error": {"code": 412, "message": "conditionNotMet"}}, 412)
        return ranged(data, asked.headers["range"])

    def _list(self, asked: Asked, objects: dict[str, tuple[bytes, int]]) -> Reply:
        names = sorted((name for name in objects if name.startswith(asked.query.get("prefix", ""))), key=str.encode)
        start = int(asked.query.get("pageToken", 0))
        page: dict[str, Any] = {"items": [_google_item(n, *objects[n]) for n in names[start : start + self.page]]}
        return _json(page | ({"nextPageToken": str(start + self.page)} if start + self.page < len(names) else {}))

    def _write(self, asked: Asked, objects: dict[str, tuple[bytes, int]]) -> Reply:
        if asked.method == "DELETE":
            return Reply(499)
        key, data = asked.key, asked.body
        if asked.query["uploadType"] == "multipart":
            _, described, content, _ = asked.body.split(b"--==0==")
            key = json.loads(described.partition(b"\n\n")[2])["name"]
            data = content.partition(b"\n\n")[2].removesuffix(b"\n")
        elif "content-range" not in asked.headers:
            more = "&".join(f"{name}={value}" for name, value in asked.query.items())
            return Reply(200, b"", {"Location": f"{self.url}/upload/storage/v1/b/{asked.bucket}/o?{more}"})
        if asked.query.get("ifGenerationMatch") == "0" and key in objects:
            return _json({"error": {"code": 412, "message": "conditionNotMet"}}, 412)
        self.put(f"{asked.bucket}/{key}", data)
        return _json(_google_item(key, *self.objects[asked.bucket][key]))


def service_account(folder: Path, token_uri: str) -> Path:
    """The credentials file of an account whose tokens a server issues."""
    path = folder / "service-account.json"
    key = generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {"type": "service_account", "client_email": "reader@clinic.example", "private_key": key.decode(),
               "token_uri": token_uri, "private_key_id": "1", "project_id": "clinic"}  # fmt: skip
    path.write_text(json.dumps(account))
    return path


def _google_item(name: str, data: bytes, state: int) -> dict[str, str]:
    return {"name": name, "size": str(len(data)), "generation": str(state)}


def _json(value: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


class AzureStore(CloudStore):
    """Azure Blob Storage of an account with a hierarchy of folders; it takes a shared access signature."""

    scheme = "az"
    settings: ClassVar = {"account": "heronaccount", "sas_env": "LAMPLIGHT_SAS"}

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[str, bytes] = {}

    def environment(self, folder: Path) -> dict[str, str]:
        return {"LAMPLIGHT_SAS": f"?sv=2023-11-03&sp=rlcw&sig={SECRETS[2]}"}

    def understood(self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> Asked:
        bucket, _, key = path.removeprefix("/").partition("/")
        kinds = {"HEAD": "find", "PUT": "write", "GET": "list" if query.get("comp") == "list" else "read"}
        return Asked(kinds[method], method, bucket, unquote(key), query, headers, body)

    def reply(self, asked: Asked) -> Reply:
        if asked.query.get("sig") != SIGNATURE:
            return _error(403, "AuthenticationFailed")
        if asked.bucket not in self.objects:
            return _error(404, "ContainerNotFound")
        objects = self.objects[asked.bucket]
        if asked.kind == "list":
            return self._list(asked, objects)
        if asked.kind == "write":
            return self._write(asked, objects)
        if asked.key not in objects:
            if asked.kind == "find" and any(name.startswith(f"{asked.key}/") for name in objects):
                return Reply(200, b"", {"x-ms-meta-hdi_isfolder": "true", "ETag": '"0x1"', "Content-Length": "0"})
            return _error(404, "BlobNotFound")
        data, state = objects[asked.key]
        if asked.kind == "find":
            return Reply(200, b"", {"ETag": f'"{state:#x}"', "Content-Length": str(len(data))})
        if asked.headers["if-match"] != f'"{state:#x}"':
            return _error(412, "ConditionNotMet")
        found = ranged(data, asked.headers["x-ms-range"])
        return replace(found, headers=found.headers | {"ETag": f'"{state:#x}"'})

    def _write(self, asked: Asked, objects: dict[str, tuple[bytes, int]]) -> Reply:
        if asked.query.get("comp") == "block":
            self._blocks[asked.query["blockid"]] = asked.body
            return Reply(201)
        if asked.headers.get("if-none-match") == "*" and asked.key in objects:
            return _error(409, "BlobAlreadyExists")
        data = asked.body
        if asked.query.get("comp") == "blocklist":
            data = b"".join(self._blocks[str(block.text)] for block in ElementTree.fromstring(asked.body))
        self.put(f"{asked.bucket}/{asked.key}", data)
        return Reply(201, b"", {"ETag": f'"{self.objects[asked.bucket][asked.key][1]:#x}"'})

    def _list(self, asked: Asked, objects: dict[str, tuple[bytes, int]]) -> Reply:
        folders = {str(above) for name in objects for above in list(Path(name).parents)[:-1]}
        names = [name for name in {*objects, *folders} if name.startswith(asked.query.get("prefix", ""))]
        names.sort(key=lambda name: name.split("/"))
        start = int(asked.query.get("marker", 0))
        rows = "".join(self._row(name, objects) for name in names[start : start + self.page])
        more = str(start + self.page) if start + self.page < len(names) else ""
        page = f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>{rows}</Blobs>'
        page += f"<NextMarker>{more}</NextMarker></EnumerationResults>"
        return Reply(200, page.encode(), {"Content-Type": "application/xml"})

    def _row(self, name: str, objects: dict[str, tuple[bytes, int]]) -> str:
        data, state = objects.get(name, (b"", 1))
        mark = "" if name in objects else "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>"
        return (
            f"<Blob><Name>{escape(name)}</Name><Properties><Etag>{state:#x}</Etag>"
            f"<Content-Length>{len(data)}</Content-Length><BlobType>BlockBlob</BlobType></Properties>{mark}</Blob>"
        )


def _error(status: int, code: str) -> Reply:
    body = f"<Error><Code>{code}</Code><Message>{code} {SIGNATURE}</Message></Error>".encode()
    return Reply(status, body, {"x-ms-error-code": code, "Content-Type": "application/xml"})


def status(code: int) -> Callable[[Reply], Reply]:
    """A fault: an error of that status, with words that quote a secret."""
    return lambda _: Reply(code, f"{TOKEN} {SIGNATURE} Zebulon Quartermaine".encode())


def cut(reply: Reply) -> Reply:
    """A fault: the connection ends before the body does."""
    return Reply(reply.status, reply.body[:-1], reply.headers, len(reply.body))


def longer(reply: Reply) -> Reply:
    """A fault: a byte more, and the length says so."""
    return Reply(reply.status, reply.body + b"\n", reply.headers)


def elsewhere(url: str) -> Callable[[Reply], Reply]:
    """A fault: a redirection, or a place on another server where an upload goes on."""
    return lambda reply: Reply(200 if "Location" in reply.headers else 302, b"", {"Location": url})


STORES: dict[str, type[CloudStore]] = {kind.scheme: kind for kind in (GoogleStore, AzureStore)}
