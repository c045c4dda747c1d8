"""Rows of requests in lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from flows.dashboard.viewer import View
from models_db.services.audit.stored_text import request_body
from models_db.services.queries import lists
from models_db.tables import Dataset, Request
from models_db.values.amounts import Amount
from models_db.values.request_state import RequestState
from models_db.values.standing_terms import cost_of
from tasks.common.published_values import format_small
from tasks.planning.block_selection import Reading, reading_of_request

REQUESTS_PER_PAGE = 50


REQUEST_STATES = tuple(state for state in RequestState if state is not RequestState.DRAFT)


@dataclass(frozen=True)
class RequestLine:
    """A request in a list.

    Attributes:
        epsilon, delta: the claim; None without one.
        cohorts: the cohorts that it reads, if the dataset had several at the time of the request.
        rho_spent: the spent amount; None if the policy hides balances, because these amounts add up to them.
    """

    number: int
    dataset: str
    kind: str
    mechanism: str
    epsilon: str | None
    delta: str | None
    state: str
    requester: str
    submitted_at: str
    standing: int | None
    cohorts: tuple[int, ...] | None
    rho_spent: str | None


@dataclass(frozen=True)
class RequestList:
    """One page of requests, newest first; `next_before` asks for older ones."""

    requests: tuple[RequestLine, ...]
    next_before: int | None


def request_list(
    view: View, before: int | None = None, dataset_id: int | None = None, states: Sequence[str] = ()
) -> RequestList:
    """Return the newest matching requests, each with its spending."""
    session = view.session
    rows = lists.request_page(session, REQUESTS_PER_PAGE + 1, before=before, dataset_id=dataset_id, states=states)
    shown = rows[:REQUESTS_PER_PAGE]
    numbers = [request.id for request, _ in shown]
    names, datasets = lists.principal_names(session), datasets_of(session, [request for request, _ in shown])
    spent = lists.spent_by_request(session, numbers) if view.figures else None
    lines = tuple(
        request_line(request, state, datasets[request.dataset_id].name, names, _spent_rho(spent, request))
        for request, state in shown
    )
    return RequestList(lines, numbers[-1] if len(rows) > REQUESTS_PER_PAGE else None)


def _spent_rho(spent: Mapping[int, Amount] | None, request: Request) -> Amount | None:
    return None if spent is None else spent.get(request.id, Amount())


def request_line(
    request: Request, state: str, dataset: str, names: Mapping[int, str], spent: Amount | None
) -> RequestLine:
    """Return the row of one request."""
    body = request_body(request)
    return RequestLine(
        number=request.id,
        dataset=dataset,
        kind=str(body.get("kind")),
        mechanism=str(body.get("mechanism")),
        epsilon=body.get("epsilon"),
        delta=delta_text(body),
        state=state,
        requester=names[request.requester_id],
        submitted_at=request.created_at,
        standing=request.standing_id,
        cohorts=cohorts_in(body),
        rho_spent=None if spent is None else spent.rho_text,
    )


def datasets_of(session: Session, requests: Sequence[Request]) -> dict[int, Dataset]:
    """Return the datasets of some requests by id, in one statement."""
    return lists.datasets_by_id(session, {request.dataset_id for request in requests})


def cohorts_in(body: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the cohorts that a request reads; None if the dataset had only one."""
    cohorts = body.get("cohorts")
    return tuple(cohorts) if cohorts and isinstance(cohorts, list) else None


def delta_text(body: Mapping[str, Any]) -> str | None:
    """Return the claimed delta of a request in the usual notation for small numbers."""
    try:
        return None if body.get("delta") is None else format_small(str(body["delta"]))
    except (ArithmeticError, ValueError):
        return str(body["delta"])


def request_reading(request: Request, each: int) -> Reading | None:
    """Return the blocks that a request reads, by cohort; None where that is unknown."""
    try:
        return reading_of_request(request_body(request), each)
    except ValueError:
        return None


def request_cost(request: Request) -> Amount | None:
    """Return the cost of a request's plan; None if this version of almoner cannot read the plan."""
    try:
        return cost_of(request_body(request))
    except (KeyError, TypeError, ValueError):
        return None
