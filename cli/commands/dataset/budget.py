"""`almoner budget`: the lifetime budget of a dataset, spent and remaining, and its forecast."""

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer
from rich.console import RenderableType

from cli.commands.dataset import envelope
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.options import DatasetName
from cli.framework.tables import fact_list, table
from flows.datasets.affordable_runs import affordable_runs
from flows.datasets.budget_summary import BudgetSummary, summarise_budget
from flows.datasets.budget_view import BudgetView, CohortLine, PacingWindow, load_budget
from flows.datasets.forecast import (
    count_admitted,
    count_releases,
    epsilon_after,
    exceeds_window,
    forecast_table,
    largest_epsilon,
)
from flows.workspace.workspace import open_workspace
from models_db.errors import UsageError
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.digits import parse_digits
from models_db.values.requests import format_decimal
from tasks.accounting.rounding import InexactNumber
from tasks.accounting.zcdp import release_amount

app = typer.Typer(no_args_is_help=True, help="Inspect budgets: show, forecast, simulate; manage envelopes.")
app.add_typer(envelope.app, name="scope")

Cohorts = Annotated[
    str | None,
    typer.Option(
        metavar="newest|N,N", help="Show the budget of releases that read only these cohorts. Default: all cohorts."
    ),
]
Scope = Annotated[str | None, typer.Option(help="Envelope to draw on. Default: the budget outside all envelopes.")]


@command(app, "show")
def show_budget(
    context: CommandContext,
    name: DatasetName,
    details: Annotated[bool, typer.Option("--details", help="Show all figures, in rho too.")] = False,
) -> CommandResult:
    """Show a dataset's lifetime budget: its limits, its changes, and the requests that spent it.

    Example: almoner budget show clinic
    """
    summary = summarise_budget(open_workspace(context.home), name)
    budget = summary.view
    more: dict[str, Json] = {
        "cohorts": [_cohort_row(budget, line) for line in budget.cohorts],
        "envelopes": list(map(envelope.envelope_to_json, budget.envelopes)),
        "window": None if budget.window is None else _window_to_json(budget.window),
        "cap_changes": _claim_changes(budget),
        "spent_by": list(summary.spent_by),
        "unprotected_figures": None if budget.viewing is None else budget.viewing.to_json(),
        "epsilon_spent_while_secret": None if summary.while_secret is None else summary.while_secret.to_json(),
        "limit_while_secret": None if summary.limit is None else summary.limit.to_json(),
        "secrecy_ends": [{"request": number, **end.to_json()} for number, end in budget.secrecy_ends],
    }
    warned = [] if budget.viewing is None else [budget.viewing.sentence]
    warned += [f"Release {number}: {end.sentence}" for number, end in budget.secrecy_ends]
    return CommandResult(
        {**summary.facts, **more},
        [
            summary.sentence,
            *([fact_list(summary.facts)] if details else []),
            *summary.second_claim,
            *warned,
            *_narrowing_table(budget),
            _spent_table(summary),
            *([] if details else ["`--details` lists all figures."]),
        ],
    )


def _spent_table(summary: BudgetSummary) -> RenderableType:
    rows = [list(row.values()) for row in summary.spent_by]
    return table(("request", "dataset", "state", "rho spent"), rows, "Spent by")


def _claim_changes(budget: BudgetView) -> list[Json]:
    return [
        {"old_epsilon": old.epsilon, "old_delta": old.delta, "new_epsilon": new.epsilon, "new_delta": new.delta}
        for old, new in zip(budget.claims, budget.claims[1:], strict=False)
    ]


def _cohort_row(budget: BudgetView, line: CohortLine) -> dict[str, Json]:
    return {
        "cohort": line.number,
        "opened": line.opened_on or "from the beginning",
        "blocks": line.blocks,
        "rho_spent": line.balance.spent.rho_text,
        "rho_left": line.balance.remaining.rho_text,
        "epsilon_spent": budget.of_cohort(line).epsilon_spent,
        "requests": line.readers.count,
        "newest_request": line.readers.newest,
    }


def _readers_text(line: CohortLine) -> str:
    newest, count = line.readers.newest, line.readers.count
    return "nobody" if newest is None else f"request {newest}" + (f" and {count - 1} before it" if count > 1 else "")


def _narrowing_table(budget: BudgetView) -> list[RenderableType]:
    shown: list[RenderableType] = []
    if budget.cohorts:
        heads = ("cohort", "opened", "blocks", "rho spent", "rho left", "epsilon spent", "read by")
        rows = []
        for line in budget.cohorts:
            *figures, _requests, _newest = _cohort_row(budget, line).values()
            rows.append([*figures, _readers_text(line)])
        shown.append(table(heads, rows, "Cohorts: each has the whole budget, and a unit stays in its own"))
    if budget.envelopes:
        shown.append(envelope.envelope_table(budget.envelopes))
    if budget.window:
        shown.append(fact_list(_window_to_json(budget.window), title="Limit of one pacing window"))
    if changes := _claim_changes(budget):
        rows = [list(change.values()) for change in changes if isinstance(change, dict)]
        columns = ("epsilon before", "delta before", "epsilon after", "delta after")
        shown.append(table(columns, rows, "Changes of the lifetime claim, on every later card"))
    return shown


