"""Traces of flows for operators: off unless ALMONER_TRACES names a collector.

A flow is one trace, sent when it has ended in any way; each of its stages is one span. The attributes of a span are on
a closed list (`ALLOWED_ATTRIBUTES`), and durations are rounded to few steps: stages read private data, and time
is outside the promise (PRIVACY §1, docs/observability.md). Nothing is registered globally: Prefect would use it for its
own.
"""

import functools
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar
from urllib.parse import urlsplit

from flows.observability.prefect_report import FlowReport, open_report
from models_db.errors import AlmonerError, EnvironmentProblem, UsageError
from tasks.common.progress import tell
from tasks.common.retry import Wait, waiting_with

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Value = str | int

COLLECTOR_VARIABLE: Final = "ALMONER_TRACES"
DURATION_STEPS: Final = (60, 300, 900, 3600, 14400, 43200)
"""Duration steps in seconds; a stage is exported as having taken at most one of these, or longer than the last."""
LONGEST_STEP: Final = 86400
SECONDS_PER_HOUR: Final = 3600
SECONDS_TO_SEND: Final = 5.0

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
STAGES: Final = (
    "read",
    "partition",
    "store",
    "price",
    "submit",
    "hold",
    "generate",
    "select",
    "evaluate",
    "commit",
    "record",
    "report",
    "deliver",
    "remove",
)
ALLOWED_ATTRIBUTES: Final[Mapping[str, re.Pattern[str]]] = {
    "almoner.flow": re.compile("|".join(FLOWS)),
    "almoner.stage": re.compile("|".join(STAGES)),
    "almoner.request": re.compile(r"[0-9]{1,18}"),
    "almoner.proposal": re.compile(r"[0-9]{1,18}"),
    "almoner.instalments": re.compile(r"[0-9]{1,18}"),
    "almoner.outcome": re.compile(r"done|[A-Z][A-Za-z]{0,59}"),
    "almoner.at_most_seconds": re.compile("|".join(map(str, (*DURATION_STEPS, LONGEST_STEP)))),
}
"""Allowed attributes of a span and their forms; an attribute outside the list or in another form is left out."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass
class FlowTrace:
    """Spans of a flow so far; times are in seconds.

    Attributes:
        parts: the parts that are under way, the innermost last.
    """

    flow: str
    started: float
    request: int | None = None
    proposal: int | None = None
    outcome: str = "done"
    stages: dict[str, tuple[float, str]] = field(default_factory=dict)
    instalments: int = 0
    report: FlowReport | None = None
    parts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Span:
    """Span as it is exported: `duration_step` is one of STEPS, or LONGER."""

    name: str
    at_most: int
    attributes: Mapping[str, Value]
    failed: bool


_current_trace: ContextVar[FlowTrace | None] = ContextVar("_current_trace", default=None)


def traced(flow: str, *, live: bool = True) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Trace each call of a function, as `trace_flow` does."""

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
    """Trace the block as a flow if a collector is configured, and report it if a Prefect API is.

    Args:
        live: whether a Prefect server may receive the flow before its end, so that it learns the duration.

    Raises:
        UnencryptedCollector, TelemetryMissing: the traces could not be sent; raised before the flow begins.
        InvalidDashboardAddress: the report could not link to the dashboard; raised before the flow begins, too.
    """
    address = os.environ.get(COLLECTOR_VARIABLE, "")
    if address:
        require_sendable(address)
    report = open_report(flow, DURATION_STEPS if live else ())
    if not address and report is None:
        yield
        return
    trace = FlowTrace(flow, time.time(), report=report)
    with _send_when_done(trace, address), _trace_context(trace), waiting_with(_report_retries):
        yield


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Trace the block as one stage of the current flow."""
    trace = _current_trace.get()
    if trace is None:
        yield
        return
    begun = time.monotonic()

    def end(outcome: str) -> None:
        trace.stages[name] = (time.monotonic() - begun, outcome)

    with _ending(end), part(name):
        yield


@contextmanager
def part(name: str) -> Iterator[None]:
    """Report the block to a Prefect server as a task run of its own; it is no span of a trace."""
    trace = _current_trace.get()
    if trace is None or trace.report is None:
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
        if trace is None or trace.report is None or not trace.parts:
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
        if trace.report is not None:
            trace.report.name_request(number)


def set_proposal(kind: str, number: int, request: int | None = None) -> None:
    """Set the proposal of the current flow.

    Args:
        kind: `cap`, `standing` or `retraction`.
        request: the request whose release would be retracted.
    """
    trace = _current_trace.get()
    if trace is not None:
        trace.proposal, trace.request = number, request
        if trace.report is not None:
            trace.report.name_proposal(kind, number, request)


def count_instalment(total: int, before: int = 0) -> None:
    """Count one spent instalment of the current flow.

    Args:
        total: instalments of the whole plan.
        before: those that earlier attempts have spent.
    """
    if (trace := _current_trace.get()) is not None:
        trace.instalments += 1
        if trace.report is not None:
            trace.report.begin_instalment(min(before + trace.instalments, total), total)


def keep_flow_run(folder: Path) -> None:
    """Keep the id of the reported flow run in `folder`, and close the page of an earlier one that died."""
    trace = _current_trace.get()
    if trace is not None and trace.report is not None:
        trace.report.keep_run(folder)


def error_name(problem: BaseException) -> str:
    """Return the exported name of an error, ours or its type; never the message, which may quote private text."""
    return problem.name if isinstance(problem, AlmonerError) else type(problem).__name__


def duration_step(seconds: float) -> int:
    """Return the step to which a duration is rounded for export."""
    return next((step for step in DURATION_STEPS if seconds <= step), LONGEST_STEP)


def allowed_attributes(attributes: Mapping[str, Value | None]) -> dict[str, Value]:
    """Return the attributes that are on the list, in their form."""
    return {
        name: value
        for name, value in attributes.items()
        if value is not None and name in ALLOWED_ATTRIBUTES and ALLOWED_ATTRIBUTES[name].fullmatch(str(value))
    }


def trace_spans(trace: FlowTrace, seconds: float) -> list[Span]:
    """Return the exported spans: the flow first, then its stages in order."""
    whole = {"almoner.flow": trace.flow, "almoner.request": trace.request, "almoner.proposal": trace.proposal,
             "almoner.outcome": trace.outcome,
             "almoner.instalments": trace.instalments if trace.flow == "execute" else None}  # fmt: skip
    spans = [_build_span(trace.flow, seconds, whole, trace.outcome)]
    for name, (took, outcome) in trace.stages.items():
        attributes = {"almoner.flow": trace.flow, "almoner.stage": name, "almoner.outcome": outcome}
        spans.append(_build_span(name, took, attributes, outcome))
    return spans


def _build_span(name: str, seconds: float, attributes: Mapping[str, Value | None], outcome: str) -> Span:
    step = duration_step(seconds)
    return Span(name, step, allowed_attributes({**attributes, "almoner.at_most_seconds": step}), outcome != "done")


@contextmanager
def _trace_context(trace: FlowTrace) -> Iterator[None]:
    token = _current_trace.set(trace)
    try:
        yield
    except BaseException as problem:
        trace.outcome = error_name(problem)
        raise
    finally:
        _current_trace.reset(token)


@contextmanager
def _send_when_done(trace: FlowTrace, address: str) -> Iterator[None]:
    begun = time.monotonic()
    try:
        yield
    finally:
        if trace.report is not None:
            trace.report.end(trace.outcome)
        with suppress(Exception):  # what was done stands, whether the collector is there or not
            if address:
                send_trace(trace_spans(trace, time.monotonic() - begun), trace.started, address)


def send_trace(told_spans: list[Span], begun: float, address: str) -> None:
    """Send one trace over OTLP and HTTP; every span begins at the full hour in which the flow began."""
    # slow imports
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult
    from requests import Session, Timeout

    from tasks.object_storage.timed_requests import TimedAdapter, with_deadline

    session = Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, TimedAdapter())
    exporter = OTLPSpanExporter(endpoint=address, timeout=SECONDS_TO_SEND, session=session)
    try:
        with _silence_exporter(), with_deadline(SECONDS_TO_SEND):
            sent = exporter.export(
                _opentelemetry_spans(told_spans, int(begun // SECONDS_PER_HOUR) * SECONDS_PER_HOUR * 10**9)
            )
    except Timeout:
        sent = SpanExportResult.FAILURE
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]
    if sent is not SpanExportResult.SUCCESS:
        tell("The trace could not be sent: the collector does not answer, or refuses it. The flow is not affected.")


def _opentelemetry_spans(told_spans: list[Span], start: int) -> "Sequence[ReadableSpan]":
    """Return finished spans of OpenTelemetry, the first around the others, from a private provider.

    Args:
        start: nanoseconds since 1970.
    """
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import Status, StatusCode, set_span_in_context

    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "almoner"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("almoner")
    around = Context()  # no parent, whatever else is traced in this process
    for number, each in enumerate(told_spans):
        span = tracer.start_span(each.name, context=around, attributes=dict(each.attributes), start_time=start)
        if each.failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(start + each.at_most * 10**9)
        if number == 0:
            around = set_span_in_context(span)
    return kept.get_finished_spans()


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Silence OpenTelemetry, which logs each attempt with the address; almoner reports the result once."""
    logger = logging.getLogger("opentelemetry")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def require_sendable(address: str) -> None:
    """Check that traces can be sent to the address, and that nobody on the network path can read them.

    Raises:
        UnencryptedCollector: the address is neither behind TLS nor on this machine.
        TelemetryMissing: the extra is not installed.
    """
    parts = urlsplit(address)
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)):
        raise UnencryptedCollector
    if find_spec("opentelemetry.sdk") is None or find_spec("opentelemetry.exporter") is None:
        raise TelemetryMissing


class UnencryptedCollector(UsageError):
    """The collector is neither on this machine nor behind TLS. Its address may hold a password and is not repeated."""

    def __init__(self) -> None:
        super().__init__(
            f"{COLLECTOR_VARIABLE} does not name a collector that may receive traces.",
            "Name one with https://, or one on this machine: http://localhost:4318/v1/traces.",
        )


class TelemetryMissing(EnvironmentProblem):
    """Traces are configured, but OpenTelemetry is not installed."""

    def __init__(self) -> None:
        super().__init__(
            f"{COLLECTOR_VARIABLE} is set, but OpenTelemetry is not installed. Nothing was done.",
            "Install `almoner[telemetry]`, or unset it.",
        )
