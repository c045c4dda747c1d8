"""Summary of a dataset's lifetime budget: a sentence, its figures, and the requests that spent it."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_FLOOR
from fractions import Fraction

from sqlalchemy.orm import Session

from flows.datasets.budget_view import BudgetView, CohortLine, load_budget
from flows.datasets.forecast import forecast_table
from flows.governance.exposure import AccountFigure, LimitInOrders, account_figure, limit_in_orders
from flows.workspace.workspace import Workspace
from models_db.services import budget, datasets, requests
from models_db.tables import Dataset
from models_db.values.amounts import DELTA_UNIT
from models_db.values.canonical_json import Json
from models_db.values.untrusted_text import value_text
from tasks.accounting.lifetime_claims import shares_of_cap
from tasks.common.published_values import format_share
from tasks.release.sections import FieldList, Section, Summary, Table

EXAMPLE_DELTA, EXAMPLE_EPSILONS = "1e-7", ("1", "4")
"""Releases that a budget's first sentence counts."""


@dataclass(frozen=True)
class BudgetSummary:
    """The budget of a dataset as `almoner budget show` says it.

    Attributes:
        view: the budget that the rest was derived from.
        sentence: its state in one sentence, with the releases that it still affords.
        facts: its figures; rho as exact decimal text.
        spent_by: the requests that spent it: `request`, `dataset`, `state`, `rho_spent`.
        while_secret: what is spent comes to while the assignments of releases are secret, beside `epsilon_spent`; None
            if no release counts with a secret assignment. Derived here, and stored nowhere.
        limit: what is charged in Rényi orders, of what the policy in force allows; None if it sets no limit.
    """

    view: BudgetView
    sentence: str
    facts: dict[str, Json]
    spent_by: tuple[dict[str, Json], ...]
    while_secret: AccountFigure | None
    limit: LimitInOrders | None

    @property
    def second_claim(self) -> list[str]:
        """What is said of the second figure: what is spent, and the limit that the policy sets, if any."""
        lines = [] if self.while_secret is None else [self.while_secret.sentence]
        if self.limit is None:
            return [f"{line} No limit refers to it." for line in lines]
        return [*lines, self.limit.sentence]

    def sections(self) -> Iterator[Section]:
        """Yield the sections of the budget; its readers are those who may see balances."""
        view = self.view
        yield from view.warnings
        yield Summary("Summary", (self.sentence, *self.second_claim))
        figures = tuple((name.replace("_", " "), value_text(value)) for name, value in self.facts.items())
        yield FieldList("All figures", figures, detail=True)
        if view.cohorts:
            yield Table(
                "Cohorts: each has the whole budget, and a unit stays in its own",
                ("cohort", "opened", "blocks", "rho spent", "rho left", "epsilon spent", "read by"),
                tuple(_cohort_row(view, line) for line in view.cohorts),
            )
        if changes := tuple((old.epsilon, old.delta, new.epsilon, new.delta) for old, new in view.changes):
            columns = ("epsilon before", "delta before", "epsilon after", "delta after")
            yield Table("Changes of the lifetime claim, on every later card", columns, changes)
        spent = tuple(tuple(map(value_text, row.values())) for row in self.spent_by)
        yield Table("Spent by", ("request", "dataset", "state", "rho spent"), spent, empty="Nothing is spent.")


def _cohort_row(view: BudgetView, line: CohortLine) -> tuple[str, ...]:
    newest, count = line.readers.newest, line.readers.count
    readers = "nobody" if newest is None else f"request {newest}" + (f" and {count - 1} before it" if count > 1 else "")
    return (
        str(line.number), line.opened_on or "from the beginning", line.blocks, line.balance.spent.rho_text,
        line.balance.remaining.rho_text, view.of_cohort(line).epsilon_spent, readers,
    )  # fmt: skip


def summarise_budget(workspace: Workspace, name: str) -> BudgetSummary:
    """Return the budget of a dataset for releases that read all of its cohorts.

    Raises:
        DatasetUnknown: there is no such dataset.
        BalancesWithheld: the policy hides the figures from the owner of this home.
    """
    view = load_budget(workspace, name)
    with workspace.database.read() as session:
        account = datasets.find_dataset(session, name).account_id
        secret = account_figure(session, account, Fraction(view.claim.delta_conversion, DELTA_UNIT))
        spent = tuple(_spent_by_request(session, account))
    limit = None if view.orders is None else limit_in_orders(view.orders, view.read)
    return BudgetSummary(view, _sentence(view), _facts(view, name), spent, secret, limit)


def _facts(budget: BudgetView, name: str) -> dict[str, Json]:
    balance, claim = budget.balance, budget.claim
    return {
        "dataset": name,
        "sharing": list(budget.sharing),
        "blocks": budget.blocks,
        "epsilon_cap": claim.epsilon,
        "delta_cap": claim.delta,
        "epsilon_spent": budget.epsilon_spent,
        "rho_cap": balance.cap.rho_text,
        "rho_spent": balance.spent.rho_text,
        "rho_held": balance.held.rho_text,
        "rho_left": balance.remaining.rho_text,
        "delta_fail_cap": balance.cap.delta_text,
        "delta_fail_spent": balance.spent.delta_text,
        "share_spent": format_share(shares_of_cap(balance, balance.spent)[1]),
    }


def _sentence(budget: BudgetView) -> str:
    left, share = shares_of_cap(budget.balance, budget.spent)
    more = "more " if budget.spent.rho else ""
    affordable = [
        f"{row.ever} {more}{'release' if row.ever == 1 else 'releases'} at epsilon {row.epsilon}"
        for row in forecast_table(budget, EXAMPLE_DELTA, epsilons=EXAMPLE_EPSILONS)
        if row.ever
    ]
    if not budget.spent.rho:
        example = f": it is enough for {' or '.join(affordable)}" if affordable else ""
        return f"Nothing of the lifetime budget (epsilon {budget.claim.epsilon}) is used{example}."
    rest = f", for example {' or '.join(affordable)}" if affordable else ", too little for a release at epsilon 1"
    return (
        f"{format_share(share)} of the lifetime budget is used (epsilon {budget.epsilon_spent} of"
        f" {budget.claim.epsilon}); {format_share(left, ROUND_FLOOR)} is left{rest}."
    )


def _spent_by_request(session: Session, account: int) -> Iterator[dict[str, Json]]:
    for request in requests.list_of_account(session, account):
        if (spent := budget.spent_by(session, request.id)).rho:
            yield {
                "request": request.id,
                "dataset": session.get_one(Dataset, request.dataset_id).name,
                "state": requests.state_of(session, request.id),
                "rho_spent": spent.rho_text,
            }
