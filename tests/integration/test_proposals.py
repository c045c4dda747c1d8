"""What stewards decide besides releases, as people type it: caps, schedules, retractions."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.workspace.workspace import open_workspace
from models_db.services import datasets, policies, proposals, requests
from tasks.release.card_text import CAP_CHANGES, STANDING
from tests.integration.story import NOTES, Almoner
from tests.integration.team import Team
from tests.support import fetch, snapshot

CONCERNS = ("flows/approvals", "flows/governance", "models_db/services")

SMALL = {"epsilon": 1.0, "delta": 1.0e-7}
TWO = "approvals: {spend: 1, publish: 1, proposal: 2}"


@pytest.fixture
def team(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A corpus; root does everything, but proposals take two stewards, and sue is the other one."""
    made = Team(almoner, almoner.home.database_url, monkeypatch)

    def gather() -> None:
        almoner.ingested()
        text = almoner.home.policy.read_text().replace("approvals: {spend: 1, publish: 1, proposal: 1}", TWO)
        almoner.type(f"policy adopt {almoner.write('two.yaml', text)}")
        made.enrol("sue", "steward")

    almoner.brought("a team of two stewards", gather)
    made.at(almoner)
    return made


def carried(team: Team, number: int) -> None:
    """Both stewards approve a proposal."""
    line = f'approve {number} --gate proposal --reason "agreed"'
    assert team.root.ask(line, piped="clinic\n")["state"] == "open"
    assert team.at(team.home("sue")).ask(line, piped="clinic\n")["state"] == "carried"
    team.at(team.root)


def refused(almoner: Almoner, line: str, error: str) -> dict[str, Any]:
    """The command is refused under that name and changes nothing."""
    before = snapshot(almoner.database)
    told = almoner.type(f"{line} --json", expected=None)
    assert told.code in (1, 2), told
    assert told.json["error"] == error, told
    assert snapshot(almoner.database) == before
    found: dict[str, Any] = told.json
    return found


def released(almoner: Almoner, number: int) -> Path:
    """Run, approve and publish an approved request."""
    almoner.go_on_to("published", number, after="approved")
    return almoner.folder / "out" / f"clinic-release-{number}"


# --- caps


def test_an_approval_that_was_taken_back_is_shown_as_such(team: Team) -> None:
    root = team.root
    root.type('dataset cap clinic --epsilon 9 --delta 1e-6 --reason "one more study"')
    root.ask('approve 1 --gate proposal --reason "agreed"', piped="clinic\n")
    assert "no longer counts" not in root.type("proposal show 1").out
    root.type('withdraw-approval 1 --gate proposal --reason "too much"')
    shown = root.type("proposal show 1").out
    assert "approved (no longer counts): agreed" in shown
    assert "0 of 2" in shown


def test_the_screen_asks_for_as_many_approvals_as_the_gate(team: Team) -> None:
    """The strictest dataset of the account decides how many, also where another one is decided on."""
    root = team.root
    root.type("dataset register --shares-account-with clinic --unit patient_id -- ward")
    text = root.home.policy.read_text() + "datasets: {ward: {approvals: {proposal: 3}}}\n"
    root.type(f"policy adopt {root.write('three.yaml', text)}")
    root.type('dataset cap clinic --epsilon 9 --delta 1e-6 --reason "one more study"')
    assert root.ask("proposal show 1")["needed"] == 3
    assert re.search(r"approved so far\W+0 of 3", root.type("proposal show 1").out)


