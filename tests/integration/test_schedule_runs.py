"""Schedules on a Prefect server: Prefect says when to look, the ledger what is due, and each slot spends once."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import WorkPoolFilter, WorkPoolFilterName
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.flow_engine import run_flow
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Pending

from flows.orchestration.reconciliation import RUN_QUEUE, ScheduleKeeper
from flows.orchestration.release_flow import FLOWS, RunLost, StepFailed, decide_schedule
from flows.workspace.workspace import open_workspace
from models_db.services.audit import chain
from models_db.values.amounts import total_amount
from tasks.inference.catalogue.registry import ModelNotPulled
from tests.integration.canary import PRIVATE_TEXT, leaks, text_of
from tests.integration.killing import balance, instalments, killed
from tests.integration.prefect_rows import Rows
from tests.integration.story import Almoner
from tests.integration.team import Team
from tests.integration.test_schedules import SMALL, authorised, scheduled, slots
from tests.support import PATIENCE, fetch

pytestmark = pytest.mark.slow  # a Prefect server
CONCERNS = ("flows/schedules", "flows/orchestration")


def keeper_of(almoner: Almoner, *, approved: bool = False) -> ScheduleKeeper:
    """The keeper of a home whose pool is on the server."""
    keeper = ScheduleKeeper(almoner.home, approved)
    keeper.prepare()
    return keeper


def deployments(keeper: ScheduleKeeper) -> dict[str, DeploymentResponse]:
    """The deployments of a pool, by name."""
    with get_client(sync_client=True) as client:
        of_pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[keeper.pool]))
        return {each.name: each for each in client.read_deployments(work_pool_filter=of_pool)}


def started(keeper: ScheduleKeeper) -> list[FlowRun]:
    """The flow runs that a keeper has started, oldest first; not those that Prefect has planned."""
    with get_client(sync_client=True) as client:
        of_pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[keeper.pool]))
        runs = client.read_flow_runs(work_pool_filter=of_pool, limit=200)
    own = [run for run in runs if (run.idempotency_key or "").startswith(keeper.pool)]
    return sorted(own, key=lambda run: run.created or run.expected_start_time)


def carried(run: FlowRun | UUID) -> str:
    """Carry a flow run out, as its worker's process does; its state afterwards."""
    identifier = run if isinstance(run, UUID) else run.id
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(identifier, Pending(), force=True)
        flow_run = client.read_flow_run(identifier)
        with suppress(StepFailed, RunLost):
            run_flow(FLOWS[client.read_flow(flow_run.flow_id).name], flow_run=flow_run)
        state = client.read_flow_run(identifier).state
    assert state is not None
    return str(state.name)


def attempts(almoner: Almoner) -> int:
    ((begun,),) = fetch(almoner.database, "SELECT count(*) FROM transition WHERE to_state = 'running'")
    return int(begun)


def ledger_of(almoner: Almoner) -> str:
    with almoner.database.read() as session:
        return chain.ledger_id(session)


def test_the_deployments_of_a_home_are_its_active_schedules(almoner: Almoner, prefect_home: Path) -> None:
    authorised(almoner)
    scheduled(almoner, '--cron "0 6 * * 1" --zone Europe/Berlin', start="2099-01-01")
    for rule in ("--every 12h", '--rrule "FREQ=MONTHLY;BYDAY=1MO;BYHOUR=6;BYMINUTE=0" --zone Europe/Berlin'):
        scheduled(almoner, rule, start="2099-01-01")
    keeper, ledger = keeper_of(almoner), ledger_of(almoner)
    keeper.keep()
    first = deployments(keeper)
    names = [f"{keeper.pool}-{number}" for number in (1, 2, 3)]
    assert first.keys() == {keeper.pool, *names}
    assert [first[name].parameters for name in names] == [{"schedule": n, "ledger": ledger} for n in (1, 2, 3)]
    assert {first[name].entrypoint for name in names} == {"flows.orchestration.release_flow.decide_schedule"}
    assert first[keeper.pool].work_queue_name == RUN_QUEUE
    cron, interval, rule = (first[name].schedules[0].schedule for name in names)
    assert isinstance(cron, CronSchedule)
    assert isinstance(interval, IntervalSchedule)
    assert isinstance(rule, RRuleSchedule)
    assert (cron.cron, cron.timezone) == ("0 6 * * 1", "Europe/Berlin")
    assert interval.interval == timedelta(hours=12)
    assert "DTSTART:20990101T000000" in rule.rrule

    almoner.type('schedule pause 1 --reason "cleaning"')
    almoner.type('schedule end 2 --reason "over"')
    keeper.keep()
    assert deployments(keeper).keys() == {keeper.pool, names[2]}
    almoner.type('schedule resume 1 --reason "clean"')
    ScheduleKeeper(almoner.home).keep()  # another process
    last = deployments(keeper)
    assert last.keys() == {keeper.pool, names[0], names[2]}
    assert (last[names[2]].id, last[names[2]].updated) == (first[names[2]].id, first[names[2]].updated)
    assert started(keeper) == []


