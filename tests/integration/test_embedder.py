"""Metrics that need an embedder, from the request to the figures after the decision."""

from pathlib import Path

import pytest

from tasks.evaluation.registry import names
from tests.integration.story import NOTES, REQUEST, Almoner

CONCERNS = ("flows/releases", "tasks/evaluation", "tasks/inference/embeddings")

EVALUATION = [*REQUEST["evaluation"], "self_similarity"]
SECTIONS = sorted({note["section"] for note in NOTES})[:2]


def test_a_request_may_ask_how_alike_the_texts_are(almoner: Almoner) -> None:
    almoner.produced(evaluation=EVALUATION)
    gate = almoner.type('approve 1 --gate publish --reason "names nobody"')
    assert "mean cosine of two texts" in gate.err


def test_without_the_embedder_a_run_spends_nothing(
    almoner: Almoner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.approved(evaluation=EVALUATION)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("ALMONER_MODELS", str(tmp_path / "none"))
        told = almoner.ask("run 1", expected=3)
    assert told["error"] == "ModelNotPulled"
    assert "almoner models pull all-minilm-l6-v2" in told["advice"]
    assert almoner.ask("budget show clinic")["rho_spent"] == "0"
    almoner.type("run 1")


def test_an_embedder_that_was_not_pulled_is_refused_when_priced(almoner: Almoner) -> None:
    almoner.ingested()
    written = almoner.request_file(evaluation=EVALUATION, evaluation_embedder="all-mpnet-base-v2")
    refused = almoner.ask(f"release request {written}", expected=3)
    assert refused["error"] == "ModelNotPulled"
    assert "almoner models pull all-mpnet-base-v2" in refused["advice"]
    assert almoner.ask("release list") == []
    almoner.type(f"release request {almoner.request_file(evaluation=EVALUATION)}")
    assert "embedder of metrics" in almoner.type("approve 1 --gate spend --reason fits").err


def test_figures_by_an_embedder_that_is_missing_are_not_looked_at(
    almoner: Almoner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.produced()
    almoner.type('reject 1 --gate publish --reason "it reads badly"')
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "none"))
    refused = almoner.ask("evaluate 1 --internal --embedder all-mpnet-base-v2", expected=3)
    assert refused["error"] == "ModelNotPulled"
    assert almoner.ask("evaluate 1 --internal --embedder tiny", expected=2)["error"] == "ModelKindMismatch"


@pytest.mark.slow
def test_after_the_decision_labels_of_both_sides_are_compared(almoner: Almoner) -> None:
    almoner.registered()
    almoner.type(f"dataset ingest clinic {almoner.notes_file()} --label-field section")
    labelled = REQUEST["parameters"] | {"samples": 4, "max_new_tokens": 6, "labels": SECTIONS}
    almoner.type(f"release request {almoner.request_file(kind='demonstrations', parameters=labelled)}")
    almoner.go_on_to("produced")
    almoner.type('reject 1 --gate publish --reason "it reads badly"')
    metrics = {metric["name"]: metric["values"] for metric in almoner.ask("evaluate 1 --internal")["metrics"]}
    assert set(metrics) == set(names("internal"))
    found = metrics["train_on_synthetic"]
    assert (found["labels"], found["trained_on"]) == (2, 4)
    assert found["tested_on"] == sum(note["section"] in SECTIONS for note in NOTES) // 2 > 1
    assert found["synthetic_accuracy"] is not None
    assert metrics["proximity"]["documents"] == len(NOTES)
