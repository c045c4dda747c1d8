"""Intervals against published figures and arithmetic by hand; a result says where there is nothing to see."""

import math

import pytest

from models_db.values.canonical_json import encode_canonical
from tasks.evaluation.in_context.result import InContextResult, Run, Score
from tasks.evaluation.intervals import over_seeds, wilson


def result(*right: int, tested: int = 100, constant: int = 25) -> InContextResult:
    runs = tuple(Run(seed, Score(tested, 20, each), 4, 0, 0) for seed, each in enumerate(right))
    return InContextResult("agnews", "real", 4, constant, runs)


def test_wilson_against_newcombe():
    """Newcombe, Statistics in Medicine 17, 1998, Table I, method 3: 81/263, 15/148, 0/20 and 1/29."""
    for (right, tested), ends in {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }.items():
        assert wilson(right, tested) == pytest.approx(ends, abs=1e-4)


def test_t_over_three_seeds():
    """Mean 0.6, standard deviation 0.1; t(0.975, 2) = 4.303."""
    half = 4.3027 * 0.1 / math.sqrt(3)
    assert over_seeds([0.5, 0.6, 0.7]) == pytest.approx((0.6 - half, 0.6 + half), abs=1e-4)
    assert over_seeds([0.1, 0.9, 0.9]) == (0.0, 1.0)
    assert over_seeds([0.5]) is None


def test_a_mean_over_seeds_does_not_pretend_to_more_items():
    many, one = result(50, 50, 50), result(50)
    assert many.item_interval() == one.item_interval() == wilson(50, 100)
    assert one.interval() == wilson(50, 100)
    assert many.interval() == (0.5, 0.5)


def test_above_chance_needs_both_intervals():
    assert result(50, 51, 49).above_chance()
    assert not result(30, 30, 30).above_chance()  # over the seeds it is exact, over 100 items it is not
    assert not result(30, 50, 70).above_chance()  # over the items it is clear, over the seeds it is not


def test_a_line_says_what_cannot_be_done():
    assert result(50, 51, 49).line() == "50.0% [47.5%, 52.5%]"
    assert result(30, 30, 30).line() == "30.0% [30.0%, 30.0%], not above chance (25.0%)"
    assert result(50, 51, 49).line(calibrated=False).endswith("not above chance (25.0%)")


def test_the_stored_form_has_no_floats():
    stored = result(50, 51, 49).to_json()
    encode_canonical(stored)  # refuses floats
    assert stored["chance"] == "0.2500"
    assert stored["calibrated"] == {
        "mean": "0.5000",
        "over_seeds": ["0.4752", "0.5248"],
        "over_items": ["0.4038", "0.5962"],
        "above_chance": True,
    }
    assert stored["runs"][0]["raw"]["right"] == 20
    assert result(50).to_json()["calibrated"]["over_seeds"] is None
