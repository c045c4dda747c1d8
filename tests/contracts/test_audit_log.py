"""Reading the record on both backends: filters, pages that lose and repeat nothing, and streams."""

import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrations.schema.links import VIEWS
from models_db.services.audit import chain, log
from models_db.services.audit.log import LogFilter, LoggedLink
from models_db.services.verification.compare_rows import BUDGET_STEP_KINDS
from models_db.values.canonical_json import Json
from tests.conftest import Ledgers
from tests.support import World, append_link, fetch

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


def paged(world: World, wanted: LogFilter, limit: int, between: Callable[[], None] = lambda: None) -> list[LoggedLink]:
    """All pages, newest first, put together in the order of the chain; each is read in a snapshot of its own."""
    found: list[LoggedLink] = []
    before = None
    while True:
        with world.database.read() as session:
            page = log.read_page(session, wanted, limit, before)
        assert len(page.links) <= limit
        found = [*page.links, *found]
        if (before := page.next_before) is None:
            return found
        assert len(page.links) == limit
        between()


FITS: list[tuple[LogFilter, Callable[[LoggedLink], bool]]] = [
    (LogFilter(), lambda link: True),
    (LogFilter(dataset="clinic"), lambda link: link.dataset == "clinic"),
    (LogFilter(dataset="clin"), lambda link: False),
    (LogFilter(request_id=1), lambda link: link.request_id == 1),
    (LogFilter(actor="steward"), lambda link: link.actor == "steward"),
    (LogFilter(kind="ledger."), lambda link: link.kind.startswith("ledger.")),
    (LogFilter(kind="ledger.arm"), lambda link: link.kind == "ledger.arm"),
    (LogFilter(kind="ledger_"), lambda link: False),
    (LogFilter(kind="r", dataset="court"), lambda link: link.kind.startswith("r") and link.dataset == "court"),
    (LogFilter(mechanism="integer_draw"), lambda link: link.request_id in (1, 2)),  # the third failed before its hold
    (LogFilter(mechanism="invisible_ink"), lambda link: link.request_id in (1, 2, 3)),
    (LogFilter(mechanism="invisible_ink", kind="ledger.arm"), lambda link: link.kind == "ledger.arm"),
    (LogFilter(mechanism="TOKEN_DRAW"), lambda link: False),
    (LogFilter(mechanism="token%"), lambda link: False),
    (LogFilter(mechanism="because"), lambda link: False),  # a reason that approvals give
    (LogFilter(mechanism="entry"), lambda link: False),  # a table that holds name under `rows`
    (LogFilter(mechanism="integer_draw", dataset="court"), lambda link: link.dataset == "court"
                                                                      and link.request_id is not None),
    (LogFilter(since="2000", until="2001"), lambda link: False),
    (LogFilter(since="2000-01-01", until="9999"), lambda link: True),
    (LogFilter(since="9999"), lambda link: False),
    (LogFilter(until="2000"), lambda link: False),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "fits"), FITS)
@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_the_log_is_filtered_whole_and_in_pages(
    world: World, wanted: LogFilter, fits: Callable[[LoggedLink], bool], limit: int
) -> None:
    expected = [link for link in everything(world, LogFilter()) if fits(link)]
    assert everything(world, wanted) == expected
    assert paged(world, wanted, limit) == expected


def test_the_filters_of_this_test_do_find_something(world: World) -> None:
    """Or the comparison above would be one of nothing with nothing."""
    sizes = [len(everything(world, wanted)) for wanted, _ in FITS]
    assert [n for n, size in enumerate(sizes) if size == 0] == [2, 7, 12, 13, 14, 15, 17, 19, 20]


def test_every_moment_of_the_record_cuts_it_in_two(world: World) -> None:
    """Also where several links were written at the same moment."""
    links = everything(world, LogFilter())
    for at in {link.at for link in links}:
        assert everything(world, LogFilter(since=at)) == [link for link in links if link.at >= at]
        assert everything(world, LogFilter(until=at)) == [link for link in links if link.at < at]
        assert paged(world, LogFilter(since=at, dataset="court"), 2) == [
            link for link in links if link.at >= at and link.dataset == "court"
        ]


def test_a_page_is_the_newest_oldest_first(world: World) -> None:
    with world.database.read() as session:
        head = chain.read_chain_head(session).seq
        page = log.read_page(session, LogFilter(), 3)
        assert [link.seq for link in page.links] == [head - 2, head - 1, head]
        assert page.next_before == head - 2
        assert log.read_page(session, LogFilter(), head).next_before is None


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(limit=st.integers(1, 20), appended=st.integers(0, 3), dataset=st.sampled_from([None, "clinic"]))
def test_pages_lose_and_repeat_nothing_while_others_write(
    world: World, limit: int, appended: int, dataset: str | None
) -> None:
    def others() -> None:
        with world.database.write() as session:
            for _ in range(appended):
                append_link(session, world.steward, "test", {}, dataset="clinic")

    wanted = LogFilter(dataset=dataset)
    before = everything(world, wanted)
    assert paged(world, wanted, limit, others) == before


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
        assert log._kinds_with_prefix(session, "no such") == {}


def test_an_empty_record_has_an_empty_page(ledgers: Ledgers) -> None:
    with ledgers.new("sqlite") as database, database.read() as session:
        assert log.read_page(session, LogFilter(kind="x"), 5) == log.LogPage([], None)
        assert log.read_page(session, LogFilter(since="2000"), 5).links == []


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_mechanism_is_a_field_or_an_item_and_no_quotation(ledgers: Ledgers, backend: str) -> None:
    bodies: dict[int, dict[str, Json]] = {
        1: {"mechanism": "noise"},
        2: {"mechanisms": ["noise", "draw"]},
        3: {"mechanisms": ["draw", "noise", "count"]},
        4: {"mechanisms": ["draw", "noise"]},
        5: {"reason": 'a "mechanism":"noise", and ["noise"]'},
        6: {"mechanisms": ["noise2", "noisy"], "noise": 1},
        7: {"kind": "noise", "mechanism": "noises"},
    }
    with ledgers.new(backend) as database:
        world = World.create(database)
        with database.write() as session:
            for number, body in bodies.items():
                append_link(session, world.steward, "ledger.hold", body, request_id=number)
                append_link(session, world.steward, "ledger.arm", {}, request_id=number)
        with database.read() as session:
            found = [link.request_id for link in log.stream_links(session, LogFilter(mechanism="noise"))]
    assert found == [1, 1, 2, 2, 3, 3, 4, 4]


def test_the_kinds_of_this_version_are_those_of_the_schema() -> None:
    """As the views of links spell them, and the steps of the budget."""
    views = [view if isinstance(view, str) else view.sqlite for view in VIEWS.values()]
    spelt = {kind for view in views for kind in re.findall(r"'([a-z]+\.[a-z_]+)'", view.partition(" AS link_kind")[0])}
    composed = {
        *(f"{gate}.{what}" for gate in ("request", "proposal") for what in ("approve", "reject", "approval_withdrawn")),
        *(f"evaluation.{exposure}" for exposure in ("public", "charged", "internal")),
    }
    assert len([view for view in views if "||" in view.partition(" AS link_kind")[0]]) == 3
    assert set(log.KINDS) == {*spelt, *composed, *BUDGET_STEP_KINDS}


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
