"""True and phantom disclosures by words: units of which a release has a run of words that no other unit has."""

from collections.abc import Iterable

from tasks.evaluation.core.hold_out_audit import Disclosures, result
from tasks.evaluation.core.subject import EvaluationInput, HoldOut
from tasks.text.shingles import SIZE, Shingle, joined, shingles
from tasks.values.metric_result import MetricResult


def disclosures(subject: EvaluationInput) -> MetricResult:
    """Units whose own runs of words were released, of those that were read and of those held out. INTERNAL.

    A run is a unit's own if no other unit of either side has it; so which side a unit is on changes nothing for it.
    """
    subject.require_documents()
    hold_out = subject.hold_out
    released = joined(text.text for text in subject.texts)
    found = _disclosures(released, hold_out) if hold_out else None
    how = f"a unit is named if a released text has a run of {SIZE} words that is in no other unit"
    return result("disclosures", how, hold_out, found)


def _disclosures(released: frozenset[Shingle], hold_out: HoldOut) -> Disclosures:
    holders: dict[Shingle, int] = {}
    read = _note(hold_out.read(), released, holders, 0)
    held_out = _note(hold_out.held_out(), released, holders, read)
    named = {holder for holder in holders.values() if holder != _SEVERAL}
    true = sum(holder < read for holder in named)
    return Disclosures(read, held_out, true, len(named) - true)


_SEVERAL = -1


def _note(units: Iterable[str], released: frozenset[Shingle], holders: dict[Shingle, int], first: int) -> int:
    """Write down who has each released run, numbered from `first`; `_SEVERAL` for several. Returns how many units."""
    count = 0
    for text in units:
        for run in shingles(text) & released:
            holders[run] = first + count if run not in holders else _SEVERAL
        count += 1
    return count
