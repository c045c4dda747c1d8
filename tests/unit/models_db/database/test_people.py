"""One key is one person, and one name is, however it is spelt; roles have days; a ledger is founded once."""

from datetime import UTC, datetime, timedelta

import pytest

from models_db.database.base import utc_now
from models_db.services import logins, people
from models_db.services.logins import MOST_ROLE_BYTES
from models_db.services.people import PrincipalUnknown
from models_db.sessions.database import Database
from models_db.tables.principals import ROLES
from tests.refusals import refusal
from tests.support import World, execute, later, snapshot


def test_the_founder_has_every_role_and_is_found_again(database: Database) -> None:
    with database.write() as session:
        founder = people.found_ledger(session, "anna", "key of anna", "0" * 64)
        assert people.roles_of(session, founder.id) == frozenset(ROLES)
    with database.write() as session:
        assert people.found_ledger(session, "somebody", "key of anna", "0" * 64) == founder
        assert people.is_founded(session)


def test_a_ledger_is_founded_once(world: World) -> None:
    before = snapshot(world.database)
    with pytest.raises(PrincipalUnknown), world.database.write() as session:
        people.found_ledger(session, "second", "another key", "0" * 64)
    assert snapshot(world.database) == before


def test_a_key_is_one_person(world: World) -> None:
    anna = world.person("anna")
    with refusal("NameTaken"), world.database.write() as session:
        people.enrol(session, world.admin, "bob", "key of anna")
    with world.database.read() as session:
        assert people.identify(session, "key of anna") == anna


@pytest.mark.parametrize("alike", ["anna", "ANNA", "Anna"])
def test_a_name_that_reads_like_another_is_refused(world: World, alike: str) -> None:
    world.person("anna")
    before = snapshot(world.database)
    with refusal("NameTaken"), world.database.write() as session:
        people.enrol(session, world.admin, alike, "another key")
    assert snapshot(world.database) == before


@pytest.mark.parametrize("unfit", ["", " ", " anna", "an\N{ZERO WIDTH SPACE}na", "an\nna", "a" * 101])
def test_a_name_that_could_mislead_is_none(world: World, unfit: str) -> None:
    with refusal("InvalidPersonName"), world.database.write() as session:
        people.enrol(session, world.admin, unfit, "another key")


def test_a_stranger_is_nobody(world: World) -> None:
    with world.database.read() as session, pytest.raises(PrincipalUnknown):
        people.acting_principal(session, "a key nobody has")


def test_a_ledger_that_holds_nothing_asks_for_init(database: Database) -> None:
    for find in (people.identify, people.acting_principal):
        with database.read() as session, refusal("LedgerEmpty", match="knows nobody yet") as refused:
            find(session, "a key nobody has")
        assert "`almoner init` again" in refused.value.advice


@pytest.mark.parametrize("name", ["analyst", "steward", "runner"])
def test_only_admins_enrol_and_grant(world: World, name: str) -> None:
    before = snapshot(world.database)
    with refusal("RoleRequired"), world.database.write() as session:
        people.enrol(session, getattr(world, name), "friend", "another key")
    assert snapshot(world.database) == before


def test_a_grant_holds_between_its_days(world: World) -> None:
    start, end = (utc_now(datetime.now(UTC) + timedelta(days=days)) for days in (1, 2))
    with world.database.write() as session:
        people.grant(session, world.admin, "analyst", "auditor", "for a day", valid_from=start, valid_to=end)
    with world.database.read() as session:
        assert people.roles_of(session, world.analyst.id) == {"analyst"}
        assert [g.role for g in people.unexpired_grants(session) if g.principal_id == world.analyst.id] == [
            "analyst",
            "auditor",
        ]
    for ahead, held in ((timedelta(days=1, hours=1), {"analyst", "auditor"}), (timedelta(days=3), {"analyst"})):
        with later(ahead), world.database.read() as session:
            assert people.roles_of(session, world.analyst.id) == held


def test_a_role_that_is_not_there_is_not_revoked(world: World) -> None:
    with world.database.write() as session:
        with refusal("RoleNotHeld"):
            people.revoke(session, world.admin, "analyst", "runner", "never was")
        with refusal("RoleUnknown"):
            people.grant(session, world.admin, "analyst", "king", "why not")


def test_a_login_means_nothing_in_a_file(sqlite_database: Database) -> None:
    world = World.create(sqlite_database)
    with refusal("LoginNotSupported"), sqlite_database.write() as session:
        people.enrol(session, world.admin, "anna", "key of anna", login="anna")


def test_the_founders_login_is_the_sessions(postgresql_database: Database) -> None:
    with postgresql_database.write() as session:
        founder = people.found_ledger(session, "anna", "key of anna", "0" * 64)
        assert people.find_principal(session, "anna").login == logins.session_login(session)
        assert logins.has_owner_rights(session)
        assert people.acting_principal(session, "key of anna") == founder


def test_whose_login_it_is_not_does_not_act(postgresql_database: Database) -> None:
    world = World.create(postgresql_database)
    execute(postgresql_database, "CREATE ROLE passer_by", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO passer_by")
    try:
        with postgresql_database.read() as session:
            session.connection().exec_driver_sql("SET SESSION AUTHORIZATION passer_by")
            try:
                assert not logins.has_owner_rights(session)
                with refusal("LoginMismatch") as refused:
                    people.acting_principal(session, "key of steward")
            finally:
                session.connection().exec_driver_sql("RESET SESSION AUTHORIZATION")
        assert refused.value.facts == {"principal": "steward", "login": None, "session": "passer_by"}
    finally:
        execute(postgresql_database, "DROP OWNED BY passer_by", "DROP ROLE passer_by")
    assert world.steward.name == "steward"


@pytest.mark.parametrize("database", ["clinic", "d" * 40, "d" * 63, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 31])
def test_groups_have_names_that_postgresql_keeps(database: str) -> None:
    names = {logins.group_name(database, kind) for kind in ("reader", "writer")}
    assert len(names) == 2
    assert all(len(name.encode()) <= MOST_ROLE_BYTES for name in names)
    assert names != {logins.group_name(database + "x", kind) for kind in ("reader", "writer")}
