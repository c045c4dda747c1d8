"""A store in the home that is not what the ledger says is not run: nobody was charged for what it holds."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.corpus.store import DATABASE
from tasks.corpus.versions import version_uids
from tests.integration.story import NOTES, Almoner
from tests.support import fetch

OTHERS = [note | {"patient_id": "stranger-" + note["patient_id"]} for note in NOTES]


def store_of(almoner: Almoner) -> Path:
    [uid] = version_uids(almoner.home)
    return Path(almoner.home.corpora / uid / DATABASE)


def of_other_people(almoner: Almoner) -> None:
    ours = store_of(almoner)
    almoner.type("dataset register ward --unit patient_id --epsilon 8 --delta 1e-6")
    almoner.type(f"dataset ingest ward {almoner.notes_file('ward.jsonl', OTHERS)}")
    [theirs] = {almoner.home.corpora / uid / DATABASE for uid in version_uids(almoner.home)} - {ours}
    shutil.copyfile(theirs, ours)


def one_text_for_all(almoner: Almoner) -> None:
    connection = sqlite3.connect(store_of(almoner))
    with connection:
        connection.execute("UPDATE documents SET text = (SELECT text FROM documents LIMIT 1)")
    connection.close()


def with_an_erased_unit(almoner: Almoner) -> None:
    store = store_of(almoner)
    before = store.read_bytes()
    almoner.type(f'dataset erase clinic --unit {NOTES[0]["patient_id"]} --reason "request of May"')
    store_of(almoner).write_bytes(before)


@pytest.mark.parametrize("alter", [of_other_people, one_text_for_all, with_an_erased_unit])
def test_a_store_that_differs_is_not_run(any_almoner: Almoner, alter: Callable[[Almoner], None]) -> None:
    any_almoner.ingested()
    alter(any_almoner)
    any_almoner.type(f"release request {any_almoner.request_file(epsilon=1.0)}")
    any_almoner.type('approve 1 --gate spend --reason "one"')
    assert any_almoner.ask("run 1", expected=3)["error"] == "StoreDiffers"
    assert fetch(any_almoner.database, "SELECT sum(rho_held + rho_spent) FROM account") == [(0,)]
