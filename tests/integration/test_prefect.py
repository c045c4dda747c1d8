"""The flows under a real Prefect server: they do the same, and Prefect learns nothing private.

Inside a Prefect flow run they are its subflows; outside one, a server that is configured is told nothing.
"""

import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from prefect import flow

from flows.orchestration.release_flow import decide_schedule, run_waiting
from flows.releases.execute import execute
from flows.releases.propose import propose_release
from flows.releases.publish import publish_release
from flows.workspace.prefect_flow import PRIVATE_FLOW
from models_db.services.audit import chain
from models_db.services.gates import GateClosed
from tasks.common.faults import TaskFailed
from tasks.decoding.sampling_rule import InvisibleInkRule
from tests.integration.canary import PRIVATE_TEXT, leaks, text_of
from tests.integration.prefect_rows import Rows, prefect_rows
from tests.integration.story import REQUEST, Almoner
from tests.integration.test_schedules import authorised, scheduled
from tests.support import PATIENCE

Result = TypeVar("Result")

pytestmark = pytest.mark.slow  # a Prefect server
CONCERNS = ("flows/schedules", "flows/workspace", "tasks/prefect_task.py")
TASKS = {"generate_texts", "evaluate_texts", "require_publishable", "deliver"}


def known_to_prefect(new_rows: Callable[[], Rows], tasks: int) -> Rows:
    """The new rows of Prefect's database, once all logs and the states of so many task runs have arrived."""
    from prefect.logging.handlers import APILogHandler

    patience = time.monotonic() + PATIENCE
    while True:
        APILogHandler().flush()
        rows = new_rows()
        ended = [row for row in rows["task_run"] if row["state_type"] in ("COMPLETED", "FAILED")]
        if len(ended) >= tasks and all(row["state_type"] != "RUNNING" for row in rows["flow_run"]):
            return rows
        assert time.monotonic() < patience, "Prefect's server has not heard of every task"
        time.sleep(0.2)


def in_flow(call: Callable[[], Result]) -> Result:
    """Call a function inside a Prefect flow run, as a flow of somebody else's would."""
    return flow(name="team", **PRIVATE_FLOW)(call)()


def test_a_release_as_prefect_flows(almoner: Almoner, prefect_home: Path, new_rows: Callable[[], Rows]) -> None:
    stored = set((prefect_home / "storage").glob("**/*"))
    almoner.ingested()
    root = almoner.home.root
    proposal = in_flow(lambda: propose_release(root, REQUEST))
    assert proposal.request_id == 1
    almoner.type('approve 1 --gate spend --reason "a first look"')
    outcome = in_flow(lambda: execute(root, 1))
    assert outcome.texts == 3
    almoner.type('approve 1 --gate publish --reason "names nobody"')
    published = in_flow(lambda: publish_release(root, 1, almoner.folder / "out"))
    almoner.type(f"verify-release {published.place}")
    almoner.type("doctor")

    rows = known_to_prefect(new_rows, tasks=len(TASKS))
    tasks = [row for row in rows["task_run"] if not row["task_key"].startswith(("propose", "execute", "publish"))]
    assert {row["task_key"].rsplit("-", 1)[0] for row in tasks} == TASKS
    assert {row["state_type"] for row in rows["task_run"]} == {"COMPLETED"}
    flow_of = {row["id"]: row["name"] for row in prefect_rows(prefect_home)["flow"]}
    parameters = {flow_of[row["flow_id"]]: json.loads(row["parameters"]) for row in rows["flow_run"]}
    assert set(parameters) == {"team", "propose", "execute", "publish"}
    where = {"kind": "processes", "address": None}
    asked = {"home": str(root), "request_id": 1, "device": "auto", "anew": False, "workers": 1, "backend": where}
    assert parameters["execute"] == asked
    assert {row["run_count"] for row in (*rows["flow_run"], *rows["task_run"])} == {1}
    assert rows["log"]  # so that what follows looks at something
    assert rows["artifact"] == []
    assert set((prefect_home / "storage").glob("**/*")) == stored
    kept = text_of(prefect_home)
    assert leaks(kept) == []
    for line in (almoner.bundle / "texts.jsonl").read_text().splitlines():
        assert json.dumps(json.loads(line)["text"])[1:-1] not in kept


def test_a_failing_release_tells_prefect_nothing_private(
    almoner: Almoner,
    prefect_home: Path,
    new_rows: Callable[[], Rows],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    almoner.approved()

    def fail(self: InvisibleInkRule, session: Any) -> None:
        raise ValueError(PRIVATE_TEXT)

    monkeypatch.setattr(InvisibleInkRule, "next_tokens", fail)
    with pytest.raises(TaskFailed) as failed:
        in_flow(lambda: execute(almoner.home.root, 1))
    rows = known_to_prefect(new_rows, tasks=1)
    assert "FAILED" in {row["state_type"] for row in rows["task_run"]}
    assert "TaskFailed" in str(rows["flow_run_state"])
    assert any("TaskFailed" in row["message"] for row in rows["log"])
    assert leaks(text_of(prefect_home)) == []
    assert leaks(caplog.text) == []
    assert leaks("".join(traceback.format_exception(failed.value))) == []
    assert almoner.state() == "approved"


def ledger_of(almoner: Almoner) -> str:
    with almoner.database.read() as session:
        return chain.ledger_id(session)


def test_a_refusal_is_an_error_of_ours_in_prefect_too(almoner: Almoner, prefect_home: Path) -> None:
    almoner.submitted()
    before = almoner.everything()
    with pytest.raises(GateClosed):
        in_flow(lambda: execute(almoner.home.root, 1))
    assert almoner.everything() == before


def test_a_slot_that_prefect_starts_shows_none_of_its_engines_times(
    almoner: Almoner, told_server: Path, new_rows: Callable[[], Rows]
) -> None:
    """Its engine would record when each text began and ended to the microsecond."""
    authorised(almoner)
    scheduled(almoner)
    decide_schedule(1, ledger_of(almoner))
    run_waiting(1, ledger_of(almoner))
    assert almoner.state() == "produced"
    rows = new_rows()
    shown = sorted((row["name"], row["state_type"]) for row in rows["flow_run"])
    assert shown == [("run-request-1", "COMPLETED"), ("schedule-1", "COMPLETED")]
    assert rows["task_run"] == []
    assert leaks(text_of(told_server)) == []


def test_commands_tell_a_configured_server_nothing(
    almoner: Almoner, told_server: Path, new_rows: Callable[[], Rows]
) -> None:
    almoner.published()
    rows = new_rows()
    assert (rows["flow_run"], rows["task_run"], rows["artifact"]) == ([], [], [])


def test_a_server_that_does_not_answer_changes_nothing(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.approved()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    almoner.type("run 1")
    assert almoner.state() == "produced"
