"""The automations of `almoner deploy` fire on a Prefect server: its events, triggers and actions, and our notices."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import Running, Suspended

from flows.orchestration import deploy
from flows.orchestration.serve_pool import serve_pool
from flows.orchestration.worker_settings import DESTINATION_VARIABLE
from tasks.generation.decoding.invisible_ink_rule import InvisibleInkRule
from tests.integration.canary import PRIVATE_TEXT, leaks
from tests.integration.receiver import Receiver
from tests.integration.story import Almoner
from tests.integration.test_release_flow import carried, marked, resumed
from tests.support import wait_until

pytestmark = pytest.mark.slow  # a Prefect server
CONCERNS = ("flows/orchestration", "flows/notifications")
SHORTEST = timedelta(seconds=10)
"""The shortest time after which Prefect notices that something has not happened."""
FAILED, WAITED = "almoner: a release failed", "almoner: a gate has waited for a day"


@pytest.fixture
def pool(almoner: Almoner, prefect_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A work pool, and automations that differ from the shipped ones in the time before a reminder alone."""
    monkeypatch.setenv(DESTINATION_VARIABLE, str(almoner.folder / "out"))
    monkeypatch.setattr(deploy, "HOURS_BEFORE_REMINDER", SHORTEST / timedelta(hours=1))
    name = f"pool-{uuid4()}"
    deploy.deploy(name, limit=None)
    yield name
    with get_client(sync_client=True) as client:  # the server outlives the test
        for automation in (FAILED, WAITED):
            for made in client.read_automations_by_name(automation):
                client.delete_automation(made.id)


def scheduled_by(automation: str, pool: str) -> list[FlowRun]:
    """The flow runs that an automation has made and no worker has taken yet."""
    scheduled = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])))
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_run_filter=scheduled,
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
            sort=FlowRunSort.EXPECTED_START_TIME_ASC,
            limit=200,
        )
    return [run for run in runs if run.created_by and run.created_by.display_value == automation]


def told_by(automation: str, almoner: Almoner, pool: str) -> None:
    """Wait for an automation's flow run, and let a worker carry it out."""
    wait_until(lambda: scheduled_by(automation, pool))
    serve_pool(almoner.home, pool, str(almoner.folder / "out"), once=True)


def test_a_gate_that_waits_and_a_release_that_fails_are_told(
    almoner: Almoner, pool: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.ingested()
    almoner.type(f"notify add hook --webhook {receiver.url}")
    almoner.type(f"release request {almoner.request_file()}")
    run = UUID(almoner.ask("release start 1")["flow_run"])
    assert carried(run) == "Suspended"
    told_by(WAITED, almoner, pool)
    assert receiver.events == ["a request waits at the spend gate"]

    def fail(self: InvisibleInkRule, step: Any) -> None:
        raise ValueError(PRIVATE_TEXT)

    monkeypatch.setattr(InvisibleInkRule, "next_tokens", fail)
    almoner.type('approve 1 --gate spend --reason "a first look"')
    resumed(run)
    assert carried(run) == "Failed"
    told_by(FAILED, almoner, pool)
    assert receiver.events[1:] == ["a run failed"]
    assert leaks("".join(body.decode() for _, body in receiver.seen)) == []


def test_a_second_gate_is_waited_for_anew(almoner: Almoner, pool: str) -> None:
    """Both gates lie within the time that one may wait: the first is passed, the second is not."""
    almoner.submitted()
    run = UUID(almoner.ask("release start 1")["flow_run"])
    for state in (Suspended(), Running(), Suspended()):
        marked(run, state)
    wait_until(lambda: scheduled_by(WAITED, pool))
