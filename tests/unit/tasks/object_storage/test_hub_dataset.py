"""Datasets of the hub, against a server of its protocol on the loopback."""

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest

from flows.workspace.object_stores import open_source
from models_db.home import ProjectHome
from tasks.corpus.readers.readers import read_documents
from tasks.object_storage.address import Address
from tasks.object_storage.hub_dataset import HubDataset, parse_source
from tests.refusals import refusal

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "data/a.jsonl": b'{"text": "one"}\n',
    "data/b.jsonl.gz": gzip.compress(b'{"text": "two"}\n', mtime=0),
    "data/load.py": b"raise SystemExit('a program')",
    "other/c.jsonl": b'{"text": "three"}\n',
    "README.md": b"A dataset.",
}


def blob_id(data: bytes) -> str:
    """The name that git gives a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class Hub(BaseHTTPRequestHandler):
    """Two calls of the hub: what a repository holds at a commit, and a file of it."""

    asked: list[str]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body, status = self._answer()
        self.send_response(status)
        if status == 404 and "hidden" in self.path:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _answer(self) -> tuple[bytes, int]:
        path = self.path.split("?")[0]
        if path == f"/api/datasets/team/notes/tree/{COMMIT}":
            tree = [{"type": "file", "path": n, "size": len(data), "oid": blob_id(data)} for n, data in FILES.items()]
            return json.dumps(tree).encode(), 200
        name = path.removeprefix(f"/datasets/team/notes/resolve/{COMMIT}/")
        return (FILES[name], 200) if name in FILES else (b"", 404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the hub was asked for."""
    Hub.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    told = partial(huggingface_hub.snapshot_download, endpoint=f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", told)
    listing = huggingface_hub.HfApi(endpoint=f"http://127.0.0.1:{server.server_port}").list_repo_files
    monkeypatch.setattr(huggingface_hub, "list_repo_files", listing)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    yield Hub.asked
    server.shutdown()
    server.server_close()


@pytest.fixture
def home(tmp_path: Path) -> ProjectHome:
    made = ProjectHome(tmp_path / "home")
    made.scratch.mkdir(parents=True)
    return made


def texts(home: ProjectHome, address: str) -> list[str]:
    with open_source(home, parse_source(address)) as source:
        return [document.text for document in read_documents(source, None)]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", ["one", "two", "three"]),
        ("/data", ["one", "two"]),
        ("/data/", ["one", "two"]),
        ("/data/b.jsonl.gz", ["two"]),
    ],
)
def test_data_files_are_read_and_nothing_stays(
    home: ProjectHome, hub: list[str], path: str, expected: list[str]
) -> None:
    assert texts(home, f"hf://datasets/team/notes@{COMMIT}{path}") == expected
    assert not [asked for asked in hub if asked.endswith(("load.py", "README.md"))]
    assert all(COMMIT in asked for asked in hub)
    assert list(home.scratch.iterdir()) == []


def test_a_file_whose_ending_is_in_capitals_is_no_less_a_part(
    home: ProjectHome, hub: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILES, "data/c.JSONL", b'{"text": "capitals"}\n')
    assert texts(home, f"hf://datasets/team/notes@{COMMIT}/data") == ["one", "two", "capitals"]


@pytest.mark.parametrize("log", ["_delta_log/0.json", ".hoodie/x.commit", "metadata/v1.metadata.json"])
@pytest.mark.parametrize("below", ["", "/data", "/data/a.jsonl"])
def test_a_table_with_a_log_is_refused_as_in_a_folder(
    home: ProjectHome, hub: list[str], monkeypatch: pytest.MonkeyPatch, log: str, below: str
) -> None:
    monkeypatch.setitem(FILES, f"data/{log}", b"{}")
    with refusal("TableLogUnread"):
        texts(home, f"hf://datasets/team/notes@{COMMIT}{below}")


def test_what_would_not_be_read_is_refused_before_it_is_copied(
    home: ProjectHome, hub: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILES, "data/rest.jsonl.zst", b"packed")
    with refusal("FilesUnread", match=r"1 \.zst"):
        texts(home, f"hf://datasets/team/notes@{COMMIT}/data")
    assert not [asked for asked in hub if "/resolve/" in asked]
    assert texts(home, f"hf://datasets/team/notes@{COMMIT}/other") == ["three"]


def test_what_the_hub_does_not_show(home: ProjectHome, hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with refusal("HubDatasetHidden", match="hidden"):
        texts(home, f"hf://datasets/team/hidden@{COMMIT}")

    def fail(repo: str, **options: object) -> str:
        raise ConnectionError(repo)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with refusal("HubDatasetUnreachable", match="ConnectionError"):
        texts(home, f"hf://datasets/team/notes@{COMMIT}")
    assert list(home.scratch.iterdir()) == []


def test_addresses() -> None:
    assert parse_source(f"hf://datasets/team/notes@{COMMIT}/a/b c.csv") == HubDataset("team/notes", COMMIT, "a/b c.csv")
    assert parse_source("s3://bucket/key") == Address("bucket", "key")
    assert parse_source("notes.jsonl") == Path("notes.jsonl")


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("hf://datasets/team/notes", "CommitMissing"),
        ("hf://datasets/team/notes@main/a.csv", "CommitMissing"),
        (f"hf://datasets/team/notes@{COMMIT.upper()}", "CommitMissing"),
        (f"hf://datasets/notes@{COMMIT}", "AddressUnfit"),
        (f"hf://team/notes@{COMMIT}", "AddressUnfit"),
        (f"hf://datasets/team/notes@{COMMIT}/../x", "AddressUnfit"),
        (f"hf://datasets/team/notes@{COMMIT}/a*.csv", "AddressUnfit"),
        (f"hf://datasets/../notes@{COMMIT}/a.csv", "AddressUnfit"),
        ("swift://bucket/key", "SchemeUnknown"),
    ],
)
def test_other_addresses_are_refused(address: str, error: str) -> None:
    with refusal(error):
        parse_source(address)
