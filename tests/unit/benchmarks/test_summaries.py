"""The summaries benchmark splits, scores, prices and compares as it says; on the tiny model and planted data."""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tasks.adapters.training.dataset import read_training_data
from tasks.inference.engine import hidden_states
from tasks.inference.engine.engine import Engine
from tasks.planning.sentence_completion_parameters import COMPLETION_TOKENS
from tests.tiny_model import tiny_model

CONCERNS = ("benchmarks/summaries",)

SCRIPTS = (
    "summaries.cells",
    "summaries.data",
    "summaries.figures",
    "summaries.scores",
    "summaries.systems",
)
PRODUCTS = tuple(f"P{number}" for number in range(12))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of data sets in the format of the real ones."""
    lines = [
        {"id": f"{entity}-{number}", "text": f"review {number} of {entity}", "entity": entity, "category": "cloth",
         "stars": 5, "summaries": [f"{way} summary of {entity}" for way in ("a", "b", "c")]}
        for entity in PRODUCTS for number in range(3)
    ]  # fmt: skip
    answers = [{"id": f"d{number}", "text": "?", "response": "One two three four. " * number} for number in range(6)]
    for name, content in (("fewsum_amazon_reviews", lines), ("dolly_prompts", answers)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in content))
    return tmp_path


def is_public(entity: str) -> bool:
    return int(hashlib.sha256(entity.encode()).hexdigest()[0], 16) < 8


def test_halves_are_those_of_the_digest(bench: dict[str, ModuleType], data: Path) -> None:
    halves = {half: {each.id for each in bench["summaries.data"].products(data, half)} for half in ("public", "test")}
    assert halves["public"] == {entity for entity in PRODUCTS if is_public(entity)}
    assert halves["test"] == set(PRODUCTS) - halves["public"]
    assert halves["public"]
    assert halves["test"]


def test_adapters_learn_from_no_product_that_is_tested(bench: dict[str, ModuleType], data: Path) -> None:
    path = bench["summaries.data"].training_file(data, data / "examples.jsonl", answers=2)
    found = read_training_data(path)
    learned = {example.group for example in found.examples}
    assert learned == {entity for entity in PRODUCTS if is_public(entity)} | {"d3", "d4"}
    written = path.read_text()
    assert not any(f"of {entity}" + end in written for entity in PRODUCTS if not is_public(entity) for end in '",')
    assert len([each for each in found.examples if each.group == next(filter(is_public, PRODUCTS))]) == 3


def test_rouge_is_shared_words_over_all(bench: dict[str, ModuleType]) -> None:
    """'the cat sat down' and 'down sat the cat': four shared words; 'the cat' is the longest common subsequence."""
    rouge = bench["summaries.scores"].rouge_f1
    assert rouge("the cat sat down", "down sat the cat") == (1.0, 0.5)
    assert rouge("The cat, the dog.", "the cat") == pytest.approx((2 * 2 / 6, 2 * 2 / 6))
    assert rouge("", "the cat") == (0.0, 0.0)


def test_scores_are_means_over_the_references(bench: dict[str, ModuleType]) -> None:
    class Letters:
        """Texts are equal or not: one piece, of one of two directions."""

        name = "letters"

        def pieces(self, texts: list[str]) -> list[tuple[Any, Any]]:
            import numpy as np

            rows = [np.array([[1.0, 0.0] if "cat" in text else [0.0, 1.0]], np.float32) for text in texts]
            return [(row, np.array([True])) for row in rows]

    keeping = bench["summaries.scores"].KeepingPieces(Letters())
    found = bench["summaries.scores"].scores("the cat [TYPE]", ["the cat", "a dog"], keeping)
    assert found == {"rouge_1": 0.4, "rouge_l": 0.4, "bert_score": 0.5, "leak": 1.0}
    assert set(keeping.kept) == {"the cat", "a dog"}


def asked(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"only": None, "epsilons": None, "trials": 3, "set": [], **given})


def test_parts_share_all_cells(bench: dict[str, ModuleType]) -> None:
    run = bench["summaries.cells"]
    every = run.cells(asked())
    parts = [run.part(every, f"{number}/3") for number in (1, 2, 3)]
    names = sorted((cell.system.name, str(cell.epsilon), cell.trial) for part in parts for cell in part)
    assert names == sorted((cell.system.name, str(cell.epsilon), cell.trial) for cell in every)
    assert (
        len(set(names))
        == len(names)
        == sum(1 if epsilon == run.NO_NOISE else 3 for each in run.SYSTEMS_COMPARED for epsilon in each.epsilons)
    )
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_cell_is_known_by_its_parameters(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    run = bench["summaries.cells"]
    cell = next(each for each in run.cells(asked(only=["ink"])))
    other = replace(cell, system=replace(cell.system, parameters={**cell.system.parameters, "temperature": "9"}))
    run.append(tmp_path / "out.jsonl", {"cell": cell.key, "texts": []})
    keys = [line["cell"] for line in run.there(tmp_path / "out.jsonl")]
    assert cell.key in keys
    assert other.key not in keys
    assert replace(cell, trial=2).key not in keys


def test_documents_are_read_once(bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []

    def read(engine: object, private: object, references: object, sizes: object) -> Iterator[int]:
        reads.append(references)
        return iter([1, 2])

    monkeypatch.setattr(hidden_states, "last_hidden", read)
    with bench["summaries.cells"].documents_read_once():
        once = [list(hidden_states.last_hidden(None, ["p"], [[(1, 2)]], "s")) for _ in range(3)]  # type: ignore[arg-type]
        list(hidden_states.last_hidden(None, ["p"], [[(1, 3)]], "s"))  # type: ignore[arg-type]
    assert once == [[1, 2]] * 3
    assert len(reads) == 2
    assert hidden_states.last_hidden is read


@pytest.mark.parametrize("name", ["token_level", "token_level_paper", "ink", "public_only", "non_private"])
def test_a_cell_is_one_text_a_product(bench: dict[str, ModuleType], data: Path, tmp_path: Path, name: str) -> None:
    run, some = bench["summaries.cells"], bench["summaries.data"].products(data, "test")[:2]
    system = bench["summaries.systems"].BY_NAME[name]
    small = {"max_new_tokens": 4, "max_reference_tokens": 24}
    cell = run.Cell(replace(system, parameters={**system.parameters, **small}), system.epsilons[-1], 0)
    corpus = bench["summaries.data"].store(some, tmp_path / "corpus")
    made = run.generate(Engine(tiny_model(stops=False)), corpus, some, cell)
    assert [text.label for text in made.texts] == [product.id for product in some]
    public = 0 if name == "token_level_paper" else COMPLETION_TOKENS
    assert all(4 <= text.tokens <= 4 + public for text in made.texts)


def line(system: str, epsilon: str | None, trial: int, scores: dict[str, float]) -> dict[str, Any]:
    texts = [
        {"group": group, "text": f"text <of> {group}", "rouge_1": value, "rouge_l": value, "bert_score": value,
         "leak": 0.0} for group, value in scores.items()
    ]  # fmt: skip
    return {"cell": {"system": system, "epsilon": epsilon, "trial": trial}, "texts": texts}


LINES = [
    line("one_shot", "10", 0, {"A": 0.2, "B": 0.4}),
    line("one_shot", "10", 1, {"A": 0.4, "B": 0.4}),
    line("one_shot_paper", "10", 0, {"A": 0.1, "B": 0.1}),
    line("public_only", None, 0, {"A": 0.0, "B": 0.1}),
]


def test_a_product_counts_with_the_mean_of_its_trials(bench: dict[str, ModuleType]) -> None:
    figures = bench["summaries.figures"]
    results = figures.gathered(LINES)
    middle, low, high = figures.shown(results, ("one_shot", "10"), "rouge_l")
    assert middle == pytest.approx(0.35)
    assert (low, high) == pytest.approx((0.3, 0.4))
    assert figures.shown(results, ("one_shot", "20"), "rouge_l") is None


@pytest.mark.slow
def test_the_figure_comes_from_the_lines_alone(
    bench: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in LINES))
    given = ["summaries_figures.py", "--results", str(tmp_path / "results.jsonl"), "--to", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", given)
    bench["summaries.figures"].main()
    first = (tmp_path / "summaries_epsilon.svg").read_bytes()
    bench["summaries.figures"].main()
    assert (tmp_path / "summaries_epsilon.svg").read_bytes() == first
