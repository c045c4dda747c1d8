"""Attacks on PostgreSQL by people who have a login: lies in the rows that they add, and changes that nobody is told of.

A person may read every table, add rows and call some functions, nothing else; what no login may do is in
tests/contract/test_logins.py. Each statement below is tried by a login that has all rights its role is given;
afterwards every table is as it was.
"""

import json
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from migrations.schema_inventory import schema_differences
from models_db.database.base import utc_now
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.values.canonical_json import digest
from models_db.writes.link_content import digest_of_contents, row_content
from tests.conftest import Ledgers, PostgreSQL
from tests.contract.hostile_logins import ROLES, THEN, Siege, besieged
from tests.contracts.lies import ENTRY, HIDDEN, LEGAL, LIES, LINK, PROPOSAL, add
from tests.contracts.rows import PARTS
from tests.contracts.step_lies import STEP_LIES
from tests.support import LATE, execute


@pytest.fixture(scope="module")
def siege(ledgers: Ledgers, postgresql: PostgreSQL) -> Iterator[Siege]:
    with besieged(ledgers, postgresql) as made:
        yield made


def attempt(database: Database, statements: list[str]) -> None:
    """All of them in one transaction, to its end."""
    with database.engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.commit()


# --- lies in rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", [*LIES, *STEP_LIES])
def test_no_lie_is_added(siege: Siege, lie: str) -> None:
    who, statements, said = (LIES | STEP_LIES)[lie]
    with pytest.raises(DBAPIError, match=said):
        attempt(siege.logins[who], [siege.filled(each) for each in statements])


# --- changes that nobody is told of ---------------------------------------------------------------------------


@pytest.mark.parametrize("way", HIDDEN)
@pytest.mark.parametrize("change", LEGAL)
def test_no_change_goes_untold(siege: Siege, change: str, way: str) -> None:
    who, statement = LEGAL[change]
    with pytest.raises(DBAPIError, match="every change is told in the chain"):
        attempt(siege.logins[who], [siege.filled(each) for each in HIDDEN[way](statement, LINK)])


@pytest.mark.parametrize("change", LEGAL)
def test_the_same_change_is_admitted_when_it_is_told(siege: Siege, change: str) -> None:
    """Each of them is legal but for the silence, so that nothing else refused it."""
    who, statement = LEGAL[change]
    with siege.logins[who].engine.connect() as connection:
        connection.exec_driver_sql(siege.filled(statement))
        connection.exec_driver_sql(LINK)
        connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
        connection.rollback()


# --- what is admitted is told as it is ------------------------------------------------------------------------


@pytest.fixture
def runner(siege: Siege) -> Iterator[Connection]:
    with siege.logins["runner"].engine.connect() as connection:
        yield connection
        connection.rollback()


@pytest.mark.parametrize("claimed", [THEN, LATE, "yesterday"])
def test_the_time_is_the_servers(siege: Siege, runner: Connection, claimed: str) -> None:
    statement = siege.filled(add("entry", ENTRY % ("$held", "ARM", "runner"))).replace(siege.facts["now"], claimed)
    stored = runner.exec_driver_sql(statement).scalar_one()
    assert utc_now()[:13] == stored["at"][:13]


def test_a_link_says_what_was_recorded_by_whom(siege: Siege) -> None:
    reason = r"\t é \" \\ \n"
    with siege.logins["analyst"].engine.connect() as analyst:
        made = siege.filled(add("proposal", PROPOSAL % ("$policy", "$bad_analyst", 9)).replace("because", reason))
        stored = analyst.exec_driver_sql(made).scalar_one()
        number = stored["id"]
        seq = analyst.exec_driver_sql(LINK).scalar_one()
        link = analyst.execute(text("SELECT * FROM audit WHERE seq = :seq"), {"seq": seq}).mappings().one()
        analyst.rollback()
    told = {**link, "seq": str(seq)}
    assert digest({name: value for name, value in told.items() if name != "row_hash"}) == link["row_hash"]
    assert (link["kind"], link["actor"], link["dataset"]) == ("proposal.proposed", "bad analyst", "clinic")
    assert stored["reason"] == json.loads(f'"{reason}"')
    content = digest_of_contents([row_content("proposal", stored)])
    assert json.loads(link["body"]) == {"rows": [{"content": content, "ids": str(number), "table": "proposal"}]}


