"""A dataset with a wrong field is forgotten: what the commands then say of it, on both backends."""

from typing import Any

import pytest

from flows.datasets import register
from tests.integration.story import Almoner
from tests.integration.test_dashboard_release import client_of

REASON = '--reason "the unit field is another one"'
WRONG = "dataset register wrong --unit patient --epsilon 2 --delta 1e-6"


def test_a_wrong_field_is_forgotten_and_registered_anew(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.registered()
    almoner.type(WRONG)
    notes = almoner.notes_file()
    refused = almoner.ask(f"dataset ingest wrong {notes}", expected=2)
    assert "almoner dataset forget" in refused["advice"]
    assert almoner.ask(f"dataset forget wrong {REASON}") == {"dataset": "wrong", "forgotten": True}
    assert [one["name"] for one in almoner.ask("dataset list")] == ["clinic"]
    for line in (
        "dataset show wrong", f"dataset ingest wrong {notes}", f"dataset forget wrong {REASON}", WRONG,
        'dataset cap wrong --epsilon 3 --delta 1e-6 --reason "more"',
        f'dataset erase wrong --all {REASON} --confirm wrong',
        "budget show wrong", f"release request {almoner.request_file(dataset='wrong')}",
        "dataset register beside --shares-account-with wrong --unit patient_id",
    ):  # fmt: skip
        assert almoner.ask(line, expected=1)["error"] == "DatasetForgotten", line
    links = almoner.ask("audit log --dataset wrong")
    assert "dataset.forgotten" in {link["kind"] for link in links}
    client = client_of(almoner)
    assert client.get("/datasets/wrong").status_code == 404
    assert "/datasets/wrong" not in client.get("/").text
    assert almoner.ask("audit verify")["holds"]
    almoner.type("doctor")
    almoner.type(f"dataset ingest clinic {notes}")


@pytest.mark.parametrize("reason", ["", "  ", "x" * 1001])
def test_a_reason_is_needed(almoner: Almoner, reason: str) -> None:
    almoner.registered()
    before = almoner.everything()
    told = almoner.ask(f"dataset forget clinic --reason '{reason}'", expected=2)
    assert told["error"] == "InvalidForgettingReason"
    assert almoner.everything() == before


def test_a_dataset_that_holds_data_is_not_forgotten(almoner: Almoner) -> None:
    almoner.submitted()
    before = almoner.everything()
    told = almoner.ask(f"dataset forget clinic {REASON}", expected=1)
    assert (told["error"], told["facts"]["found"]) == ("DatasetNotEmpty", {"version": 1, "request": 1})
    assert almoner.everything() == before


def test_it_is_forgotten_while_its_first_version_is_read(any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is refused, and nothing of the texts stays in the home."""
    almoner = any_almoner
    almoner.registered()
    real = register.ingest_version

    def late(*given: Any) -> Any:
        almoner.type(f"dataset forget clinic {REASON}")
        return real(*given)

    monkeypatch.setattr(register, "ingest_version", late)
    assert almoner.ask(f"dataset ingest clinic {almoner.notes_file()}", expected=1)["error"] == "DatasetForgotten"
    assert [path for path in almoner.home.corpora.iterdir() if not path.name.startswith(".")] == []
    assert almoner.ask("audit verify")["holds"]
    almoner.type("doctor")
