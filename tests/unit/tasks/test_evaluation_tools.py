"""The public tools of an evaluation: the real tagger and a judge, loaded only where a metric needs them."""

import copy

from tests.refusals import refusal

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import pytest
import torch

from tasks import evaluate
from tasks.evaluate import evaluate_texts, require_tools
from tasks.evaluation.registry import METRICS
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.adopt import wrap_network
from tasks.text import public_models
from tests.tiny_model import tiny_network
from tests.unit.tasks.evaluation.subjects import texts

TEXTS = texts("Angela Merkel lives in Berlin.", "The nurse came on Monday.")


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    network, tokenizer = tiny_network(seed=11, spread=0.3)
    device = torch.device("cpu")
    return wrap_network(copy.deepcopy(network), tokenizer, name="tiny", revision="1", digest="d", device=device)


def test_entities_and_a_judge_by_the_tools_of_this_machine(model):
    entities, judge = evaluate_texts([METRICS["entities"], METRICS["judge"]], TEXTS, model)
    assert entities.values["person"] == "100.000"  # one in ten words
    assert public_models.TAGGER_DIGEST[:12] in entities.method
    assert (judge.values["planted_pairs"], judge.values["rating"]) == (16, None)
    assert "tiny 1" in judge.method


def test_a_tagger_is_not_loaded_for_a_length(model, monkeypatch):
    def refuse(*_):
        raise AssertionError("loaded")

    monkeypatch.setattr(evaluate, "load_tagger", refuse)
    (found,) = evaluate_texts([METRICS["length"]], TEXTS, model)
    assert found.values["texts"] == 2


def test_a_changed_tagger_is_found_before_anything_is_spent(monkeypatch, tmp_path):
    require_tools([METRICS["entities"]])
    monkeypatch.setattr(public_models, "_tagger_folder", lambda: tmp_path)
    require_tools([METRICS["length"]])
    with refusal("TaggerChanged"):
        require_tools([METRICS["entities"]])
