"""What a home remembers of its ledger, and that nothing but the ledger it has seen is worked on."""

import json
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.workspace import rollback_guard
from flows.workspace.rollback_guard import RollbackGuardedDatabase, SeenFileUnusable, SeenFileUnwritable, SeenHeads
from models_db.database.base import utc_now
from models_db.home import ProjectHome
from models_db.services.audit import chain
from models_db.services.audit.chain import ChainPosition
from models_db.sessions.database import Database
from tests.conftest import Ledgers
from tests.contracts.tampering import FORGET_CHECKPOINTS, rewrite, superuser, truncate
from tests.refusals import refusal
from tests.support import World, append_link

pytestmark = pytest.mark.dear


@pytest.fixture
def home(tmp_path: Path) -> ProjectHome:
    return ProjectHome(tmp_path)


@pytest.fixture
def told(world: World, home: ProjectHome, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world, through the database that its home remembers."""
    monkeypatch.setenv("ALMONER_DATABASE_URL", world.database.url)
    world.database.dispose()  # nobody else may be connected to a database that is copied
    remembered = RollbackGuardedDatabase(home)
    made = replace(world, database=remembered)
    made.dataset()
    made.published()
    return made


def head_of(database: Database) -> ChainPosition:
    with database.read() as session:
        return chain.read_chain_head(session)


def opened(home: ProjectHome, database: Database) -> SeenHeads | None:
    """The check that opening a workspace makes."""
    seen = rollback_guard.load_head(home)
    with database.read() as session:
        return rollback_guard.require_seen(session, seen)


def seen(home: ProjectHome) -> SeenHeads:
    found = rollback_guard.load_head(home)
    assert found is not None
    return found


def test_every_commit_is_remembered(told: World, home: ProjectHome) -> None:
    for _ in range(3):
        told.request()
        assert seen(home).head == head_of(told.database)
    assert opened(home, told.database) is None


def test_the_file_is_private_and_alone(told: World, home: ProjectHome) -> None:
    told.request()
    assert [file.name for file in home.root.iterdir()] == ["seen.json"]
    assert stat.S_IMODE(home.seen.stat().st_mode) == 0o600
    assert set(json.loads(home.seen.read_bytes())) == {"format", "first", "seq", "hash", "checkpoint"}


def test_what_was_not_committed_is_not_remembered(told: World, home: ProjectHome) -> None:
    before = home.seen.read_bytes()
    with pytest.raises(ZeroDivisionError), told.database.write() as session:
        raise ZeroDivisionError(append_link(session, told.steward, "test", {}))
    with told.database.write() as session:
        append_link(session, told.steward, "test", {})
        session.rollback()
    assert home.seen.read_bytes() == before


def test_a_memory_behind_the_ledger_is_right_and_catches_up(told: World, home: ProjectHome) -> None:
    """As after a crash between a commit and the file, or when another home works on the same ledger."""
    before = seen(home)
    elsewhere = replace(told, database=Database(told.database.url))
    elsewhere.request()
    now = opened(home, told.database)
    assert now is not None
    assert now.head == head_of(told.database) != before.head
    rollback_guard.save_head(home, now, durable=True)
    assert opened(home, told.database) is None


def test_the_newest_signed_head_is_remembered(told: World, home: ProjectHome) -> None:
    assert seen(home).checkpoint is None
    with told.database.write() as session:
        head = chain.read_chain_head(session)
        chain.record_checkpoint(session, told.steward, head.hash, "signature", "key of steward", utc_now())
    told.request()
    assert seen(home).checkpoint == head


def test_a_home_that_cannot_be_written_stops_no_commit(
    told: World, home: ProjectHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = home.seen.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    told.request()
    assert head_of(told.database).seq == seen(home).head.seq + 1
    assert home.seen.read_bytes() == before
    with pytest.raises(SeenFileUnwritable, match="No space left"):
        rollback_guard.save_head(home, seen(home))
    assert [file.name for file in home.root.iterdir()] == ["seen.json"]


# --- the attacks ----------------------------------------------------------------------------------------------------


def cut(world: World) -> None:
    truncate(world.database, head_of(world.database).seq - 1)


def rewritten(world: World) -> None:
    rewrite(world.database, {2: {"actor": "somebody"}})


def rewritten_end(world: World) -> None:
    rewrite(world.database, {head_of(world.database).seq: {"actor": "somebody"}})


def emptied(world: World) -> None:
    superuser(world.database, "DELETE FROM audit", f"UPDATE audit_head SET seq = 0, hash = '{chain.GENESIS}'")


ATTACKS: list[tuple[Callable[[World], None], str]] = [
    (cut, "is gone"),
    (rewritten, "is not the one"),
    (rewritten_end, "is not the one"),
    (emptied, "it has no links"),
]


@pytest.mark.parametrize(("attack", "how"), ATTACKS)
def test_a_ledger_that_lost_what_was_seen_is_refused(
    told: World, home: ProjectHome, attack: Callable[[World], None], how: str
) -> None:
    plain = replace(told, database=Database(told.database.url))
    before = home.seen.read_bytes()
    attack(plain)
    with refusal("LedgerRolledBack", match=how) as refused:
        opened(home, told.database)
    with refusal("LedgerRolledBack", match=how):
        rollback_guard.require_same_ledger(home, told.database)
    assert how in rollback_guard.check_rollback(home, told.database)
    assert (refused.value.exit_code, refused.value.facts["seen_link"]) == (1, seen(home).head.seq)
    assert home.seen.read_bytes() == before


def test_a_known_ledger_is_not_built_anew(told: World, home: ProjectHome, ledgers: Ledgers) -> None:
    with ledgers.new(told.database.engine.dialect.name, bare=True) as bare:
        with refusal("LedgerRolledBack", match="no links"):
            rollback_guard.require_same_ledger(home, bare)
        home.seen.unlink()
        rollback_guard.require_same_ledger(home, bare)


def test_forgotten_checkpoints_alone_are_no_rollback(told: World, home: ProjectHome) -> None:
    superuser(told.database, FORGET_CHECKPOINTS)
    assert opened(home, told.database) is None


# --- the file -------------------------------------------------------------------------------------------------------


def test_a_new_home_remembers_nothing(home: ProjectHome, world: World) -> None:
    assert rollback_guard.load_head(home) is None
    assert opened(home, world.database) is not None


@pytest.mark.parametrize("content", [b"", b"\0" * 200, b"\n"])
def test_what_a_power_cut_leaves_is_nothing(home: ProjectHome, content: bytes) -> None:
    home.seen.write_bytes(content)
    assert rollback_guard.load_head(home) is None


GOOD = {"format": rollback_guard.FORMAT, "first": "a" * 64, "seq": 3, "hash": "b" * 64, "checkpoint": None}


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "7", "{}", *(json.dumps(GOOD | change) for change in (
        {"format": "almoner-seen/9"}, {"seq": "3"}, {"hash": 1}, {"seq": True}, {"checkpoint": {"seq": 1}},
    ))],
)  # fmt: skip
def test_a_file_that_is_not_ours_is_named(home: ProjectHome, content: str) -> None:
    home.seen.write_text(content)
    with pytest.raises(SeenFileUnusable, match="not in its format") as problem:
        rollback_guard.load_head(home)
    assert problem.value.exit_code == 3


def test_what_cannot_be_read_is_named(home: ProjectHome, world: World) -> None:
    home.seen.mkdir()
    with pytest.raises(SeenFileUnusable):
        rollback_guard.load_head(home)
    assert "cannot be used" in rollback_guard.check_rollback(home, world.database)


def test_it_is_read_as_it_was_written(home: ProjectHome) -> None:
    for value in (
        SeenHeads("a" * 64, ChainPosition(3, "b" * 64)),
        SeenHeads("a" * 64, ChainPosition(9, "c" * 64), ChainPosition(4, "d" * 64)),
    ):
        rollback_guard.save_head(home, value, durable=True)
        assert rollback_guard.load_head(home) == value
    rollback_guard.save_head(home, None)
    assert rollback_guard.load_head(home) == value


@pytest.fixture
def writers(told: World) -> Iterator[None]:
    """Three who write while the test goes on."""
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with told.database.write() as session:
                append_link(session, told.steward, "test", {})

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("writers")
def test_who_opens_while_others_write_sees_no_rollback(told: World, home: ProjectHome) -> None:
    """What was seen is recalled before the ledger is looked at, so it can only be behind."""
    for _ in range(60):
        rollback_guard.save_head(home, opened(home, told.database))
