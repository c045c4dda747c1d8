"""What a Prefect server is told of decisions, delegations, roles and erasures: that they were, and nothing private."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.states import AwaitingRetry, Running, Scheduled

import flows.datasets.erase
from flows.observability import tracing
from flows.orchestration import deploy
from flows.orchestration.serve_pool import serve_pool
from flows.orchestration.worker import UnknownFlow, require_runnable
from models_db.services.lifecycle import gates
from tasks.release.signatures.ed25519 import SigningKey
from tests.faults import Failing
from tests.integration.canary import PRIVATE_TEXT, leaks, text_of
from tests.integration.prefect_rows import Rows, reported
from tests.integration.story import NOTES, Almoner
from tests.integration.test_people import SOON
from tests.integration.test_two_claims import SMALL
from tests.support import fetch

pytestmark = pytest.mark.slow  # a Prefect server
CONCERNS = ("flows/approvals", "flows/datasets", "flows/governance", "flows/observability")
DONE = "COMPLETED"
PERSON, DELEGATE, REASON = "quartermaine-7391", "zanzibarquux", "a wombat at Birchgrove"
"""Somebody in the corpus, a steward's delegate, and why: none of them is in another test's run."""
WITH_PERSON = [{**note, "patient_id": PERSON} if note["patient_id"] == "patient-001" else note for note in NOTES]
OTHER = "patient-002"
TABLES = ("flow", "flow_run", "flow_run_state", "task_run", "task_run_state", "artifact", "log")
RECORDED = {"record": DONE}


def peopled(almoner: Almoner) -> None:
    """A release is out, of a corpus with PERSON, and DELEGATE has joined."""
    almoner.registered()
    almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=WITH_PERSON)}")
    almoner.type(f"release request {almoner.request_file(evaluation=['length'])}")
    almoner.type(f'approve 1 --gate spend --reason "{REASON}"')
    almoner.type("run 1")
    almoner.type(f'approve 1 --gate publish --reason "{REASON}"')
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    join_delegate(almoner)


def join_delegate(almoner: Almoner) -> None:
    almoner.type(f"user add {DELEGATE} --key {SigningKey.create(almoner.folder / 'delegate.key').public_key}")


def erase(almoner: Almoner, unit: str, expected: int | None = 0) -> Any:
    return almoner.type(f'dataset erase clinic --unit {unit} --reason "request 12" --confirm clinic', expected)


def private_values(almoner: Almoner, server: Path) -> list[str]:
    """What of the corpus, of names and of reasons the server's files hold."""
    kept = text_of(server)
    planted = (PERSON, DELEGATE, REASON, PRIVATE_TEXT, str(almoner.folder))
    return [*leaks(kept), *(each for each in planted if each in kept)]


