"""Each clause of each guard by itself: with every other guard removed, and with the clause removed.

A guard is tried with its own cases, with what the other guards of its table let pass, in circumstances that concern
many guards, and in states of the ledger of its own. On SQLite it stands alone; on PostgreSQL, where several guards of a
table share a function, circumstances are brought about past all guards, and the change is tried with all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.services.logins import ADDED_BY_LOGINS
from tests.conftest import Ledgers
from tests.contracts.circumstances import CIRCUMSTANCES, CONDITIONS, Circumstance
from tests.contracts.guard_alone import Guard, guards_of, mutants, perform, refusal, remove_guards, unchecked, undone
from tests.contracts.initial_cases import Make
from tests.contracts.lone_accounts import ACCOUNTS
from tests.contracts.lone_charges import LONE_CHARGES
from tests.contracts.lone_decisions import DECISIONS
from tests.contracts.lone_limits import LIMITS
from tests.contracts.lone_states import NO_CHECKS, Change
from tests.contracts.test_guards import CASES, GUARDS
from tests.contracts.town import Town, town_of

pytestmark = pytest.mark.slow
CONCERNS = ("migrations/schema", "migrations/versions", "tests/contracts")
"""Guards change with the schema; then, and before a release, every clause is tried again."""

LONE = ACCOUNTS | DECISIONS | LIMITS | LONE_CHARGES
TABLES = {name: table for name, table, *_ in GUARDS}
_EVENT = "EXISTS(SELECT 1 FROM JSON_EACH(j.value) AS e WHERE e.key = 'event' AND e.type = 'object')"
EQUIVALENT = {
    ("entry_charged", "z.id <> h.id"): "no hold is armed twice (uq_entry_armed_or_released)",
    ("cohort_of_named_units", "NOT d.unit_field IS NULL"): "the dataset itself is one of its account's",
    (
        "request_says_plan",
        "EXISTS(SELECT 1 FROM JSON_EACH(j.value) AS e WHERE e.key = 'event' AND e.type = 'object')",
    ): ("only an object has the member `mechanism` that the third clause looks for in `$.event`"),
    ("request_says_plan", "e.key = 'event'"): "as above",
    ("request_says_plan", "e.type = 'object'"): "as above",
}
"""Clauses that change nothing, each with its reason."""


@dataclass(frozen=True)
class Trial:
    """What is tried under a guard: a state of the ledger, and what must be denied in it or let pass."""

    name: str
    changes: Sequence[Change]
    tried: Sequence[tuple[Make, bool]]


@pytest.fixture(scope="module")
def town(ledgers: Ledgers) -> Iterator[Town]:
    with town_of(ledgers, "sqlite") as built:
        yield built


@pytest.fixture(scope="module")
def town_on_postgresql(ledgers: Ledgers) -> Iterator[Town]:
    with town_of(ledgers, "postgresql") as built:
        yield built


@pytest.fixture(scope="module")
def guards(town: Town) -> dict[str, Guard]:
    return guards_of(town.world.database)


def trials(name: str) -> Iterator[Trial]:
    beside = [
        make for other in CASES if TABLES[other] == TABLES[name] and other != name for make in CASES[other].allowed
    ]
    yield Trial("its cases", (), marked(CASES[name].denied, CASES[name].allowed))
    yield Trial("what its neighbours let pass", (), marked((), beside))
    for what, each in CIRCUMSTANCES.items():
        if name in each.cases:
            yield Trial(what, (NO_CHECKS, *each.changes), [(make, each.denied) for make in each.cases[name]])
    for number, lone in enumerate(LONE.get(name, ())):
        yield Trial(f"its own state {number}", lone.changes, marked(lone.denied, lone.allowed))


def marked(denied: Sequence[Make], allowed: Sequence[Make]) -> list[tuple[Make, bool]]:
    return [(make, True) for make in denied] + [(make, False) for make in allowed]


def answers(town: Town, guard: Guard, guards: dict[str, Guard], conditions: Sequence[str]) -> dict[str, list[str]]:
    """What is wrong under each condition in place of the guard's own: changes denied, or let pass, that must not be."""
    wrong: dict[str, list[str]] = {condition: [] for condition in conditions}
    with town.world.database.write() as session:
        remove_guards(session, guards)
        for trial in trials(guard.name):
            with undone(session):
                with unchecked(session, NO_CHECKS in trial.changes):
                    bring_about(session, town, trial.changes)
                tried = [(make(town), denied) for make, denied in trial.tried]
                for condition in conditions:
                    with undone(session):
                        session.connection().exec_driver_sql(guard.statement(condition))
                        said = [refusal(session, made) for made, _ in tried]
                    wrong[condition] += [
                        f"{trial.name}, {number}: {answer or 'it passes'}"
                        for number, (answer, (_, denied)) in enumerate(zip(said, tried, strict=True))
                        if (guard.message in answer) != denied or bool(answer) != denied
                    ]
        session.rollback()
    return wrong


def bring_about(session: Session, town: Town, changes: Sequence[Change]) -> None:
    for change in changes:
        if change != NO_CHECKS:
            perform(session, text(change) if isinstance(change, str) else change(town))


@pytest.mark.parametrize("name", CASES)
def test_a_guard_alone(town: Town, guards: dict[str, Guard], name: str) -> None:
    guard = guards[name]
    assert answers(town, guard, guards, [guard.condition])[guard.condition] == []


@pytest.mark.slow
def test_every_clause_is_noticed(town: Town, guards: dict[str, Guard]) -> None:
    tried, missed = 0, []
    for name in CASES:
        made = mutants(guards[name].condition)
        found = answers(town, guards[name], guards, [mutant.condition for mutant in made])
        tried += len(made)
        missed += [(name, mutant.change.partition(": ")[2]) for mutant in made if not found[mutant.condition]]
    assert tried > 750
    assert set(missed) == set(EQUIVALENT)
    assert len(missed) == len(EQUIVALENT)


@pytest.mark.parametrize("what", CIRCUMSTANCES)
def test_circumstances_on_postgresql(town_on_postgresql: Town, what: str) -> None:
    town, circumstance = town_on_postgresql, CIRCUMSTANCES[what]
    tried = [(name, make(town)) for name, makes in circumstance.cases.items() for make in makes]
    with town.world.database.write() as session:
        as_replica(session, town, circumstance)
        for name, made in tried:
            answer = refusal(session, made)
            assert ("almoner: " in answer) == bool(answer) == circumstance.denied, (name, answer)
        session.rollback()


def as_replica(session: Session, town: Town, circumstance: Circumstance) -> None:
    """Change what the circumstance changes, past every trigger and check."""
    checks = session.execute(
        text(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE contype = 'c'"
            " AND conrelid::regclass::text IN ('approval', 'proposal', 'role_grant')"
        )
    )
    for table, name in checks.all():
        session.execute(text(f"ALTER TABLE {table} DROP CONSTRAINT {name}"))
    for table in ADDED_BY_LOGINS:  # a row has its number from a trigger
        session.execute(text(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER _stamp_{table}"))
    session.execute(text("SET LOCAL session_replication_role = replica"))
    bring_about(session, town, circumstance.changes)
    session.execute(text("SET LOCAL session_replication_role = origin"))


def test_every_guard_that_asks_for_a_role_is_tried_in_circumstances() -> None:
    tried = {name for each in CIRCUMSTANCES.values() for name in each.cases}
    assert {name for name, condition in CONDITIONS.items() if "role_grant g WHERE g.principal_id" in condition} <= tried
