"""Steering vectors from the request to the verified bundle and its further texts: charged once, killed and gone on."""

import json
import shutil
from typing import Any

import pytest

from models_db.values.amounts import Amount, total_amount
from tasks.common.files import encode_json
from tasks.corpus.store import Corpus
from tasks.prompted_generation.steering import run as steering_run
from tasks.publishing import checks
from tasks.publishing.open_bundle import OpenedBundle
from tasks.release.record import ReleaseRecord
from tests.integration.canary import leaks, text_of
from tests.integration.killing import balance, goes_on, instalments, killed
from tests.integration.story import NOTES, Almoner

CONCERNS = ("tasks/inference/engine", "tasks/inference/network", "tasks/prompted_generation/steering")

PARAMETERS: dict[str, Any] = {
    "samples": 3, "references": 12, "max_new_tokens": 10, "top_k": 50, "max_reference_tokens": 40, "public_draws": 4,
}  # fmt: skip
STEERED: dict[str, Any] = {
    "mechanism": "steering_vector",
    "parameters": PARAMETERS,
    "prompt": {"description": "Short notes that a doctor writes.", "system": "You write notes."},
    "evaluation": ["length", "distinct"],
}
LABELS = [sorted({note["section"] for note in NOTES})[0], "horoscope"]
LABELLED = STEERED | {"kind": "demonstrations", "parameters": PARAMETERS | {"samples": 5, "labels": LABELS}}


def approved(almoner: Almoner, asked: dict[str, Any] = STEERED) -> Any:
    price = almoner.ask(f"release request {almoner.request_file(**asked)}")["price"]
    almoner.type('approve 1 --gate spend --reason "a first look"')
    return price


def published(almoner: Almoner, number: int = 1) -> Any:
    almoner.type(f'approve {number} --gate publish --reason "names nobody"')
    almoner.type(f"publish {number} --to {almoner.folder / 'out'}")
    bundle = almoner.folder / "out" / f"clinic-release-{number}"
    report = almoner.ask(f"verify-release {bundle}")
    assert report["holds"] is True, report
    return bundle


def rows_of(bundle: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (bundle / "texts.jsonl").read_text().splitlines()]


def fails(bundle: Any, clear: str | None) -> bool:
    """Whether a record that says so many vectors are clear of noise is refused, whoever has signed it."""
    record = json.loads((bundle / "release.json").read_text())
    record["released"] = {} if clear is None else {"vectors_clear_of_noise": clear}
    forged = OpenedBundle(bundle)
    forged.__dict__["record"] = ReleaseRecord.from_bytes(encode_json(record))
    try:
        checks.record(forged)
    except checks.CheckFailed:
        return True
    return False


def spent_once(almoner: Almoner, price: Any) -> Amount:
    found = balance(almoner)
    assert found.spent.rho_text == price["rho"]
    assert found.held == Amount()
    return found.spent


