"""A record states no less for its secret assignment than its plan costs: it cannot be written, and is not verified."""

from typing import Any

import pytest

from models_db.values.canonical_json import digest
from tasks.publishing.verify import verify_release
from tasks.release.bundle_format import RECORD
from tasks.release.claim import SecretClaimTooSmall
from tasks.release.record import planned_events, second_opinion
from tests.unit.tasks.publishing.builders import a_record, a_request
from tests.unit.tasks.publishing.forging import edit

pytestmark = pytest.mark.contract


def test_a_release_claims_no_more_while_secret_than_its_request_asks_for(make_release, tmp_path):
    opinion, released = second_opinion(planned_events(a_request()), "1e-7"), {"batches_per_block": "2"}

    def record(asked: str):
        return a_record(a_request(epsilon_while_secret=asked), second_opinion=opinion, released=released)

    with pytest.raises(SecretClaimTooSmall):
        record("3.34")
    folder = make_release(record("3.35")).publish(tmp_path / "out").folder
    assert verify_release(folder).holds

    def lower(stored: dict[str, Any]) -> None:
        stored["request"]["epsilon_while_secret"] = "0.1"
        stored["request_sha256"] = digest(stored["request"])

    edit(folder, RECORD, lower)
    [refused] = [check for check in verify_release(folder).checks if check.name == "request"]
    assert not refused.ok
    assert "cost more than epsilon 0.1 while the assignment is secret" in refused.detail
