"""The measurement of steering vectors: releases of one corpus share what was read, and its controls are controls."""

import json
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tasks.corpus.store import Corpus
from tasks.inference.engine.engine import Engine
from tasks.prompted_generation.steering.parameters import SteeringParameters
from tests.tiny_model import tiny_model

CONCERNS = ("benchmarks/steering_vectors", "tasks/prompted_generation/steering")

SCRIPTS = ("steering_vectors.releases", "utility.sampled", "utility.texts")
DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture
def module(bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = bench["steering_vectors.releases"]
    monkeypatch.setattr(module, "TOKENS", 4)
    monkeypatch.setattr(module, "REFERENCE_TOKENS", 8)
    return module


def stored(bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[Corpus, int]:
    monkeypatch.setattr(bench["utility.sampled"], "read_texts", lambda data: [f"text {n}" for n in range(9)])
    found: tuple[Corpus, int] = bench["utility.sampled"].store("yelp", folder / "yelp", 5)
    return found


def test_units_are_read_once_for_releases_that_differ_in_epsilon_or_strength(
    bench: dict[str, ModuleType], module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    corpus, units = stored(bench, monkeypatch, tmp_path)
    assert units == 5
    reads: list[Any] = []
    each = Corpus.each
    monkeypatch.setattr(Corpus, "each", lambda *given: reads.append(given) or each(*given))  # type: ignore[func-returns-value]
    known: dict[str, Any] = {}
    engine = Engine(tiny_model(stops=False))
    for cell in (
        module.Cell("yelp", module.STEERED, "4"),
        module.Cell("yelp", module.STEERED, "8", changes={"strength": "2"}),
        module.Cell("yelp", module.STEERED, "8", "mts_dialog"),
        module.Cell("yelp", module.STEERED, "8", changes={"depth": "1"}),
    ):
        texts, released = module.generate(engine, corpus, units, cell, 2, known)
        assert len(texts) == 2
        assert released.keys() == {"vectors_clear_of_noise"}
    assert len(reads) == 3
    texts, _ = module.generate(engine, corpus, units, module.Cell("yelp", module.PUBLIC), 3, known)
    assert len(texts) == 3


def test_stages_have_their_own_corpora_and_a_control_each(module: ModuleType) -> None:
    tuning, reported = list(module.tuning()), list(module.reported())
    assert not {cell.data for cell in tuning} & {cell.data for cell in reported}
    assert all(not cell.changes for cell in reported)  # the defaults, which were chosen by the tuning
    for data in module.DESCRIPTIONS:
        (control,) = [cell for cell in reported if cell.data == data and cell.units]
        assert control.units in module.DESCRIPTIONS.keys() - {data}
    assert len({(cell.data, cell.name, cell.epsilon) for cell in reported}) == len(reported)


def test_invisible_ink_is_drawn_at_the_epsilons_that_are_named_and_once_with_fewer_rows(module: ModuleType) -> None:
    cells = [cell for cell in module.reported(["4"], 2) if cell.system == module.INK]
    assert [(cell.data, cell.epsilon, dict(cell.changes)) for cell in cells] == [
        (data, "4", changes) for data in module.DESCRIPTIONS for changes in ({}, {"references": 2})
    ]
    others = [cell for cell in module.reported(["4"], 2) if cell.system != module.INK]
    assert others == [cell for cell in module.reported() if cell.system != module.INK]


def test_a_vector_is_compared_with_the_inks_of_its_epsilon_by_their_rows(module: ModuleType) -> None:
    cells = [*module.reported(), *module.reported(["4"], 2), *module.equal_time(2)]
    drawn = {number: {"cell": asdict(cell)} for number, cell in enumerate(cells) if cell.data == "yelp"}
    second = {number: each for number, each in drawn.items() if number >= len(cells) - 3}
    (vector,) = [cell for cell in module.equal_time(2) if (cell.data, cell.system) == ("yelp", module.STEERED)]
    (name, number), *others = module.inks_beside(vector, second).items()
    assert name == "fewer_rows"
    assert not others
    assert drawn[int(number)]["cell"] | {"changes": None} == asdict(module.Cell("yelp", module.INK, "4")) | {
        "changes": None
    }
    assert module.inks_beside(vector, drawn).keys() == {"ink", "fewer_rows"}
    assert module.inks_beside(module.Cell("yelp", module.STEERED, "1000"), drawn) == {}


def test_the_defaults_are_those_that_the_tuning_chose(module: ModuleType) -> None:
    lines = [json.loads(line) for line in (DOCS / "figures" / "steering.jsonl").read_text().splitlines()]
    tuned = {line["name"]: line["mauve"][0] for line in lines if line["data"] in module.TUNING}
    defaults = SteeringParameters(samples=1, references=1)
    chosen = module.Cell("agnews", module.STEERED, changes={"depth": defaults.depth, "strength": defaults.strength})
    others = [value for name, value in tuned.items() if name not in (chosen.name, "real, others")]
    assert tuned[chosen.name] >= max(others) - 0.01
