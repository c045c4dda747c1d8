"""The benchmark of facets by the model: what is counted of an answer, and the table."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.values.insight import Facets

SCRIPTS = ("insights.model_facets",)


class Letters:
    """An embedder for tests: which letters a text has."""

    name = "letters 1"

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.array([[letter in text for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], np.float32)
        rows = rows.reshape(-1, 26)
        return np.asarray(rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True)), np.float32)

    def pieces(self, texts: Sequence[str]) -> list[Any]:
        raise NotImplementedError


TEXTS = ("a red kettle leaks", "my lamp broke", "shoes too small", "fix the python code")


def of(keywords: tuple[str, ...], summary: str) -> Facets:
    return Facets({"topics": (), "keywords": keywords, "summary": (summary,) if summary else ()})


def test_what_an_answer_has_of_its_text_and_of_the_examples(bench: dict[str, ModuleType]) -> None:
    module = bench["insights.model_facets"]
    found = [of(("kettle", "landlord"), "A kettle leaks."), of((), ""), of(("shoe",), "zzz"), of(("python",), "code")]
    first, empty, third, last = module.measured("model", ["a", "b", "c", "d"], TEXTS, found, Letters())
    assert (first["keywords"], first["own_words"], first["others_words"]) == (2, 1, 0)
    assert first["examples"] == {"keywords": True, "summary": False, "any": True}
    assert first["preferred"] == 1.0
    assert (empty["valid"], empty["keywords"]) == (False, 0)
    assert third["own_words"] == 1, "plural endings do not matter"
    assert not any(last["examples"].values()), "a word of the text is not one of the examples"


def test_the_table_has_a_row_for_each_setting_with_intervals(bench: dict[str, ModuleType]) -> None:
    module = bench["insights.model_facets"]
    found = [of(("kettle", "landlord"), "A kettle leaks."), of((), ""), of(("shoe",), "zzz"), of(("python",), "code")]
    lines = [
        line
        for setting in ("model, contrast 0", "rake")
        for line in module.measured(setting, ["a", "b", "c", "d"], TEXTS, found, Letters())
    ]
    assert [bool(line["facets"]) for line in lines] == [True] * 4 + [False] * 4, "no text of a corpus is kept"
    head, rule, row, _ = module.table(lines)
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row.startswith("| `model`, contrast 0 | 4 | 75 % [30, 95] | 1.0 [-0.3, 2.3] | 75 % ["), row
