"""Audits of noisy rounds and of clusterers (PRIVACY §8): the honest stay below their claim, broken twins exceed it.

A twin is run on the inputs of the case `kmeans`, or on a lone unit, and compared with the same claim,
the epsilon <= 1 that the charged rho gives at DELTA. The true epsilon of the honest rounds is 0.76 (continuous
Gaussian), of half the noise 2.10, of two rounds at the price of one 1.25.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.analysis.clustering.clusterers import clusterer_for
from tasks.analysis.clustering.coreset import Coreset
from tasks.analysis.clustering.parameters import ClusterSettings
from tasks.auditing.audit import DELTA, DRAWS, EPSILON, REFERENCES
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.auditing.worst_cases import LONG_VECTOR, observed_rounds
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_count import SIGMA_GRID
from tasks.mechanisms.vectors.kmeans_rounds import KMeansRounds, Rounds, binned_sums, calibrate_rounds

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms")

CONFIDENCE = 0.9999
CLAIM = 1.0
TRIALS = 20_000
RHO = rho_of(EPSILON, DELTA)
HONEST = calibrate_rounds(RHO, DRAWS, DRAWS, "0.5")
OTHERS = REFERENCES - 1


def audit(
    twin: type[Rounds] = Rounds, made: KMeansRounds = HONEST, others: int = OTHERS, trials: int = TRIALS
) -> float:
    """The bound where `twin` makes the rounds `made`, whatever is paid for."""

    def sample(present: bool) -> list[int]:
        return list(observed_rounds(twin(made, OS_RANDOM), made, present, others, trials))

    return bound(sample(True), sample(False))


def bound(with_unit: list[int], without: list[int]) -> float:
    return epsilon_lower_bound(with_unit, without, float(DELTA), CONFIDENCE).epsilon


def halved(sigma: Fraction) -> Fraction:
    return Fraction(int(sigma * SIGMA_GRID) // 2, SIGMA_GRID)


@pytest.mark.parametrize("share", ["0.1", "0.5", "0.9"])
@pytest.mark.parametrize("others", [0, OTHERS])
def test_honest_rounds_stay_below_their_claim_and_are_seen(share, others):
    made = calibrate_rounds(RHO, 3, 2, share)
    assert 0.999 < epsilon_of(made.event().loss.rho, DELTA) <= CLAIM
    assert 0.2 < audit(made=made, others=others, trials=TRIALS // 2) < CLAIM


def test_half_the_noise_exceeds_the_claim():
    vectors = replace(HONEST.vectors, sigma_steps=halved(HONEST.vectors.sigma_steps))
    assert audit(made=replace(HONEST, count_sigma=halved(HONEST.count_sigma), vectors=vectors)) > CLAIM


def test_half_the_noise_on_either_alone_exceeds_the_claim():
    """Where that kind has most of the budget."""
    counts, sums = calibrate_rounds(RHO, 2, 1, "0.95"), calibrate_rounds(RHO, 1, 2, "0.05")
    assert audit(made=replace(counts, count_sigma=halved(counts.count_sigma))) > CLAIM
    less = replace(sums.vectors, sigma_steps=halved(sums.vectors.sigma_steps))
    assert audit(made=replace(sums, vectors=less)) > CLAIM


class Unclipped(Rounds):
    """Adds up vectors as long as they are."""

    def sums(self, points, bin_of, bins):
        def steps(rows: torch.Tensor) -> torch.Tensor:
            return (rows * 2**self.paid.vectors.grid_exponent).to(torch.int64)

        noisy = self._noisy(self.paid.vectors, binned_sums(steps, points, bin_of, bins))
        return np.ldexp(noisy.astype(np.float64), -self.paid.vectors.grid_exponent)


def test_sums_without_clipping_exceed_the_claim():
    assert audit(Unclipped, trials=1000) > CLAIM


class Unmetered(Rounds):
    """Makes as many rounds as it is asked for."""

    def _use(self, kind: str) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "share"), [("count_rounds", "0.98"), ("sum_rounds", "0.02")])
def test_rounds_that_are_not_paid_exceed_the_claim(kind, share):
    """As a tree whose every level is counted at the price of one."""
    paid = calibrate_rounds(RHO, 1, 1, share)
    assert audit(made=paid) < CLAIM
    assert audit(Unmetered, replace(paid, **{kind: 8})) > CLAIM


class SilentWhereEmpty(Rounds):
    """Adds noise where somebody is."""

    def counts(self, bin_of, bins):
        empty = np.bincount(bin_of[bin_of >= 0], minlength=bins) == 0
        return np.where(empty, 0, super().counts(bin_of, bins))

    def sums(self, points, bin_of, bins):
        empty = np.bincount(bin_of[bin_of >= 0], minlength=bins) == 0
        return np.where(empty[:, None], 0.0, super().sums(points, bin_of, bins))


def test_empty_bins_without_noise_exceed_the_claim():
    assert audit(SilentWhereEmpty, others=0, trials=4000) > CLAIM


class SharedNoise(Rounds):
    """Draws one noise for all coordinates of a sum: it cancels in what a unit can move."""

    def sums(self, points, bin_of, bins):
        exact = binned_sums(self.paid.vectors.quantised, points, bin_of, bins)
        noisy = exact + self._noisy(self.paid.vectors, np.zeros((bins, 1), np.int64))
        return np.ldexp(noisy.astype(np.float64), -self.paid.vectors.grid_exponent)


def test_one_noise_for_all_coordinates_exceeds_the_claim():
    assert audit(SharedNoise, calibrate_rounds(RHO, 1, 1, "0.02"), trials=1000) > CLAIM


class InSixBins(Rounds):
    """Counts a unit in six bins, each with the noise for one, as clusters that overlap would."""

    def counts(self, bin_of, bins):
        return np.sum([super(InSixBins, self).counts(bin_of, bins) for _ in range(6)], axis=0)

    def _use(self, kind: str) -> None:
        pass


def test_a_unit_in_several_bins_exceeds_the_claim():
    paid = calibrate_rounds(RHO, 1, 1, "0.98")
    assert audit(InSixBins, paid) > CLAIM


ALONG = (LONG_VECTOR / np.linalg.norm(LONG_VECTOR)).astype(np.float32)
NEIGHBOURS = np.stack([-ALONG] * 12)  # enough of them that their centre is kept


def released(method: str, present: bool, trials: int) -> list[int]:
    """What all released points of a whole clustering say about the unit, weighted as they are."""
    points = np.concatenate([NEIGHBOURS, ALONG[None][: int(present)]])
    public = np.concatenate([NEIGHBOURS[:1], ALONG[None]])
    clusterer = clusterer_for(ClusterSettings(method=method, count=1, rounds=1, depth=1), RHO)
    told = []
    for _ in range(trials):
        coreset = Coreset.from_json(clusterer.draw(points, public, OS_RANDOM))
        told.append(round(1000 * float(coreset.weights @ coreset.points.astype(np.float64) @ ALONG)))
    return told


@pytest.mark.slow
@pytest.mark.parametrize("method", ["anchored", "lsh_tree", "lloyd"])
def test_whole_clusterings_stay_below_their_claim(method):
    assert bound(released(method, True, 1500), released(method, False, 1500)) < CLAIM


@pytest.mark.parametrize("method", ["anchored", "lsh_tree", "lloyd"])
def test_whole_clusterings_without_noise_exceed_the_claim(method, monkeypatch):
    """So the audit of the whole sees the unit at all."""
    monkeypatch.setattr(Rounds, "_noisy", lambda self, noise, exact_sums: exact_sums)
    assert bound(released(method, True, 1000), released(method, False, 1000)) > CLAIM