def test_a_cap_is_raised_by_two_and_every_later_card_shows_it(team: Team) -> None:
    root = team.root
    wanted = 'dataset cap clinic --epsilon 9 --delta 1e-6 --reason "one more study"'
    before = snapshot(root.database)
    looked = root.ask(f"{wanted} --dry-run")
    assert snapshot(root.database) == before
    assert (looked["proposal"], looked["approvals_needed"]) == (None, 2)
    assert (looked["before"]["epsilon"], looked["after"]["epsilon"]) == ("8", "9")
    assert "RAISES" in root.type(f"{wanted} --dry-run").out
    assert root.ask(wanted)["proposal"] == 1
    root.type(f"release request {root.request_file(**SMALL)}")
    carried(team, 1)

    budget = root.ask("budget show clinic")
    assert budget["epsilon_cap"] == "9"
    assert budget["rho_cap"] == looked["after"]["rho"]
    change = {"old_epsilon": "8", "old_delta": "0.000001", "new_epsilon": "9", "new_delta": "0.000001"}
    assert budget["cap_changes"] == [change]
    root.type('approve 1 --gate spend --reason "agreed"')
    folder = released(root, 1)
    assert json.loads((folder / "release.json").read_text())["cap_changes"] == [change]
    assert CAP_CHANGES in (folder / "README.md").read_text()
    assert root.ask(f"verify-release {folder}")["holds"] is True

    spent = root.ask("budget show clinic")["rho_spent"]
    low = refused(root, 'dataset cap clinic --epsilon 0.5 --delta 1e-6 --reason "less"', "CapTooLow")
    assert low["facts"]["taken_rho"] == spent
    assert spent in low["message"]
    refused(root, 'dataset cap clinic --epsilon 9.0 --delta 1e-6 --reason "again"', "CapUnchanged")
    refused(root, 'dataset cap clinic --epsilon 10 --delta 1e-6 --reason " "', "ProposalReasonMissing")


def test_a_lower_cap_must_cover_what_is_spent_also_when_it_is_carried(team: Team) -> None:
    root = team.root
    assert root.ask('dataset cap clinic --epsilon 0.5 --delta 1e-6 --reason "less"')["proposal"] == 1
    root.type(f"release request {root.request_file(**SMALL)}")
    root.go_on_to("produced")
    refused(root, 'dataset cap clinic --epsilon 0.6 --delta 1e-6 --reason "less"', "CapTooLow")
    line = 'approve 1 --gate proposal --reason "agreed"'
    root.type(line, piped="clinic\n")
    sue = team.at(team.home("sue"))
    assert sue.type(f"{line} --json", expected=1, piped="clinic\n").out.count("CapTooLow")
    assert sue.ask("proposal show 1")["state"] == "open"
    assert team.at(root).ask("budget show clinic")["epsilon_cap"] == "8"


def test_proposals_are_listed_shown_and_rejected_by_one(team: Team) -> None:
    root = team.root
    root.type('dataset cap clinic --epsilon 9 --delta 1e-6 --reason "one more study"')
    root.type('approve 1 --gate proposal --reason "agreed"', piped="clinic\n")
    (row,) = root.ask("proposal list")
    assert (row["proposal"], row["kind"], row["dataset"], row["state"]) == (1, "cap", "clinic", "open")
    assert (row["epsilon"], row["given"], row["needed"], row["reason"]) == ("9", 1, 2, "one more study")
    told = root.type("proposal show 1").out
    assert "1 of 2 approvals" in told
    assert "almoner approve 1 --gate proposal" in told
    team.at(team.home("sue")).type('reject 1 --gate proposal --reason "not now"')
    shown = team.at(root).ask("proposal show 1")
    assert shown["state"] == "rejected"
    assert [(one["by"], one["decision"]) for one in shown["approvals"]] == [
        (open_workspace(root.home).actor.name, "approve"),
        ("sue", "reject"),
    ]
    assert root.ask("budget show clinic")["epsilon_cap"] == "8"
    refused(root, "proposal show 2", "ProposalUnknown")


# --- standing authorisations


@pytest.fixture
def authorised(team: Team) -> Team:
    """Three runs of one small request are authorised, as proposal 1."""
    root = team.root
    file = root.request_file(**SMALL)
    line = f'standing propose {file} --runs 3 --until 2099-12-31 --reason "every month"'
    looked = root.ask(f"{line} --dry-run")
    assert (looked["proposal"], looked["runs"], looked["until"], looked["approvals_needed"]) == (
        None,
        3,
        "2099-12-31",
        2,
    )
    assert looked["rho_each"] == looked["price"]["rho"]
    assert root.ask(line)["proposal"] == 1
    refused(root, f"release request {file} --standing 1", "AuthorisationExhausted")
    carried(team, 1)
    return team


