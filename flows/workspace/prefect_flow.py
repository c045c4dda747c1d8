"""Flows as parts of a composed Prefect flow run: no retries, and nothing stored.

Outside a Prefect flow run a flow is a plain function, and Prefect is not imported; what a Prefect server shows of it is
reported to it (`flows.observability.prefect_report`). Inside one it is a subflow. A retry would charge again, a
persisted result would put private text into Prefect's storage, and captured prints would put it into its log
(docs/threat-model.md).
"""

import functools
from collections.abc import Callable
from typing import Final, ParamSpec, TypedDict, TypeVar

from tasks.prefect_task import is_in_flow_run

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


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
