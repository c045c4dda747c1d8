"""Metrics for Prometheus, all of them read from the ledger with credentials that cannot write.

A count that lives in a process begins at nothing with each command and counts what several workers do several times.
The ledger counts once, and cannot tell what the record does not tell (docs/observability.md).
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from flows.workspace.workspace import ReadOnlyWorkspace
from models_db.errors import EnvironmentProblem
from models_db.services.audit import chain
from models_db.services.audit.link_body import parse_body, whole_number
from models_db.services.catalogue import datasets
from models_db.services.queries import lists
from models_db.tables import AuditLink, Transition
from models_db.values.amounts import DELTA_UNIT, RHO_UNIT
from models_db.values.request_state import WAITS_AT

LOOPBACK: Final = "127.0.0.1"
DURATION_STEPS: Final = (60, 300, 900, 3600, 14400, 43200, 86400)
"""Steps in seconds to which durations are rounded up; the last stands for anything longer."""
ERROR_NAME: Final = re.compile(r"[A-Z][A-Za-z]{0,59}")
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class MetricFamily:
    """Metric family: its name, type, labels and help text."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


BUDGET_LABELS = ("dataset",)
METRICS: Final = (
    MetricFamily("almoner_rho_cap", "gauge", BUDGET_LABELS, "Lifetime cap of a dataset, in zCDP."),
    MetricFamily("almoner_rho_spent", "gauge", BUDGET_LABELS, "Spent amount of its fullest block."),
    MetricFamily("almoner_rho_held", "gauge", BUDGET_LABELS, "Amount that running releases hold on its fullest block."),
    MetricFamily("almoner_delta_spent", "gauge", BUDGET_LABELS, "Spent failure delta of its fullest block."),
    MetricFamily("almoner_instalments_armed", "counter", BUDGET_LABELS, "Paid instalments."),
    MetricFamily("almoner_attempts", "counter", ("outcome", "at_most_seconds"), "Ended attempts by duration in steps."),
    MetricFamily("almoner_attempts_failed", "counter", ("refusal",), "Attempts without an artifact, by error."),
    MetricFamily("almoner_requests", "gauge", ("state",), "Requests by state."),
    MetricFamily("almoner_gate_waiting_since_seconds", "gauge", ("gate",), "Unix time since which one has waited."),
    MetricFamily("almoner_chain_links", "counter", (), "Links of the audit log."),
)  # fmt: skip

_RUN_KINDS = ("run.started", "run.produced", "run.failed")


@dataclass(frozen=True)
class MetricSample:
    """One value of one metric."""

    metric: str
    labels: Labels
    value: float


def read_samples(workspace: ReadOnlyWorkspace) -> list[MetricSample]:
    """Read every sample from one snapshot of the ledger."""
    with workspace.database.read() as session:
        return [
            *_budget_samples(session),
            *_armed_samples(session),
            *_attempt_samples(session),
            *_request_samples(session),
            *_link_samples(session),
        ]


def exposition_text(workspace: ReadOnlyWorkspace) -> bytes:
    """Return the samples in Prometheus' text format."""
    return generate_latest(_new_registry(workspace))


@contextmanager
def serve_metrics(workspace: ReadOnlyWorkspace, port: int) -> Iterator[int]:
    """Serve the metrics on the loopback address, reading the ledger for each request; yield the port.

    Raises:
        PortTaken: the port is in use or not allowed.
    """
    try:
        server, thread = start_http_server(port, LOOPBACK, _new_registry(workspace))
    except OSError as problem:
        raise PortTaken(port, problem.strerror or type(problem).__name__) from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _new_registry(workspace: ReadOnlyWorkspace) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_LedgerCollector(workspace))
    return registry


class _LedgerCollector(Collector):
    """Collector that reads the ledger for each request."""

    def __init__(self, workspace: ReadOnlyWorkspace) -> None:
        self._record = workspace

    def collect(self) -> Iterator[Family]:
        """Yield one family for each metric."""
        samples = read_samples(self._record)
        for metric in METRICS:
            family = (GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily)(
                metric.name, metric.help, labels=metric.labels
            )
            for sample in samples:
                if sample.metric == metric.name:
                    family.add_metric([value for _, value in sample.labels], sample.value)
            yield family

    def describe(self) -> Iterator[Family]:
        """Yield nothing: the metrics are unknown before the ledger is read."""
        return iter(())


