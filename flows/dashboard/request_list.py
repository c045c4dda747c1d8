"""Rows of requests in lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from flows.dashboard.viewer import View
from models_db.errors import UsageError
from models_db.services.audit.stored_text import request_body
from models_db.services.queries import lists
from models_db.tables import Dataset, Request
from models_db.values.amounts import Amount
from models_db.values.request_state import RequestState
from models_db.values.standing_terms import cost_of
from tasks.planning.block_selection import Reading, reading_of_request
from tasks.reporting.number_format import format_small

REQUESTS_PER_PAGE = 50
REQUEST_STATES = tuple(state for state in RequestState if state is not RequestState.DRAFT)


@dataclass(frozen=True)
class RequestLine:
    """A request in a list.

    Attributes:
        epsilon, delta: what it claims; None without a claim.
        cohorts: which it reads, of a dataset that had several when it was asked for.
        rho_spent: None where the policy keeps figures from the viewer: together they are the budget's.
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
    """The newest requests that fit, with what each has spent."""
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
    """One request."""
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
    """The datasets of some requests by id, in one statement."""
    return lists.datasets_by_id(session, {request.dataset_id for request in requests})


def cohorts_in(body: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The cohorts that a request reads; None where there was one."""
    return tuple(body["cohorts"]) if body.get("cohorts") else None


def delta_text(body: Mapping[str, Any]) -> str | None:
    """The delta that a request claims, as people write small ones."""
    return None if body.get("delta") is None else format_small(str(body["delta"]))


def request_reading(request: Request, each: int) -> Reading | None:
    """Return the blocks that a request reads, by cohort; None where that is unknown."""
    try:
        return reading_of_request(request_body(request), each)
    except (UsageError, ValueError):
        return None


def request_cost(request: Request) -> Amount | None:
    """Return the cost of a request's plan; None where this almoner cannot read the plan."""
    try:
        return cost_of(request_body(request))
    except (KeyError, TypeError, ValueError):
        return None
