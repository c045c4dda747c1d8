"""Hostile people, each with a login of their own and all rights of their roles, at today's ledger on PostgreSQL.

Like the driver, this module knows tables, and functions that logins may call; the tests name deeds only. A name after a
dollar is a fact that people with a login can read.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from string import Template

from psycopg.errors import InsufficientPrivilege
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from migrations.database_roles import grant_access, grant_login
from models_db.database.base import Base, utc_now
from models_db.errors import AlmonerError
from models_db.services import people
from models_db.services.audit import verify_chain
from models_db.services.logins import ADDED_BY_LOGINS
from models_db.sessions.database import Database
from models_db.values.canonical_json import Json, digest, encode_canonical
from models_db.writes.database_errors import translate_database_errors
from tests.conftest import Ledgers, PostgreSQL
from tests.contract.driver import Driver
from tests.contracts.lies import (
    APPROVAL,
    COHORT,
    ENTRY,
    GRANT,
    LEGAL,
    LINK,
    PROPOSAL,
    REQUEST,
    SCHEDULE,
    SLOT,
    TRANSITION,
    add,
    forged,
)
from tests.contracts.rows import other_policy
from tests.contracts.step_lies import enter, reserve
from tests.contracts.town import Town, town_of
from tests.support import SOON, World, snapshot

ROLES = ("analyst", "runner", "steward", "admin", "auditor")
LOGINS = (*ROLES, "nobody")
"""One login for each role, and one that the ledger knows nobody for."""
TABLES = sorted((*Base.metadata.tables, "alembic_version"))
THEN = "2001-01-01T00:00:00.000000Z"
ASKED: dict[str, Json] = {"kind": "k", "plan": {"blocks": [0], "facts": {}, "invocations": []}}

RIGHTS = {
    "become the owner": ["SET ROLE postgres"],
    "be the owner from the start": ["SET SESSION AUTHORIZATION postgres"],
    "be a replica": ["SET session_replication_role = replica"],
    "be a superuser": ["ALTER ROLE $login SUPERUSER"],
    "be another role": ["GRANT $other TO $login"],
    "make a role": ["CREATE ROLE almoner_test_puppet LOGIN"],
    "own a fact": ["ALTER TABLE entry OWNER TO $login"],
    "drop a guard": ["DROP TRIGGER entry_is_sound ON entry"],
    "drop a constraint": ["ALTER TABLE account DROP CONSTRAINT ck_account_rho"],
    "replace a function": [
        "CREATE OR REPLACE FUNCTION almoner_may(who bigint, wanted text) RETURNS boolean LANGUAGE sql AS 'SELECT TRUE'"
    ],
    "change where a function looks": ["ALTER FUNCTION almoner_link() RESET search_path"],
    "drop a function": ["DROP FUNCTION almoner_link()"],
    "make a table": ["CREATE TABLE public.mine (id int)"],
    "make a function": ["CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'"],
    "make an operator": ["CREATE OPERATOR public.= (LEFTARG = varchar, RIGHTARG = text, FUNCTION = textne)"],
    "make a schema": ["CREATE SCHEMA mine"],
    "drop an extension": ["DROP EXTENSION plpgsql"],
    "own a language": ["ALTER LANGUAGE plpgsql OWNER TO $login"],
    "watch what others define": ["CREATE EVENT TRIGGER mine ON ddl_command_end EXECUTE FUNCTION lo_manage()"],
    "send the record elsewhere": ["CREATE PUBLICATION mine FOR TABLE entry"],
    "switch guards off in the catalogue": ["UPDATE pg_trigger SET tgenabled = 'D'"],
    "change the server's settings": ["ALTER SYSTEM SET session_preload_libraries = 'x'"],
    "change the database's settings": ["ALTER DATABASE postgres SET search_path = pg_temp"],
    "run a program of the server": ["COPY (SELECT 1) TO PROGRAM 'cat'"],
    "copy a file of the server": ["CREATE TEMP TABLE lines (line text)", "COPY lines FROM '/etc/passwd'"],
    "read a file of the server": ["SELECT pg_read_file('/etc/passwd')"],
    "load a file of the server": ["SELECT lo_import('/etc/passwd')"],
    "set a number back": ["SELECT setval('pending_link_id_seq', 1)"],
    "use a number up": ["SELECT nextval('pending_link_id_seq')"],
    "keep the record from others": ["LOCK TABLE audit_head IN ACCESS EXCLUSIVE MODE"],
    "run a block of code": ["DO $$$$ BEGIN UPDATE account SET rho_spent = 0; END $$$$"],
    "call a function with the owner's rights": [
        "CREATE FUNCTION pg_temp.mine() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'DELETE FROM public.audit'",
        "SELECT pg_temp.mine()",
    ],
    "use a guard on a table of one's own": [
        "CREATE TEMP TABLE hold AS SELECT * FROM public.hold",
        "CREATE TEMP TABLE entry AS SELECT * FROM public.entry LIMIT 1",
        "CREATE TRIGGER mine AFTER INSERT ON entry FOR EACH ROW EXECUTE FUNCTION public.entry_moves_account()",
        "INSERT INTO entry SELECT * FROM entry",
    ],
    "end another's session": ["SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'"],
    "change everybody's settings": ["ALTER ROLE ALL SET search_path = pg_temp"],
    "read the passwords of logins": ["SELECT rolpassword FROM pg_authid"],
    "write an entry of the record": [forged("note.x")],
    "write a decision into the record": [forged("request.approve")],
    "write a policy into the record": [forged("policy.adopted")],
    "write an upgrade into the record": [forged("ledger.upgraded")],
}
"""What no login may do, whoever has it."""

CHANGES = {
    "changed": "UPDATE {table} SET {column} = {column}",
    "removed": "DELETE FROM {table}",
    "emptied": "TRUNCATE {table} CASCADE",
    "kept from others": "SELECT 1 FROM {table} FOR UPDATE",
    "locked": "LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE",
    "loaded from a file": "COPY {table} FROM '/dev/null'",
    "given another guard": "CREATE TRIGGER mine BEFORE INSERT ON {table} EXECUTE FUNCTION lo_manage()",
    "freed of its guards": "ALTER TABLE {table} DISABLE TRIGGER ALL",
    "dropped": "DROP TABLE {table} CASCADE",
    "swallowed by a rule": "CREATE RULE swallow AS ON INSERT TO {table} DO INSTEAD NOTHING",
}
"""What is tried with each fact."""


@dataclass(frozen=True)
class Lie:
    """Whose login says it, what it says, and the nearest thing that is true, with the login that says it."""

    who: str
    said: list[str]
    lawful: tuple[str, str] | None = None


FOR_A_STEWARD = LEGAL["a forged decision"]
LIES = {
    "a schedule in another's name": Lie("analyst", [add("schedule", SCHEDULE % "$analyst")], LEGAL["a schedule"]),
    "a slot in another's name": Lie("analyst", [add("schedule_slot", SLOT % ("$now", "$analyst"))], LEGAL["a slot"]),
    "a decision of somebody with a login": Lie(
        "steward", [add("approval", APPROVAL % "$bad_admin")], LEGAL["a decision"]
    ),
    "a decision of a steward without a login, by a runner": Lie(
        "runner", [add("approval", APPROVAL % "$steward")], FOR_A_STEWARD
    ),
    "a decision of a steward without a login, by an analyst": Lie(
        "analyst", [add("approval", APPROVAL % "$steward")], FOR_A_STEWARD
    ),
    "a decision dated before the role ended": Lie(
        "former", [add("approval", (APPROVAL % "$bad_former").replace("$now", "$then"))], LEGAL["a decision"]
    ),
    "a withdrawal of another's approval": Lie(
        "analyst",
        [add("withdrawal", '{"approval_id": $approval, "reason": "r", "signature": "s", "at": "$now"}')],
    ),
    "a request in another's name": Lie(
        "analyst", [add("request", REQUEST % ("$text_digest", "$analyst"))], LEGAL["a request"]
    ),
    "a proposal in another's name": Lie(
        "analyst", [add("proposal", PROPOSAL % ("$policy", "$analyst", 9))], LEGAL["a proposal"]
    ),
    "a step in another's name": Lie(
        "runner",
        [add("transition", (TRANSITION % ("approved", 3, "approved", "running", "runner")).replace("$bad_", "$"))],
        LEGAL["a step"],
    ),
    "a cohort in another's name": Lie("runner", [add("cohort", COHORT % "$steward")]),
    "a role that she gives herself": Lie(
        "runner", [add("role_grant", GRANT % ("runner", "admin", "$bad_runner"))], LEGAL["a role"]
    ),
    "a role in the admin's name": Lie(
        "runner", [add("role_grant", GRANT % ("runner", "admin", "$admin"))], LEGAL["a role"]
    ),
    "a role again that has ended": Lie(
        "former", [add("role_grant", GRANT % ("former", "steward", "$bad_former"))], LEGAL["a role"]
    ),
    "the admin's role taken away": Lie(
        "steward",
        [
            add(
                "role_revocation",
                '{"grant_id": $admin_grant, "revoked_by": $bad_steward, "reason": "r", "at": "$now"}',
            )
        ],
    ),
    "another's run taken over": Lie("runner", ["SELECT almoner_lease($running, 1, 'mine', 'me', '$late')"]),
    "the next run taken in advance": Lie("runner", ["SELECT almoner_lease($running, 999, 'mine', 'me', '$late')"]),
    "money armed in another's name": Lie("runner", enter("$held", "ARM", "$runner"), LEGAL["money"]),
    "money armed in no name": Lie("runner", enter("$held", "ARM", "NULL"), LEGAL["money"]),
    "a plan in another's name": Lie("runner", reserve(actor="$runner")),
    "money armed by nobody": Lie("nobody", [add("entry", ENTRY % ("$held", "ARM", "runner"))], LEGAL["money"]),
    "money armed by nobody, as a step": Lie("nobody", enter("$held", "ARM", "$bad_runner"), LEGAL["money"]),
    "a plan by nobody": Lie("nobody", reserve()),
    "an entry of the record by nobody": Lie("nobody", [LINK]),
    "the ledger kept from others by nobody": Lie("nobody", ["SELECT almoner_begin()"]),
    "data taken in by nobody": Lie("nobody", ["SELECT almoner_claim_units($root, ARRAY['\\x01'::bytea], ARRAY[1])"]),
    "a checkpoint by a reader": Lie("auditor", [add("checkpoint", '{"seq": 1}')]),
    "an entry of the record by a reader": Lie("auditor", [LINK]),
    "money armed by a reader": Lie("auditor", enter("$held", "ARM", "$bad_runner"), LEGAL["money"]),
    "a plan by a reader": Lie("auditor", reserve()),
    "a change that stays prepared and that nobody is told of": Lie(
        "runner", [LEGAL["money"][1], "PREPARE TRANSACTION 'mine'"], LEGAL["money"]
    ),
    "a table of roles of one's own": Lie(
        "runner",
        [
            "CREATE TEMP TABLE role_grant AS SELECT * FROM public.role_grant",
            "UPDATE pg_temp.role_grant SET principal_id = $bad_runner",
            "SET search_path = pg_temp, public",
            add("public.role_grant", GRANT % ("runner", "admin", "$bad_runner")),
        ],
        LEGAL["a role"],
    ),
    "a table of people of one's own": Lie(
        "runner",
        [
            "CREATE TEMP TABLE principal AS SELECT * FROM public.principal",
            "UPDATE pg_temp.principal SET login = NULL WHERE id = $bad_runner",
            "UPDATE pg_temp.principal SET login = session_user WHERE id = $admin",
            "SET search_path = pg_temp, public",
            add("public.role_grant", GRANT % ("runner", "admin", "$admin")),
        ],
        LEGAL["a role"],
    ),
    "functions of one's own": Lie(
        "runner",
        [
            "CREATE FUNCTION pg_temp.almoner_may(a bigint, b text) RETURNS boolean LANGUAGE sql AS 'SELECT TRUE'",
            "CREATE FUNCTION pg_temp.almoner_owner() RETURNS boolean LANGUAGE sql AS 'SELECT TRUE'",
            "SET search_path = pg_temp, public",
            add("public.role_grant", GRANT % ("runner", "admin", "$admin")),
        ],
        LEGAL["a role"],
    ),
    "a newest entry of one's own": Lie(
        "runner",
        [
            "CREATE TEMP TABLE audit_head AS SELECT 1 AS id, 0::bigint AS seq, repeat('0', 64) AS hash",
            "SET search_path = pg_temp, public",
            "CREATE TEMP TABLE pending_link AS SELECT 1 AS id, 'approval' AS table_name, 1 AS first_id, 1 AS last_id",
            add("public.entry", ENTRY % ("$held", "ARM", "runner")),
        ],
        LEGAL["money"],
    ),
}
"""What people say of who they are, and what they put in the place of the ledger's own."""


