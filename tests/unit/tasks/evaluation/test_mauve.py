"""MAUVE: the same figures as mauve-text for the same histograms, and what it says of corpora that are known."""

import numpy as np
import pytest

from tasks.analysis.clustering.kmeans import k_means, nearest_centre, principal
from tasks.evaluation.algorithms import frontier_area, plain_histogram, smoothed_histogram
from tasks.evaluation.distributions import mauve, mauve_bins
from tests.unit.tasks.evaluation.embedded_subjects import THEMES, number, subject, themed

# mauve-text 0.4.0, its divergence curve (25 mixtures) and area of the histograms of these counts, p before q, as they
# are and with 0.5 added to each count. Made once with numpy 2.4.6 and scikit-learn 1.9.1.
GOLDEN = [
    ((12, 7, 0, 3, 18), (10, 2, 5, 3, 20), 0.9, 0.989225889208077, 0.9954689863654509),
    ((12, 7, 0, 3, 18), (10, 2, 5, 3, 20), 5, 0.8126465411089792, 0.8972348433293811),
    ((1, 0, 0), (0, 1, 0), 0.9, 0.5515392575984817, 0.9792064465957775),
    ((1, 0, 0), (0, 1, 0), 5, 0.0040720962619612555, 0.6624570543019199),
    ((9, 1), (1, 9), 0.9, 0.8159505214200446, 0.8707465419640747),
    ((9, 1), (1, 9), 5, 0.08260150772177807, 0.15569226775175332),
    ((3, 4, 5, 6), (6, 5, 4, 3), 0.9, 0.997942006801306, 0.9986490858467167),
    ((3, 4, 5, 6), (6, 5, 4, 3), 5, 0.9481605669919146, 0.9646340102107112),
]

# mauve-text's own quantisation of 100 texts a side (five buckets), and what it then says at scaling 0.9.
THEIR_P, THEIR_Q = (0.13, 0.06, 0.18, 0.37, 0.26), (0.28, 0.23, 0.28, 0.08, 0.13)
THEIR_MAUVE, THEIR_MAUVE_STAR = 0.9778747812232518, 0.9799892264448671

# The mean over ten seeds of compute_mauve on the points of `clouds(300)` with 15 buckets and scaling 0.9; one seed
# differs from another by 0.005 (standard deviation).
THEIR_MEAN = 0.9796743078404917


def clouds(count):
    generator = np.random.default_rng(5)
    first, second = generator.normal(size=(300, 24)), generator.normal(size=(300, 24)) * 1.1 + np.linspace(0, 0.6, 24)
    return first[:count], second[:count]


@pytest.mark.parametrize(("p", "q", "scaling", "area", "star"), GOLDEN)
def test_the_area_is_that_of_mauve_text(p, q, scaling, area, star):
    p, q = np.array(p), np.array(q)
    assert float(frontier_area(plain_histogram(p), plain_histogram(q), scaling)) == pytest.approx(area, abs=1e-12)
    assert float(frontier_area(smoothed_histogram(p), smoothed_histogram(q), scaling)) == pytest.approx(star, abs=1e-12)
    assert float(frontier_area(plain_histogram(q), plain_histogram(p), scaling)) == pytest.approx(area, abs=1e-12)


def test_the_whole_of_mauve_text_in_its_own_quantisation():
    p, q = np.array(THEIR_P), np.array(THEIR_Q)
    assert float(frontier_area(p, q)) == pytest.approx(THEIR_MAUVE, abs=1e-12)
    assert float(frontier_area(smoothed_histogram(p * 100), smoothed_histogram(q * 100))) == pytest.approx(
        THEIR_MAUVE_STAR, abs=1e-12
    )


