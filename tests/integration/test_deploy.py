"""docs/deploy.md is typed as it stands: its SQL on a real PostgreSQL, its commands over TLS, its settings looked up."""

import getpass
import re
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from models_db.services import logins
from models_db.sessions.database import Database, LedgerUnreachable
from tests.conftest import PostgreSQL
from tests.integration.story import Almoner
from tests.tls_relay import Authority, Relay

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "deploy.md").read_text()
HOST = "db.clinic.example"
ROLES = ("boss", "asker", "runner", "sue", "tom", "olga", "prefect", "almoner_owner")
NOT_TYPED_HERE = ("models pull",)
"""Needs a network; tests/integration/test_embedder.py and others pull."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its first line, if that says who types it, and the rest."""

    language: str
    who: str
    lines: tuple[str, ...]


def blocks() -> list[Block]:
    found = []
    for indent, language, body in re.findall(r"^( *)```(\w+)\n(.*?)^ *```$", PAGE, re.DOTALL | re.MULTILINE):
        lines = textwrap.dedent(body).splitlines() if indent else body.splitlines()
        first = re.match(r"(?:#|--) as (.+)$", lines[0])
        found.append(Block(language, first[1] if first else "", tuple(lines[1:] if first else lines)))
    return found


BLOCKS = blocks()


def settings(first: str) -> dict[str, str]:
    """The `ini` block that begins with that name."""
    [found] = [block for block in BLOCKS if block.language == "ini" and block.lines[0].startswith(first)]
    return dict(re.split(r" *= *", line, maxsplit=1) for line in found.lines)


def socket_of(postgresql: PostgreSQL) -> Path:
    return Path(str(make_url(postgresql.uri).query["host"])) / ".s.PGSQL.5432"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """The clinic's."""
    return Authority(tmp_path, "authority")


@pytest.fixture
def relay(postgresql: PostgreSQL, authority: Authority) -> Iterator[Relay]:
    """The server as clients see it."""
    made = Relay(socket_of(postgresql), authority.server(HOST))
    yield made
    made.close()


def address(login: str, port: int, certificate: Path, database: str = "almoner", host: str = HOST) -> str:
    """The page's own address of the ledger, for somebody; `hostaddr` stands in for the name service."""
    [line] = [line for block in BLOCKS for line in block.lines if line.startswith("export ALMONER_DATABASE_URL")]
    url = line.split("=", 1)[1].strip("'").replace("postgresql://boss@", f"postgresql://{login}@")
    url = url.replace("/etc/almoner/ca.crt", str(certificate)).replace("/almoner?", f"/{database}?")
    assert f"@{HOST}/" in url
    return url.replace(f"@{HOST}/", f"@{host}:{port}/") + "&hostaddr=127.0.0.1"


@dataclass
class Typist:
    """Types the page's blocks."""

    folder: Path
    server: PostgreSQL
    relay: Relay
    authority: Authority
    patch: pytest.MonkeyPatch
    typed: list[str] = field(default_factory=list)

    def at(self, name: str, login: str) -> Almoner:
        """Sit down at somebody's home."""
        made = Almoner(self.folder / name)
        made.folder.mkdir(exist_ok=True)
        self.patch.setenv("ALMONER_HOME", str(made.home.root))
        self.patch.setenv("ALMONER_DATABASE_URL", address(login, self.relay.port, self.authority.certificate))
        self.patch.setattr(getpass, "getuser", lambda: name)
        self.patch.chdir(made.folder)
        return made

    def sql(self, block: Block) -> None:
        """As the server's administrator."""
        found = re.fullmatch(r"postgres, in the database (\w+)", block.who)
        assert found, block
        url = make_url(self.server.url(found[1]))
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in " ".join(block.lines).split(";"):
                if statement.strip():
                    connection.execute(text(statement))
        self.typed.append(block.who)

    def shell(self, block: Block) -> None:
        """As whom the block names; each line has to succeed, but the first `init` of a home."""
        name, _, login = block.who.partition(", with the login ")
        for line in block.lines:
            assert line.startswith("almoner "), line
            if line.startswith(tuple(f"almoner {each}" for each in NOT_TYPED_HERE)):
                continue
            self.prepare(name, line)
            home = self.at(name, login or name)
            if line == "almoner init" and not self.knows(name):
                assert home.ask("init", expected=3)["enrolled"] is False
            else:
                told = home.ask(self.filled(line).removeprefix("almoner "))
                if line.startswith("almoner user add"):
                    assert told["database_rights"]["todo"] == []
            self.typed.append(line)

    def knows(self, name: str) -> bool:
        """Whether somebody was added, or founded the ledger."""
        return name == "boss" or any(line.startswith(f"almoner user add {name} ") for line in self.typed)

    def filled(self, line: str) -> str:
        """KEY is what the other home has printed."""
        if "--key KEY" not in line:
            return line
        other = line.split()[3]
        made = self.at(other, other).ask("init", expected=3)
        self.at("boss", "boss")
        return line.replace("KEY", made["public_key"])

    def prepare(self, name: str, line: str) -> None:
        """What the page says in words: a file is there, and the runner has the keys of the home that registered."""
        folder = self.folder / name
        if "team.yaml" in line:
            [written] = [block for block in BLOCKS if block.language == "yaml"]
            (folder / "team.yaml").write_text("\n".join(written.lines))
        if "notes.jsonl" in line:
            Almoner(folder).notes_file()
            for key in (self.folder / "boss" / "home" / "keys").glob("*.key"):
                if key.name.startswith(("overlap", "partition-")):
                    shutil.copy(key, folder / "home" / "keys" / key.name)


