"""Requests: submitted, found, moved along one legal step at a time; their plans and rehearsals.

Every step is one transition row; the guards in the database check who may take it and when. Decisions are in `gates`,
execution in `attempts`, what it leaves in `artifacts`. The rows of a plan are written by the database when a request is
recorded (`request_writes_plan`), for guards to look up; here they are compared with the request's own text.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.services.audit.chain import Actor
from models_db.services.audit.stored_text import MOST_TEXT_BYTES, request_body
from models_db.tables import (
    Dataset,
    DatasetVersion,
    PlannedBlock,
    PlannedInstalment,
    PlannedInvocation,
    PlannedRelease,
    PolicyVersion,
    Principal,
    Proposal,
    Rehearsal,
    Request,
    Transition,
)
from models_db.values.canonical_json import InvalidJson, Json, digest, encode_canonical, parse_json
from models_db.values.request_state import DECIDED, UNRUN_STATES, RequestState
from models_db.values.standing_terms import without_first_cohort
from models_db.writes.database_errors import AlreadyRecorded
from models_db.writes.insert import insert_row


class RequestUnknown(UsageError):
    """No request with that number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"There is no request {number}.", "See them with `almoner release list`.", {"request": number})


_NEXT_STEP_ADVICE: dict[str, str] = {
    RequestState.SUBMITTED: 'Next, at the spend gate: `almoner approve {0} --gate spend --reason "..."`.',
    RequestState.APPROVED: "Next: `almoner run {0}`.",
    RequestState.RUNNING: "Wait for its run; if that process is gone, `almoner run sweep` closes it.",
    RequestState.PRODUCED: (
        "Next, at the publish gate: read it with `almoner release texts {0}`, then"
        ' `almoner approve {0} --gate publish --reason "..."` and `almoner publish {0} --to DIR`.'
    ),
    RequestState.REJECTED: "It has ended. Submit it anew: `almoner release request FILE`.",
    RequestState.WITHDRAWN: "It has ended. Submit it anew: `almoner release request FILE`.",
    RequestState.DISCARDED: "It has ended; its budget stays spent. Submit it anew: `almoner release request FILE`.",
}
_SHOW_ADVICE = "See it with `almoner release show {0}`."


class WrongState(Refused):
    """The request is not in the state that this step needs; the advice names the next step from its state."""

    def __init__(self, request_id: int, state: str, required_state: str, advice: str = "") -> None:
        super().__init__(
            f"Request {request_id} is {state}; this needs it {required_state}.",
            advice or f"{_NEXT_STEP_ADVICE.get(state, '')} {_SHOW_ADVICE}".strip().format(request_id),
            {"request": request_id, "state": state, "needed": required_state},
        )


def submit(
    session: Session,
    actor: Actor,
    dataset: Dataset,
    version: DatasetVersion,
    policy: PolicyVersion,
    body: Mapping[str, Json],
    valid: timedelta,
    *,
    standing: Proposal | None = None,
) -> Request:
    """Record a request; `body` is complete, and the spend gate approves its digest.

    Args:
        standing: the standing authorisation it is run under; then it needs no approval of its own.

    Raises:
        RoleDenied, RuleViolated: the actor is no analyst, the policy is not in force, or the authorisation does not
        fit.
    """
    text = encode_canonical(body).decode()
    request = Request(
        dataset_id=dataset.id,
        version_id=version.id,
        policy_id=policy.id,
        canonical=text,
        digest=digest(body),
        requester_id=actor.id,
        created_at=utc_now(),
        expires_at=utc_now(datetime.now(UTC) + valid),
        standing_id=standing.id if standing else None,
        config_digest=digest(configuration(body)),
    )
    insert_row(session, request)
    record_transition(session, actor, request.id, RequestState.DRAFT, RequestState.SUBMITTED)
    if standing:
        record_transition(
            session,
            actor,
            request.id,
            RequestState.SUBMITTED,
            RequestState.APPROVED,
            f"standing authorisation {standing.id}",
        )
    return request


