"""Points on the grid: exact products, so that a unit's place depends on no other unit, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.mechanisms.vectors import fixed_point
from tasks.mechanisms.vectors.fixed_point import STEPS, GridPoints
from tasks.mechanisms.vectors.noisy_mean import calibrate_mean

GENERATOR = np.random.default_rng(5)


def unit_rows(rows: int, width: int = 384) -> np.ndarray:
    drawn = GENERATOR.normal(size=(rows, width))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def test_points_keep_their_length_and_longer_ones_get_length_one():
    points = np.array([[0.5, -0.25], [30.0, 40.0], [np.nan, 1.0], [np.inf, 0.0], [0.0, 0.0]], np.float32)
    found = GridPoints.of(points)
    assert found.steps.tolist() == [[STEPS // 2, -STEPS // 4], [629145, 838860], [0, 0], [0, 0], [0, 0]]
    assert found.usable.tolist() == [True, True, False, False, True]
    assert np.array_equal(found.values[0], points[0])


def test_the_grid_is_the_noisy_sums_own():
    """Clipping a point once more, as a sum round does, changes nothing."""
    mean = calibrate_mean(10**10, 1, 1)
    assert mean.clip_steps == STEPS
    import torch

    found = GridPoints.of(unit_rows(50) * 3)
    assert np.array_equal(mean.quantised(torch.from_numpy(found.values)).numpy(), found.steps)


@settings(max_examples=30)
@given(st.data())
def test_places_do_not_depend_on_other_rows(data):
    rows = data.draw(st.integers(1, 40))
    points, centres, planes = unit_rows(rows), unit_rows(7).astype(np.float64), unit_rows(9).astype(np.float64)
    order = data.draw(st.permutations(range(rows)))
    chosen = np.array(order[: data.draw(st.integers(1, rows))])
    whole, some = GridPoints.of(points), GridPoints.of(points[chosen])
    assert np.array_equal(some.steps, whole.steps[chosen])
    assert np.array_equal(some.nearest(centres), whole.nearest(centres)[chosen])
    assert np.array_equal(some.sides(planes), whole.sides(planes)[chosen])


def test_nor_on_how_many_are_looked_at_together(monkeypatch):
    points, centres = unit_rows(500), unit_rows(64).astype(np.float64)
    whole = GridPoints.of(points)
    nearest, sides = whole.nearest(centres), whole.sides(centres)
    monkeypatch.setattr(fixed_point, "_ROWS_AT_ONCE", 7)
    again = GridPoints.of(points)
    assert np.array_equal(again.steps, whole.steps)
    assert np.array_equal(again.nearest(centres), nearest)
    assert np.array_equal(again.sides(centres), sides)


def test_products_are_exact_where_floats_would_round():
    """The answer of Python's integers, also on points that are nearly as near to one centre as to another."""
    centres = unit_rows(3).astype(np.float64) * 1.9
    centres[2] = centres[1] + 2e-6
    points = GridPoints.of((unit_rows(60) * 0.001 + centres[1]).astype(np.float32) / 2)
    on_grid = [[int(entry) for entry in row] for row in np.trunc(centres * STEPS)]
    for row, found in zip(points.steps.tolist(), points.nearest(centres).tolist(), strict=True):
        distances = [sum((x - c) ** 2 for x, c in zip(row, centre, strict=True)) for centre in on_grid]
        assert found == distances.index(min(distances))


def test_equally_near_centres_and_points_on_a_plane():
    centres = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    points = GridPoints.of(np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]], np.float32))
    assert points.nearest(centres).tolist() == [1, 0, 0]
    assert points.sides(np.array([[1.0, -1.0]])).tolist() == [[True], [True], [True]]


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_broken_centre_is_the_origin(broken):
    points = GridPoints.of(np.array([[0.1, 0.0], [1.0, 0.0]], np.float32))
    assert points.nearest(np.array([[1.0, 0.0], [broken, 0.0], [1e30, 0.0]])).tolist() == [1, 0]


def test_no_points_have_no_places():
    none = GridPoints.of(np.zeros((0, 4), np.float32))
    assert none.nearest(np.eye(4)).shape == (0,)
    assert none.sides(np.eye(4)).shape == (0, 4)
