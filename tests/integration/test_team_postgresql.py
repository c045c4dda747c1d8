"""A team on PostgreSQL, each with a home, a key and a login of their own: the whole story, and what nobody can do."""

import getpass
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from models_db.database.base import utc_now
from models_db.services import logins
from tests.authenticator import Authenticator
from tests.conftest import PostgreSQL
from tests.integration.browsing import Browser, challenge_of, dashboard
from tests.integration.story import Almoner
from tests.support import snapshot

OWNER = "almoner_owner"
PEOPLE = {
    "anna": ("analyst",),
    "rick": ("runner",),
    "sue": ("steward",),
    "tom": ("steward",),
    "olga": ("auditor",),
}
AIR_GAPPED = "ines"


@dataclass(frozen=True)
class Team:
    """Homes by name, on one ledger; `owner` is the login that made the tables, `boss` the admin."""

    folder: Path
    url: str
    patch: pytest.MonkeyPatch

    def login(self, name: str, login: str | None = None) -> str:
        """The ledger's address under a login."""
        return make_url(self.url).set(username=login or name).render_as_string(hide_password=False)

    def at(self, name: str, *, login: str | None = None) -> Almoner:
        """Sit down at somebody's home, logged in as them (or as somebody else)."""
        made = Almoner(self.folder / name)
        made.folder.mkdir(exist_ok=True)
        self.patch.setenv("ALMONER_HOME", str(made.home.root))
        self.patch.setenv("ALMONER_DATABASE_URL", self.login(name, login))
        self.patch.setattr(getpass, "getuser", lambda: name)
        return made

    def sql(self, login: str, *statements: str) -> None:
        """Hand-written SQL under a login, in one transaction."""
        engine = create_engine(self.login(login), poolclass=NullPool)
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def denied(self, login: str, *statements: str) -> str:
        """The last of the statements is refused; returns what the server says."""
        with pytest.raises(DBAPIError) as caught:
            self.sql(login, *statements)
        return str(caught.value.orig)


