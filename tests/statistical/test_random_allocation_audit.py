"""Audit of random allocation (PRIVACY §8): drawn releases, the partition's own assignment, both directions.

A release is 32 batches of eight binary draws, too many outcomes to list; each draw depends on all earlier ones of all
batches, as in `tests.toy_release`. The attacker computes the exact likelihood ratio of every release. The estimate of
the least delta at the proven epsilon is a mean of numbers in [0, 1], so Hoeffding's inequality bounds its error. The
twins break one hypothesis each and must exceed the claim.
"""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.accounting.random_allocation import RandomAllocation, allocation_figures
from tasks.corpus.partition import BatchSplit
from tests.toy_release import probability

pytestmark = pytest.mark.statistical

BATCHES, DRAWS, ETA, DELTA, TRIALS = 32, 8, 0.8, "0.01", 20_000
RHO = math.ceil(DRAWS * ETA**2 / 8 * 1e12)
FIGURES = allocation_figures(RandomAllocation.whole(RHO, BATCHES), DELTA)
ERROR = math.sqrt(math.log(1e9) / (2 * TRIALS))
"""By how much an estimate is off with a probability of 1e-9."""

# P(1) by (parity of the batch, parity of earlier ones), the unit absent and present
ABSENT, PRESENT = (
    np.array([[probability(batch, odd, shift)[1] for odd in (0, 1)] for batch in (0, 1)]) for shift in (0.0, ETA)
)
Places = NDArray[np.int64]
Floats = NDArray[np.float64]


def split_of(release: int, attempt: int = 1) -> BatchSplit:
    """A split with a key and a name of its own."""
    return BatchSplit((release << 8 | attempt).to_bytes(32, "big"), f"{release:032x}/{attempt}")


def fresh_places(trials: int) -> Places:
    """The unit's batch in each release, by the keyed hash of a split of its own: int64 [trials, 1]."""
    places = [split_of(trial).batch_of("patient 17", BATCHES) for trial in range(trials)]
    return np.array(places)[:, None]


def log_ratios(places: Places | None, seed: int) -> Floats:
    """Draw TRIALS releases with a unit in `places`, or in none; ln of each batch's ratio, float64 [trials, batches]."""
    rng, batch = np.random.default_rng(seed), np.arange(BATCHES) % 2
    here = np.zeros((TRIALS, BATCHES), bool)
    if places is not None:
        np.put_along_axis(here, places, True, axis=1)
    ones, total = np.zeros(TRIALS, int), np.zeros((TRIALS, BATCHES))
    for _ in range(DRAWS):
        absent, present = (law[batch[None, :], ones[:, None] % 2] for law in (ABSENT, PRESENT))
        bits = rng.random(here.shape) < np.where(here, present, absent)
        total += np.log(np.where(bits, present / absent, (1 - present) / (1 - absent)))
        ones += bits.sum(axis=1)
    return total


def deltas(present: Floats, absent: Floats) -> tuple[float, float]:
    """Estimates of the least delta at the proven epsilons, remove and add, from ratios of releases of either law."""
    remove = np.maximum(1 - math.exp(float(FIGURES.remove)) / present, 0)
    add = np.maximum(1 - math.exp(float(FIGURES.add)) * absent, 0)
    return float(remove.mean()), float(add.mean())


def whole_ratio(logs: Floats) -> Floats:
    """What a reader knows who does not know the batch: the mean over all of them."""
    return np.exp(logs).mean(axis=1)


def ratio_of(logs: Floats, places: Sequence[tuple[int, ...]]) -> Floats:
    """The same of a unit that is in all batches of one of `places`, each as likely as another."""
    ratios: Floats = np.mean([np.exp(logs[:, list(place)].sum(axis=1)) for place in places], axis=0)
    return ratios


def test_a_secret_assignment_stays_below_the_claim_in_both_directions() -> None:
    remove, add = deltas(whole_ratio(log_ratios(fresh_places(TRIALS), seed=1)), whole_ratio(log_ratios(None, seed=2)))
    assert remove - ERROR <= float(DELTA)
    assert add - ERROR <= float(DELTA)


def test_an_assignment_that_is_known_exceeds_it() -> None:
    """Every release has the same split, and somebody has found out where it puts the unit."""
    place = split_of(0).batch_of("patient 17", BATCHES)
    present = log_ratios(np.full((TRIALS, 1), place), seed=3)
    remove, add = deltas(ratio_of(present, [(place,)]), ratio_of(log_ratios(None, seed=4), [(place,)]))
    assert min(remove, add) - ERROR > float(DELTA)


def test_a_unit_that_moves_several_batches_exceeds_it() -> None:
    """As with batches of a capped size, where one unit more pushes others on: here it moves eight of 32."""
    groups = [tuple(range(first, first + 8)) for first in range(0, BATCHES, 8)]
    chosen = np.array(groups)[np.random.default_rng(5).integers(len(groups), size=TRIALS)]
    remove, add = deltas(ratio_of(log_ratios(chosen, seed=6), groups), ratio_of(log_ratios(None, seed=7), groups))
    assert min(remove, add) - ERROR > float(DELTA)


def test_the_assignment_is_uniform_over_releases_and_of_two_units_independent() -> None:
    """The hypothesis itself, of the keyed hash: 64 pairs of batches of two units, chi-square with 63 degrees."""
    pairs = np.zeros((8, 8))
    for release in range(20_000):
        one, other = (split_of(release).batch_of(unit, 8) for unit in ("a", "b"))
        pairs[one, other] += 1
    # above 160 with a probability of 3e-10 for a random function
    assert ((pairs - 312.5) ** 2 / 312.5).sum() < 160


def test_two_attempts_of_one_request_put_a_unit_independently() -> None:
    same = sum(split_of(n).batch_of("a", 8) == split_of(n, 2).batch_of("a", 8) for n in range(20_000))
    assert abs(same - 2500) < 6 * math.sqrt(2500 * 7 / 8)
