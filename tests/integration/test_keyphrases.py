"""Keyphrase seeding from the request to the verified bundle: charged, killed and gone on, and no canary in a prompt."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from models_db.services import budget
from models_db.values.amounts import Amount, total_amount
from tasks.inference.backends.text_backend import LocalBackend
from tests.integration.killing import balance, goes_on, instalments, killed
from tests.integration.story import Almoner
from tests.support_backend import ModelServer, answer, connections, says

CONCERNS = ("tasks/inference/backends", "tasks/systems/keyphrase_seeding")

WORDS = ["kettle", "tomato", "violin", "tax form"]
TOLD = ("How do I clean my {}?", "The {} is broken again.", "Which {} would you buy?", "My {} makes a strange noise.")
SECRET = "zanzibarquux"
NOTES = [
    {
        "patient_id": f"p{unit:03}",
        "text": f"{TOLD[turn].format(WORDS[unit % 4])} {SECRET}{unit}",
        "ward": "ab"[unit % 2],
    }
    for unit in range(48)
    for turn in (unit % 4, (unit + 1) % 4)
]
PARAMETERS: dict[str, Any] = {
    "samples": 6,
    "references": 24,
    "labels": ["a", "b", "c"],
    "features": 40,
    "phrases_per_text": 2,
    "vocabulary": {"method": "private", "size": 12, "per_unit": 3},
    "max_new_tokens": 12,
}
SEEDED: dict[str, Any] = {
    "kind": "synthetic_corpus",
    "mechanism": "keyphrase_seeding",
    "epsilon": 40.0,
    "delta": 1e-6,
    "parameters": PARAMETERS,
    "evaluation": ["length", "distinct"],
}
PUBLIC = PARAMETERS | {"sequences": "iterative", "vocabulary": {"method": "public", "words": WORDS}}


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every prompt that the model is given."""
    prompts: list[str] = []
    write = LocalBackend.write

    def recorded(self: LocalBackend, asked: Any, how: Any) -> Any:
        prompts.extend([*asked, str(how.system)])
        return write(self, asked, how)

    monkeypatch.setattr(LocalBackend, "write", recorded)
    return prompts


def approved(almoner: Almoner, **changes: Any) -> None:
    """A request for texts from key phrases may run."""
    almoner.brought(f"key phrases approved {changes!r}", lambda: approve(almoner, **changes))


def approve(almoner: Almoner, **changes: Any) -> None:
    if not almoner.home.root.exists():
        almoner.type("init")
    almoner.type("dataset register clinic --unit patient_id --epsilon 90 --delta 1e-5 --accept-weak-promise")
    almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=NOTES)} --label-field ward")
    almoner.type(f"release request {almoner.request_file(**SEEDED | changes)} --accept-weak-promise")
    almoner.type('approve 1 --gate spend --reason "a first look"')


def published(almoner: Almoner) -> list[dict[str, Any]]:
    almoner.go_on_to("published", after="produced")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert report["holds"] is True, report
    return [json.loads(line) for line in (almoner.bundle / "texts.jsonl").read_text().splitlines()]


@pytest.mark.slow_except("private")
@pytest.mark.parametrize(
    ("parameters", "events", "figures"),
    [
        (PARAMETERS, ["gaussian_selection", "kde"], {"keywords_released", "public_topics_added"}),
        (PUBLIC, ["kde"], set()),
    ],
    ids=["private", "public"],
)
def test_from_the_request_to_the_verified_bundle(
    almoner: Almoner, heard: list[str], parameters: Any, events: list[str], figures: set[str]
) -> None:
    approved(almoner, parameters=parameters)
    done = almoner.ask("run 1")
    assert (
        done["rho_spent"]
        == almoner.ask("budget show clinic")["rho_spent"]
        == total_amount(instalments(almoner)).rho_text
    )
    rows = published(almoner)
    assert [row["label"] for row in rows] == ["a", "a", "b", "b", "c", "c"]
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert [event["mechanism"] for event in record["events"]] == events
    assert record["released"].keys() == figures | {"phrases_drawn_without_a_score"}
    card = (almoner.bundle / "README.md").read_text()
    assert "It was shown no private text:" in card
    assert "Write another." not in card  # a template for rows with private texts
    assert len([prompt for prompt in heard if "Write a text about " in prompt]) == 6


@pytest.mark.slow
def test_every_vocabulary_and_sequence_is_charged_what_its_plan_says_and_armed_in_its_order(almoner: Almoner) -> None:
    approved(almoner, parameters=PUBLIC)
    vocabularies = {
        "public": PUBLIC["vocabulary"],
        "counted": {"method": "counted", "size": 2, "per_unit": 2, "words": WORDS},
        "private": PARAMETERS["vocabulary"],
    }
    cases = list(product(vocabularies, ["independent", "iterative"]))
    for number, (vocabulary, sequences) in enumerate(cases, 2):
        parameters = PARAMETERS | {"vocabulary": vocabularies[vocabulary], "sequences": sequences, "samples": 3}
        almoner.type(f"release request {almoner.request_file(**SEEDED | {'epsilon': 8.0, 'parameters': parameters})}")
        almoner.type(f'approve {number} --gate spend --reason "one of six"')
        before, plan = balance(almoner).spent, instalments(almoner, number)
        almoner.type(f"run {number}")
        found = balance(almoner)
        assert found.spent - before == total_amount(plan), (vocabulary, sequences)
        assert found.held == Amount()
        with almoner.database.read() as session:
            armed = budget.armed_instalments(session, number, [1])
        assert armed == {sequence: {0} for sequence in range(len(plan))}
        assert len(plan) == {"public": 1, "counted": 2, "private": 2}[vocabulary]