def test_a_late_slot_is_decided_and_run_once(almoner: Almoner, prefect_home: Path) -> None:
    """Two workers keep the same pool, and several runs are late: what is due the ledger says."""
    authorised(almoner)
    scheduled(almoner)
    keeper, ledger = keeper_of(almoner), ledger_of(almoner)
    for each in (keeper, ScheduleKeeper(almoner.home), keeper):
        each.keep()
    (trigger,) = started(keeper)
    with get_client(sync_client=True) as client:
        deployment = deployments(keeper)[f"{keeper.pool}-1"].id
        late = [client.create_flow_run_from_deployment(deployment).id for _ in range(2)]
    assert [carried(run) for run in (trigger, *late)] == ["Completed"] * 3
    assert slots(almoner) == [(1, None)]
    assert attempts(almoner) == 0  # the decision runs nothing

    for each in (keeper, ScheduleKeeper(almoner.home), keeper):
        each.keep()
    (run,) = [each for each in started(keeper) if each.id != trigger.id]
    assert run.parameters == {"request": 1, "ledger": ledger}
    with get_client(sync_client=True) as client:
        runs = deployments(keeper)[keeper.pool].id
        second = client.create_flow_run_from_deployment(runs, parameters=run.parameters).id
    assert [carried(each) for each in (run, second)] == ["Completed"] * 2
    keeper.keep()
    assert len(started(keeper)) == 2
    assert (almoner.state(), attempts(almoner)) == ("produced", 1)
    assert balance(almoner).spent == total_amount(instalments(almoner))
    assert leaks(text_of(prefect_home)) == []


@pytest.mark.parametrize(
    ("point", "decided"), [("while a slot is decided", []), ("after a slot is decided", [(1, None)])]
)
def test_a_decision_whose_process_is_killed_is_made_once_and_run_once(
    almoner: Almoner, prefect_home: Path, point: str, decided: list[tuple[object, ...]]
) -> None:
    authorised(almoner)
    scheduled(almoner)
    killed("schedule run 1", point)
    assert slots(almoner) == decided
    keeper = keeper_of(almoner)
    for _ in range(2):
        keeper.keep()
        for run in started(keeper):
            assert carried(run) == "Completed"
    assert slots(almoner) == [(1, None)]
    assert (almoner.state(), attempts(almoner)) == ("produced", 1)
    assert almoner.ask("doctor")["ok"] is True


