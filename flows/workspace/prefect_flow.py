"""Flows as parts of a composed Prefect flow run: no retries, and nothing stored.

Outside a Prefect flow run a flow is a plain function, and Prefect is not imported. Inside one it is a subflow. A retry
would charge again, a persisted result would put private text into Prefect's storage, and captured prints would put it
into its log (docs/threat-model.md).
"""

import functools
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from typing import Final, ParamSpec, TypedDict, TypeVar
from urllib.parse import urlsplit

from tasks.prefect_task import is_in_flow_run

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

API_VARIABLE: Final = "PREFECT_API_URL"


class FlowSettings(TypedDict):
    """The keyword arguments of `prefect.flow` that matter for privacy."""

    retries: int
    persist_result: bool
    log_prints: bool


PRIVATE_FLOW: Final[FlowSettings] = {"retries": 0, "persist_result": False, "log_prints": False}


def private_flow(name: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Make a function a subflow of the current Prefect flow run, if there is one."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            if not is_in_flow_run():
                return function(*args, **kwargs)
            from prefect import flow

            return flow(name=name, **PRIVATE_FLOW)(function)(*args, **kwargs)

        return call

    return decorate


def call_outside_engine(function: Callable[[], Result]) -> Result:
    """Call a function as if no Prefect flow run were under way.

    Prefect's engine would record when each of its steps began and ended to the microsecond.
    """
    return Context().run(function)


@contextmanager
def set_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the duration of the block, for this process and those that it starts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def names_prefect_server() -> bool:
    """Return whether the environment, else Prefect's active profile, names a server; Prefect is not imported.

    An address that is no http or https address counts as none.
    """
    url = os.environ.get(API_VARIABLE, _active_profile().get(API_VARIABLE, ""))
    return urlsplit(url).scheme in ("http", "https")


def _active_profile() -> dict[str, str]:
    """Return the settings of Prefect's active profile; none if it has no file that can be read."""
    folder = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    try:
        profiles = tomllib.loads((folder / "profiles.toml").read_text(encoding="utf-8"))
        active = os.environ.get("PREFECT_PROFILE") or profiles["active"]
        return {name: value for name, value in profiles["profiles"][active].items() if isinstance(value, str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