@dataclass
class Siege:
    """A ledger, the logins of people who attack it, and what they know of it."""

    town: Town
    logins: dict[str, Database]
    facts: dict[str, str]

    def filled(self, statement: str, who: str = "runner") -> str:
        """A statement with the facts that it names."""
        other = "admin" if who != "admin" else "steward"
        return Template(statement).substitute(self.facts, login=f"almoner_test_{who}", other=f"almoner_test_{other}")

    def refusal(self, who: str, statements: list[str]) -> str | None:
        """The name of the refusal that a login meets, all in one transaction to its end; None if there is none."""
        try:
            with self.logins[who]._session() as session, session.begin():  # with a client of their own
                self._say(session, [self.filled(each, who) for each in statements])
        except AlmonerError as refused:
            return refused.code
        except DBAPIError as refused:
            return type(refused.orig).__name__
        return None

    def refusal_of_right(self, who: str, deed: str) -> str | None:
        """The same of something that no login may do."""
        if not RIGHTS[deed][0].startswith("ALTER SYSTEM"):
            return self.refusal(who, RIGHTS[deed])
        alone = self.logins[who].engine.execution_options(isolation_level="AUTOCOMMIT")
        try:
            with alone.connect() as connection:  # the server wants no transaction around it
                connection.exec_driver_sql(RIGHTS[deed][0])
        except DBAPIError as refused:
            return "LedgerForbidden" if isinstance(refused.orig, InsufficientPrivilege) else type(refused.orig).__name__
        return None

    def refusal_of_lie(self, lie: str) -> str | None:
        """The same of a lie."""
        return self.refusal(LIES[lie].who, LIES[lie].said)

    def refusal_of_truth(self, lie: str) -> str | None:
        """The same of the nearest true thing, which is taken back; None as well where there is none."""
        if (lawful := LIES[lie].lawful) is None:
            return None
        who, statement = lawful
        try:
            with self.logins[who].write() as session:
                self._say(session, [self.filled(statement, who), LINK])
                session.rollback()
        except AlmonerError as refused:
            return refused.code
        return None

    def allowed(self, who: str, change: str) -> list[str]:
        """The facts with which a login may do something of `CHANGES`."""
        found = []
        for table in TABLES:
            column = (
                next(iter(Base.metadata.tables[table].columns)).name if table in Base.metadata.tables else "version_num"
            )
            if self.refusal(who, [CHANGES[change].format(table=table, column=column)]) != "LedgerForbidden":
                found.append(table)
        return found

    def copied(self, who: str) -> list[str]:
        """The facts that a login may add a second time, just as they are."""
        rows = "SELECT EXISTS (SELECT 1 FROM {table})"
        with self.town.world.database.read() as session:
            told = [t for t in TABLES if session.connection().exec_driver_sql(rows.format(table=t)).scalar()]
        return [t for t in told if self.refusal(who, [f"INSERT INTO {t} SELECT * FROM {t} LIMIT 1"]) is None]

    def gives_herself(self, who: str) -> list[str]:
        """The facts that a login could write after it has given all rights to itself and to everybody."""
        asked = "SELECT has_table_privilege('{table}', '{insert}UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')"
        with self.logins[who].engine.connect() as connection:
            login = f"almoner_test_{who}"
            connection.exec_driver_sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {login}, PUBLIC")
            found = [
                table
                for table in TABLES
                if connection.exec_driver_sql(
                    asked.format(table=table, insert="" if table in ADDED_BY_LOGINS else "INSERT, ")
                ).scalar()
                is not False
            ]
            connection.rollback()
        return found

    def _say(self, session: Session, statements: list[str]) -> None:
        with translate_database_errors():
            for statement in (*statements, "SET CONSTRAINTS ALL IMMEDIATE"):
                session.connection().exec_driver_sql(statement)


