"""The ablation of the selection compares equal numbers of texts, and its control does not look at them."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

SCRIPTS = ("utility.selection",)


@pytest.fixture
def module(bench: dict[str, ModuleType]) -> ModuleType:
    return bench["utility.selection"]


def score(texts: Any) -> list[tuple[float, int]]:
    """The shorter, the likelier."""
    return [(-float(len(text)), 1) for text in texts]


def test_every_way_publishes_as_many_texts(module: ModuleType) -> None:
    texts = ["no no no no no no", "a knee", "one knee is better", "the other knee is much worse by now", "a long " * 30]
    drawn = tuple(module.Drawn(text, 5, True) for text in texts)
    releases = [module.Release(None, drawn, 1.0), module.Release(None, drawn, 1.0)]
    found = module.published(releases, "Short notes.", score, 3)
    assert {len(each.texts) for each in found.values()} == {6}
    assert {len(each.failing) for each in found.values()} == {6}
    assert sum(found["filter"].failing) == 0
    assert found["likeliest"].texts[:3] == tuple(texts[1:4])
    assert found["filter without perplexity"].texts[:3] == tuple(texts[1:4])


def test_the_control_does_not_look_at_texts(module: ModuleType) -> None:
    names = module.controls()
    one, other = (
        [module.Drawn(f"{word} {number}", 2, True) for number in range(9)] for word in ("knee", "no no no no no")
    )
    picked = [[module.choices(3)[name](drawn, "", score) for name in names] for drawn in (one, other)]
    assert picked[0] == picked[1]
    assert len({tuple(places) for places in picked[0]}) > 1
    assert all(len(set(places)) == 3 for places in picked[0])


def test_controls_are_averaged(module: ModuleType) -> None:
    assert module.averaged([[1.0, 0.0, 2.0], [3.0, 2.0, 4.0]]) == [2.0, 1.0, 3.0]


def test_controls_that_share_texts_do_not_narrow_the_interval(bench: dict[str, ModuleType]) -> None:
    module = bench["utility.selection"]
    one, other = (module.Estimate(middle, np.linspace(middle - 1, middle + 1, 201)) for middle in (2.0, 4.0))
    assert module.pooled([one, other]).shown == pytest.approx([3.0, 2.05, 3.95], abs=0.01)


def test_only_charged_releases_with_the_fewest_rows_are_selected_from(module: ModuleType) -> None:
    def release(system: str, epsilon: str | None, references: int, seconds: float) -> Any:
        cell = module.Cell("yelp", system, epsilon, 4, 48, references, "1", 100, 64, "bfloat16")
        return module.Release(cell, tuple(module.Drawn(f"{system} {n}", 2, True) for n in range(4)), seconds)

    usual, more = release("InvisibleInk, log-probability", "4", 7, 40.0), release("InvisibleInk, paper", "4", 11, 60.0)
    public = release("public only", None, 7, 8.0)
    selected, whole = module.selected_from([usual, more, public], 2)
    assert selected == [usual]
    assert whole["public only"].texts == ("public only 0", "public only 1")
    assert whole["11 rows, not selected"].texts == ("InvisibleInk, paper 0", "InvisibleInk, paper 1")
    assert (whole["public only"].seconds, whole["11 rows, not selected"].seconds) == (4.0, 30.0)


def test_releases_without_free_tokens_are_read_from_the_texts_of_the_benchmark_of_free_tokens(
    module: ModuleType, tmp_path: Path
) -> None:
    cell = {"model": "m", "data": "yelp", "draws": 48, "free_above": None, "system": "invisible_ink"}
    texts = [{"text": "a knee", "tokens": 2, "complete": True, "free_tokens": "0"}] * 3
    cells = (cell, cell | {"free_above": "0.7"}, cell | {"system": "public_only"}, cell | {"model": "n"})
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"cell": each, "texts": texts, "seconds": 1.0}) + "\n" for each in cells))
    found = module.read_releases(path, "m", 3)
    assert [(one.cell.system, one.cell.epsilon, one.cell.tokens) for one in found["yelp"]] == [
        ("InvisibleInk, log-probability", "4", 48),
        ("public only", None, 48),
    ]
    assert module.read_releases(path, "m", 4) == {}
