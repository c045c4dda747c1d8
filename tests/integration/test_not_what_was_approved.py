"""A request that its author's own client wrote: what is approved, or authorised, is what is drawn, or nothing is."""

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from flows.approvals import build_review, review_input
from flows.releases import attempt, execute
from flows.workspace.workspace import open_workspace
from models_db.errors import Refused
from models_db.services import attempts, budget, datasets, policies, proposals, requests
from models_db.values.amounts import RenyiCurve
from tasks.evaluation.registry import UnknownMetric
from tasks.pricing.quote import Quote
from tasks.release import approved_request
from tasks.systems.registry import UnknownSystem
from tests.integration.story import Almoner
from tests.integration.test_jammed import finding
from tests.integration.test_two_claims import LIMITED, SMALL, approved_after_a_release
from tests.integration.test_viewing import request
from tests.support import fetch, snapshot

CONCERNS = ("flows/approvals", "flows/audit", "flows/governance", "flows/releases", "models_db/services")


def body_of(almoner: Almoner, number: int = 1) -> dict[str, Any]:
    return json.loads(str(fetch(almoner.database, "SELECT canonical FROM request WHERE id = :n", n=number)[0][0]))


def submitted(almoner: Almoner, body: dict[str, Any], standing: int | None = None) -> int:
    """A request as its author's own client records it. Returns its number."""
    workspace = open_workspace(almoner.home)
    with workspace.database.write() as session:
        clinic, policy = datasets.find_dataset(session, "clinic"), policies.policy_in_force(session)
        assert policy is not None
        return requests.submit(
            session, workspace.actor, clinic, datasets.newest_version(session, clinic), policy,
            body | {"nonce": "another"}, timedelta(days=7),
            standing=None if standing is None else proposals.find_proposal(session, standing),
        ).id  # fmt: skip


# --- plans -----------------------------------------------------------------------------------------------------------


def more_texts(body: dict[str, Any]) -> None:
    body["parameters"]["samples"] += 1


def another_event(body: dict[str, Any]) -> None:
    body["plan"]["invocations"] = body["plan"]["invocations"][:1]


def another_block(body: dict[str, Any]) -> None:
    body["blocks"] += 1


@pytest.mark.parametrize("change", [more_texts, another_event, another_block])
def test_a_plan_that_does_not_follow_from_its_request_is_rejected(
    any_almoner: Almoner, change: Callable[[dict[str, Any]], None]
) -> None:
    almoner = any_almoner
    almoner.submitted(**SMALL)
    body = body_of(almoner)
    change(body)
    number = submitted(almoner, body)
    before = snapshot(almoner.database)
    for line in ('--reason "x"', f"--export {almoner.folder / 'ask.json'}"):
        assert almoner.ask(f"approve {number} --gate spend {line}", 1)["error"] == "PlanMismatch"
    assert snapshot(almoner.database) == before
    told = almoner.type(f'reject {number} --gate spend --reason "it lies"')
    assert "can only be rejected: PlanMismatch." in " ".join((told.out + told.err).split())
    assert almoner.state(number) == "rejected"
    almoner.type('approve 1 --gate spend --reason "the honest one"')


@pytest.mark.parametrize("code", ["0" * 64, None])
def test_a_release_of_another_version_is_approved_there_or_rejected(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, code: str | None
) -> None:
    almoner.submitted(**SMALL)
    almoner.go_on_to("produced")
    with monkeypatch.context() as upgraded:
        upgraded.setattr(approved_request, "plan_json", lambda plan: {})
        if code is not None:
            upgraded.setattr(review_input, "code_digest", lambda: code)
        error = "PlanMismatch" if code is None else "UndecidableHere"
        before = snapshot(almoner.database)
        assert almoner.ask('approve 1 --gate publish --reason "x"', 1)["error"] == error
        assert snapshot(almoner.database) == before
        told = almoner.type('reject 1 --gate publish --reason "x"', None) if code is None else None
        assert told is None or "can only be rejected: PlanMismatch." in " ".join((told.out + told.err).split())
    if code is not None:
        almoner.type('approve 1 --gate publish --reason "with the old version"')


@pytest.mark.parametrize("unknown", [UnknownSystem("laboratory.draw", "texts", []), UnknownMetric("laboratory.digits")])
def test_what_needs_an_extension_is_approved_where_it_is_installed(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, unknown: Exception
) -> None:
    def missing(*_: object) -> None:
        raise unknown

    almoner.submitted(**SMALL)
    with monkeypatch.context() as bare:
        bare.setattr(approved_request, "system_for", missing)
        assert almoner.ask('approve 1 --gate spend --reason "x"', 1)["error"] == "UndecidableHere"
    almoner.type('approve 1 --gate spend --reason "read"')


