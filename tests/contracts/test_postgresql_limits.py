"""PostgreSQL: what binds people who have a login - idle transactions, approvals, amounts, and who administers whom."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from flows.audit.lifetime_claims import require_proposal_amounts
from migrations import database_roles
from migrations import upgrade as upgrading
from migrations.database_roles import grant_access
from migrations.upgrade import upgrade
from models_db.database.base import utc_now
from models_db.errors import Finding
from models_db.services import logins, proposals
from models_db.services.datasets import LifetimeClaim
from models_db.sessions import database as engines
from models_db.sessions.database import Database, LedgerUnreachable
from models_db.values.canonical_json import encode_canonical
from tasks.accounting.lifetime_claims import AmountsDiffer, lifetime_claim
from tests.conftest import PostgreSQL
from tests.contract.hostile_logins import as_people
from tests.refusals import refusal
from tests.support import SOON, TEN, World, event_of, fetch, plan_of, planned


@pytest.fixture
def by(postgresql_database: Database, postgresql: PostgreSQL) -> Iterator[dict[str, World]]:
    """The same ledger, once for each login."""
    world = World.create(postgresql_database)
    world.dataset()
    found = as_people(world, postgresql)
    yield found
    for each in found.values():
        each.database.dispose()


def session_of(world: World) -> Connection:
    """A plain session of that login, with none of almoner's settings."""
    return create_engine(world.database.engine.url, poolclass=NullPool).connect()


def findings(database: Database) -> dict[str, Finding]:
    with database.read() as session:
        return {finding.check: finding for finding in logins.check_access(session)}


# --- an approval bounds what a runner arms ----------------------------------------------------------------------


def reserved(
    world: World, request: int, event: str, rho: int, mechanism: str = "integer_draw", instalment: int = 0
) -> str:
    """A mechanism, a hold and its entry, as the red team's runner wrote them."""
    account = fetch(world.database, "SELECT id FROM account WHERE parent_id IS NOT NULL")[0][0]
    with session_of(world) as connection, connection.begin():
        invocation = added(connection, "invocation", {
            "request_id": request, "attempt": 1, "sequence": 0, "mechanism": mechanism, "event": event,
            "relation": "add_or_remove_one", "rng_kind": "os", "device": "cpu", "code_digest": "c" * 64,
            "libraries": "{}", "idem_key": f"{rho:064x}", "created_at": utc_now(), "created_by": world.runner.id,
        })["id"]  # fmt: skip
        hold = added(connection, "hold", {
            "invocation_id": invocation, "account_id": account, "instalment": instalment, "rho": rho, "delta": 0,
        })["id"]  # fmt: skip
        added(connection, "entry", {"hold_id": hold, "kind": "HOLD", "at": utc_now(), "actor_id": world.runner.id})
        connection.execute(text("SELECT almoner_link()"))
    return "held"


def added(connection: Connection, table: str, row: dict[str, object]) -> dict[str, Any]:
    """Add a row; it comes back as it is stored."""
    places = ", ".join(f":{name}" for name in row)
    statement = f"INSERT INTO {table} AS made ({', '.join(row)}) VALUES ({places}) RETURNING to_jsonb(made)"
    return dict(connection.execute(text(statement), row).scalar_one())


def test_an_approval_bounds_what_a_runner_with_sql_holds(by: dict[str, World]) -> None:
    approved = encode_canonical(event_of("integer_draw").to_json()).decode()
    request = by["analyst"].request(plan=plan_of([0], [planned(TEN, TEN)]))
    by["steward"].decide(request)
    by["runner"].start(request)
    for lie in (
        {"event": "{}", "rho": 10},
        {"event": approved, "rho": 11},
        {"event": approved, "rho": 9},
        {"event": approved, "rho": 0},
        {"event": approved, "rho": 10, "mechanism": "noisy_count"},
        {"event": approved, "rho": 10, "instalment": 2},
    ):
        with pytest.raises(DBAPIError, match=r"approved for (other mechanisms|another charge)"):
            reserved(by["runner"], request, **lie)  # type: ignore[arg-type]
    assert reserved(by["runner"], request, approved, 10) == "held"


@pytest.mark.parametrize("table", ["planned_release", "planned_block", "planned_invocation", "planned_instalment"])
def test_nobody_writes_a_plan_beside_the_database(by: dict[str, World], table: str) -> None:
    request = by["analyst"].request()
    for name in by:
        with session_of(by[name]) as connection, pytest.raises(DBAPIError, match="permission denied"):
            connection.execute(text(f"INSERT INTO {table} (request_id) VALUES ({request})"))


