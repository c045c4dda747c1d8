"""Registry of mechanisms by stable name, from a stored event back to its charge; the loss when a unit is replaced.

`almoner verify-release` trusts no stored figure: it rebuilds each event from its parameters with the code
that once charged it, and compares. A name is never removed from here and never changes its meaning
(`models_db.values.events`); an unknown one is refused, not guessed. An extension's mechanism is recomputed where the
extension is installed.

Loss of a mechanism when one unit is REPLACED, from an event stated for add-or-remove-one (PRIVACY §1). Replacing is
removing and adding: twice the sensitivity, so four times rho, holds for every mechanism. Where a unit moves at most k
entries of a vector by exactly 1, and every entry has noise of its own, twice rho is enough:

* `noisy_count`: a unit is in one block, so it moves one of the counts of all blocks by 1, and its replacement another.
* `noisy_histogram`: a unit is in at most one bin, by a function of that unit alone; as above, with bins for blocks.
* `set_histogram`: a unit adds 0/1 to at most k bins. Two such vectors differ by 1 in at most 2k entries: with Gaussian
  noise the L2 sensitivity is sqrt(2k), so 2k/(2 sigma^2) (Canonne, Kamath, Steinke, arXiv 2004.00010, Theorem 14);
  with Laplace noise 2k entries of loss (epsilon/k) each add up to twice the rho of k (Bun and Steinke, Lemma 1.7).
* `kmeans`: its rounds of counts are as above. Its rounds of sums are not: two vectors of norm S in one leaf can be
  2S apart, so four times.

Mechanisms of one release add up, each at its own factor, because each is zCDP under replace-one by itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from models_db.errors import AlmonerError, Refused
from models_db.values.amounts import Amount, total_amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.zcdp import replace_one
from tasks.common import extensions
from tasks.mechanisms.core import uncharged
from tasks.mechanisms.counts import (
    noisy_count,
    noisy_histogram,
    partition_selection,
    set_histogram,
    threshold_selection,
)
from tasks.mechanisms.tokens import integer_table, sparse_vector
from tasks.mechanisms.vectors import kde_sketch, kmeans_rounds, noisy_mean

_Rebuild: TypeAlias = Callable[[PrivacyEvent], PrivacyEvent]
"""Function that makes an event anew from the parameters of a stored one."""


def _of_extensions() -> Iterator[tuple[str, _Rebuild]]:
    for name, rebuild in extensions.load(extensions.MECHANISMS).items():
        if not callable(rebuild):
            raise extensions.unfit(extensions.MECHANISMS, name, "it is not a function")
        yield name, rebuild


_OWN: Mapping[str, _Rebuild] = {
    integer_table.MECHANISM: lambda event: integer_table.IntegerTableMechanism.from_event(event).event(event.count),
    sparse_vector.MECHANISM: lambda event: sparse_vector.SparseVector.from_event(event).event(event.count),
    noisy_count.MECHANISM: lambda event: noisy_count.NoisyCount.from_event(event).event(event.count),
    noisy_histogram.MECHANISM: lambda event: noisy_histogram.NoisyHistogram.from_event(event).event(event.count),
    set_histogram.MECHANISM: lambda event: set_histogram.SetHistogram.from_event(event).event(event.count),
    partition_selection.MECHANISM: lambda event: partition_selection.PartitionSelection.from_event(event).event(
        event.count
    ),
    threshold_selection.GAUSSIAN_SELECTION: lambda event: threshold_selection.GaussianSelection.from_event(event).event(
        event.count
    ),
    threshold_selection.WEIGHTED_SELECTION: lambda event: threshold_selection.WeightedSelection.from_event(event).event(
        event.count
    ),
    kmeans_rounds.MECHANISM: lambda event: kmeans_rounds.KMeansRounds.from_event(event).event(event.count),
    kde_sketch.MECHANISM: lambda event: kde_sketch.KdeSketches.from_event(event).event(event.count),
    noisy_mean.MECHANISM: lambda event: noisy_mean.NoisyMean.from_event(event).event(event.count),
    uncharged.MECHANISM: lambda event: uncharged.PostProcessing.from_event(event).event(),
    **{name: lambda event: uncharged.uncharged(event.mechanism) for name in uncharged.NAMES},
}
MECHANISMS = extensions.Registry(_OWN, _of_extensions)


def recompute(event: PrivacyEvent) -> Amount:
    """Return the charge of `event`, from its parameters alone; its stored loss is not looked at.

    Raises:
        UnknownMechanism: this version knows no mechanism of that name.
        EventInconsistent: the parameters are not that mechanism's, or its dp-accounting event or relation
        says
            something else than they do.
    """
    if event.mechanism not in MECHANISMS:
        raise Refused(
            f"This version of almoner knows no mechanism {event.mechanism!r}.",
            "Read the record with the version that wrote it, or a later one; where the name has a dot, install the "
            "extension that it belongs to.",
            {"mechanism": event.mechanism},
            code="UnknownMechanism",
        )
    try:
        rebuilt = MECHANISMS[event.mechanism](event)
    except (KeyError, TypeError, ValueError, AlmonerError):
        raise _event_inconsistent(event.mechanism) from None
    same = (
        rebuilt.mechanism == event.mechanism
        and rebuilt.count == event.count
        and dict(rebuilt.parameters) == dict(event.parameters)
        and rebuilt.dp_event == event.dp_event
        and rebuilt.relation == event.relation
    )
    if not same:
        raise _event_inconsistent(event.mechanism)
    return rebuilt.loss


def _event_inconsistent(name: str) -> Refused:
    return Refused(
        f"A stored {name!r} event does not follow from its own parameters.",
        "The record was altered or damaged: do not rely on its claim.",
        {"mechanism": name},
        code="EventInconsistent",
    )


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
    parents = uncharged.loss_paid_by_parent(events) - total_amount([event.loss for event in events])
    return total_amount([replace_one_loss(event) for event in events] + [replace_one(parents)])
