"""The end of a dataset in which nothing ever was: it is forgotten.

No row of the ledger is deleted, because a link of the chain names each of them. A dataset that was forgotten takes no
version, proposal or erasure; lists leave it out, and its name and account stay.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services.audit.chain import Actor
from models_db.services.catalogue import principals
from models_db.tables import Dataset, DatasetEnd, DatasetVersion, Erasure, Proposal, Request
from models_db.writes.database_errors import RuleViolated
from models_db.writes.insert import insert_row

FORGETTING_ROLES: Final = ("steward", "admin")
"""Roles that may forget a dataset: those that register one."""
_NOT_EMPTY = "a dataset with a version, a proposal or an erasure is not forgotten"
_CONTENTS = {
    "version": DatasetVersion.dataset_id,
    "request": Request.dataset_id,
    "proposal": Proposal.dataset_id,
    "erasure": Erasure.dataset_id,
}


def forget(session: Session, actor: Actor, dataset: Dataset, reason: str) -> DatasetEnd:
    """Record that an empty dataset is forgotten.

    Raises:
        RoleRequired: the actor is neither steward nor admin.
        DatasetNotEmpty: there is something in it, or something came in at this moment.
    """
    principals.require_role(session, actor, *FORGETTING_ROLES)
    if found := dict(_contents(session, dataset)):
        raise DatasetNotEmpty(dataset.name, found)
    end = DatasetEnd(dataset_id=dataset.id, reason=reason, actor_id=actor.id, at=utc_now())
    try:
        insert_row(session, end)
    except RuleViolated as refusal:
        if refusal.facts["rule"] != _NOT_EMPTY:
            raise
        raise DatasetNotEmpty(dataset.name, {}) from None
    return end


def _contents(session: Session, dataset: Dataset) -> Iterator[tuple[str, int]]:
    """Yield what refers to a dataset, and how often. What was spent was spent by a request."""
    for name, column in _CONTENTS.items():
        if count := session.scalar(select(func.count()).where(column == dataset.id)):
            yield name, count


class DatasetNotEmpty(Refused):
    """Something is in the dataset, so it is not forgotten.

    Args:
        found: how many versions, requests, proposals and erasures it has; empty if they came in at this moment.
    """

    def __init__(self, name: str, found: Mapping[str, int]) -> None:
        listed = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for what, count in found.items())
        super().__init__(
            f"Dataset {name!r} was not forgotten: it has {listed or 'something that came in at this moment'}.",
            "Only a dataset that never had a version, request, proposal or erasure can be forgotten."
            f" `almoner dataset erase {name}` removes texts; what was spent stays spent.",
            {"dataset": name, "found": dict(found)},
        )
