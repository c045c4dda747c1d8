"""Sketches: what they cost, that one unit moves them by 1 at most, and that building them is exact and streams."""

import math
import tracemalloc
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models_db.values.amounts import Amount
from tasks.accounting.zcdp import replace_one
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts.noisy_count import NoiseInvalid
from tasks.mechanisms.vectors.kde_sketch import (
    LARGEST,
    MOST_FEATURES,
    MOST_LABELS,
    MOST_POSITIONS,
    STEPS,
    FourierFeatures,
    KdeSketches,
    calibrate_kde,
    on_grid,
)
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tests.refusals import refusal

SHAPES = st.tuples(st.integers(1, 100), st.integers(1, 20), st.integers(1, 20))
SMALL = KdeSketches(3, 2, 2, Fraction(1, 16))  # hardly any noise


def rows(count: int, sketches: KdeSketches = SMALL, seed: int = 0) -> np.ndarray:
    """Units' vectors, longer than they may be: float32 [count, positions, 2D]."""
    shape = (count, sketches.positions, 2 * sketches.features)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_the_loss_is_the_formula():
    """sigma 5 on a sum of vectors of norm 1, four positions: 4 / (2 * 25) = 0.08, whatever is drawn at once."""
    for features, labels in ((1, 1), (1000, 14)):
        sketches = KdeSketches(features, labels, 4, Fraction(5 * STEPS))
        assert sketches.sigma == 5
        assert sketches.loss() == Amount(8 * 10**10)
        assert sketches.event().loss == Amount(8 * 10**10)
        assert replace_one(sketches.loss()) == Amount(32 * 10**10)


@given(st.integers(10**9, 10**14), st.integers(1, 20))
@settings(max_examples=40)
def test_calibration_spends_nearly_all_and_never_more(rho, positions):
    sketches = calibrate_kde(rho, 10, 3, positions)
    assert 0.999 * rho < sketches.loss().rho <= rho
    with mpmath.workdps(40):
        sigma = mpmath.sqrt(positions * mpmath.mpf(10) ** 12 / (2 * rho))
    assert float(sketches.sigma) == pytest.approx(float(sigma), rel=1e-3)


def test_the_noise_is_the_noisy_means_and_opendp_confirms_it():
    sketches = calibrate_kde(10**11, 4, 2, 1)
    assert sketches.vectors == NoisyMean(2**20, sketches.sigma_steps, 20)
    drawn = sketches.draw(np.zeros((1, 2, 8), np.int64), OS_RANDOM)
    assert (drawn.shape, drawn.dtype) == ((1, 2, 8), np.int64)
    assert len(set(drawn.flatten().tolist())) == 16  # each number has noise of its own


@given(st.integers(0, 6), st.integers(0, 2**16))
@settings(max_examples=60)
def test_one_unit_moves_all_sketches_of_a_position_by_at_most_one(others, seed):
    vectors = rows(others + 1, seed=seed) * np.float32(10.0 ** (seed % 7 - 3))
    label_of = np.random.default_rng(seed).integers(0, 2, others + 1)
    with_it, without = SMALL.sums([(label_of, vectors)]), SMALL.sums([(label_of[1:], vectors[1:])])
    moved = (with_it - without).astype(object)
    for position in moved:
        assert (position**2).sum() <= STEPS**2
    assert not moved[:, 1 - label_of[0]].any()  # one label alone


def test_what_is_shorter_than_one_is_kept_and_what_is_broken_adds_nothing():
    vectors = np.zeros((2, 2, 6), np.float32)
    vectors[0, :, 1] = 0.25
    vectors[1, 0] = 0.25
    vectors[1, 1, 2] = np.inf
    sums = SMALL.sums([(np.array([1, 1]), vectors)])
    assert sums[0, 1].tolist() == [2**18, 2**19] + [2**18] * 4
    assert sums[1, 1].tolist() == [0, 2**18, 0, 0, 0, 0]
    assert not sums[:, 0].any()


