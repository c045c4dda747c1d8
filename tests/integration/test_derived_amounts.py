"""Amounts are derived from the epsilon and delta that people read: at every place alone, with those before it bypassed.

A red team proposed "8.1" with five hundred times its rho; two stewards approved what their screens showed.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from flows.approvals import decide
from flows.audit.lifetime_claims import require_proposal_amounts
from flows.workspace.workspace import Workspace, open_workspace
from models_db.services import datasets, gates, policies, proposals
from models_db.services.datasets import LifetimeClaim
from models_db.values.amounts import Amount
from tasks.accounting.lifetime_claims import AmountsDiffer, lifetime_claim
from tests.integration.story import Almoner
from tests.support import any_amounts, fetch, snapshot

HONEST = lifetime_claim("8.1", "0.000001")
TIMES = 500
LIE = replace(HONEST, cap=Amount(HONEST.cap.rho * TIMES, HONEST.cap.delta))
LIES = {
    "rho": LIE,
    "failure delta": replace(HONEST, cap=Amount(HONEST.cap.rho, HONEST.cap.delta + 1)),
    "conversion delta": replace(HONEST, delta_conversion=HONEST.delta_conversion - 1),
    "epsilon": replace(HONEST, epsilon="8.2"),
    "another spelling": replace(HONEST, epsilon="8.10"),
    "delta": replace(HONEST, delta="0.000002"),
}


def propose(workspace: Workspace, claim: LifetimeClaim = LIE) -> int:
    """A proposal for a cap as whoever writes SQL proposes it."""
    with workspace.database.write() as session:
        policy = policies.policy_in_force(session)
        assert policy is not None
        dataset = datasets.find_dataset(session, "clinic")
        return proposals.propose_cap(session, workspace.actor, dataset, policy, claim, "a study", timedelta(days=7)).id


def force(workspace: Workspace, claim: LifetimeClaim = LIE) -> None:
    """A cap that took effect without any check of its amounts."""
    number = propose(workspace, claim)
    asked = replace(decide.load_review(workspace, number, "proposal"), refusal=None)
    decision = decide.gate_decision(asked, "approve", "agreed")
    with workspace.database.write() as session:
        assert gates.record_decision(session, workspace.actor, decision, "s", amount_check=any_amounts) == "carried"


def refused(almoner: Almoner, line: str, error: str = "AmountsDiffer", **given: str) -> None:
    before = snapshot(almoner.database)
    told = almoner.type(f"{line} --json", expected=1, **given)
    assert told.json["error"] == error, told
    assert snapshot(almoner.database) == before


@pytest.fixture
def workspace(almoner: Almoner) -> Workspace:
    almoner.ingested()
    return open_workspace(almoner.home)


def test_a_proposal_without_a_number_is_named_and_stops_no_list(almoner: Almoner, workspace: Workspace) -> None:
    propose(workspace, replace(HONEST, epsilon="1:30"))
    assert almoner.ask("proposal list")[0]["problem"].startswith("AmountsDiffer: Proposal 1 says epsilon 1:30")
    refused(almoner, 'approve 1 --gate proposal --reason "agreed"', "ProposalUnreadable")
    refused(almoner, f"approve 1 --gate proposal --export {almoner.folder / 'ask.json'}", "ProposalUnreadable")
    assert "ProposalUnreadable: Proposal 1 is not" in almoner.type("proposal show 1").out.replace("\n", " ")
    almoner.type('reject 1 --gate proposal --reason "no"')
    almoner.type("doctor")


@pytest.mark.parametrize("lie", LIES)
def test_a_proposal_that_does_not_follow_from_its_text_is_named_in_lists_and_can_only_be_rejected(
    almoner: Almoner, workspace: Workspace, lie: str
) -> None:
    propose(workspace, LIES[lie])
    [listed] = almoner.ask("proposal list")
    assert listed["problem"].startswith("AmountsDiffer: Proposal 1 says epsilon")
    assert "It can only be rejected: AmountsDiffer." in almoner.type("proposal show 1").out.replace("\n", " ")
    refused(almoner, 'approve 1 --gate proposal --reason "agreed"', piped="clinic\n")
    refused(almoner, f"approve 1 --gate proposal --export {almoner.folder / 'ask.json'}")
    found = almoner.ask("doctor", expected=3)["findings"]
    assert [f["ok"] for f in found if f["check"] == "amounts"] == [False]
    almoner.type('reject 1 --gate proposal --reason "it lies"')
    almoner.type("doctor")
    assert almoner.ask("budget show clinic")["epsilon_cap"] == "8"


def test_the_honest_cap_is_approved_and_its_growth_is_said_in_words(almoner: Almoner, workspace: Workspace) -> None:
    proposed = almoner.type('dataset cap clinic --epsilon 8.1 --delta 1e-6 --reason "a study"').out
    assert "The budget grows 1.02" in proposed.replace("\n", " ")
    shown = almoner.type('approve 1 --gate proposal --reason "agreed"', piped="clinic\n")
    assert "epsilon grows 1.012 times" in (shown.out + shown.err).replace("\n", " ")
    assert almoner.ask("budget show clinic")["epsilon_cap"] == "8.1"


def _sign(workspace: Workspace, number: int) -> object:
    """The screen is bypassed."""
    asked = replace(decide.load_review(workspace, number, "proposal"), refusal=None)
    return decide.decide(workspace, asked, "approve", "agreed")


def _bring(workspace: Workspace, number: int) -> object:
    """The screen is bypassed here and where it was signed."""
    asked = replace(decide.load_review(workspace, number, "proposal"), refusal=None)
    return decide.import_approval(workspace, asked, decide.sign_offline(workspace.key, asked, "agreed"))


def _sign_elsewhere(workspace: Workspace, number: int) -> object:
    return decide.sign_offline(workspace.key, decide.load_review(workspace, number, "proposal"), "agreed")


def _record(workspace: Workspace, number: int) -> object:
    """The flow is bypassed, too."""
    decision = decide.gate_decision(decide.load_review(workspace, number, "proposal"), "approve", "agreed")
    with workspace.database.write() as session:
        return gates.record_decision(session, workspace.actor, decision, "s", amount_check=require_proposal_amounts)


def _carry(workspace: Workspace, number: int) -> object:
    """All signatures are there."""
    with workspace.database.write() as session:
        return proposals.apply_proposal(
            session, workspace.actor, proposals.find_proposal(session, number), require_proposal_amounts
        )


@pytest.mark.parametrize("place", [_sign, _bring, _sign_elsewhere, _record, _carry])
def test_each_signature_and_the_application_derive_the_amounts_themselves(
    workspace: Workspace, place: Callable[[Workspace, int], object]
) -> None:
    number = propose(workspace)
    before = snapshot(workspace.database)
    with pytest.raises(AmountsDiffer, match=r"says epsilon 8\.1 at delta 0\.000001, which is rho 1\.06"):
        place(workspace, number)
    assert snapshot(workspace.database) == before


def test_nothing_takes_effect_without_a_check(workspace: Workspace) -> None:
    decision = decide.gate_decision(decide.load_review(workspace, propose(workspace), "proposal"), "approve", "agreed")
    with pytest.raises(ValueError, match="nothing derives them"), workspace.database.write() as session:
        gates.record_decision(session, workspace.actor, decision, "s")


def test_a_cap_in_force_that_does_not_follow_stops_everything_that_rests_on_it(
    almoner: Almoner, workspace: Workspace
) -> None:
    for _ in range(3):
        almoner.type(f"release request {almoner.request_file()}")
    for number in (1, 2):
        almoner.type(f'approve {number} --gate spend --reason "agreed"', piped="clinic\n")
    almoner.type("run 1")
    almoner.type('approve 1 --gate publish --reason "agreed"', piped="clinic\n")
    force(workspace)
    for line in (
        "budget show clinic",
        "budget forecast clinic --delta 1e-7",
        f"release request {almoner.request_file()} --dry-run",
        f"publish 1 --to {almoner.folder / 'out'}",
        'dataset cap clinic --epsilon 9 --delta 1e-6 --reason "more"',
    ):
        refused(almoner, line)
    refused(almoner, "run 2", "ForgedApproval")  # the approval of that cap has no signature
    refused(almoner, 'approve 3 --gate spend --reason "agreed"', piped="clinic\n")
    asked = replace(decide.load_review(workspace, 3, "spend"), refusal=None)
    with pytest.raises(AmountsDiffer):
        decide.decide(workspace, asked, "approve", "agreed")
    found = almoner.ask("doctor", expected=3)["findings"]
    assert [f["check"] for f in found if not f["ok"]] == ["amounts"]
    almoner.type('reject 3 --reason "not on this budget"')


@pytest.mark.parametrize("setting", ["rho_cap = rho_cap + 1", "delta_cap = delta_cap + 1", "rho_cap = rho_cap * 500"])
@pytest.mark.parametrize("which", ["parent_id IS NULL", "parent_id IS NOT NULL"])
def test_the_caps_of_root_and_blocks_are_those_of_the_claim(
    almoner: Almoner, workspace: Workspace, setting: str, which: str
) -> None:
    with workspace.database.engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER account_moves_by_entry")
        connection.exec_driver_sql(f"UPDATE account SET {setting} WHERE {which}")
    refused(almoner, "budget show clinic")
    assert fetch(almoner.database, "SELECT count(*) FROM proposal") == [(0,)]
