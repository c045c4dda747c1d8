"""The benchmark of subtracted backgrounds, on planted phrases: whose a phrase is, the controls, and the table."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

TRIALS = 8
"""A share of phrases by noise alone has a standard deviation of 0.075 in one trial, and 0.027 in the mean of these."""
SCRIPTS = ("keyphrases.background_subtraction", "keyphrases.corpora", "keyphrases.data", "keyphrases.systems")


@pytest.fixture
def corpus(bench: dict[str, ModuleType]) -> Any:
    """Four labels with phrases of their own, and one phrase that every unit of every label has."""
    planted = bench["keyphrases.data"].Planted(bench["keyphrases.data"].World(strength=0.0), np.random.default_rng(3))
    units = planted.units(60)
    units.phrases[:, 0] = 0
    phrases = bench["keyphrases.systems"].Phrases(planted.points, np.unique(units.phrases))
    return bench["keyphrases.corpora"].Read("planted", phrases, units, units, 4)


def test_a_phrase_that_all_labels_have_is_nobodys_own(bench: dict[str, ModuleType], corpus: Any) -> None:
    module = bench["keyphrases.background_subtraction"]
    own = module.own_shares(corpus)
    assert own.sum(axis=0) == pytest.approx(1)
    assert own[:, 0] == pytest.approx([0.25] * 4)
    assert set(np.round(own[:, 1:].max(axis=0), 9)) == {1.0}
    # One of eight phrases of a unit is everybody's, so one of eight drawn ones.
    assert module.by_true_shares(corpus) == pytest.approx(7 / 8 + 1 / 8 / 4, abs=0.002)


def test_the_mean_of_labels_as_background_finds_more_of_the_own_phrases(
    bench: dict[str, ModuleType], corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = bench["keyphrases.background_subtraction"]
    monkeypatch.setattr(module, "BANDWIDTHS", ("0.5",))
    monkeypatch.setattr(module, "EPSILONS", ("0.001", "1000"))
    monkeypatch.setattr(module, "TRIALS", TRIALS)
    lines = list(module.measure(corpus, []))
    assert [(line["epsilon"], line["trial"]) for line in lines] == [
        (epsilon, trial) for epsilon in ("0.001", "1000") for trial in range(TRIALS)
    ]
    exact = lines[TRIALS]["own"]
    noisy = {name: np.mean([line["own"][name] for line in lines[:TRIALS]]) for name in exact}
    assert exact["labels"] > 0.95
    assert exact["labels"] > exact["none"]
    assert all(0.1 < share < 0.4 for share in noisy.values()), "nothing is learned of noise"
    assert list(module.measure(corpus, lines[1:])) != list(module.measure(corpus, lines)) == []
    head, rule, first, second = module.table(lines)
    assert head.count("|") == rule.count("|") == first.count("|") == second.count("|")
    assert second.startswith("| 0.5 | 1000 | ")


def test_the_table_has_the_interval_of_paired_differences(bench: dict[str, ModuleType]) -> None:
    shares = [(0.2, 0.4, 0.6), (0.3, 0.4, 0.5)]
    lines = [
        {"bandwidth": "0.4", "epsilon": "3", "own": dict(zip(("none", "median", "labels"), own, strict=True))}
        for own in shares
    ]
    (*_, row) = bench["keyphrases.background_subtraction"].table(lines)
    assert row.startswith("| 0.4 | 3 | 25 % [-39, 89] | 40 % [40, 40] | 55 % [-9, 119] | 15 % [-49, 79] |")