# --- the clock of a session -------------------------------------------------------------------------------------


def test_an_approval_is_not_lengthened_by_sql(by: dict[str, World]) -> None:
    steward, request = by["steward"], by["analyst"].request()
    row = {
        "request_id": request, "gate": "spend", "subject_digest": steward.subject(request, "spend"),
        "approver_id": steward.steward.id, "decision": "approve", "reason": "r", "at": utc_now(), "signature": "s",
    }  # fmt: skip
    for zone in ("UTC", "<UTC>-167", "<UTC>+167"):
        for expires, rule in (
            ("9999-01-01T00:00:00.000000Z", "expires as the policy says"),
            ("9", "expires as the policy says|moment"),
        ):
            with session_of(steward) as connection:
                connection.execute(text(f"SET timezone = '{zone}'"))
                with pytest.raises(DBAPIError, match=rule):
                    added(connection, "approval", {**row, "expires_at": expires})
    with session_of(steward) as connection, connection.begin():
        connection.execute(text("SET LOCAL timezone = '<UTC>-167'"))
        made = added(connection, "approval", {**row, "expires_at": SOON})
        connection.rollback()
    assert abs(_seconds(made["at"]) - _seconds(utc_now())) < 60


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


# --- a cap that lies --------------------------------------------------------------------------------------------


def test_an_analyst_with_sql_proposes_a_cap_that_lies_and_nobody_can_approve_it(by: dict[str, World]) -> None:
    """The red team's proposal: 8.1 with five hundred times its rho. The database takes it; every reader derives."""
    analyst = by["analyst"]
    honest = lifetime_claim("8.1", "0.000001")
    with session_of(analyst) as connection, connection.begin():
        added(connection, "proposal", {
            "kind": "cap", "dataset_id": 1, "policy_id": analyst.policy_id, "proposer_id": analyst.analyst.id,
            "reason": "r", "nonce": "n", "digest": "d" * 64, "created_at": utc_now(), "expires_at": SOON,
            "epsilon": "8.1", "delta": "0.000001", "delta_conversion": honest.delta_conversion,
            "rho": honest.cap.rho * 500, "delta_fail": honest.cap.delta,
        })  # fmt: skip
        connection.execute(text("SELECT almoner_link()"))
    with analyst.database.read() as session:
        proposal = proposals.find_proposal(session, 1)
        assert isinstance(proposal.rho, int)
        stored = LifetimeClaim("8.1", "0.000001", honest.delta_conversion, replace(honest.cap, rho=proposal.rho))
        assert stored.cap.rho == 500 * honest.cap.rho
        with pytest.raises(AmountsDiffer, match=r"Proposal 1 says epsilon 8\.1"):
            require_proposal_amounts(proposal)


# --- idle transactions ------------------------------------------------------------------------------------------


def append(connection: Connection, world: World) -> None:
    """Take the lock that every writer needs, with something to tell."""
    row = {
        "kind": "cap", "dataset_id": 1, "policy_id": world.policy_id, "proposer_id": world.analyst.id, "reason": "r",
        "nonce": "idle", "digest": "e" * 64, "created_at": utc_now(), "expires_at": SOON, "epsilon": "8",
        "delta": "0.000001", "delta_conversion": 1, "rho": 1, "delta_fail": 1,
    }  # fmt: skip
    added(connection, "proposal", row)
    connection.execute(text("SELECT almoner_link()"))


def test_the_database_ends_an_idle_transaction_that_keeps_writers_waiting(
    by: dict[str, World], postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        database_roles, "SESSION_TIMEOUTS", {"idle_in_transaction_session_timeout": 1, "lock_timeout": 60}
    )
    assert any("idle_in_transaction" in done for done in grant_access(postgresql_database).applied)
    assert grant_access(postgresql_database).applied == ()
    with session_of(by["analyst"]) as idle:
        append(idle, by["analyst"])
        by["analyst"].request()  # it waits for the idle one, and gets through
        with pytest.raises(DBAPIError, match="idle-in-transaction timeout"):
            append(idle, by["analyst"])
        idle.invalidate()


