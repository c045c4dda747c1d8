"""Principals as commands handle them: enrolment, grants and their periods, signed delegations."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from flows.workspace.workspace import Workspace
from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.services.audit.chain import Actor
from models_db.services.catalogue import principals, requests
from models_db.services.catalogue.principals import Mandate, PrincipalUnknown
from models_db.services.lifecycle import gates
from models_db.sessions.database import Database
from models_db.tables import Approval, Dataset, Delegation, Principal, RoleGrant
from models_db.values.canonical_json import Json
from tasks.release.signatures.ed25519 import fingerprint, verify

LAST_YEAR = 9000


def find_member(database: Database, public_key: str) -> Actor | None:
    """Return the principal with a public key; None if there is none.

    Raises:
        LoginMismatch: on PostgreSQL, this session's login belongs to another principal.
    """
    with database.read() as session:
        try:
            return principals.acting_principal(session, public_key)
        except PrincipalUnknown:
            return None


def add_user(
    workspace: Workspace, name: str, public_key: str, login: str | None, roles: Iterable[str], reason: str
) -> Actor:
    """Enrol a principal and grant the roles to it.

    Raises:
        RoleRequired: this home's owner is no admin.
        InvalidPersonName, NameTaken, LoginNotSupported, RoleUnknown: the errors of `principals.enrol` and `grant`.
    """
    with workspace.database.write() as session:
        principal = principals.enrol(session, workspace.actor, name, public_key, login)
        for role in roles:
            principals.grant(session, workspace.actor, principal.name, role, reason)
    return principal


def grant_role(workspace: Workspace, name: str, role: str, reason: str, start: str, end: str | None) -> RoleGrant:
    """Grant a role from `start` on, and until `end` if that is given (`parse_period`).

    Raises:
        RoleRequired: this home's owner is no admin.
        PrincipalNotFound, RoleUnknown: there is no such principal or role.
    """
    with workspace.database.write() as session:
        return principals.grant(session, workspace.actor, name, role, reason, valid_from=start, valid_to=end)


def revoke_role(workspace: Workspace, name: str, role: str, reason: str) -> int:
    """End all grants of a role; return how many there were.

    Raises:
        RoleRequired: this home's owner is no admin.
        PrincipalNotFound, RoleNotHeld: there is no such principal, or it does not hold the role.
    """
    with workspace.database.write() as session:
        return principals.revoke(session, workspace.actor, name, role, reason)


def list_people(session: Session) -> list[dict[str, Json]]:
    """Return all principals with their present and future roles."""
    grants = principals.unexpired_grants(session)
    return [
        {
            "name": person.name,
            "login": person.login,
            "fingerprint": _key_fingerprint(person),
            "public_key": person.public_key,
            "since": person.created_at,
            "roles": [
                {"role": g.role, "from": g.valid_from, "until": g.valid_to, "reason": g.reason,
                 "granted_by": requests.principal_name(session, g.granted_by)}
                for g in grants if g.principal_id == person.id
            ],
        }
        for person in principals.list_all(session)
    ]  # fmt: skip


def list_delegations(session: Session) -> list[dict[str, Json]]:
    """Return every delegation that has not ended, and whether the delegating steward signed it."""
    return [
        {
            "number": delegation.id,
            "from": requests.principal_name(session, delegation.from_id),
            "to": requests.principal_name(session, delegation.to_id),
            "dataset": session.get_one(Dataset, delegation.dataset_id).name,
            "valid_from": delegation.valid_from,
            "valid_to": delegation.valid_to,
            "reason": delegation.reason,
            "signed": is_signed(session, delegation),
        }
        for delegation in principals.open_delegations(session)
    ]


def _key_fingerprint(person: Principal) -> str | None:
    try:
        return fingerprint(person.public_key)
    except ValueError:
        return None  # a key that is none verifies nothing


def is_signed(session: Session, delegation: Delegation) -> bool:
    """Return whether the delegating steward signed the delegation."""
    giver, taker = session.get_one(Principal, delegation.from_id), session.get_one(Principal, delegation.to_id)
    dataset = session.get_one(Dataset, delegation.dataset_id).name
    mandate = Mandate(dataset, taker.name, delegation.valid_from, delegation.valid_to, delegation.reason)
    return verify(giver.public_key, delegation.signature, mandate.statement(giver.name))


def require_mandates(session: Session, request_id: int) -> None:
    """Check that every decision on behalf of another steward has that steward's signed delegation.

    Raises:
        DelegationForged: a delegation lacks the signature.
    """
    dataset_id = requests.find_request(session, request_id).dataset_id
    for approval, approver in gates.decisions_for_bundle(session, request_id):
        if approval.on_behalf_of is not None and not _is_mandated(session, approval, dataset_id):
            raise DelegationForged(request_id, approver.name, requests.principal_name(session, approval.on_behalf_of))


def _is_mandated(session: Session, approval: Approval, dataset_id: int) -> bool:
    query = select(Delegation).where(
        Delegation.from_id == approval.on_behalf_of,
        Delegation.to_id == approval.approver_id,
        Delegation.dataset_id == dataset_id,
        Delegation.valid_from <= approval.at,
        Delegation.valid_to > approval.at,
    )
    return any(is_signed(session, delegation) for delegation in session.scalars(query))


def parse_period(since: str | None, until: str | None) -> tuple[str, str | None]:
    """Return the start of the first day and the end of the last, in UTC; by default from now on and without end.

    Raises:
        InvalidDate: a text is not a date.
        InvalidPeriod: the period ends before it begins, or has ended.
    """
    now = utc_now()
    start = now if since is None else utc_now(datetime.combine(_parse_day(since), time(), UTC))
    if until is None:
        return start, None
    end = utc_now(datetime.combine(_parse_day(until) + timedelta(days=1), time(), UTC))
    if end <= max(start, now):
        raise InvalidPeriod(since, until)
    return start, end


def _parse_day(written: str) -> date:
    try:
        day = date.fromisoformat(written)
    except ValueError:
        raise InvalidDate(written) from None
    if day.year > LAST_YEAR:
        raise InvalidDate(written)
    return day


class InvalidDate(UsageError):
    """The text is not a date."""

    def __init__(self, written: str) -> None:
        super().__init__(f"{written!r} is not a date.", "Write it as 2026-11-30; days are in UTC.")


class InvalidPeriod(UsageError):
    """The period of a grant or delegation contains no future day."""

    def __init__(self, since: str | None, until: str) -> None:
        begin = f"from {since} " if since else ""
        super().__init__(
            f"The period {begin}until {until} has no day left.", "Choose a later --until; it is the last day, in UTC."
        )


class DelegationForged(Refused):
    """A decision was made on behalf of a person who signed no delegation."""

    def __init__(self, request_id: int, taker: str, giver: str) -> None:
        super().__init__(
            f"{taker!r} decided on request {request_id} in the name of {giver!r} without a signed delegation.",
            "The ledger was changed by hand. Find out by whom. `almoner user list` shows which delegations are signed.",
            {"request": request_id, "by": taker, "on_behalf_of": giver},
        )
