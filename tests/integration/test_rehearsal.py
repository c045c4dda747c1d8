"""`almoner rehearse`: a request on public data, beside both references; nobody governed is read or charged."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

import flows.rehearsals.rehearse
from models_db.home import ProjectHome
from models_db.values.requests import ReleaseRequest
from tasks.corpus.store import Corpus, open_corpus
from tasks.decoding.journal import Journal
from tasks.pricing.quote import written_request
from tests.integration.canary import leaks, text_of
from tests.integration.story import REQUEST, Almoner
from tests.integration.test_dashboard_release import client_of
from tests.tiny_embedder import Letters
from tests.tiny_model import load_tiny
from tests.unit.tasks.attacks.people import random_texts

CONCERNS = ("flows/rehearsals", "tasks/rehearsal")

TWIN = [{"id": f"p{n}", "text": text} for n, text in enumerate(random_texts(40, 8, 1))]
ASKED = REQUEST | {"parameters": REQUEST["parameters"] | {"samples": 8, "references": 2, "max_new_tokens": 6}}


def fast_models(patch: pytest.MonkeyPatch) -> None:
    """A rehearsal with models of random weights."""
    patch.setattr(flows.rehearsals.rehearse, "load", load_tiny)
    patch.setattr(flows.rehearsals.rehearse, "embedder_at_hand", lambda model: Letters())


@pytest.fixture
def home(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Almoner:
    """A home with a governed dataset, a request on it, and a public dataset."""
    fast_models(monkeypatch)

    def make() -> None:
        almoner.ingested("--population 12")
        almoner.type("dataset register plain --public --epsilon 8 --delta 1e-6")
        almoner.type(f"dataset ingest plain {almoner.notes_file('twin.jsonl', TWIN)}")
        almoner.type(f"release request {almoner.write('asked.yaml', ASKED)}")

    almoner.brought("a request and public data to rehearse on", make)
    return almoner


def budgets(almoner: Almoner) -> list[Any]:
    return [almoner.ask(f"budget show {name}") for name in ("clinic", "plain")]


def test_a_request_is_rehearsed_and_its_gate_says_so(home: Almoner) -> None:
    before = budgets(home)
    assert home.ask("release show 1")["rehearsals"] == []
    result = home.ask("rehearse 1 --on plain --texts 6")
    assert (result["texts"], result["asked"], result["people"], result["declared"]) == (6, 8, 12, 12)
    assert result["held_out"] == 10
    assert {name: len(texts) for name, texts in result["releases"].items()} == {
        "public_only": 6, "request": 6, "non_private": 6,
    }  # fmt: skip
    assert [one["metric"] for one in result["metrics"]] == ["mauve", "coverage", "perplexity_gap"]
    assert all((one["share"] is None) == (one["reason"] is not None) for one in result["metrics"])

    assert budgets(home) == before
    assert home.state() == "submitted"
    assert not list(home.home.scratch.iterdir())
    (stored,) = home.ask("release show 1")["rehearsals"]
    assert stored["result"] == {name: result[name] for name in stored["result"]}
    shown = " ".join(home.type("release show 1").out.split())
    assert "On the public twin 'plain' (6 of 8 texts, at 12 people)" in shown
    assert "Rehearsal on plain, public" in shown
    (link,) = home.ask("audit log --kind release.rehearsed")
    assert link["details"][0]["configuration"] == result["configuration"]
    client = client_of(home)
    page = client.get("/releases/1").text
    assert "On the public twin &#39;plain&#39; (6 of 8 texts, at 12 people)" in page
    assert "Rehearsal on plain, public: 6 of 8 texts, at 12 people" in page
    home.type("audit verify")


def test_no_governed_text_is_read(home: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The governed corpus is not opened, and none of its words is in what the rehearsal leaves or says."""
    opened: list[str] = []

    def watched(home: ProjectHome, uid: str) -> Corpus:
        opened.append(uid)
        return open_corpus(home, uid)

    monkeypatch.setattr(flows.rehearsals.rehearse, "open_corpus", watched)
    version = home.ask("release show 1")["canonical"]["dataset"]["uid"]
    for folder in home.home.root.rglob(f"*{version}*"):
        folder.rename(folder.with_name("elsewhere"))
    answer = home.ask("rehearse 1 --on plain --texts 6")
    assert opened == [answer["twin"]["uid"]]
    assert version not in opened
    kept = text_of(home.home.root / "rehearsals") + json.dumps(answer)
    assert sum(one["text"] in kept for one in TWIN) >= 22
    assert not leaks(kept)


def test_a_governed_dataset_is_refused(home: Almoner) -> None:
    for request in ("1", str(home.write("asked.yaml", ASKED))):
        refused = home.ask(f"rehearse {request} --on clinic", expected=1)
        assert refused["error"] == "RehearsalOnGovernedData"
        assert "--on NAME" in refused["advice"]
    assert not (home.home.root / "rehearsals").exists()
    assert home.ask("audit log --kind release.rehearsed") == []


