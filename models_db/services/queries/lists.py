"""Lists of many rows and histories, for pages: as many statements for ten thousand requests as for one.

Lists of many rows, for pages: as many statements for ten thousand requests as for one. The services beside this one
answer for one request, dataset or proposal. An answer that this module gives too is equal to theirs
(`tests/contracts/test_listings.py` compares them row by row).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, aliased

from models_db.database.base import utc_now
from models_db.services import datasets
from models_db.services.budget import Balance
from models_db.services.cohorts import COHORT_NUMBER, FIRST_COHORT, OF_ROOT, ROOT
from models_db.services.datasets import LifetimeClaim
from models_db.tables import (
    Account,
    AppliedProposal,
    Approval,
    Artifact,
    Cohort,
    Dataset,
    DatasetVersion,
    Entry,
    Hold,
    Invocation,
    Principal,
    Proposal,
    Publication,
    Request,
    StoredEvaluation,
    Transition,
)
from models_db.values.amounts import Amount
from models_db.values.request_state import RequestState


def principal_names(session: Session) -> dict[int, str]:
    """Return the names of all principals by id."""
    return {row.id: row.name for row in session.execute(select(Principal.id, Principal.name))}


_USED_COLUMNS = (Account.rho_held + Account.rho_spent, Account.delta_held + Account.delta_spent)
_BALANCE_COLUMNS = (
    func.min(Account.rho_cap), func.min(Account.delta_cap),
    func.max(Account.rho_spent), func.max(Account.delta_spent),
    func.max(Account.rho_held), func.max(Account.delta_held),
    func.max(_USED_COLUMNS[0]), func.max(_USED_COLUMNS[1]),
)  # fmt: skip
"""Columns of the balance of blocks: cap, spent, held, and the most used block's use, each in rho and delta."""

# --- datasets and accounts -----------------------------------------------------------------------------------


def dataset_page(session: Session, limit: int, after: str | None = None, having: str = "") -> Sequence[Dataset]:
    """Return at most `limit` datasets by name, beginning after a name; `having` is a part of the name."""
    query = select(Dataset).where(datasets.IS_CURRENT).order_by(Dataset.name).limit(limit)
    if after is not None:
        query = query.where(Dataset.name > after)
    if having:
        query = query.where(Dataset.name.contains(having, autoescape=True))
    return session.scalars(query).all()


def datasets_by_id(session: Session, ids: Collection[int]) -> dict[int, Dataset]:
    """Return datasets by id."""
    return {dataset.id: dataset for dataset in session.scalars(select(Dataset).where(Dataset.id.in_(ids)))}


def datasets_on_account(session: Session, account_id: int) -> tuple[str, ...]:
    """Return the names of the datasets on a root account, in order."""
    return datasets_by_account(session, [account_id]).get(account_id, ())


def datasets_by_account(session: Session, accounts: Collection[int]) -> dict[int, tuple[str, ...]]:
    """Return the names of the datasets on root accounts, in order, by account."""
    query = select(Dataset.account_id, Dataset.name).where(Dataset.account_id.in_(accounts))
    names: dict[int, tuple[str, ...]] = {}
    for account_id, name in session.execute(query.distinct().order_by(Dataset.name)):
        names[account_id] = (*names.get(account_id, ()), name)
    return names


def account_balances(session: Session, accounts: Collection[int]) -> dict[int, Balance]:
    """Return the budgets of root accounts, each over all its blocks; see `budget.balance`."""
    query = select(Account.parent_id, *_BALANCE_COLUMNS).where(Account.parent_id.in_(accounts))
    return {
        int(root or 0): _balance_of_figures(figures)
        for root, *figures in session.execute(query.group_by(Account.parent_id))
    }


def cohort_balances(session: Session, accounts: Collection[int]) -> dict[int, dict[int, Balance]]:
    """Return the budgets of the cohorts of root accounts, each over the blocks of one: by account, by cohort."""
    query = select(Account.parent_id, COHORT_NUMBER, *_BALANCE_COLUMNS).join(ROOT, OF_ROOT)
    balances: dict[int, dict[int, Balance]] = {}
    rows = session.execute(query.where(Account.parent_id.in_(accounts)).group_by(Account.parent_id, COHORT_NUMBER))
    for root, cohort, *figures in rows:
        balances.setdefault(int(root or 0), {})[int(cohort or 0)] = _balance_of_figures(figures)
    return {root: dict(sorted(by_cohort.items())) for root, by_cohort in balances.items()}


def _balance_of_figures(figures: Sequence[int]) -> Balance:
    cap, spent, held, fullest = (Amount(int(figures[place]), int(figures[place + 1])) for place in (0, 2, 4, 6))
    return Balance(cap, spent, held, cap - fullest)


def lifetime_claims(session: Session, accounts: Collection[int]) -> dict[int, LifetimeClaim]:
    """Return the lifetime claims in force of root accounts; see `datasets.lifetime_claim`."""
    roots = session.scalars(select(Account).where(Account.id.in_(accounts)))
    claims = {root.id: datasets.claim_of(root) for root in roots}
    applied = (
        select(Dataset.account_id, Proposal)
        .join(Proposal, Proposal.dataset_id == Dataset.id)
        .join(AppliedProposal, AppliedProposal.proposal_id == Proposal.id)
        .where(Dataset.account_id.in_(accounts), Proposal.kind == "cap")
        .order_by(AppliedProposal.id)
    )
    return claims | {account: datasets.claim_of(proposal) for account, proposal in session.execute(applied)}


def block_counts(session: Session, accounts: Collection[int]) -> dict[int, int]:
    """Return how many blocks the partitions of root accounts have; see `cohorts.blocks_per_cohort`."""
    query = select(Account.id, Account.blocks).where(Account.id.in_(accounts))
    return {number: blocks or 0 for number, blocks in session.execute(query)}