def test_each_is_a_flow_run_with_tags_and_a_state(
    almoner: Almoner, told_server: Path, new_rows: Callable[[], Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("PREFECT_API_URL")
        peopled(almoner)
        almoner.type(f"release request {almoner.request_file(evaluation=['length'])}")
    assert new_rows()["flow_run"] == []
    almoner.type(f'reject 2 --gate spend --reason "{REASON}"')
    almoner.type(f'retract 1 --reason "{REASON}"')
    almoner.type(f'approve 1 --gate proposal --reason "{REASON}"')
    assert almoner.state() == "retracted"
    almoner.type(f'dataset cap clinic --epsilon 9 --delta 1e-6 --reason "{REASON}"')
    almoner.type(f'reject 2 --gate proposal --reason "{REASON}"')
    almoner.type(f'user delegate {DELEGATE} --dataset clinic --until {SOON} --reason "{REASON}"')
    almoner.type("user undelegate 1")
    erase(almoner, PERSON)
    rows = new_rows()
    assert reported(rows) == {
        "reject-request-2": (DONE, RECORDED),
        "propose-retraction-1": (DONE, {"submit": DONE}),
        "approve-retraction-1": (DONE, RECORDED),
        "propose-cap-2": (DONE, {"submit": DONE}),
        "reject-cap-2": (DONE, RECORDED),
        "delegate": (DONE, RECORDED),
        "undelegate": (DONE, RECORDED),
        "erase": (DONE, {"record": DONE, "remove": DONE}),
    }
    tags = {row["name"]: json.loads(row["tags"]) for row in rows["flow_run"]}
    assert tags == {
        "reject-request-2": ["almoner", "request:2"],
        "propose-retraction-1": ["almoner", "proposal:1", "request:1"],
        "approve-retraction-1": ["almoner", "proposal:1", "request:1"],
        "propose-cap-2": ["almoner", "proposal:2"],
        "reject-cap-2": ["almoner", "proposal:2"],
        **{name: ["almoner"] for name in ("delegate", "undelegate", "erase")},
    }
    assert sorted(row["key"] for row in rows["artifact"]) == ["request-1", "request-1", "request-2"]
    assert {row["parameters"] for row in rows["flow_run"]} == {"{}"}
    assert rows["log"] == []
    assert private_values(almoner, told_server) == []


def test_an_approval_that_is_withdrawn_is_a_run_as_well(
    almoner: Almoner, told_server: Path, new_rows: Callable[[], Rows]
) -> None:
    almoner.submitted()
    almoner.type('approve 1 --gate spend --reason "a first look"')
    almoner.type('withdraw-approval 1 --gate spend --reason "not yet"')
    shown = reported(new_rows())
    assert [shown[f"{step}-request-1"] for step in ("approve", "withdraw-approval")] == [(DONE, RECORDED)] * 2
    assert almoner.state() == "submitted"


def test_changes_of_roles_a_withdrawal_and_an_exposure_are_runs_without_names(
    almoner: Almoner, told_server: Path, new_rows: Callable[[], Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("PREFECT_API_URL")
        almoner.published(**SMALL)
        almoner.type(f"release request {almoner.request_file(evaluation=['length'])}")
    join_delegate(almoner)
    almoner.type(f'user grant {DELEGATE} steward --reason "{REASON}"')
    almoner.type(f'user revoke {DELEGATE} steward --reason "{REASON}"')
    almoner.type(f'user revoke {DELEGATE} steward --reason "{REASON}"', expected=1)
    almoner.type(f'release withdraw 2 --reason "{REASON}"')
    almoner.type(f'release mark-exposed 1 --reason "{REASON}"')
    assert almoner.state(2) == "withdrawn"
    rows = new_rows()
    ended = [(row["name"], row["state_type"], json.loads(row["tags"])) for row in rows["flow_run"]]
    assert sorted(ended) == [
        ("add-user", DONE, ["almoner"]),
        ("grant-role", DONE, ["almoner"]),
        ("mark-exposed-request-1", DONE, ["almoner", "request:1"]),
        ("revoke-role", DONE, ["almoner"]),
        ("revoke-role", "FAILED", ["almoner"]),
        ("withdraw-request-2", DONE, ["almoner", "request:2"]),
    ]
    assert {row["name"] for row in rows["task_run"]} == {"record"}
    assert {row["message"] for row in rows["flow_run_state"] if row["type"] == "FAILED"} == {"RoleNotHeld"}
    assert private_values(almoner, told_server) == []


def test_a_dry_run_and_a_refusal_before_the_decision_are_no_runs(
    almoner: Almoner, told_server: Path, new_rows: Callable[[], Rows]
) -> None:
    almoner.produced()
    before = reported(new_rows())
    almoner.type(f"dataset erase clinic --unit {OTHER} --dry-run", expected=1)  # a release is undecided
    almoner.type('reject 1 --gate publish --reason "too short"')
    almoner.type(f"dataset erase clinic --unit {OTHER} --dry-run")
    almoner.type('reject 1 --gate publish --reason "again"', expected=1)
    almoner.type('dataset cap clinic --epsilon 9 --delta 1e-6 --reason "more" --dry-run')
    assert reported(new_rows()).keys() - before.keys() == {"reject-request-1"}


def likeness(rows: Rows) -> list[str]:
    """The rows without ids and times, which no two runs share."""
    found = []
    for table in TABLES:
        for row in rows[table]:
            plain = {name: value for name, value in row.items() if not name.endswith("run_time")}
            text = re.sub(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", "ID", json.dumps(plain))
            found.append(f"{table} {re.sub(r'[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+', 'TIME', text)}")
    return sorted(found)


def test_erasures_look_alike_whoever_it_was_and_how_much(
    almoner: Almoner, told_server: Path, new_rows: Callable[[], Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One document, many, none, a whole version: the same rows, so none of them tells a count or a person."""
    with monkeypatch.context() as patch:
        patch.delenv("PREFECT_API_URL")
        almoner.registered()
        one = [{**NOTES[0], "patient_id": "patient-one"}]
        many = [{**note, "patient_id": PERSON} for note in NOTES[1:40]]
        almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=[*one, *many, *WITH_PERSON[40:]])}")
    erase(almoner, "patient-one")
    first = likeness(new_rows())
    seen = len(first)
    assert any(line.startswith("task_run ") for line in first)
    for target in (f"--unit {PERSON}", "--unit nobody-of-the-corpus", "--version 1"):
        almoner.type(f'dataset erase clinic {target} --reason "request 12" --confirm clinic')
        rows = likeness(new_rows())
        runs = [line for line in rows if not line.startswith("flow ")]  # the flow is one row for all of them
        alone = [line for line in first if not line.startswith("flow ")]
        again = len(runs) // len(alone)
        assert runs == sorted(alone * again), target
        assert len(rows) > seen
        seen = len(rows)
    assert private_values(almoner, told_server) == []


def test_an_erasure_that_fails_says_the_name_of_its_error(
    almoner: Almoner, told_server: Path, new_rows: Callable[[], Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("PREFECT_API_URL")
        peopled(almoner)
    fault = Failing(flows.datasets.erase.erase_unit, OSError(f"{PERSON}: {PRIVATE_TEXT}"))
    monkeypatch.setattr(flows.datasets.erase, "erase_unit", fault)
    with pytest.raises(OSError, match=PERSON):
        erase(almoner, PERSON)
    erase(almoner, PERSON)
    rows = new_rows()
    ended = {row["state_type"]: row["id"] for row in rows["flow_run"] if row["name"] == "erase"}
    assert ended.keys() == {"FAILED", DONE}
    stages = {row["name"]: row["state_type"] for row in rows["task_run"] if row["flow_run_id"] == ended["FAILED"]}
    assert stages == {"record": DONE, "remove": "FAILED"}
    messages = {row["message"] for row in rows["flow_run_state"] if row["type"] == "FAILED"}
    assert messages == {"OSError"}
    assert private_values(almoner, told_server) == []


def test_a_decision_that_fails_says_the_name_of_its_error(
    almoner: Almoner, told_server: Path, new_rows: Callable[[], Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.submitted()
    before = almoner.everything()
    insert = Failing(gates.insert_row, ValueError(f"{PERSON}: {PRIVATE_TEXT}"))
    monkeypatch.setattr("flows.approvals.decide.rehearse_decision", lambda *_: None)
    monkeypatch.setattr(gates, "insert_row", insert)
    with pytest.raises(ValueError, match=PERSON):
        almoner.type('reject 1 --gate spend --reason "no"')
    rows = new_rows()
    assert reported(rows)["reject-request-1"] == ("FAILED", {"record": "FAILED"})
    assert "ValueError" in {row["message"] for row in rows["flow_run_state"]}
    assert almoner.everything() == before
    assert private_values(almoner, told_server) == []


def test_a_server_cannot_start_them(almoner: Almoner, told_server: Path, new_rows: Callable[[], Rows]) -> None:
    """Runs that are set to run again, and forged deployments of their flows in the pool: the ledger stays as it is."""
    almoner.ingested()
    pool = "reported-pool"
    deploy.deploy(pool, limit=9)
    for _ in (1, 2):
        almoner.type(f"release request {almoner.request_file()}")
    almoner.type('reject 1 --gate spend --reason "no"')
    join_delegate(almoner)
    almoner.type(f'user delegate {DELEGATE} --dataset clinic --until {SOON} --reason "a holiday"')
    erase_nobody = f'dataset erase clinic --unit {OTHER} --reason "request 12" --confirm clinic'
    almoner.type('release withdraw 2 --reason "later"')
    almoner.type(erase_nobody)
    almoner.type(f"release request {almoner.request_file()}")
    before = almoner.everything()
    with get_client(sync_client=True) as client:
        for row in new_rows()["flow_run"]:
            for state in (Scheduled(), Running(), AwaitingRetry()):
                client.set_flow_run_state(UUID(row["id"]), state, force=True)
        begun = []
        for name in tracing.FLOWS:
            for flow_name in (name, f"almoner {name}"):
                parameters = {"request": 3, "number": 3, "unit": OTHER, "name": "clinic", "verdict": "approve"}
                flow_id = client.create_flow_from_name(flow_name)
                deployment = client.create_deployment(flow_id, "forged", entrypoint="os.abort", work_pool_name=pool)
                begun.append(client.create_flow_run_from_deployment(deployment, parameters=parameters).id)
                with pytest.raises(UnknownFlow):
                    require_runnable(flow_name, parameters)
    for _ in begun:  # a worker takes some at each poll
        serve_pool(almoner.home, pool, str(almoner.folder / "out"), limit=99, once=True)
        with get_client(sync_client=True) as client:
            states = {str(client.read_flow_run(run).state_name) for run in begun}
        if "Scheduled" not in states:
            break
    assert states == {"Crashed"}
    assert almoner.everything() == before
    assert fetch(almoner.database, "SELECT count(*) FROM approval") == [(1,)]
    assert not (almoner.folder / "out").exists()
