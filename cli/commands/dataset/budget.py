"""`almoner budget`: the lifetime budget of a dataset, spent and remaining, and its forecast."""

from decimal import Decimal, InvalidOperation
from typing import Annotated, cast

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.options import DatasetName
from cli.framework.result_types import SecrecyEndData, ViewingData, secrecy_end_data
from cli.framework.review_screen import render_sections
from cli.framework.tables import table
from flows.datasets.budget import (
    BudgetView,
    CohortLine,
    count_admitted,
    epsilon_after,
    forecast_table,
    largest_epsilon,
    load_budget,
    summarise_budget,
)
from flows.governance.exposure import SIZES_FIXED, AccountFigure, LimitInOrders
from flows.workspace.workspace import open_workspace
from models_db.errors import UsageError
from models_db.values.exposures import CONDITIONAL_CLAIM, ViewingRecord
from models_db.values.requests import format_decimal
from models_db.values.untrusted_text import parse_digits
from tasks.accounting.rounding import InexactNumber
from tasks.accounting.zcdp import release_amount

app = typer.Typer(no_args_is_help=True, help="Inspect budgets: show, forecast, simulate.")


class CohortData(TypedDict):
    """A cohort of units with a budget of its own; `requests` and `newest_request` are those that read it."""

    cohort: int
    opened: str
    blocks: str
    rho_spent: str
    rho_left: str
    epsilon_spent: str
    requests: int
    newest_request: int | None


class CapChange(TypedDict):
    """A change of the lifetime claim."""

    old_epsilon: str
    old_delta: str
    new_epsilon: str
    new_delta: str


class SpentBy(TypedDict):
    """A request that spent budget."""

    request: int
    dataset: str
    state: str
    rho_spent: str


class EpsilonWhileSecret(TypedDict):
    """What is spent while the assignments of that many releases are secret; `condition` says when it is a guarantee."""

    epsilon: str
    releases: int
    condition: str


class LimitWhileSecret(TypedDict):
    """The policy's limit in orders while assignments are secret, and the epsilon charged under it."""

    epsilon: str
    delta: str
    charged: str


class EndedSecrecy(SecrecyEndData):
    """The end of a release's smaller epsilon."""

    request: int


class BudgetFigures(TypedDict):
    """The figures of a budget."""

    dataset: str
    sharing: list[str]
    blocks: int
    epsilon_cap: str
    delta_cap: str
    epsilon_spent: str
    rho_cap: str
    rho_spent: str
    rho_held: str
    rho_left: str
    delta_fail_cap: str
    delta_fail_spent: str
    share_spent: str


class BudgetData(BudgetFigures):
    """A dataset's lifetime budget."""

    cohorts: list[CohortData]
    cap_changes: list[CapChange]
    spent_by: list[SpentBy]
    unprotected_figures: ViewingData | None
    epsilon_spent_while_secret: EpsilonWhileSecret | None
    limit_while_secret: LimitWhileSecret | None
    secrecy_ends: list[EndedSecrecy]


class ForecastData(TypedDict):
    """How many equal releases the budget affords."""

    epsilon: str
    delta: str
    rho: str
    releases_left: int
    epsilon_after_one: str


class SimulatedRelease(TypedDict):
    """A budget after a number of equal releases."""

    release: int
    rho_spent: str
    epsilon_spent: str


class SimulationData(TypedDict):
    """Equal releases, one after the other."""

    dataset: str
    epsilon: str
    delta: str
    affordable: int
    steps: list[SimulatedRelease]


Cohorts = Annotated[
    str | None,
    typer.Option(
        metavar="newest|N,N", help="Show the budget of releases that read only these cohorts. Default: all cohorts."
    ),
]


@command(app, "show")
def show_budget(
    context: CommandContext,
    name: DatasetName,
    details: Annotated[bool, typer.Option("--details", help="Show all figures, in rho too.")] = False,
) -> CommandResult[BudgetData]:
    """Show a dataset's lifetime budget: its limits, its changes, and the requests that spent it.

    Example: almoner budget show clinic
    """
    summary = summarise_budget(open_workspace(context.home), name)
    budget = summary.view
    data = BudgetData(
        **cast(BudgetFigures, summary.facts),
        cohorts=[_cohort_row(budget, line) for line in budget.cohorts],
        cap_changes=_claim_changes(budget),
        spent_by=cast(list[SpentBy], list(summary.spent_by)),
        unprotected_figures=None if budget.viewing is None else _viewing_data(budget.viewing),
        epsilon_spent_while_secret=None if summary.while_secret is None else _secret_figure(summary.while_secret),
        limit_while_secret=None if summary.limit is None else _limit_data(summary.limit),
        secrecy_ends=[EndedSecrecy(request=number, **secrecy_end_data(end)) for number, end in budget.secrecy_ends],
    )
    return CommandResult(data, render_sections(summary.sections(), details=details))


def _viewing_data(viewing: ViewingRecord) -> ViewingData:
    return ViewingData(since=viewing.since, people=list(viewing.people), meaning=CONDITIONAL_CLAIM)


