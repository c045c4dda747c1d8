"""Labels of a release's texts, as a reader computes them again: equally many of each, or by a noisy histogram."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tasks.mechanisms.core import post_processing
from tasks.mechanisms.counts import noisy_histogram
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.planning.batches import AllocatedLayout, labels_in_order
from tasks.planning.label_allocation import (
    BATCHES_PER_LABEL,
    DEVIATION,
    LABEL_COUNTS,
    allocation_of_request,
    format_counts,
    parse_counts,
    texts_per_label,
)
from tasks.prompted_generation.evolution.planner import PrivateEvolution
from tasks.prompted_generation.keyphrases.planner import KeyphraseSeeding
from tasks.release.record import ReleaseRecord
from tasks.release.text_rows import labels_of_texts

FIGURES = (LABEL_COUNTS, BATCHES_PER_LABEL)
"""The released figures of a proportional allocation; a release with an equal one has neither."""

WITHOUT_BATCHES: Final = frozenset({KeyphraseSeeding.name, PrivateEvolution.name})
"""Systems whose texts belong to no batch, and so to no block."""


@dataclass(frozen=True)
class AllocatedLabels:
    """Noisy counts of a release, and the texts that follow from them.

    Attributes:
        counts: the noisy number of units of each label, in the order of the request; some may be negative.
        deviation: the scale of the noise, in units.
        texts: how many each label has.
        labels: of every text, in their public order.
    """

    counts: tuple[int, ...]
    deviation: Decimal
    texts: tuple[int, ...]
    labels: list[str | None]


def is_proportional(record: ReleaseRecord) -> bool:
    """Return whether the release, or the one that it extends, bought a histogram to allocate its texts."""
    allocation = allocation_of_request(record.request["parameters"])
    first = [event.mechanism for event in record.events[:1]]
    return allocation is not None and first in ([noisy_histogram.MECHANISM], [post_processing.MECHANISM])


def equal_labels(record: ReleaseRecord) -> list[str | None]:
    """Return the label of every text of an equal allocation, in their public order; empty without labels."""
    blocks = 1 if record.mechanism in WITHOUT_BATCHES else len(record.request["plan"]["blocks"])
    samples = record.request["parameters"]["samples"]
    return labels_of_texts(record.kind, record.labels, samples, blocks) if record.labels else []


def allocated_labels(record: ReleaseRecord) -> AllocatedLabels | None:
    """Return the counts and what follows from them; None where texts are allocated equally.

    Raises:
        KeyError, ValueError, ArithmeticError, UsageError: the record lacks figures, or they do not follow from its
            counts.
    """
    parameters = record.request["parameters"]
    allocation = allocation_of_request(parameters)
    if allocation is None or not is_proportional(record):
        return None
    counts = parse_counts(record.released[LABEL_COUNTS])
    if len(counts) != len(record.labels):
        raise ValueError("not one count for each label")
    deviation, samples = _deviation(record, len(counts)), parameters["samples"]
    if record.mechanism in WITHOUT_BATCHES:
        if BATCHES_PER_LABEL in record.released:
            raise ValueError("batches of a system that has none")
        texts = texts_per_label(allocation, counts, samples)
        return AllocatedLabels(counts, deviation, texts, labels_in_order(record.labels, texts))
    blocks, declared = len(record.request["plan"]["blocks"]), parameters.get("batches")
    layout = AllocatedLayout.of(allocation, counts, samples, blocks, parameters["references"], declared)
    if record.released[BATCHES_PER_LABEL] != format_counts(layout.batches):
        raise ValueError("other batches than the counts lead to")
    return AllocatedLabels(counts, deviation, layout.texts, layout.labels_of_texts(record.labels))


def _deviation(record: ReleaseRecord, labels: int) -> Decimal:
    """Return the scale of the noise on a count: of the release's histogram, or of the one that its parent has paid."""
    first = record.events[0]
    if first.mechanism == post_processing.MECHANISM:
        return Decimal(record.facts[DEVIATION])
    histogram = NoisyHistogram.from_event(first)
    if histogram.bins != labels:
        raise ValueError("not one bin for each label")
    return Decimal(histogram.noise.sigma.numerator) / histogram.noise.sigma.denominator
