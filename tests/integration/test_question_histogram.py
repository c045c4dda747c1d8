"""Questions with closed answers from the request to the verified bundle: priced, charged, killed and gone on, shown."""

import json
from copy import deepcopy
from typing import Any

import pytest

from tests.integration.killing import goes_on, killed
from tests.integration.story import Almoner

CONCERNS = ("tasks/systems/question_histogram",)

SECRET = "zanzibarquux"
TOLD = ("How do I clean my kettle?", "The violin is out of tune.", "Which kettles would you buy?", "Good morning.")
NOTES = [
    {"patient_id": f"p{unit:03}", "text": f"{TOLD[(unit + turn) % 4 if unit % 4 == 3 else unit % 4]} {SECRET}{unit}"}
    for unit in range(48)
    for turn in (0, 0)
]
ABOUT: dict[str, Any] = {
    "question": "What is it about?",
    "answers": [{"name": "kitchen", "keywords": ["kettle", "oven"]}, {"name": "music", "keywords": ["violin"]}],
}
TONE: dict[str, Any] = {
    "question": "Is the writer {angry}?",
    "rule": "model",
    "answers": [{"name": "yes"}, {"name": "yes, very"}, {"name": "no"}],
}


def worded(question: str) -> dict[str, Any]:
    """The first question in other words; a copy, because a request file has no aliases."""
    return deepcopy(ABOUT) | {"question": question}


REQUEST: dict[str, Any] = {
    "kind": "insights",
    "mechanism": "question_histogram",
    "epsilon": 6.0,
    "delta": 1e-6,
    "parameters": {"questions": [ABOUT]},
    "evaluation": ["length", "distinct"],
}


def approved(almoner: Almoner, asked: dict[str, Any] = REQUEST, population: int = 48) -> None:
    almoner.type("init")
    almoner.type(
        f"dataset register clinic --unit patient_id --epsilon 80 --delta 1e-5 --population {population}"
        " --accept-weak-promise"
    )
    almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=NOTES)}")
    almoner.type(f"release request {almoner.request_file(**asked)} --accept-weak-promise")
    almoner.type('approve 1 --gate spend --reason "a first look"')


def published(almoner: Almoner) -> tuple[list[dict[str, Any]], str]:
    """The rows of the bundle, and what the publish gate showed."""
    shown = almoner.type('approve 1 --gate publish --reason "counts with wide margins"')
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert report["holds"] is True, report
    rows = [json.loads(line) for line in (almoner.bundle / "texts.jsonl").read_text().splitlines()]
    return rows, shown.out + shown.err


def test_counts_from_the_request_to_the_verified_bundle(almoner: Almoner) -> None:
    approved(almoner)
    spend = almoner.type("release show 1 --details").out
    assert "What is it about?" in spend
    assert "kitchen / music / no answer" in spend
    assert "margin of error" in spend
    done = almoner.ask("run 1")
    assert done["rho_spent"] == almoner.ask("budget show clinic")["rho_spent"]
    rows, shown = published(almoner)
    assert [(row["level"], row["name"]) for row in rows] == [
        (1, "What is it about?"),
        (0, "kitchen"),
        (0, "music"),
        (0, "no answer"),
    ]
    assert [row["size"] for row in rows] == pytest.approx([48, 24, 12, 12], abs=20)
    assert rows[0]["size"] == sum(row["size"] for row in rows[1:])
    assert rows[1]["keywords"] == ["kettle", "oven"]
    assert rows[1]["origins"] == ["request", "request"]
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert [event["mechanism"] for event in record["events"]] == ["set_histogram"]
    margin = record["facts"]["margin of error of a count, 95 %"]
    count = f"{max(0, rows[2]['size'])} ±{margin}"
    assert count in shown
    explorer, report = ((almoner.bundle / name).read_text() for name in ("explorer.html", "report.html"))
    assert f"{count} units" in explorer
    assert f"{count} units" in report
    told = almoner.type("release texts 1").out
    assert f"Units with this answer: {count}." in told
    assert all(
        f"Text {number}, {name}" in told for number, name in enumerate(("What is it about?", "kitchen", "music"), 1)
    )
    card = (almoner.bundle / "README.md").read_text()
    assert f"±{margin} (95 %)" in card
    assert "No language model was used" in card
    refused = almoner.type(f"insights compare 1 {almoner.bundle} --json", expected=None)
    assert refused.json["error"] == "CountsNotMatched"
    for path in almoner.bundle.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path.name


