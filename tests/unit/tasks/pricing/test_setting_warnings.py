"""Words of judgement: every threshold is what docs/figures/utility.jsonl says."""

import json
from decimal import Decimal
from fractions import Fraction
from functools import cache
from math import floor
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.planning.influence import Influence, InfluenceLevel, influence_of, level_named
from tasks.pricing.request_warnings import filled_part, units_behind
from tasks.systems.registry import SYSTEMS

RESULTS = Path(__file__).parents[4] / "docs" / "figures" / "utility.jsonl"
MEASURED = {
    "invisible_ink": "ink",
    "invisible_ink, logit": "ink_paper",
    "private_icl": "icl",
    "private_prediction": "amin_private",
}


def levels_of(key: str) -> tuple[InfluenceLevel, ...]:
    mechanism, _, clipping = key.partition(", ")
    return SYSTEMS[mechanism].influence_levels({"clipping": clipping or None})


LEVELS = {key: levels_of(key) for key in MEASURED}


def judged(facts: dict[str, str], key: str, filled: Fraction = Fraction(1)) -> Influence | None:
    system = SYSTEMS[key.partition(", ")[0]]
    return influence_of(facts, levels_of(key), depends_on_candidates=system.depends_on_candidates, filled=filled)


def test_whatever_has_levels_was_measured() -> None:
    assert {name for name, system in SYSTEMS.items() if system.influence_levels({})} == {
        key.partition(", ")[0] for key in MEASURED
    }


@cache
def divergence(data: str, system: str, clip: str | None) -> float:
    """Mean KL of a setting at 7 rows, temperature 1 and 100 candidates."""
    rows = map(json.loads, RESULTS.read_text().splitlines())
    wanted = {"data": data, "system": system, "clip": clip, "references": 7, "temperature": "1", "top_k": 100}
    (row,) = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return fmean(row["kl"])


def closer(data: str, key: str, level: InfluenceLevel) -> float:
    """By how much the divergence is smaller than the public model's, measured at the level's clip norm."""
    return 1 - divergence(data, MEASURED[key], str(level.clip_norm)) / divergence(data, "public", None)


@pytest.mark.parametrize("key", LEVELS)
def test_every_threshold_is_a_measurement(key: str) -> None:
    for level in LEVELS[key]:
        if level.clip_norm:
            measured = tuple(floor(100 * closer(data, key, level)) for data in ("yelp", "mts_dialog"))
            assert level.closer == measured, level.name


@pytest.mark.parametrize("key", ["invisible_ink", "invisible_ink, logit"])
def test_a_level_holds_at_every_other_setting_that_was_measured(key: str) -> None:
    """Other rows, temperatures and candidates than those of the thresholds; half a percent is rounding."""
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    public = {setting(row): fmean(row["kl"]) for row in rows if row["system"] == "public"}
    measured = [
        row for row in rows if row["system"] == MEASURED[key] and row["C"] is not None and setting(row) in public
    ]
    assert {row["references"] for row in measured} == {3, 7, 15, 31}
    assert len(measured) > 80
    for row in measured:
        level = next(one for one in LEVELS[key] if Decimal(str(row["C"])) >= one.clip_norm)
        least = level.closer[0 if row["data"] == "yelp" else 1]
        assert 100 * (1 - fmean(row["kl"]) / public[setting(row)]) > least - 0.5


def setting(row: dict[str, Any]) -> tuple[object, ...]:
    """What the public model's divergence depends on."""
    return row["data"], row["references"], row["temperature"], row["top_k"]


@pytest.mark.parametrize("key", LEVELS)
def test_levels_fall_and_end_at_zero(key: str) -> None:
    norms = [level.clip_norm for level in LEVELS[key]]
    assert norms == sorted(norms, reverse=True)
    assert norms[-1] == 0


@pytest.mark.parametrize("key", ["private_icl", "private_prediction"])
def test_below_the_thresholds_of_noise_the_public_model_is_nearer(key: str) -> None:
    for data in ("yelp", "mts_dialog"):
        assert divergence(data, MEASURED[key], "2") > divergence(data, "public", None)


@pytest.mark.parametrize(
    ("norm", "name"),
    [("0.05", "hardly"), ("0.1", "weakly"), ("0.5", "clearly"), ("1.27", "strongly"), ("30", "almost fully")],
)
def test_a_clip_norm_has_the_word_of_its_threshold(norm: str, name: str) -> None:
    influence = judged({"clip norm C": norm}, "invisible_ink")
    assert influence is not None
    assert influence.level.name == name
    assert f"clip norm {float(norm):.3g}" in influence.sentence


def test_a_mechanism_that_was_not_measured_has_no_judgement() -> None:
    assert judged({"clip norm C": "3"}, "token_level_summary") is None
    assert judged({}, "invisible_ink") is None
    assert level_named(levels_of("private_icl"), "almost fully") is None


@pytest.mark.parametrize(("candidates", "expected"), [("100", True), ("101", False), ("whole vocabulary", False)])
def test_more_candidates_than_were_measured_are_not_judged(candidates: str, expected: bool) -> None:
    facts = {"clip norm c": "9", "top k": candidates}
    assert (judged(facts, "private_icl") is not None) is expected
    assert judged(facts, "invisible_ink") is not None


@pytest.mark.parametrize(
    ("references", "samples", "population", "said"),
    [
        ("7", "4", 1185, "about 28 of the 1,185 declared units"),
        ("7", "4", 28, "nearly all of the 28 declared units"),
        ("7", "4", None, "about 28 units"),
        ("1", "1", None, "about 1 unit."),
    ],
)
def test_a_price_says_on_how_many_units_texts_draw(
    references: str, samples: str, population: int | None, said: str
) -> None:
    facts = {"references B": references, "samples": samples}
    assert said in str(units_behind({"plan": {"facts": facts}, "population": population}))


def test_systems_without_references_say_nothing_of_units_behind_a_text() -> None:
    assert units_behind({"plan": {"facts": {"samples": "4"}}, "population": 9}) is None


def test_empty_rows_count_for_nothing() -> None:
    facts = {"clip norm C": "2"}
    half = judged(facts, "invisible_ink", Fraction(1, 2))
    assert half is not None
    assert half.level.name == "strongly"
    assert "50 % of the B rows" in half.sentence
    assert filled_part({"samples": 10, "references": 20}, 100, 1) == Fraction(1, 2)
    assert filled_part({"samples": 10, "references": 20, "batches": 20}, 200, 1) == Fraction(1, 2)
    assert filled_part({"samples": 10, "references": 20}, None, 1) == 1


@given(st.sampled_from(sorted(LEVELS)), st.decimals("0", "50", places=3), st.decimals("0", "50", places=3))
def test_a_larger_clip_norm_is_never_judged_lower(key: str, first: Decimal, second: Decimal) -> None:
    low, high = (judged({"clip norm C": str(norm), "top k": "100"}, key) for norm in sorted((first, second)))
    assert low is not None
    assert high is not None
    assert low.level.clip_norm <= high.level.clip_norm
