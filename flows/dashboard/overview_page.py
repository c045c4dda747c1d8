"""First page: every dataset with its budget, the runs that still fit, and warnings."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.approvals.review_sections import NEARLY_SPENT
from flows.dashboard.burn_down import BalanceFigures, figures_of
from flows.dashboard.queue_page import queue_page, request_cost, request_reading
from flows.dashboard.viewer import View
from flows.datasets.budget import count_runs
from flows.datasets.inventory import load_budgets
from flows.governance.exposure import orders_budgets
from models_db.services.audit.log import request_body
from models_db.services.budget import Balance
from models_db.services.cohorts import FIRST_COHORT
from models_db.services.datasets import LifetimeClaim
from models_db.services.queries import lists
from models_db.tables import Dataset, Request
from models_db.values.amounts import Amount
from models_db.values.request_state import STATES_AT_A_GATE, RequestState
from tasks.accounting.lifetime_claims import BudgetFacts, shares_of_cap
from tasks.common.published_values import format_small
from tasks.planning.block_selection import describe_cohorts

if TYPE_CHECKING:
    from tasks.accounting.renyi_account import OrdersBudget

DATASETS_PER_PAGE = 50


@dataclass(frozen=True)
class RepeatRequest:
    """Number of further releases like the newest request that its budget affords, at its price.

    Attributes:
        runs: the number of releases; None if they cost nothing.
        cohorts: the cohorts that the request reads, if the dataset had several at its time.
    """

    request: int
    runs: int | None
    cohorts: tuple[int, ...] | None


@dataclass(frozen=True)
class NewestCohort:
    """The newest cohort of a dataset."""

    cohort: int
    figures: BalanceFigures


@dataclass(frozen=True)
class DatasetLine:
    """A dataset in the list.

    Attributes:
        figures: the balance over all cohorts; None if the policy hides it from the viewer.
        newest: the balance of the newest cohort, if there are several; None if `figures` is None.
        like: the affordable repetitions of the newest request; None without figures or without a priced request.
        waiting, running: the numbers of requests that wait for stewards, and of running ones.
        alerts: sentences that call for attention.
    """

    name: str
    unit: str
    governed: bool
    epsilon_cap: str
    delta_cap: str
    figures: BalanceFigures | None
    newest: NewestCohort | None
    like: RepeatRequest | None
    waiting: int
    running: int
    alerts: tuple[str, ...]


@dataclass(frozen=True)
class Overview:
    """One page of datasets by name.

    Attributes:
        next_after: the name after which the next page begins; None on the last one.
        yours: the number of requests and proposals on the first page of the queue that the viewer may decide on; 0 on
            later pages.
        searchable: whether there are several datasets to search.
    """

    datasets: tuple[DatasetLine, ...]
    next_after: str | None
    having: str
    yours: int
    searchable: bool


@dataclass(frozen=True)
class _LedgerFacts:
    """Facts of the ledger about the datasets of a page, by account or dataset."""

    budgets: Mapping[int, BudgetFacts]
    cohorts: Mapping[int, Mapping[int, Balance]]
    """Cohorts of accounts that have several."""
    blocks: Mapping[int, int]
    newest: Mapping[int, Request]
    states: Mapping[tuple[int, str], int]
    orders: "Mapping[int, OrdersBudget]"
    """Accounts in Rényi orders, where the policy in force limits them."""


def overview_page(view: View, after: str | None = None, having: str = "") -> Overview:
    """Return one page of datasets in order of name: names after `after` that contain `having`."""
    rows = lists.dataset_page(view.session, DATASETS_PER_PAGE + 1, after, having)
    shown = rows[:DATASETS_PER_PAGE]
    facts = _ledger_facts(view, shown)
    lines = tuple(_dataset_line(dataset, facts, figures=view.figures) for dataset in shown)
    first = after is None and not having
    return Overview(
        lines,
        next_after=shown[-1].name if len(rows) > DATASETS_PER_PAGE else None,
        having=having,
        yours=_count_yours(view) if first else 0,
        searchable=not first or len(rows) > 1,
    )


def _count_yours(view: View) -> int:
    queue = queue_page(view)
    return sum(item.approvals.yours for item in (*queue.requests, *queue.proposals))


def _ledger_facts(view: View, datasets: Sequence[Dataset]) -> _LedgerFacts:
    accounts, ids = {dataset.account_id for dataset in datasets}, [dataset.id for dataset in datasets]
    session = view.session
    return _LedgerFacts(
        load_budgets(session, accounts),
        lists.cohort_balances(session, lists.cohort_counts(session, accounts)),
        lists.block_counts(session, accounts),
        lists.newest_requests(session, ids),
        lists.state_counts(session, ids, (*STATES_AT_A_GATE, RequestState.RUNNING)),
        orders_budgets(session, accounts, view.policy),
    )


def _dataset_line(dataset: Dataset, facts: _LedgerFacts, *, figures: bool) -> DatasetLine:
    budget = facts.budgets[dataset.account_id]
    waiting = sum(facts.states.get((dataset.id, state), 0) for state in STATES_AT_A_GATE)
    like = _repeat_request(dataset, facts) if figures else None
    cohorts = facts.cohorts.get(dataset.account_id, {})
    return DatasetLine(
        name=dataset.name,
        unit=dataset.unit_field or "record",
        governed=dataset.governed,
        epsilon_cap=budget.claim.epsilon,
        delta_cap=format_small(budget.claim.delta),
        figures=figures_of(budget) if figures else None,
        newest=_newest_cohort(cohorts, budget.claim) if figures else None,
        like=like,
        waiting=waiting,
        running=facts.states.get((dataset.id, RequestState.RUNNING), 0),
        alerts=tuple(_dataset_alerts(cohorts or {FIRST_COHORT: budget.balance}, like)) if figures else (),
    )


def _newest_cohort(cohorts: Mapping[int, Balance], claim: LifetimeClaim) -> NewestCohort | None:
    return NewestCohort(max(cohorts), figures_of(BudgetFacts(claim, cohorts[max(cohorts)]))) if cohorts else None


def _repeat_request(dataset: Dataset, facts: _LedgerFacts) -> RepeatRequest | None:
    newest, root = facts.newest.get(dataset.id), dataset.account_id
    price = None if newest is None else request_cost(newest)
    read = None if newest is None else request_reading(newest, facts.blocks[root])
    if newest is None or price is None or read is None:
        return None
    cohorts, whole = facts.cohorts.get(root, {}), facts.budgets[root].balance
    left = [cohorts.get(cohort, whole).remaining for cohort in read.cohorts]
    fullest = Amount(min(each.rho for each in left), min(each.delta for each in left))
    runs = count_runs(price, fullest, request_body(newest)["plan"], read.blocks, facts.orders.get(root))
    return RepeatRequest(newest.id, runs, read.cohorts if read.several else None)


def _dataset_alerts(cohorts: Mapping[int, Balance], like: RepeatRequest | None) -> Iterator[str]:
    shares = {number: shares_of_cap(balance, balance.spent) for number, balance in cohorts.items()}
    gone = [number for number, (left, _) in shares.items() if not left]
    nearly = [number for number, (left, spent) in shares.items() if left and spent > NEARLY_SPENT]
    if gone:
        yield f"Nothing is left of {_cohort_phrase(gone, cohorts)}."
    if nearly:
        yield f"More than {NEARLY_SPENT:.0%} of {_cohort_phrase(nearly, cohorts)} is spent; it never comes back."
    if like is not None and like.runs == 0 and len(gone) < len(cohorts):
        yield f"Another release like request {like.request} does not fit."


def _cohort_phrase(some: Sequence[int], cohorts: Collection[int]) -> str:
    return "the lifetime budget" + (f" of {describe_cohorts(some)}" if len(cohorts) > 1 else "")