def separate_roles(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> tuple[Team, Almoner]:
    """A team in which anna asks and root runs, with an authorisation of three runs."""
    almoner.ingested()
    team = Team(almoner, almoner.home.database_url, monkeypatch)
    text = almoner.home.policy.read_text().replace("several_roles: true", "several_roles: false")
    almoner.type(f"policy adopt {almoner.write('team.yaml', text)}")
    sue, anna = team.enrol("sue", "steward"), team.enrol("anna", "analyst")
    file = team.at(anna).request_file(**SMALL)
    anna.type(f'standing propose {file} --runs 3 --until 2099-12-31 --reason "every month"')
    team.at(sue).type('approve 1 --gate proposal --reason "agreed"', piped="clinic\n")
    return team, anna


def test_where_roles_are_separate_each_home_has_its_pool(
    almoner: Almoner, prefect_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, anna = separate_roles(almoner, monkeypatch)
    rick = team.enrol("rick", "runner")
    scheduled(team.at(anna))

    asks, runs = keeper_of(anna), keeper_of(rick)
    assert asks.pool != runs.pool
    for keeper in (asks, runs):
        keeper.keep()
    assert started(runs) == []
    (trigger,) = started(asks)
    assert carried(trigger) == "Completed"
    assert slots(almoner) == [(1, None)]
    for keeper in (asks, runs):
        keeper.keep()
    assert [run.id for run in started(asks)] == [trigger.id]  # an analyst runs nothing
    assert started(runs) == []  # rick has not the data
    root = keeper_of(team.at(almoner))
    root.keep()
    (run,) = (each for each in started(root) if each.parameters.get("request") == 1)
    assert carried(run) == "Completed"
    assert (almoner.state(), attempts(almoner)) == ("produced", 1)


def test_requests_approved_by_hand_are_started_once_if_that_is_wanted(
    almoner: Almoner, prefect_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.approved()
    keeper_of(almoner).keep()
    keeper = keeper_of(almoner, approved=True)
    assert started(keeper) == []
    keeper.keep()
    (run,) = started(keeper)
    assert carried(run) == "Completed"
    assert almoner.state() == "approved"  # this machine is not set to run it, whatever the server says
    monkeypatch.setenv("ALMONER_APPROVED", "1")
    monkeypatch.setattr("flows.releases.attempt.code_digest", Mock(return_value="c" * 64))
    assert carried(run) == "Failed"
    keeper.keep()
    assert len(started(keeper)) == 1  # only a person runs it again
    monkeypatch.undo()


def test_prefect_keeps_the_name_of_an_error_and_the_machine_its_text(
    almoner: Almoner,
    prefect_home: Path,
    new_rows: Callable[[], Rows],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    authorised(almoner)
    scheduled(almoner)
    with pytest.raises(StepFailed, match="OtherLedger"):
        decide_schedule(1, "another")
    for problem, name in ((ModelNotPulled("tiny"), "ModelNotPulled"), (ValueError(PRIVATE_TEXT), "TaskFailed")):
        monkeypatch.setattr("flows.releases.propose.model_facts", Mock(side_effect=problem))
        with pytest.raises(StepFailed, match=f"^{name}$"):
            decide_schedule(1, ledger_of(almoner))
    assert slots(almoner) == []
    rows = str(new_rows())
    assert "ModelNotPulled" in rows
    assert "'tiny'" not in rows
    assert leaks(text_of(prefect_home) + capsys.readouterr().err) == []


def test_a_prefect_server_that_does_not_answer_is_named(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    authorised(almoner)
    scheduled(almoner)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        told = almoner.ask("serve", expected=3)
    assert (told["error"], told["facts"]) == ("PrefectUnreachable", {"reason": "ConnectError"})
    assert slots(almoner) == []


def test_an_analyst_and_a_runner_serve_on_two_servers(
    almoner: Almoner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two homes, each with `almoner serve` and a Prefect server of its own: the ledger is all that they share."""
    team, anna = separate_roles(almoner, monkeypatch)
    root = open_workspace(team.at(almoner).home).actor.name
    almoner.type(f'user revoke {root} analyst --reason "root runs what anna asks for"')
    scheduled(team.at(anna))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_WORKER_QUERY_SECONDS", "1")
    monkeypatch.setenv("ALMONER_TEST_HOLD", str(tmp_path / "hold"))
    command = [sys.executable, "-m", "tests.integration.serve_process"]
    serving = []
    for home in (anna, almoner):
        team.at(home)
        serving.append(subprocess.Popen(command))
    try:
        patience = time.monotonic() + PATIENCE
        while fetch(almoner.database, "SELECT count(*) FROM artifact") != [(1,)]:
            assert [each.poll() for each in serving] == [None, None]
            assert time.monotonic() < patience
            time.sleep(0.5)
    finally:
        for each in serving:
            each.send_signal(signal.SIGTERM)
        ends = [each.wait(timeout=PATIENCE) for each in serving]
    assert ends == [0, 0]
    assert (slots(almoner), almoner.state(), attempts(almoner)) == ([(1, None)], "produced", 1)
    for home in (anna, almoner):
        assert oct(home.home.prefect.stat().st_mode & 0o777) == "0o700"
        assert leaks(text_of(home.home.prefect)) == []