def test_who_lifts_the_limit_is_named_with_the_statement_that_ends_the_session(
    by: dict[str, World], postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL lets every session set its own timeout; then only somebody above it ends it, and doctor says how."""
    with session_of(by["analyst"]) as hostile:
        hostile.execute(text("SET idle_in_transaction_session_timeout = 0"))
        append(hostile, by["analyst"])
        pid = hostile.scalar(text("SELECT pg_backend_pid()"))
        with session_of(by["steward"]) as waiting:
            waiting.execute(text("SET lock_timeout = '500ms'"))
            with pytest.raises(DBAPIError, match="lock timeout"):
                append(waiting, replace(by["steward"], analyst=by["steward"].steward))
        monkeypatch.setattr(logins, "_BLOCKING_SESSIONS", logins._BLOCKING_SESSIONS.replace("1 minute", "0 minutes"))
        found = findings(postgresql_database)["no session keeps the writers waiting"]
        assert not found.ok
        assert f"`SELECT pg_terminate_backend({pid})`" in found.detail
        fetch(postgresql_database, "SELECT pg_terminate_backend(:pid)", pid=pid)
        time.sleep(0.2)
        hostile.invalidate()
        by["analyst"].request()
    assert findings(postgresql_database)["no session keeps the writers waiting"].ok


def test_a_statement_that_keeps_writers_waiting_is_ended_and_its_session_named(
    by: dict[str, World], postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session need not idle to hold the head of the chain: it may sleep in a statement."""
    monkeypatch.setattr(database_roles, "SESSION_TIMEOUTS", {"statement_timeout": 2})
    assert any("statement_timeout" in done for done in grant_access(postgresql_database).applied)
    monkeypatch.setattr(logins, "_BLOCKING_SESSIONS", logins._BLOCKING_SESSIONS.replace("1 minute", "0 minutes"))
    with session_of(by["analyst"]) as busy:
        append(busy, by["analyst"])
        pid = busy.scalar(text("SELECT pg_backend_pid()"))
        found = findings(postgresql_database)["no session keeps the writers waiting"]
        assert not found.ok
        assert f"`SELECT pg_terminate_backend({pid})`" in found.detail
        with pytest.raises(DBAPIError, match="statement timeout"):
            busy.execute(text("SELECT pg_sleep(30)"))
        busy.rollback()
    by["analyst"].request()


def test_a_session_of_almoner_that_idled_too_long_is_named(postgresql_database: Database) -> None:
    def idle() -> None:
        with postgresql_database.write() as session:
            session.execute(text("SET LOCAL idle_in_transaction_session_timeout = '100ms'"))
            time.sleep(0.5)
            session.execute(text("SELECT 1"))

    with pytest.raises(LedgerUnreachable):
        idle()
    assert fetch(postgresql_database, "SELECT 1") == [(1,)]


def test_almoners_own_sessions_wait_and_idle_no_longer_than_they_say(postgresql_database: Database) -> None:
    assert fetch(postgresql_database, "SELECT current_setting('idle_in_transaction_session_timeout')") == [
        (f"{engines.IDLE_SECONDS // 60}min",)
    ]
    assert fetch(postgresql_database, "SELECT current_setting('lock_timeout')") == [("1min",)]


# --- who administers whom ---------------------------------------------------------------------------------------

NOBODY = "nobody administers another person's login"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("ALTER ROLE almoner_test_analyst CREATEROLE", "ALTER ROLE almoner_test_analyst NOCREATEROLE"),
        (
            "GRANT almoner_test_steward TO almoner_test_analyst WITH ADMIN OPTION, INHERIT FALSE, SET FALSE",
            "REVOKE almoner_test_steward FROM almoner_test_analyst",
        ),
        ("GRANT almoner_test_steward TO almoner_test_analyst", "REVOKE almoner_test_steward FROM almoner_test_analyst"),
    ],
    ids=["CREATEROLE", "admin option", "member"],
)
def test_doctor_warns_of_whoever_could_log_in_as_somebody_else(
    by: dict[str, World], postgresql_database: Database, given: str, taken: str
) -> None:
    assert not findings(postgresql_database)[NOBODY].warning
    with postgresql_database.engine.begin() as connection:
        connection.execute(text(given))
    try:
        found = findings(postgresql_database)[NOBODY]
        assert found.warning
        assert "almoner_test_analyst administers" in found.detail
    finally:
        with postgresql_database.engine.begin() as connection:
            connection.execute(text(taken))
    assert not findings(postgresql_database)[NOBODY].warning


def test_an_older_server_is_refused_by_name(postgresql_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrading, "OLDEST_POSTGRESQL", 990_000)
    for refused in (upgrade, database_roles.may_upgrade):
        with refusal("PostgreSQLTooOld", match="the ledger needs 99 or newer"):
            refused(postgresql_database)