def test_our_quantisation_gives_what_theirs_gives_within_the_spread_of_seeds():
    """Two means of five and ten clusterings of spread 0.005 differ by 0.0027 (one standard error)."""
    p, q = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in clouds(300))
    together = principal(np.concatenate([p, q]), 0.9)
    found = []
    for seed in range(5):
        labels = nearest_centre(together, k_means(together, 15, seed))
        found.append(
            frontier_area(*(plain_histogram(np.bincount(side, minlength=15)) for side in (labels[:300], labels[300:])))
        )
    assert np.mean(found) == pytest.approx(THEIR_MEAN, abs=4 * 0.0027)


def test_equal_histograms_have_area_one():
    """mauve-text says 0.75 here: it sorts the points of a frontier that is one corner, and cuts it off."""
    assert float(frontier_area(np.array([0.5, 0.5]), np.array([0.5, 0.5]))) == pytest.approx(1)


def test_many_pairs_at_once():
    pairs = np.array([[3, 4, 5, 6], [1, 1, 1, 1]])
    area = frontier_area(plain_histogram(pairs), plain_histogram(pairs[:, ::-1]))
    assert area == pytest.approx([0.997942006801306, 1.0])


def test_a_bin_for_every_twenty_texts():
    assert [mauve_bins(count) for count in (2, 30, 50, 500, 1000)] == [2, 2, 2, 25, 50]


def test_a_like_corpus_is_near_one_and_another_one_lower():
    documents = themed(160, 1)
    like = mauve(subject(themed(80, 2), documents)).values
    other = mauve(subject(["zyx qq zz jj"] * 79 + ["zz"], documents)).values
    half = mauve(subject(themed(80, 2, THEMES[:2]), documents)).values
    assert number(like["mauve"]) > 0.98 > number(half["mauve"]) > number(other["mauve"])
    assert number(other["mauve"]) == pytest.approx(0.5515, abs=1e-3)  # where no bin is shared, with scaling 0.9
    assert number(like["corpus"]) > 0.98
    assert (like["bins"], like["texts"], like["documents"]) == (4, 80, 80)
    for found in (like, half, other):
        for name in ("mauve", "mauve_star"):
            assert 0 <= number(found[f"{name}_low"]) <= number(found[name]) <= number(found[f"{name}_high"]) <= 1
    assert number(half["mauve_high"]) < number(like["mauve_low"])


def test_a_copy_of_the_corpus():
    documents = themed(50, 1)
    found = mauve(subject(documents, documents)).values
    assert (found["mauve"], found["corpus"]) == ("1.0000", None)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_equal_texts_and_few_texts(count):
    found = mauve(subject(["same"] * count, ["same"] * count)).values
    assert (found["mauve"], found["bins"]) == ("1.0000", 2)
    assert mauve(subject(["same"] * count, themed(9, 1))).values["mauve"] is not None


def test_the_method_says_how():
    method = mauve(subject(["a b"], ["a"])).method
    assert all(part in method for part in ("letters 1", "scaling 0.9", "bin for every 20 texts", "2000"))


def test_k_means_finds_clusters_that_are_plain():
    generator = np.random.default_rng(0)
    places = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    points = np.concatenate([place + generator.normal(size=(40, 2)) for place in places])
    centres = k_means(points, 3, seed=1)
    assert sorted(nearest_centre(places, centres).tolist()) == [0, 1, 2]
    assert np.abs(centres[nearest_centre(places, centres)] - places).max() < 0.6
    assert np.bincount(nearest_centre(points, centres)).tolist() == [40, 40, 40]


def test_k_means_of_fewer_points_than_centres():
    points = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert len(set(nearest_centre(points, k_means(points, 5, seed=0)).tolist())) == 2


def test_principal_directions_keep_the_share_they_are_told():
    points = np.random.default_rng(0).normal(size=(500, 4)) * [10, 3, 1, 0.1]
    kept = principal(points, 0.9)
    assert kept.shape == (500, 1)
    assert principal(points, 0.95).shape == (500, 2)
    assert kept[:, 0].var() == pytest.approx(np.linalg.eigvalsh(np.cov(points.T, bias=True))[-1])
    assert principal(np.ones((3, 2)), 0.9).shape == (3, 1)
