"""Proposals before they reach the ledger: reasons, last days, and what they say."""

from datetime import UTC, datetime, timedelta

import pytest

from flows.approvals.propose_change import CapProposal, ProposalRow, StandingProposal, end_of_day, require_reason
from models_db.services.budget import Balance
from models_db.services.proposals import AuthorisationTerms
from models_db.values.amounts import Amount
from tasks.accounting.lifetime_claims import BudgetFacts, lifetime_claim
from tasks.accounting.zcdp import lifetime_cap
from tests.refusals import refusal
from tests.unit.tasks.pricing.test_quote import CLAIM, facts, priced


def test_the_last_day_counts_to_its_end() -> None:
    today = datetime.now(UTC).date().isoformat()
    assert end_of_day(today).isoformat() == f"{today}T23:59:59+00:00"
    assert end_of_day("2099-12-31") - datetime.now(UTC) > timedelta(days=365)


@pytest.mark.parametrize("until", ["", "soon", "2099-02-30", "2099", "2020-01-01"])
def test_other_last_days_are_refused(until: str) -> None:
    with refusal("InvalidEndDate") as unfit:
        end_of_day(until)
    assert unfit.value.facts == {"until": until}


@pytest.mark.parametrize("reason", ["", " ", "\n\t"])
def test_stewards_are_told_why(reason: str) -> None:
    require_reason("the board agreed")
    with refusal("ProposalReasonMissing"):
        require_reason(reason)


def test_a_claim_has_the_caps_that_accounting_gives_it() -> None:
    claim, cap = lifetime_claim("8.0", "1e-6"), lifetime_cap("8", "1e-6")
    assert (claim.epsilon, claim.delta, claim.cap) == ("8", "0.000001", cap.amount)
    assert claim.delta_conversion == 9 * 10**11


@pytest.mark.parametrize(
    ("epsilon", "delta", "raises"), [("9", "1e-6", True), ("7", "1e-6", False), ("7", "1e-5", True)]
)
def test_a_raise_is_more_of_anything(epsilon: str, delta: str, raises: bool) -> None:
    before, after = lifetime_claim("8", "1e-6"), lifetime_claim(epsilon, delta)
    assert CapProposal(None, 2, ("clinic",), before, after, Amount()).raises is raises


@pytest.mark.parametrize(("runs", "left", "fitting"), [(3, 29, 2), (3, 30, 3), (3, 500, 3), (3, 9, 0)])
def test_a_proposal_says_how_many_runs_fit_now(runs: int, left: int, fitting: int) -> None:
    quote = priced(facts(budget=BudgetFacts(CLAIM, Balance(Amount(500), Amount(), Amount(), Amount(left)))))
    wanted = AuthorisationTerms({}, 10, 0, runs, "2099-12-31T23:59:59.000000Z")
    assert StandingProposal(None, 1, quote, True, wanted).affordable_runs == fitting


def test_runs_that_cost_nothing_always_fit() -> None:
    wanted = AuthorisationTerms({}, 0, 0, 7, "2099-12-31T23:59:59.000000Z")
    assert StandingProposal(None, 1, priced(), True, wanted).affordable_runs == 7


def a_row(kind: str, **more: object) -> ProposalRow:
    common = {"number": 1, "kind": kind, "dataset": "clinic", "state": "open", "proposer": "ana", "reason": "r",
              "proposed_at": "a", "expires_at": "b", "given": 0, "needed": 1}  # fmt: skip
    return ProposalRow(**(common | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (a_row("cap", epsilon="9", delta="0.000001"), "lifetime epsilon 9 at delta 0.000001"),
        (a_row("standing", runs=3, used=1, until="2099-12-31T23:59:59.000000Z"), "1 of 3 runs used, until 2099-12-31"),
        (a_row("retraction", request_id=4), "retract release 4"),
    ],
)
def test_a_list_says_what_is_asked_for(row: ProposalRow, said: str) -> None:
    assert row.content == said
