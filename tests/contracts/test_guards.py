"""Every guard that the migrations put into the database, fired by hand-written SQL that goes past the services.

One town per backend holds requests in every state; a case changes nothing in it, because it is refused or rolled back.
Where a legal neighbour of the forbidden statement exists it is tried too, so that the refusal is for the stated reason.
"""

import importlib
import re
from collections.abc import Iterator

import pytest
from sqlalchemy import Executable, text
from sqlalchemy.exc import IntegrityError

from migrations.schema import gates
from migrations.schema.conditions import WENT_BACK
from migrations.schema.definitions import Table
from models_db.database.base import Base, utc_now
from tasks.evaluation import registry
from tests.conftest import Ledgers
from tests.contracts.charge_cases import CHARGES
from tests.contracts.cohort_cases import COHORTS, of_a_bare_account
from tests.contracts.decision_cases import DECISIONS, THEN
from tests.contracts.governance_cases import WORK
from tests.contracts.initial_cases import INITIAL, Make
from tests.contracts.limit_cases import LIMITS
from tests.contracts.link_cases import LINKED
from tests.contracts.name_cases import NAMES
from tests.contracts.rows import DIGEST, hold, insert
from tests.contracts.schedule_cases import SCHEDULES
from tests.contracts.town import Town, town_of
from tests.contracts.view_cases import ERASURES, REGISTRATIONS, VIEWS
from tests.support import execute, snapshot

initial = importlib.import_module("migrations.versions.0001_initial")
GUARDS = tuple((guard.name, guard.table, guard.operation, guard.denied, guard.message) for guard in initial.GUARDS)
MESSAGES = {name: message for name, _, _, _, message in GUARDS}
GOVERNANCE = WORK | DECISIONS
CASES = (
    INITIAL | GOVERNANCE | SCHEDULES | COHORTS | LIMITS | CHARGES | VIEWS | REGISTRATIONS | ERASURES | NAMES | LINKED
)
UNIFORM = {"audit_head_no_insert"}
"""Guards without a case of their own; other tests try them."""
RECORDS = tuple(table.name for table in initial.TABLES if table.no_update)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def module_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def town(module_backend: str, ledgers: Ledgers) -> Iterator[Town]:
    """Whatever the tests of this file try, in the end every table is as it was."""
    with town_of(ledgers, module_backend) as built:
        before = snapshot(built.world.database)
        yield built
        assert snapshot(built.world.database) == before


def attempt_to(town: Town, make: Make) -> None:
    """Run what a case makes, and roll it back."""
    made = make(town)
    with town.world.database.write() as session:
        for statement in made if isinstance(made, list) else [made]:
            session.execute(statement)
        session.rollback()


def said(message: str) -> str:
    return f"almoner: {re.escape(message)}"


def test_the_classes_of_metrics_are_those_of_the_registry() -> None:
    classes = {name: exposure for exposure, names in gates.METRICS.items() for name in names}
    assert classes == {metric.name: metric.exposure for metric in registry._OWN.values()}


def test_every_guard_has_a_case() -> None:
    assert set(CASES) == set(MESSAGES) - UNIFORM


def test_a_cohort_has_as_many_blocks_as_the_first(town: Town) -> None:
    with pytest.raises(IntegrityError, match=said("the blocks did not follow the cohort")):
        attempt_to(town, lambda t: of_a_bare_account(t, 2))


@pytest.mark.parametrize("name", CASES)
def test_guard(town: Town, name: str) -> None:
    for make in CASES[name].denied:
        with pytest.raises(IntegrityError, match=said(MESSAGES[name])):
            attempt_to(town, make)
    for make in CASES[name].allowed:
        attempt_to(town, make)


def another_row(town: Town, table: Table, **given: object) -> Executable:
    """The newest row of a table again, with other values."""
    with town.world.database.read() as session:
        row = dict(session.execute(text(f"SELECT * FROM {table.name} ORDER BY 1 DESC LIMIT 1")).mappings().one())
    return insert(table.name, **row | ({"id": row["id"] + 1} if "id" in row else {}) | given)


def said_first(town: Town, message: str) -> str:
    """What the first guard of a table says; those of SQLite have no order, and `test_common_guards` asks each alone."""
    return "almoner: " if town.world.database.is_sqlite else said(message)


@pytest.mark.parametrize(
    "table", [each for each in initial.TABLES if each.by and each.author], ids=lambda table: table.name
)
def test_people_with_a_role_add_rows(town: Town, table: Table) -> None:
    who, when = table.author or ("", "")
    with pytest.raises(IntegrityError, match=said_first(town, table.by_whom)):
        attempt_to(town, lambda t: another_row(t, table, **{who: t.actor("stranger").id, when: utc_now()}))


@pytest.mark.parametrize("table", [each for each in initial.TABLES if "at" in each.times], ids=lambda table: table.name)
def test_rows_are_not_older_than_the_newest_link(town: Town, table: Table) -> None:
    with pytest.raises(IntegrityError, match=said_first(town, WENT_BACK)):
        attempt_to(town, lambda t: another_row(t, table, at=THEN))


def test_no_hold_is_on_a_root_account(town: Town) -> None:
    """Two guards deny it, and which one speaks is left to the database."""
    with pytest.raises(IntegrityError, match=r"a hold is on a block|approved for another charge"):
        attempt_to(town, lambda t: hold(t, t.held, account_id=t.account("clinic", None)))


@pytest.mark.parametrize("table", RECORDS)
def test_records_are_append_only(town: Town, table: str) -> None:
    column = next(iter(Base.metadata.tables[table].columns)).name
    for statement in (f"UPDATE {table} SET {column} = {column}", f"DELETE FROM {table}"):
        with pytest.raises(IntegrityError, match=said(f"{table} is append-only")):
            execute(town.world.database, statement)


@pytest.mark.parametrize("table", ["account", "audit_head"])
def test_counters_and_head_stay(town: Town, table: str) -> None:
    with pytest.raises(IntegrityError, match=said(f"{table} is append-only")):
        execute(town.world.database, f"DELETE FROM {table}")


@pytest.mark.parametrize("id_", [1, 2])
def test_there_is_one_head(town: Town, id_: int) -> None:
    with pytest.raises(IntegrityError, match=said("audit_head has one row")):
        execute(town.world.database, f"INSERT INTO audit_head (id, seq, hash) VALUES ({id_}, 0, '{DIGEST}')")