def _budget_samples(session: Session) -> Iterator[MetricSample]:
    registered = datasets.list_all(session)
    balances = lists.account_balances(session, {dataset.account_id for dataset in registered})
    for dataset in registered:
        balance, labels = balances[dataset.account_id], (("dataset", dataset.name),)
        yield MetricSample("almoner_rho_cap", labels, balance.cap.rho / RHO_UNIT)
        yield MetricSample("almoner_rho_spent", labels, balance.spent.rho / RHO_UNIT)
        yield MetricSample("almoner_rho_held", labels, balance.held.rho / RHO_UNIT)
        yield MetricSample("almoner_delta_spent", labels, balance.spent.delta / DELTA_UNIT)


def _armed_samples(session: Session) -> Iterator[MetricSample]:
    counted = select(AuditLink.dataset, func.count()).where(AuditLink.kind == "ledger.arm").group_by(AuditLink.dataset)
    for dataset, number in session.execute(counted.order_by(AuditLink.dataset)):
        yield MetricSample("almoner_instalments_armed", (("dataset", str(dataset)),), number)


def _attempt_samples(session: Session) -> Iterator[MetricSample]:
    """Yield the ends of attempts from the audit log, by duration and by the name of the error."""
    links = (
        select(AuditLink.kind, AuditLink.at, AuditLink.request_id, AuditLink.body)
        .where(AuditLink.kind.in_(_RUN_KINDS))
        .order_by(AuditLink.seq)
    )
    begun: dict[tuple[int | None, int], str] = {}
    ended: Counter[tuple[str, int]] = Counter()
    failed: Counter[str] = Counter()
    for kind, at, request, written in session.execute(links):
        body = parse_body(written) or {}
        attempt = whole_number(body, "attempt")
        if attempt is None:  # a link that almoner cannot have written: `almoner audit verify` names it
            continue
        key = (request, attempt)
        if kind == "run.started":
            begun[key] = at
            continue
        if kind == "run.failed":
            failed[_error_name(str(body.get("reason")))] += 1
        if key in begun and (lasted := _attempt_seconds(begun.pop(key), at)) is not None:
            ended[kind.removeprefix("run."), _duration_step(lasted)] += 1
    for (outcome, step), number in sorted(ended.items()):
        yield MetricSample("almoner_attempts", (("outcome", outcome), ("at_most_seconds", str(step))), number)
    for reason, number in sorted(failed.items()):
        yield MetricSample("almoner_attempts_failed", (("refusal", reason),), number)


def _error_name(reason: str) -> str:
    """Return a reason that is the name of an error; any other text of the ledger is left out."""
    return reason if ERROR_NAME.fullmatch(reason) else "other"


def _duration_step(seconds: float) -> int:
    return next((step for step in DURATION_STEPS if seconds <= step), DURATION_STEPS[-1])


def _attempt_seconds(begun: str, ended: str) -> float | None:
    """Return the duration of an attempt; None if a time is malformed."""
    try:
        return (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None


def _request_samples(session: Session) -> Iterator[MetricSample]:
    """Yield the number of requests in each state, and for each gate the time since which one has waited there."""
    last = select(Transition.request_id, func.max(Transition.number).label("number")).group_by(Transition.request_id)
    newest = last.subquery()
    is_newest = (newest.c.request_id == Transition.request_id) & (newest.c.number == Transition.number)
    by_state = select(Transition.to_state, func.count(), func.min(Transition.at)).join(newest, is_newest)
    gates = {str(states[0]): str(gate) for gate, states in WAITS_AT.items()}
    for state, number, since in session.execute(by_state.group_by(Transition.to_state).order_by(Transition.to_state)):
        yield MetricSample("almoner_requests", (("state", state),), number)
        if state in gates and (seconds := _unix_seconds(since)) is not None:
            yield MetricSample("almoner_gate_waiting_since_seconds", (("gate", gates[state]),), seconds)


def _unix_seconds(written: str) -> float | None:
    """Return a stored time in seconds since 1970; None if it is malformed."""
    try:
        return datetime.fromisoformat(written).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _link_samples(session: Session) -> Iterator[MetricSample]:
    yield MetricSample("almoner_chain_links", (), chain.read_chain_head(session).seq)


class PortTaken(EnvironmentProblem):
    """The metrics server cannot listen on the port."""

    def __init__(self, port: int, reason: str) -> None:
        super().__init__(f"almoner cannot listen on port {port}: {reason}.", "Choose another port.", {"port": port})
