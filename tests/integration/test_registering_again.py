"""A dataset with a wrong field is registered again: what the commands then say of it, on both backends."""

from typing import Any

import pytest

from flows.datasets import register
from tests.integration.story import Almoner

WRONG = "dataset register wrong --unit patient --epsilon 2 --delta 1e-6"
RIGHT = "dataset register wrong --unit patient_id --epsilon 3 --delta 1e-6"


def test_a_wrong_field_is_registered_again(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.registered()
    almoner.type(WRONG)
    notes = almoner.notes_file()
    refused = almoner.ask(f"dataset ingest wrong {notes}", expected=2)
    assert "almoner dataset register" in refused["advice"]
    assert "It replaces an earlier registration" in almoner.type(RIGHT).out
    assert [one["name"] for one in almoner.ask("dataset list")] == ["clinic", "wrong"]
    shown = almoner.ask("dataset show wrong")
    assert (shown["unit"], shown["epsilon_cap"]) == ("patient_id", "3")
    almoner.type(f"dataset ingest wrong {notes}")
    before = almoner.everything()
    assert almoner.ask(WRONG, expected=1)["error"] == "DatasetExists"
    assert almoner.everything() == before
    links = [link for link in almoner.ask("audit log --dataset wrong") if link["kind"] == "dataset.registered"]
    rows = [row for link in links for row in link["details"] if row["table"] == "dataset"]
    assert [row["unit_field"] for row in rows] == ["patient", "patient_id"]
    assert almoner.ask("audit verify")["holds"]
    almoner.type("doctor")


def test_it_is_registered_again_while_its_first_version_is_read(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is refused, and nothing of the texts stays in the home."""
    almoner = any_almoner
    almoner.registered()
    real = register.ingest_version

    def late(*given: Any) -> Any:
        almoner.type("dataset register clinic --unit patient_id --epsilon 2 --delta 1e-6")
        return real(*given)

    monkeypatch.setattr(register, "ingest_version", late)
    assert almoner.ask(f"dataset ingest clinic {almoner.notes_file()}", expected=1)["error"] == "RegisteredAgain"
    assert [path for path in almoner.home.corpora.iterdir() if not path.name.startswith(".")] == []
    assert almoner.ask("audit verify")["holds"]
    almoner.type("doctor")
