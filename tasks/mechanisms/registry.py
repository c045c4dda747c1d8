"""Registry of mechanisms by stable name: it leads from a stored event back to its charge, offline.

`almoner verify-release` trusts no stored figure: it rebuilds each event from its parameters with the code
that once charged it, and compares. A name is never removed from here and never changes its meaning
(`models_db.values.events`); an unknown one is refused, not guessed. An extension's mechanism is recomputed where the
extension is installed.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from models_db.errors import AlmonerError, Refused
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.common import extensions
from tasks.mechanisms.core import post_processing, uncharged
from tasks.mechanisms.counts import (
    gaussian_selection,
    noisy_count,
    noisy_histogram,
    partition_selection,
    set_histogram,
    weighted_selection,
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
    gaussian_selection.MECHANISM: lambda event: gaussian_selection.GaussianSelection.from_event(event).event(
        event.count
    ),
    weighted_selection.MECHANISM: lambda event: weighted_selection.WeightedSelection.from_event(event).event(
        event.count
    ),
    kmeans_rounds.MECHANISM: lambda event: kmeans_rounds.KMeansRounds.from_event(event).event(event.count),
    kde_sketch.MECHANISM: lambda event: kde_sketch.KdeSketches.from_event(event).event(event.count),
    noisy_mean.MECHANISM: lambda event: noisy_mean.NoisyMean.from_event(event).event(event.count),
    post_processing.MECHANISM: lambda event: post_processing.PostProcessing.from_event(event).event(),
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
