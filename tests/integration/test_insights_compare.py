"""Two releases of insights of one home, compared by their numbers, by their bundles and as the last two."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import flows.releases.execute
from tests import tiny_model
from tests.integration.story import Almoner
from tests.integration.test_insights import INSIGHTS, NOTES, TOLD, WORDS
from tests.support import fetch

CONCERNS = ("cli/commands/release", "flows/reports", "tasks/systems/insights")

LATER = [note for note in NOTES if "violin" not in note["text"]]


@pytest.fixture(autouse=True)
def a_model_that_ends(monkeypatch: pytest.MonkeyPatch, almoner: Almoner) -> None:
    """An answer under a grammar ends with a token that says so."""
    monkeypatch.setattr(flows.releases.execute, "load", tiny_model.load_tiny_that_ends)


def ran(almoner: Almoner, number: int, parameters: Mapping[str, Any] = {}, **fields: Any) -> None:
    """A request for insights of the newest version that waits at the publish gate."""
    asked = INSIGHTS | {"parameters": {**INSIGHTS["parameters"], **parameters}} | fields
    almoner.type(f"release request {almoner.request_file(**asked)} --accept-weak-promise")
    almoner.go_on_to("produced", number)


def published(almoner: Almoner, number: int, parameters: Mapping[str, Any] = {}, **fields: Any) -> str:
    ran(almoner, number, parameters, **fields)
    almoner.type(f'approve {number} --gate publish --reason "no topic is about a person"')
    return str(almoner.ask(f"publish {number} --to {almoner.folder / 'out'}")["bundle"])


def two_releases(almoner: Almoner) -> None:
    """Releases 1 and 2 of a corpus and of a later version of it."""

    def make() -> None:
        almoner.type("init")
        almoner.type("dataset register clinic --unit patient_id --epsilon 80 --delta 1e-5 --accept-weak-promise")
        almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=NOTES)}")
        published(almoner, 1)
        almoner.type(f"dataset ingest clinic {almoner.notes_file('later.jsonl', notes=LATER)}")
        published(almoner, 2)

    almoner.brought("two releases of insights", make)


def without_places(told: dict[str, Any]) -> dict[str, Any]:
    sides = {side: {name: fact for name, fact in told[side].items() if name != "place"} for side in ("old", "new")}
    return told | sides


@pytest.mark.slow
def test_numbers_bundles_and_the_last_two_are_the_same_comparison(almoner: Almoner) -> None:
    two_releases(almoner)
    before = almoner.everything()
    told = almoner.ask("insights compare 1 2")
    bundles = [almoner.folder / "out" / f"clinic-release-{number}" for number in (1, 2)]
    for line in (f"{bundles[0]} {bundles[1]}", f"1 {bundles[1]}", f"{bundles[0]} 2", "--last clinic"):
        assert without_places(almoner.ask(f"insights compare {line}")) == without_places(told)
    assert (told["old"]["release"], told["new"]["release"]) == (1, 2)
    assert told["old"]["size_deviation"] > 0
    seen = [change["old"]["id"] for change in told["changes"]] + [topic["id"] for topic in told["gone_topics"]]
    assert len(seen) == len(set(seen)) > 0
    assert {word for change in told["changes"] for word in change["new"]["keywords"]} <= set(WORDS)
    assert almoner.ask("insights compare 1 1", 2)["error"] == "SameRelease"
    assert almoner.ask(f"insights compare {bundles[0]} 1", 2)["error"] == "SameRelease"
    assert almoner.everything() == before  # nothing is charged, and nothing is recorded


@pytest.mark.slow
def test_what_is_not_published_or_was_altered_or_retracted_is_refused(almoner: Almoner) -> None:
    two_releases(almoner)
    ran(almoner, 3)
    refused = almoner.ask("insights compare 1 3", 1)
    assert (refused["error"], refused["facts"]["state"]) == ("WrongState", "produced")
    assert almoner.ask("insights compare --last clinic")["new"]["release"] == 2
    assert almoner.ask("insights compare 1 4", 2)["error"] == "RequestUnknown"
    assert almoner.ask("insights compare --last nobody", 2)["error"] == "DatasetUnknown"

    (rows,) = almoner.home.root.glob("quarantine/2-*/texts.jsonl")
    kept = rows.read_bytes()
    rows.write_bytes(kept.replace(b'"level":0', b'"level":1', 1))
    assert almoner.ask("insights compare 1 2", 1)["error"] == "ArtifactChanged"
    rows.write_bytes(kept)

    bundle = almoner.folder / "out" / "clinic-release-1"
    proposal = almoner.ask('release retract 1 --reason "a mistake"')["proposal"]
    almoner.type(f'approve {proposal} --gate proposal --reason "agreed"')
    for line in ("1 2", f"{bundle} 2"):
        assert almoner.ask(f"insights compare {line}", 1)["error"] == "Retracted"
    refused = almoner.ask("insights compare --last clinic", 1)
    assert (refused["error"], refused["facts"]) == ("TooFewReleases", {"dataset": "clinic", "published": 1})


@pytest.mark.slow
def test_a_schedule_makes_releases_that_are_compared_once_they_are_published(almoner: Almoner) -> None:
    """docs/insights-compare.md: a nightly release; each waits at the publish gate, and the last two are compared."""
    almoner.type("init")
    almoner.type("dataset register clinic --unit patient_id --epsilon 80 --delta 1e-5 --accept-weak-promise")
    almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=NOTES)}")
    almoner.type(f'standing propose {almoner.request_file(**INSIGHTS)} --runs 30 --until 2099-12-31 --reason "nightly"')
    almoner.type('approve 1 --gate proposal --reason "agreed"')
    for night in (1, 2):  # the ledger knows what day it is, so the second night has a schedule of its own
        almoner.type('schedule create 1 --every 1d --start 2026-01-01 --reason "nightly"')
        almoner.type(f"schedule run {night}")
        almoner.type(f'schedule end {night} --reason "a night is over"')
        assert almoner.state(night) == "produced"
        if night == 2:
            assert almoner.ask("insights compare --last clinic", 1)["error"] == "TooFewReleases"
        almoner.go_on_to("published", night, after="produced")
    told = almoner.ask("insights compare --last clinic")
    assert (told["old"]["release"], told["new"]["release"]) == (1, 2)
    assert not [caution for caution in told["cautions"] if "requests differ" in caution]


@pytest.mark.slow
def test_a_keyword_set_follows_the_cohorts(almoner: Almoner) -> None:
    """docs/insights-compare.md: released words are public for the next cohort, which adds a word of its own.

    The first cohort's people pay for the first release alone, and those of the second for the second.
    """
    first = [note for note in NOTES if "violin" not in note["text"]]
    second = [
        {"patient_id": f"new-{number:03}", "text": TOLD[number % 4].format("violin" if number % 2 else "kettle")}
        for number in range(48)
    ]
    almoner.type("init")
    almoner.type("dataset register clinic --unit patient_id --epsilon 80 --delta 1e-5 --accept-weak-promise")
    almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=first)}")
    words = ["kettle", "tomato", "tax form"]
    bundle = Path(published(almoner, 1, {"keywords": {"method": "public", "words": words}}, epsilon=60.0))
    rows = [json.loads(line) for line in (bundle / "texts.jsonl").read_text().splitlines()]
    released = sorted({word for row in rows for word in row["keywords"]})
    assert "kettle" in released
    almoner.type(f"dataset ingest clinic {almoner.notes_file('later.jsonl', notes=second)} --new-cohort")
    spent = {number: paid(almoner, number) for number in (1, 2)}
    words = [*released, "violin"]
    published(almoner, 2, {"keywords": {"method": "public", "words": words}}, cohorts="newest", epsilon=60.0)
    assert paid(almoner, 1) == spent[1]
    assert paid(almoner, 2) > spent[2] == 0
    told = almoner.ask("insights compare 1 2")
    [differ] = [caution for caution in told["cautions"] if "requests differ" in caution]
    assert "cohorts" in differ
    assert "parameters.keywords" in differ
    assert "violin" in {word for topic in told["new_topics"] for word in topic["keywords"]} | {
        word for change in told["changes"] for word in change["new"]["keywords"]
    }


def paid(almoner: Almoner, cohort: int) -> int:
    """What the one block of a cohort has spent."""
    blocks = fetch(almoner.database, "SELECT rho_spent FROM account WHERE parent_id IS NOT NULL ORDER BY block")
    return int(str(blocks[cohort - 1][0]))
