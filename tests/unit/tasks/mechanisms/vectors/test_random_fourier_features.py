"""Random Fourier features: their norm, their kernel, and that a unit's are its own, bit for bit."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.mechanisms.vectors.kde_sketch import FEATURE_STEPS, MOST_FEATURES, MOST_TOGETHER, FourierFeatures, on_grid

WIDTH, FEATURES = 24, 600
KERNEL = FourierFeatures.of(WIDTH, FEATURES, Decimal("0.7"))


def points(count: int, seed: int = 1) -> np.ndarray:
    """Directions of length 1: float32 [count, WIDTH]."""
    drawn = np.random.default_rng(seed).normal(size=(count, WIDTH))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def single(some: np.ndarray, kernel: FourierFeatures = KERNEL) -> np.ndarray:
    return kernel.of_phrases(on_grid(some), np.arange(len(some)))


def test_products_are_the_gaussian_kernel():
    some = points(200)
    squares = ((some[:, None].astype(float) - some[None]) ** 2).sum(-1)
    error = single(some) @ single(some).T - np.exp(-squares / (2 * 0.7**2))
    assert np.abs(np.diag(error)).max() < 1e-5
    assert error.std() < 1.5 / math.sqrt(2 * FEATURES)
    assert abs(error.mean()) < 0.2 / math.sqrt(2 * FEATURES)


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 2**16))
@settings(max_examples=40)
def test_a_units_length_is_one_whatever_its_phrases_are(phrases, units, seed):
    some = points(phrases * units, seed) * np.float32(10.0 ** (seed % 5 - 2))
    found = KERNEL.of_phrases(on_grid(some), np.arange(0, phrases * units, phrases)).astype(float)
    assert (found**2).sum(1) == pytest.approx(np.ones(units), abs=1e-4)
    assert found.shape == (units, 2 * FEATURES)


def test_what_is_in_common_counts_for_more_than_what_is_not():
    """Three phrases in one place and one elsewhere, as far apart as places are: three parts to one, of length 1."""
    here, there = single(points(1)).astype(float)[0], single(-points(1)).astype(float)[0]
    some = np.concatenate([points(1), points(1), points(1), -points(1)])
    found = KERNEL.of_phrases(on_grid(some), np.array([0])).astype(float)[0]
    expected = 3 * here + there
    assert found == pytest.approx(expected / np.linalg.norm(expected), abs=1e-5)


def test_squares_of_the_longest_sums_fit():
    """As many phrases in one place as may be, and as many frequencies."""
    wide = FourierFeatures.of(2, MOST_FEATURES, Decimal(1))
    some = np.repeat(np.array([[1.0, 0.0]], np.float32), MOST_TOGETHER, axis=0)
    found = wide.of_phrases(on_grid(some), np.array([0])).astype(float)
    assert (found**2).sum() == pytest.approx(1, abs=1e-4)


def test_a_units_features_are_its_own_bit_for_bit():
    """In whichever company, place and number; a plain product of matrices fails this."""
    some = points(301)
    every = KERNEL.of_phrases(on_grid(some), np.arange(0, 301, 7))
    for unit in (0, 1, 21, 42):
        own = some[7 * unit : 7 * unit + 7]
        assert (KERNEL.of_phrases(on_grid(own), np.array([0]))[0] == every[unit]).all()
    turned = on_grid(np.ascontiguousarray(some[::-1]))[::-1]
    assert (KERNEL.of_phrases(turned, np.arange(0, 301, 7)) == every).all()


def test_the_order_of_a_units_phrases_changes_no_bit():
    some = on_grid(points(9))
    assert (KERNEL.of_phrases(some, np.array([0])) == KERNEL.of_phrases(some[::-1].copy(), np.array([0]))).all()


def test_products_are_never_rounded():
    """The longest sums times the longest frequencies, against exact integers."""
    narrow = FourierFeatures.of(WIDTH, 40, Decimal("0.000001"))
    steps = on_grid(points(3)) * MOST_TOGETHER
    turns = narrow.scaled(1)
    longest = np.linalg.norm(turns, axis=1).min()
    assert longest * FEATURE_STEPS > 2**27  # they have been brought down, in public
    found = narrow.of_together(steps, MOST_TOGETHER)
    within = [[int(x) for x in np.trunc(row)] for row in _brought_down(narrow.scaled(MOST_TOGETHER))]
    for row, step in enumerate(steps.tolist()):
        for column, turn in enumerate(within):
            angle = (sum(a * b for a, b in zip(step, turn, strict=True)) >> 26) % 2**14
            exact = math.cos((angle + 0.5) * 2 * math.pi / 2**14) / math.sqrt(40)
            assert found[row, column] == pytest.approx(exact, abs=1e-6)


def _brought_down(turns: np.ndarray) -> np.ndarray:
    lengths = np.sqrt((turns**2).sum(axis=1, keepdims=True))
    return turns * np.minimum(1.0, 2**27 / 2**20 / lengths) * 2**20


def test_phrases_together_are_as_far_apart_as_one_is():
    """Sums of j over sqrt(j): the kernel of one point, whatever j is."""
    one, other = points(4, 2), points(4, 3)
    sums = on_grid(one).sum(0)[None], on_grid(other).sum(0)[None]
    apart = ((sums[0] - sums[1]) / FEATURE_STEPS / 2) ** 2
    found = KERNEL.of_together(sums[0], 4) @ KERNEL.of_together(sums[1], 4).T
    assert found[0, 0] == pytest.approx(math.exp(-apart.sum() / (2 * 0.7**2)), abs=0.1)
    assert KERNEL.of_together(on_grid(one), 1) == pytest.approx(single(one), abs=1e-5)


def test_frequencies_are_public_and_the_same_everywhere():
    again = FourierFeatures.of(WIDTH, FEATURES, Decimal("0.7"))
    assert (again.turns == KERNEL.turns).all()
    assert not (FourierFeatures.of(WIDTH, FEATURES, Decimal("0.8")).turns == KERNEL.turns).any()
    spread = KERNEL.turns.std() * 2 * math.pi * 0.7
    assert spread == pytest.approx(1, rel=0.03)
    assert KERNEL.turns[0, 0] == pytest.approx(0.1553838610263404, rel=1e-12)


def test_too_many_phrases_together_are_refused():
    for together in (0, MOST_TOGETHER + 1):
        with pytest.raises(ValueError, match="phrases together"):
            KERNEL.of_together(on_grid(points(1)), together)


def test_what_is_not_finite_has_the_place_of_nothing():
    broken = points(2)
    broken[1, 3] = np.nan
    assert (on_grid(broken)[1] == 0).all()
    assert np.isfinite(single(broken)).all()