def _secret_figure(figure: AccountFigure) -> EpsilonWhileSecret:
    return EpsilonWhileSecret(epsilon=figure.epsilon, releases=figure.releases, condition=SIZES_FIXED)


def _limit_data(limit: LimitInOrders) -> LimitWhileSecret:
    return LimitWhileSecret(epsilon=limit.epsilon, delta=limit.delta, charged=limit.charged)


def _claim_changes(budget: BudgetView) -> list[CapChange]:
    return [
        CapChange(old_epsilon=old.epsilon, old_delta=old.delta, new_epsilon=new.epsilon, new_delta=new.delta)
        for old, new in budget.changes
    ]


def _cohort_row(budget: BudgetView, line: CohortLine) -> CohortData:
    return CohortData(
        cohort=line.number,
        opened=line.opened_on or "from the beginning",
        blocks=line.blocks,
        rho_spent=line.balance.spent.rho_text,
        rho_left=line.balance.remaining.rho_text,
        epsilon_spent=budget.of_cohort(line).epsilon_spent,
        requests=line.readers.count,
        newest_request=line.readers.newest,
    )


@command(app, "forecast")
def show_forecast(
    context: CommandContext,
    name: DatasetName,
    delta: Annotated[str, typer.Option(help="Delta of each release.")] = "1e-7",
    cohorts: Cohorts = None,
) -> CommandResult[list[ForecastData]]:
    """Forecast how many releases the remaining budget affords, by epsilon.

    Example: almoner budget forecast clinic --delta 1e-7
    """
    budget = load_budget(open_workspace(context.home), name, _parse_cohorts(cohorts))
    data = [
        ForecastData(
            epsilon=rung.epsilon,
            delta=delta,
            rho=rung.price.rho_text,
            releases_left=rung.ever,
            epsilon_after_one=rung.after or "not affordable",
        )
        for rung in forecast_table(budget, delta)
    ]
    heads = ("epsilon", "delta", "rho each", "releases left", "lifetime epsilon after one")
    balance = budget.balance
    sentence = f"rho {balance.remaining.rho_text} is left; the lifetime budget is rho {balance.cap.rho_text}"
    shown = table(heads, [list(row.values()) for row in data])
    return CommandResult(data, [f"{sentence} (epsilon {budget.claim.epsilon}).", shown])


@command(app, "simulate")
def simulate(
    context: CommandContext,
    name: DatasetName,
    epsilon: Annotated[str, typer.Option(help="Epsilon of each release.")],
    delta: Annotated[str, typer.Option(help="Delta of each release.")] = "1e-7",
    releases_: Annotated[
        int, typer.Option("--releases", min=1, max=10_000, help="Number of releases to simulate.")
    ] = 10,
    cohorts: Cohorts = None,
) -> CommandResult[SimulationData]:
    """Simulate equal releases: the lifetime epsilon after each, until the budget is used up.

    Example: almoner budget simulate clinic --epsilon 1 --releases 12
    """
    budget = load_budget(open_workspace(context.home), name, _parse_cohorts(cohorts))
    each_epsilon, each_delta = _parse_decimal(epsilon), _parse_decimal(delta)
    price = release_amount(each_epsilon, each_delta)
    steps: list[SimulatedRelease] = []
    fitting = count_admitted(budget, price)
    for number in range(1, min(releases_, fitting) + 1):
        total = price * number
        spent = (budget.balance.spent + total).rho_text
        after = epsilon_after(budget, total)
        steps.append(SimulatedRelease(release=number, rho_spent=spent, epsilon_spent=after))
    data = SimulationData(
        dataset=name,
        epsilon=format_decimal(each_epsilon),
        delta=format_decimal(each_delta),
        affordable=len(steps),
        steps=steps,
    )
    sentences = [f"{len(steps)} of {releases_} releases fit into the remaining budget."]
    if len(steps) < releases_ and (largest := largest_epsilon(budget.rho_admitted, releases_, each_delta)):
        sentences.append(f"All {releases_} fit at epsilon {largest} each, at the same delta.")
    rows = [list(step.values()) for step in steps]
    return CommandResult(data, [table(("release", "rho spent", "lifetime epsilon"), rows), *sentences])


def _parse_decimal(written: str) -> Decimal:
    try:
        return Decimal(written)
    except InvalidOperation:
        raise InexactNumber(written) from None


def _parse_cohorts(cohorts: str | None) -> str | tuple[int, ...] | None:
    """Parse cohorts as typed: 'newest', or numbers.

    Raises:
        InvalidCohortList: the text is neither.
    """
    if cohorts in (None, "newest"):
        return cohorts
    numbers = {parse_digits(part.strip()) or 0 for part in str(cohorts).split(",")}
    if 0 in numbers:
        raise UsageError(
            f"{cohorts!r} names no cohorts.",
            "Type `newest`, or numbers such as `1,2`.",
            {"cohorts": cohorts},
            code="InvalidCohortList",
        )
    return tuple(sorted(numbers))
