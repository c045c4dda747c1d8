"""How the record is read on both backends: its rows, indices, kinds and streams."""

import re
from collections.abc import Iterator

import pytest

from migrations.schema.tables import FOLLOWING, LEADING
from models_db.services.audit import log
from models_db.services.audit.log import LogFilter, LoggedLink
from tests.conftest import Ledgers
from tests.support import World, fetch

CONCERNS = ("migrations/schema", "models_db/services", "models_db/writes")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[World]:
    """A ledger with some dozen links of several kinds, datasets and people."""
    with ledgers.new(request.param) as database:
        world = World.create(database)
        for name in ("clinic", "court"):
            world.dataset(name)
            world.published(name)
        world.fail(world.running("clinic"))
        yield world


def everything(world: World, wanted: LogFilter) -> list[LoggedLink]:
    with world.database.read() as session:
        return list(log.stream_links(session, wanted))


def test_a_link_is_its_row(world: World) -> None:
    rows = fetch(
        world.database,
        "SELECT seq, prev_hash, row_hash, at, actor, kind, dataset, request_id, body FROM audit ORDER BY seq",
    )
    assert [tuple(link) for link in everything(world, LogFilter())] == rows


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (LogFilter(dataset="clinic", since="2000"), "dataset"),
        (LogFilter(actor="steward"), "actor"),
        (LogFilter(request_id=1), "request_id"),
        (LogFilter(kind="principal.enrolled"), "kind"),
    ],
)
def test_a_page_is_served_from_an_index(ledgers: Ledgers, wanted: LogFilter, index: str) -> None:
    """On SQLite, whose plan does not depend on how much there is: no scan of the table and no sorting."""
    with ledgers.new("sqlite") as database:
        World.create(database)
        asked: list[str] = []
        with database.read() as session:
            session.connection().connection.driver_connection.set_trace_callback(asked.append)  # type: ignore[union-attr]
            log.read_page(session, wanted, 10)
            session.connection().connection.driver_connection.set_trace_callback(None)  # type: ignore[union-attr]
        page = next(query for query in asked if "ORDER BY" in query and "body" in query)
        with database.read() as session:
            plan = [row[3] for row in session.connection().exec_driver_sql(f"EXPLAIN QUERY PLAN {page}")]
    assert any(f"ix_audit_{index}_seq" in step for step in plan)
    assert not [step for step in plan if "SCAN audit" in step or ("B-TREE" in step and index != "kind")]


def test_the_kinds_are_found_whatever_their_number(world: World) -> None:
    kinds = {str(row[0]) for row in fetch(world.database, "SELECT DISTINCT kind FROM audit")}
    with world.database.read() as session:
        assert set(log._kinds_with_prefix(session, "").values()) == kinds
        granted = log._kinds_with_prefix(session, "role.").values()
        assert set(granted) == {kind for kind in kinds if "role.granted" in kind} != set()
        assert log._kinds_with_prefix(session, "no such") == {}


def test_an_empty_record_has_an_empty_page(ledgers: Ledgers) -> None:
    with ledgers.new("sqlite") as database, database.read() as session:
        assert log.read_page(session, LogFilter(kind="x"), 5) == log.LogPage([], None)
        assert log.read_page(session, LogFilter(since="2000"), 5).links == []


def test_the_kinds_of_this_version_are_those_of_the_schema() -> None:
    spelt = {
        kind for sql in (*LEADING.values(), *FOLLOWING.values()) for kind in re.findall(r"'([a-z]+\.[a-z_]+)'", sql)
    }
    composed = {
        *(f"{gate}.{what}" for gate in ("request", "proposal") for what in ("approve", "reject", "approval_withdrawn")),
        *(f"evaluation.{exposure}" for exposure in ("public", "charged", "internal")),
        *(f"ledger.{step}" for step in ("hold", "arm", "release", "commit", "forfeit")),
    }
    assert set(log.KINDS) == {*spelt, *composed}


def test_a_stream_holds_some_links_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """On PostgreSQL by a cursor of the server: its driver would fetch everything at once."""
    monkeypatch.setattr(log, "CHUNK_LINKS", 10)
    with world.database.read() as session:
        chunks = log.stream_chunks(session, LogFilter())
        sizes = [len(next(chunks))]
        if not world.database.is_sqlite:
            assert session.connection().exec_driver_sql("SELECT count(*) FROM pg_cursors").scalar() == 1
        sizes += [len(chunk) for chunk in chunks]
    assert max(sizes) == 10
    assert sum(sizes) == len(everything(world, LogFilter()))
