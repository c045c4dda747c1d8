"""Flows and their stages, as a Prefect server is told of them (`flows.observability.prefect_report`)."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from flows.observability.prefect_report import FlowReport, open_report
from models_db.errors import AlmonerError
from tasks.common.retry import Wait, waiting_with

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

DURATION_STEPS: Final = (60, 300, 900, 3600, 14400, 43200)
"""Steps in seconds after the beginning of a flow, at which its states are sent: stages read private data, and time is
outside the promise (PRIVACY §1, docs/observability.md)."""

FLOWS: Final = (
    "ingest",
    "propose",
    "execute",
    "evaluate",
    "report",
    "publish",
    "approve",
    "reject",
    "withdraw-approval",
    "withdraw",
    "mark-exposed",
    "add-user",
    "grant-role",
    "revoke-role",
    "delegate",
    "undelegate",
    "erase",
)


@dataclass
class FlowTrace:
    """Facts about a flow that is under way.

    Attributes:
        instalments: how many were spent so far.
        parts: the parts that are under way, the innermost last.
    """

    report: FlowReport
    request: int | None = None
    instalments: int = 0
    parts: list[str] = field(default_factory=list)


_current_trace: ContextVar[FlowTrace | None] = ContextVar("_current_trace", default=None)


def traced(flow: str, *, live: bool = True) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Report each call of a function, as `trace_flow` does."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            with trace_flow(flow, live=live):
                result = function(*args, **kwargs)
                set_request(getattr(result, "request_id", None))
                return result

        return call

    return decorate


@contextmanager
def trace_flow(flow: str, *, live: bool = True) -> Iterator[None]:
    """Report the block as a flow if a Prefect API is configured.

    Args:
        live: whether the server may receive the flow before its end, so that it learns the duration.

    Raises:
        InvalidDashboardAddress: the report could not link to the dashboard; raised before the flow begins.
    """
    report = open_report(flow, DURATION_STEPS if live else ())
    if report is None:
        yield
        return
    with _ending(report.end), _trace_context(FlowTrace(report)), waiting_with(_report_retries):
        yield


@contextmanager
def _trace_context(trace: FlowTrace) -> Iterator[None]:
    token = _current_trace.set(trace)
    try:
        yield
    finally:
        _current_trace.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Report the block to a Prefect server as a task run of its own."""
    trace = _current_trace.get()
    if trace is None:
        yield
        return
    report = trace.report
    report.begin_stage(name)
    trace.parts.append(name)

    def end(outcome: str) -> None:
        trace.parts.pop()
        report.end_stage(name, outcome)

    with _ending(end):
        yield


def _report_retries(wait: Wait) -> Wait:
    """Return a wait before a retry that a Prefect server sees as a state of the innermost part."""

    def report_and_wait(seconds: float) -> None:
        trace = _current_trace.get()
        if trace is None or not trace.parts:
            wait(seconds)
            return
        trace.report.await_retry(trace.parts[-1])
        wait(seconds)
        trace.report.retry_stage(trace.parts[-1])

    return report_and_wait


@contextmanager
def _ending(end: Callable[[str], None]) -> Iterator[None]:
    """Call `end` with how the block ended: `done`, or the name of an error."""
    outcome = "done"
    try:
        yield
    except BaseException as problem:
        outcome = error_name(problem)
        raise
    finally:
        end(outcome)


def set_request(number: int | None) -> None:
    """Set the request number of the current flow."""
    trace = _current_trace.get()
    if trace is not None and number not in (None, trace.request):
        trace.request = number
        trace.report.name_request(number)


def set_proposal(kind: str, number: int, request: int | None = None) -> None:
    """Set the proposal of the current flow.

    Args:
        kind: `cap`, `standing` or `retraction`.
        request: the request whose release would be retracted.
    """
    trace = _current_trace.get()
    if trace is not None:
        trace.request = request
        trace.report.name_proposal(kind, number, request)


def count_instalment(total: int, before: int = 0) -> None:
    """Count one spent instalment of the current flow.

    Args:
        total: instalments of the whole plan.
        before: those that earlier attempts have spent.
    """
    if (trace := _current_trace.get()) is not None:
        trace.instalments += 1
        trace.report.begin_instalment(min(before + trace.instalments, total), total)


def keep_flow_run(folder: Path) -> None:
    """Keep the id of the reported flow run in `folder`, and close the page of an earlier one that died."""
    trace = _current_trace.get()
    if trace is not None:
        trace.report.keep_run(folder)


def error_name(problem: BaseException) -> str:
    """Return the name of an error as it is sent, ours or its type; never the message, which may quote private text."""
    return problem.name if isinstance(problem, AlmonerError) else type(problem).__name__
