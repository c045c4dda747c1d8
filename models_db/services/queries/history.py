"""History of the blocks of each cohort, evaluations and publications: one statement for one as for ten."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from models_db.services.cohorts import COHORT_NUMBER, OF_ROOT, ROOT
from models_db.services.queries.lists import requests_with_states
from models_db.tables import (
    Account,
    Artifact,
    Dataset,
    Entry,
    Hold,
    Invocation,
    Publication,
    Request,
    StoredEvaluation,
    Transition,
)
from models_db.values.request_state import RequestState


@dataclass(frozen=True)
class BlockReaders:
    """The requests that have armed a step on some block of a cohort, also those that failed; `newest` by number."""

    count: int = 0
    newest: int | None = None


@dataclass(frozen=True)
class MostSpentBlock:
    """Block of a cohort that has spent most, the first of equals; rho in units."""

    account_id: int
    block: int
    rho_cap: int
    rho_spent: int


def first_registered(session: Session, account_id: int) -> str:
    """Return the time at which the first dataset of a root account was registered."""
    return session.scalars(select(func.min(Dataset.created_at)).where(Dataset.account_id == account_id)).one()


def most_spent_blocks(session: Session, account_id: int) -> dict[int, MostSpentBlock]:
    """Return the fullest block of each cohort of a root account, by cohort, in order."""
    columns = (COHORT_NUMBER, Account.id, Account.block, Account.rho_cap, Account.rho_spent)
    query = select(*columns).join(ROOT, OF_ROOT).order_by(Account.rho_spent, Account.id.desc())
    rows = session.execute(query.where(Account.parent_id == account_id))
    blocks = {
        int(cohort or 0): MostSpentBlock(number, block or 0, cap, spent) for cohort, number, block, cap, spent in rows
    }
    return dict(sorted(blocks.items()))


def spent_by_day(session: Session, blocks: Collection[int]) -> dict[int, list[tuple[str, int]]]:
    """Return the armed rho of blocks, in units by UTC day, oldest first; blocks without any are left out."""
    day = func.substr(Entry.at, 1, 10)
    query = (
        select(Hold.account_id, day, func.sum(Hold.rho))
        .join(Entry, (Entry.hold_id == Hold.id) & (Entry.kind == "ARM"))
        .where(Hold.account_id.in_(blocks))
        .group_by(Hold.account_id, day)
        .order_by(Hold.account_id, day)
    )
    amounts: dict[int, list[tuple[str, int]]] = {}
    for block, at, rho in session.execute(query):
        amounts.setdefault(block, []).append((str(at), int(rho)))
    return amounts


def armed_on_blocks(
    session: Session, account_id: int, requests: Collection[int], mechanism: str
) -> dict[int, dict[int, int]]:
    """Return the rho that requests have armed for a mechanism, in units, by block account and request.

    Every block of the root account is there, also one without any.
    """
    query = (
        select(Hold.account_id, Invocation.request_id, func.sum(Hold.rho))
        .join(Entry, (Entry.hold_id == Hold.id) & (Entry.kind == "ARM"))
        .join(Invocation, Invocation.id == Hold.invocation_id)
        .join(Account, Account.id == Hold.account_id)
        .where(Account.parent_id == account_id)
        .where(Invocation.request_id.in_(requests), Invocation.mechanism == mechanism)
        .group_by(Hold.account_id, Invocation.request_id)
    )
    blocks = select(Account.id).where(Account.parent_id == account_id)
    amounts: dict[int, dict[int, int]] = {block: {} for block in session.scalars(blocks)}
    for block, request, rho in session.execute(query):
        amounts[block][request] = int(rho)
    return amounts


def block_readers(session: Session, account_id: int) -> dict[int, BlockReaders]:
    """Return the readers of each cohort of a root account; cohorts without readers are left out."""
    request = Invocation.request_id
    query = (
        select(COHORT_NUMBER, func.count(request.distinct()), func.max(request))
        .join(ROOT, OF_ROOT)
        .join(Hold, Hold.account_id == Account.id)
        .join(Entry, (Entry.hold_id == Hold.id) & (Entry.kind == "ARM"))
        .join(Invocation, Invocation.id == Hold.invocation_id)
        .where(Account.parent_id == account_id)
        .group_by(COHORT_NUMBER)
    )
    return {int(cohort or 0): BlockReaders(count, newest) for cohort, count, newest in session.execute(query)}


@dataclass(frozen=True)
class ReleasedMetrics:
    """A request with its state, and the results that are stored of its newest artifact, oldest first."""

    request: Request
    state: str
    results: tuple[str, ...]


def released_metrics(session: Session, dataset_id: int) -> Iterator[ReleasedMetrics]:
    """Yield the requests of a dataset that have results, oldest first; see `artifact_of` and `evaluations`."""
    later = aliased(Artifact)
    newest = select(func.max(later.attempt)).where(later.request_id == Request.id).scalar_subquery()
    query = (
        requests_with_states()
        .join(Artifact, (Artifact.request_id == Request.id) & (Artifact.attempt == newest))
        .join(StoredEvaluation, StoredEvaluation.artifact_id == Artifact.id)
        .where(Request.dataset_id == dataset_id)
        .with_only_columns(Request, Transition.to_state, StoredEvaluation.result)
        .order_by(Request.id, StoredEvaluation.id)
    )
    for _, rows in groupby(session.execute(query), key=lambda row: row[0].id):
        metric_rows = list(rows)
        yield ReleasedMetrics(metric_rows[0][0], metric_rows[0][1], tuple(row[2] for row in metric_rows))


def published_requests(session: Session, dataset_id: int) -> Sequence[Request]:
    """Return the requests of a dataset whose releases are out and not retracted, the newest publication first."""
    query = (
        requests_with_states()
        .join(Artifact, Artifact.request_id == Request.id)
        .join(Publication, Publication.artifact_id == Artifact.id)
        .where(Request.dataset_id == dataset_id, Transition.to_state == RequestState.PUBLISHED)
        .order_by(Publication.id.desc())
    )
    return [request for request, _ in session.execute(query)]
