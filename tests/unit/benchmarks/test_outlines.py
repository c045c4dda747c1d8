"""The benchmark of outlines: its figures, and the table that the documentation shows of them."""

from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = ("outlines",)
DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_a_ratio_of_perplexities_has_the_scatter_of_both_sides(bench: dict[str, ModuleType]) -> None:
    ratio = bench["outlines"].perplexity_ratio
    middle, low, high = ratio([(-20.0, 10), (-26.0, 10)] * 8, [(-10.0, 10), (-16.0, 10)] * 8)
    assert middle == pytest.approx(2.718281828)
    assert 1.5 < low < middle < high < 5
    assert ratio([(-20.0, 10)] * 3, [(-10.0, 10)] * 3) == pytest.approx([2.718281828] * 3)


def test_systems_read_none_of_the_texts_that_they_are_compared_with(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{number} " * (100 if number % 2 else 99) for number in range(40)]
    monkeypatch.setattr(bench["outlines"], "read_texts", lambda data: texts)
    read, real = bench["outlines"].long_texts("yelp")
    assert (len(read), len(real)) == (15, 5)
    assert not set(read) & set(real)
    assert all(len(text.split()) >= 100 for text in (*read, *real))


def test_the_documented_table_is_that_of_the_stored_figures(
    bench: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    bench["outlines"].print_table(DOCS / "figures" / "outlines.jsonl")
    table = capsys.readouterr().out
    assert len(table.splitlines()) > 2
    assert table in (DOCS / "utility.md").read_text()
