"""Counts drawn towards what closeness lets expect: nothing without noise, much with it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.analysis.keywords.denoise import Expectation, closeness_of, estimated

CLUSTERS, KEYWORDS = 20, 150
SIZES = np.full(CLUSTERS, 150.0)


def world(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """True counts that rise with closeness, with a spread of their own; and the closeness."""
    generator = np.random.default_rng(seed)
    closeness = generator.normal(0, 0.2, (CLUSTERS, KEYWORDS))
    share = np.clip(closeness - 0.3, 0, None) * generator.gamma(2, 0.5, closeness.shape)
    return np.round(SIZES[:, None] * share), closeness


def found(truth: NDArray[np.float64], believed: NDArray[np.float64]) -> float:
    """How many of each cluster's ten true first keywords are among the ten believed ones."""
    first = [
        set(np.argsort(-own)[:10]) & set(np.argsort(-true)[:10]) for own, true in zip(believed, truth, strict=True)
    ]
    return float(np.mean([len(some) for some in first]))


@pytest.mark.parametrize("seed", range(5))
def test_without_noise_counts_stay_what_they_are(seed: int) -> None:
    truth, closeness = world(seed)
    assert np.abs(estimated(truth, SIZES, closeness, 1e-9) - truth).max() < 0.01


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("deviation", [5.0, 10.0, 20.0])
def test_with_noise_they_are_nearer_to_the_truth_and_find_more_of_it(seed: int, deviation: float) -> None:
    truth, closeness = world(seed)
    noisy = truth + np.random.default_rng(100 + seed).normal(0, deviation, truth.shape)
    believed = estimated(noisy, SIZES, closeness, deviation**2)
    assert np.mean((believed - truth) ** 2) < 0.5 * np.mean((noisy - truth) ** 2)
    assert found(truth, believed) > 1.3 * found(truth, noisy)


def test_closeness_that_says_nothing_does_little_harm() -> None:
    with_it, without = 0.0, 0.0
    for seed in range(10):
        truth, closeness = world(seed)
        generator = np.random.default_rng(50 + seed)
        noisy = truth + generator.normal(0, 10, truth.shape)
        with_it += found(truth, estimated(noisy, SIZES, generator.normal(0, 1, closeness.shape), 100.0))
        without += found(truth, noisy)
    assert with_it > 0.9 * without


def test_what_is_expected_never_falls_with_closeness_nor_below_nothing() -> None:
    truth, closeness = world(3)
    noisy = truth + np.random.default_rng(7).normal(0, 30, truth.shape)
    expected = Expectation.of(noisy, SIZES, closeness, 900.0)
    order = closeness.ravel().argsort()
    assert (np.diff(expected.mean.ravel()[order]) >= -1e-12).all()
    assert expected.mean.min() >= 0
    assert expected.spread.min() >= 0


@pytest.mark.parametrize(("clusters", "keywords"), [(0, 5), (1, 1), (1, 3), (2, 1), (3, 0)])
def test_few_cells_are_no_error(clusters: int, keywords: int) -> None:
    shape = clusters, keywords
    centres, words = np.ones((clusters, 4), np.float32), np.ones((keywords, 4), np.float32)
    close = closeness_of(centres, words)
    believed = estimated(np.full(shape, 3.0), np.full(clusters, 10.0), close, 4.0)
    assert believed.shape == shape
    assert np.isfinite(believed).all()


def test_what_all_centres_share_does_not_count() -> None:
    """Every centre points the same way, and a little its own."""
    common = np.eye(1, 4, dtype=np.float32) * 5
    own = np.eye(3, 4, k=1, dtype=np.float32)
    close = closeness_of(common + own, own)
    assert close.argmax(1).tolist() == [0, 1, 2]
    assert close.max() > 0.9
