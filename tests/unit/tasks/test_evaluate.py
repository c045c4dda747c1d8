"""What the task loads, and how often it reads a text."""

from types import SimpleNamespace
from typing import Any

import pytest

from tasks import evaluate
from tasks.evaluate import evaluate_texts, require_tools
from tasks.evaluation.registry import METRICS
from tasks.inference.catalogue.registry import ModelNotPulled
from tests.tiny_embedder import Letters
from tests.unit.tasks.evaluation.subjects import texts


class Tools:
    """In place of the real model's and embedder's loaders; counts."""

    def __init__(self) -> None:
        self.scored: list[str] = []
        self.embedder = Letters()
        self.loaded = 0

    def score(self, model: Any, given: list[str], progress: Any) -> list[tuple[float, int]]:
        self.scored += given
        return [(-1.0, 1) for _ in given]

    def load(self, name: str, **_: Any) -> Letters:
        self.loaded += 1
        self.name = name
        return self.embedder


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    made = Tools()
    monkeypatch.setattr(evaluate, "log_likelihoods", made.score)
    monkeypatch.setattr(evaluate, "load_embedder", made.load)
    return made


def run(*names: str, documents: tuple[str, ...] = ("b", "c"), **options: Any) -> Any:
    corpus = SimpleNamespace(texts=lambda: iter(documents), has_labels=False)
    model: Any = SimpleNamespace(device="cpu")
    given: Any = corpus
    return evaluate_texts([METRICS[name] for name in names], texts("a", "b"), model, given, **options)


def test_the_embedder_is_loaded_only_where_it_is_needed(tools: Tools) -> None:
    run("length", "perplexity")
    assert tools.loaded == 0
    run("length", "proximity", "self_similarity", "topics")
    assert tools.loaded == 1
    assert sorted(tools.embedder.asked) == ["a", "b", "c"]


def test_metrics_are_computed_by_the_embedder_that_is_named(tools: Tools) -> None:
    run("proximity")
    assert tools.name == "all-minilm-l6-v2"
    run("mauve", embedder_name="all-mpnet-base-v2")
    assert tools.name == "all-mpnet-base-v2"


def test_the_embedder_that_is_named_must_be_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(evaluate, "require_pulled", lambda *named: asked.append(named))
    require_tools([METRICS["length"]], "all-mpnet-base-v2")
    assert asked == []
    require_tools([METRICS["length"], METRICS["mauve"]], "all-mpnet-base-v2")
    assert asked == [("all-mpnet-base-v2", "embedder")]


def test_a_text_is_scored_once_for_all_metrics(tools: Tools) -> None:
    results = run("perplexity", "perplexity_gap")
    assert tools.scored == ["a", "b", "c"]
    assert [result.name for result in results] == ["perplexity", "perplexity_gap"]


def test_what_is_missing_is_told_before_anything_is_spent(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path))
    require_tools([METRICS["length"]])
    with pytest.raises(ModelNotPulled):
        require_tools([METRICS["length"], METRICS["self_similarity"]])