@pytest.fixture
def typist(
    almoner: Almoner, postgresql: PostgreSQL, relay: Relay, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Typist]:
    """On a server that knows none of the page's names yet."""
    yield Typist(almoner.folder, postgresql, relay, authority, monkeypatch)
    monkeypatch.undo()
    engine = create_engine(postgresql.uri, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for name in ("almoner", "prefect"):
            connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
        for role in (*access_groups(), *ROLES):
            connection.execute(text(f'DROP ROLE IF EXISTS "{role}"'))


def access_groups() -> list[str]:
    return [logins.group_name("almoner", kind) for kind in ("writer", "reader")]


@pytest.mark.slow
def test_the_page_is_typed_from_its_beginning_to_its_end(typist: Typist) -> None:
    for block in BLOCKS:
        if block.language == "sql":
            typist.sql(block)
        elif block.language == "sh" and block.who:
            typist.shell(block)
    assert len(typist.typed) >= 23
    assert typist.relay.inside_tls >= 20
    with pytest.raises(LedgerUnreachable):  # the owner's login is closed at the end
        reading(address("almoner_owner", typist.relay.port, typist.authority.certificate))
    story(typist)


def story(typist: Typist) -> None:
    """What was deployed is used: one release, two stewards, every connection inside TLS."""
    runner = typist.at("runner", "runner")
    typist.at("asker", "asker").type(f"release request {runner.request_file()}")
    for steward in ("sue", "tom"):
        home = typist.at(steward, steward)
        home.type('approve 1 --gate spend --reason "agreed"', piped="clinic\n")
    assert typist.at("runner", "runner").ask("run 1")["state"] == "produced"
    assert typist.at("asker", "asker").ask("run 1", expected=1)["error"] != ""


def reading(url: str) -> None:
    database = Database(url)
    with database.read() as session:
        session.execute(text("SELECT 1"))
    database.dispose()


def test_the_address_of_the_page_checks_certificate_and_name(
    postgresql: PostgreSQL, relay: Relay, authority: Authority, tmp_path: Path
) -> None:
    """verify-full refuses another authority, another name, no TLS, and no authority at all."""
    at = "postgres", relay.port
    reading(address(*at, authority.certificate, "postgres"))
    assert relay.inside_tls == 1
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "stranger")
    for certificate in (other.certificate, tmp_path / "missing.crt"):
        with pytest.raises(LedgerUnreachable):
            reading(address(*at, certificate, "postgres"))
    with pytest.raises(LedgerUnreachable):
        reading(address(*at, authority.certificate, "postgres", host="elsewhere.clinic.example"))
    plain = Relay(socket_of(postgresql), None)
    with pytest.raises(LedgerUnreachable):
        reading(address("postgres", plain.port, authority.certificate, "postgres"))
    plain.close()


def test_every_setting_of_the_server_is_one(postgresql: PostgreSQL) -> None:
    """As PostgreSQL itself knows them; values of choice are among those it offers."""
    engine = create_engine(postgresql.uri, poolclass=NullPool)
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT name, vartype, enumvals FROM pg_settings"))
        known = {name: (kind, offered) for name, kind, offered in rows}
    for name, value in settings("listen_addresses").items():
        kind, offered = known[name]
        assert kind != "bool" or value in ("on", "off")
        if kind == "enum" and name != "ssl_min_protocol_version":  # a server without TLS offers none of its versions
            assert value.strip("'") in offered, name


def test_every_setting_of_prefect_and_of_a_worker_is_one() -> None:
    from prefect.settings import Settings
    from prefect.settings.legacy import _get_settings_fields

    known = set(_get_settings_fields(Settings))
    assert set(settings("PREFECT_SERVER_DATABASE")) <= known
    worker = settings("ALMONER_DATABASE_URL=postgresql://runner")
    ours = {"ALMONER_DATABASE_URL", "PGPASSFILE"}
    assert set(worker) - ours <= known
    assert ours <= set(worker)
    assert worker["PREFECT_API_AUTH_STRING"] == settings("PREFECT_SERVER_DATABASE")["PREFECT_SERVER_API_AUTH_STRING"]


def test_other_programs_of_the_page_are_the_ones_that_were_looked_at() -> None:
    programs = {line.split()[0] for block in BLOCKS if block.language == "sh" and not block.who for line in block.lines}
    assert programs == {"umask", "openssl", "export", "useradd", "install", "systemctl", "cd", "docker"}


def test_the_policy_of_the_page_separates_roles() -> None:
    [written] = [block for block in BLOCKS if block.language == "yaml"]
    assert yaml.safe_load("\n".join(written.lines)) == {
        "version": 1, "several_roles": False, "approvals": {"spend": 2, "publish": 2, "proposal": 2},
    }  # fmt: skip