@pytest.mark.parametrize(("texts", "most"), [(4, 8), (9, 8), (0, 8), (-3, 8)])
def test_a_number_of_texts_out_of_range_is_named(home: Almoner, texts: int, most: int) -> None:
    refused = home.ask(f"rehearse 1 --on plain --texts={texts}", expected=2)
    facts = refused["facts"]
    assert (refused["error"], facts["least"], facts["most"]) == ("TextsOutOfRange", 5, most)


def test_other_mechanisms_and_small_data_are_refused(home: Almoner) -> None:
    baseline = {name: value for name, value in ASKED.items() if name not in ("epsilon", "delta")}
    file = home.write("baseline.yaml", baseline | {"mechanism": "public_only"})
    assert home.ask(f"rehearse {file} --on plain", expected=2)["error"] == "NotRehearsed"
    assert home.ask("rehearse 7 --on plain", expected=2)["error"] == "RequestUnknown"
    assert home.ask("rehearse 1 --on nowhere", expected=2)["error"] == "DatasetUnknown"
    home.type("dataset register tiny --public --epsilon 8 --delta 1e-6")
    home.type(f"dataset ingest tiny {home.notes_file('tiny.jsonl', TWIN[:19])}")
    refused = home.ask("rehearse 1 --on tiny", expected=2)
    assert (refused["error"], refused["facts"]["units"], refused["facts"]["least"]) == ("RehearsalTwinTooSmall", 19, 20)
    assert not (home.home.root / "rehearsals").exists()


def test_a_file_is_rehearsed_before_it_is_submitted(home: Almoner) -> None:
    """What is rehearsed belongs to each request of this content, and to no changed one."""
    other = ASKED | {"epsilon": 3.0}
    home.ask(f"rehearse {home.write('other.yaml', other)} --on plain --texts 6")
    assert home.ask("release show 1")["rehearsals"] == []
    home.type(f"release request {home.write('other.yaml', other)}")
    assert len(home.ask("release show 2")["rehearsals"]) == 1
    home.type(f"release request {home.write('changed.yaml', ASKED | {'epsilon': 3.5})}")
    assert home.ask("release show 3")["rehearsals"] == []


def test_a_finished_rehearsal_is_shown_again(home: Almoner) -> None:
    first = home.ask("rehearse 1 --on plain --texts 6")
    again = home.ask("rehearse 1 --on plain --texts 6")
    assert (first["recorded"], again["recorded"]) == (True, False)
    assert {**again, "recorded": True} == first
    assert home.ask("rehearse 1 --on plain --texts 6 --anew")["recorded"]
    (stored,) = home.ask("release show 1")["rehearsals"]
    assert stored["runs"] == 2
    assert "the newest of 2" in " ".join(home.type("release show 1").out.split())


