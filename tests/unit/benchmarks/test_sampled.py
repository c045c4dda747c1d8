"""Texts of the real systems: what is measured together, what a line has, and the page's tables."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks.utility import mauve
from tests.unit.benchmarks.test_batch_size import embedded, real

SCRIPTS = ("utility.sampled",)


@pytest.fixture
def module(bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark with texts that are embedded by their first word, and figures without a model."""
    module = bench["utility.sampled"]
    monkeypatch.setattr(module, "real_texts", lambda _, data, count, __: (real(count), real(3 * count)))
    monkeypatch.setattr(
        module, "figures", lambda _, texts: {"tokens": [9.0, 8, 10], "perplexity": [20.0, 18, 23], "complete": [0.25]}
    )
    monkeypatch.setattr(module, "_as_text", lambda _, text, tokens: {"text": text, "tokens": 3, "complete": False})
    monkeypatch.setattr(mauve, "embedder", lambda: embedded)
    return module


def cell(module: ModuleType, system: str, epsilon: str | None, references: int = 7, **more: Any) -> Any:
    return module.Cell("yelp", system, epsilon, 0, 32, references, "1", 100, 64, "bfloat16", **more)


def drawn(word: str, count: int = 22) -> list[dict[str, Any]]:
    return [{"text": f"{word} text", "tokens": 2, "complete": True}] * (count - 2) + [
        {"text": f"{other} text", "tokens": 2, "complete": True} for other in ("fair", "poor")
    ]


def measured(module: ModuleType, few: int = 22) -> dict[tuple[str, Any, Any], dict[str, Any]]:
    found = {
        cell(module, module.PAPER, "10"): drawn("good"),
        cell(module, module.PUBLIC, None): drawn("poor"),
        cell(module, module.LOG_PROBABILITY, "10", 4): drawn("good"),
        cell(module, module.LOG_PROBABILITY, "10"): drawn("fair"),
        cell(module, "private ICL", "1"): drawn("poor", few),
    }
    lines = module.measure(SimpleNamespace(tokenizer=None), found, 22)
    return {(line["system"], line["epsilon"], line["rows"]): line for line in lines}


def test_a_release_is_measured_beside_its_controls(module: ModuleType) -> None:
    lines = measured(module, few=20)
    assert [key[0] for key in lines] == [
        module.REAL, module.PUBLIC, module.LOG_PROBABILITY, module.LOG_PROBABILITY, module.PAPER, "private ICL",
    ]  # fmt: skip
    public, fewer, paper = (
        lines[key] for key in ((module.PUBLIC, None, None), (module.LOG_PROBABILITY, "10", 4), (module.PAPER, "10", 7))
    )
    assert fewer["more_than_public"][0] == pytest.approx(fewer["mauve"][0] - public["mauve"][0], abs=2e-4)
    assert fewer["more_than_public"][1] > 0
    assert fewer["less_paper"][0] == pytest.approx(fewer["mauve"][0] - paper["mauve"][0], abs=2e-4)
    assert "less_paper" not in lines[module.LOG_PROBABILITY, "10", 7], "seven rows are not fewer"
    assert not {"more_than_public", "less_paper"} & set(public)
    assert {line["distinct_2_of"] for line in lines.values()} == {20}


def test_too_few_texts_have_no_mauve(module: ModuleType) -> None:
    line = measured(module, few=20)["private ICL", "1", 7]
    assert (line["mauve"], line["compared"], line["texts"]) == (None, 0, 20)
    assert "more_than_public" not in line
    assert line["perplexity"] == [20.0, 18, 23]


def test_the_tables_have_every_line_and_every_pair_of_rows(module: ModuleType) -> None:
    lines = list(measured(module).values())
    head, rule, *rows = module.table(lines, "yelp")
    assert {row.count("|") for row in (head, rule, *rows)} == {11}
    assert len(rows) == len(lines) == 6
    assert rows[0].startswith(f"| {module.REAL} | - | - | 22 | ")
    assert list(module.table(lines, "another")) == [head, rule]
    head, rule, row = module.rows_table(lines)
    assert head.count("|") == rule.count("|") == row.count("|") == 11
    assert row.startswith("| yelp | 10 | 4, 7 | 22, 66 real | ")
