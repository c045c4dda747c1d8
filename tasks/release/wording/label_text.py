"""Section on the labels of a release: how texts were allocated to them."""

from collections.abc import Callable
from typing import Final

from models_db.errors import AlmonerError
from tasks.release.allocated_labels import allocated_labels
from tasks.release.record import ReleaseRecord
from tasks.values.insight import size_with_margin

PROPORTIONAL: Final = (
    "Texts were allocated to labels in proportion to a noisy histogram: how many units were read under each label, with"
    " the margin of error that the noise has at 95 %. Its cost is part of the claim, and the numbers of texts follow"
    " from it."
)
UNREADABLE: Final = "The noisy counts of the labels are missing from the record, or do not fit it."


def allocation_rows(record: ReleaseRecord, code: Callable[[object], str]) -> list[tuple[str, str, str]] | None:
    """Return label, noisy units and texts for each label of a proportional allocation; None for an equal one.

    Negative counts are shown as 0. A record that a stranger made may have no such figures: the rows are empty then, and
    verification names what is wrong.

    Args:
        code: escapes a label.
    """
    try:
        allocated = allocated_labels(record)
    except (AlmonerError, KeyError, TypeError, ValueError, IndexError, ArithmeticError):
        return []
    if allocated is None:
        return None
    return [
        (code(label), size_with_margin(count, allocated.deviation), str(texts))
        for label, count, texts in zip(record.labels, allocated.counts, allocated.texts, strict=True)
    ]