def test_cutting_into_chunks_and_their_order_change_no_bit():
    vectors, label_of = rows(50), np.arange(50) % 2
    whole = SMALL.sums([(label_of, vectors)])
    parts = [slice(start, start + 7) for start in range(0, 50, 7)]
    assert (SMALL.sums((label_of[some], vectors[some]) for some in reversed(parts)) == whole).all()
    assert (SMALL.sums([]) == 0).all()
    assert SMALL.sums([]).shape == (2, 2, 6)


def test_memory_does_not_grow_with_the_number_of_units():
    sketches = KdeSketches(200, 3, 1, Fraction(STEPS))
    label_of, vectors = np.arange(64) % 3, rows(64, sketches)

    def peak(chunks: int) -> int:
        tracemalloc.start()
        sketches.sums((label_of, vectors) for _ in range(chunks))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(1)  # whatever is imported once
    few, many = peak(2), peak(40)
    assert many < 1.2 * few


def test_a_phrase_scores_what_its_kernel_says():
    """Two units with phrases at one place, one elsewhere, n = 4: half, a quarter, and nearly nothing."""
    kernel = FourierFeatures.of(8, 400, Decimal("0.3"))
    places = np.eye(8, dtype=np.float32)[:3]
    features = kernel.of_phrases(on_grid(places), np.arange(3))
    sketches = KdeSketches(400, 1, 1, Fraction(1, 16))
    sums = sketches.sums([(np.zeros(3, np.int64), features[[0, 0, 1], None])])
    density = sketches.density(sketches.draw(sums, OS_RANDOM), 4)
    assert (features @ density[0, 0]).tolist() == pytest.approx([0.5, 0.25, 0], abs=0.06)


def test_n_is_public_and_positive():
    noisy = np.full((2, 2, 6), STEPS, np.int64)
    assert (SMALL.density(noisy, 4) == 0.25).all()
    with pytest.raises(ValueError, match="public number of units"):
        SMALL.density(noisy, 0)


def test_what_does_not_fit_is_refused():
    good = rows(2)
    for label_of, vectors in (
        (np.array([0, 2]), good),
        (np.array([0, -1]), good),
        (np.array([0]), good),
        (np.array([0, 1]), good[:, :1]),
        (np.array([0, 1]), good[:, :, :4]),
    ):
        with pytest.raises(ValueError, match=r"vectors of shape|one of 2 labels"):
            SMALL.sums([(label_of, vectors)])
    with pytest.raises(ValueError, match="sketches of shape"):
        SMALL.draw(SMALL.sums([])[:1], OS_RANDOM)  # a label that nobody wrote under is drawn, too
    with pytest.raises(TypeError, match="integers"):
        SMALL.draw(SMALL.sums([]).astype(np.float64), OS_RANDOM)
    with pytest.raises(ValueError, match="at least one"):
        SMALL.event(0)


@pytest.mark.parametrize(
    "shape",
    [
        (0, 1, 1),
        (1, 0, 1),
        (1, 1, 0),
        (MOST_FEATURES + 1, 1, 1),
        (1, MOST_LABELS + 1, 1),
        (1, 1, MOST_POSITIONS + 1),
        (LARGEST // 2, 1, 1),
        (MOST_FEATURES, 200, 1),
    ],
)
def test_sketches_that_are_none_are_refused(shape):
    with refusal("SketchInvalid"):
        KdeSketches(*shape, Fraction(1))
    with refusal("SketchInvalid"):
        calibrate_kde(10**12, *shape)


def test_too_little_is_refused():
    with pytest.raises(NoiseInvalid):
        calibrate_kde(1, 10, 1, 5)
    with pytest.raises(NoiseInvalid):
        calibrate_kde(0, 10, 1, 1)


def test_another_source_of_randomness_is_repeatable_and_says_so():
    sketches = calibrate_kde(10**11, 4, 2, 1)
    sums = np.zeros((1, 2, 8), np.int64)
    once, again = (sketches.draw(sums, DeterministicRandom("kde")) for _ in range(2))
    assert (once == again).all()
    assert math.isfinite(float(once.std()))