def login(server: PostgreSQL, database: Database, name: str) -> Database:
    """The ledger as a login reaches it."""
    url = database.engine.url.set(username=f"almoner_test_{name}")
    return Database(url.render_as_string(hide_password=False))


@contextmanager
def besieged(ledgers: Ledgers, server: PostgreSQL) -> Iterator[Siege]:
    """Such a ledger, which is afterwards as it was."""
    with town_of(ledgers, "postgresql") as town:
        world, database = town.world, town.world.database
        names = (*LOGINS, "former")
        for name in names:
            grant_login(database, f"almoner_test_{name}", writes=name != "auditor")
        grant_access(database)
        for name in names:
            grant_login(database, f"almoner_test_{name}", writes=name != "auditor")
        with database.write() as session:
            for name in names:
                if name != "nobody":
                    people.enrol(session, world.admin, f"bad {name}", f"key of bad {name}", f"almoner_test_{name}")
                if name in ROLES:
                    people.grant(session, world.admin, f"bad {name}", name, "trusted once")
            since, until = (f"{year}-01-01T00:00:00.000000Z" for year in (2000, 2002))
            people.grant(session, world.admin, "bad former", "steward", "for a time", valid_from=since, valid_to=until)
        logins = {name: login(server, database, name) for name in names}
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