def test_what_people_with_a_login_may_call(siege: Siege) -> None:
    """None of it takes a kind, an actor or the body of a link."""
    callable_ = text(
        "SELECT p.proname, pg_get_function_identity_arguments(p.oid) FROM pg_proc p WHERE p.pronamespace ="
        " 'public'::regnamespace AND has_function_privilege(:login, p.oid, 'EXECUTE') ORDER BY 1"
    )
    with siege.town.world.database.read() as session:
        found = {who: dict(map(tuple, session.execute(callable_, {"login": f"almoner_test_{who}"}).all()))
                 for who in (*ROLES, "nobody", "former")}  # fmt: skip
    assert set(found.pop("auditor")) == set()
    assert len({frozenset(each) for each in found.values()}) == 1
    called = found["runner"]
    assert set(called) == {
        "almoner_begin", "almoner_claim_units", "almoner_lease", "almoner_link", "almoner_owner",
        "almoner_renew",
    }  # fmt: skip
    assert not [name for name, given in called.items() if "body" in given or "who" in given]


@pytest.mark.parametrize("token", ["guessed", "$token"])
def test_a_lease_is_renewed_by_its_runner_only(siege: Siege, runner: Connection, token: str) -> None:
    """The token can be read; it is not what makes a run somebody's."""
    assert runner.exec_driver_sql(siege.filled(f"SELECT almoner_renew($running, '{token}', '$late')")).scalar() is False


def test_a_lease_is_short(siege: Siege, runner: Connection) -> None:
    runner.exec_driver_sql(siege.filled(LEGAL["a step"][1]))
    runner.exec_driver_sql(siege.filled("SELECT almoner_lease($approved, 1, 't', 'me', '$late')"))
    assert runner.exec_driver_sql(siege.filled("SELECT almoner_renew($approved, 't', '$late')")).scalar() is True
    expires_at = runner.exec_driver_sql(siege.filled("SELECT expires_at FROM lease WHERE request_id = $approved"))
    assert str(expires_at.scalar())[:4] == utc_now()[:4]


def test_two_sessions_of_one_steward_are_one_vote(siege: Siege) -> None:
    """The second waits for the first, sees it and is refused; so m of n needs m people."""
    steward = siege.logins["steward"]
    with steward.engine.connect() as one, steward.engine.connect() as other:
        other.exec_driver_sql("SET lock_timeout = '300ms'")
        other.commit()
        one.exec_driver_sql(siege.filled(LEGAL["a decision"][1]))
        with pytest.raises(DBAPIError, match="lock timeout"):
            other.exec_driver_sql(siege.filled(LEGAL["a decision"][1]))
        one.rollback()


def test_two_sessions_of_one_runner_have_one_limit(siege: Siege) -> None:
    row = '{"invocation_id": $invocation, "account_id": $block, "instalment": %s, "rho": 1, "delta": %s}'
    one_part, another = (row % (PARTS.index(Amount(1, delta)), delta) for delta in (0, 1))
    runner = siege.logins["runner"]
    with runner.engine.connect() as one, runner.engine.connect() as other:
        other.exec_driver_sql("SET lock_timeout = '300ms'")
        other.commit()
        one.exec_driver_sql(siege.filled(add("hold", one_part)))
        with pytest.raises(DBAPIError, match="lock timeout"):
            other.exec_driver_sql(siege.filled(add("hold", another)))
        one.rollback()


def test_an_old_snapshot_changes_nothing(siege: Siege) -> None:
    """Who began to read before a rejection cannot spend after it: the head of the chain has moved on."""
    with siege.logins["runner"].engine.connect() as old:
        old.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.exec_driver_sql("SELECT 1 FROM approval")
        execute(siege.town.world.database, "SELECT almoner_chain('admin', 'test', NULL, NULL, '{}')")
        with pytest.raises(DBAPIError, match="could not serialize"):
            old.exec_driver_sql(siege.filled(LEGAL["money"][1]))
        old.rollback()


# --- what the owner alone can do --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("schemas_once")
def test_a_function_that_was_changed_is_found(postgresql_database: Database) -> None:
    """What only the owner can do is seen by `almoner doctor`."""
    for statement in (
        "ALTER FUNCTION almoner_link() RESET search_path",
        "ALTER FUNCTION _stamp_entry() SECURITY INVOKER",
        "DROP TRIGGER _pend_approval ON approval",
        "CREATE OR REPLACE FUNCTION entry_is_sound() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "ALTER FUNCTION almoner_chain(text, text, text, integer, text) SECURITY DEFINER",
        "ALTER FUNCTION almoner_link() SECURITY INVOKER",
        "DROP VIEW link_of_approval",
        "DROP TRIGGER pending_link_is_told ON pending_link",
        "CREATE OR REPLACE FUNCTION almoner_owner() RETURNS boolean LANGUAGE sql STABLE AS 'SELECT TRUE'",
    ):
        with postgresql_database.engine.connect() as connection:
            connection.exec_driver_sql(statement)
            assert schema_differences(connection), statement
            connection.rollback()
    execute(postgresql_database, "SELECT 1")
