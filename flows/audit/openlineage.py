"""Attempts of requests as OpenLineage run events (the client's own classes; nothing is sent anywhere).

One attempt is one run: START when it begins, then COMPLETE, FAIL (it ended with an error) or ABORT (it was interrupted
or swept). The custom facet `dpBudget` says what the request claims and what the attempt has armed so far; every figure
is text, because an amount is exact and a float is not.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import attr
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated.base import RunFacet
from openlineage.client.serde import Serde
from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.services.audit import chain
from models_db.services.audit.link_body import parse_body, whole_number
from models_db.services.audit.log import LogFilter, LoggedLink, stream_links
from models_db.services.audit.stored_text import request_body
from models_db.tables import AuditLink, Request
from models_db.values.amounts import Amount
from models_db.values.digits import parse_digits

RUN_STATES = {"run.started": RunState.START, "run.produced": RunState.COMPLETE, "run.failed": RunState.FAIL}
ABORT_REASONS = ("Interrupted", "Swept")
TIME_PATTERN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
SPENDING_KINDS = ("ledger.hold", "ledger.arm")


@attr.define
class DpBudgetRunFacet(RunFacet):
    """The differential-privacy budget of one attempt."""

    dataset: str
    epsilon: str
    delta: str
    rho: str
    failureDelta: str  # noqa: N815 - the standard's spelling of names
    mechanisms: list[str]

    @staticmethod
    def _get_schema() -> str:
        return "urn:almoner:facet:dpBudget:1"


@dataclass
class _RecordedSpending:
    """Amounts that an attempt has reserved and armed, according to the audit log."""

    mechanisms: list[str] = field(default_factory=list)
    armed: Amount = field(default_factory=Amount)


def run_events(
    session: Session,
    log_filter: LogFilter,
    unreadable: Callable[[LoggedLink], None] = lambda link: None,
    observe: Callable[[Iterable[LoggedLink]], Iterable[LoggedLink]] = iter,
) -> Iterator[str]:
    """Yield the events of the attempts with matching links, as JSON, oldest first; `observe` may observe the links.

    A link without an attempt or a time makes no event; `unreadable` is called with it.
    """
    ledger = _ledger_namespace(session)
    for link in observe(stream_links(session, log_filter)):
        if link.kind not in RUN_STATES or link.request_id is None:
            continue
        body = parse_body(link.body) or {}
        attempt = whole_number(body, "attempt")
        if attempt is None or not TIME_PATTERN.fullmatch(link.at):
            unreadable(link)
            continue
        facet = _budget_facet(session, link, attempt)
        yield Serde.to_json(_run_event(link, attempt, body.get("reason"), facet, ledger), ensure_ascii=False)


def _run_event(link: LoggedLink, attempt: int, reason: object, facet: DpBudgetRunFacet, ledger: str) -> RunEvent:
    job = f"{link.dataset}/release-{link.request_id}"
    state = RUN_STATES[link.kind]
    if state is RunState.FAIL and reason in ABORT_REASONS:
        state = RunState.ABORT
    return RunEvent(
        eventTime=link.at,
        producer=_producer_uri(),
        eventType=state,
        run=Run(str(uuid5(NAMESPACE_URL, f"{ledger}/{link.request_id}/{attempt}")), {"dpBudget": facet}),
        job=Job(ledger, job),
        inputs=[InputDataset(ledger, link.dataset or "")],
        outputs=[OutputDataset(ledger, job)] if state is RunState.COMPLETE else [],
    )


def _budget_facet(session: Session, link: LoggedLink, attempt: int) -> DpBudgetRunFacet:
    spent = _recorded_spending(session, link, attempt)
    request = session.get(Request, link.request_id)
    body = request_body(request) if request is not None else {}
    return DpBudgetRunFacet(
        dataset=link.dataset or "",
        epsilon=str(body.get("epsilon") or ""),
        delta=str(body.get("delta") or ""),
        rho=spent.armed.rho_text,
        failureDelta=spent.armed.delta_text,
        mechanisms=spent.mechanisms or _planned_mechanisms(body),
        producer=_producer_uri(),
    )


def _recorded_spending(session: Session, link: LoggedLink, attempt: int) -> _RecordedSpending:
    """Return the spending up to this link: an event states the facts at its time."""
    of_request = select(AuditLink.kind, AuditLink.body).where(
        AuditLink.request_id == link.request_id, AuditLink.seq <= link.seq
    )
    spending = _RecordedSpending()
    for kind, text in session.connection().execute(
        of_request.where(AuditLink.kind.in_(SPENDING_KINDS)).order_by(AuditLink.seq)
    ):
        body = parse_body(text) or {}
        if body.get("attempt") != attempt:
            continue
        if kind == "ledger.hold":
            mechanisms = body.get("mechanisms")
            spending.mechanisms += [str(one) for one in mechanisms] if isinstance(mechanisms, list) else []
        elif (rho := _amount_field(body, "rho")) is not None and (delta := _amount_field(body, "delta")) is not None:
            spending.armed += Amount(rho, delta)
    return spending


def _amount_field(body: Mapping[str, Any], name: str) -> int | None:
    """Return an amount of a link's body, stored as digits or as a number; None if there is none."""
    value = body.get(name)
    number = parse_digits(value) if isinstance(value, str) else whole_number(body, name)
    return number if number is not None and number >= 0 else None


def _planned_mechanisms(asked: dict[str, Any]) -> list[str]:
    """Return the mechanisms of the approved plan, because an attempt has no holds yet at its start."""
    return [invocation["event"]["mechanism"] for invocation in asked.get("plan", {}).get("invocations", [])]


def _ledger_namespace(session: Session) -> str:
    """Return the namespace of a ledger: its first link names it, on any machine."""
    return f"urn:almoner:ledger:{chain.ledger_id(session)}"


@cache
def _producer_uri() -> str:
    return f"urn:almoner:{version('almoner')}"
