"""What has become known of a release: its assignment of units to texts, or its unprotected figures.

One function, `find_secrecy_end`, says for all screens when and why a release's claim while its assignment is secret
ended (decision 0132): by a steward's row, or by the first look at its internal figures. A row is of a request, because
a run that failed or was given up after some draws has used an assignment too, and is charged for it (decision 0132).
Looks at the unprotected figures of an account are rows that are never removed (PRIVACY §10.3).
"""

from typing import Final, Literal

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.services import people
from models_db.services.audit.chain import Actor
from models_db.tables import (
    Artifact,
    AssignmentExposure,
    Dataset,
    InternalView,
    Principal,
    Publication,
    RenyiCharge,
    Request,
    Transition,
)
from models_db.values.exposures import SecrecyEnd, ViewingRecord
from models_db.values.request_state import RequestState
from models_db.writes.insert import insert_row

EXPOSING_ROLES: Final = ("steward", "admin")
"""Roles that may record that an assignment got out."""


def require_may_expose(session: Session, actor: Actor, since: str) -> None:
    """Check that the actor may record an exposure since that moment.

    Raises:
        RoleRequired: the actor is neither steward nor admin.
        ExposedLater: the moment is to come.
    """
    people.require_role(session, actor, *EXPOSING_ROLES)
    if since > utc_now():
        raise _exposure_to_come(since)


def record_exposure(session: Session, actor: Actor, request_id: int, since: str | None, reason: str) -> str:
    """Record that an assignment of a request's units to texts got out; returns since when.

    It ends the claim of all attempts of the request, whether or not one has produced a release, and of those to come.

    Args:
        since: a moment in the ledger's form; None if unknown, which counts from when the artifact was produced; where
            there is none, from when the first attempt was charged.

    Raises:
        RoleRequired: the actor is neither steward nor admin.
        NothingCharged: no attempt was charged, so there was no assignment.
        AlreadyExposed: it is recorded already.
        ExposedLater: the moment is to come.
    """
    people.require_role(session, actor, *EXPOSING_ROLES)
    first_charge = session.scalar(select(func.min(RenyiCharge.at)).where(RenyiCharge.request_id == request_id))
    if first_charge is None:
        raise Refused(
            f"No attempt of request {request_id} was charged, so no assignment of it can have got out.",
            "Record it for the release that it is about; `almoner release list` shows all requests.",
            {"request": request_id},
            code="NothingCharged",
        )
    if (earlier := _recorded(session, request_id)) is not None:
        raise Refused(
            f"It is recorded already that the assignment of request {request_id} got out, since {earlier.since[:10]}.",
            f"`almoner release show {request_id}` shows it; a record is never changed.",
            {"request": request_id, "since": earlier.since},
            code="AlreadyExposed",
        )
    now = utc_now()
    produced = session.scalar(select(Artifact.created_at).where(Artifact.request_id == request_id))
    beginning = since or produced or first_charge
    if beginning > now:
        raise _exposure_to_come(beginning)
    row = AssignmentExposure(request_id=request_id, since=beginning, reason=reason, actor_id=actor.id, at=now)
    insert_row(session, row)
    return beginning


def exposed_requests(session: Session) -> set[int]:
    """Return the ids of all requests of which an exposure is recorded."""
    return set(session.scalars(select(AssignmentExposure.request_id)))


def _recorded(session: Session, request_id: int) -> AssignmentExposure | None:
    return session.scalar(select(AssignmentExposure).where(AssignmentExposure.request_id == request_id))


def find_secrecy_end(session: Session, request_id: int) -> SecrecyEnd | None:
    """Return the end of the secrecy of a request's assignment; None while it lasts.

    The earlier of the two causes counts. A look is of the release's own figures; those of another one end nothing here.
    """
    return _find_ends(session, select(Request.id).where(Request.id == request_id)).get(request_id)


def find_secrecy_ends_of_account(session: Session, account_id: int) -> dict[int, SecrecyEnd]:
    """Return the ends of the secrecy of all requests of an account, by request."""
    requests = select(Request.id).join(Dataset, Dataset.id == Request.dataset_id)
    return _find_ends(session, requests.where(Dataset.account_id == account_id))