def as_people(world: World, postgresql: PostgreSQL) -> dict[str, World]:
    """The same ledger, once for each login."""
    names = ("analyst", "runner", "steward")
    with world.database.write() as session:
        hired = {
            name: people.enrol(session, world.admin, f"good {name}", f"key of good {name}", f"almoner_test_{name}")
            for name in names
        }
        for name in names:
            people.grant(session, world.admin, f"good {name}", name, "for the tests")
    grant_access(world.database)
    for name in names:
        grant_login(world.database, f"almoner_test_{name}", writes=True)
    everybody = replace(world, analyst=hired["analyst"], runner=hired["runner"], steward=hired["steward"])
    return {name: replace(everybody, database=login(postgresql, world.database, name)) for name in names}


@contextmanager
def drivers(database: Database, server: PostgreSQL) -> Iterator[dict[str, Driver]]:
    """A new ledger as its analyst, its runner and its steward reach it, each with a login of their own."""
    first = Driver.on(database)
    first.register()
    by = as_people(first.world, server)
    yield {name: Driver(world) for name, world in by.items()}
    for world in by.values():
        world.database.dispose()


def holds(driver: Driver) -> bool:
    """Whether the record holds, as a login sees it."""
    with driver.database.read() as session:
        return verify_chain.verify_chain(session).holds


def pretending(driver: Driver, name: str) -> Driver:
    """A driver whose analyst says that they are somebody else."""
    return Driver(replace(driver.world, analyst=driver._person(name)))
