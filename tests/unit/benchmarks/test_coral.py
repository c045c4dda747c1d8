"""Covariances that are to become another's, with and without enough rows for them."""

import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation.algorithms.logistic_regression import fit
from tasks.text.interfaces import Points

CORAL = importlib.import_module("benchmarks.in_context.coral")
Target, TargetPrivate, align, covariance = CORAL.Target, CORAL.TargetPrivate, CORAL.align, CORAL.covariance

TINY = 1e-9
WIDTH = 6


def rows(count: int, seed: int, rank: int = WIDTH, shift: float = 0.0) -> Points:
    """Correlated points that vary in `rank` directions."""
    generator = np.random.default_rng(seed)
    turned = np.linalg.qr(generator.normal(size=(WIDTH, WIDTH)))[0][:rank]
    mixed = generator.uniform(0.5, 2, rank)[:, None] * turned
    return generator.normal(size=(count, rank)) @ mixed + shift


def gap(first: Points, second: Points) -> float:
    return float(np.linalg.norm(covariance(first) - covariance(second)))


@pytest.mark.parametrize(("n", "m"), [(200, 90), (40, 1000), (7, 300)])
def test_the_aligned_covariance_and_mean_are_the_targets(n, m):
    source, target = rows(n, 1), rows(m, 2, shift=4)
    found = align(source, Target(target, "public"), TINY)
    assert covariance(found) == pytest.approx(np.cov(target.T), rel=1e-5, abs=1e-5)
    assert found.mean(0) == pytest.approx(target.mean(0))
    assert gap(source, target) > 1  # it was another before


def test_the_formula_by_another_way():
    """Square roots by scipy, of the covariances with the ridge that the paper adds, on features of variance 1."""
    from scipy.linalg import inv, sqrtm

    source, target = (each / each.std(0, ddof=1) for each in (rows(80, 3), rows(70, 4)))
    roots = [sqrtm(np.cov(each.T) + np.eye(WIDTH)).real for each in (source, target)]
    expected = (source - source.mean(0)) @ inv(roots[0]) @ roots[1] + target.mean(0)
    assert align(source, Target(target, "released")) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("rank", [1, 3, WIDTH])
@pytest.mark.parametrize("ridge", [TINY, 1.0])
def test_equal_sides_stay_as_they_are(rank, ridge):
    points = rows(30, 5, rank, shift=2)
    before = points.copy()
    assert align(points, Target(points, "public"), ridge) == pytest.approx(points, abs=1e-6)
    assert (points == before).all()


def test_a_target_of_lower_rank_is_met():
    source, target = rows(100, 6), rows(50, 7, rank=2)
    found = align(source, Target(target, "public"), TINY)
    assert covariance(found) == pytest.approx(covariance(target), abs=1e-4)


@pytest.mark.parametrize("count", [2, 4, 50])
def test_a_source_of_lower_rank_makes_no_variance_of_nothing(count):
    source, target = rows(count, 8, rank=3), rows(200, 9)
    found = align(source, Target(target, "public"), TINY)
    assert np.isfinite(found).all()
    values = np.linalg.eigvalsh(covariance(found))
    assert (values > 1e-6).sum() == min(3, count - 1)
    assert gap(found, target) > 0.1


@given(
    st.integers(1, 12), st.integers(1, 12), st.integers(1, WIDTH), st.integers(1, WIDTH), st.sampled_from([1e-6, 1.0])
)
def test_no_direction_ever_varies_more_than_the_targets_and_the_ridge(n, m, first, second, ridge):
    source, target = rows(n, 10, first), rows(m, 11, second)
    found = align(source, Target(target, "public"), ridge)
    least = ridge * (np.trace(covariance(source)) + np.trace(covariance(target))) / (2 * WIDTH)
    spare = covariance(target) + least * np.eye(WIDTH) - covariance(found)
    assert found.shape == source.shape
    assert np.linalg.eigvalsh(spare).min() >= -1e-6


@pytest.mark.parametrize("points", [np.ones((1, WIDTH)), np.full((9, WIDTH), 0.1), np.zeros((3, WIDTH))])
def test_sides_without_variance_have_their_mean_moved(points):
    assert align(points, Target(points + 5, "public")) == pytest.approx(points + 5)
    assert align(points, Target(rows(20, 12), "public")) == pytest.approx(
        np.tile(rows(20, 12).mean(0), (len(points), 1))
    )
    assert np.isfinite(align(rows(20, 12), Target(points, "public"))).all()


def test_no_rows_are_aligned_to_no_rows():
    assert align(np.empty((0, WIDTH)), Target(rows(5, 1), "public")).shape == (0, WIDTH)


def test_deep_corals_loss_has_nothing_left_to_do():
    """On aligned points it is zero for every classifier, and so its minimum is that without it."""
    source, target = rows(120, 13), rows(150, 14)
    classes = (source[:, 0] > source[:, 1]).astype(np.int64)
    found = align(source, Target(target, "public"), TINY)
    plain, deep = fit(found, classes, 2), fit(found, classes, 2, target)
    assert deep.weights == pytest.approx(plain.weights, abs=1e-3)
    unaligned = fit(source, classes, 2, target)
    assert unaligned.weights != pytest.approx(fit(source, classes, 2).weights, abs=1e-2)


def test_a_classifier_that_is_turned_with_the_domain_is_right_there():
    """Classes lie along another direction in the target; aligning finds it without one label of the target."""
    generator = np.random.default_rng(15)
    classes = generator.integers(0, 2, 400)
    plain = generator.normal(size=(400, 2)) * 0.3 + np.outer(2 * classes - 1, [1.5, 0.0])
    target = plain[200:] @ np.diag([0.1, 8.0]) + [3, 0]
    told = fit(align(plain[:200], Target(target, "public"), TINY), classes[:200], 2)(target)
    before = fit(plain[:200], classes[:200], 2)(target)
    assert (told == classes[200:]).mean() > 0.98
    assert (before == classes[200:]).mean() < 0.7


def test_a_private_target_is_refused_by_name_and_shows_nothing():
    with pytest.raises(TargetPrivate) as refused:
        Target(np.full((3, WIDTH), 0.123), "private")
    assert "0.123" not in str(refused.value)
    assert "0.123" not in repr(Target(np.full((3, WIDTH), 0.123), "public"))


@pytest.mark.parametrize("domain", ["", "Public", "internal"])
def test_what_is_not_declared_is_not_taken(domain):
    with pytest.raises(ValueError, match="public or released"):
        Target(rows(3, 1), domain)


def test_what_cannot_be_aligned():
    target = Target(rows(5, 1), "public")
    with pytest.raises(ValueError, match="dimensions"):
        align(np.ones((2, 3)), target)
    with pytest.raises(ValueError, match="finite"):
        align(np.full((2, WIDTH), np.nan), target)
    with pytest.raises(ValueError, match="needs a point"):
        Target(np.empty((0, WIDTH)), "public")
    for ridge in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="ridge"):
            align(rows(3, 2), target, ridge)
