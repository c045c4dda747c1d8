"""The benchmark of a proportional allocation: its corpora and its control."""

from decimal import Decimal
from types import ModuleType

import numpy as np
import pytest

from tests.support import shared_data

SCRIPTS = ("utility.label_allocation",)


@pytest.fixture
def script(bench: dict[str, ModuleType]) -> ModuleType:
    return bench["utility.label_allocation"]


@pytest.mark.parametrize("data", ["agnews", "dbpedia14"])
def test_the_true_shares_are_those_that_were_chosen_and_no_text_has_two_parts(script: ModuleType, data: str) -> None:
    shared_data(f"{data}.jsonl")
    corpus = script.Skewed.read(data)
    assert corpus.shares.sum() == pytest.approx(1)
    assert script.total_variation(corpus.counts(script.UNITS), corpus.shares) < 0.02
    for (label, *parts), units in zip(corpus.parts(), corpus.counts(script.UNITS), strict=True):
        assert len(parts[0]) == units
        assert len(parts[2]) >= script.PERFECT // len(corpus.labels)
        assert sum(map(len, parts)) == len(corpus.texts[label])


def test_the_control_gives_no_label_its_own_count(script: ModuleType) -> None:
    made = script.allocations((600, 250, 100, 50), Decimal(400), Decimal("0.5"), 100)
    assert made[script.PROPORTIONAL] == made[script.NOISELESS] == (60, 25, 10, 5)
    assert made[script.SHUFFLED] == (10, 5, 60, 25)
    assert script.total_variation(made[script.EQUAL], np.array([0.6, 0.25, 0.1, 0.05])) == pytest.approx(0.35)