def test_three_runs_are_authorised_and_no_fourth(authorised: Team) -> None:
    root = authorised.root
    file = root.request_file(**SMALL)
    root.type(f"dataset ingest clinic {root.notes_file('more.jsonl', NOTES[:-1])}")  # newer data is what it is for
    for number in (1, 2, 3):
        told = root.type(f"release request {file} --standing 1")
        assert f"Next: `almoner run {number}`" in told.out
        assert root.state(number) == "approved"
        root.type(f"run {number}")
        (row,) = root.ask("standing list")
        assert (row["used"], row["runs"], row["state"]) == (number, 3, "carried")
    last = refused(root, f"release request {file} --standing 1", "AuthorisationExhausted")
    assert "all 3 runs are used" in last["message"]
    root.go_on_to("published", 2, after="produced")
    folder = root.folder / "out" / "clinic-release-2"
    assert STANDING in (folder / "README.md").read_text()
    assert root.ask(f"verify-release {folder}")["holds"] is True
    assert root.ask("release show 2")["standing"] == 1


@pytest.mark.slow
def test_two_requests_cannot_share_the_last_run(authorised: Team) -> None:
    root = authorised.root
    for _ in range(4):
        root.type(f"release request {root.request_file(**SMALL)} --standing 1")
    for number in (1, 2, 3):
        root.type(f"run {number}")
    told = root.type("run 4 --json", expected=1).json
    assert (told["error"], root.state(4)) == ("AuthorisationExhausted", "approved")
    assert fetch(root.database, "SELECT count(*) FROM transition WHERE to_state = 'running'") == [(3,)]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epsilon": 1.5}, ["epsilon", "plan"]),
        ({"prompt": {"description": "Long notes."}}, ["prompt", "prompt_sha256"]),
        ({"public_metadata": {"licence": "MIT"}}, ["public_metadata"]),
    ],
)
def test_another_configuration_is_told_by_its_fields(authorised: Team, changes: Any, named: list[str]) -> None:
    root = authorised.root
    told = refused(
        root, f"release request {root.request_file(**(SMALL | changes))} --standing 1", "AuthorisationExhausted"
    )
    assert told["facts"]["differs"] == named
    assert all(f"`{name}`" in told["message"] for name in named)


def test_another_version_of_almoner_ends_it(authorised: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.releases.propose.code_digest", lambda: "c" * 64)
    root = authorised.root
    told = refused(root, f"release request {root.request_file(**SMALL)} --standing 1", "AuthorisationExhausted")
    assert told["facts"]["differs"] == ["code"]
    assert "almoner itself has changed" in told["message"]


def test_another_policy_ends_it(authorised: Team) -> None:
    root = authorised.root
    text = root.home.policy.read_text().replace("attempts: 5", "attempts: 4")
    root.type(f"policy adopt {root.write('other.yaml', text)}")
    told = refused(root, f"release request {root.request_file(**SMALL)} --standing 1", "AuthorisationExhausted")
    assert told["facts"]["differs"] == ["policy"]


def test_one_steward_ends_it_and_a_waiting_request_goes_no_further(authorised: Team) -> None:
    root = authorised.root
    root.type(f"release request {root.request_file(**SMALL)} --standing 1")
    sue = authorised.at(authorised.home("sue"))
    assert sue.ask('standing end 1 --reason "the study is over"')["state"] == "ended"
    refused(sue, 'standing end 1 --reason "again"', "AuthorisationNotInForce")
    authorised.at(root)
    told = root.type("run 1 --json", expected=1).json
    assert told["error"] == "AuthorisationExhausted"
    assert "ended" in told["message"]
    told = refused(root, f"release request {root.request_file(**SMALL)} --standing 1", "AuthorisationExhausted")
    assert "stewards have ended it" in told["message"]
    assert root.ask("standing show 1")["state"] == "ended"


@pytest.mark.parametrize("until", ["2020-01-01", "tomorrow", "2099-13-01"])
def test_a_last_day_is_a_day_to_come(team: Team, until: str) -> None:
    file = team.root.request_file(**SMALL)
    refused(team.root, f"standing propose {file} --runs 3 --until {until} --reason monthly", "InvalidEndDate")


def test_less_than_a_run_costs_covers_none(team: Team) -> None:
    """A proposal whose rho is below what its own configuration costs can be made past the command line only."""
    root = team.root
    root.type(f"release request {root.request_file(**SMALL)}")
    workspace = open_workspace(root.home)
    with workspace.database.write() as session:
        policy = policies.policy_in_force(session)
        assert policy is not None
        request, dataset = requests.find_request(session, 1), datasets.find_dataset(session, "clinic")
        wanted = proposals.AuthorisationTerms(
            requests.configuration(json.loads(request.canonical)), 5, 0, 3, "2099-12-31T23:59:59.000000Z"
        )
        proposals.propose_standing(session, workspace.actor, dataset, policy, wanted, "monthly", timedelta(days=7))
    told = refused(team.at(team.home("sue")), 'approve 1 --gate proposal --reason "agreed"', "AuthorisationDiffers")
    assert "it allows rho 0.000000000005" in told["message"]
    refused(team.at(root), f"release request {root.request_file(**SMALL)} --standing 1", "AuthorisationExhausted")


# --- retractions


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["release retract", "retract"])
def test_a_retraction_is_decided_and_carried_by_the_next_bundle(team: Team, typed: str) -> None:
    root = team.root
    root.type(f"release request {root.request_file(**SMALL)}")
    refused(root, f'{typed} 1 --reason "a street"', "NotPublished")
    root.type("approve 1 --gate spend --reason agreed")
    first = released(root, 1)
    spent = root.ask("budget show clinic")["rho_spent"]
    assert root.ask(f'{typed} 1 --reason "a text names a street"')["proposal"] == 1
    refused(root, f'{typed} 1 --reason "a street"', "RetractionPending")
    assert root.state(1) == "published"
    assert [m["state"] for m in root.ask("release show 1")["proposals"]] == ["open"]
    carried(team, 1)

    shown = root.ask("release show 1")
    assert (shown["state"], shown["steps"][-1]["detail"]) == ("retracted", "a text names a street")
    assert [row["state"] for row in root.ask("release list")] == ["retracted"]
    assert root.ask("budget show clinic")["rho_spent"] == spent
    refused(root, f'{typed} 1 --reason "again"', "NotPublished")

    root.type(f"release request {root.request_file(**SMALL)}")
    root.type("approve 2 --gate spend --reason agreed")
    second = released(root, 2)
    assert len(json.loads((second / "revocations.json").read_text())["revoked"]) == 1
    assert root.ask(f"verify-release {first} --revocations {second}", expected=1)["holds"] is False
    assert "a street" not in "".join(path.read_text() for path in second.iterdir() if path.suffix in (".md", ".json"))


