"""Rows of other requests on which a run rests, altered behind the guards: uses, and releases that are extended."""

import json

import pytest

from models_db.values.canonical_json import digest
from tasks.common.files import encode_json
from tests.integration.story import Almoner
from tests.integration.test_altered_ledger import alter
from tests.integration.test_extend import produced
from tests.integration.test_schedules import SMALL, authorised
from tests.support import fetch

CONCERNS = ("models_db/services", "flows/releases")


def spends_nothing(almoner: Almoner, request: int) -> None:
    """A request is not run, because the ledger is not what its audit log tells."""
    assert almoner.ask(f"run {request}", expected=1)["error"] == "LedgerAltered"
    assert fetch(almoner.database, f"SELECT count(*) FROM invocation WHERE request_id = {request}") == [(0,)]


def test_an_authorisation_of_one_run_runs_once(any_almoner: Almoner) -> None:
    almoner = any_almoner
    authorised(almoner, runs=1)
    line = f"release request {almoner.request_file(**SMALL)} --standing 1"
    almoner.type(line)
    almoner.type("run 1")
    assert almoner.ask(line, 1)["error"] == "AuthorisationExhausted"
    alter(almoner.database, "UPDATE request SET standing_id = NULL WHERE id = 1")
    almoner.type(line)
    spends_nothing(almoner, 2)


@pytest.mark.slow
def test_values_that_were_exchanged_make_no_release(any_almoner: Almoner) -> None:
    almoner = any_almoner
    produced(almoner)
    ((name,),) = fetch(almoner.database, "SELECT digest FROM artifact WHERE request_id = 1")
    file = almoner.home.released / f"{name}.json"
    kept = json.loads(file.read_text())
    kept["values"]["vocabulary"][-1] = "quartermaine"
    file.write_bytes(encode_json(kept))
    alter(almoner.database, f"UPDATE artifact SET values_digest = '{digest(kept['values'])}' WHERE request_id = 1")
    almoner.type("release extend 1 --samples 9")
    almoner.type('approve 2 --gate spend --reason "more"')
    spends_nothing(almoner, 2)


def test_a_release_that_was_rejected_is_not_extended(any_almoner: Almoner) -> None:
    almoner = any_almoner
    produced(almoner)
    almoner.type('reject 1 --gate publish --reason "names somebody"')
    alter(
        almoner.database,
        "DELETE FROM transition WHERE request_id = 1 AND number = (SELECT max(number) FROM transition)",
        "DELETE FROM approval WHERE decision = 'reject'",
    )
    almoner.type("release extend 1 --samples 9")
    almoner.type('approve 2 --gate spend --reason "more"')
    spends_nothing(almoner, 2)
