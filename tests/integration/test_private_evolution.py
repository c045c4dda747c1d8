"""Private evolution from the request to the verified bundle: what is charged, what is told, and what a kill leaves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models_db.values.amounts import Amount
from tests.integration.canary import CANARIES, leaks, text_of
from tests.integration.killing import balance, goes_on, instalments, killed
from tests.integration.story import NOTES, REQUEST, Almoner
from tests.support_backend import ModelServer, answer, connections, says

pytestmark = pytest.mark.contract

CONCERNS = ("flows/releases", "tasks/systems/private_evolution")

PARAMETERS: dict[str, Any] = {
    "samples": 3, "rounds": 2, "variations": 2, "candidates": 6, "max_new_tokens": 10, "top_k": 50,
}  # fmt: skip
ASKED: dict[str, Any] = {
    "mechanism": "private_evolution",
    "parameters": PARAMETERS,
    "evaluation": ["length", "distinct"],
}
SECTIONS = sorted({note["section"] for note in NOTES})
LABELS = [SECTIONS[0], "horoscope"]
LABELLED = ASKED | {"kind": "demonstrations", "parameters": PARAMETERS | {"samples": 5, "labels": LABELS}}
ADD = "models endpoint add office --model tiny-chat --licence MIT --attempts 1 --at-once 1"
PROMPTS = 6 + 3
"""Of the two rounds; by rank, three of six stay."""


def approved(almoner: Almoner, asked: dict[str, Any] = ASKED) -> Any:
    price = almoner.ask(f"release request {almoner.request_file(**asked)}")["price"]
    almoner.type('approve 1 --gate spend --reason "a first look"')
    return price


def published(almoner: Almoner) -> list[dict[str, Any]]:
    almoner.go_on_to("published", after="produced")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert report["holds"] is True, report
    return [json.loads(line) for line in (almoner.bundle / "texts.jsonl").read_text().splitlines()]


def spent_once(almoner: Almoner, price: Any) -> None:
    found = balance(almoner)
    assert found.spent.rho_text == price["rho"]
    assert found.held == Amount()


def test_a_corpus_from_the_request_to_the_verified_bundle(almoner: Almoner, caplog: pytest.LogCaptureFixture) -> None:
    almoner.ingested()
    price = approved(almoner)
    assert price["facts"]["candidates of a round"] == "6"
    done = almoner.type("run 1")
    spent_once(almoner, price)
    rows = published(almoner)
    assert len(rows) == 3
    assert all(set(row) == {"id", "text"} for row in rows)
    record = json.loads((almoner.bundle / "release.json").read_bytes())
    assert [event["mechanism"] for event in record["events"]] == ["noisy_histogram"] * 2
    assert record["facts"]["rounds"] == "2"
    assert record["released"].keys() == {"candidates_clear_of_noise"}
    assert [folder.name for folder in almoner.home.quarantine.iterdir() if "unfinished" in folder.name] == []
    assert leaks(text_of(almoner.bundle) + done.out + done.err + caplog.text) == []


@pytest.mark.slow
def test_texts_have_the_declared_labels_also_one_that_nobody_has(almoner: Almoner) -> None:
    almoner.registered()
    almoner.type(f"dataset ingest clinic {almoner.notes_file()} --label-field section")
    price = approved(almoner, LABELLED)
    assert price["facts"]["candidates of a round"] == "12, 6 of each label"
    almoner.type("run 1")
    rows = published(almoner)
    assert [row["label"] for row in rows] == [LABELS[0]] * 3 + [LABELS[1]] * 2
    spent_once(almoner, price)


@pytest.mark.slow
def test_blocks_are_charged_alike_and_charged_metrics_come_out_of_the_same_epsilon(almoner: Almoner) -> None:
    almoner.registered("--blocks 3")
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    price = approved(almoner, ASKED | {"evaluation": ["dp_length"]})
    almoner.type("run 1")
    published(almoner)
    assert almoner.ask("budget show clinic")["rho_spent"] == price["rho"]


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"epsilon": 1e-5, "parameters": PARAMETERS | {"rounds": 1000}}, "NoiseInvalid"),
        ({"parameters": PARAMETERS | {"embedder": "nobody"}}, "UnknownModel"),
        ({"parameters": PARAMETERS | {"samples": 1, "labels": LABELS}}, "LabelWithoutSample"),
        ({"parameters": PARAMETERS | {"rounds": 0}}, "FileInvalid"),
        ({"parameters": PARAMETERS | {"threshold": 2}}, "FileInvalid"),
        ({"kind": "demonstrations"}, "LabelsNeeded"),
        ({"kind": "insights"}, "UnknownSystem"),
        ({"epsilon": None}, "ClaimMissing"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_anything_is_spent(
    almoner: Almoner, changes: dict[str, Any], refusal: str
) -> None:
    almoner.ingested()
    told = almoner.type(f"release request {almoner.request_file(**ASKED | changes)} --json", expected=None)
    assert told.code in (1, 2)
    assert told.json["error"] == refusal
    assert balance(almoner).spent == Amount()


@pytest.mark.slow
@pytest.mark.parametrize(  # results are candidates and votes in turns, of which votes are paid
    ("point", "paid", "lost"),
    [
        ("while the first result is drawn", 0, False),
        ("after the first result is kept", 0, False),
        ("among units", 1, False),
        ("after the second result is kept", 1, False),
        ("after the third result is kept", 1, False),
        ("while the fourth result is drawn", 2, True),
        ("after the fourth result is kept", 2, False),
    ],
)
def test_a_killed_run_goes_on_and_pays_for_no_round_twice(almoner: Almoner, point: str, paid: int, lost: bool) -> None:
    almoner.ingested()
    approved(almoner)
    assert len(instalments(almoner)) == 2
    killed("run 1", point)
    before = kept(almoner.home.quarantine / "1-unfinished" / "journal")
    goes_on(almoner, paid, lost=lost)
    texts = [row["text"] for row in published(almoner)]
    if "candidates 1" in before and not lost:  # what was there is what was voted on: all texts come from it
        assert set(texts) <= {text for name in ("candidates 0", "candidates 1") for text, _, _ in before[name]}


def kept(journal: Path) -> dict[str, Any]:
    """What a journal says was released, by step."""
    lines = [json.loads(line.split(b" ", 1)[1]) for line in journal.read_bytes().splitlines()]
    return {line["released"]: line["result"] for line in lines if "result" in line}


# --- an external model


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as made:
        yield made


@pytest.fixture
def office(almoner: Almoner, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Almoner]:
    """A home that knows the server, which hears no word of a note; and nobody else is connected to."""
    almoner.ingested()
    almoner.type(f"{ADD} --url {server.url}")
    made = connections(monkeypatch)
    yield almoner
    assert server.seen
    assert server.heard(CANARIES) == []
    assert set(made) == {server.address}


EXTERNAL = ASKED | {"model": "external:office", "parameters": PARAMETERS | {"top_k": 0}}


def test_an_external_model_hears_candidates_alone(office: Almoner, server: ModelServer) -> None:
    price = approved(office, EXTERNAL)
    assert price["external"]["requests"] == PROMPTS
    assert server.seen == []
    office.type("run 1")
    assert len(server.seen) == PROMPTS
    description = REQUEST["prompt"]["description"]
    assert [description in prompt for prompt in server.prompts] == [True] * 6 + [False] * 3
    assert all(prompt.startswith("Rewrite the following text") for prompt in server.prompts[6:])
    spent_once(office, price)
    assert len(published(office)) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("point", "answers"), [("after two answers are kept", 2), ("after eight answers are kept", 8)])
def test_a_killed_run_asks_for_what_is_missing_and_for_nothing_else(
    office: Almoner, server: ModelServer, point: str, answers: int
) -> None:
    price = approved(office, EXTERNAL)
    killed("run 1", point)
    asked = len(server.seen)
    assert asked in (answers, answers + 1)  # the next one may have been on its way
    office.type("run 1")
    assert len(server.seen) == asked + PROMPTS - answers
    spent_once(office, price)
    assert len(published(office)) == 3


@pytest.mark.slow
def test_an_endpoint_that_fails_between_rounds_costs_nothing_twice(office: Almoner, server: ModelServer) -> None:
    price = approved(office, EXTERNAL)
    for answered in (3, 4):
        server.next = [*[answer] * answered, says(500)]
        assert office.ask("run 1", 3)["error"] == "EndpointServerError"
    office.type("run 1")
    assert len(server.seen) == PROMPTS + 2
    spent_once(office, price)
    assert len(published(office)) == 3