def test_a_model_without_room_costs_nothing(almoner: Almoner) -> None:
    """Values are paid for before texts are written: whether somebody can write them is asked before that."""
    approved(almoner, parameters=PARAMETERS | {"max_new_tokens": 4000})
    assert almoner.ask("run 1", expected=2)["error"] == "ContextTooLong"
    assert (balance(almoner).spent, balance(almoner).held) == (Amount(), Amount())


def test_an_endpoint_that_never_answers_costs_nothing(almoner: Almoner) -> None:
    """With another address or model the request would be another one, and be paid for again."""
    with ModelServer() as server:
        almoner.type("init")
        almoner.type(f"models endpoint add office --model tiny-chat --url {server.url} --attempts 1")
        approved(almoner, model="external:office")
        server.always = says(404)
        for failure in ("EndpointRejectedRequest", "EndpointUnreachable"):
            assert almoner.ask("run 1", expected=3)["error"] == failure
            assert (balance(almoner).spent, balance(almoner).held) == (Amount(), Amount())
            if failure == "EndpointRejectedRequest":
                server.stop()
        assert len(server.seen) == 1
        assert "Mention" not in server.prompts[0]


def test_no_canary_reaches_a_prompt_or_the_bundle(almoner: Almoner, heard: list[str]) -> None:
    approved(almoner)
    told = almoner.type("run 1")
    published(almoner)
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert int(record["released"]["keywords_released"]) > 0  # phrases of the units themselves were released
    assert heard
    assert SECRET not in "".join(heard)
    for path in almoner.bundle.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path.name
    assert SECRET not in told.out + told.err


@pytest.mark.slow
def test_an_external_model_hears_no_canary_and_is_asked_the_same_after_it_failed(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer() as server:
        made = connections(monkeypatch)
        almoner.type("init")
        almoner.type(f"models endpoint add office --model tiny-chat --url {server.url} --attempts 1 --at-once 1")
        approved(almoner, model="external:office")
        server.next = [*[answer] * 3, says(500)]  # the first to find out whether anybody answers
        assert almoner.ask("run 1", expected=3)["error"] == "EndpointServerError"
        assert balance(almoner).spent == total_amount(instalments(almoner))
        before = list(server.prompts)
        assert almoner.ask("run 1")["texts"] == 6
        assert balance(almoner).spent == total_amount(instalments(almoner))
        published(almoner)
        assert server.prompts[:4] == before
        assert server.prompts[4] == before[3]  # and not those that were answered
        assert len(server.seen) == 8
        assert ["Write a text about " in prompt for prompt in server.prompts] == [False] + [True] * 7
        assert server.heard([SECRET]) == []
        assert made
        assert set(made) == {server.address}  # and nobody else could hear anything
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert int(record["released"]["keywords_released"]) > 0


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"epsilon": 1e-9}, "KeywordBudgetTooSmall"),
        ({"epsilon": 1e-9, "parameters": PUBLIC}, "NoiseInvalid"),
        ({"parameters": PARAMETERS | {"embedder": "nobody"}}, "UnknownModel"),
        ({"parameters": PARAMETERS | {"samples": 2}}, "LabelWithoutSample"),
        ({"parameters": PARAMETERS | {"features": 0}}, "FileInvalid"),
        ({"parameters": PARAMETERS | {"vocabulary": {"method": "public", "file": "none.json"}}}, "WordsUnreadable"),
        ({"kind": "summaries"}, "UnknownSystem"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(
    almoner: Almoner, changes: dict[str, Any], refusal: str
) -> None:
    almoner.ingested()
    told = almoner.type(f"release request {almoner.request_file(**SEEDED | changes)} --json", expected=None)
    assert told.code in (1, 2)
    assert told.json["error"] == refusal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "paid", "lost"),
    [
        ("among facets", 1, False),
        ("after the first result is kept", 1, False),
        ("while the second result is drawn", 2, True),
        ("after the second result is kept", 2, False),
        ("after draft", 2, False),
    ],
)
def test_a_killed_run_goes_on_and_pays_for_nothing_twice(almoner: Almoner, point: str, paid: int, lost: bool) -> None:
    """The vocabulary is the first mechanism, the sketches are the second."""
    approved(almoner)
    killed("run 1", point)
    goes_on(almoner, paid, lost=lost)
    published(almoner)
