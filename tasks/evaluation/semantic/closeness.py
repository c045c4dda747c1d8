"""True and phantom disclosures by meaning: is the unit nearest to a released text one that was read?"""

from collections.abc import Iterator

import numpy as np

from tasks.evaluation.core.embedded_texts import MOST, blocks, embedder_of, points, released_texts
from tasks.evaluation.core.hold_out_audit import Disclosures, result
from tasks.evaluation.core.subject import EvaluationInput, HoldOut
from tasks.evaluation.core.subsample import sample
from tasks.values.metric_result import MetricResult


def closeness(subject: EvaluationInput) -> MetricResult:
    """The unit that is nearest to each released text, of those that were read and those held out. INTERNAL.

    A unit counts once, however many texts it is nearest to. Of equally near ones it is the first in an order that does
    not know the sides.
    """
    subject.require_documents()
    if subject.texts:
        embedder_of(subject)
    hold_out = subject.hold_out
    found = _closeness(subject, hold_out) if hold_out else None
    how = (
        "the units that are nearest to a released text by cosine are named;"
        f" {subject.embed.name if subject.embed else 'no embedder'}; at most {MOST}"
        " units of both sides together, sampled with a fixed ordinary random start"
    )
    return result("closeness", how, hold_out, found)


def _closeness(subject: EvaluationInput, hold_out: HoldOut) -> Disclosures:
    units = sample(_units(hold_out), MOST)
    read = sum(is_read for _, is_read in units)
    texts = released_texts(subject)
    if not (texts and units):
        return Disclosures(read, len(units) - read, 0, 0)
    mixed = [units[place] for place in np.random.default_rng(0).permutation(len(units)).tolist()]
    embed = embedder_of(subject)
    rows = points(embed, [text for text, _ in mixed])
    nearest = {int(place) for _, block in blocks(points(embed, texts), rows) for place in block.argmax(1)}
    true = sum(mixed[place][1] for place in nearest)
    return Disclosures(read, len(units) - read, true, len(nearest) - true)


def _units(hold_out: HoldOut) -> Iterator[tuple[str, bool]]:
    for side, is_read in ((hold_out.read, True), (hold_out.held_out, False)):
        for text in side():
            yield text, is_read
