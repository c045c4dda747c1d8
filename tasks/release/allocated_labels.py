"""Labels of a release whose texts were allocated in proportion to a noisy histogram: what follows from its counts."""

from dataclasses import dataclass
from decimal import Decimal

from tasks.mechanisms.counts import noisy_histogram
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.planning.batches import AllocatedLayout
from tasks.planning.label_allocation import (
    BATCHES_PER_LABEL,
    LABEL_COUNTS,
    allocation_of_request,
    format_counts,
    parse_counts,
)
from tasks.release.record import ReleaseRecord

FIGURES = (LABEL_COUNTS, BATCHES_PER_LABEL)
"""The released figures of a proportional allocation; a release with an equal one has neither."""


@dataclass(frozen=True)
class AllocatedLabels:
    """Noisy counts of a release, and the texts that follow from them.

    Attributes:
        counts: the noisy number of units of each label, in the order of the request; some may be negative.
        deviation: the scale of the noise, in units.
        layout: the texts and batches of each label.
    """

    counts: tuple[int, ...]
    deviation: Decimal
    layout: AllocatedLayout


def is_proportional(record: ReleaseRecord) -> bool:
    """Return whether the release bought a histogram to allocate its texts."""
    allocation = allocation_of_request(record.request["parameters"])
    first = [event.mechanism for event in record.events[:1]]
    return allocation is not None and first == [noisy_histogram.MECHANISM]


def allocated_labels(record: ReleaseRecord) -> AllocatedLabels | None:
    """Return the counts and what follows from them; None where texts are allocated equally.

    Raises:
        KeyError, ValueError, UsageError: the record lacks figures, or they do not follow from its counts.
    """
    parameters = record.request["parameters"]
    allocation = allocation_of_request(parameters)
    if allocation is None or not is_proportional(record):
        return None
    histogram = NoisyHistogram.from_event(record.events[0])
    counts = parse_counts(record.released[LABEL_COUNTS])
    if len(counts) != len(record.labels) or histogram.bins != len(counts):
        raise ValueError("not one count for each label")
    blocks, declared = len(record.request["plan"]["blocks"]), parameters.get("batches")
    layout = AllocatedLayout.of(allocation, counts, parameters["samples"], blocks, parameters["references"], declared)
    if record.released[BATCHES_PER_LABEL] != format_counts(layout.batches):
        raise ValueError("other batches than the counts lead to")
    deviation = Decimal(histogram.noise.sigma.numerator) / histogram.noise.sigma.denominator
    return AllocatedLabels(counts, deviation, layout)