def cohort_counts(session: Session, accounts: Collection[int]) -> dict[int, int]:
    """Return the number of cohorts of each root account with more than the first one; see `cohorts.count_cohorts`."""
    query = select(Cohort.account_id, FIRST_COHORT + func.count()).where(Cohort.account_id.in_(accounts))
    return {row[0]: row[1] for row in session.execute(query.group_by(Cohort.account_id))}


def version_counts(session: Session, dataset_ids: Collection[int]) -> dict[int, int]:
    """Return the number of versions of each dataset that has one; see `datasets.list_versions`."""
    query = select(DatasetVersion.dataset_id, func.count()).where(DatasetVersion.dataset_id.in_(dataset_ids))
    return {row[0]: row[1] for row in session.execute(query.group_by(DatasetVersion.dataset_id))}


# --- requests ------------------------------------------------------------------------------------------------


def requests_with_states() -> Select[Request, str]:
    """Requests, each with the state that its last step led to."""
    last = aliased(Transition)
    newest = select(func.max(last.number)).where(last.request_id == Request.id).scalar_subquery()
    step = (Transition.request_id == Request.id) & (Transition.number == newest)
    return select(Request, Transition.to_state).join(Transition, step)


def request_page(
    session: Session,
    limit: int,
    *,
    before: int | None = None,
    after: int | None = None,
    dataset_id: int | None = None,
    states: Collection[str] = (),
) -> list[tuple[Request, str]]:
    """Return at most `limit` requests with their states: the newest first, or with `after` the oldest first.

    Args:
        before, after: only requests with a lower or a higher number: the next page.
        states: only requests that are there now; empty for all.
    """
    query = requests_with_states().order_by(Request.id if after is not None else Request.id.desc()).limit(limit)
    if before is not None:
        query = query.where(Request.id < before)
    if after is not None:
        query = query.where(Request.id > after)
    if dataset_id is not None:
        query = query.where(Request.dataset_id == dataset_id)
    if states:
        query = query.where(Transition.to_state.in_(states))
    return [(request, state) for request, state in session.execute(query)]


def state_counts(session: Session, dataset_ids: Collection[int], states: Collection[str]) -> dict[tuple[int, str], int]:
    """Return how many requests of each dataset are in each of some states."""
    counted = requests_with_states().with_only_columns(Request.dataset_id, Transition.to_state, func.count())
    query = counted.where(Request.dataset_id.in_(dataset_ids), Transition.to_state.in_(states))
    rows = session.execute(query.group_by(Request.dataset_id, Transition.to_state))
    return {(dataset, state): count for dataset, state, count in rows}


def newest_requests(session: Session, dataset_ids: Collection[int]) -> dict[int, Request]:
    """Return the newest request of each dataset that has one."""
    newest = select(func.max(Request.id)).where(Request.dataset_id.in_(dataset_ids)).group_by(Request.dataset_id)
    return {request.dataset_id: request for request in session.scalars(select(Request).where(Request.id.in_(newest)))}


def spent_by_request(session: Session, request_ids: Collection[int]) -> dict[int, Amount]:
    """Return the amount that each request has spent; see `budget.spent_by`."""
    rows = session.execute(
        select(Invocation.request_id, Hold.account_id, func.sum(Hold.rho), func.sum(Hold.delta))
        .join(Hold, Hold.invocation_id == Invocation.id)
        .join(Entry, (Entry.hold_id == Hold.id) & (Entry.kind == "ARM"))
        .where(Invocation.request_id.in_(request_ids))
        .group_by(Invocation.request_id, Hold.account_id)
    )
    most: dict[int, Amount] = {}
    for request, _, rho, delta in rows:
        so_far = most.get(request, Amount())
        most[request] = Amount(max(so_far.rho, int(rho)), max(so_far.delta, int(delta)))
    return most


# --- proposals -----------------------------------------------------------------------------------------------


def open_proposals(session: Session, limit: int, after: int = 0) -> Sequence[Proposal]:
    """Proposals that wait for decisions, oldest first, at most `limit` with a number above `after`."""
    rejected = select(Approval.proposal_id).where(Approval.proposal_id.is_not(None), Approval.decision == "reject")
    query = select(Proposal).where(
        Proposal.id > after,
        Proposal.expires_at > utc_now(),
        Proposal.id.not_in(select(AppliedProposal.proposal_id)),
        Proposal.id.not_in(rejected),
    )
    return session.scalars(query.order_by(Proposal.id).limit(limit)).all()


def use_counts(session: Session, proposal_ids: Collection[int]) -> dict[int, int]:
    """Return how many runs of each standing authorisation are used; see `proposals.count_uses`."""
    begun = select(Request.standing_id, func.count()).join(Transition, Transition.request_id == Request.id)
    query = begun.where(Request.standing_id.in_(proposal_ids), Transition.to_state == RequestState.RUNNING)
    return {row[0]: row[1] for row in session.execute(query.group_by(Request.standing_id)) if row[0] is not None}


def published_at(session: Session, artifact_ids: Collection[int]) -> dict[int, str]:
    """Return when artifacts were published, for those that were."""
    query = select(Publication.artifact_id, Publication.at).where(Publication.artifact_id.in_(artifact_ids))
    return {row.artifact_id: row.at for row in session.execute(query)}


def requests_of_publications(session: Session, publication_ids: Collection[int]) -> dict[int, int]:
    """Return the request behind each publication; see `proposals.retracted_request`."""
    query = select(Publication.id, Artifact.request_id).join(Artifact, Artifact.id == Publication.artifact_id)
    return {row[0]: row[1] for row in session.execute(query.where(Publication.id.in_(publication_ids)))}


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
