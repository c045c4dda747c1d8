"""Kinds of keyword selection: which releases are drawn, the control, and both tables of the page."""

from types import ModuleType
from typing import Any

import pytest

from tasks.analysis.facets.parameters import FacetSettings
from tasks.analysis.facets.rule_based import RuleBasedExtractor

SCRIPTS = ("keywords.selection", "keywords.rho_sweep")


@pytest.fixture
def module(bench: dict[str, ModuleType]) -> ModuleType:
    return bench["keywords.selection"]


def line(selection: str, trial: int, released: int, **more: Any) -> dict[str, Any]:
    place = {
        "corpus": "yelp",
        "units": 3338,
        "epsilon": "8",
        "delta": "1e-6",
        "method": "tfidf",
        "selection": selection,
    }
    return place | {"trial": trial, "even_count": 22, "released": released, "common": 255} | more


def test_the_control_counts_candidates_of_ten_units_and_more(module: ModuleType) -> None:
    texts = ["guitar practice"] * 12 + ["dragon castle"] * 9
    facets = RuleBasedExtractor(FacetSettings())(texts)
    assert module.common_candidates("tfidf", facets) == 2
    assert module.common_candidates("model", facets) == 3  # the phrase and its words
    assert module.common_candidates("tfidf", facets[12:]) == 0


def test_a_keyword_set_gets_its_part_of_a_claim(module: ModuleType) -> None:
    amount, whole = module.amount_of("8", "1e-6"), module.rho_of("8", "1e-6")
    assert whole - 4 < 4 * amount.rho <= whole
    assert amount.delta == 10 ** (18 - 7)


def test_only_releases_that_are_missing_are_drawn(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIALS", 1)
    monkeypatch.setattr(module, "CLAIMS", (("8", "1e-6"),))
    texts = ["guitar practice"] * 200
    drawn = list(module.releases(texts, "planted", []))
    places = [(row["method"], row["selection"]) for row in drawn]
    assert places == [(method, kind) for method in module.METHODS for kind in module.KINDS]
    weighted = drawn[2]
    assert (weighted["released"], weighted["shared"]) == (2, [200, 200])  # both words, and in how many units they are
    assert "shared" not in drawn[-1]
    (again,) = module.releases(texts, "planted", [*drawn[:2], *drawn[3:]])
    assert (again["method"], again["selection"]) == ("tfidf", "weighted")
    assert list(module.releases(texts, "another corpus", drawn)) != []


def test_means_and_deviations_of_each_kind_stand_in_one_row(module: ModuleType) -> None:
    released = {"truncated_geometric": (0, 0), "gaussian": (4, 8), "weighted": (10, 10)}
    rows = [line(kind, trial, each) for kind, counts in released.items() for trial, each in enumerate(counts)]
    head, rule, row = module.table(rows)
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row == (
        "| yelp, 3,338 units | `tfidf` | (8, 1e-6) | 22 -> 22 -> 22 | 0 +- 0.0 -> 6 +- 2.8 -> 10 +- 0.0 | 255 |"
    )


def test_a_gain_has_its_interval_and_the_units_of_its_keywords(module: ModuleType) -> None:
    before = [line("gaussian", trial, 3 + trial, shared=[9, 30, 30, 50]) for trial in range(3)]
    after = [line("weighted", trial, 8 + trial, shared=[10, 20]) for trial in range(3)]
    nothing = [line(kind, trial, 0) | {"method": "model"} for kind in ("gaussian", "weighted") for trial in range(3)]
    head, rule, row = module.gains_table([*before, *after, *nothing])
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row == "| yelp | `tfidf` | (8, 1e-6) | 5.0 [2.7, 7.3] | 2.25 | 30 -> 15 | 0.750 -> 1.000 |"
    (*_, row) = module.gains_table([line("gaussian", 0, 0), line("gaussian", 1, 0), *after[:2]])
    assert row.endswith("|  | - -> 15 | - -> 1.000 |")  # nothing to divide by


def test_a_difference_without_any_scatter_is_exact(module: ModuleType) -> None:
    assert module.difference_in_means([5, 5], [2, 2]) == (3, 3, 3)
    low, middle, high = module.difference_in_means([5, 7, 6], [2, 1, 3])
    assert low < middle == 4 < high


def test_a_set_is_drawn_at_each_rho_and_setting_once(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = bench["keywords.rho_sweep"]
    monkeypatch.setattr(module, "TRIALS", 2)
    monkeypatch.setattr(module, "RHOS", ("0.000001", "1"))
    drawn = list(module.releases(["guitar practice"] * 60, "planted", []))
    assert [(row["rho"], row["setting"], row["trial"]) for row in drawn] == [
        (rho, setting, trial) for rho in module.RHOS for setting in module.SETTINGS for trial in range(2)
    ]
    assert {(row["common"], row["most_shared"]) for row in drawn} == {(2, 60), (3, 60)}
    assert list(module.releases(["guitar practice"] * 60, "planted", drawn)) == []
    head, rule, less, more = module.table(drawn)
    assert head.count("|") == rule.count("|") == less.count("|") == more.count("|")
    assert less.endswith("| 0 +- 0.0 | 0 +- 0.0 | 0 +- 0.0 | 0 +- 0.0 | 0.0 [0.0, 0.0] | 2, 3 |")
    assert more.endswith("| 2 +- 0.0 | 2 +- 0.0 | 2 +- 0.0 | 3 +- 0.0 | 0.0 [0.0, 0.0] | 2, 3 |")
