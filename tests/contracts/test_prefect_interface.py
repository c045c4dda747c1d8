"""Prefect's interface as almoner uses it: names, parameters and attributes of the installed version.

A new version within the range of pyproject.toml is tried by these tests first: they say what is gone, by name. What is
there is then tried by the tests of releases on a real server (tests/integration/test_release_flow.py).
"""

import ast
import importlib
import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path

import prefect
import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from prefect.client.orchestration import PrefectClient, SyncPrefectClient
from prefect.workers.base import BaseWorker

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("cli", "flows", "tasks", "models_db")
SIGNATURES = {
    "prefect:flow": ("name", "flow_run_name", "persist_result", "log_prints", "validate_parameters"),
    "prefect:task": (
        "name", "task_run_name", "retries", "retry_delay_seconds", "retry_condition_fn", "cache_policy",
        "persist_result", "log_prints",
    ),
    "prefect.artifacts:create_markdown_artifact": ("markdown", "key"),
    "prefect.flow_engine:load_flow_run": ("flow_run_id",),
    "prefect.flow_engine:run_flow": ("flow", "flow_run"),
    "prefect.flow_runs:suspend_flow_run": ("key",),
    "prefect.client.schemas.schedules:construct_schedule": ("interval", "anchor_date", "cron", "rrule", "timezone"),
    "prefect.server.schemas.schedules:CronSchedule.get_dates": ("n", "start", "end"),
    "prefect.server.schemas.schedules:IntervalSchedule.get_dates": ("n", "start", "end"),
    "prefect.server.schemas.schedules:RRuleSchedule.get_dates": ("n", "start", "end"),
    "prefect.states:AwaitingRetry": ("scheduled_time",),
    "prefect.workers.base:BaseWorker.run": ("flow_run", "configuration", "task_status"),
    "prefect.workers.base:BaseWorker.start": ("run_once", "printer"),
    "prefect.workers.base:BaseWorker.__init__": (
        "work_pool_name", "work_queues", "limit", "name", "create_pool_if_not_found",
    ),
}  # fmt: skip
"""Functions by module, with the parameters that we name."""
CLIENT = {
    "create_flow_run_from_deployment": ("deployment_id", "parameters", "work_queue_name", "idempotency_key"),
    "create_work_pool": ("work_pool", "overwrite"),
    "create_work_queue": ("name", "priority", "work_pool_name"),
    "delete_deployment": ("deployment_id",),
    "read_deployments": ("flow_filter", "work_pool_filter", "limit", "offset"),
    "read_deployment_by_name": ("name",),
    "read_flow": ("flow_id",),
    "read_flow_run": ("flow_run_id",),
    "read_flow_runs": ("flow_run_filter", "work_pool_filter", "sort", "limit", "offset"),
    "read_work_pool": ("work_pool_name",),
    "read_work_queue_by_name": ("name", "work_pool_name"),
    "read_workers_for_work_pool": ("work_pool_name", "offset", "limit"),
    "resume_flow_run": ("flow_run_id",),
    "set_flow_run_state": ("flow_run_id", "state", "force"),
    "update_work_queue": ("id", "priority", "concurrency_limit"),
}
"""Methods of Prefect's client, with the parameters that we give."""


def imported_names() -> list[tuple[str, str]]:
    """Every module of Prefect that almoner imports, with the name that it takes from it."""
    paths = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    return sorted({pair for path in paths for pair in _names(ast.parse(path.read_text()))})


def _names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "prefect":
            yield from ((str(node.module), alias.name) for alias in node.names)


def test_the_installed_version_is_one_of_a_single_minor_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = map(Requirement, project["optional-dependencies"]["orchestration"])
    (wanted,) = [each for each in asked if each.name == "prefect"]
    version = Version(prefect.__version__)
    assert wanted.specifier.contains(version)
    assert not wanted.specifier.contains(f"{version.major}.{version.minor + 1}.0")


def test_every_name_that_is_imported_is_there() -> None:
    names = imported_names()
    assert len(names) > 30
    assert [pair for pair in names if not _is_there(*pair)] == []


def test_a_name_that_is_gone_is_found() -> None:
    assert list(_names(ast.parse("from prefect.states import Gone"))) == [("prefect.states", "Gone")]
    assert not _is_there("prefect.states", "Gone")


def _is_there(module: str, name: str) -> bool:
    return hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", SIGNATURES)
def test_functions_take_the_parameters_that_they_are_given(name: str) -> None:
    module, _, path = name.partition(":")
    function = importlib.import_module(module)
    for part in path.split("."):
        function = getattr(function, part)
    _require_parameters(function, SIGNATURES[name])


@pytest.mark.parametrize("method", CLIENT)
def test_a_client_takes_the_parameters_that_it_is_given(method: str) -> None:
    clients = [client for client in (PrefectClient, SyncPrefectClient) if hasattr(client, method)]
    assert clients
    for client in clients:
        _require_parameters(getattr(client, method), CLIENT[method])


def _require_parameters(function: object, names: tuple[str, ...]) -> None:
    """Parameters that a function has, or takes by `**`."""
    assert callable(function)
    parameters = inspect.signature(function).parameters
    open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    assert open_ended or set(names) <= set(parameters)


def test_every_method_of_the_client_that_is_called_is_known_here() -> None:
    """A file that imports Prefect calls nothing of a client that this file does not name."""
    called = set()
    for path in (ROOT / "flows").rglob("*.py"):
        tree = ast.parse(path.read_text())
        if not any(_names(tree)):
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="client"), attr=method)):
                    called.add(method)
                case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="client"), attr=method)):
                    called.add(method)
    assert called == set(CLIENT)


def test_a_worker_has_the_parts_that_ours_reaches_into() -> None:
    """The base class keeps what it is submitting, its pool's name and its log in attributes that are not public."""
    source = inspect.getsource(BaseWorker)
    for name in ("_submitting_flow_run_ids", "_work_pool_name", "_logger"):
        assert f"self.{name}" in source
    assert inspect.iscoroutinefunction(BaseWorker.get_and_submit_flow_runs)
    assert inspect.iscoroutinefunction(BaseWorker.run)
