"""The flows under a real Prefect server: they do the same, and Prefect learns nothing private.

Inside a Prefect flow run they are its subflows; outside one, a server that is configured is told nothing.
"""

import json
import os
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import Mock

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.releases.execute import execute
from flows.releases.propose import propose_release
from flows.releases.publish import publish_release
from flows.schedules.poller import PollerSettings
from flows.schedules.prefect_deployments import THREAD, deployments, start_prefect_runner
from flows.schedules.prefect_trigger import run_due_slot
from flows.workspace.prefect_flow import PRIVATE_FLOW
from flows.workspace.workspace import open_workspace
from models_db.services.audit import chain
from models_db.services.gates import GateClosed
from tasks.common.faults import TaskFailed
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.inference.catalogue.registry import ModelNotPulled
from tasks.workers.backend_settings import WorkerBackend
from tests.integration.canary import PRIVATE_TEXT, leaks, text_of
from tests.integration.prefect_rows import Rows, prefect_rows
from tests.integration.story import REQUEST, Almoner
from tests.integration.test_schedules import authorised, scheduled
from tests.support import PATIENCE, fetch

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


def test_a_schedule_is_a_deployment_that_knocks(almoner: Almoner, prefect_home: Path) -> None:
    """What Prefect starts decides the slot by the ledger, and a second knock finds nothing to do."""
    authorised(almoner)
    scheduled(almoner, '--cron "0 6 * * 1" --zone Europe/Berlin')
    for rule in ("--every 12h", '--rrule "FREQ=MONTHLY;BYDAY=1MO;BYHOUR=6;BYMINUTE=0" --zone Europe/Berlin'):
        scheduled(almoner, rule)
    ledger = ledger_of(almoner)
    made = deployments(open_workspace(almoner.home))
    assert [each.name for each in made] == [f"{ledger[:12]}-{number}" for number in (1, 2, 3)]
    assert {each.entrypoint for each in made} == {"flows.schedules.prefect_trigger.run_due_slot"}
    known = [each.apply() for each in made]
    with get_client(sync_client=True) as client:
        found = [client.read_deployment(each) for each in known]
    assert [each.parameters for each in found] == [{"schedule": number, "ledger": ledger} for number in (1, 2, 3)]
    cron, interval, rule = (each.schedules[0].schedule for each in found)
    assert isinstance(cron, CronSchedule)
    assert isinstance(interval, IntervalSchedule)
    assert isinstance(rule, RRuleSchedule)
    assert (cron.cron, cron.timezone) == ("0 6 * * 1", "Europe/Berlin")
    assert interval.interval == timedelta(hours=12)
    assert "DTSTART:20260101T000000" in rule.rrule

    for _ in range(2):
        run_due_slot(1, ledger)
        assert fetch(almoner.database, "SELECT schedule_id, request_id FROM schedule_slot") == [(1, 1)]
        assert almoner.state() == "produced"
    assert leaks(text_of(prefect_home)) == []


def test_prefect_keeps_the_name_of_an_error_and_the_machine_its_text(
    almoner: Almoner,
    told_server: Path,
    new_rows: Callable[[], Rows],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    authorised(almoner)
    scheduled(almoner)
    with pytest.raises(RuntimeError, match="OtherLedger"):
        run_due_slot(1, "another")
    for problem, name in ((ModelNotPulled("tiny"), "ModelNotPulled"), (ValueError(PRIVATE_TEXT), "TaskFailed")):
        monkeypatch.setattr("flows.releases.propose.model_facts", Mock(side_effect=problem))
        with pytest.raises(RuntimeError, match=f"^{name}$"):
            run_due_slot(1, ledger_of(almoner))
    assert "'tiny'" in capsys.readouterr().err
    assert fetch(almoner.database, "SELECT count(*) FROM schedule_slot") == [(0,)]
    rows = str(new_rows())
    assert "ModelNotPulled" in rows
    assert "tiny" not in rows
    assert leaks(text_of(told_server)) == []


def ledger_of(almoner: Almoner) -> str:
    with almoner.database.read() as session:
        return chain.ledger_id(session)


def is_served() -> bool:
    return any(thread.name == THREAD for thread in threading.enumerate())


def test_prefects_runner_works_beside_the_loop_and_ends_with_it(almoner: Almoner, prefect_home: Path) -> None:
    authorised(almoner)
    scheduled(almoner, '--cron "0 6 1 1 *"', start="2099-01-01")
    settings = PollerSettings("cpu", 2, backend=WorkerBackend("threads"))
    before = dict(os.environ)
    with start_prefect_runner(almoner.home, settings):
        assert is_served()
        assert PollerSettings.of_environment() == settings
    assert not is_served()
    assert dict(os.environ) == before
    with get_client(sync_client=True) as client:
        found = client.read_deployment_by_name(f"schedule/{ledger_of(almoner)[:12]}-1")
    assert found.tags == ["almoner"]


def test_a_prefect_server_that_does_not_answer_is_named(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    authorised(almoner)
    scheduled(almoner)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        told = almoner.ask("serve", expected=3)
    assert (told["error"], told["facts"]) == ("PrefectUnreachable", {"reason": "ConnectError"})
    assert fetch(almoner.database, "SELECT count(*) FROM schedule_slot") == [(0,)]


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
    run_due_slot(1, ledger_of(almoner))
    assert almoner.state() == "produced"
    rows = new_rows()
    assert [(row["name"], row["state_type"]) for row in rows["flow_run"]] == [("schedule-1", "COMPLETED")]
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
