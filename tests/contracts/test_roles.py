"""Roles by date, the last admin, and deputies, on both backends through the services."""

from datetime import UTC, datetime, timedelta

import pytest

from models_db.database.base import utc_now
from models_db.services import artifacts, budget, datasets, people, policies
from models_db.services.gates import GateClosed
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.writes.database_errors import ClockWentBack, RuleViolated
from tests.refusals import refusal
from tests.support import PLAN, PROVENANCE, TEN, World, fetch, later, planned, snapshot, terms

HOUR = timedelta(hours=1)


@pytest.fixture
def clinic(world: World) -> World:
    world.dataset()
    return world


def at(after: timedelta) -> str:
    return utc_now(datetime.now(UTC) + after)


def roles(world: World, name: str) -> frozenset[str]:
    with world.database.read() as session:
        return people.roles_of(session, people.find_principal(session, name).id)


# --- roles ------------------------------------------------------------------------------------------------------


def test_a_role_begins_and_ends_on_its_day(clinic: World) -> None:
    dora = clinic.person("dora", "auditor")
    clinic.grant("dora", "steward", valid_from=at(HOUR), valid_to=at(3 * HOUR))
    request_id = clinic.request()
    with refusal("RoleDenied", match="only a steward records an approval"):
        clinic.decide(request_id, by=dora)
    with later(2 * HOUR):
        assert roles(clinic, "dora") == {"auditor", "steward"}
        assert clinic.decide(request_id, by=dora) == "approved"
    with later(4 * HOUR):
        assert roles(clinic, "dora") == {"auditor"}
        with pytest.raises(GateClosed):
            clinic.start(request_id)


def test_what_a_role_approved_lapses_with_it(clinic: World) -> None:
    request_id, running = clinic.request(), clinic.running()
    clinic.decide(request_id)
    clinic.hold(running, *PLAN)
    clinic.revoke("steward", "steward")
    with pytest.raises(GateClosed):
        clinic.start(request_id)
    with pytest.raises(RuleViolated, match="the spend gate is not passed"):
        clinic.arm(running)
    clinic.grant("steward", "steward")
    clinic.arm(running)
    clinic.start(request_id)


def test_a_publish_approval_lapses_with_the_role(clinic: World) -> None:
    attempt = clinic.produced()
    clinic.decide(attempt.request_id, "publish")
    clinic.revoke("steward", "steward")
    before = snapshot(clinic.database)
    with pytest.raises(GateClosed), clinic.database.write() as session:
        artifacts.record_publication(session, clinic.runner, attempt.request_id)
    assert snapshot(clinic.database) == before


@pytest.mark.parametrize("role", ["analyst", "runner"])
def test_who_lost_the_role_goes_no_further(clinic: World, role: str) -> None:
    attempt = clinic.held()
    clinic.revoke(role, role)
    with refusal("RoleDenied"):
        clinic.request() if role == "analyst" else clinic.arm(attempt)


def test_nobody_gives_or_takes_roles_but_an_admin(clinic: World) -> None:
    before = snapshot(clinic.database)
    with refusal("RoleRequired"), clinic.database.write() as session:
        people.grant(session, clinic.steward, "steward", "runner", "because")
    with refusal("RoleRequired", "RoleDenied"), clinic.database.write() as session:
        people.revoke(session, clinic.steward, "runner", "runner", "because")
    with refusal("RoleRequired"), clinic.database.write() as session:
        people.enrol(session, clinic.steward, "friend", "key of a friend")
    with refusal("RoleRequired"), clinic.database.write() as session:
        policies.adopt(session, clinic.steward, terms(several_roles=True))
    assert snapshot(clinic.database) == before


def test_the_last_admin_stays(clinic: World) -> None:
    before = snapshot(clinic.database)
    with pytest.raises(RuleViolated, match="a ledger keeps an admin"):
        clinic.revoke("admin", "admin")
    assert snapshot(clinic.database) == before
    clinic.person("eve", "admin")
    clinic.revoke("admin", "admin")
    assert roles(clinic, "admin") == {"analyst", "runner", "steward", "auditor"}
    with refusal("RoleRequired"):
        clinic.grant("admin", "admin")


def test_an_admin_who_may_leave_is_no_last_admin(clinic: World) -> None:
    clinic.person("eve", "auditor")
    clinic.grant("eve", "admin", valid_to=at(HOUR))
    with pytest.raises(RuleViolated, match="a ledger keeps an admin"):
        clinic.revoke("admin", "admin")


def test_an_admin_decides_nothing_where_roles_are_separate(clinic: World) -> None:
    request_id = clinic.request()
    with pytest.raises(RuleViolated, match="an admin does not approve"):
        clinic.decide(request_id, by=clinic.admin)
    clinic.grant("steward", "admin")
    with pytest.raises(RuleViolated, match="an admin does not approve"):
        clinic.decide(request_id)
    clinic.revoke("steward", "admin")
    assert clinic.decide(request_id) == "approved"


