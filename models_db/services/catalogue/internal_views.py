"""Views of unprotected figures of an account by principals, as rows that are never removed (PRIVACY §10.3)."""

from typing import Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.services.audit.chain import Actor
from models_db.tables import Artifact, Dataset, InternalView, Principal, Request, Transition
from models_db.values.internal_view import ReleaseUndecided, ViewingRecord
from models_db.values.request_state import RequestState
from models_db.writes.insert import insert_row

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
        raise ReleaseUndecided(undecided)


def _dataset_of(session: Session, artifact: Artifact) -> Dataset:
    return session.get_one(Dataset, session.get_one(Request, artifact.request_id).dataset_id)
