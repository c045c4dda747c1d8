"""No value of a row becomes a path: whatever somebody plants in a column of text, past every guard and CHECK, commands
that read or remove files touch nothing outside the folders that they name."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Column, FromClause, String, UniqueConstraint, text

from models_db.database.base import Base
from tasks.corpus.versions import version_uids
from tests.integration.story import Almoner
from tests.integration.test_erasure import REASON, SMALL, lived_in
from tests.support import fetch

CONCERNS = ("flows/datasets", "flows/releases", "flows/workspace", "models_db/home.py", "migrations/schema")

VALUES = ("*/../../../*", "../keys", "..", "../../beside", "*", "/", "")
READING = ("run sweep", "doctor", "release texts 1", "report 1", "release show 1", "dataset show clinic",
           "backup --to {folder}/monday.tar", "publish 1 --to {folder}/again", "evaluate 1 --internal",
           f"dataset erase clinic --all {REASON} --dry-run")  # fmt: skip
REMOVING = ("run sweep", f"dataset erase clinic --all {REASON}")
NAMED = ("corpora", "quarantine", "released", "reports", "attacks", "rehearsals", "scratch", "derived")
"""The folders of the home in which an erasure removes; `test_erasure` says what of them."""
BUILT = ("dataset_version.uid", "artifact.digest", "artifact.files", "artifact.values_digest",
         "account.key_name", "request.canonical", "request.digest")  # fmt: skip
"""The columns from which paths are built; the others are tried where there is time."""


def columns() -> Iterator[Column[str]]:
    """Every column of text of every table."""
    for table in Base.metadata.sorted_tables:
        yield from (column for column in table.columns if isinstance(column.type, String))


COLUMNS = {f"{column.table.name}.{column.name}": column for column in columns()}


def plant(almoner: Almoner, column: Column[str], value: str) -> None:
    """The rows get the value in that column; where no two may have the same, further ones that lead as far."""
    table, name = column.table, column.name
    unique = column.unique or any(
        [c.name for c in each.columns] == [name] for each in table.constraints if isinstance(each, UniqueConstraint)
    )
    if almoner.served is None:
        with closing(sqlite3.connect(almoner.home.root / "almoner.db")) as connection:
            for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {trigger}")
            connection.execute("PRAGMA ignore_check_constraints = ON")
            further = f"substr('{'/.' * 20}', 1, 2 * (rowid - 1))"
            planted = f"? || {further}" if unique else "?"
            connection.execute(f"UPDATE OR IGNORE {table.name} SET {name} = {planted} WHERE {of(table)}", (value,))
            connection.commit()
        return
    with almoner.connection() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        checks = "SELECT conname FROM pg_constraint WHERE conrelid = CAST(:table AS regclass) AND contype IN ('c', 'u')"
        for constraint in connection.scalars(text(checks), {"table": table.name}).all():
            connection.execute(text(f"ALTER TABLE {table.name} DROP CONSTRAINT {constraint} CASCADE"))
        connection.execute(text(f"UPDATE {table.name} SET {name} = :value WHERE {of(table)}"), {"value": value})


def of(table: FromClause) -> str:
    """The rows that are altered: what nobody has recorded any more, a sweep removes, so the other version stays."""
    return "dataset_id = 1" if table is Base.metadata.tables["dataset_version"] else "TRUE"


def files(folder: Path, leaving_out: tuple[str, ...] = ()) -> dict[str, bytes | None]:
    """What lies there, but for some names at the top, and what every command writes."""
    found = {path.relative_to(folder): path for path in folder.rglob("*")}
    written = ("seen.json", "almoner.db", "almoner.db-wal", "almoner.db-shm")
    return {
        str(name): path.read_bytes() if path.is_file() else None
        for name, path in found.items()
        if name.parts[0] not in (*leaving_out, *written)
    }


@pytest.fixture
def full(any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Almoner:
    """A home with something everywhere, with another dataset in it, and with a folder beside it."""
    lived_in(any_almoner, monkeypatch)
    add_others(any_almoner)
    return any_almoner


def add_others(almoner: Almoner) -> None:
    almoner.type("dataset register other --unit patient_id --epsilon 8 --delta 1e-6")
    other = [{"id": "9", "patient_id": "q9", "text": "of somebody else"}]
    almoner.type(f"dataset ingest other {almoner.notes_file('other.jsonl', other)}")
    (almoner.folder / "beside" / "deep").mkdir(parents=True)
    (almoner.folder / "beside" / "deep" / "precious.json").write_text("{}")


def attack(almoner: Almoner, tmp: Path, column: str, value: str, reading: Sequence[str] = READING) -> list[str]:
    """What is gone, or other, outside the named folders after commands that read and remove; the home comes back."""
    kept = tmp / "kept"
    shutil.copytree(almoner.folder, kept, symlinks=True)
    uids = dict(fetch(almoner.database, OF_DATASET))
    plant(almoner, COLUMNS[column], value)
    before = files(almoner.folder / "beside"), files(almoner.home.root, NAMED)
    mine = files(almoner.home.corpora / str(uids["other"]))
    wrong = []
    for line in (*reading, *REMOVING):
        almoner.type(line.format(folder=tmp), None)  # a named refusal or none; anything else is raised
        after = files(almoner.folder / "beside"), files(almoner.home.root, NAMED)
        archives = {name for name in before[1] if name.endswith((".tar", ".tar.gz", ".zip"))}
        lost = {name for name in before[1] if before[1][name] != after[1].get(name)} - archives
        if after[0] != before[0] or lost or files(almoner.home.corpora / str(uids["other"])) != mine:
            wrong.append(f"{column} = {value!r}: {line}: {sorted(lost)}")
    shutil.rmtree(almoner.folder)
    shutil.copytree(kept, almoner.folder, symlinks=True)
    shutil.rmtree(kept)
    for left in ("monday.tar", "again"):
        shutil.rmtree(tmp / left, ignore_errors=True)
        (tmp / left).unlink(missing_ok=True)
    return wrong


OF_DATASET = "SELECT d.name, v.uid FROM dataset_version v JOIN dataset d ON d.id = v.dataset_id"


def test_the_uid_of_a_version_leads_nowhere(almoner: Almoner, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With it a runner's row once made a steward's erasure remove the steward's home, keys and all."""
    almoner.ingested()
    add_others(almoner)
    for name in ("attacks/0-0", "rehearsals/0-0", "rehearsals/0-keys", "released/x.json"):
        (almoner.home.root / name).mkdir(parents=True)
    tmp = tmp_path_factory.mktemp("away")
    column = "dataset_version.uid"
    assert [each for value in VALUES for each in attack(almoner, tmp, column, value)] == []


