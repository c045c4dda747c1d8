"""Principals as commands handle them: enrolment, grants and their periods."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy.orm import Session

from flows.workspace.workspace import Workspace
from models_db.database.base import utc_now
from models_db.errors import UsageError
from models_db.services import people, requests
from models_db.services.audit.chain import Actor
from models_db.services.people import PrincipalUnknown
from models_db.sessions.database import Database
from models_db.tables import Principal, RoleGrant
from models_db.values.canonical_json import Json
from tasks.release.signatures.ed25519 import fingerprint

LAST_YEAR = 9000


def find_member(database: Database, public_key: str) -> Actor | None:
    """Return the principal with a public key; None if there is none.

    Raises:
        LoginMismatch: on PostgreSQL, this session's login belongs to another principal.
    """
    with database.read() as session:
        try:
            return people.acting_principal(session, public_key)
        except PrincipalUnknown:
            return None


def add_user(
    workspace: Workspace, name: str, public_key: str, login: str | None, roles: Iterable[str], reason: str
) -> Actor:
    """Enrol a principal and grant the roles to it.

    Raises:
        RoleRequired: this home's owner is no admin.
        InvalidPersonName, NameTaken, LoginNotSupported, RoleUnknown: the errors of `people.enrol` and `grant`.
    """
    with workspace.database.write() as session:
        principal = people.enrol(session, workspace.actor, name, public_key, login)
        for role in roles:
            people.grant(session, workspace.actor, principal.name, role, reason)
    return principal


def grant_role(workspace: Workspace, name: str, role: str, reason: str, start: str, end: str | None) -> RoleGrant:
    """Grant a role from `start` on, and until `end` if that is given (`parse_period`).

    Raises:
        RoleRequired: this home's owner is no admin.
        PrincipalNotFound, RoleUnknown: there is no such principal or role.
    """
    with workspace.database.write() as session:
        return people.grant(session, workspace.actor, name, role, reason, valid_from=start, valid_to=end)


def revoke_role(workspace: Workspace, name: str, role: str, reason: str) -> int:
    """End all grants of a role; return how many there were.

    Raises:
        RoleRequired: this home's owner is no admin.
        PrincipalNotFound, RoleNotHeld: there is no such principal, or it does not hold the role.
    """
    with workspace.database.write() as session:
        return people.revoke(session, workspace.actor, name, role, reason)


def list_people(session: Session) -> list[dict[str, Json]]:
    """Return all principals with their present and future roles."""
    grants = people.unexpired_grants(session)
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
        for person in people.list_all(session)
    ]  # fmt: skip


def _key_fingerprint(person: Principal) -> str | None:
    try:
        return fingerprint(person.public_key)
    except ValueError:
        return None  # a key that is none verifies nothing


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
        raise _invalid_period(since, until)
    return start, end


def _parse_day(written: str) -> date:
    try:
        day = date.fromisoformat(written)
    except ValueError:
        raise _invalid_date(written) from None
    if day.year > LAST_YEAR:
        raise _invalid_date(written)
    return day


def _invalid_date(written: str) -> UsageError:
    return UsageError(f"{written!r} is not a date.", "Write it as 2026-11-30; days are in UTC.", code="InvalidDate")


def _invalid_period(since: str | None, until: str) -> UsageError:
    begin = f"from {since} " if since else ""
    return UsageError(
        f"The period {begin}until {until} has no day left.",
        "Choose a later --until; it is the last day, in UTC.",
        code="InvalidPeriod",
    )