def _window_to_json(window: PacingWindow) -> dict[str, Json]:
    return {
        "period": window.period,
        "opens": window.opens_on or "with the next release",
        "closes": window.closes_on,
        "rho_cap": window.cap.rho_text,
        "rho_used": window.used.rho_text,
        "rho_left": window.left.rho_text,
    }


@command(app, "forecast")
def show_forecast(
    context: CommandContext,
    name: DatasetName,
    delta: Annotated[str, typer.Option(help="Delta of each release.")] = "1e-7",
    scope: Scope = None,
    cohorts: Cohorts = None,
) -> CommandResult:
    """Forecast how many releases the remaining budget affords, by epsilon; with pacing, also how many now.

    Example: almoner budget forecast clinic --delta 1e-7
    """
    budget = load_budget(open_workspace(context.home), name, _parse_cohorts(cohorts))
    rows = [
        (rung.epsilon, delta, rung.price.rho_text, rung.ever, rung.now, rung.after or "not affordable")
        for rung in forecast_table(budget, delta, scope)
    ]
    heads = {
        "epsilon": "epsilon",
        "delta": "delta",
        "rho": "rho each",
        "releases_left": "releases left",
        "in_this_window": "in this window",
        "epsilon_after_one": "lifetime epsilon after one",
    }
    data = [dict(zip(heads, row, strict=True)) for row in rows]
    if budget.window is None:
        del heads["in_this_window"]
    where = f"in the envelope {scope}" if scope else "for requests without an envelope"
    sentence = (
        f"rho {budget.left(scope).rho_text} is left {where}; the lifetime budget is rho {budget.balance.cap.rho_text}"
    )
    shown = table(tuple(heads.values()), [[row[field] for field in heads] for row in data])
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
    scope: Scope = None,
    rotate_over: Annotated[
        int | None, typer.Option(metavar="K", help="Also count releases that rotate over K groups of blocks.")
    ] = None,
    cohorts: Cohorts = None,
) -> CommandResult:
    """Simulate equal releases: the lifetime epsilon after each, until the budget is used up.

    Example: almoner budget simulate clinic --epsilon 1 --releases 12
    """
    workspace = open_workspace(context.home)
    read = _parse_cohorts(cohorts)
    budget = load_budget(workspace, name, read)
    claimed = {"epsilon": _parse_decimal(epsilon), "delta": _parse_decimal(delta)}
    price, remaining, rows = release_amount(claimed["epsilon"], claimed["delta"]), budget.left(scope), []
    fitting = count_admitted(budget, remaining, price)
    turns = None if rotate_over is None else affordable_runs(workspace, name, price, rotate_over, scope, read)
    for number in range(1, 1 if exceeds_window(budget, price) else min(releases_, fitting) + 1):
        total = price * number
        window = None if budget.window is None else window_of(budget.window, price, number)
        rows.append((number, (budget.balance.spent + total).rho_text, epsilon_after(budget, total), window))
    data = {
        "dataset": name,
        "scope": scope,
        **{name: format_decimal(value) for name, value in claimed.items()},
        "affordable": len(rows),
        **({"rotation": turns.to_json()} if turns else {}),
        "steps": [dict(zip(("release", "rho_spent", "epsilon_spent", "window"), row, strict=True)) for row in rows],
    }
    sentences = [f"{len(rows)} of {releases_} releases fit into the remaining budget."]
    if len(rows) < releases_ and (
        largest := largest_epsilon(budget.rho_admitted(remaining), releases_, claimed["delta"])
    ):
        sentences.append(f"All {releases_} fit at epsilon {largest} each, at the same delta.")
    sentences.extend([str(turns)] if turns else [])
    if budget.window:
        sentences.append(f"Window 1 is the {budget.window.period} that is open or opens next.")
    return CommandResult(data, [table(("release", "rho spent", "lifetime epsilon", "window"), rows), *sentences])


def window_of(window: PacingWindow, price: Amount, number: int) -> int:
    """Return the pacing window of the release with that number; later windows are as large as this one."""
    first, each = count_releases(window.left, price), count_releases(window.cap, price)
    return 1 if number <= first else 2 + (number - first - 1) // each


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
        raise InvalidCohortList(str(cohorts))
    return tuple(sorted(numbers))


class InvalidCohortList(UsageError):
    """The list of cohorts is neither `newest` nor numbers."""

    def __init__(self, typed: str) -> None:
        super().__init__(f"{typed!r} names no cohorts.", "Type `newest`, or numbers such as `1,2`.", {"cohorts": typed})
