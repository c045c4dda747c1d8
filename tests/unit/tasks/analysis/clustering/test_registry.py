"""Clusterers: one interface, stated behaviour at every edge, and clusters that are there are found."""

import base64
import json
from decimal import Decimal

import numpy as np
import pytest
from pydantic import ValidationError

from models_db.values.amounts import Amount
from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import model_to_json
from tasks.accounting.zcdp import rho_of
from tasks.analysis.clustering import coreset
from tasks.analysis.clustering.clusterers import clusterer_for
from tasks.analysis.clustering.coreset import Centroids, Coreset
from tasks.analysis.clustering.parameters import ClusterSettings
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts.noisy_count import NoiseInvalid
from tasks.mechanisms.registry import recompute
from tasks.mechanisms.vectors.kmeans_rounds import KMeansRounds, Rounds

pytestmark = pytest.mark.dear

METHODS = ["anchored", "lsh_tree", "lloyd"]
RHO = rho_of("2", "1e-6")
MUCH = 10**16  # noise that hardly shows
WIDTH = 16


def spread(rows: int, seed: int = 1, width: int = WIDTH) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(rows, width))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def planted(each: int, topics: np.ndarray, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """`each` units around every topic: float32 [n, d] of length 1, and which topic."""
    of = np.repeat(np.arange(len(topics)), each)
    points = topics[of] + noise * np.random.default_rng(2).normal(size=(len(of), topics.shape[1]))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32), of


def found(method: str, points: np.ndarray, public: np.ndarray, count: int = 6, rho: int = RHO, **said: object):
    clusterer = clusterer_for(ClusterSettings(method=method, count=count, **said), rho)
    released = json.loads(json.dumps(clusterer.draw(points, public, OS_RANDOM)))
    encode_canonical(released)
    centres = clusterer.centres(released, public)
    assert 1 <= len(centres) <= count
    assert centres.vectors.dtype == np.float32
    assert np.isfinite(centres.vectors).all()
    assert np.array_equal(clusterer.centres(released, public).vectors, centres.vectors)
    return centres


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("public", [spread(30, 3), spread(2, 3), spread(0, 3), np.ones((5, WIDTH), np.float32)])
@pytest.mark.parametrize(
    "points",
    [
        np.zeros((0, WIDTH), np.float32),
        spread(1),
        np.repeat(spread(1), 300, axis=0),
        spread(3),
        spread(200),
        np.full((20, WIDTH), np.nan, np.float32),
        np.zeros((50, WIDTH), np.float32),
    ],
    ids=["none", "one", "alike", "few", "some", "nan", "zero"],
)
def test_every_edge_gives_centres(method, count, public, points):
    """No unit, one, equal ones, fewer than k, broken ones, with any public points, at much noise and at little."""
    for rho in (10**8, MUCH):
        centres = found(method, points, public, count, rho)
        places = centres.assign(points)
        assert places.dtype == np.int64
        assert ((places >= 0) & (places < len(centres))).all()


@pytest.mark.parametrize("method", METHODS)
def test_units_that_are_all_alike_have_a_centre_where_they_are(method):
    point = spread(1)
    centres = found(method, np.repeat(point, 500, axis=0), spread(30, 3), 4, MUCH)
    assert np.linalg.norm(centres.vectors[centres.assign(point)[0]] - point[0]) < 0.01


@pytest.mark.parametrize("method", METHODS)
def test_planted_topics_are_found(method):
    """Six topics of 500 units, public points near them and elsewhere, hardly any noise."""
    topics = spread(6, 7)
    points, of = planted(500, topics)
    public = np.concatenate([planted(2, topics, 0.2)[0], spread(20, 9)])
    centres = found(method, points, public, 12, MUCH)
    places = centres.assign(points)
    shares = [np.bincount(of[places == place]).max() / (places == place).sum() for place in np.unique(places)]
    assert min(shares) > 0.95


@pytest.mark.slow
def test_anchored_clusters_survive_noise_that_others_do_not_survive():
    """Sizes and width as of small corpora: 100 units a topic, 256 numbers each, epsilon 1."""
    topics = spread(20, 7, 256)
    points, _ = planted(100, topics, 0.08)
    public = np.concatenate([planted(3, topics, 0.1)[0], spread(40, 9, 256)])
    rho = rho_of("1", "1e-6")
    alive = {
        method: (np.bincount(found(method, points, public, 20, rho).assign(points)) >= 30).sum() for method in METHODS
    }
    assert alive["anchored"] >= 15
    assert alive["anchored"] > alive["lloyd"]


@pytest.mark.parametrize("method", METHODS)
def test_the_charge_is_within_the_budget_and_can_be_recomputed(method):
    clusterer = clusterer_for(ClusterSettings(method=method), RHO)
    event = clusterer.event
    assert event.loss.fits(Amount(RHO))
    assert event.loss.rho > RHO * 0.999
    assert recompute(event) == event.loss
    assert clusterer.facts["clusterer"] == method
    assert all(isinstance(value, str) for value in clusterer.facts.values())
    assert ("public topics" in clusterer.facts) == (method != "lsh_tree")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("points", [np.zeros((0, WIDTH), np.float32), spread(300)])