def configuration(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return the configuration of a request: its body without the nonce and the data's version.

    Parameters that almoner chose are not marked in it: a request that states the same values is the same release.
    """
    dataset = body.get("dataset")
    apart = ("nonce", "dataset", "choices")
    plain = {name: value for name, value in without_first_cohort(body).items() if name not in apart}
    return {**plain, "dataset": dataset["name"]} if isinstance(dataset, Mapping) else plain


def find_request(session: Session, request_id: int) -> Request:
    """Return the request with that number.

    Raises:
        RequestUnknown: there is none.
    """
    request = session.get(Request, request_id)
    if request is None:
        raise RequestUnknown(request_id)
    return request


def list_all(session: Session) -> Sequence[Request]:
    """Return all requests, oldest first."""
    return session.scalars(select(Request).order_by(Request.id)).all()


def list_of_account(session: Session, account_id: int) -> Sequence[Request]:
    """Return the requests on all datasets that draw on a root account, oldest first."""
    query = select(Request).join(Dataset, Dataset.id == Request.dataset_id).where(Dataset.account_id == account_id)
    return session.scalars(query.order_by(Request.id)).all()


def state_of(session: Session, request_id: int) -> str:
    """Return the state of the request now."""
    query = select(Transition.to_state).where(Transition.request_id == request_id)
    return session.scalars(query.order_by(Transition.number.desc()).limit(1)).one_or_none() or RequestState.DRAFT


def require_decided(session: Session, request_id: int) -> None:
    """Check that internal figures of a release may be made and seen (PRIVACY §7).

    Raises:
        WrongState: governed data, and the publish decision is still open.
    """
    state, dataset_id = state_of(session, request_id), find_request(session, request_id).dataset_id
    decided = state in DECIDED
    if session.get_one(Dataset, dataset_id).governed and not decided:
        raise WrongState(request_id, state, "published or discarded: internal metrics wait for the decision")


def history(session: Session, request_id: int) -> Sequence[Transition]:
    """Return every step the request took."""
    return session.scalars(
        select(Transition).where(Transition.request_id == request_id).order_by(Transition.number)
    ).all()


def record_transition(
    session: Session, actor: Actor, request_id: int, from_state: str, to_state: str, detail: str = ""
) -> None:
    """Record one transition.

    Raises:
        WrongState: the request is in another state, or another process was first.
        RuleViolated: the step's conditions are not met.
    """
    number = session.scalar(select(func.count()).where(Transition.request_id == request_id)) or 0
    now = state_of(session, request_id)
    if now != from_state:
        raise WrongState(request_id, now, from_state)
    try:
        step = Transition(
            request_id=request_id,
            number=number + 1,
            from_state=from_state,
            to_state=to_state,
            detail=detail,
            at=utc_now(),
            actor_id=actor.id,
        )
        insert_row(session, step)
    except AlreadyRecorded:
        raise WrongState(request_id, "being changed by another process", from_state) from None


def withdraw(session: Session, actor: Actor, request_id: int, reason: str) -> None:
    """Take a request back before it has run.

    Raises:
        WrongState: it has run, or is decided.
    """
    find_request(session, request_id)
    state = state_of(session, request_id)
    if state not in UNRUN_STATES:
        raise WrongState(request_id, state, " or ".join(UNRUN_STATES))
    record_transition(session, actor, request_id, state, RequestState.WITHDRAWN, reason)


def planned_blocks(request: Request) -> tuple[int, ...]:
    """Return the blocks the approved plan is eligible to read."""
    return tuple(request_body(request)["plan"]["blocks"])


def principal_name(session: Session, principal_id: int) -> str:
    """Return the name of a principal."""
    return session.get_one(Principal, principal_id).name


def models_named(session: Session) -> set[str]:
    """Return the names of all models that requests approve with the digest of their files, encoders among them.

    Raises:
        LedgerAltered: the text of a request is not the one that its digest names.
    """
    names: set[str] = set()
    left: list[Any] = [request_body(request) for request in session.scalars(select(Request))]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if "sha256" in value and isinstance(value.get("name"), str):
                names.add(value["name"])
            left += value.values()
        elif isinstance(value, list):
            left += value
    return names


def model_of(request: Request) -> str:
    """Return the model the approved request names."""
    return str(request_body(request)["model"]["name"])


PlanFacts = set[tuple[object, ...]]
_REQUEST_BATCH = 200
_PLAN_TABLES = (PlannedRelease, PlannedBlock, PlannedInvocation, PlannedInstalment)


def require_plan_intact(session: Session, request: Request) -> None:
    """Check that the stored plan that guards enforce is the one in the request's text.

    Raises:
        PlanAltered: it is not.
    """
    if not _plan_matches(request.canonical, _plan_rows(session, [request.id])[request.id]):
        raise Refused(
            f"The plan that the ledger stores for request {request.id} differs from the text of the request.",
            "Do not approve or run it. `almoner audit log` shows who recorded it; `almoner doctor` lists all cases.",
            {"request": request.id},
            code="PlanAltered",
        )


def altered_plans(session: Session) -> list[int]:
    """Return the numbers of requests whose plan in rows is not the one in their text, and of rows without a request.

    A text beyond the bounds of what is read is left out: nobody approves or runs it.
    """
    query = select(Request.id, Request.canonical).order_by(Request.id).execution_options(yield_per=_REQUEST_BATCH)
    altered: list[int] = []
    for some in session.execute(query).partitions():
        rows = _plan_rows(session, [number for number, _ in some])
        altered += [number for number, text in some if not _plan_matches(text, rows[number]) and _is_bounded(text)]
    request_ids = select(Request.id)
    for table in _PLAN_TABLES:
        altered += session.scalars(select(table.request_id).where(table.request_id.not_in(request_ids)).distinct())
    return sorted(set(altered), key=lambda number: (not isinstance(number, int), str(type(number)), number))


def _is_bounded(text: str) -> bool:
    try:
        parse_json(text, most_bytes=MOST_TEXT_BYTES, halves=True)
    except InvalidJson:
        return False
    return True


def _plan_matches(text: str, rows: PlanFacts) -> bool:
    """Return whether rows are the plan in a text, whatever the spelling of its events there."""
    try:
        facts = set(_facts_of_plan(json.loads(text)["plan"]))
        return rows == facts or set(map(_in_canonical_words, rows)) == facts
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False


def _in_canonical_words(row: tuple[object, ...]) -> tuple[object, ...]:
    if row[0] != "planned_invocation":
        return row
    return (*row[:3], encode_canonical(json.loads(str(row[3]))).decode(), *row[4:])


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


def record_rehearsal(
    session: Session, actor: Actor, twin: str, request_id: int | None, configuration: str, result: str
) -> Rehearsal:
    """Record a rehearsal.

    Args:
        twin: the name of the public dataset.
        request_id: the request that was named, if one was.
        configuration: digest of what was rehearsed.
        result: the figures, as JSON.
    """
    rehearsal = Rehearsal(
        dataset=twin, request_id=request_id, configuration=configuration, result=result, at=utc_now(), actor_id=actor.id
    )
    insert_row(session, rehearsal)
    return rehearsal


def rehearsals_of(session: Session, configuration: str) -> Sequence[Rehearsal]:
    """Return the rehearsals of a configuration, the newest first."""
    query = select(Rehearsal).where(Rehearsal.configuration == configuration).order_by(Rehearsal.id.desc())
    return session.scalars(query).all()
