"""Forecast of how many further releases a budget affords, by epsilon."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flows.datasets.budget_view import BudgetView
from models_db.values.amounts import Amount
from tasks.accounting.zcdp import epsilon_of, release_amount
from tasks.common.published_values import figure, round_down

if TYPE_CHECKING:
    from tasks.accounting.renyi_account import OrdersBudget

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