def test_all_rounds_that_are_paid_for_are_made(method, points, monkeypatch):
    """Not one fewer, whatever the units are: how many there were would be told by time and by what is armed."""
    made = []
    monkeypatch.setattr(Rounds, "_use", lambda self, kind: made.append(kind))
    clusterer = clusterer_for(ClusterSettings(method=method, count=5), RHO)
    clusterer.draw(points, spread(30, 3), OS_RANDOM)
    paid = KMeansRounds.from_event(clusterer.event)
    assert (made.count("count"), made.count("sum")) == (paid.count_rounds, paid.sum_rounds)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rho", [0, 1, 1000])
def test_too_small_a_budget_is_told_before_anything_is_read(method, rho):
    with pytest.raises(NoiseInvalid):
        clusterer_for(ClusterSettings(method=method), rho)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_decided_by_the_order_of_units(method):
    """With the same noise, the units in another order give the same release, bit for bit."""
    points = spread(400)
    points[7] = np.nan
    order = np.random.default_rng(4).permutation(len(points))
    clusterer = clusterer_for(ClusterSettings(method=method, count=5), RHO)
    released = [
        clusterer.draw(rows, spread(30, 3), DeterministicRandom("the same")) for rows in (points, points[order])
    ]
    assert released[0] == released[1]


@pytest.mark.parametrize("method", METHODS)
def test_a_broken_row_is_as_absent(method):
    """With the same noise, a row that is not finite changes nothing."""
    points = spread(200)
    more = np.concatenate([points[:50], np.full((1, WIDTH), np.nan, np.float32), points[50:]])
    clusterer = clusterer_for(ClusterSettings(method=method, count=5), RHO)
    released = [clusterer.draw(rows, spread(30, 3), DeterministicRandom("the same")) for rows in (points, more)]
    assert released[0] == released[1]


@pytest.mark.parametrize("method", METHODS)
def test_broken_public_points_are_left_out(method):
    public = spread(30, 3)
    broken = np.concatenate([public, np.full((2, WIDTH), np.nan, np.float32), np.zeros((2, WIDTH), np.float32)])
    clusterer = clusterer_for(ClusterSettings(method=method, count=5), RHO)
    released = [clusterer.draw(spread(200), some, DeterministicRandom("the same")) for some in (public, broken)]
    assert released[0] == released[1]


def test_a_unit_is_assigned_by_itself():
    centres = Centroids(spread(9))
    points = spread(300)
    whole = centres.assign(points)
    assert [centres.assign(points[row : row + 1])[0] for row in range(len(points))] == whole.tolist()
    order = np.random.default_rng(3).permutation(len(points))
    assert np.array_equal(centres.assign(points[order]), whole[order])
    expected = ((points[:, None] - centres.vectors[None]) ** 2).sum(2).argmin(1)
    assert np.array_equal(whole, expected)


def test_equally_near_centres_and_broken_points():
    centres = Centroids(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, -0.5]], np.float32))
    points = np.array([[0.0, 1.0], [1.0, 1.0], [np.nan, 0.0]], np.float32)
    assert centres.assign(points).tolist() == [1, 0, 3]


def test_what_is_released_reads_back():
    released = Coreset(spread(3), np.array([1.0, 2.5, 1e6])).to_json()
    again = Coreset.from_json(json.loads(json.dumps(released)))
    assert np.array_equal(again.points, spread(3))
    assert again.weights.tolist() == [1.0, 2.5, 1e6]
    assert len(base64.b64decode(released["points"])) == 3 * WIDTH * 4


def test_every_unit_is_in_one_bin_at_most():
    from tasks.mechanisms.vectors.fixed_point import GridPoints

    points = spread(20)
    points[3] = np.inf
    found_bins = coreset.bins_of(GridPoints.of(points), spread(4).astype(np.float64))
    assert found_bins.shape == (20,)
    assert found_bins[3] == -1
    assert set(np.delete(found_bins, 3)) <= set(range(4))


def test_settings_say_everything_that_matters():
    assert model_to_json(ClusterSettings()) == {
        "method": "anchored", "count": 64, "rounds": 1, "depth": 10, "count_share": "0.3",
    }  # fmt: skip
    assert ClusterSettings(method="lloyd").rounds == 2
    assert ClusterSettings(method="lloyd", rounds=5).rounds == 5
    stored = model_to_json(ClusterSettings(method="lsh_tree", depth=4, count_share="0.5"))
    assert ClusterSettings.model_validate(stored) == ClusterSettings(
        method="lsh_tree", depth=4, count_share=Decimal("0.5")
    )


@pytest.mark.parametrize(
    "wrong",
    [{"method": "magic"}, {"count": 0}, {"count": 5000}, {"rounds": 0}, {"depth": 0}, {"count_share": "1"},
     {"count_share": "0"}, {"method": "lsh_tree", "rounds": 2}, {"clusters": 3}],
)  # fmt: skip
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValidationError):
        ClusterSettings(**wrong)