def test_a_corpus_and_more_texts_at_no_charge_without_it(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.ingested()
    price = approved(almoner)
    assert price["facts"]["units of a label n"] == "12"
    done = almoner.type("run 1")
    spent = spent_once(almoner, price)
    bundle = published(almoner)
    assert len(rows_of(bundle)) == 3
    record = json.loads((bundle / "release.json").read_text())
    assert [event["mechanism"] for event in record["events"]] == ["noisy_mean"]
    assert record["released"].keys() == {"vectors_clear_of_noise"}
    card = " ".join((bundle / "README.md").read_text().split())
    assert "wrote with the released vector added to its hidden states" in card
    assert "Write another." not in card  # a template for rows with private texts
    assert leaks(text_of(bundle) + done.out + done.err) == []

    asked = almoner.ask("release extend 1 --samples 7 --dry-run")
    assert (asked["price"]["rho"], asked["price"]["delta_fail"]) == ("0", "0")
    almoner.type("release extend 1 --samples 7")
    almoner.type('approve 2 --gate spend --reason "more of the same"')
    shutil.rmtree(almoner.home.corpora)  # whoever reads a note now, fails
    monkeypatch.setattr(Corpus, "each", None)
    steered: list[Any] = []
    vectors_of = steering_run.vectors_of
    monkeypatch.setattr(steering_run, "vectors_of", lambda *given: steered.append(vectors_of(*given)) or steered[-1])
    assert almoner.ask("run 2")["texts"] == 7
    assert balance(almoner).spent == spent
    assert len(steered) == 1
    assert bool(steered[0].any()) is (record["released"]["vectors_clear_of_noise"] == "1")
    child = published(almoner, 2)
    assert json.loads((child / "release.json").read_text())["claim"] == record["claim"]


@pytest.mark.slow
def test_each_label_has_a_vector_and_all_cost_what_one_costs(almoner: Almoner) -> None:
    almoner.registered()
    almoner.type(f"dataset ingest clinic {almoner.notes_file()} --label-field section")
    price = approved(almoner, LABELLED)
    almoner.type("run 1")
    spent_once(almoner, price)
    bundle = published(almoner)
    assert [row["label"] for row in rows_of(bundle)] == [LABELS[0]] * 3 + [LABELS[1]] * 2
    assert {claimed: fails(bundle, claimed) for claimed in ("0", "2", "3", "-1", "two", None)} == {
        "0": False, "2": False, "3": True, "-1": True, "two": True, None: True,
    }  # fmt: skip
    (plan,) = instalments(almoner)
    assert plan == balance(almoner).spent


def test_a_completion_with_a_selection_of_finished_texts(almoner: Almoner) -> None:
    """What other systems that render the request's prompt can do."""
    almoner.ingested()
    asked = STEERED | {
        "prompt": {"form": "completion", "description": "Short notes that a doctor writes.", "examples": ["A note."]},
        "parameters": PARAMETERS | {"samples": 4, "complete_sentence": 3},
        "selection": {"keep": 2, "criteria": ["duplicates"]},
    }
    price = approved(almoner, asked)
    almoner.type("run 1")
    spent_once(almoner, price)
    bundle = published(almoner)
    assert len(rows_of(bundle)) <= 2
    record = json.loads((bundle / "release.json").read_text())
    assert {"vectors_clear_of_noise", "completion_tokens_per_text"} <= record["released"].keys()
    assert "wrote with the released vector" in " ".join((bundle / "README.md").read_text().split())


def test_a_vector_of_another_model_is_refused_before_anything_happens(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.ingested()
    approved(almoner)
    almoner.type("run 1")
    almoner.type("release extend 1 --samples 2")
    almoner.type('approve 2 --gate spend --reason "more"')
    monkeypatch.setattr(steering_run.SteeringRun, "generated", None)
    require_ready = steering_run.SteeringRun._require_ready

    def of_another(run: steering_run.SteeringRun) -> None:
        run.bench.kept["model"] = "e" * 64  # type: ignore[index, call-overload]
        require_ready(run)

    monkeypatch.setattr(steering_run.SteeringRun, "_require_ready", of_another)
    assert almoner.ask("run 2", expected=1)["error"] == "VectorOfAnotherModel"


def test_a_model_without_room_costs_nothing(almoner: Almoner) -> None:
    almoner.ingested()
    approved(almoner, STEERED | {"parameters": PARAMETERS | {"max_new_tokens": 4000}})
    assert almoner.ask("run 1", expected=2)["error"] == "ContextTooLong"
    assert (balance(almoner).spent, balance(almoner).held) == (Amount(), Amount())


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"epsilon": 1e-4}, "NoiseInvalid"),
        ({"parameters": PARAMETERS | {"depth": 1.5}}, "FileInvalid"),
        ({"parameters": PARAMETERS | {"depth": 0}}, "FileInvalid"),
        ({"parameters": PARAMETERS | {"clip_norm": 0}}, "FileInvalid"),
        ({"parameters": PARAMETERS | {"strength": -1}}, "FileInvalid"),
        ({"parameters": PARAMETERS | {"public_draws": 1}}, "FileInvalid"),
        ({"parameters": PARAMETERS | {"labels": ["a", "b", "c", "d"]}}, "LabelWithoutSample"),
        ({"parameters": PARAMETERS | {"samples": 1, "groups": [{"id": "a"}]}}, "GroupsUnexpected"),
        ({"kind": "summaries"}, "UnknownSystem"),
        ({"kind": "demonstrations"}, "LabelsNeeded"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(
    almoner: Almoner, changes: dict[str, Any], refusal: str
) -> None:
    almoner.ingested()
    told = almoner.type(f"release request {almoner.request_file(**STEERED | changes)} --json", expected=None)
    assert told.code in (1, 2)
    assert told.json["error"] == refusal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "paid", "lost"),
    [
        ("after the first result is kept", 0, False),
        ("among units for a vector", 1, False),
        ("while the second result is drawn", 1, True),
        ("after the second result is kept", 1, False),
        ("after draft", 1, False),
    ],
)
def test_a_killed_run_goes_on_and_buys_no_vector_twice(almoner: Almoner, point: str, paid: int, lost: bool) -> None:
    """The origin is the first result, the noisy sums are the second."""
    almoner.ingested()
    approved(almoner)
    killed("run 1", point)
    goes_on(almoner, paid, lost=lost)
    assert len(rows_of(published(almoner))) == 3
    assert total_amount(instalments(almoner)) * (1 + lost) == balance(almoner).spent
