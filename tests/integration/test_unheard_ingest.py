"""The ledger is told to record a version and does not answer: the version is whole, in both places or in neither."""

from typing import Any

from models_db.services import datasets
from tests.integration.losing import Fate, Loss
from tests.integration.story import Almoner
from tests.integration.test_growth import LATER
from tests.integration.test_lost_acknowledgement import BOTH, KEPT_OR_NOT, losing, loss  # noqa: F401
from tests.support import fetch


def folders(almoner: Almoner) -> set[str]:
    """The versions that lie in the home."""
    return {folder.name for folder in almoner.home.corpora.iterdir() if not folder.name.startswith(".")}


def recorded(almoner: Almoner) -> set[str]:
    """The versions that the ledger knows."""
    return {str(uid) for (uid,) in fetch(almoner.database, "SELECT uid FROM dataset_version")}


@BOTH
@KEPT_OR_NOT
def test_a_version_that_was_recorded_unheard(any_almoner: Almoner, losing: Any, fate: Fate) -> None:  # noqa: F811
    almoner = any_almoner
    almoner.ingested()
    later = almoner.notes_file("later.jsonl", LATER)
    losing(datasets, "add_version", 1, fate)
    told = almoner.ask(f"dataset ingest clinic {later} --new-cohort", expected=0 if fate == "kept" else 3)
    assert told.get("version") == (2 if fate == "kept" else None)
    assert told.get("error") == (None if fate == "kept" else "LedgerUnreachable")
    assert folders(almoner) == recorded(almoner)
    assert len(recorded(almoner)) == (2 if fate == "kept" else 1)
    assert almoner.ask("dataset show clinic")["cohorts"] == (2 if fate == "kept" else 1)


@BOTH
@KEPT_OR_NOT
def test_while_the_ledger_stays_away_the_version_stays_too(
    any_almoner: Almoner,
    loss: Loss,  # noqa: F811
    losing: Any,  # noqa: F811
    fate: Fate,
) -> None:
    almoner = any_almoner
    almoner.ingested()
    later = almoner.notes_file("later.jsonl", LATER)
    losing(datasets, "add_version", 1, fate)
    loss.for_good = True
    assert almoner.ask(f"dataset ingest clinic {later} --new-cohort", expected=3)["error"] == "OutcomeUnknown"
    loss.down = False
    assert len(folders(almoner)) == 2
    assert almoner.ask("run sweep")["folders_removed"] == (0 if fate == "kept" else 1)
    assert folders(almoner) == recorded(almoner)
