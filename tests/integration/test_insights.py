"""Insights from the request to the verified bundle: charged, killed and gone on, and nothing that one person said."""

import json
from decimal import Decimal
from typing import Any

import pytest

import flows.releases.execute
from tests import tiny_model
from tests.integration.killing import goes_on, killed
from tests.integration.story import Almoner

pytestmark = pytest.mark.contract

CONCERNS = ("tasks/analysis", "tasks/systems/insights")

WORDS = ["kettle", "tomato", "violin", "tax form"]
TOLD = ("How do I clean my {}?", "The {} is broken again.", "Which {} would you buy?", "My {} makes a strange noise.")
SECRET = "zanzibarquux"
NOTES = [
    {"patient_id": f"p{unit:03}", "text": f"{TOLD[turn].format(WORDS[unit % 4])} {SECRET}{unit}"}
    for unit in range(48)
    for turn in (unit % 4, (unit + 1) % 4)
]
PARAMETERS: dict[str, Any] = {
    "clusters": {"count": 4},
    "keywords": {"method": "public", "words": WORDS},
    "smallest_cluster": 3,
    "max_new_tokens": 400,
    "hierarchy": {"levels": 2, "branching": 2},
}
INSIGHTS: dict[str, Any] = {
    "kind": "insights",
    "mechanism": "urania",
    "epsilon": 6.0,
    "delta": 1e-6,
    "parameters": PARAMETERS,
    "evaluation": ["length", "distinct"],
}
PRIVATE: dict[str, Any] = INSIGHTS | {
    "epsilon": 60.0,
    "parameters": PARAMETERS | {"keywords": {"method": "tfidf", "size": 8, "per_unit": 2, "tokens_per_unit": 4}},
}
STAGES = ["kmeans", "noisy_histogram", "set_histogram"]
KEYWORDS = ["set_histogram", "weighted_selection", "weighted_selection"]


@pytest.fixture(autouse=True)
def a_model_that_ends(monkeypatch: pytest.MonkeyPatch, almoner: Almoner) -> None:
    """An answer under a grammar ends with a token that says so."""
    monkeypatch.setattr(flows.releases.execute, "load", tiny_model.load_tiny_that_ends)


def approved(almoner: Almoner, asked: dict[str, Any] = INSIGHTS, notes: Any = NOTES) -> None:
    almoner.type("init")
    almoner.type("dataset register clinic --unit patient_id --epsilon 80 --delta 1e-5 --accept-weak-promise")
    almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=notes)}")
    almoner.type(f"release request {almoner.request_file(**asked)} --accept-weak-promise")
    almoner.type('approve 1 --gate spend --reason "a first look"')


def published(almoner: Almoner) -> list[dict[str, Any]]:
    shown = almoner.type('approve 1 --gate publish --reason "no topic is about a person"')
    assert "descriptions are in explorer.html" in shown.out + shown.err
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert report["holds"] is True, report
    return [json.loads(line) for line in (almoner.bundle / "texts.jsonl").read_text().splitlines()]


def test_insights_from_the_request_to_the_verified_bundle(almoner: Almoner) -> None:
    approved(almoner)
    done = almoner.ask("run 1")
    assert done["rho_spent"] == almoner.ask("budget show clinic")["rho_spent"]
    rows = published(almoner)
    clusters = [row for row in rows if row["level"] == 0]
    assert clusters
    fields = {"id", "parent", "level", "name", "text", "keywords", "support", "origins", "size", "clusters"}
    assert all(set(row) == fields for row in rows)
    assert all(len(row["support"]) == len(row["origins"]) == len(row["keywords"]) for row in rows)
    assert sum(row["size"] for row in clusters) == pytest.approx(48, abs=40)
    assert {word for row in clusters for word in row["keywords"]} <= set(WORDS)
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert [event["mechanism"] for event in record["events"]] == STAGES
    assert record["released"].keys() == {
        "clusters_released",
        "clusters_kept",
        "clusters_unnamed",
        "descriptions_replaced",
    }
    assert "<title>" in (almoner.bundle / "explorer.html").read_text()
    assert not list((almoner.home.root / "quarantine").glob("*-unfinished"))


def test_nothing_that_one_person_said_gets_out(almoner: Almoner) -> None:
    approved(almoner)
    told = almoner.type("run 1")
    published(almoner)
    for path in almoner.bundle.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path.name
    assert SECRET not in told.out + told.err


@pytest.mark.slow
def test_a_private_keyword_set_is_paid_for_and_only_shared_words_come_out(almoner: Almoner) -> None:
    approved(almoner, PRIVATE)
    almoner.type("run 1")
    rows = published(almoner)
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert [event["mechanism"] for event in record["events"]] == KEYWORDS + STAGES
    assert 0 < Decimal(record["claim"]["delta_fail"]) <= Decimal("1e-7")  # thresholds are whole numbers
    assert int(record["released"]["keywords_released"]) > 0
    assert {"kettle", "tomato", "violin"} & {word for row in rows for word in row["keywords"]}
    assert SECRET not in json.dumps(rows)


@pytest.mark.slow
@pytest.mark.parametrize("notes", [[], NOTES[:1], [{**note, "text": "all the same"} for note in NOTES]])
def test_hardly_anybody_or_everybody_alike_is_no_error(almoner: Almoner, notes: Any) -> None:
    """No unit at all needs a version: a corpus of nobody is one of a unit with nothing to say."""
    approved(almoner, notes=notes or [{"patient_id": "p", "text": " . "}])
    almoner.type("run 1")
    rows = published(almoner)
    assert len([row for row in rows if row["level"] == 0]) <= 4


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"prompt": {"description": "chats", "preset": "chat"}}, "WordingUnused"),
        ({"epsilon": 1e-6}, "NoiseInvalid"),
        ({"parameters": PARAMETERS | {"embedder": "nobody"}}, "UnknownModel"),
        ({"parameters": PARAMETERS | {"clusters": {"count": 0}}}, "FileInvalid"),
        ({"parameters": PARAMETERS | {"keywords": {"method": "public"}}}, "FileInvalid"),
        ({"mechanism": "simple_clio", "epsilon": None, "delta": None, "parameters": {}}, "NotForGovernedData"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(
    almoner: Almoner, changes: dict[str, Any], refusal: str
) -> None:
    almoner.ingested()
    told = almoner.type(f"release request {almoner.request_file(**INSIGHTS | changes)} --json", expected=None)
    assert told.code in (1, 2)
    assert told.json["error"] == refusal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "paid", "lost"),
    [
        ("among facets", 1, False),
        ("after the first result is kept", 1, False),
        ("after the second result is kept", 2, False),
        ("while the third result is drawn", 3, True),
        ("after draft", 3, False),
    ],
)
def test_a_killed_run_goes_on_and_pays_for_nothing_twice(almoner: Almoner, point: str, paid: int, lost: bool) -> None:
    """A step that died after its draw began is lost; every other is used, also one that had not yet been drawn."""
    approved(almoner)
    killed("run 1", point, stops=True)
    goes_on(almoner, paid, lost=lost)
    published(almoner)
