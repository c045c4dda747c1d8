"""Budget of a dataset: its claim, changes and cohorts, a forecast of further releases, a summary of what is spent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from flows.audit.lifetime_claims import claims_of
from flows.governance.exposure import (
    AccountFigure,
    LimitInOrders,
    account_figure,
    ended_figures,
    limit_in_orders,
    orders_budgets,
)
from flows.governance.policy import require_visible_balances
from flows.workspace.policy_file import read_policy_in_force
from flows.workspace.workspace import Workspace
from models_db.services import budget, cohorts, datasets, exposures, requests
from models_db.services.budget import Balance
from models_db.services.datasets import LifetimeClaim
from models_db.services.queries import lists
from models_db.services.queries.lists import BlockReaders
from models_db.tables import Dataset
from models_db.values.amounts import DELTA_UNIT, Amount
from models_db.values.canonical_json import Json
from models_db.values.exposures import SecrecyEnd, ViewingRecord
from models_db.values.untrusted_text import value_text
from tasks.accounting.lifetime_claims import BudgetFacts, shares_of_cap
from tasks.accounting.zcdp import epsilon_of, release_amount
from tasks.common.published_values import figure, format_share, round_down
from tasks.planning.block_selection import Reading, format_ranges
from tasks.release.sections import WARNINGS, FieldList, Section, Summary, Table, Warnings

if TYPE_CHECKING:
    from tasks.accounting.renyi_account import OrdersBudget


@dataclass(frozen=True)
class CohortLine:
    """Budget of one cohort, and the requests that have read it; the first cohort exists from the beginning."""

    number: int
    opened_at: str | None
    blocks: str
    balance: Balance
    readers: BlockReaders

    @property
    def opened_on(self) -> str | None:
        """Return the day on which the cohort was opened."""
        return self.opened_at and self.opened_at[:10]


@dataclass(frozen=True)
class BudgetView(BudgetFacts):
    """The budget of a dataset.

    Attributes:
        sharing: the datasets that draw on the budget.
        claims: all lifetime claims so far, the one in force last.
        cohorts: the budget of each cohort, if there are several; `balance` is that of the fullest block in view.
        viewing: the first day on which unprotected figures of the account were seen, and by whom; None if never.
        secrecy_ends: the releases of the account that claimed a smaller epsilon while their assignment was secret, and
            no longer do, each with when and why.
        orders: the account in Rényi orders, if the policy in force limits it.
        read: the blocks that the releases read, by number.
    """

    sharing: tuple[str, ...]
    blocks: int
    claims: tuple[LifetimeClaim, ...]
    cohorts: tuple[CohortLine, ...] = ()
    viewing: ViewingRecord | None = None
    secrecy_ends: tuple[tuple[int, SecrecyEnd], ...] = ()
    orders: "OrdersBudget | None" = None
    read: tuple[int, ...] = ()

    @property
    def warnings(self) -> tuple[Warnings, ...]:
        """Return what a reader of the budget must not miss: figures that were seen, and claims that have ended."""
        seen = [] if self.viewing is None else [self.viewing.sentence]
        lines = (*seen, *(f"Release {number}: {end.sentence}" for number, end in self.secrecy_ends))
        return (Warnings(WARNINGS, lines, signed=False),) if lines else ()

    @property
    def changes(self) -> tuple[tuple[LifetimeClaim, LifetimeClaim], ...]:
        """Return each change of the lifetime claim: the claim before, and after."""
        return tuple(zip(self.claims, self.claims[1:], strict=False))

    def of_cohort(self, line: CohortLine) -> "BudgetView":
        """Return the budget of releases that read only one cohort."""
        return replace(self, balance=line.balance, read=tuple(Reading(self.blocks).of(line.number)))

    @property
    def rho_admitted(self) -> int:
        """Return the most rho that releases of any plan may have together: what is left, within limits in orders.

        In units of 1e-12.
        """
        left = self.balance.remaining.rho
        if self.orders is None:
            return left
        return min(left, self.orders.room(self.orders.strictest(self.read), self.read))


def load_budget(workspace: Workspace, name: str, read: str | Sequence[int] | None = None) -> BudgetView:
    """Return the budget of a dataset for releases that read all of its cohorts, or some.

    Args:
        read: the cohorts by number, or 'newest'; None means all.

    Raises:
        DatasetUnknown, CohortUnknown: there is no such dataset or cohort.
        BalancesWithheld: the policy hides the figures from the owner of this home.
    """
    require_visible_balances(workspace, name)
    with workspace.database.read() as session:
        return budget_of_dataset(session, datasets.find_dataset(session, name), read)


def budget_of_dataset(session: Session, dataset: Dataset, read: str | Sequence[int] | None = None) -> BudgetView:
    """Return the budget as `load_budget` does, in an open session; the caller checks that the figures may be shown."""
    root, each = dataset.account_id, cohorts.blocks_per_cohort(session, dataset.account_id)
    blocks = (
        None if read is None else Reading(each, cohorts.resolve_cohorts(session, dataset, read), several=True).blocks
    )
    claims, lines, policy = claims_of(session, dataset), _cohort_lines(session, dataset), read_policy_in_force(session)
    return BudgetView(
        claim=claims[-1],
        balance=budget.balance(session, root, blocks),
        sharing=datasets_on_account(session, dataset),
        blocks=each,
        claims=claims,
        cohorts=lines,
        viewing=exposures.find_viewing(session, root),
        secrecy_ends=ended_figures(session, root),
        orders=orders_budgets(session, [root], policy).get(root),
        read=tuple(range(each * max(1, len(lines)))) if blocks is None else blocks,
    )


def _cohort_lines(session: Session, dataset: Dataset) -> tuple[CohortLine, ...]:
    """Return the budget of each cohort, if there are several."""
    root, each = dataset.account_id, cohorts.blocks_per_cohort(session, dataset.account_id)
    later = {one.number: one.created_at for one in cohorts.list_opened(session, root)}
    if not later:
        return ()
    balances, read = lists.cohort_balances(session, {root})[root], lists.block_readers(session, root)
    return tuple(
        CohortLine(
            number,
            later.get(number),
            format_ranges(Reading(each).of(number)),
            balance,
            read.get(number, lists.BlockReaders()),
        )
        for number, balance in balances.items()
    )


def datasets_on_account(session: Session, dataset: Dataset) -> tuple[str, ...]:
    """Return the names of all datasets on the account of this one, itself included."""
    return lists.datasets_on_account(session, dataset.account_id)


FORECAST_EPSILONS = ("0.5", "1", "2", "3", "4", "6", "8", "10")


@dataclass(frozen=True)
class ForecastRow:
    """Forecast for releases of one epsilon.

    Attributes:
        price: the cost of each release.
        ever: the number of releases that the remaining budget affords.
        after: the lifetime epsilon after one release; None if not even one is affordable.
    """

    epsilon: str
    price: Amount
    ever: int
    after: str | None


def forecast_table(
    budget: BudgetView, delta: str, epsilons: Sequence[str] = FORECAST_EPSILONS
) -> Iterator[ForecastRow]:
    """Yield the remaining budget as numbers of releases at `delta`, for each epsilon.

    Where the policy limits the account in Rényi orders, both accounts have to admit a release; one whose plan is not
    known counts with its rho at every order, which no plan exceeds.

    Raises:
        InvalidTarget: no release can have that delta.
    """
    for epsilon in epsilons:
        price = release_price(epsilon, delta)
        fitting = count_admitted(budget, price)
        yield ForecastRow(epsilon, price, fitting, epsilon_after(budget, price) if fitting else None)


@lru_cache(maxsize=256)
def release_price(epsilon: str, delta: str) -> Amount:
    """Return the amount that a release may charge; see `release_amount`."""
    return release_amount(epsilon, delta)


def count_admitted(budget: BudgetView, price: Amount) -> int:
    """Return how many releases at a price both accounts admit: the remaining rho, and the limits in orders."""
    return budget.rho_admitted // price.rho


def count_runs(
    price: Amount, left: Amount, plan: Mapping[str, Any], blocks: Sequence[int], orders: "OrdersBudget | None"
) -> int | None:
    """Return how many releases of one plan both accounts admit; None if they cost nothing.

    Args:
        price: what each costs.
        left: the remaining budget of the blocks that they read.
        plan: of a canonical request.
        blocks: those that they read.
        orders: the account in Rényi orders; None where nothing limits it.
    """
    paid = price.count_in(left)
    if paid is None or orders is None:
        return paid
    from tasks.planning.secret_assignment import curve_of_plan

    admitted = orders.count(curve_of_plan(plan), blocks)
    return paid if admitted is None else min(paid, admitted)


def largest_epsilon(rho: int, releases: int, delta: Decimal) -> str | None:
    """Return the largest epsilon, rounded down to three places, of which so many releases fit; None if none does.

    Args:
        rho: what they may have together, in units of 1e-12.
    """
    each = rho // releases
    if not each:
        return None
    epsilon = Decimal(round_down(epsilon_of(each, delta)))
    while epsilon > 0 and release_amount(epsilon, delta).rho * releases > rho:
        epsilon -= Decimal("0.001")
    return figure(epsilon) if epsilon > 0 else None


def epsilon_after(budget: BudgetView, amount: Amount) -> str:
    """Return the lifetime epsilon after `amount` is also spent."""
    return budget.epsilon_of(budget.spent + amount)


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
