"""The benchmark of free tokens: its figures."""

from types import ModuleType

import pytest

SCRIPTS = ("utility.free_tokens",)


def test_the_share_of_free_tokens_is_one_of_tokens_and_not_of_texts(bench: dict[str, ModuleType]) -> None:
    free_share = bench["utility.free_tokens"].free_share
    assert free_share([(9, 10), (0, 90)]) == pytest.approx(0.09)
    assert free_share([(0, 0)]) == 0


def test_figures_are_those_of_the_texts_with_their_intervals(bench: dict[str, ModuleType]) -> None:
    line = {
        "free": [2, 0, 4, 2],
        "tokens": [10, 10, 14, 6],
        "log_likelihood": [[-20.0, 10], [-20.0, 10], [-28.0, 14], [-12.0, 6]],
        "mauve": [0.5, 0.4, 0.6],
        "mauve_difference": [0.0, -0.1, 0.1],
    }
    found = bench["utility.free_tokens"].figures(line)
    assert found["tokens"][0] == 10
    assert found["free"][0] == pytest.approx(0.2)
    assert found["perplexity"] == pytest.approx([2.718281828**2] * 3)  # every token alike, whatever is drawn again
    assert found["tokens"][1] < 10 < found["tokens"][2]


def test_how_much_longer_texts_are_has_the_scatter_of_both_sides(bench: dict[str, ModuleType]) -> None:
    longer_by = bench["utility.free_tokens"].longer_by
    middle, low, high = longer_by([12, 14, 10, 12] * 10, [10, 8, 12, 10] * 10)
    assert 1 < low < middle == 2 < high < 3
    assert longer_by([5] * 9, [3] * 9) == [2, 2, 2]


def test_the_table_compares_every_release_with_the_first_of_its_model_and_data(bench: dict[str, ModuleType]) -> None:
    module = bench["utility.free_tokens"]
    line = {
        "model": "m", "data": "yelp", "draws": 48, "free_above": None, "system": "invisible_ink", "clip_norm": 0.87,
        "seconds": 12.4, "tokens": [10, 12], "free": [0, 0], "complete": [True, False],
        "log_likelihood": [[-20.0, 10], [-24.0, 12]], "mauve": [0.5, 0.4, 0.6], "mauve_difference": [0.0, 0.0, 0.0],
    }  # fmt: skip
    public = line | {"system": module.CONTROL, "clip_norm": None, "seconds": None, "tokens": [13, 15]}
    usual, control = [row.split(" | ") for row in module.table([line, public])][2:]
    assert (usual[2], usual[3], usual[7], usual[-1]) == ("T = 48, no free tokens", "0.87", "", "6.2 |")
    assert (control[2], control[3], control[7]) == ("public only, T = 48", "", "3.0 [1.0, 5.0]")
    assert control[-1].strip() == "|"
