"""What limits bind: the plan of a request, the form of times, and whole values; by SQL past the services."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.pool import NullPool

from models_db.database.base import Base, utc_now
from models_db.services import requests
from models_db.services.queries import health
from models_db.sessions.database import Database
from models_db.tables import Request
from models_db.values.amounts import Amount
from models_db.values.canonical_json import encode_canonical
from models_db.values.events import PrivacyEvent
from models_db.writes.database_errors import RuleViolated
from tests.refusals import refusal
from tests.support import TEN, World, event_of, execute, fetch, plan_of, planned

CONCERNS = ("migrations/schema", "models_db/services")


PARTS = [("7", "1"), ("7", "1"), ("5", "0"), ("7", "1")]
AWKWARD = PrivacyEvent("integer_draw", 1, {"sigma": "1/2", "note": 'é " \\ \n \u001f'}, Amount(), {"kind": "NoOp"})
PLAN: dict[str, Any] = {
    "blocks": [0, 1, 3],
    "facts": {},
    "invocations": [
        {"event": event_of("noisy_count").to_json(), "instalments": [{"rho": "3", "delta": "0"}]},
        {"event": AWKWARD.to_json(), "instalments": [{"rho": rho, "delta": delta} for rho, delta in PARTS]},
    ],
}


# --- the plan ---------------------------------------------------------------------------------------------------


def test_the_database_writes_the_plan_of_a_request_from_its_text(world: World) -> None:
    world.dataset(blocks=4)
    number = world.request(plan=PLAN)
    rows = "SELECT * FROM {} WHERE request_id = :number ORDER BY 1, 2, 3"
    found = {table: fetch(world.database, rows.format(table), number=number) for table in (
        "planned_block", "planned_invocation", "planned_instalment")}  # fmt: skip
    assert found == {
        "planned_block": [(number, 0, 1), (number, 3, 3)],
        "planned_invocation": [
            (number, 0, "noisy_count", encode_canonical(event_of("noisy_count").to_json()).decode(), 1),
            (number, 1, "integer_draw", encode_canonical(AWKWARD.to_json()).decode(), 4),
        ],
        "planned_instalment": [
            (number, 0, 0, 0, 3, 0), (number, 1, 0, 1, 7, 1), (number, 1, 2, 2, 5, 0), (number, 1, 3, 3, 7, 1)
        ],
    }  # fmt: skip
    assert fetch(world.database, "SELECT invocations FROM planned_release") == [(2,)]
    with world.database.read() as session:
        requests.require_plan_intact(session, requests.find_request(session, number))
        assert all(finding.ok for finding in health.check_health(session))


def test_thousands_of_equal_instalments_are_one_row(world: World) -> None:
    world.dataset()
    world.request(plan=plan_of([0], [planned(*[TEN] * 5000)]))
    rows = fetch(world.database, "SELECT first_instalment, last_instalment, rho, delta FROM planned_instalment")
    assert rows == [(0, 4999, 10, 0)]


def test_a_run_arms_what_was_approved_and_a_second_one_what_was_never_drawn(world: World) -> None:
    world.dataset()
    most = Amount(7, 1)
    request = world.request(approved=[planned(most, most, most)])
    world.decide(request)
    attempt = world.start(request)
    world.hold(attempt, planned(most, most, most))
    world.arm(attempt)
    world.fail(attempt)
    again = world.start(request, goes_on_from=1)
    world.hold(again, planned(Amount(), most, most))
    world.arm(again)
    assert world.balance().spent == most


@pytest.mark.parametrize(
    "held",
    [
        [planned(Amount(8, 1))],
        [planned(Amount(7, 2))],
        [planned(Amount(6, 1))],
        [planned(Amount(7, 0))],
        [planned(Amount())],
        [planned(Amount(7, 1), Amount(7, 1), Amount(7, 1), Amount(0, 0))],
        [planned(Amount(7, 1), mechanism="noisy_count")],
        [planned(Amount(7, 1)), planned(Amount(1))],
    ],
    ids=[
        "more rho",
        "more delta",
        "less rho",
        "less delta",
        "nothing",
        "more instalments",
        "another mechanism",
        "another invocation",
    ],
)
def test_an_approval_bounds_what_is_held(world: World, held: list[Any]) -> None:
    world.dataset()
    plan = planned(Amount(7, 1), Amount(7, 1), Amount(7, 1))
    request = world.request(approved=[plan])
    world.decide(request)
    attempt = world.start(request)
    with pytest.raises(RuleViolated, match=r"approved for (other mechanisms|another charge)"):
        world.hold(attempt, *held)
    assert world.balance().held == Amount()
    world.hold(attempt, plan)


def test_a_block_outside_the_plan_is_not_held(world: World) -> None:
    world.dataset(blocks=3)
    request = world.request(plan=plan_of([0, 2]))
    world.decide(request)
    attempt = world.start(request)
    with pytest.raises(RuleViolated, match="approved for another charge"):
        world.hold(attempt, planned(TEN))


def test_a_request_is_run_as_often_as_its_policy_says(database: Database) -> None:
    world = World.create(database, attempts=2)
    world.dataset()
    request = world.request()
    world.decide(request)
    for _ in range(2):
        world.fail(world.start(request))
    with pytest.raises(RuleViolated, match="no further attempt"):
        world.start(request)


COLUMNS = [
    (table, column.name)
    for table in ("planned_release", "planned_block", "planned_invocation", "planned_instalment")
    for column in Base.metadata.tables[table].columns
]


@pytest.mark.slow
@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_plan_changed_behind_the_guards_is_found(database: Database, table: str, column: str) -> None:
    """Each column of the plan altered once: the gates, the run and `doctor` hold rows against texts."""
    world = World.create(database)
    world.dataset(blocks=4)
    number = world.request(plan=PLAN)
    other = world.request(plan=PLAN | {"blocks": [0]})
    value = (
        f"'{event_of('x').mechanism}'"
        if column in ("mechanism", "event")
        else f"{column} {'-' if column.startswith('first') else '+'} 1"
    )
    value = str(other + 1) if column == "request_id" else value
    where = f"WHERE request_id = {number}" + (
        " AND sequence = 1" if "sequence" in Base.metadata.tables[table].c else ""
    )
    _behind(database, table, f"UPDATE {table} SET {column} = {value} {where} {_one(table)}")
    with database.read() as session:
        with refusal("PlanAltered"):
            requests.require_plan_intact(session, requests.find_request(session, number))
        assert "plans" in {finding.check for finding in health.check_health(session) if not finding.ok}
        requests.require_plan_intact(session, session.get_one(Request, other))


def _one(table: str) -> str:
    return {"planned_block": "AND first_block = 3", "planned_instalment": "AND first_instalment = 2"}.get(table, "")


def _behind(database: Database, table: str, statement: str) -> None:
    """A change by whoever may take guards away and put them back."""
    if database.is_sqlite:
        with closing(sqlite3.connect(database.engine.url.database or "")) as raw:
            raw.execute("PRAGMA foreign_keys = OFF")
            query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
            kept = raw.execute(query, (table,)).fetchall()
            for name, _ in kept:
                raw.execute(f"DROP TRIGGER {name}")
            assert raw.execute(statement).rowcount == 1
            for _, made in kept:
                raw.execute(made)
            raw.commit()
    else:
        with database.engine.begin() as connection:
            connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER ALL"))
            assert connection.execute(text(statement)).rowcount == 1
            connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER ALL"))


# --- times ------------------------------------------------------------------------------------------------------


UNTIMELY = (
    "2026-11-22T20:22:38.000000",
    "2026-11-22T20:23:38-15:59",
    "2026-11-22T20:23:38.0000+1",
    "2026-11-22 20:22:38.000000Z",
    "2026-11-22T20:22:38.000000z",
    "2026-11-22T24:22:38.000000Z",
    "2026-13-22T20:22:38.000000Z",
    "2026-11-22T20:22:38.00000Z",
    "2026-11-22T20:22:38.000000Z ",
    "infinity",
    "now",
    "9",
    "",
)


@pytest.mark.parametrize("untimely", UNTIMELY)
def test_a_time_of_another_form_is_refused(world: World, untimely: str) -> None:
    world.dataset()
    world.request()
    copied = (
        "INSERT INTO approval (request_id, gate, subject_digest, approver_id, decision, reason, at, expires_at,"
        " signature) SELECT id, 'spend', digest, :steward, 'approve', 'because', :at, :expires, 's' FROM request"
    )
    for given in ({"at": utc_now(), "expires": untimely}, {"at": untimely, "expires": utc_now()}):
        with pytest.raises(DBAPIError):
            execute(world.database, copied, steward=world.steward.id, **given)


# --- PostgreSQL: whatever time zone a session has ---------------------------------------------------------------

ZONES = ("FOO-167", "<UTC>-167", "<UTC>+167", "<Z>-15", "UTC-15", "Asia/Kathmandu", "America/New_York")


@pytest.mark.parametrize("zone", ZONES)
def test_what_time_it_is_does_not_depend_on_the_session(postgresql_database: Database, zone: str) -> None:
    engine = create_engine(postgresql_database.engine.url, poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text(f"SET timezone = '{zone}'"))
        before, told, after = utc_now(), connection.scalar(text("SELECT almoner_now()")), utc_now()
        soon = connection.scalar(text("SELECT almoner_soon('9999-01-01T00:00:00.000000Z')"))
    assert before <= told <= after
    assert soon <= moment_after(after)


def moment_after(at: str) -> str:
    """An hour later, and a little more."""
    return utc_now(datetime.fromisoformat(at) + timedelta(hours=1, seconds=5))


def test_every_function_that_knows_time_runs_in_utc(postgresql_database: Database) -> None:
    """One that a later revision replaces without saying so would believe the session again."""
    query = (
        "SELECT p.proname FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace"
        " AND p.prosrc ~* 'timestamp|time zone|\\:\\:date|to_char'"
        " AND NOT coalesce(p.proconfig, '{}') @> ARRAY['TimeZone=UTC']"
        " AND NOT coalesce(p.proconfig, '{}') @> ARRAY['timezone=UTC']"
    )
    assert fetch(postgresql_database, query) == []


# --- SQLite: values of their columns' types, and rows with their own numbers ------------------------------------


def test_an_entry_near_the_largest_number_is_refused(sqlite_database: Database) -> None:
    world = World.create(sqlite_database)
    world.dataset()
    attempt = world.held()
    copied = "INSERT INTO entry (id, hold_id, kind, at, actor_id) SELECT :id, 1, 'ARM', :at, :runner"
    newest = fetch(sqlite_database, "SELECT max(id) FROM entry")[0][0]
    for number in (2**63 - 1, int(str(newest)) + 2, 0, -1):
        with pytest.raises(IntegrityError):
            execute(sqlite_database, copied, id=number, at=utc_now(), runner=world.runner.id)
    world.arm(attempt)


@pytest.mark.parametrize("value", ["0.5", "X'30'", "'x'", "1e300"])
def test_half_a_block_is_none(sqlite_database: Database, value: str) -> None:
    world = World.create(sqlite_database)
    root = world.account(blocks=2)
    with pytest.raises(IntegrityError, match=r"ck_account_block_type|a block is one of the partition"):
        execute(
            sqlite_database,
            "INSERT INTO account (parent_id, block, rho_cap, delta_cap, created_at)"
            f" SELECT id, {value}, rho_cap, delta_cap, created_at FROM account WHERE id = {root}",
        )
