"""The benchmark of outlines: its figures. tests/test_results.py compares its table with the page."""

from types import ModuleType

import pytest

SCRIPTS = ("outlines",)


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
