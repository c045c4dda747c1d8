"""Rehearsals of requests on public data: their figures, by the configuration that was rehearsed."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.services.audit.chain import Actor
from models_db.tables import Rehearsal
from models_db.writes.insert import insert_row


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
