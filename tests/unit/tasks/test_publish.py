"""What the ledger has on an artifact, as a bundle carries it."""

import pytest

from models_db.tables import Approval, Artifact, Principal
from tasks.publish import documents_of_release
from tasks.release.signatures.publisher_statements import Charged

HEAD, ARTIFACT, REQUEST = "ab" * 32, "cd" * 32, "ef" * 32
PEOPLE = {1: "sue", 2: "tom", 3: "zoe"}


def approval(number: int, approver: int, gate: str = "publish", **changes: object) -> tuple[Approval, Principal]:
    row = Approval(
        id=number,
        request_id=1,
        gate=gate,
        subject_digest=ARTIFACT if gate == "publish" else REQUEST,
        approver_id=approver,
        decision="approve",
        reason="fine",
        at="2026-01-01T00:00:00.000000Z",
        expires_at="2026-12-31T23:59:59.000000Z",
        signature="0" * 128,
        attestation=f"attested by {approver} in {number}" if gate == "publish" else None,
    )
    for name, value in changes.items():
        setattr(row, name, value)
    return row, Principal(id=approver, name=PEOPLE[approver], public_key=f"{approver}" * 64)


CHARGED = Charged(blocks=(0,), rho="0.5", delta="0")


def papers(*decisions):
    return documents_of_release(
        Artifact(digest=ARTIFACT),
        decisions,
        {},
        "1d" * 32,
        HEAD,
        CHARGED,
        revoked=["12" * 32],
        exposed=["34" * 32],
    )


def test_it_has_decisions_attestations_head_and_list():
    found = papers(approval(1, 1, "spend"), approval(2, 1), approval(3, 2))
    assert [(one.gate, one.approver) for one in found.approvals] == [
        ("spend", "sue"),
        ("publish", "sue"),
        ("publish", "tom"),
    ]
    assert list(found.attestations) == ["attested by 1 in 2", "attested by 2 in 3"]
    assert (found.ledger_head, list(found.revoked), list(found.exposed)) == (HEAD, ["12" * 32], ["34" * 32])


def test_an_approval_given_again_is_carried_once_and_is_the_newest():
    found = papers(approval(1, 1, reason="at first"), approval(2, 1, reason="once more"))
    assert [one.reason for one in found.approvals] == ["once more"]
    assert list(found.attestations) == ["attested by 1 in 2"]


def test_a_rejection_is_not_hidden_by_a_later_approval():
    found = papers(approval(1, 1, decision="reject"), approval(2, 1))
    assert [one.decision for one in found.approvals] == ["reject", "approve"]


@pytest.mark.parametrize("changes", [{"attestation": None}, {"subject_digest": "34" * 32}])
def test_an_approval_without_attestation_or_of_other_bytes_attests_nothing(changes):
    assert papers(approval(1, 1, **changes)).attestations == []
