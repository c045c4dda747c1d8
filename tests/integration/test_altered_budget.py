"""Counters, holds, entries, marks and views altered past every guard: nothing is spent or published on them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, text

from models_db.services.verification import verify_rows
from models_db.sessions.database import Database
from tests.integration.story import Almoner
from tests.integration.test_altered_ledger import alter
from tests.support import fetch

CONCERNS = ("migrations/schema", "models_db/services/verification", "models_db/sessions")

FORGOTTEN = "UPDATE account SET rho_spent = 0, delta_spent = 0"
SUM = (
    "(SELECT coalesce(sum(h.{unit}), 0) FROM entry e JOIN hold h ON h.id = e.hold_id"
    " WHERE e.kind = 'ARM' AND h.account_id = account.id)"
)

TRUE_SUMS = f"UPDATE account SET rho_spent = {SUM.format(unit='rho')}, delta_spent = {SUM.format(unit='delta')}"
CHECKS = "SELECT conname FROM pg_constraint WHERE conrelid = 'account'::regclass AND contype = 'c'"
COVERED_UP = {
    "counters": (FORGOTTEN,),
    "the newest entry": ("UPDATE account SET last_entry_id = 0",),
    "entries": ("DELETE FROM entry", FORGOTTEN),
    "holds": ("UPDATE hold SET rho = 0, delta = 0", FORGOTTEN),
    "the whole attempt": ("DELETE FROM entry", "DELETE FROM hold", "DELETE FROM invocation", FORGOTTEN),
    "the whole attempt with its links": (
        "DELETE FROM entry", "DELETE FROM hold", "DELETE FROM invocation", FORGOTTEN,
        "DELETE FROM audit WHERE substr(kind, 1, 7) = 'ledger.'",
    ),
    "the whole attempt under other links": (
        "DELETE FROM entry", "DELETE FROM hold", "DELETE FROM invocation", FORGOTTEN,
        "UPDATE audit SET kind = 'note.x', dataset = NULL, request_id = NULL WHERE substr(kind, 1, 7) = 'ledger.'",
    ),
}  # fmt: skip


@contextmanager
def without_checks(database: Database) -> Iterator[Connection]:
    """A connection to which neither guards nor CHECKs of accounts apply; on SQLite all are there again afterwards."""
    with database.engine.connect() as connection:
        if database.is_sqlite:
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            triggers = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid"
            guards = connection.exec_driver_sql(triggers).all()
            for name, _ in guards:
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
        else:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            for name in connection.scalars(text(CHECKS)).all():
                connection.exec_driver_sql(f'ALTER TABLE account DROP CONSTRAINT "{name}"')
            guards = []
        yield connection
        for _, guard in guards:
            connection.exec_driver_sql(guard)
        connection.commit()
        if database.is_sqlite:
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
            connection.rollback()


def refuses(almoner: Almoner, line: str) -> list[str]:
    """The differences that a command names."""
    before = fetch(almoner.database, "SELECT count(*), max(seq) FROM audit")
    refused = almoner.ask(line, expected=1)
    assert refused["error"] == "LedgerAltered", refused
    assert fetch(almoner.database, "SELECT count(*), max(seq) FROM audit") == before
    differences = refused["facts"]["differences"]
    assert isinstance(differences, list)
    return differences


def ask_again(almoner: Almoner) -> None:
    almoner.type(f"release request {almoner.request_file(epsilon=5.0)}")
    almoner.type("approve 2 --gate spend --reason again")


@pytest.mark.parametrize("what", COVERED_UP)
def test_what_was_spent_and_forgotten_pays_for_no_run(any_almoner: Almoner, what: str) -> None:
    any_almoner.passed()
    alter(any_almoner.database, *COVERED_UP[what])
    ask_again(any_almoner)
    entries = fetch(any_almoner.database, "SELECT count(*) FROM entry")
    assert refuses(any_almoner, "run 2")
    assert refuses(any_almoner, f"publish 1 --to {any_almoner.folder / 'out'}")
    assert fetch(any_almoner.database, "SELECT count(*) FROM entry") == entries
    assert not (any_almoner.folder / "out").exists()


def test_entries_beyond_the_cap_are_found_although_counters_agree(any_almoner: Almoner) -> None:
    """Somebody spent past the cap, and wrote the true sums back where no CHECK looked."""
    any_almoner.produced()
    with without_checks(any_almoner.database) as connection:
        connection.exec_driver_sql("UPDATE hold SET rho = rho * 9")
        connection.exec_driver_sql(TRUE_SUMS)
    with any_almoner.database.read() as session:
        found = verify_rows.compare_rows_with_chain(session)
    for account in fetch(any_almoner.database, "SELECT id FROM account WHERE parent_id IS NOT NULL"):
        assert f"account {account[0]}: the sum of its entries exceeds its cap" in found
    assert any("exceeds its cap" in each for each in almoner_findings(any_almoner))
    assert any("exceeds its cap" in each for each in refuses(any_almoner, "budget show clinic"))


def almoner_findings(almoner: Almoner) -> list[str]:
    """What `doctor` objects to."""
    return [each["detail"] for each in almoner.ask("doctor", expected=3)["findings"] if not each["ok"]]


# --- Other facts on which a run rests -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statements",
    [
        ("DELETE FROM unit_mark",),
        ("DELETE FROM unit_mark", "DELETE FROM unit_claim"),
        ("UPDATE unit_mark SET cohort = cohort + 1",),
        ("UPDATE unit_claim SET account_id = 2",),
    ],
)
def test_marks_of_another_dataset_that_were_removed_let_no_run_begin(
    any_almoner: Almoner, statements: tuple[str, ...]
) -> None:
    """The same people in a second dataset, which has a budget of its own."""
    any_almoner.ingested()
    alter(any_almoner.database, *statements)
    any_almoner.type("dataset register ward --unit patient_id --epsilon 8 --delta 1e-6")
    any_almoner.type(f"dataset ingest ward {any_almoner.notes_file()}", expected=None)
    any_almoner.type(f"release request {any_almoner.request_file(dataset='clinic')}")
    any_almoner.type("approve 1 --gate spend --reason one")
    assert any("unit_" in each for each in refuses(any_almoner, "run 1"))


@pytest.mark.slow
def test_a_view_that_was_removed_stops_the_next_release(any_almoner: Almoner) -> None:
    any_almoner.published(epsilon=1.0)
    any_almoner.type("evaluate 1 --internal")
    assert fetch(any_almoner.database, "SELECT count(*) FROM internal_view") != [(0,)]
    alter(any_almoner.database, "DELETE FROM internal_view")
    any_almoner.type(f"release request {any_almoner.request_file(epsilon=1.0)}")
    any_almoner.type("approve 2 --gate spend --reason again")
    assert any("internal_view" in each for each in refuses(any_almoner, "run 2"))


# --- Values of another type than their columns ----------------------------------------------------------------------

TYPES = {
    "UPDATE unit_mark SET cohort = -1": "unit_mark",
    "UPDATE unit_mark SET mark = 'abc' WHERE rowid = 1": "unit_mark",
    "UPDATE unit_claim SET salt = CAST(salt AS BLOB)": "unit_claim",
    "UPDATE account SET blocks = 1.5e300 WHERE id = 1": "account 1",
    "UPDATE invocation SET attempt = 1.5e300": "invocation",
    "UPDATE invocation SET sequence = -9223372036854775808 WHERE id = 1": "invocation",
    "UPDATE hold SET instalment = 1.5e300 WHERE id = 1": "hold",
    "UPDATE hold SET rho = 9223372036854775807": "account cannot be read",
    "UPDATE policy_version SET several_roles = 1.5e300": "policy_version",
    "UPDATE audit SET request_id = 'abc' WHERE request_id = 1": "link",
    "UPDATE audit SET actor = x'ff' WHERE seq = 4": "link",
    "UPDATE entry SET kind = CAST(x'ff' AS TEXT) WHERE id = 1": "entry 1",
    "UPDATE entry SET at = CAST(x'ff' AS TEXT) WHERE id = 1": "entry 1",
    "UPDATE artifact SET files = CAST(x'ff' AS TEXT)": "artifact 1",
    "UPDATE audit SET actor = CAST(x'ff' AS TEXT) WHERE seq = 4": "link",
}


@pytest.mark.parametrize("statement", TYPES)
def test_a_value_of_another_type_is_reported_and_stops_publication(almoner: Almoner, statement: str) -> None:
    almoner.passed()
    with without_checks(almoner.database) as connection:
        connection.exec_driver_sql(statement)
    named = TYPES[statement]
    findings = almoner_findings(almoner)
    assert any(named in each for each in findings), findings
    verified = almoner.ask("audit verify", expected=1)
    assert any(named in each for each in [*verified["differences"], str(verified)])
    refuses(almoner, f"publish 1 --to {almoner.folder / 'out'}")
    assert not (almoner.folder / "out").exists()


@pytest.mark.parametrize(
    "statement",
    [
        each if number % 3 == 0 else pytest.param(each, marks=pytest.mark.slow)
        for number, each in enumerate(TYPES)
        if "artifact" not in each
    ],
)
def test_a_value_of_another_type_lets_no_run_begin(almoner: Almoner, statement: str) -> None:
    almoner.passed()
    ask_again(almoner)
    with without_checks(almoner.database) as connection:
        connection.exec_driver_sql(statement)
    refuses(almoner, "run 2")
