"""MAUVE by private rows: which releases are measured together, what a line has, and the page's table."""

from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.utility import mauve

SCRIPTS = ("reproductions.batch_size",)
PLACES = {"good": 0, "fair": 1, "poor": 2}


@pytest.fixture
def module(bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark with texts that are embedded by their first word, and cut to two words."""
    module = bench["reproductions.batch_size"]
    monkeypatch.setattr(module, "load", lambda *_: SimpleNamespace(tokenizer=None))
    monkeypatch.setattr(module, "beginning", lambda _, text, __: " ".join(text.split()[:2]))
    monkeypatch.setattr(module, "real_texts", lambda _, data, count, __: (["good text"] * count, real(3 * count)))
    monkeypatch.setattr(mauve, "embedder", lambda name: embedded)
    return module


def real(count: int) -> list[str]:
    return ["good text"] * (count - 2) + ["fair text", "poor text"]


def embedded(texts: Sequence[str]) -> Any:
    assert all(len(text.split()) == 2 for text in texts), "texts are cut before they are compared"
    return np.array([np.eye(3)[PLACES[text.split()[0]]] for text in texts])


def release(data: str, setting: str, word: str, epsilon: str | None = None, model: str = "chatty") -> dict[str, Any]:
    texts = [{"text": f"{word} text and more"}] * 20 + [{"text": "fair text and more"}, {"text": "poor text and more"}]
    made = {"completed": texts, "clip_norm": 0.5, "seconds": 1.0}
    return {"model": model, "data": data, "setting": setting, "epsilon": epsilon, **made}


def test_a_release_is_measured_beside_the_public_model_of_its_data(module: ModuleType) -> None:
    rows = [
        release("yelp", "public only", "poor"), release("yelp", "15 rows", "good", "10"),
        release("yelp", "unknown setting", "good"), release("another corpus", "3 rows", "good"),
    ]  # fmt: skip
    lines = {line["setting"]: line for line in module.measure(rows, "cpu")}
    assert list(lines) == [module.REAL, module.PUBLIC, "15 rows"]
    assert [line["rows"] for line in lines.values()] == [None, None, 15]
    assert {(line["texts"], line["real_texts"]) for line in lines.values()} == {(22, 66)}
    assert not lines[module.REAL]["more_than_public"]
    assert not lines[module.PUBLIC]["more_than_public"]
    for by in module.EMBEDDERS:
        near, far = (lines[name]["mauve"][by] for name in ("15 rows", module.PUBLIC))
        assert near[1] <= near[0] <= near[2]
        assert near[0] > far[0]
        gain = lines["15 rows"]["more_than_public"][by]
        assert gain[0] == pytest.approx(near[0] - far[0], abs=2e-4)
        assert gain[1] > 0


def test_more_rows_are_compared_with_seven(module: ModuleType) -> None:
    rows = [
        release("yelp", "public only", "poor"), release("yelp", module.TODAY, "poor", "4"),
        release("yelp", "11 rows", "good", "4"),
    ]  # fmt: skip
    lines = {line["setting"]: line for line in module.measure(rows, "cpu")}
    assert list(lines) == [module.REAL, module.PUBLIC, module.TODAY, "11 rows"]
    assert not any(lines[name]["more_than_today"] for name in (module.REAL, module.PUBLIC, module.TODAY))
    for by in module.EMBEDDERS:
        gain = lines["11 rows"]["more_than_today"][by]
        assert gain[1] > 0
        assert gain == pytest.approx(lines["11 rows"]["more_than_public"][by], abs=0.05), (
            "seven rows are like none here"
        )


def test_a_base_model_is_measured_by_itself(module: ModuleType) -> None:
    """Its releases are completions; they stand beside its own public texts, under the settings' usual names."""
    rows = [
        release("yelp", "public only", "good"), release("yelp", "11 rows", "good", "4"),
        *(release("yelp", f"{name}completion", "poor", model="base") for name in ("", "public only, ")),
        release("yelp", "completion, 11 rows", "good", "4", model="base"),
    ]  # fmt: skip
    lines = {(line["model"], line["setting"]): line for line in module.measure(rows, "cpu")}
    expected = [module.REAL, module.PUBLIC, module.TODAY, "11 rows"]
    assert [setting for model, setting in lines if model == "base"] == expected
    for by in module.EMBEDDERS:
        assert lines["base", "11 rows"]["more_than_public"][by][1] > 0
        assert lines["chatty", "11 rows"]["more_than_public"][by][0] == pytest.approx(0, abs=0.05)


def test_the_table_tells_rows_from_controls(bench: dict[str, ModuleType]) -> None:
    module = bench["reproductions.batch_size"]
    figures = {"all-minilm-l6-v2": [0.5, 0.4, 0.6], "all-mpnet-base-v2": [0.25, 0.2, 0.3]}
    common = {
        "model": "chatty",
        "data": "yelp",
        "epsilon": None,
        "clip_norm": None,
        "texts": 48,
        "mauve": figures,
        "processor": None,
    }
    lines = [
        {**common, "setting": module.PUBLIC, "rows": None, "more_than_public": {}},
        {**common, "setting": "3 rows", "rows": 3, "epsilon": "10", "clip_norm": 0.125, "more_than_public": figures}
        | {"more_than_today": figures, "processor": 71.4},
    ]
    head, rule, control, row = module.table(lines)
    assert head.count("|") == rule.count("|") == control.count("|") == row.count("|")
    scores = "0.50 [0.40, 0.60] |  |  | 0.25 [0.20, 0.30] |  |  |  |"
    assert control.endswith(f"| {module.PUBLIC} | - | - |  | 48 | {scores}")
    interval = " | ".join(3 * ["0.50 [0.40, 0.60]"] + 3 * ["0.25 [0.20, 0.30]"])
    assert row.endswith(f"| InvisibleInk | 3 | 10 | 0.12 | 48 | {interval} | 71 |")
