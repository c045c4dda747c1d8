"""Bundles of texts with an outline whose stated charge is another than that of their request."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from models_db.values.events import PrivacyEvent
from tasks.mechanisms.tokens.sampler import from_event
from tasks.publishing.verify import verify_release
from tasks.release.independent_accountant import second_opinion
from tasks.release.record import ReleaseRecord, planned_events
from tests.unit.tasks.publishing.builders import INK, a_record, a_request, charging
from tests.unit.tasks.publishing.forging import failures

pytestmark = pytest.mark.dear

LONG = "one of many words " * 12
OUTLINE = {"sections": 2, "tokens": 12, "share": "0.5", "headings": True}
OUTLINED = a_request(parameters=INK | {"outline": OUTLINE})


def outlined(**changes: Any) -> dict[str, Any]:
    """The honest plan of an outline, beside another outline."""
    return OUTLINED | {"parameters": INK | {"outline": OUTLINE | changes}}


def outlined_by(change: Callable[[PrivacyEvent, PrivacyEvent], Sequence[PrivacyEvent]]) -> dict[str, Any]:
    """An outline whose two events are changed."""
    return OUTLINED | {"plan": charging(*change(*planned_events(OUTLINED)), request=OUTLINED)}


FOREIGN_OUTLINES = {
    "another share": outlined(share="0.2"),
    "another number of sections": outlined(sections=3),
    "more draws": outlined(tokens=24),
    "no outline": OUTLINED | {"parameters": INK},
    "an outline beside the plan of none": a_request() | {"parameters": INK | {"outline": OUTLINE}},
    "the other order": outlined_by(lambda first, later: (later, first)),
    "swapped numbers of draws": outlined_by(
        lambda first, later: (from_event(first).event(later.count), from_event(later).event(first.count))
    )
    | {"epsilon": "9"},
    "one event for both": outlined_by(lambda first, later: (from_event(later).event(48),)),
    "an outline that is not charged": outlined_by(lambda first, later: (later,)),
    "sections that are not charged": outlined_by(lambda first, later: (first,)),
    "one more event": outlined_by(
        lambda first, later: (first, from_event(later).event(18), from_event(later).event(18))
    ),
    "other instalments of the same draws": outlined_by(lambda first, later: (first, later)),
}


def recorded(request_body: dict[str, Any]) -> ReleaseRecord:
    opinion = second_opinion(planned_events(request_body), "1e-7")
    return a_record(request_body, second_opinion=opinion, released={"batches_per_block": "200"})


def test_an_honest_outline_holds(make_release, tmp_path):
    assert verify_release(make_release(recorded(OUTLINED), (LONG, LONG)).publish(tmp_path / "out").folder).holds


@pytest.mark.parametrize("request_body", FOREIGN_OUTLINES.values(), ids=list(FOREIGN_OUTLINES))
def test_the_publisher_cannot_charge_for_another_outline(make_release, tmp_path, request_body):
    assert failures(make_release(recorded(request_body), (LONG, LONG)), tmp_path / "out") == {"plan"}