# --- standing authorisations -----------------------------------------------------------------------------------------


def test_what_no_authorisation_is_for_is_shown_published_and_approved_nowhere(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its author states the digest of the authorised configuration, which the database cannot compute."""
    almoner = any_almoner
    almoner.submitted(**SMALL)
    line = f'standing propose {almoner.request_file(**SMALL)} --runs 3 --until 2099-12-31 --reason "monthly"'
    almoner.type(line)
    almoner.type('approve 1 --gate proposal --reason "agreed"')
    honest = requests.configuration(body_of(almoner))
    almoner.type(f"release request {almoner.request_file(**SMALL | {'prompt': {'description': 'Names of patients.'}})}")
    changed = body_of(almoner, 2)
    with monkeypatch.context() as lying:
        lying.setattr(requests, "configuration", lambda body: honest)
        number = submitted(almoner, changed, standing=1)
    assert almoner.ask(f"run {number}", 1)["error"] == "ProposalAltered"
    ok, _, detail = finding(almoner, "authorisations", 3)
    assert (ok, f"request {number};" in detail) == (False, True)
    with monkeypatch.context() as own:
        own.setattr(attempt, "require_authorised", lambda session, request: None)
        almoner.type(f"run {number}")
    assert almoner.ask(f'approve {number} --gate publish --reason "x"', 1)["error"] == "ProposalAltered"
    with monkeypatch.context() as unseen:
        unseen.setattr(build_review, "require_authorised", lambda session, request: None)
        almoner.type(f'approve {number} --gate publish --reason "not seen"')
    assert almoner.ask(f"publish {number} --to {almoner.folder / 'out'}", 1)["error"] == "ProposalAltered"
    assert almoner.state(number) == "produced"
    almoner.type(f'reject {number} --gate publish --reason "it lies"')
    assert finding(almoner, "authorisations")[0]


def test_an_attempt_without_a_lease_is_swept_with_its_draft(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.submitted(**SMALL)
    almoner.type('approve 1 --gate spend --reason "read"')
    workspace = open_workspace(almoner.home)
    with workspace.database.write() as session:
        requests.record_transition(session, workspace.actor, 1, "approved", "running")
    draft = workspace.home.draft(1, 1)
    draft.mkdir()
    almoner.type("run sweep")
    assert almoner.state(1) == "approved"
    assert not draft.exists()
    almoner.type("run 1")


# --- charges in Rényi orders -----------------------------------------------------------------------------------------


class Stopped(Refused):
    """A client of the runner's own stops here."""

    def __init__(self) -> None:
        super().__init__("It stops here.")


def stop(*_: object, **__: object) -> None:
    raise Stopped


def lie_about_charges(client: pytest.MonkeyPatch, rho: int) -> None:
    """A client of the runner's own, which charges each attempt that the ledger lets it charge `rho` at each order."""
    client.setattr(attempt, "curve_of_plan", lambda plan: RenyiCurve.of_rho(rho))
    client.setattr(attempt, "require_charges_derived", lambda session, request_id: None)
    client.setattr(Quote, "require_within_limit", lambda quote: None)


def start_and_stop(almoner: Almoner, number: int, rho: int = 0) -> str:
    """Such a client starts an attempt, charges it, and arms nothing. Returns the name of what it ends with."""
    with pytest.MonkeyPatch.context() as client:
        lie_about_charges(client, rho)
        client.setattr(execute, "produce_artifact", stop)
        return str(almoner.ask(f"run {number}", 1)["error"])


@pytest.mark.parametrize("rho", [0, 1])
def test_nobody_pays_for_what_was_charged_otherwise_before(any_almoner: Almoner, rho: int) -> None:
    """The database lets one charge cover the attempts after it, as long as nothing is armed."""
    almoner = any_almoner
    number = approved_after_a_release(almoner)
    assert start_and_stop(almoner, number, rho) == "Stopped"
    before = snapshot(almoner.database)
    for line in (f"run {number}", f"run {number} --anew"):
        assert almoner.ask(line, 1)["error"] == "ChargeDiffers"
    assert snapshot(almoner.database) == before
    assert f"not what the plan costs: request {number}" in finding(almoner, "charges in orders", 3)[2]
    almoner.type(f'release withdraw {number} --reason "charged falsely"')
    assert f"request {number}; given up" in finding(almoner, "charges in orders")[2]
    other = request(almoner)
    almoner.go_on_to("passed", other)


def test_a_charge_of_nothing_opens_no_limit(any_almoner: Almoner) -> None:
    almoner = any_almoner
    number = approved_after_a_release(almoner)
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % 6)}")
    charged = almoner.ask("budget show clinic")["limit_while_secret"]["charged"]
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % charged)}")
    assert almoner.ask(f"run {number}", 1)["error"] == "LimitInOrdersExceeded"
    assert start_and_stop(almoner, number) == "Stopped"
    assert almoner.ask(f"run {number}", 1)["error"] == "ChargeDiffers"


