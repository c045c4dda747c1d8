"""Attacks on PostgreSQL by people who have a login: plain SQL, games with the session, and lies through the one door.

A person may read every table and call the functions of `models_db.writes.insert`, nothing else. Each statement below is
tried by a login that has all rights its role is given; afterwards every table is as it was.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from string import Template

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from migrations.database_roles import grant_access, grant_login
from migrations.schema_inventory import schema_differences
from models_db.database.base import Base, utc_now
from models_db.services.audit import verify_chain
from models_db.services.audit.chain import Actor
from models_db.services.catalogue import principals
from models_db.services.lifecycle import ledger
from models_db.services.lifecycle.proposals import content_of
from models_db.sessions.database import Database
from models_db.tables import Proposal
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, digest, encode_canonical
from models_db.writes.database_errors import RuleViolated
from tests.conftest import Ledgers, PostgreSQL
from tests.contracts.lies import ENTRY, HIDDEN, LEGAL, LIES, LINK, PROPOSAL, SESSION, door
from tests.contracts.rows import PARTS, other_policy
from tests.contracts.step_lies import STEP_LIES
from tests.contracts.town import Town, town_of
from tests.support import LATE, SOON, World, execute, fetch, planned, snapshot

ROLES = ("analyst", "runner", "steward", "admin", "auditor")
TABLES = sorted((*Base.metadata.tables, "alembic_version"))
THEN = "2001-01-01T00:00:00.000000Z"
ASKED: dict[str, Json] = {"kind": "k", "plan": {"blocks": [0], "facts": {}, "invocations": []}}


@dataclass
class Siege:
    """A ledger, the logins of people who attack it, and what they know of it."""

    town: Town
    logins: dict[str, Database]
    facts: dict[str, str]

    def filled(self, statement: str) -> str:
        return Template(statement).substitute(self.facts)


def login(server: PostgreSQL, database: Database, name: str) -> Database:
    url = database.engine.url.set(username=f"almoner_test_{name}")
    return Database(url.render_as_string(hide_password=False))


@pytest.fixture(scope="module")
def siege(ledgers: Ledgers, postgresql: PostgreSQL) -> Iterator[Siege]:
    with town_of(ledgers, "postgresql") as town:
        world, database = town.world, town.world.database
        names = (*ROLES, "nobody", "former")
        for name in names:
            grant_login(database, f"almoner_test_{name}", writes=name != "auditor")
        grant_access(database)
        for name in names:
            grant_login(database, f"almoner_test_{name}", writes=name != "auditor")
        with database.write() as session:
            for name in names:
                if name != "nobody":
                    principals.enrol(session, world.admin, f"bad {name}", f"key of bad {name}", f"almoner_test_{name}")
                if name in ROLES:
                    principals.grant(session, world.admin, f"bad {name}", name, "trusted once")
            since, until = (f"{year}-01-01T00:00:00.000000Z" for year in (2000, 2002))
            principals.grant(
                session, world.admin, "bad former", "steward", "for a time", valid_from=since, valid_to=until
            )
        logins = {name: login(postgresql, database, name) for name in names}
        before = snapshot(database)
        yield Siege(town, logins, facts(town))
        for each in logins.values():
            each.dispose()
        after = snapshot(database)
        for told in ("audit", "audit_head"):  # a link under one's own name is all that was ever admitted
            assert len(after.pop(told)) <= len(before.pop(told)) + 1
        assert after == before


def facts(town: Town) -> dict[str, str]:
    """Everything an attacker reads off the tables."""
    text_of_request = encode_canonical(ASKED).decode()
    known: dict[str, object] = {
        **{f"bad_{name}": town.actor(f"bad {name}").id for name in (*ROLES, "former")},
        "steward": town.world.steward.id, "analyst": town.world.analyst.id, "runner": town.world.runner.id,
        "admin": town.world.admin.id,
        "submitted": town.submitted, "approved": town.approved, "running": town.running.request_id,
        "produced": town.produced.request_id, "cleared": town.cleared.request_id, "scheduled": town.scheduled,
        "schedule": town.schedule, "published": town.published.request_id, "settled": town.settled.request_id,
        "digest": town.world.subject(town.submitted, "spend"), "artifact_digest": town.digest(town.produced),
        "artifact": town.artifact(town.produced), "cleared_artifact": town.artifact(town.cleared),
        "held": town.hold(town.held), "second": town.hold(town.held, 1),
        "armed": town.hold(town.armed), "vetoed": town.hold(town.vetoed),
        "invocation": town.invocation(town.held),
        "routine": town.invocation(town.routine),
        "root": town.account("clinic", None), "block": town.account("clinic"), "harbour": town.account("harbour"),
        "harbour_root": town.account("harbour", None),
        "dataset": town.id_of("dataset", "name = 'clinic'"), "version": town.id_of("dataset_version", "TRUE"),
        "policy": town.world.policy_id, "other_policy": other_policy(town),
        "proposal": town.open_proposal, "proposal_digest": town.world.subject(town.open_proposal, "proposal"),
        "standing": town.standing, "publication": town.id_of("publication", "TRUE"),
        "approval": town.id_of("approval", f"request_id = {town.approved}"),
        "admin_grant": town.id_of("role_grant", "role = 'admin'"), "now": utc_now(), "then": THEN, "late": SOON,
        "token": town.one("SELECT token FROM lease WHERE request_id = :r", r=town.running.request_id),
        "text": json.dumps(text_of_request)[1:-1], "text_digest": digest(ASKED), "d": "d" * 64,
        "version_of_clinic": town.one("SELECT max(id) FROM dataset_version WHERE dataset_id ="
                                      " (SELECT id FROM dataset WHERE name = 'clinic')"),
    }  # fmt: skip
    return {name: str(value) for name, value in known.items()}


def attempt(database: Database, statements: list[str]) -> None:
    """All of them in one transaction, to its end."""
    with database.engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.commit()


# --- plain SQL ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ROLES, "nobody"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {table} SET {column} = {column}",
        "DELETE FROM {table}",
        "TRUNCATE {table} CASCADE",
        "INSERT INTO {table} SELECT * FROM {table} LIMIT 1",
        "SELECT 1 FROM {table} FOR UPDATE",
        "LOCK TABLE {table} IN ROW EXCLUSIVE MODE",
        "COPY {table} FROM '/dev/null'",
        "ALTER TABLE {table} DISABLE TRIGGER ALL",
        "DROP TABLE {table} CASCADE",
        "CREATE RULE swallow AS ON INSERT TO {table} DO INSTEAD NOTHING",
    ],
)
def test_no_table_is_written(siege: Siege, name: str, statement: str) -> None:
    for table in TABLES:
        columns = Base.metadata.tables[table].columns if table in Base.metadata.tables else None
        column = next(iter(columns)).name if columns is not None else "version_num"
        with pytest.raises(DBAPIError, match=r"permission denied|must be owner"):
            attempt(siege.logins[name], [statement.format(table=table, column=column)])


def test_no_right_is_given_on(siege: Siege) -> None:
    """PostgreSQL only warns of a right that the giver may not give."""
    with siege.logins["runner"].engine.connect() as connection:
        connection.exec_driver_sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO almoner_test_runner, PUBLIC")
        for table in TABLES:
            mine = connection.exec_driver_sql(f"SELECT has_table_privilege('{table}', 'INSERT, UPDATE, DELETE')")
            assert mine.scalar() is False
        connection.rollback()


@pytest.mark.parametrize("game", SESSION)
def test_no_game_with_the_session(siege: Siege, game: str) -> None:
    with pytest.raises(DBAPIError):
        attempt(siege.logins["runner"], [siege.filled(each) for each in SESSION[game]])


# --- lies through the door ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", [*LIES, *STEP_LIES])
def test_no_lie_through_the_door(siege: Siege, lie: str) -> None:
    who, statements, said = (LIES | STEP_LIES)[lie]
    with pytest.raises(DBAPIError, match=said):
        attempt(siege.logins[who], [siege.filled(each) for each in statements])


def test_there_are_enough_attacks() -> None:
    assert len({str(case) for case in (*SESSION.values(), *LIES.values(), *STEP_LIES.values())}) >= 150


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
    statement = siege.filled(door("entry", ENTRY % ("$held", "ARM", "runner"))).replace(siege.facts["now"], claimed)
    stored = runner.exec_driver_sql(statement).scalar_one()
    assert utc_now()[:13] == stored["at"][:13]


def test_a_link_says_what_was_recorded_by_whom(siege: Siege) -> None:
    reason = r"\t é \" \\ \n"
    with siege.logins["analyst"].engine.connect() as analyst:
        made = siege.filled(door("proposal", PROPOSAL % ("$policy", "$bad_analyst", 9)).replace("because", reason))
        stored = analyst.exec_driver_sql(made).scalar_one()
        number = stored["id"]
        seq = analyst.exec_driver_sql(LINK).scalar_one()
        link = analyst.execute(text("SELECT * FROM audit WHERE seq = :seq"), {"seq": seq}).mappings().one()
        analyst.rollback()
    told = {**link, "seq": str(seq)}
    assert digest({name: value for name, value in told.items() if name != "row_hash"}) == link["row_hash"]
    assert (link["kind"], link["actor"], link["dataset"]) == ("proposal.proposed", "bad analyst", "clinic")
    body = json.loads(link["body"])
    assert (body["proposal"], body["reason"]) == (number, json.loads(f'"{reason}"'))
    assert [each["table"] for each in body["rows"]] == ["proposal"]
    said = Proposal(**stored)  # with a digest that the caller has made up
    assert stored["digest"] == body["digest"] == digest(content_of(said, "clinic"))


@pytest.mark.parametrize("more", [
    {}, {"runs": 3, "until": "2027-01-01T00:00:00.000000Z", "config_digest": "ab" * 32, "configuration": "{}"},
    {"kind": "retraction", "publication_id": 7, "rho": None}, {"reason": 'a "quoted"\nline, Grüße \\ \t \x7f 東京'},
])  # fmt: skip
def test_the_database_computes_the_digest_of_a_proposal(siege: Siege, more: dict[str, object]) -> None:
    said = json.loads(siege.filled(PROPOSAL % ("$policy", "$bad_analyst", 9))) | more
    with siege.town.world.database.read() as session:
        number = int(said["dataset_id"])
        name = str(session.scalar(text("SELECT name FROM dataset WHERE id = :number"), {"number": number}))
        query = text("SELECT almoner_digest_of(CAST(:said AS jsonb))")
        assert session.scalar(query, {"said": json.dumps(said)}) == digest(content_of(Proposal(**said), name))


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
    doors = found["runner"]
    assert set(doors) == {
        "almoner_claim_units", "almoner_enter", "almoner_lease", "almoner_link", "almoner_lock_accounts",
        "almoner_lock_proposal", "almoner_lock_request", "almoner_lock_schedule", "almoner_owner", "almoner_record",
        "almoner_renew", "almoner_reserve",
    }  # fmt: skip
    assert not [name for name, given in doors.items() if "body" in given or "who" in given]


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
        one.exec_driver_sql(siege.filled(door("hold", one_part)))
        with pytest.raises(DBAPIError, match="lock timeout"):
            other.exec_driver_sql(siege.filled(door("hold", another)))
        one.rollback()


def test_an_old_snapshot_changes_nothing(siege: Siege) -> None:
    """Who began to read before a rejection cannot spend after it: the head of the chain has moved on."""
    with siege.logins["runner"].engine.connect() as old:
        old.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.exec_driver_sql("SELECT 1 FROM approval")
        execute(siege.town.world.database, "SELECT almoner_chain('admin', 'test', NULL, NULL, '{}')")
        old.exec_driver_sql(siege.filled(LEGAL["money"][1]))
        with pytest.raises(DBAPIError, match="could not serialize"):
            old.exec_driver_sql(LINK)
        old.rollback()


# --- work goes on ---------------------------------------------------------------------------------------------


def as_people(world: World, postgresql: PostgreSQL) -> dict[str, World]:
    """The same ledger, once for each login."""
    names = ("analyst", "runner", "steward")
    with world.database.write() as session:
        people_ = {
            name: principals.enrol(session, world.admin, f"good {name}", f"key of good {name}", f"almoner_test_{name}")
            for name in names
        }
        for name in names:
            principals.grant(session, world.admin, f"good {name}", name, "for the tests")
    grant_access(world.database)
    for name in names:
        grant_login(world.database, f"almoner_test_{name}", writes=True)
    everybody = replace(world, analyst=people_["analyst"], runner=people_["runner"], steward=people_["steward"])
    return {name: replace(everybody, database=login(postgresql, world.database, name)) for name in names}


def test_people_work_under_their_own_logins(postgresql_database: Database, postgresql: PostgreSQL) -> None:
    world = World.create(postgresql_database)
    world.dataset()
    by = as_people(world, postgresql)
    plan = planned(Amount(10), Amount(5))
    request_id = by["analyst"].request(approved=(plan,))
    assert by["steward"].decide(request_id) == "approved"
    running = by["runner"].start(request_id)
    by["runner"].hold(running, plan)
    by["runner"].arm(running)
    by["runner"].produce(running)
    with pytest.raises(RuleViolated, match=r"nobody approves|only a steward"):
        by["runner"].decide(request_id, "publish", by=by["runner"].runner)
    by["steward"].decide(request_id, "publish")
    with by["runner"].database.read() as session:
        assert ledger.balance(session, running.account_id).spent == Amount(15)
        assert verify_chain.verify_chain(session).holds
    actors = {str(row[0]) for row in fetch(postgresql_database, "SELECT actor FROM audit WHERE request_id > 0")}
    assert actors == {"good analyst", "good runner", "good steward"}
    for each in by.values():
        each.database.dispose()


@pytest.mark.usefixtures("schemas_once")
def test_a_function_that_was_changed_is_found(postgresql_database: Database) -> None:
    """What only the owner can do is seen by `almoner doctor`."""
    for statement in (
        "ALTER FUNCTION almoner_record(text, jsonb) RESET search_path",
        "ALTER FUNCTION almoner_reserve RESET search_path",
        "ALTER FUNCTION almoner_enter SECURITY INVOKER",
        "CREATE OR REPLACE FUNCTION entry_is_sound() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "ALTER FUNCTION almoner_chain(text, text, text, integer, text) SECURITY DEFINER",
        "ALTER FUNCTION almoner_link() SECURITY INVOKER",
        "DROP VIEW link_of_approval",
        "DROP TRIGGER pending_link_is_told ON pending_link",
        "CREATE OR REPLACE FUNCTION almoner_owner() RETURNS boolean LANGUAGE sql STABLE AS 'SELECT TRUE'",
        "DROP TRIGGER entry_is_told ON entry",
    ):
        with postgresql_database.engine.connect() as connection:
            connection.exec_driver_sql(statement)
            assert schema_differences(connection), statement
            connection.rollback()
    execute(postgresql_database, "SELECT 1")


def test_the_actor_of_a_link_is_the_login(postgresql_database: Database, postgresql: PostgreSQL) -> None:
    world = World.create(postgresql_database)
    world.dataset()
    by = as_people(world, postgresql)
    pretended = replace(by["analyst"], analyst=Actor(world.analyst.id, "analyst"))
    with pytest.raises(RuleViolated, match="own login"):
        pretended.request()
    for each in by.values():
        each.database.dispose()
