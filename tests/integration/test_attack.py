"""`almoner attack`: a configuration on a public twin, beside what has no privacy; nobody governed is touched."""

import json
from typing import Any

import pytest

import flows.attacks.public_twin
from flows.attacks.result_store import results_for
from tasks import attack as attack_tasks
from tasks.attack import Tools
from tasks.attacks.registry import ATTACKS
from tasks.values.results import MetricResult
from tests.integration.canary import leaks, text_of
from tests.integration.story import REQUEST, Almoner
from tests.tiny_model import load_tiny
from tests.unit.tasks.attacks.people import WordEmbedder, random_texts, uniform_score

CONCERNS = ("flows/attacks", "tasks/attacks")

TWIN = [{"id": f"p{n}", "text": text} for n, text in enumerate(random_texts(16, 8, 1))]
RUN = "attack run 1 --on plain --members 4 --canaries 1 --copies 2"


@pytest.fixture
def twin(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Almoner:
    """A home with a request on governed data, and a public corpus."""
    monkeypatch.setattr(flows.attacks.public_twin, "load", load_tiny)
    monkeypatch.setattr(
        flows.attacks.public_twin, "tools_at_hand", lambda model: Tools(uniform_score, WordEmbedder(), None)
    )

    def make() -> None:
        almoner.submitted()
        almoner.type("dataset register plain --public --epsilon 8 --delta 1e-6")
        almoner.type(f"dataset ingest plain {almoner.notes_file('twin.jsonl', TWIN)}")

    almoner.brought("a request and a public twin", make)
    return almoner


def budgets(almoner: Almoner) -> list[Any]:
    return [almoner.ask(f"budget show {name}") for name in ("clinic", "plain")]


def test_a_request_is_attacked_on_its_twin(twin: Almoner) -> None:
    """What a steward sees: every attack three times, each figure public, and the worst release found out."""
    before, body = budgets(twin), twin.ask("release show 1")["canonical"]
    assert results_for(twin.home, body) == []
    found = twin.ask(RUN)
    assert found["finished"] is True
    assert (found["members"], found["nonmembers"], found["canaries"], found["request"]) == (4, 11, 1, 1)
    assert [(run["name"], run["texts"]) for run in found["runs"]] == [("request", 3), ("non_private", 5), ("copy", 5)]
    for run in found["runs"]:
        results = [MetricResult.from_json(each) for each in run["results"]]
        assert [result.name for result in results] == list(ATTACKS)
        assert {result.exposure for result in results} == {"public"}
    copy = {each["name"]: each["values"] for each in found["runs"][2]["results"]}
    assert copy["membership_overlap"]["auc"] == copy["membership_embedding"]["auc"] == "1.0000"
    assert copy["canary_exposure"]["planted_appearing"] == 1
    assert copy["replay"]["near_copies"] == 4

    assert budgets(twin) == before
    assert twin.state() == "submitted"
    assert not list(twin.home.scratch.iterdir())
    (link,) = twin.ask("audit log --kind attack")
    assert link["dataset"] == "plain"
    assert link["details"][0]["configuration"] == found["configuration_digest"]
    assert twin.ask("attack list") == results_for(twin.home, body) == [found]
    assert results_for(twin.home, body | {"epsilon": "5"}) == []

    kept = text_of(twin.home.root / "attacks")
    assert TWIN[0]["text"] in kept
    assert not leaks(kept)


def test_governed_data_are_refused_with_the_way(twin: Almoner) -> None:
    for line in ("attack run 1", "attack run 1 --on clinic"):
        refused = twin.ask(line, expected=1)
        assert refused["error"] == "TwinNotPublic"
        assert "--on NAME" in refused["advice"]
    assert not (twin.home.root / "attacks").exists()
    twin.type("dataset register tiny --public --epsilon 8 --delta 1e-6")
    twin.type(f"dataset ingest tiny {twin.notes_file('tiny.jsonl', [{'id': 'a', 'text': 'all there is'}])}")
    assert twin.ask("attack run 1 --on tiny", expected=2)["error"] == "TwinTooSmall"


@pytest.mark.slow
def test_an_interrupted_attack_goes_on(twin: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the second release: the first is kept, and so is who was in."""
    honest = attack_tasks.release
    made: list[str] = []

    def watched(quote: Any, corpus: Any, model: Any, key: bytes, what: str) -> list[str]:
        made.append(what)
        if made == ["request", "non_private"]:
            raise KeyboardInterrupt
        return honest(quote, corpus, model, key, what)

    monkeypatch.setattr(flows.attacks.public_twin, "release", watched)
    twin.type(RUN, expected=130)
    (folder,) = (twin.home.root / "attacks").iterdir()
    stage, texts = (folder / "stage.json").read_bytes(), (folder / "texts-request.json").read_bytes()
    assert "without privacy" in twin.type(RUN).out
    assert made == ["request", "non_private", "non_private"]
    assert ((folder / "stage.json").read_bytes(), (folder / "texts-request.json").read_bytes()) == (stage, texts)
    assert twin.ask(RUN)["finished"]
    assert len(made) == 3

    (folder / "result.json").write_text("{")
    assert twin.ask(RUN, expected=3)["error"] == "AttackUnreadable"
    assert twin.ask(RUN.replace("--canaries 1", "--canaries 2 --anew"))["canaries"] == 2
    assert made[3:] == ["request", "non_private"]
    assert (folder / "stage.json").read_bytes() != stage


def test_the_model_is_read_once(twin: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """For both releases and for the attacker's tools; again only where the attacker reads in another precision."""
    read: list[str] = []

    def watched(name: str, device: str, precision: str = "float32") -> Any:
        read.append(precision)
        return load_tiny(name, device)

    monkeypatch.setattr(flows.attacks.public_twin, "load", watched)
    twin.ask(RUN)
    assert read == ["float32"]
    read.clear()
    coarse = REQUEST | {"dataset": "plain", "parameters": REQUEST["parameters"] | {"precision": "bfloat16"}}
    twin.ask(f"attack run {twin.write('coarse.yaml', coarse)} --members 4 --canaries 1")
    assert read == ["bfloat16", "float32"]


def test_a_request_file_and_the_reference_itself(twin: Almoner) -> None:
    """A file need not be submitted; and of a request without protection there is no reference beside it."""
    written = REQUEST | {"dataset": "plain", "mechanism": "non_private"}
    file = twin.write("plain.yaml", {k: v for k, v in written.items() if k not in ("epsilon", "delta")})
    found = json.loads(twin.type(f"attack run {file} --members 4 --canaries 1 --json").out)
    assert [run["name"] for run in found["runs"]] == ["request", "copy"]
    assert found["request"] is None


def test_labels_reach_the_twin_and_its_canaries(twin: Almoner) -> None:
    """The twin keeps the labels, so planted texts have some too."""
    twin.type("dataset register wards --public --unit id --epsilon 8 --delta 1e-6")
    notes = [{"id": f"w{number}", "text": f"Note {number}.", "ward": "ab"[number % 2]} for number in range(40)]
    twin.type(f"dataset ingest wards {twin.notes_file('wards.jsonl', notes)} --label-field ward")
    labels = {"labels": ["a", "b"]}
    asked = REQUEST | {"dataset": "wards", "parameters": REQUEST["parameters"] | {"samples": 6} | labels}
    found = twin.ask(f"attack run {twin.write('labelled.yaml', asked)} --on wards --members 4 --canaries 2 --copies 2")
    assert [(run["name"], run["texts"]) for run in found["runs"]] == [("request", 6), ("non_private", 6), ("copy", 6)]
