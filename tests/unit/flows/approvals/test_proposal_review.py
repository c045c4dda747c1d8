"""Proposals as stewards see them: a new cap, a schedule, a retraction."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from flows.approvals.build_review import build_spend_review
from flows.approvals.decide import check_signed_approval, sign_offline
from flows.approvals.offline_approval import export_review, import_review
from flows.approvals.proposal_review import ProposalReviewInput, build_proposal_review
from models_db.policies.policy import Policy
from models_db.services import requests
from models_db.services.proposals import content_of
from models_db.tables import Proposal as Row
from models_db.values.canonical_json import digest, encode_canonical
from models_db.values.standing_terms import cost_of
from tasks.accounting.lifetime_claims import lifetime_claim
from tasks.release.record import Person
from tasks.release.signatures.ed25519 import SigningKey
from tests.refusals import refusal
from tests.unit.flows.asking import a_budget, a_question, steward, text_of
from tests.unit.tasks.publishing.builders import a_request, people

ANA = people().requester
CONFIGURATION = requests.configuration(json.loads(encode_canonical(a_request())))
EMPTY = {
    "epsilon": None,
    "delta": None,
    "rho": None,
    "delta_fail": None,
    "delta_conversion": None,
    "runs": None,
    "until": None,
    "config_digest": None,
    "publication": None,
}
KINDS: dict[str, dict[str, Any]] = {
    "cap": {
        "epsilon": "12",
        "delta": "0.000001",
        "rho": str(lifetime_claim("12", "0.000001").cap.rho),
        "delta_fail": str(10**11),
        "delta_conversion": str(9 * 10**11),
    },
    "standing": {
        "rho": str(cost_of(CONFIGURATION).rho),
        "delta_fail": "0",
        "runs": 4,
        "until": "2027-01-31T00:00:00.000000Z",
        "config_digest": digest(CONFIGURATION),
    },
    "retraction": {"publication": 3},
}


def a_proposal(
    kind: str = "cap", *stewards: Person, proposal: dict[str, Any] | None = None, **changes: Any
) -> ProposalReviewInput:
    """Proposal 2, proposed by ana."""
    says = EMPTY | KINDS[kind] | {
        "proposal": kind,
        "dataset": "clinic",
        "reason": "the study goes on",
        "nonce": "5a" * 16,
        "expires_at": "9999-01-01T00:00:00.000000Z",
    } | (proposal or {})  # fmt: skip
    return ProposalReviewInput.model_validate(
        {
            "number": 2,
            "state": "open",
            "proposal": says,
            "configuration": CONFIGURATION if kind == "standing" else None,
            "proposer": ANA,
            "policy": Policy(),
            "stewards": stewards,
            "given": (),
            "counted": 0,
            "needed": 2,
            "budget": a_budget(),
            "release": {"number": 1, "state": "published", "request": a_request()} if kind == "retraction" else None,
        }
        | changes
    )


def test_a_cap_shows_both_claims_and_says_that_it_raises() -> None:
    told = text_of(build_proposal_review(a_proposal(), None))
    for fact in (
        "Dataset clinic - Proposal 2, proposal gate",
        "It RAISES the most the dataset may ever lose",
        "The budget grows 1.987 times: epsilon grows 1.5 times, rho grows 1.987 times, delta stays the same.",
        "epsilon, lifetime | 8 | 12",
        "rho | 1.04544313257 | 2.077136227553",
        "epsilon spent so far | 2.1519 | 2.1519",
        "the study goes on",
        "proposed by | ana",
        "approved so far | 0 of 2",
    ):
        assert fact in told


def test_a_lower_cap_raises_nothing() -> None:
    lower = a_proposal(proposal={"rho": str(lifetime_claim("4", "0.000001").cap.rho), "epsilon": "4"})
    told = text_of(build_proposal_review(lower, None))
    assert "RAISES" not in told
    assert "The budget shrinks" in told


def test_a_schedule_shows_one_run_all_runs_and_the_one_configuration() -> None:
    told = text_of(build_proposal_review(a_proposal("standing"), None))
    for fact in (
        "one run | rho at most 0.266311880304",
        "runs | at most 4, until 2027-01-31",
        "all runs together | rho at most 1.065247521216",
        "before | 2.1519 | 0.1",
        "after all runs | 8.5221 | 1.165247521216",
        "cap | 8 | 1.04544313257",
        "parameters.samples | 2",
        "integer_draw | 48 | 0.266311880304",
    ):
        assert fact in told


def test_a_retraction_says_what_it_calls_back_and_that_nothing_comes_back() -> None:
    told = text_of(build_proposal_review(a_proposal("retraction"), None))
    for fact in ("Release 1 (published)", "epsilon | 4", "its budget stays spent", "publication | 3"):
        assert fact in told


def test_ones_own_proposal_is_pointed_out() -> None:
    assert "You made this proposal yourself." in text_of(
        build_proposal_review(a_proposal("retraction"), ANA.public_key)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_digest_is_the_ledgers(kind: str) -> None:
    """What the ledger stores and signs is what is computed from a file."""
    says = a_proposal(kind).proposal
    row = Row(
        kind=kind, reason=says["reason"], nonce=says["nonce"], expires_at=says["expires_at"], epsilon=says["epsilon"],
        delta=says["delta"], runs=says["runs"], until=says["until"], config_digest=says["config_digest"],
        publication_id=says["publication"],
        **{name: None if says[name] is None else int(says[name]) for name in ("rho", "delta_fail", "delta_conversion")},
    )  # fmt: skip
    assert build_proposal_review(a_proposal(kind), None).subject_digest == digest(content_of(row, "clinic"))


def test_another_configuration_than_the_proposals_is_refused() -> None:
    with pytest.raises(ValidationError, match="not the one that the proposal names"):
        a_proposal("standing", configuration=CONFIGURATION | {"mechanism": "non_private"})
    with pytest.raises(ValidationError, match="not the one that the proposal names"):
        a_proposal("cap", configuration=CONFIGURATION)


@pytest.mark.parametrize(
    "change", [{"proposal": "gift"}, {"colour": "red"}, {"rho": "-1"}, {"runs": 0}, {"dataset": ""}]
)
def test_what_is_no_proposal_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        build_proposal_review(a_proposal("cap", proposal=change), None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_proposal_is_signed_elsewhere(tmp_path, kind: str) -> None:
    key = SigningKey.create(tmp_path / "sue.key")
    asked = a_proposal(kind, steward(key))
    export_review(tmp_path / "ask.json", "proposal", asked, None)
    found = import_review(tmp_path / "ask.json", key.public_key, tmp_path)
    assert text_of(found).splitlines()[0] == "Dataset clinic - Proposal 2, proposal gate"
    signed = sign_offline(key, found, "fine")
    assert json.loads(signed.stated.statement("sue"))["proposal"] == 2
    check_signed_approval(build_proposal_review(asked, None), signed)
    request = build_spend_review(a_question(steward(key), number=2), None)
    with refusal("ApprovalUnusable"):
        check_signed_approval(request, signed)
    for changed in (
        a_proposal(kind, steward(key), proposal={"reason": "other"}),
        a_proposal(kind, steward(key), number=3),
    ):
        with refusal("ApprovalUnusable"):
            check_signed_approval(build_proposal_review(changed, None), signed)


def test_a_proposal_does_not_pass_for_a_request(tmp_path) -> None:
    key = SigningKey.create(tmp_path / "sue.key")
    for number, (gate, question) in enumerate((("spend", a_proposal()), ("proposal", a_question()))):
        export_review(tmp_path / f"{number}.json", gate, question, None)
        with refusal("InvalidApprovalFile"):
            import_review(tmp_path / f"{number}.json", key.public_key, tmp_path)
