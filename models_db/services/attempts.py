"""Attempts of approved requests: the right to begin one, the lease on it, and its end without an artifact."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services import budget, erasures, gates, proposals, requests
from models_db.services.audit.chain import Actor
from models_db.tables import (
    Entry,
    Hold,
    Invocation,
    Lease,
    Request,
)
from models_db.values.amounts import RenyiCurve
from models_db.values.request_state import UNRUN_STATES, Gate, RequestState
from models_db.writes.insert import renew_lease, take_lease

LEASE_DURATION = timedelta(minutes=10)
"""Time without a renewal after which a run counts as dead. Each armed instalment renews the lease."""


class StillRunning(Refused):
    """Another process holds the request."""

    def __init__(self, request_id: int, owner: str) -> None:
        super().__init__(
            f"Request {request_id} is being run by {owner}.",
            "Wait for it. If that process is gone, `almoner run sweep` cleans up after it.",
            {"request": request_id, "owner": owner},
        )


def require_startable(session: Session, request_id: int) -> Request:
    """Return the request, if it may be run now.

    Raises:
        StillRunning: another process holds it.
        VersionErased: the version of the data that it names was erased.
        requests.WrongState, gates.GateClosed: it is not approved (any more).
    """
    request = requests.find_request(session, request_id)
    state = requests.state_of(session, request_id)
    if state == RequestState.RUNNING:
        lease = session.get(Lease, request_id)
        raise StillRunning(request_id, lease.owner if lease else "nobody")
    if state not in UNRUN_STATES:
        raise requests.WrongState(request_id, state, RequestState.APPROVED)
    erasures.require_not_erased(session, request.version_id)
    if request.standing_id is None:
        gates.require_gate(session, request_id, Gate.SPEND)
    if request.expires_at <= utc_now():
        raise requests.WrongState(
            request_id, "expired", "unexpired", "Submit it again: `almoner release request FILE`."
        )
    return request


def start_attempt(
    session: Session,
    actor: Actor,
    request_id: int,
    token: str,
    owner: str,
    goes_on_from: int | None = None,
    curve: RenyiCurve | None = None,
) -> int:
    """Begin an attempt of an approved request and take its lease. Returns the attempt's number.

    Args:
        goes_on_from: the attempt whose journal it goes on with; that one's charge in orders covers it.
        curve: what an attempt from nothing is charged in orders; None for its rho at each.

    Raises:
        StillRunning, requests.WrongState, gates.GateClosed: see `require_startable`.
    """
    request = require_startable(session, request_id)
    attempt = _count_attempts(session, request_id) + 1
    if request.standing_id is not None:
        proposals.require_authorised(session, actor, request)
    going_on = "" if goes_on_from is None else str(goes_on_from)
    requests.record_transition(session, actor, request_id, RequestState.APPROVED, RequestState.RUNNING, going_on)
    if goes_on_from is None:
        budget.charge_attempt(session, actor, request_id, attempt, curve)
    expires_at = utc_now(datetime.now(UTC) + LEASE_DURATION)
    take_lease(session, Lease(request_id=request_id, attempt=attempt, token=token, owner=owner, expires_at=expires_at))
    return attempt


def find_started_attempt(session: Session, request_id: int, token: str) -> int | None:
    """Return the number of the attempt with this token, if any."""
    lease = session.get(Lease, request_id, populate_existing=True)
    return lease.attempt if lease is not None and lease.token == token else None


def is_armed(session: Session, attempt: budget.Attempt, sequence: int, instalment: int) -> bool:
    """Return whether one instalment is armed.

    Raises:
        AttemptClosed: the attempt was settled meanwhile.
    """
    query = (
        select(Hold.id, Entry.kind)
        .join(Invocation, Invocation.id == Hold.invocation_id)
        .join(Entry, Entry.hold_id == Hold.id)
        .where(Invocation.request_id == attempt.request_id, Invocation.attempt == attempt.number)
        .where(Invocation.sequence == sequence, Hold.instalment == instalment)
    )
    entry_kinds: dict[int, set[str]] = {}
    for number, kind in session.execute(query):
        entry_kinds.setdefault(number, set()).add(kind)
    if any(kinds - {"HOLD", "ARM"} for kinds in entry_kinds.values()):
        raise budget.AttemptClosed
    return bool(entry_kinds) and all("ARM" in kinds for kinds in entry_kinds.values())


def lease_renewal(token: str) -> tuple[str, str]:
    """Return the token of a lease, and when it ends if it is prolonged now."""
    return token, utc_now(datetime.now(UTC) + LEASE_DURATION)


def running_leases(session: Session) -> Sequence[Lease]:
    """Return the leases of requests that are in the state 'running'.

    A client of the runner's own can begin an attempt and take no lease; it gets one here that has run out.
    """
    running = session.execute(_RUNNING).all()
    leases = {lease.request_id: lease for lease in session.scalars(select(Lease))} if running else {}
    return [
        lease
        if (lease := leases.get(number)) is not None and lease.attempt == attempt
        else Lease(request_id=number, attempt=attempt, token="", owner="nobody", expires_at="")
        for number, attempt in running
    ]


_RUNNING = text("""
SELECT t.request_id, (
    SELECT count(*) FROM transition y WHERE y.request_id = t.request_id AND y.to_state = 'running'
) FROM transition t WHERE t.to_state = 'running' AND NOT EXISTS (
    SELECT 1 FROM transition n WHERE n.request_id = t.request_id AND n.number > t.number
) ORDER BY t.request_id
""")


def renew_attempt_lease(session: Session, request_id: int, token: str) -> bool:
    """Prolong the lease of a running attempt; return False if another attempt has taken it."""
    return renew_lease(session, request_id, *lease_renewal(token))


def resumable_requests(session: Session) -> set[int]:
    """Return the requests that run, or may be run again before they expire: their draws are kept."""
    unexpired = session.scalars(select(Request).where(Request.expires_at > utc_now())).all()
    states = {request.id: requests.state_of(session, request.id) for request in unexpired}
    waiting = {number for number, state in states.items() if state in UNRUN_STATES}
    return waiting | {lease.request_id for lease in running_leases(session)}


def _count_attempts(session: Session, request_id: int) -> int:
    return sum(step.to_state == RequestState.RUNNING for step in requests.history(session, request_id))


def _settle_attempt(session: Session, actor: Actor, attempt: budget.Attempt, outcome: str) -> None:
    """Close the holds of the running attempt."""
    budget.settle(session, actor, attempt, outcome)
    running = requests.state_of(session, attempt.request_id) == RequestState.RUNNING
    if not running or _count_attempts(session, attempt.request_id) != attempt.number:
        raise budget.AttemptClosed


def fail_attempt(session: Session, actor: Actor, attempt: budget.Attempt, reason: str) -> None:
    """End an attempt without an artifact: forfeit its armed holds and release the rest; it may be run again.

    Raises:
        AttemptClosed: the attempt has ended already.
    """
    _settle_attempt(session, actor, attempt, "FORFEIT")
    requests.record_transition(session, actor, attempt.request_id, RequestState.RUNNING, RequestState.APPROVED, reason)
