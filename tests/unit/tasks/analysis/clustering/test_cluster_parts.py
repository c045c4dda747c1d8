"""What clusterers are made of: public randomness, public points, k-means on what is released, and shrunk means."""

import numpy as np
import pytest
from scipy.special import ndtr

from tasks.analysis.clustering.coreset import (
    MOST_ANCHORS,
    Coreset,
    NoisyMeans,
    anchors_of,
    axes_of,
    directions_of,
    k_means,
    spread,
    squared_distances,
)
from tasks.mechanisms.core.public_stream import HashStream
from tasks.text.public_topics import PUBLIC_TOPICS, digest


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


GOLDEN = [0.7931761157285042, 0.5627398545391071]


class TestHashStream:
    def test_a_label_is_a_stream_for_ever(self):
        """Golden: releases depend on these numbers, so no version may change them."""
        assert HashStream("a").uniforms(2).tolist() == GOLDEN
        assert HashStream("b").uniforms(2).tolist() != GOLDEN

    def test_numbers_are_uniform_and_normal(self):
        uniforms = np.sort(HashStream("u").uniforms(20_000))
        assert 0 < uniforms[0] < uniforms[-1] < 1
        assert np.abs(uniforms - (np.arange(20_000) + 0.5) / 20_000).max() < 0.015  # Kolmogorov: 1.9 is 1e-3
        normals = np.sort(HashStream("n").normals(100, 200).ravel())
        assert np.abs(ndtr(normals) - (np.arange(20_000) + 0.5) / 20_000).max() < 0.015

    def test_directions_have_length_one(self):
        found = HashStream("d").directions(500, 8)
        assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(500))
        assert np.abs(found.mean(axis=0)).max() < 0.1

    def test_places_are_drawn_by_weight(self):
        stream, weights = HashStream("w"), np.array([0.0, 3.0, 0.0, 1.0, 0.0])
        counts = np.bincount([stream.chosen(weights) for _ in range(4000)], minlength=5)
        assert counts[[0, 2, 4]].sum() == 0
        assert 0.72 < counts[1] / 4000 < 0.78


class TestPublicPoints:
    def test_directions_leave_out_what_says_nothing(self):
        public = np.array([[3, 4], [0, 0], [np.nan, 1], [0.6, 0.8], [0, -2], [1e-5, 0]], np.float32)
        assert directions_of(public) == pytest.approx(np.array([[0.6, 0.8], [0, -1]]))

    @pytest.mark.parametrize("rows", [0, 1, 3, 40])
    def test_there_are_as_many_as_are_needed(self, rows):
        public = normal(rows, 6).astype(np.float32)
        found = spread(public, 8)
        assert found.shape == (8, 6)
        assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(8))
        assert len(np.unique(np.round(found, 6), axis=0)) == 8
        assert np.array_equal(found, spread(public, 8))

    def test_anchors_are_all_public_points_up_to_a_number(self, monkeypatch):
        public = normal(30, 6).astype(np.float32)
        assert anchors_of(public, 8) == pytest.approx(unit(public.astype(np.float64)))
        assert anchors_of(public[:3], 8).shape == (8, 6)
        monkeypatch.setattr("tasks.analysis.clustering.coreset.MOST_ANCHORS", 10)
        assert anchors_of(public, 8).shape == (10, 6)
        assert len(PUBLIC_TOPICS) + 200 < MOST_ANCHORS

    @pytest.mark.parametrize("rows", [0, 1, 2, 50])
    def test_axes_are_a_basis_with_what_differs_first(self, rows):
        public = (normal(rows, 5) * [1, 9, 1, 3, 1]).astype(np.float32)
        axes = axes_of(public)
        assert axes.T @ axes == pytest.approx(np.eye(5), abs=1e-9)
        if rows == 50:
            assert abs(axes[1, 0]) > 0.9


