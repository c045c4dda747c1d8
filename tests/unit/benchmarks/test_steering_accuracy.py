"""The accuracy of what is learned from texts of a vector: every kind has its controls, and a control is one."""

from argparse import Namespace
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tasks.inference.engine.engine import Engine
from tests.support import shared_data
from tests.tiny_model import tiny_model

SCRIPTS = ("steering_vectors.accuracy",)


@pytest.fixture
def script(bench: dict[str, ModuleType]) -> ModuleType:
    return bench["steering_vectors.accuracy"]


@pytest.mark.parametrize("data", ["mts_dialog", "yelp"])
def test_the_control_has_every_unit_under_the_other_label(script: ModuleType, data: str) -> None:
    shared_data(f"{data}.jsonl")
    units, _ = script.read(data)
    control = script.swapped(units)
    assert control.texts == units.texts
    assert all(one != other for one, other in zip(units.labels, control.labels, strict=True))
    assert set(control.labels) == set(units.labels) == set(script.names(data))


def test_each_epsilon_has_both_systems_and_n_is_a_labels_units(script: ModuleType) -> None:
    cells = list(script.cells())
    for data in script.LABELS:
        shared_data(f"{data}.jsonl")
        found = {(cell.name, cell.epsilon) for cell in cells if cell.data == data}
        assert {(system, epsilon) for system in (script.STEERED, script.INK) for epsilon in ("4", "8")} < found
        assert {(script.PUBLIC, None), ("steering_vector, labels swapped", "8")} < found
        units, _ = script.read(data)
        n = script.parameters(data, script.STEERED, 64, "float32")["references"]
        assert max(Counter(units.labels).values()) < 1.2 * n
    assert script.parameters("yelp", script.INK, 64, "float32")["batches"] == 32
    chosen = [cell for cell in cells if script.is_chosen(cell, [script.PUBLIC, script.INK], ["4"])]
    assert {(cell.system, cell.epsilon) for cell in chosen} == {(script.PUBLIC, None), (script.INK, "4")}


def test_releases_have_equally_many_texts_of_each_label_and_share_what_was_read(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(script, "TOKENS", 2)
    monkeypatch.setattr(script, "REFERENCE_TOKENS", 4)
    units = script.Labelled(("good", "bad", "fine", "poor"), ("positive", "negative", "positive", "negative"))
    monkeypatch.setattr(script, "read", lambda data: (units, units))
    corpus, known = script.store(units, tmp_path), dict[str, Any]()
    engine, about = Engine(tiny_model(stops=False)), Namespace(samples=4, precision="float32")
    for cell in (script.Cell("yelp", script.PUBLIC), *(script.Cell("yelp", script.STEERED, each) for each in "48")):
        made = script.release(engine, corpus, cell, about, known)
        assert Counter(label for _, label in made["texts"]) == {"positive": 2, "negative": 2}
    assert set(known) == {"yelp False", "yelp False origin"}


def test_differences_are_from_the_public_model_and_from_ink_at_the_same_epsilon(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = script.Labelled(("good",) * 30 + ("bad",) * 30, ("positive",) * 30 + ("negative",) * 30)
    monkeypatch.setattr(script, "LABELS", {"yelp": script.LABELS["yelp"]})
    monkeypatch.setattr(script, "read", lambda data: (tested, tested))
    monkeypatch.setattr(script, "cut", lambda text, tokenizer: text)
    monkeypatch.setattr(script, "real_texts", lambda private, tokenizer, number: tested)
    monkeypatch.setattr(
        "benchmarks.utility.mauve.embedder",
        lambda: lambda texts: np.array([[1.0, 0.0] if text == "good" else [0.0, 1.0] for text in texts]),
    )
    right = [["good", "positive"], ["bad", "negative"]] * 8
    wrong = [["bad", "positive"], ["good", "negative"]] * 8
    rows = [
        {"cell": cell, "texts": texts, "released": {}, "seconds": 1.0}
        for cell, texts in (
            ({"data": "yelp", "system": script.PUBLIC}, wrong),
            ({"data": "yelp", "system": script.STEERED, "epsilon": "4"}, right),
            ({"data": "yelp", "system": script.INK, "epsilon": "4"}, right),
        )
    ]
    public, vector, ink, real = script.measure(rows, None)
    assert (public["accuracy"][0], vector["accuracy"][0], ink["accuracy"][0], real["accuracy"][0]) == (0, 1, 1, 1)
    assert vector["less_public"][0] == 1
    assert vector["less_ink"][0] == 0
    assert "less_ink" not in ink
    assert not {"less_public", "less_ink"} & (public.keys() | real.keys())
    assert len(list(script.table([public, vector, ink, real]))) == 6
