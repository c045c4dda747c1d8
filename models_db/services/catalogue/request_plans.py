"""What requests were approved for: the rows that guards look up, held against the requests' own texts.

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
from models_db.values.canonical_json import canonical

Facts = set[tuple[object, ...]]
_MANY = 200
_TABLES = (PlannedRelease, PlannedBlock, PlannedInvocation, PlannedInstalment)


def require_written(session: Session, request: Request) -> None:
    """Check that the plan that guards hold a request to is the one that its text says.

    Raises:
        PlanAltered: it is not.
    """
    if not _agrees(request.canonical, _rows(session, [request.id])[request.id]):
        raise PlanAltered(request.id)


def altered(session: Session) -> list[int]:
    """The numbers of requests whose plan in rows is not the one in their text, and of rows without a request."""
    query = select(Request.id, Request.canonical).order_by(Request.id).execution_options(yield_per=_MANY)
    found: list[int] = []
    for some in session.execute(query).partitions():
        rows = _rows(session, [number for number, _ in some])
        found += [number for number, text in some if not _agrees(text, rows[number])]
    known = select(Request.id)
    for table in _TABLES:
        found += session.scalars(select(table.request_id).where(table.request_id.not_in(known)).distinct())
    return sorted(set(found))


def _agrees(text: str, rows: Facts) -> bool:
    """Whether rows are the plan in a text."""
    try:
        return rows == set(_said(json.loads(text)["plan"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False


def _rows(session: Session, requests: Sequence[int]) -> Mapping[int, Facts]:
    found: dict[int, Facts] = {number: set() for number in requests}
    for table in _TABLES:
        columns = [column for column in table.__table__.columns if column.name != "request_id"]
        query = select(table.request_id, *columns).where(table.request_id.in_(requests))
        for number, *row in session.execute(query):
            found[number].add((table.__tablename__, *row))
    return found


def _said(plan: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    for first, last, _ in _runs((block, None) for block in sorted(set(plan["blocks"]))):
        yield "planned_block", first, last
    for sequence, one in enumerate(plan["invocations"]):
        parts = [(int(part["rho"]), int(part["delta"])) for part in one["instalments"]]
        event = one["event"]
        yield "planned_invocation", sequence, event["mechanism"], canonical(event).decode(), len(parts)
        for first, last, (rho, delta) in _runs(enumerate(parts)):
            yield "planned_instalment", sequence, first, last, rho, delta
    yield "planned_release", len(plan["invocations"])


def _runs(numbered: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, int, Any]]:
    """First, last and value of each run of equal values at neighbouring numbers."""
    for (value, _), run in groupby(enumerate(numbered), key=lambda each: (each[1][1], each[1][0] - each[0])):
        numbers = [number for _, (number, _) in run]
        yield numbers[0], numbers[-1], value


class PlanAltered(Refused):
    """A request is held to another plan than the one its text says."""

    def __init__(self, request_id: int) -> None:
        super().__init__(
            f"Request {request_id} says another plan than the one to which the ledger would hold its run.",
            "Approve and run nothing of it. Find out who recorded it: `almoner audit log`; `almoner doctor` lists all.",
            {"request": request_id},
        )
