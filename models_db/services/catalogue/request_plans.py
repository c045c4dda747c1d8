"""Approved plans of requests: the rows that guards look up, compared with the requests' own texts.

The rows are written by the database when a request is recorded (`request_writes_plan`); nobody passes them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.errors import Refused
from models_db.tables import PlannedBlock, PlannedInstalment, PlannedInvocation, PlannedRelease, Request
from models_db.values.canonical_json import encode_canonical

PlanFacts = set[tuple[object, ...]]
_REQUEST_BATCH = 200
_PLAN_TABLES = (PlannedRelease, PlannedBlock, PlannedInvocation, PlannedInstalment)


def require_plan_intact(session: Session, request: Request) -> None:
    """Check that the stored plan that guards enforce is the one in the request's text.

    Raises:
        PlanAltered: it is not.
    """
    if not _plan_matches(request.canonical, _plan_rows(session, [request.id])[request.id]):
        raise PlanAltered(request.id)


def altered_plans(session: Session) -> list[int]:
    """Return the numbers of requests whose plan in rows is not the one in their text, and of rows without a request."""
    query = select(Request.id, Request.canonical).order_by(Request.id).execution_options(yield_per=_REQUEST_BATCH)
    altered: list[int] = []
    for some in session.execute(query).partitions():
        rows = _plan_rows(session, [number for number, _ in some])
        altered += [number for number, text in some if not _plan_matches(text, rows[number])]
    request_ids = select(Request.id)
    for table in _PLAN_TABLES:
        altered += session.scalars(select(table.request_id).where(table.request_id.not_in(request_ids)).distinct())
    return sorted(set(altered), key=lambda number: (not isinstance(number, int), str(type(number)), number))


def _plan_matches(text: str, rows: PlanFacts) -> bool:
    """Return whether rows are the plan in a text."""
    try:
        return rows == set(_facts_of_plan(json.loads(text)["plan"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False


def _plan_rows(session: Session, requests: Sequence[int]) -> Mapping[int, PlanFacts]:
    rows_by_request: dict[int, PlanFacts] = {number: set() for number in requests}
    for table in _PLAN_TABLES:
        columns = [column for column in table.__table__.columns if column.name != "request_id"]
        query = select(table.request_id, *columns).where(table.request_id.in_(requests))
        for number, *row in session.execute(query):
            rows_by_request[number].add((table.__tablename__, *row))
    return rows_by_request


def _facts_of_plan(plan: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    for first, last, _ in _runs_of_equal_values((block, None) for block in sorted(set(plan["blocks"]))):
        yield "planned_block", first, last
    for sequence, invocation in enumerate(plan["invocations"]):
        parts = [(int(part["rho"]), int(part["delta"])) for part in invocation["instalments"]]
        event = invocation["event"]
        yield "planned_invocation", sequence, event["mechanism"], encode_canonical(event).decode(), len(parts)
        for first, last, (rho, delta) in _runs_of_equal_values(enumerate(parts)):
            yield "planned_instalment", sequence, first, last, rho, delta
    yield "planned_release", len(plan["invocations"])


def _runs_of_equal_values(numbered: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, int, Any]]:
    """First, last and value of each run of equal values at neighbouring numbers."""
    for (value, _), run in groupby(enumerate(numbered), key=lambda each: (each[1][1], each[1][0] - each[0])):
        numbers = [number for _, (number, _) in run]
        yield numbers[0], numbers[-1], value


class PlanAltered(Refused):
    """The stored plan of a request differs from the request's text."""

    def __init__(self, request_id: int) -> None:
        super().__init__(
            f"The plan that the ledger stores for request {request_id} differs from the text of the request.",
            "Do not approve or run it. `almoner audit log` shows who recorded it; `almoner doctor` lists all cases.",
            {"request": request_id},
        )
