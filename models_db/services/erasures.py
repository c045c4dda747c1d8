"""Erasures of a dataset's text, and the remaining content of each version (PRIVACY §10.9).

Budget, marks and record stay. The facts are recorded before anything is deleted, so an erasure that was cut short is
known, and is carried out again; no erased text can be read, approved or run meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services import people
from models_db.services.audit.chain import Actor
from models_db.tables import Dataset, DatasetVersion, ErasedVersion, Erasure, ErasureEnd, Request, Transition
from models_db.values.request_state import RequestState
from models_db.writes.insert import insert_row, insert_rows

ErasureScope = Literal["unit", "version", "all"]
ERASING_ROLES = ("steward", "admin")
"""Roles that may erase."""


@dataclass(frozen=True)
class ErasureRequest:
    """Parts of a dataset to erase.

    Attributes:
        version: by its row, of the scope `version`.
        unit_mark: of the scope `unit`, 64 hexadecimal digits.
        remaining: by the row of each version that is concerned, the keyed mark of what will be left; None for nothing.
    """

    scope: ErasureScope
    reason: str
    remaining: Mapping[int, str | None]
    version: int | None = None
    unit_mark: str | None = None


def record_erasure(session: Session, actor: Actor, dataset: Dataset, erasure: ErasureRequest) -> Erasure:
    """Record an erasure that is about to be carried out.

    Raises:
        RoleRequired: the actor is neither steward nor admin.
        ErasureBlocked: a release of the dataset is running or waits at the publish gate.
        VersionsChanged: a version came in, or was erased, since `erasure` was put together.
    """
    people.require_role(session, actor, *ERASING_ROLES)
    require_unblocked(session, dataset)
    row = Erasure(
        dataset_id=dataset.id, scope=erasure.scope, version_id=erasure.version, unit_mark=erasure.unit_mark,
        reason=erasure.reason, actor_id=actor.id, at=utc_now(),
    )  # fmt: skip
    insert_row(session, row)  # from here on no version is added
    concerned = {erasure.version}
    if erasure.scope != "version":
        concerned = {version.id for version in remaining_versions(session, dataset)}
    if concerned != set(erasure.remaining):
        raise Refused(
            f"Versions of {dataset.name!r} have changed at the same moment; nothing was erased.",
            "Try again.",
            {"dataset": dataset.name},
            code="VersionsChanged",
        )
    rows = [
        ErasedVersion(erasure_id=row.id, version_id=number, manifest_mark=mark)
        for number, mark in sorted(erasure.remaining.items())
    ]
    insert_rows(session, rows)
    return row


def end_erasure(session: Session, actor: Actor, erasure: Erasure) -> None:
    """Record that an erasure was carried out; record nothing if it had ended before."""
    if erasure.id in ended_erasures(session):
        return
    insert_row(session, ErasureEnd(erasure_id=erasure.id, actor_id=actor.id, at=utc_now()))


def list_all(session: Session, dataset: Dataset | None = None) -> Sequence[Erasure]:
    """Return all erasures, or those of one dataset, oldest first."""
    query = select(Erasure).order_by(Erasure.id)
    return session.scalars(query if dataset is None else query.where(Erasure.dataset_id == dataset.id)).all()


def ended_erasures(session: Session) -> frozenset[int]:
    """Return the numbers of the erasures that were carried out."""
    return frozenset(session.scalars(select(ErasureEnd.erasure_id)))


def erased_versions(session: Session) -> frozenset[int]:
    """Return the rows of all versions of which nothing is left."""
    return frozenset(session.scalars(select(ErasedVersion.version_id).where(ErasedVersion.manifest_mark.is_(None))))


def remaining_versions(session: Session, dataset: Dataset) -> Sequence[DatasetVersion]:
    """Return the versions of a dataset that were not erased, oldest first."""
    query = select(DatasetVersion).where(DatasetVersion.dataset_id == dataset.id).order_by(DatasetVersion.number)
    erased = erased_versions(session)
    return [version for version in session.scalars(query) if version.id not in erased]


def manifest_mark(session: Session, version: DatasetVersion) -> str:
    """Return the keyed mark of a remaining version's content: as ingested, or as the newest erasure left it."""
    query = select(ErasedVersion.manifest_mark).where(ErasedVersion.version_id == version.id)
    return session.scalars(query.order_by(ErasedVersion.id.desc()).limit(1)).one_or_none() or version.manifest_mark


def erased_units(session: Session, dataset: Dataset) -> frozenset[str]:
    """Return the keyed marks of the units that were erased of a dataset, in hexadecimal digits."""
    query = select(Erasure.unit_mark).where(Erasure.dataset_id == dataset.id, Erasure.unit_mark.is_not(None))
    return frozenset(mark for mark in session.scalars(query) if mark is not None)


def require_unblocked(session: Session, dataset: Dataset) -> None:
    """Check that no release of a dataset is being made or decided on.

    Raises:
        ErasureBlocked: one is.
    """
    newest: dict[int, str] = {}
    query = select(Transition.request_id, Transition.to_state).join(Request, Request.id == Transition.request_id)
    for row in session.execute(query.where(Request.dataset_id == dataset.id).order_by(Transition.number)):
        newest[row.request_id] = row.to_state
    blocking = {
        number: state
        for number, state in sorted(newest.items())
        if state in (RequestState.RUNNING, RequestState.PRODUCED)
    }
    if blocking:
        raise _erasure_blocked(dataset.name, blocking)


def require_not_erased(session: Session, version_id: int) -> None:
    """Check that a version of the data was not erased; the database checks it again when a run begins.

    Raises:
        VersionErased: it was.
    """
    if version_id in erased_versions(session):
        version = session.get_one(DatasetVersion, version_id)
        raise version_erased(session.get_one(Dataset, version.dataset_id).name, version.number)


def version_erased(dataset: str, number: int) -> Refused:
    """Return the refusal of a version whose data were erased."""
    return Refused(
        f"Version {number} of dataset {dataset!r} was erased, and nothing reads it any more.",
        "Withdraw or reject its requests and submit new ones: a new request reads the newest remaining version.",
        {"dataset": dataset, "version": number},
        code="VersionErased",
    )


def _erasure_blocked(dataset: str, blocking: Mapping[int, str]) -> Refused:
    requests = ", ".join(f"request {number} ({state})" for number, state in blocking.items())
    return Refused(
        f"Nothing of {dataset!r} was erased: {requests} is running or waits at the publish gate.",
        "Wait for the run, and publish or reject its output; `almoner run sweep` closes a run that has died.",
        {"dataset": dataset, "requests": list(blocking)},
        code="ErasureBlocked",
    )
