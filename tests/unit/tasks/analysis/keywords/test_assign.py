"""A unit's keywords are a function of that unit, bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.analysis.keywords.assign import CLOSE as CALIBRATED
from tasks.analysis.keywords.assign import IndexKeywordAssigner
from tasks.values.results import Facets


def unit(text):
    return Facets({"summary": (text,)})


def unit_points(rows, width=384, seed=1):
    points = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


CLOSE = IndexKeywordAssigner("0.3", "0.2")


def chosen(text, similarities, keywords, most=5, chooser=CLOSE):
    """The choice of one unit with these cosines to the keywords."""
    height = [[s, *np.sqrt([max(0.0, 1 - s * s)])] for s in similarities]
    point = np.array([[1, 0]], np.float32)
    return chooser([unit(text)], point, keywords, np.array(height, np.float32).reshape(-1, 2), most)[0]


def test_the_closest_come_first_and_the_far_not_at_all():
    assert chosen("", [0.5, 0.1, 0.9, 0.31], ["tax law", "tax rate", "high court", "two judges"]) == (2, 0, 3)


def test_at_most_so_many_are_chosen():
    assert chosen("", [0.5, 0.6, 0.9], ["tax law", "tax rate", "high court"], most=2) == (2, 1)


def test_a_word_that_occurs_counts_more():
    assert chosen("Taxes are due", [0.35, 0.2], ["the law of courts", "tax"]) == (1, 0)
    assert chosen("tax", [0.2], ["tax law"]) == (), "all words of a keyword have to occur"
    assert chosen("the law of tax", [0.2], ["tax law"]) == (0,)


def test_a_word_that_occurs_may_be_chosen_at_any_cosine():
    assert chosen("Taxes are due", [0.1, -0.4], ["law", "tax"]) == (1,)


def test_without_its_words_a_keyword_needs_the_calibrated_cosine():
    """Near some keyword of a set are most texts: at 0.3 a choice says nothing about them."""
    default, limit = IndexKeywordAssigner(), float(CALIBRATED)
    near, far = limit + 0.01, limit - 0.01
    assert chosen("Write a list", [far, near], ["china's history", "lyric poems"], chooser=default) == (1,)


def test_a_single_word_has_to_occur_however_close_it_is():
    """Texts about lutes are close to `guitar`, and texts about any country to `china`."""
    assert chosen("A lute", [0.9, 0.8], ["guitar", "string instruments"]) == (1,)
    assert chosen("Guitars", [0.1, 0.8], ["guitar", "string instruments"]) == (1, 0)


def test_equal_scores_are_told_apart_by_the_public_order():
    assert chosen("law, court, tax", [0.5, 0.5, 0.5], ["law", "tax", "court"], most=2) == (0, 1)


def test_a_unit_may_choose_none():
    assert chosen("nothing here", [0.1, -0.9], ["law", "tax"]) == ()


def test_nobody_and_nothing_to_choose():
    none = np.zeros((0, 3), np.float32)
    assert CLOSE([], none, ["law"], unit_points(1, 3), 5) == []
    assert CLOSE([unit("law")], unit_points(1, 3), [], none, 5) == [()]


def test_a_point_that_is_no_point_leaves_what_occurs():
    points = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [0, 0, 0]], np.float32)
    found = IndexKeywordAssigner("0.2", "0.2")([unit("law")] * 3, points, ["law", "tax"], unit_points(2, 3), 5)
    assert found == [(0,), (0,), (0,)]


@pytest.mark.parametrize(
    ("units", "points", "keywords", "keyword_points", "most"),
    [
        (2, (1, 3), 1, (1, 3), 5),
        (1, (1, 3), 2, (1, 3), 5),
        (1, (1, 3), 1, (1, 4), 5),
        (1, (3,), 1, (1, 3), 5),
        (1, (1, 3), 1, (1, 3), 0),
        (1, (1, 8193), 1, (1, 8193), 5),
    ],
)
def test_what_does_not_belong_together_is_refused(units, points, keywords, keyword_points, most):
    with pytest.raises(ValueError, match=r"need a point each|one width|at least one"):
        CLOSE([unit("law")] * units, np.ones(points), ["law"] * keywords, np.ones(keyword_points), most)


@given(st.integers(1, 40), st.integers(0, 2**32), st.integers(1, 64), st.data())
def test_a_choice_depends_on_its_unit_alone(count, seed, width, data):
    """Any unit may be missing, or be somewhere else: what the others choose stays."""
    points, theirs = unit_points(count, width, seed), unit_points(17, width, seed + 1)
    units, keywords = [unit(f"word{i % 5}") for i in range(count)], [f"word{i}" for i in range(17)]
    chooser = IndexKeywordAssigner("0.1", "0.05")
    together = chooser(units, points, keywords, theirs, 5)
    order = data.draw(st.permutations(range(count)))[: data.draw(st.integers(0, count))]
    apart = chooser([units[i] for i in order], points[list(order)], keywords, theirs, 5)
    assert apart == [together[i] for i in order]


def test_scores_are_exact_where_floats_are_not():
    """One row at a time, in a product of many, transposed in memory: the same scores to the last bit."""
    points, theirs = unit_points(300), unit_points(200, seed=2)
    from tasks.analysis.keywords.assign import _on_grid

    a, b = _on_grid(points), _on_grid(theirs)
    whole = a @ b.T
    single = np.array([[sum((x * y).tolist()) for y in b[:5]] for x in a[:5]])
    assert np.array_equal(whole[:5, :5], single)
    assert np.array_equal(whole[7], b @ a[7])
    assert np.abs(whole - points.astype(np.float64) @ theirs.astype(np.float64).T).max() < 1e-5
