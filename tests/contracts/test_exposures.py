"""An assignment got out: who records it, once, what the chain says, and which of two causes ends a claim."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.services import artifacts, exposures
from models_db.services.audit import log, verify_chain
from models_db.services.audit.log import details_of_links
from models_db.services.queries import health
from models_db.services.verification import verify_rows
from models_db.tables import Artifact
from models_db.writes.database_errors import RuleViolated
from tests.contracts.meeting import meanwhile
from tests.refusals import refusal
from tests.support import World, fetch, later, snapshot

DAY = timedelta(days=1)


@pytest.fixture
def out(world: World) -> World:
    """A ledger with two published releases."""
    world.dataset("clinic")
    world.published()
    world.published()
    return world


def artifact(session: Session, request_id: int = 1) -> Artifact:
    found = artifacts.artifact_of(session, request_id)
    assert found is not None
    return found


def expose(world: World, request_id: int = 1, since: str | None = None) -> str:
    with world.database.write() as session:
        return exposures.record_exposure(session, world.steward, request_id, since, "a copy")


def test_it_changes_nothing_but_its_row_and_link(out: World) -> None:
    before = snapshot(out.database)
    since = expose(out)
    after = snapshot(out.database)
    assert {table for table in after if after[table] != before[table]} == {"assignment_exposure", "audit", "audit_head"}
    link = fetch(out.database, "SELECT kind, actor, dataset, request_id FROM audit ORDER BY seq DESC LIMIT 1")[0]
    assert link == ("assignment.exposed", "steward", "clinic", 1)
    with out.database.read() as session:
        made = artifact(session)
        assert since == made.created_at
        [said] = details_of_links(session, log.read_page(session, log.LogFilter(), 1).links).values()
        assert said is not None
        assert [each["since"] for each in said] == [since]
        assert verify_chain.verify_chain(session).sound
        assert verify_rows.compare_rows_with_chain(session) == []
        assert [each for each in health.check_health(session) if not each.ok] == []


def test_only_stewards_and_admins_record_it(out: World) -> None:
    for actor in (out.analyst, out.runner):
        before = snapshot(out.database)
        with refusal("RoleRequired"), out.database.write() as session:
            exposures.record_exposure(session, actor, 1, None, "a copy")
        assert snapshot(out.database) == before
    with out.database.write() as session:
        exposures.record_exposure(session, out.admin, 1, None, "a copy")


def test_it_is_recorded_once_and_not_ahead_of_its_time(out: World) -> None:
    with refusal("ExposedLater"):
        expose(out, since="2099-01-01T00:00:00.000000Z")
    expose(out, since="2001-02-03T00:00:00.000000Z")
    before = snapshot(out.database)
    with refusal("AlreadyExposed") as refused:
        expose(out)
    assert refused.value.facts == {"request": 1, "since": "2001-02-03T00:00:00.000000Z"}
    assert snapshot(out.database) == before


def test_two_record_it_at_once(out: World) -> None:
    def first(session: Session) -> object:
        return exposures.record_exposure(session, out.steward, 1, None, "a copy")

    assert meanwhile(out.database, first, lambda: expose(out)) == "AlreadyExposed"
    assert fetch(out.database, "SELECT count(*) FROM assignment_exposure") == [(1,)]


@pytest.mark.parametrize("first", ["exposed", "viewed"])
def test_the_earlier_cause_counts_and_only_for_its_release(out: World, first: str) -> None:
    with out.database.read() as session:
        assert exposures.find_secrecy_end(session, 1) is None
        assert exposures.exposed_artifacts(session) == ()
    with later(2 * DAY):
        since = None if first == "exposed" else utc_now_in(2 * DAY)
        with later(DAY), out.database.write() as session:
            exposures.record_view(session, out.admin, artifact(session), "computed")
        expose(out, since=since)
    with out.database.read() as session:
        end = exposures.find_secrecy_end(session, 1)
        assert end is not None
        assert (end.cause, end.by) == (first, "steward" if first == "exposed" else "admin")
        assert exposures.find_secrecy_end(session, 2) is None
        assert exposures.exposed_artifacts(session) == (artifact(session).digest,)


def utc_now_in(ahead: timedelta) -> str:
    return utc_now(datetime.now(UTC) + ahead - timedelta(minutes=1))


def test_what_was_never_published_is_in_no_list(out: World) -> None:
    attempt = out.produced()
    expose(out, attempt.request_id)
    with out.database.read() as session:
        assert exposures.find_secrecy_end(session, attempt.request_id) is not None
        assert exposures.exposed_artifacts(session) == ()


def test_whatever_was_charged_can_be_exposed_and_nothing_else(out: World) -> None:
    """An attempt that failed or still runs has used its assignment; a request that was never charged has none."""
    waiting, running = out.request(), out.running()
    ended = out.running()
    out.fail(ended)
    with refusal("NothingCharged"):
        expose(out, waiting)
    for number in (running.request_id, ended.request_id):
        first = fetch(out.database, f"SELECT min(at) FROM renyi_charge WHERE request_id = {number}")
        assert [(expose(out, number),)] == first
    with out.database.read() as session:
        for number in (running.request_id, ended.request_id):
            end = exposures.find_secrecy_end(session, number)
            assert end is not None
            assert end.cause == "exposed"
        assert set(exposures.find_secrecy_ends_of_account(session, 1)) >= {ended.request_id}
        assert exposures.exposed_artifacts(session) == ()
        assert verify_rows.compare_rows_with_chain(session) == []


@pytest.mark.parametrize("reason", ["", "  "])
def test_the_database_wants_a_reason(out: World, reason: str) -> None:
    with pytest.raises(RuleViolated), out.database.write() as session:
        exposures.record_exposure(session, out.steward, 1, None, reason)


def test_no_row_of_it_is_changed_or_deleted(out: World) -> None:
    expose(out)
    for statement in ("DELETE FROM assignment_exposure", "UPDATE assignment_exposure SET reason = 'none'"):
        with pytest.raises(DBAPIError, match="append-only"), out.database.engine.begin() as connection:
            connection.execute(text(statement))
