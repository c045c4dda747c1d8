"""The benchmark of drawn texts under an allocation: its corpora, its controls, and what a classifier learns."""

from collections import Counter
from types import ModuleType

import numpy as np
import pytest

from tasks.inference.engine.engine import Engine
from tests.support import shared_data
from tests.tiny_model import tiny_model

SCRIPTS = ("allocated_texts",)


@pytest.fixture
def script(bench: dict[str, ModuleType]) -> ModuleType:
    return bench["allocated_texts"]


@pytest.mark.parametrize("data", ["mts_dialog", "yelp"])
def test_no_system_reads_what_it_is_compared_with_and_shares_are_unbalanced(script: ModuleType, data: str) -> None:
    shared_data(f"{data}.jsonl")
    private, unread = script.read(data)
    assert len(private) == script.UNITS
    assert set(private.labels) == set(unread.labels) == set(script.names(data))
    wanted = script.true_allocation(data, script.SAMPLES)
    assert sum(wanted) == script.SAMPLES
    assert max(wanted) > 3 * min(wanted)


def test_a_public_release_in_proportion_has_the_true_shares_and_costs_what_its_texts_cost(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_data("yelp.jsonl")
    monkeypatch.setattr(script, "TOKENS", 2)
    engine = Engine(tiny_model(stops=False))
    made = script.release(engine, None, script.Cell("yelp", script.PUBLIC, script.PROPORTIONAL, 0, 12), "float32")
    wanted = dict(zip(script.names("yelp"), script.true_allocation("yelp", 12), strict=True))
    assert Counter(label for _, label in made["texts"]) == wanted
    assert made["clip_norm"] is None
    equal = script.release(engine, None, script.Cell("yelp", script.PUBLIC, script.EQUAL, 0, 12), "float32")
    assert set(Counter(label for _, label in equal["texts"]).values()) == {4}


def test_plain_accuracy_follows_the_shares_and_balanced_accuracy_does_not(script: ModuleType) -> None:
    points = {"a": [1.0, 0.0], "b": [0.0, 1.0]}

    def embed(texts: list[str]) -> np.ndarray:
        return np.array([points[text] for text in texts])

    made = script.Labelled(("a",) * 4 + ("b",) * 4, ("one",) * 4 + ("two",) * 4)
    # Of ten texts of the label `two`, five look like the other one.
    tested = ("a",) * 30 + ("a",) * 5 + ("b",) * 5
    found = script.accuracies([made], ("one",) * 30 + ("two",) * 10, tested, ("one", "two"), embed)
    assert found.shape == (1 + script.ROUNDS, 2)
    assert found[0] == pytest.approx([35 / 40, 0.75])