# --- the same people under another name


def copy(almoner: Almoner) -> Path:
    return almoner.notes_file("renamed.jsonl")


def subset(almoner: Almoner) -> Path:
    return almoner.notes_file("subset.jsonl", NOTES[:3])


def one_person(almoner: Almoner) -> Path:
    others = [note | {"patient_id": f"other-{number}"} for number, note in enumerate(NOTES[1:])]
    return almoner.notes_file("one.jsonl", [*others, NOTES[0] | {"text": "Another text altogether."}])


def spelt_otherwise(almoner: Almoner) -> Path:
    notes = [{"text": f"{note['text']} (edited)", "patient_id": f"  {note['patient_id']} "} for note in NOTES]
    return almoner.notes_file("spelt.jsonl", notes)


@pytest.mark.parametrize("derived", [copy, subset, one_person, spelt_otherwise])
def test_the_same_people_get_no_second_budget(almoner: Almoner, derived: Callable[[Almoner], Path]) -> None:
    almoner.ingested()
    almoner.type("dataset register again --unit patient_id --epsilon 8 --delta 1e-6")
    told = refused(almoner, f"dataset ingest again {derived(almoner)}", "UnitsOverlap")
    assert "--shares-account-with" in told["advice"]
    almoner.type("dataset register derived --unit patient_id --shares-account-with clinic")
    almoner.type(f"dataset ingest derived {derived(almoner)}")
    assert almoner.ask("budget show derived")["sharing"] == ["clinic", "derived"]
    account = "SELECT count(DISTINCT account_id) FROM dataset WHERE name <> 'again'"
    assert fetch(almoner.database, account) == [(1,)]
    refused(almoner, "dataset register more --shares-account-with clinic --epsilon 1 --delta 1e-6", "UnexpectedClaim")


def test_renamed_ids_in_another_file_are_the_known_limit(almoner: Almoner) -> None:
    """Recorded, so that nobody believes otherwise: docs/budgets.md says whose duty it is."""
    almoner.ingested()
    almoner.type("dataset register again --unit patient_id --epsilon 8 --delta 1e-6")
    renamed = [note | {"patient_id": f"pseudonym-{note['patient_id']}"} for note in NOTES]
    almoner.type(f"dataset ingest again {almoner.notes_file('pseudonyms.jsonl', renamed)}")