@pytest.fixture
def town(almoner: Almoner, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    """A database that belongs to a role which is no superuser and may create roles."""
    name = f"town_{abs(hash(almoner.folder))}"
    database = postgresql.create(name)
    url = make_url(database.url)
    roles = [*access_groups(name), *PEOPLE, "boss", OWNER]
    admin = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE ROLE {OWNER} LOGIN CREATEROLE"))
        connection.execute(text(f"ALTER DATABASE {name} OWNER TO {OWNER}"))
        connection.execute(text("CREATE ROLE boss LOGIN CREATEROLE"))
    admin.dispose()
    yield Team(almoner.folder, url.render_as_string(hide_password=False), monkeypatch)
    postgresql.drop(database)
    server = create_engine(postgresql.uri, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        for role in roles:
            connection.execute(text(f'DROP ROLE IF EXISTS "{role}"'))


def access_groups(database: str) -> list[str]:
    return [logins.group_name(database, kind) for kind in ("writer", "reader")]


def founded(town: Team) -> Almoner:
    """The owner's login makes the ledger, the boss founds it; roles are separate, and two approve a spend."""
    boss = town.at("boss", login=OWNER)
    made = boss.ask("init --login boss")
    assert made["enrolled"] is True
    assert made["database_rights"]["todo"] == []
    boss = town.at("boss")
    text = boss.home.policy.read_text().replace("several_roles: true", "several_roles: false")
    text = text.replace(
        "approvals: {spend: 1, publish: 1, proposal: 1}", "approvals: {spend: 2, publish: 2, proposal: 2}"
    )
    boss.type(f"policy adopt {boss.write('team.yaml', text)}")
    return boss


def joined(town: Team, name: str, *roles: str, login: bool = True) -> Almoner:
    """Somebody makes a home; the boss types what it says; DBA's part by the server's owner."""
    home = town.at(name)
    told = home.ask("init", expected=3)  # no such login yet
    assert told["enrolled"] is False
    assert told["problem"]["error"] == "LedgerUnreachable"
    typed = told["admin_types"].removeprefix("almoner ")
    assert f"--login {name}" in typed
    typed = typed.replace("--role ROLE", " ".join(f"--role {role}" for role in roles))
    added = town.at("boss").ask(typed if login else typed.replace(f"--login {name}", ""))
    for statement in added["database_rights"]["todo"]:
        town.sql(OWNER, statement)
    home = town.at(name)
    if login:
        assert home.ask("init")["enrolled"] is True
    return home


@pytest.fixture
def team(town: Team) -> Team:
    """Everybody has joined."""
    founded(town)
    for name, roles in PEOPLE.items():
        joined(town, name, *roles)
    return town


def test_the_whole_story_with_separate_logins(team: Team) -> None:
    boss = team.at("boss")
    boss.type("dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6")
    for key in ("overlap.key", *(path.name for path in boss.home.keys.glob("partition-*.key"))):
        shutil.copy(boss.home.keys / key, team.at("rick").home.keys / key)
    rick = team.at("rick")
    rick.type(f"dataset ingest clinic {rick.notes_file()}")
    anna = team.at("anna")
    assert anna.ask(f"release request {anna.request_file()}")["request"] == 1
    assert team.at("sue").ask('approve 1 --gate spend --reason "agreed"', piped="clinic\n")["state"] == "submitted"
    assert team.at("tom").ask('approve 1 --gate spend --reason "agreed"', piped="clinic\n")["state"] == "approved"
    rick = team.at("rick")
    assert rick.ask("run 1")["state"] == "produced"
    ask = rick.folder / "ask.json"
    rick.type(f"approve 1 --gate publish --export {ask}")
    for steward in ("sue", "tom"):
        decided = team.at(steward).ask(f'approve --from {ask} --reason "names nobody"', piped="clinic\n")
        assert (decided["state"], decided["by"]) == ("produced", steward)
    rick = team.at("rick")
    rick.type(f"publish 1 --to {rick.folder / 'out'}")
    assert rick.ask(f"verify-release {rick.bundle}")["holds"] is True
    auditing(team, rick.bundle)
    examined = team.at("boss", login=OWNER).ask("doctor")
    assert examined["ok"] is True
    assert {f["check"]: f["detail"] for f in examined["findings"]}["logins above the guards"].startswith(OWNER)


def auditing(team: Team, bundle: Path) -> None:
    """The auditor's login reads everything and writes nothing."""
    olga = team.at("olga")
    assert olga.ask(f"audit verify --against {bundle}")["sound"] is True
    assert len(olga.ask("audit log")) > 10
    olga.type(f"audit export --to {olga.folder / 'record.jsonl'}")
    assert {p["name"] for p in olga.ask("user list")["people"]} == {"boss", *PEOPLE}
    before = snapshot(olga.database)
    told = olga.ask(f"audit checkpoint --to {olga.folder / 'head.json'}", expected=3)
    assert told["error"] == "LedgerForbidden"
    for table in logins.LEDGER_TABLES:
        for statement in (f"INSERT INTO {table} DEFAULT VALUES", f"DELETE FROM {table}", f"TRUNCATE {table} CASCADE",
                          f"LOCK TABLE {table} IN SHARE MODE"):  # fmt: skip
            assert "permission denied" in team.denied("olga", statement)
    assert "permission denied" in team.denied("olga", "SELECT almoner_link()")
    assert snapshot(olga.database) == before
    assert olga.ask("doctor")["ok"] is True


def test_a_steward_without_a_login_signs_elsewhere_and_others_bring_it(team: Team) -> None:
    ines = joined(team, AIR_GAPPED, "steward", login=False)
    ready(team)
    ask, signed = ines.folder / "ask.json", ines.folder / "signed.json"
    team.at("anna").type(f"approve 1 --gate spend --export {ask}")
    team.patch.setenv("ALMONER_HOME", str(ines.home.root))
    ines.type(f"approve --from {ask} --reason agreed --export {signed}", piped="clinic\n")
    bring = f"approve 1 --gate spend --import {signed}"
    assert (
        "under their own login" in team.at("anna").ask(bring, expected=1)["message"]
    )  # only stewards and admins bring
    assert team.at("boss").ask(bring)["by"] == AIR_GAPPED
    sue = team.at("sue")
    sue.type(f"approve --from {ask} --reason agreed --export {sue.folder / 'sue.json'}", piped="clinic\n")
    told = team.at("boss").ask(f"approve 1 --gate spend --import {sue.folder / 'sue.json'}", expected=1)
    assert "under their own login" in told["message"]  # sue has a login, so she decides under it


def ready(team: Team) -> None:
    """Request 1 of anna waits at the spend gate."""
    boss = team.at("boss")
    boss.type("dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6")
    for path in (*boss.home.keys.glob("partition-*.key"), boss.home.keys / "overlap.key"):
        shutil.copy(path, team.at("rick").home.keys / path.name)
    rick = team.at("rick")
    rick.type(f"dataset ingest clinic {rick.notes_file()}")
    anna = team.at("anna")
    anna.type(f"release request {anna.request_file()}")


def test_one_login_is_one_person_and_one_key(team: Team) -> None:
    told = team.at("sue", login="anna").ask("dataset list", expected=1)
    assert told["error"] == "LoginMismatch"
    assert told["facts"] == {"principal": "sue", "login": "sue", "session": "anna"}
    assert team.at("sue", login="anna").ask("init", expected=1)["error"] == "LoginMismatch"
    assert team.at("sue", login=OWNER).ask("dataset list") == []  # nothing binds the owner; doctor names it
    second = team.at("shadow", login="anna").ask("init")
    assert second["enrolled"] is False
    add = f"user add anna2 --key {second['public_key']} --login anna --role steward"
    assert team.at("boss").ask(add, expected=1)["error"] == "NameTaken"
    sue = team.at("sue").ask("init")["public_key"]
    assert team.at("boss").ask(f"user add anna2 --key {sue} --login anna2", expected=1)["error"] == "NameTaken"


def approval(name: str, request: int = 1) -> str:
    """What a forger types to have `name` approve."""
    return (
        "INSERT INTO approval (request_id, gate, subject_digest, approver_id, decision, reason, at, expires_at,"
        " signature) SELECT r.id, 'spend', r.digest, p.id, 'approve', 'forged', '2026',"
        f" '{utc_now(datetime.now(UTC) + timedelta(days=20))}', repeat('0', 128)"
        f" FROM request r, principal p WHERE r.id = {request} AND p.name = '{name}'"
    )


def test_nobody_forges_an_approver(team: Team) -> None:
    joined(team, AIR_GAPPED, "steward", login=False)
    ready(team)
    before = snapshot(team.at("boss").database)
    for forger in ("anna", "rick", "boss", "tom"):
        assert "under their own login" in team.denied(forger, approval("sue"))
    for forger in ("anna", "rick"):
        assert "under their own login" in team.denied(forger, approval(AIR_GAPPED))
    assert "told in the chain" in team.denied("tom", approval(AIR_GAPPED))
    assert "only a steward records an approval" in team.denied("anna", approval("anna"))
    assert "permission denied" in team.denied("olga", approval("olga"))
    assert snapshot(team.at("boss").database) == before


def test_a_forged_row_of_a_steward_without_a_login_opens_no_gate(team: Team) -> None:
    """The ledger cannot check a signature; whoever runs or publishes does."""
    joined(team, AIR_GAPPED, "steward", login=False)
    ready(team)
    team.sql("tom", approval(AIR_GAPPED), "SELECT almoner_link()")
    [told] = team.at("boss").ask("audit log --kind request.approve")
    assert (told["actor"], told["details"][0]["approver"]) == ("tom", AIR_GAPPED)
    team.at("sue").type('approve 1 --gate spend --reason "agreed"', piped="clinic\n")
    assert team.at("rick").ask("run 1", expected=1)["error"] == "ForgedApproval"
    assert team.at("rick").ask("budget show clinic")["rho_spent"] == "0"


def test_a_second_role_does_not_let_anybody_approve_their_own(team: Team) -> None:
    boss = team.at("boss")
    boss.type('user grant anna steward --reason "also on the board"')
    ready(team)
    told = team.at("anna").ask('approve 1 --gate spend --reason "mine"', expected=1, piped="clinic\n")
    assert told["error"] == "RuleViolated"
    assert "what they requested" in told["message"]
    told = team.at("boss").ask('approve 1 --gate spend --reason "as admin"', expected=1, piped="clinic\n")
    assert "admin does not approve" in told["message"]


def test_temporary_tables_and_other_schemas_stand_in_for_nothing(team: Team) -> None:
    fake = "CREATE TEMP TABLE principal AS SELECT * FROM public.principal"
    lie = "UPDATE pg_temp.principal SET login = 'anna' WHERE name = 'boss'"
    given = (
        "INSERT INTO public.role_grant (principal_id, role, valid_from, granted_by, reason, at)"
        " VALUES (2, 'steward', '2026', 1, 'x', '2026')"
    )
    assert "under their own login" in team.denied("anna", fake, lie, given)
    assert "permission denied" in team.denied("anna", "CREATE FUNCTION public.almoner_may(text) RETURNS int RETURN 1")
    assert "permission denied" in team.denied("anna", "SET session_replication_role = replica")
    assert "permission denied" in team.denied("anna", f"SET ROLE {OWNER}")
    assert "permission denied" in team.denied("anna", "SELECT almoner_chain('anna', 'x', NULL, NULL, '{}')")


WRITES = "nobody but the owner may change a table"
CALLS = "only writers may call the ledger's functions"


RIGHTS = (
    ("UPDATE ON entry", "anna", WRITES),
    ("UPDATE (reason) ON approval", "anna", WRITES),
    ("INSERT (reason) ON approval", "olga", WRITES),
    ("INSERT ON lease", "anna", WRITES),
    ("MAINTAIN ON audit", "anna", WRITES),
    ("UPDATE ON SEQUENCE unit_claim_id_seq", "anna", WRITES),
    ("pg_write_all_data", "anna", WRITES),
    ("TRIGGER ON audit", "PUBLIC", WRITES),
    ("SELECT ON request", "PUBLIC", WRITES),
    ("CREATE ON SCHEMA public", "PUBLIC", "nobody else may add to the schema"),
    ("EXECUTE ON FUNCTION almoner_now()", "PUBLIC", CALLS),
    ("EXECUTE ON FUNCTION almoner_link()", "olga", CALLS),
)


def test_doctor_finds_every_right_that_nobody_should_have(team: Team) -> None:
    for what, to, check in RIGHTS:
        by = "postgres" if what.startswith("pg_") else OWNER
        team.sql(by, f"GRANT {what} TO {to}")
        found = [f for f in team.at("olga").ask("doctor", expected=3)["findings"] if not f["ok"]]
        assert [f["check"] for f in found] == [check], what
        assert to.lower() in found[0]["detail"], what
        team.sql(by, f"REVOKE {what} FROM {to}")
    assert team.at("olga").ask("doctor")["ok"] is True


def test_init_takes_back_what_somebody_was_given(team: Team) -> None:
    for what in ("UPDATE ON entry", "INSERT (reason) ON approval", "TRIGGER ON audit",
                 "USAGE ON SEQUENCE unit_claim_id_seq", "EXECUTE ON FUNCTION almoner_now()"):  # fmt: skip
        team.sql(OWNER, f"GRANT {what} TO olga WITH GRANT OPTION")
    team.sql("olga", "GRANT UPDATE ON entry TO anna")
    team.at("boss", login=OWNER).type("init")
    assert team.at("olga").ask("doctor")["ok"] is True
    for login in ("olga", "anna"):
        assert "permission denied" in team.denied(login, "UPDATE entry SET kind = 'x'")


def test_doctor_names_writers_whom_the_ledger_does_not_know(team: Team) -> None:
    writer = access_groups(str(make_url(team.url).database))[0]
    team.sql(OWNER, "CREATE ROLE stray LOGIN", f'GRANT "{writer}" TO stray')
    try:
        failed = [f for f in team.at("olga").ask("doctor", expected=3)["findings"] if not f["ok"]]
        assert [f["check"] for f in failed] == ["every writer is a principal"]
        assert "stray" in failed[0]["detail"]
        assert "knows nobody" in team.denied("stray", "INSERT INTO policy_version DEFAULT VALUES")
    finally:
        team.sql(OWNER, "DROP ROLE stray")


def test_what_a_database_administrator_has_to_do_is_said(town: Team) -> None:
    town.sql("postgres", f"ALTER ROLE {OWNER} NOCREATEROLE")
    boss = town.at("boss", login=OWNER)
    made = boss.ask("init --login boss")
    todo = made["database_rights"]["todo"]
    assert [line.split()[0] for line in todo] == ["CREATE", "CREATE", "GRANT"]
    failed = [f for f in boss.ask("doctor", expected=3)["findings"] if not f["ok"]]
    assert [f["check"] for f in failed] == ["the groups of readers and writers are there"]
    for statement in todo:
        town.sql("postgres", statement)
    again = boss.ask("init")
    assert again["database_rights"] == {"done": [], "todo": []}
    assert boss.ask("doctor")["ok"] is True
    assert town.at("boss").ask("user list")["people"][0]["login"] == "boss"


def test_who_may_not_make_the_ledger_is_told_so(town: Team) -> None:
    told = town.at("boss").ask("init", expected=3)
    assert told["problem"]["error"] == "LedgerForbidden"
    assert told["enrolled"] is False


def passkey_row(person: str, by: str) -> str:
    """What somebody types to give `person` a passkey, and says to be `by`."""
    return (
        "INSERT INTO passkey (principal_id, public_key, credential_id, rp_id, origin, signature, created_by, at)"
        " SELECT p.id, 'es256:x', 'c', 'localhost', 'o', 's', b.id, '2026'"
        f" FROM principal p, principal b WHERE p.name = '{person}' AND b.name = '{by}'"
    )


def test_who_has_a_login_registers_and_decides_under_it_alone(team: Team) -> None:
    """A passkey signs for sue on every dashboard; the ledger takes the decision under her login only."""
    ready(team)
    sue, passkey = team.at("sue"), Authenticator()
    sue.type(f"passkey add {passkey.created(challenge_of(sue.ask('passkey invite')['url']))}")
    for forger in ("anna", "rick", "tom"):
        assert "only an admin brings the passkey" in team.denied(forger, passkey_row("sue", forger))
    for forger in ("anna", "boss"):
        assert "under their own login" in team.denied(forger, passkey_row("sue", "sue"))
    assert "permission denied" in team.denied("olga", passkey_row("olga", "olga"))
    boss = team.at("boss")
    before = snapshot(boss.database)
    elsewhere = Browser(dashboard(boss), passkey)
    elsewhere.sign_in()
    assert "DecidesElsewhere" in elsewhere.prepare(expected=403)
    assert snapshot(boss.database) == before
    own = Browser(dashboard(team.at("sue")), passkey)
    own.sign_in()
    assert "Approved" in own.decide()
    team.at("tom").type('approve 1 --gate spend --reason "agreed"', piped="clinic\n")
    assert team.at("rick").ask("run 1")["state"] == "produced"