def test_a_role_and_a_grant_have_their_names(clinic: World) -> None:
    with refusal("RoleUnknown"):
        clinic.grant("steward", "king")
    with refusal("RoleNotHeld"):
        clinic.revoke("steward", "runner")
    with pytest.raises(RuleViolated, match="role grant dates"):
        clinic.grant("steward", "runner", valid_from=at(HOUR), valid_to=at(-HOUR))


def test_only_a_steward_or_an_admin_registers(clinic: World) -> None:
    account_id = clinic.account()
    wanted = datasets.Registration("ward", "id", "text", True, None, None)
    with refusal("RoleDenied", match="only a steward or an admin"), clinic.database.write() as session:
        datasets.register(session, clinic.analyst, wanted, account_id)
    with clinic.database.write() as session:
        datasets.register(session, clinic.admin, wanted, account_id)


def test_the_record_knows_every_change_of_roles(clinic: World) -> None:
    clinic.person("dora")
    clinic.revoke("dora", "steward")
    kinds = [row[0] for row in fetch(clinic.database, "SELECT kind FROM audit ORDER BY seq DESC LIMIT 2")]
    assert kinds == ["role.revoked", "principal.enrolled+role.granted"]


# --- deputies: a role with an end ---------------------------------------------------------------------------------


def test_a_deputys_decisions_lapse_with_the_role(clinic: World) -> None:
    dora = clinic.person("dora", "auditor")
    clinic.grant("dora", "steward", valid_to=at(HOUR))
    waiting, running, made = clinic.request(), clinic.request(), clinic.produced()
    clinic.decide(running, by=dora)
    clinic.decide(made.request_id, "publish", by=dora)
    attempt = clinic.start(running)
    clinic.hold(attempt, *PLAN)
    with later(2 * HOUR):
        with refusal("RoleDenied", match="only a steward records an approval"):
            clinic.decide(waiting, by=dora)
        with pytest.raises(RuleViolated, match="the spend gate is not passed"):
            clinic.arm(attempt)
        with pytest.raises(GateClosed), clinic.database.write() as session:
            artifacts.record_publication(session, clinic.runner, made.request_id)
        clinic.grant("dora", "steward")
        clinic.arm(attempt)


def test_a_deputy_and_the_steward_are_two_people(database: Database) -> None:
    world = World.create(database, spend_approvals=2)
    world.dataset()
    dora = world.person("dora", "auditor")
    world.grant("dora", "steward", valid_to=at(HOUR))
    request_id = world.request()
    assert world.decide(request_id, by=dora) == "submitted"
    with pytest.raises(RuleViolated, match="approved it already"):
        world.decide(request_id, by=dora)
    assert world.decide(request_id) == "approved"


@pytest.mark.parametrize("name", ["analyst", "runner"])
def test_who_requests_or_runs_is_no_deputy(clinic: World, name: str) -> None:
    clinic.grant(name, "steward", valid_to=at(HOUR))
    attempt = clinic.produced()
    with pytest.raises(RuleViolated, match="nobody approves what they requested or ran"):
        clinic.decide(attempt.request_id, "publish", by=getattr(clinic, name))


def test_who_approved_as_a_deputy_runs_nothing(clinic: World) -> None:
    dora = clinic.person("dora", "auditor", "runner")
    clinic.grant("dora", "steward", valid_to=at(HOUR))
    request_id = clinic.request()
    clinic.decide(request_id, by=dora)
    attempt = clinic.start(request_id)
    with (
        pytest.raises(RuleViolated, match="nobody runs what they requested or approved"),
        clinic.database.write() as session,
    ):
        budget.hold(session, dora, attempt, PLAN, PROVENANCE)


# --- the clock --------------------------------------------------------------------------------------------------


def test_a_clock_that_went_back_is_refused(clinic: World) -> None:
    """On PostgreSQL a few minutes are allowed for, because transactions overlap."""
    request_id = clinic.request()
    before = snapshot(clinic.database)
    with later(-HOUR), refusal("ClockWentBack", "RoleDenied"):
        clinic.decide(request_id)
    assert snapshot(clinic.database) == before
    attempt = clinic.held(planned(TEN, Amount(1)))
    for name in ("runner", "steward"):
        clinic.grant(name, name, valid_from="2000-01-01T00:00:00.000000Z")
    for step in (lambda: clinic.arm(attempt), lambda: clinic.settle(attempt, "FORFEIT")):
        with later(-HOUR), pytest.raises(ClockWentBack):
            step()
    with later(-HOUR), pytest.raises(ClockWentBack):
        clinic.decide(request_id)
    clinic.arm(attempt)
