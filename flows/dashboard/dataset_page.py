"""Dataset page: claims, burn-down, forecast and requests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from flows.dashboard.burn_down import BalanceFigures, BurnDown, burn_downs, figures_of, most_spent
from flows.dashboard.queue_page import RequestList, request_list
from flows.dashboard.viewer import View
from flows.datasets.budget import BudgetView, CohortLine, budget_of_dataset, forecast_table
from flows.schedules.schedules import ScheduleRow, schedule_row
from models_db.services import cohorts, datasets, schedules
from models_db.services.cohorts import FIRST_COHORT
from models_db.services.datasets import LifetimeClaim
from models_db.tables import Dataset
from models_db.values.canonical_json import Json
from tasks.common.published_values import format_small
from tasks.release.sections import sections_to_json

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