def _find_ends(session: Session, requests: Select[int]) -> dict[int, SecrecyEnd]:
    exposures = (
        select(AssignmentExposure.request_id, AssignmentExposure.since, Principal.name, AssignmentExposure.reason)
        .join(Principal, Principal.id == AssignmentExposure.actor_id)
        .where(AssignmentExposure.request_id.in_(requests))
    )
    views = (
        select(Artifact.request_id, InternalView.at, Principal.name)
        .join(Artifact, Artifact.id == InternalView.artifact_id)
        .join(Principal, Principal.id == InternalView.actor_id)
        .where(Artifact.request_id.in_(requests))
    )
    found = [
        (at, request, SecrecyEnd(at[:10], "exposed", name, reason))
        for request, at, name, reason in session.execute(exposures)
    ]
    found += [(at, request, SecrecyEnd(at[:10], "viewed", name)) for request, at, name in session.execute(views)]
    return {request: end for _, request, end in sorted(found, key=lambda one: one[0], reverse=True)}


def exposed_artifacts(session: Session) -> tuple[str, ...]:
    """Return the sorted digests of published artifacts whose secrecy ended, for later bundles."""
    exposed, viewed = select(AssignmentExposure.request_id), select(InternalView.artifact_id)
    query = (
        select(Artifact.digest)
        .join(Publication, Publication.artifact_id == Artifact.id)
        .where(or_(Artifact.request_id.in_(exposed), Artifact.id.in_(viewed)))
    )
    return tuple(sorted(session.scalars(query)))


def _exposure_to_come(since: str) -> UsageError:
    return UsageError(
        f"An assignment cannot have got out since {since[:10]}, which is to come.",
        "Give the day (UTC) since when others could know it, or leave `--since` out.",
        {"since": since},
        code="ExposedLater",
    )


ViewKind = Literal["computed", "shown"]
"""Figures computed, or stored figures shown again; their links are `evaluation.internal` and `evaluation.shown`."""


def require_viewable(session: Session, artifact: Artifact) -> None:
    """Check that internal figures of an artifact could be seen now, before any is computed.

    Raises:
        ReleaseUndecided: a release of the account is running or waits at the publish gate.
    """
    dataset = _dataset_of(session, artifact)
    if dataset.governed:
        _require_between_releases(session, dataset.account_id)


def record_view(session: Session, actor: Actor, artifact: Artifact, kind: ViewKind) -> bool:
    """Record that the actor sees internal figures of an artifact, before they see any.

    Returns:
        Whether there was anything to record: figures of public data are free.

    Raises:
        ReleaseUndecided: a release of the account is running or waits at the publish gate.
        RuleViolated: the publish decision on the artifact is not recorded.
    """
    dataset = _dataset_of(session, artifact)
    if not dataset.governed:
        return False
    _require_between_releases(session, dataset.account_id)
    view = InternalView(
        account_id=dataset.account_id, artifact_id=artifact.id, actor_id=actor.id, kind=kind, at=utc_now()
    )
    insert_row(session, view)
    return True


def find_viewing(session: Session, account_id: int) -> ViewingRecord | None:
    """Return the first day on which unprotected figures were seen, and the viewers; None if there are none."""
    first = session.scalar(select(func.min(InternalView.at)).where(InternalView.account_id == account_id))
    if first is None:
        return None
    query = select(Principal.name).join(InternalView, InternalView.actor_id == Principal.id)
    names = session.scalars(query.where(InternalView.account_id == account_id).distinct())
    return ViewingRecord(first[:10], tuple(sorted(names)))


def has_seen(session: Session, account_id: int, principal_id: int) -> bool:
    """Return whether a principal has seen unprotected figures of an account."""
    query = select(func.count()).where(InternalView.account_id == account_id, InternalView.actor_id == principal_id)
    return bool(session.scalar(query))


def _require_between_releases(session: Session, account_id: int) -> None:
    last = select(func.max(Transition.number)).where(Transition.request_id == Request.id).scalar_subquery()
    query = (
        select(Request.id)
        .join(Dataset, Dataset.id == Request.dataset_id)
        .join(Transition, Transition.request_id == Request.id)
        .where(Dataset.account_id == account_id, Transition.number == last.correlate(Request))
        .where(Transition.to_state.in_((RequestState.RUNNING, RequestState.PRODUCED)))
    )
    undecided = session.scalars(query.order_by(Request.id)).all()
    if undecided:
        numbers = ", ".join(map(str, undecided))
        raise Refused(
            f"Unprotected figures of this account are not shown now: request {numbers} is running or waits at the"
            " publish gate, and its card could not state that they had been seen.",
            "Decide on it first: `almoner release list --waiting`; a run that has ended: `almoner run sweep`.",
            {"requests": list(undecided)},
            code="ReleaseUndecided",
        )


def _dataset_of(session: Session, artifact: Artifact) -> Dataset:
    return session.get_one(Dataset, session.get_one(Request, artifact.request_id).dataset_id)