def test_an_attempt_that_is_charged_since_it_was_checked_does_not_start(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner = any_almoner
    number = approved_after_a_release(almoner)
    checked = attempt.check(open_workspace(almoner.home), number)
    start_and_stop(almoner, number)
    monkeypatch.setattr(execute, "check", lambda workspace, request_id: checked)
    before = snapshot(almoner.database)
    assert almoner.ask(f"run {number}", 1)["error"] == "ChargeDiffers"
    assert snapshot(almoner.database) == before


def test_attempts_that_arm_nothing_are_charged_once(any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner = any_almoner
    number = approved_after_a_release(almoner)
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % 6)}")
    assert start_and_stop(almoner, number) == "Stopped"
    charged = almoner.ask("budget show clinic")["limit_while_secret"]["charged"]
    monkeypatch.setattr(budget, "needs_charge", lambda session, request_id: True)
    assert start_and_stop(almoner, number) == "RuleViolated"
    assert almoner.ask("budget show clinic")["limit_while_secret"]["charged"] == charged


def test_a_charge_that_does_not_follow_from_its_plan_counts_whole_and_stops_no_other_request(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a runner of its own making has recorded: rows and chain agree, and `doctor` names it."""
    almoner = any_almoner
    number = approved_after_a_release(almoner)
    waiting = [request(almoner) for _ in range(2)]
    for each in waiting:
        almoner.type(f'approve {each} --gate spend --reason "again"')
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % 6)}")
    charged = [almoner.ask("budget show clinic")["limit_while_secret"]["charged"]]
    with monkeypatch.context() as lying:
        lie_about_charges(lying, 1)
        almoner.type(f"run {number}")
    charged.append(almoner.ask("budget show clinic")["limit_while_secret"]["charged"])
    assert almoner.type("audit verify").code == 0
    assert f"not what the plan costs: request {number}" in finding(almoner, "charges in orders", 3)[2]
    assert almoner.ask(f'approve {number} --gate publish --reason "x"', 1)["error"] == "ChargeDiffers"
    almoner.type(f"run {waiting[0]}")
    charged.append(almoner.ask("budget show clinic")["limit_while_secret"]["charged"])
    one, false, honest = (float(each) for each in charged)
    assert false - one > honest - false, "it counts for more than a charge that follows from the same plan"
    price = almoner.ask(f"release request {almoner.request_file(**SMALL)} --dry-run")["price"]["budget"]
    limit = float(price["epsilon_charged_after"]) - 0.01
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % limit)}")
    before = snapshot(almoner.database)
    refused = almoner.ask(f"run {waiting[1]}", 1)
    assert (refused["error"], refused["facts"]["epsilon_charged"]) == ("LimitInOrdersExceeded", charged[2])
    assert snapshot(almoner.database) == before


def test_a_text_with_two_plans_stops_no_other_request(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite charges by the first of two equal keys, and the standard library reads the last."""
    almoner.submitted(**SMALL)
    almoner.type('approve 1 --gate spend --reason "read"')
    almoner.type(f'standing propose {almoner.request_file(**SMALL)} --runs 3 --until 2099-12-31 --reason "monthly"')
    almoner.type('approve 1 --gate proposal --reason "agreed"')
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % 6)}")
    body = body_of(almoner)
    halved = json.loads(json.dumps(body["plan"]))
    for each in halved["invocations"]:
        for part in each["instalments"]:
            part["rho"] = str(int(part["rho"]) // 2)
    text = f'{json.dumps(body | {"nonce": "another"})[:-1]},"plan":{json.dumps(halved)}}}'
    configuration = requests.digest(requests.configuration(body))
    stated = hashlib.sha256(text.encode()).hexdigest()
    with monkeypatch.context() as own:
        own.setattr(requests, "encode_canonical", lambda value: text.encode())
        own.setattr(requests, "digest", lambda value: stated if "nonce" in value else configuration)
        number = submitted(almoner, body, standing=1)
    workspace = open_workspace(almoner.home)
    with workspace.database.write() as session:
        attempts.start_attempt(session, workspace.actor, number, "token", "nobody", None, RenyiCurve.of_rho(0))
    assert f"not what the plan costs: request {number}" in finding(almoner, "charges in orders", 3)[2]
    almoner.type("run 1")
