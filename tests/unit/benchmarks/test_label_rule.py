"""The benchmark of labels by a rule: its control."""

from decimal import Decimal
from types import ModuleType

import pytest

from tests.support import shared_data

SCRIPTS = ("label_rule",)


@pytest.fixture
def script(bench: dict[str, ModuleType]) -> ModuleType:
    return bench["label_rule"]


@pytest.mark.parametrize("data", ["agnews", "dbpedia14"])
def test_the_labels_of_the_rule_are_those_of_the_corpus(script: ModuleType, data: str) -> None:
    shared_data(f"{data}.jsonl")
    corpus = script.Skewed.read(data)
    assert script.rule_for(data).labels == corpus.labels
    found = script.labels_by_rule(corpus, script.rule_for(data))
    assert {label for labels in found.values() for label in labels} == {*corpus.labels, None}
    right = sum(labels.count(true) for true, labels in found.items())
    assert right > sum(map(len, found.values())) / 2


def test_the_control_gives_no_label_its_own_count(script: ModuleType) -> None:
    made = script.allocations((600, 250, 100, 50), (500, 300, 150, 50), Decimal(400))
    assert made[script.TRUE] == (60, 25, 10, 5)
    assert made[script.RULE] == made[script.NOISELESS] == (50, 30, 15, 5)
    assert made[script.SHUFFLED] == (15, 5, 50, 30)
