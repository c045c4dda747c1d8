"""No server holds a command for ever, however slowly it answers: each call that goes out has one deadline."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from sqlalchemy import text

from models_db.sessions import database, read_only
from models_db.sessions.database import Database, LedgerUnreachable
from models_db.sessions.read_only import ReadOnlyDatabase
from tasks.object_storage import request_limits as limits
from tasks.object_storage.address import Address
from tasks.object_storage.bucket import Entry, open_store
from tasks.object_storage.bucket_settings import AnySettings, AzureSettings, Buckets, GoogleSettings, S3Settings
from tests.cloud_stores import service_account
from tests.dripping import STARTS, Dripping, ended
from tests.integration.story import Almoner
from tests.support import require

CONCERNS = ("flows/schedules", "models_db/sessions", "tasks/object_storage")
each_start = pytest.mark.parametrize("start", STARTS)
SETTINGS: dict[str, Callable[[str], AnySettings]] = {
    "s3": lambda url: S3Settings(endpoint_url=url, region="us-east-1", key_env="KEY", secret_env="KEY"),
    "gs": lambda url: GoogleSettings(endpoint_url=url),
    "az": lambda url: AzureSettings(account="heron", endpoint_url=url, key_env="KEY"),
}


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines are short."""
    monkeypatch.setattr(limits, "_SECONDS", 0.3)
    monkeypatch.setattr(limits, "_BYTES_A_SECOND", 1 << 40)
    for module in (database, read_only):
        monkeypatch.setattr(module, "CONNECT_SECONDS", 2)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("act", ["list", "read"])
@pytest.mark.parametrize("scheme", SETTINGS)
@each_start
def test_a_store(start: str, scheme: str, act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}[scheme]
    require(find_spec(package), f"{package} is not installed")
    server = Dripping(*STARTS[start])
    address = Address("clinic", "a.jsonl", scheme)
    buckets = Buckets({Address("clinic", "", scheme): SETTINGS[scheme](f"http://127.0.0.1:{server.port}")})
    monkeypatch.setenv("KEY", "dmVsdmV0")
    if scheme == "gs":
        monkeypatch.setattr("tasks.object_storage.google_filesystem._credentials", lambda *_: Valid())

    def ask() -> None:
        with open_store(address, buckets) as store:
            if act == "list":
                list(store.list_below(Address("clinic", "", scheme)))
            else:
                store.open(Entry(address, 1_000_000, '"tag"')).read()

    assert ended(server, ask).code in ("StoreUnreachable", "StoreFailed", "ObjectChanged")


class Valid:
    """Credentials of Google that need no renewal."""

    valid = True

    def apply(self, headers: dict[str, str]) -> None:
        """Add nothing."""


@pytest.mark.usefixtures("hurried")
@each_start
def test_a_server_of_tokens(start: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require(find_spec("gcsfs"), "gcsfs is not installed")
    server = Dripping(*STARTS[start])
    account = service_account(tmp_path, f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
    address = Address("clinic", "a.jsonl", "gs")

    def ask() -> None:
        with open_store(address, Buckets()) as store:
            store.find(address)

    assert ended(server, ask).code == "StoreUnreachable"


@pytest.mark.parametrize("opened", [Database, ReadOnlyDatabase])
@pytest.mark.parametrize("first", [b"S", b"N", b"R\x00\x00\x40\x00", b""])
@pytest.mark.usefixtures("hurried")
def test_a_ledger_s_server(first: bytes, opened: type[Database]) -> None:
    """It agrees to speak TLS, refuses it, or begins a long message."""
    server = Dripping(first, b"\x00")

    def look() -> None:
        with opened(f"postgresql://almoner@127.0.0.1:{server.port}/almoner").read() as session:
            session.execute(text("SELECT 1"))

    assert type(ended(server, look)) is LedgerUnreachable


@pytest.mark.usefixtures("hurried")
def test_a_run_of_schedules_asks_no_server(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.ingested()
    server = Dripping(*STARTS["body"])
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server.port}/api")
    assert ended(server, lambda: almoner.type(f"release request {almoner.request_file()}")) is None
    again = Dripping(*STARTS["body"])
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{again.port}/api")
    assert ended(again, lambda: almoner.type("schedule run")) is None