@pytest.mark.slow
@pytest.mark.parametrize("column", BUILT)
def test_values_of_which_paths_are_built_lead_nowhere(
    full: Almoner, tmp_path_factory: pytest.TempPathFactory, column: str
) -> None:
    """7 columns, 7 values and 12 commands, on both backends, when this was written."""
    values = VALUES if full.served is None else VALUES[:1]
    tmp = tmp_path_factory.mktemp("away")
    assert [each for value in values for each in attack(full, tmp, column, value)] == []


@pytest.mark.slow
def test_values_of_every_other_column_lead_nowhere(full: Almoner, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every column of text of every table, one after another."""
    if full.served is not None:
        pytest.skip("what is done with a value does not depend on where the ledger lies")
    tmp, wrong = tmp_path_factory.mktemp("away"), []
    for column in COLUMNS:
        wrong += attack(full, tmp, column, VALUES[0], READING[-1:])
    assert wrong == []


def test_an_erasure_removes_what_bears_exactly_its_names(almoner: Almoner) -> None:
    """Neither the reports of request 12 with those of request 1, nor what ends like a uid."""
    almoner.ingested()
    almoner.type(f"release request {almoner.request_file(**SMALL)}")
    [uid] = version_uids(almoner.home)
    gone = [f"attacks/0-{uid[:12]}", f"rehearsals/0-{uid[:12]}", "reports/1-public.html", "quarantine/1-unfinished"]
    stay = [f"attacks/0-{uid[:11]}", f"rehearsals/0-x{uid[:12]}", "reports/12-public.html"]
    for name in (*gone, *stay):
        path = almoner.home.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("text")
    almoner.type(f"dataset erase clinic --all {REASON}")
    assert [name for name in (*gone, *stay) if (almoner.home.root / name).exists()] == stay