@pytest.mark.slow
def test_a_model_answers_and_several_questions_are_charged_together(almoner: Almoner) -> None:
    approved(almoner, REQUEST | {"parameters": {"questions": [TONE, ABOUT], "max_text_tokens": 64}})
    almoner.type("run 1")
    rows, _ = published(almoner)
    assert [row["name"] for row in rows if row["level"] == 1] == [TONE["question"], ABOUT["question"]]
    assert [row["name"] for row in rows if row["parent"] == 1] == ["yes", "yes, very", "no", "no answer"]
    (event,) = json.loads((almoner.bundle / "release.json").read_text())["events"]
    assert event["parameters"]["contributions"] == 2
    assert "others were given by the language model" in (almoner.bundle / "README.md").read_text()


@pytest.mark.parametrize(
    ("question", "refusal"),
    [
        ({"answers": []}, "AnswersMissing"),
        ({"answers": [{"name": "a", "keywords": ["b"]}, {"name": " A", "keywords": ["c"]}]}, "AnswerRepeated"),
        ({"answers": [{"name": "No answer", "keywords": ["b"]}]}, "AnswerRepeated"),
        ({"answers": [{"name": "a"}]}, "AnswerWithoutKeywords"),
        ({"rule": "model"}, "KeywordsUnused"),
        ({"question": "x" * 201}, "QuestionTooLong"),
        ({"answers": [{"name": str(n), "keywords": [str(n)]} for n in range(51)]}, "TooManyAnswers"),
        ({"question": "Two\nlines?"}, "FileInvalid"),
    ],
)
def test_what_cannot_be_asked_is_refused_when_it_is_priced(
    almoner: Almoner, question: dict[str, Any], refusal: str
) -> None:
    almoner.ingested()
    file = almoner.request_file(**REQUEST | {"parameters": {"questions": [ABOUT | question]}})
    told = almoner.type(f"release request {file} --dry-run --json", expected=None)
    assert told.code in (1, 2)
    assert told.json["error"] == refusal


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"parameters": {}}, "QuestionsMissing"),
        ({"parameters": {"questions": [ABOUT, worded("What is  IT about?")]}}, "QuestionRepeated"),
        ({"parameters": {"questions": [worded(f"{n}?") for n in range(21)]}}, "TooManyQuestions"),
        ({"epsilon": 1e-12, "delta": 1e-12}, "InvalidTarget"),
        ({"epsilon": None, "delta": None}, "ClaimMissing"),
        ({"prompt": {"description": "chats", "preset": "chat"}}, "WordingUnused"),
        ({"kind": "synthetic_corpus"}, "UnknownSystem"),
    ],
)
def test_a_request_that_cannot_be_is_refused(almoner: Almoner, changes: dict[str, Any], refusal: str) -> None:
    almoner.ingested()
    told = almoner.type(f"release request {almoner.request_file(**REQUEST | changes)} --dry-run --json", expected=None)
    assert told.json["error"] == refusal


def test_a_margin_above_the_share_of_a_bin_is_a_warning_before_anything_is_paid(almoner: Almoner) -> None:
    approved(almoner, REQUEST | {"epsilon": 0.5})
    priced = almoner.ask(f"release request {almoner.request_file(**REQUEST | {'epsilon': 0.5})} --dry-run")["price"]
    (warning,) = [line for line in priced["warnings"] if "will say little" in line]
    assert "48 declared units are 16 for each of the 3 bins" in warning
    assert "will say little" in almoner.type("release show 1").out
    assert (
        "warning" not in almoner.ask(f"release request {almoner.request_file(**REQUEST)} --dry-run")["price"]["facts"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "lost"),
    [("after the first result is kept", False), ("while the first result is drawn", True), ("after draft", False)],
)
def test_a_killed_run_goes_on_and_pays_once(almoner: Almoner, point: str, lost: bool) -> None:
    approved(almoner)
    killed("run 1", point, stops=True)
    goes_on(almoner, 1, lost=lost)
    published(almoner)