def test_an_interrupted_rehearsal_goes_on(home: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of the request's draws: finished texts and the tokens that are drawn are kept."""
    honest, steps = Journal.step, []

    def interrupted(self: Journal, armed: int, drawn: Any) -> None:
        honest(self, armed, drawn)
        steps.append(drawn)
        if len(steps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "step", interrupted)
    home.type("rehearse 1 --on plain --texts 6", expected=130)
    (folder,) = (home.home.root / "rehearsals").iterdir()
    split, public = (folder / "split.json").read_bytes(), (folder / "texts-public_only.json").read_bytes()
    result = home.ask("rehearse 1 --on plain --texts 6")
    assert result["recorded"]
    assert len(steps) == 6 + 24  # charged and public tokens of a text
    assert ((folder / "split.json").read_bytes(), (folder / "texts-public_only.json").read_bytes()) == (split, public)
    assert sorted(path.name for path in folder.iterdir()) == [
        "split.json", "texts-non_private.json", "texts-public_only.json", "texts-request.json",
    ]  # fmt: skip


def test_another_noise_is_refused(home: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rehearsal whose mechanisms are not the request's says nothing about it."""

    def doubled(body: Mapping[str, Any]) -> ReleaseRequest:
        return written_request(body).model_copy(update={"epsilon": Decimal(8)})

    monkeypatch.setattr(flows.rehearsals.rehearse, "written_request", doubled)
    assert home.ask("rehearse 1 --on plain --texts 6", expected=1)["error"] == "RehearsalDiffers"


def test_a_row_that_is_no_rehearsal_hides_nothing(home: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.workspace.workspace import open_workspace
    from models_db.services import requests

    configuration = home.ask("rehearse 1 --on plain --texts 6")["configuration"]
    workspace = open_workspace(home.home)
    with workspace.database.write() as session:
        requests.record_rehearsal(session, workspace.actor, "plain", 1, configuration, '{"format":"other"}')
    assert len(home.ask("release show 1")["rehearsals"]) == 1


@pytest.mark.slow
def test_a_request_with_labels_is_rehearsed_with_a_classifier(home: Almoner) -> None:
    """On people who carry one of the labels, as many texts of each label in every release."""
    notes = [{"id": f"q{n}", "text": text, "label": ("yes", "no", "maybe")[n % 3]}
             for n, text in enumerate(random_texts(60, 8, 2))]  # fmt: skip
    home.type("dataset register labelled --public --unit id --epsilon 8 --delta 1e-6 --population 30")
    home.type(f"dataset ingest labelled {home.notes_file('labelled.jsonl', notes)} --label-field label")
    parameters = ASKED["parameters"] | {"labels": ["yes", "no"]}
    asked = ASKED | {"kind": "demonstrations", "dataset": "labelled", "parameters": parameters}
    result = home.ask(f"rehearse {home.write('labelled.yaml', asked)} --on labelled")
    assert (result["texts"], result["held_out"], result["people"], result["declared"]) == (8, 10, 30, 30)
    assert [one["metric"] for one in result["metrics"]] == ["mauve", "coverage", "accuracy", "perplexity_gap"]
    assert {len(texts) for texts in result["releases"].values()} == {8}


def test_a_small_twin_is_said_and_has_fuller_batches(home: Almoner) -> None:
    """Of 40 people in public data 30 can be read; the texts read as many people as in the request."""
    home.type("dataset register town --unit patient_id --epsilon 8 --delta 1e-6 --population 90 --blocks 2")
    home.type(
        f"dataset ingest town {home.notes_file('town.jsonl', [{'patient_id': f't{n}', 'text': 'x'} for n in 'ab'])}"
    )
    asked = ASKED | {"dataset": "town", "parameters": ASKED["parameters"] | {"samples": 30, "references": 3}}
    file = home.write("town.yaml", asked)
    result = home.ask(f"rehearse {file} --on plain --texts 8")
    assert (result["people"], result["declared"], result["texts"], result["asked"]) == (30, 90, 8, 30)
    assert (result["units_per_text"], result["asked_units_per_text"]) == ("3.0", "3.0")
    said = " ".join(home.type(f"rehearse {file} --on plain --texts 8").out.split())
    assert "The public data has fewer people: the twin has 30 of the declared 90 people." in said


def test_without_a_declared_population_the_twin_is_as_large_as_the_batches(home: Almoner) -> None:
    """The noisy count of the request is among its mechanisms, and the same on the twin."""
    home.type("dataset register town --unit patient_id --epsilon 8 --delta 1e-6")
    home.type(f"dataset ingest town {home.notes_file('town.jsonl', [{'patient_id': 't1', 'text': 'x'}])}")
    result = home.ask(f"rehearse {home.write('town.yaml', ASKED | {'dataset': 'town'})} --on plain --texts 6")
    assert (result["people"], result["declared"]) == (16, None)
    assert len(result["releases"]["request"]) == 6


def ingest_labelled(home: Almoner, labels: list[str]) -> None:
    """Ingest a public dataset of one text a person, with these labels."""
    home.type("dataset register labelled --public --unit id --epsilon 8 --delta 1e-6 --population 30")
    notes = [
        {"id": f"q{number}", "text": text, "label": label}
        for number, (text, label) in enumerate(zip(random_texts(len(labels), 8, 2), labels, strict=True))
    ]
    home.type(f"dataset ingest labelled {home.notes_file('labelled.jsonl', notes)} --label-field label")


def watched_releases(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The parameters of each release that a rehearsal makes, by its name."""
    seen: dict[str, Any] = {}
    honest = flows.rehearsals.rehearse.release

    def noting(quoted: Any, corpus: Any, model: Any, key: Any, what: str, *more: Any) -> list[str]:
        seen[what] = quoted.parameters
        return honest(quoted, corpus, model, key, what, *more)

    patch.setattr(flows.rehearsals.rehearse, "release", noting)
    return seen


@pytest.mark.slow
def test_every_release_has_as_many_texts_of_each_label(home: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin has all 30 people who are not held out, so at least 10 of each label, whichever these are."""
    ingest_labelled(home, ["half" if number % 2 else "rest" for number in range(40)])
    seen = watched_releases(monkeypatch)
    parameters = ASKED["parameters"] | {"labels": ["half", "rest"]}
    asked = ASKED | {"dataset": "labelled", "kind": "demonstrations", "parameters": parameters}
    result = home.ask(f"rehearse {home.write('labelled.yaml', asked)} --on labelled --texts 6")
    assert seen["request"].labels == seen["public_only"].labels == ("half", "rest")
    assert "accuracy" in {one["metric"] for one in result["metrics"]}
    assert result["left_out"] == []


def test_a_label_with_fewer_people_than_texts_is_named(home: Almoner) -> None:
    """Without privacy each text is of one document; where a label has too few there is no classifier."""
    ingest_labelled(home, ["rare"] + ["rest"] * 39)
    parameters = ASKED["parameters"] | {"labels": ["rare", "rest"]}
    asked = ASKED | {"dataset": "labelled", "kind": "demonstrations", "parameters": parameters}
    result = home.ask(f"rehearse {home.write('labelled.yaml', asked)} --on labelled --texts 8")
    assert "accuracy" not in {one["metric"] for one in result["metrics"]}
    assert result["left_out"] == [
        "accuracy of a classifier: the twin has fewer people of a label than texts are compared"
    ]
