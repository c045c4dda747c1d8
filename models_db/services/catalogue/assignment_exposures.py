"""Ends of the secrecy of assignments: a steward's row, or the first look at a release's internal figures.

One function, `find_secrecy_end`, says for all screens when and why a release's claim while its assignment is secret
ended (decision 0132). No limit, guard or budget asks it.
"""

from typing import Final

from sqlalchemy import ColumnElement, select, union
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.services.audit.chain import Actor
from models_db.services.catalogue import principals
from models_db.tables import Artifact, AssignmentExposure, Dataset, InternalView, Principal, Publication, Request
from models_db.values.secrecy_end import SecrecyEnd
from models_db.writes.insert import insert_row

EXPOSING_ROLES: Final = ("steward", "admin")
"""Roles that may record that an assignment got out."""


def require_may_expose(session: Session, actor: Actor, since: str) -> None:
    """Check that the actor may record an exposure since that moment.

    Raises:
        RoleRequired: the actor is neither steward nor admin.
        ExposedLater: the moment is to come.
    """
    principals.require_role(session, actor, *EXPOSING_ROLES)
    if since > utc_now():
        raise ExposedLater(since)


def record_exposure(session: Session, actor: Actor, artifact: Artifact, since: str | None, reason: str) -> str:
    """Record that the assignment of units to the texts of an artifact got out; returns since when.

    Args:
        since: a moment in the ledger's form; None if unknown, which counts from when the artifact was produced.

    Raises:
        RoleRequired: the actor is neither steward nor admin.
        AlreadyExposed: it is recorded already.
        ExposedLater: the moment is to come.
    """
    principals.require_role(session, actor, *EXPOSING_ROLES)
    if (earlier := _recorded(session, artifact)) is not None:
        raise AlreadyExposed(artifact.request_id, earlier.since)
    now = utc_now()
    beginning = artifact.created_at if since is None else since
    if beginning > now:
        raise ExposedLater(beginning)
    row = AssignmentExposure(artifact_id=artifact.id, since=beginning, reason=reason, actor_id=actor.id, at=now)
    insert_row(session, row)
    return beginning


def artifacts_recorded_exposed(session: Session) -> set[int]:
    """Return the ids of all artifacts of which an exposure is recorded."""
    return set(session.scalars(select(AssignmentExposure.artifact_id)))


def _recorded(session: Session, artifact: Artifact) -> AssignmentExposure | None:
    return session.scalar(select(AssignmentExposure).where(AssignmentExposure.artifact_id == artifact.id))


def find_secrecy_end(session: Session, request_id: int) -> SecrecyEnd | None:
    """Return the end of the secrecy of a release's assignment; None while it lasts.

    The earlier of the two causes counts. A look is of the release's own figures; those of another one end nothing here.
    """
    return _find_ends(session, Artifact.request_id == request_id).get(request_id)


def find_secrecy_ends_of_account(session: Session, account_id: int) -> dict[int, SecrecyEnd]:
    """Return the ends of the secrecy of all releases of an account, by request."""
    requests = select(Request.id).join(Dataset, Dataset.id == Request.dataset_id)
    return _find_ends(session, Artifact.request_id.in_(requests.where(Dataset.account_id == account_id)))


def _find_ends(session: Session, chosen: ColumnElement[bool]) -> dict[int, SecrecyEnd]:
    exposures = (
        select(Artifact.request_id, AssignmentExposure.since, Principal.name, AssignmentExposure.reason)
        .join(Artifact, Artifact.id == AssignmentExposure.artifact_id)
        .join(Principal, Principal.id == AssignmentExposure.actor_id)
    )
    views = (
        select(Artifact.request_id, InternalView.at, Principal.name)
        .join(Artifact, Artifact.id == InternalView.artifact_id)
        .join(Principal, Principal.id == InternalView.actor_id)
    )
    found = [
        (at, request, SecrecyEnd(at[:10], "exposed", name, reason))
        for request, at, name, reason in session.execute(exposures.where(chosen))
    ]
    found += [
        (at, request, SecrecyEnd(at[:10], "viewed", name)) for request, at, name in session.execute(views.where(chosen))
    ]
    return {request: end for _, request, end in sorted(found, key=lambda one: one[0], reverse=True)}


def exposed_artifacts(session: Session) -> tuple[str, ...]:
    """Return the sorted digests of published artifacts whose secrecy ended, for later bundles."""
    ended = union(select(AssignmentExposure.artifact_id), select(InternalView.artifact_id)).subquery()
    query = (
        select(Artifact.digest)
        .join(Publication, Publication.artifact_id == Artifact.id)
        .where(Artifact.id.in_(select(ended.c.artifact_id)))
    )
    return tuple(sorted(session.scalars(query)))


class AlreadyExposed(Refused):
    """That the assignment got out is recorded already."""

    def __init__(self, request: int, since: str) -> None:
        super().__init__(
            f"It is recorded already that the assignment of release {request} got out, since {since[:10]}.",
            f"`almoner release show {request}` shows it; a record is never changed.",
            {"request": request, "since": since},
        )


class ExposedLater(UsageError):
    """An exposure that is to come."""

    def __init__(self, since: str) -> None:
        super().__init__(
            f"An assignment cannot have got out since {since[:10]}, which is to come.",
            "Give the day (UTC) since when others could know it, or leave `--since` out.",
            {"since": since},
        )