class TestKMeans:
    def test_planted_clusters_are_found_and_always_alike(self):
        topics = 10 * unit(normal(5, 8))
        points = np.repeat(topics, 30, axis=0) + 0.1 * normal(150, 8, seed=2)
        found = k_means(points, np.ones(150), 5, "test")
        assert squared_distances(topics, found).min(axis=1).max() < 0.1
        assert np.array_equal(found, k_means(points, np.ones(150), 5, "test"))

    def test_weights_count_as_repeated_points(self):
        points = np.array([[0.0], [1.0], [10.0]])
        assert k_means(points, np.array([3.0, 1.0, 0.0]), 1, "a") == pytest.approx(np.array([[0.25]]))
        assert sorted(k_means(points, np.array([1.0, 1.0, 0.0]), 3, "a")[:, 0]) == [0, 1]
        assert sorted(k_means(points, np.zeros(3), 3, "a")[:, 0]) == [0, 1, 10]

    def test_no_more_centres_than_different_points(self):
        assert k_means(np.ones((9, 2)), np.ones(9), 4, "a").tolist() == [[1, 1]]

    def test_few_released_points_are_the_centres(self):
        points = normal(3, 4).astype(np.float32)
        assert np.array_equal(Coreset(points, np.ones(3)).centres(3), points)
        assert Coreset(points, np.ones(3)).centres(2).shape == (2, 4)


class TestShrinkage:
    """64 clusters in 96 dimensions, means of length 0.45 that differ most along the first axes."""

    TRUE = np.concatenate([0.12 * normal(64, 12, seed=3), 0.01 * normal(64, 84, seed=4)], axis=1)
    EXPECTED = unit(TRUE + 0.05 * normal(64, 96, seed=5))
    SIZES = np.random.default_rng(6).integers(20, 200, 64).astype(float)

    def errors(self, sigma: float) -> tuple[float, float]:
        """Squared errors of shrunk means, and of plain ones."""
        sums = self.SIZES[:, None] * self.TRUE + sigma * normal(64, 96, seed=7)
        shrunk = NoisyMeans(sums, self.SIZES, sigma).shrunk(self.EXPECTED, np.eye(96))
        plain = sums / self.SIZES[:, None]
        return ((shrunk - self.TRUE) ** 2).sum(1).mean(), ((plain - self.TRUE) ** 2).sum(1).mean()

    def test_hardly_any_noise_leaves_means_alone(self):
        assert self.errors(1e-6)[0] < 1e-10

    @pytest.mark.parametrize(("sigma", "share"), [(1, 0.7), (5, 0.35), (20, 0.05)])
    def test_the_more_noise_the_more_is_won(self, sigma, share):
        shrunk, plain = self.errors(sigma)
        assert shrunk < share * plain

    def test_nothing_but_noise_gives_what_was_expected(self):
        """Never further away than the plain length of what is there; noise alone would be 40 times as far."""
        shrunk, plain = self.errors(200)
        assert plain > 40 * (self.TRUE**2).sum(1).mean()
        assert shrunk < 3 * (self.TRUE**2).sum(1).mean()

    def test_one_cluster_and_no_expectation(self):
        means = NoisyMeans(np.array([[50.0, 0.0]]), np.array([100.0]), 1.0)
        assert means.shrunk(np.zeros((1, 2)), np.eye(2)) == pytest.approx(np.array([[0.5, 0.0]]), abs=1e-3)
        still = NoisyMeans(np.zeros((3, 2)), np.ones(3), 1.0).shrunk(np.zeros((3, 2)), np.eye(2))
        assert np.isfinite(still).all()


class TestTopics:
    def test_there_are_some_hundred_short_ones_and_no_two_alike(self):
        assert 300 <= len(PUBLIC_TOPICS) <= 500
        assert len(set(PUBLIC_TOPICS)) == len(PUBLIC_TOPICS)
        assert all(3 <= len(topic) <= 60 and topic == topic.strip().lower() for topic in PUBLIC_TOPICS)

    def test_the_list_is_the_one_that_cards_name(self):
        """A changed list is another list: say so in the changelog, and change this."""
        assert digest() == "f8df05ff1df727619004514d9015f9d862736a823507924a3f20850e8fe8f6a0"
