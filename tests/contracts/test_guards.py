"""Every guard that the migrations put into the database, fired by hand-written SQL that goes past the services.

One town per backend holds requests in every state; a case changes nothing in it, because it is refused or rolled back.
Where a legal neighbour of the forbidden statement exists it is tried too, so that the refusal is for the stated reason.
"""

import importlib
import re
from collections.abc import Iterator

import pytest
from sqlalchemy import Table, text
from sqlalchemy.exc import IntegrityError

from migrations.schema.definitions import WENT_BACK
from migrations.schema.tables import author, by_whom, ledger_tables, times
from tests.conftest import Ledgers
from tests.contracts.charge_cases import CHARGES
from tests.contracts.cohort_cases import COHORTS, of_a_bare_account
from tests.contracts.decision_cases import DECISIONS, THEN
from tests.contracts.governance_cases import WORK
from tests.contracts.initial_cases import INITIAL, Make
from tests.contracts.limit_cases import LIMITS
from tests.contracts.link_cases import LINKED
from tests.contracts.name_cases import NAMES
from tests.contracts.rows import hold, insert
from tests.contracts.town import Town, town_of
from tests.contracts.view_cases import ERASURES, REGISTRATIONS, VIEWS
from tests.support import LATE, execute, snapshot

initial = importlib.import_module("migrations.versions.0001_initial")
TABLES = ledger_tables()
GUARDS = tuple((guard.name, guard.table, guard.operation, guard.denied, guard.message) for guard in initial.GUARDS)
MESSAGES = {name: message for name, _, _, _, message in GUARDS}
GOVERNANCE = WORK | DECISIONS
TRIED = INITIAL | GOVERNANCE | COHORTS | LIMITS | CHARGES | VIEWS | REGISTRATIONS | ERASURES | NAMES | LINKED
CASES = {name: case for name, case in TRIED.items() if not name.startswith("ck_")}
"""Those of guards; the others are of conditions of one row, which are CHECKs."""


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


def test_every_guard_has_a_case() -> None:
    assert set(CASES) == set(MESSAGES)


def test_a_cohort_has_as_many_blocks_as_the_first(town: Town) -> None:
    """An account without blocks has no dataset, and so no version with which a cohort could be opened."""
    with pytest.raises(IntegrityError, match=said("a dataset is on a root account with all its blocks")):
        attempt_to(town, lambda t: of_a_bare_account(t, 2))


@pytest.mark.parametrize("name", TRIED)
def test_guard(town: Town, name: str) -> None:
    for make in TRIED[name].denied:
        with pytest.raises(IntegrityError, match=said(MESSAGES[name]) if name in MESSAGES else name):
            attempt_to(town, make)
    for make in TRIED[name].allowed:
        attempt_to(town, make)


GENERAL = [(table.name, {"at": THEN}, WENT_BACK) for table in TABLES if "at" in times(table)] + [
    (table.name, {who: None, when: LATE}, by_whom(table))
    for table in TABLES
    for who, when in filter(None, [author(table)])
    if table.info["recorded_by"]
]


@pytest.mark.parametrize(("table", "given", "message"), GENERAL)
def test_a_guard_that_follows_from_its_table(town: Town, table: str, given: dict[str, object], message: str) -> None:
    """On PostgreSQL it speaks first; guards of SQLite have no order, and `test_common_guards` asks each alone."""
    with town.world.database.read() as session:
        [newest] = session.execute(text(f"SELECT * FROM {table} ORDER BY 1 DESC LIMIT 1")).mappings()
    row = {name: value for name, value in newest.items() if name != "id"} | given
    with pytest.raises(IntegrityError, match="almoner: " if town.world.database.is_sqlite else said(message)):
        attempt_to(town, lambda _: insert(table, **row))


def test_no_hold_is_on_a_root_account(town: Town) -> None:
    with pytest.raises(IntegrityError, match="approved for another charge"):
        attempt_to(town, lambda t: hold(t, t.held, account_id=t.account("clinic", None)))


@pytest.mark.parametrize(
    "table", [table for table in TABLES if "DELETE" not in table.info["allows"]], ids=lambda table: table.name
)
def test_records_are_append_only(town: Town, table: Table) -> None:
    key = next(iter(table.primary_key.columns)).name
    changes = (f"UPDATE {table.name} SET {key} = {key}", f"DELETE FROM {table.name}")
    for statement in changes["UPDATE" in table.info["allows"] :]:
        with pytest.raises(IntegrityError, match=said(f"{table.name} is append-only")):
            execute(town.world.database, statement)
