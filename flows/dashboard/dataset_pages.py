"""Pages of datasets: all of them with their budgets, the runs that still fit and warnings; and one of them.

The page of one dataset has its claims, its burn-down, a forecast and its requests.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from flows.approvals.review_sections import NEARLY_SPENT
from flows.dashboard.burn_down import BalanceFigures, BurnDown, burn_downs, figures_of, most_spent
from flows.dashboard.queue_page import queue_page
from flows.dashboard.request_list import RequestList, request_cost, request_list, request_reading
from flows.dashboard.viewer import View
from flows.datasets.budget import BudgetView, CohortLine, budget_of_dataset, count_runs, forecast_table
from flows.datasets.inventory import load_budgets
from flows.governance.exposure import orders_budgets
from flows.schedules.schedules import ScheduleRow, schedule_row
from models_db.services import cohorts, datasets, schedules
from models_db.services.audit.stored_text import request_body
from models_db.services.budget import Balance
from models_db.services.cohorts import FIRST_COHORT
from models_db.services.datasets import LifetimeClaim
from models_db.services.queries import lists
from models_db.tables import Dataset, Request
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.request_state import STATES_AT_A_GATE, RequestState
from tasks.accounting.lifetime_claims import BudgetFacts, shares_of_cap
from tasks.common.published_values import format_small
from tasks.planning.block_selection import describe_cohorts
from tasks.release.sections import sections_to_json

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


FORECAST_DELTA = "1e-7"
"""Delta of the releases in the forecast, the default of `almoner budget forecast`."""

MOST_SCHEDULES = 20


@dataclass(frozen=True)
class ClaimLine:
    """A past lifetime claim, or the one in force."""

    epsilon: str
    delta: str


@dataclass(frozen=True)
class CohortFigures:
    """Spent and remaining budget of one cohort, and the requests that have read it.

    Attributes:
        opened: the day of its opening; None for the first cohort, which exists from the beginning.
        blocks: the numbers of its blocks, such as '2 to 3'.
        requests: the number of requests that have armed an amount on it, including failed ones; and the newest one.
    """

    number: int
    opened: str | None
    blocks: str
    figures: BalanceFigures
    requests: int
    newest_request: int | None
    burn: BurnDown | None


@dataclass(frozen=True)
class ForecastLine:
    """Number of affordable releases of one epsilon; `after` is the lifetime epsilon after one."""

    epsilon: str
    rho: str
    ever: int
    after: str | None


@dataclass(frozen=True)
class Forecast:
    """Numbers of affordable releases that read these cohorts."""

    cohorts: tuple[int, ...]
    ladder: tuple[ForecastLine, ...]


@dataclass(frozen=True)
class BudgetPanel:
    """All figures of the remaining budget; withheld as a whole if the policy demands it.

    Attributes:
        figures: the balance for a release that reads all cohorts.
        burn: the burn-down of the fullest cohort.
        cohorts: the figures of each cohort, if there are several.
        forecasts: for releases that read all cohorts and, if there are several, for those that read only the newest.
    """

    figures: BalanceFigures
    burn: BurnDown | None
    cohorts: tuple[CohortFigures, ...]
    delta: str
    forecasts: tuple[Forecast, ...]


@dataclass(frozen=True)
class DatasetPage:
    """The page of one dataset.

    Attributes:
        warnings: what `budget show` warns of: unprotected figures that were seen, and claims that have ended.
        sharing: the datasets that draw on its budget, itself included.
        blocks: the number of blocks of each cohort.
        versions: the number of ingested versions.
        claims: all its lifetime claims so far, the one in force last.
        budget: the figures of its budget; None if the policy hides them from the viewer.
        schedules: the newest ones, at most SCHEDULES.
    """

    name: str
    unit: str
    text_field: str
    relation: str
    governed: bool
    population: int | None
    registered_at: str
    warnings: list[dict[str, Json]]
    sharing: tuple[str, ...]
    blocks: int
    cohorts: int
    versions: int
    claims: tuple[ClaimLine, ...]
    budget: BudgetPanel | None
    schedules: tuple[ScheduleRow, ...]
    requests: RequestList


def dataset_page(view: View, name: str, before: int | None = None) -> DatasetPage:
    """Return the page of a dataset, with a part of its requests.

    Raises:
        DatasetUnknown: there is no such dataset.
    """
    session = view.session
    dataset = datasets.find_dataset(session, name)
    budget = budget_of_dataset(session, dataset)
    return DatasetPage(
        name=dataset.name,
        unit=dataset.unit_field or "record",
        text_field=dataset.text_field,
        relation=dataset.relation,
        governed=dataset.governed,
        population=dataset.population,
        registered_at=dataset.created_at,
        warnings=sections_to_json(budget.warnings),
        sharing=budget.sharing,
        blocks=budget.blocks,
        cohorts=cohorts.count_cohorts(session, dataset.account_id),
        versions=len(datasets.list_versions(session, dataset)),
        claims=tuple(map(_claim_line, budget.claims)),
        budget=_budget_panel(session, dataset, budget) if view.figures else None,
        schedules=tuple(_schedule_rows(session, name)),
        requests=request_list(view, before, dataset.id),
    )


def _schedule_rows(session: Session, name: str) -> Iterator[ScheduleRow]:
    for schedule in schedules.list_all(session, name)[: -MOST_SCHEDULES - 1 : -1]:
        yield schedule_row(session, schedule)


def _budget_panel(session: Session, dataset: Dataset, budget_view: BudgetView) -> BudgetPanel:
    opened = {line.number: line.opened_at for line in budget_view.cohorts if line.opened_at is not None}
    burns = burn_downs(session, dataset.account_id, opened)
    return BudgetPanel(
        figures=figures_of(budget_view),
        burn=most_spent(burns),
        cohorts=tuple(_cohort_figures(budget_view, line, burns) for line in budget_view.cohorts),
        delta=FORECAST_DELTA,
        forecasts=tuple(_forecasts_of(budget_view)),
    )


def _cohort_figures(budget: BudgetView, line: CohortLine, burns: Sequence[BurnDown]) -> CohortFigures:
    return CohortFigures(
        number=line.number,
        opened=line.opened_on,
        blocks=line.blocks,
        figures=figures_of(budget.of_cohort(line)),
        requests=line.readers.count,
        newest_request=line.readers.newest,
        burn=next((burn for burn in burns if burn.cohort == line.number), None),
    )


def _forecasts_of(budget: BudgetView) -> Iterator[Forecast]:
    numbers = tuple(line.number for line in budget.cohorts) or (FIRST_COHORT,)
    yield Forecast(numbers, _forecast_lines(budget))
    if budget.cohorts:
        yield Forecast(numbers[-1:], _forecast_lines(budget.of_cohort(budget.cohorts[-1])))


def _forecast_lines(budget: BudgetView) -> tuple[ForecastLine, ...]:
    return tuple(
        ForecastLine(one.epsilon, one.price.rho_text, one.ever, one.after)
        for one in forecast_table(budget, FORECAST_DELTA)
    )


def _claim_line(claim: LifetimeClaim) -> ClaimLine:
    return ClaimLine(claim.epsilon, format_small(claim.delta))
