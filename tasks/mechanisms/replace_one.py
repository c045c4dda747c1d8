"""Loss of a mechanism when one unit is REPLACED, from an event stated for add-or-remove-one (PRIVACY §1).

Replacing is removing and adding: twice the sensitivity, so four times rho, holds for every mechanism. Where a unit
moves at most k entries of a vector by exactly 1, and every entry has noise of its own, twice rho is enough:

* `noisy_count`: a unit is in one block, so it moves one of the counts of all blocks by 1, and its replacement another.
* `noisy_histogram`: a unit is in at most one bin, by a function of that unit alone; as above, with bins for blocks.
* `set_histogram`: a unit adds 0/1 to at most k bins. Two such vectors differ by 1 in at most 2k entries: with Gaussian
  noise the L2 sensitivity is sqrt(2k), so 2k/(2 sigma^2) (Canonne, Kamath, Steinke, arXiv 2004.00010, Theorem 14);
  with Laplace noise 2k entries of loss (epsilon/k) each add up to twice the rho of k (Bun and Steinke, Lemma 1.7).
* `kmeans`: its rounds of counts are as above. Its rounds of sums are not: two vectors of norm S in one leaf can be
  2S apart, so four times.

Mechanisms of one release add up, each at its own factor, because each is zCDP under replace-one by itself.
"""

from collections.abc import Sequence

from models_db.values.amounts import Amount, total_amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.conversions import replace_one
from tasks.mechanisms.core import post_processing
from tasks.mechanisms.counts import noisy_count, noisy_histogram, set_histogram
from tasks.mechanisms.vectors import kmeans_rounds

ONE_HOT = frozenset({noisy_count.MECHANISM, noisy_histogram.MECHANISM, set_histogram.MECHANISM})
"""Mechanisms of which the proof above holds as a whole."""


def replace_one_loss(event: PrivacyEvent) -> Amount:
    """Return the loss of one event where one unit is replaced.

    Raises:
        ValueError: it has a failure probability; it is re-converted from its epsilon and delta instead.
        KeyError: its parameters are not its mechanism's.
    """
    if event.mechanism == kmeans_rounds.MECHANISM:
        rounds = kmeans_rounds.KMeansRounds.from_event(event)
        counts = rounds.one_hot.loss() * (rounds.count_rounds * event.count)
        return replace_one(counts, one_hot=True) + replace_one(event.loss - counts)
    return replace_one(event.loss, one_hot=event.mechanism in ONE_HOT)


def replace_one_losses(events: Sequence[PrivacyEvent]) -> Amount:
    """Return the loss of all events together; the loss of an extended release counts four times.

    Raises:
        ValueError, KeyError: as `replace_one_loss`.
    """
    parents = post_processing.loss_paid_by_parent(events) - total_amount([event.loss for event in events])
    return total_amount([replace_one_loss(event) for event in events] + [replace_one(parents)])
