"""Forecast of how many further releases a budget affords, by epsilon: now, and over its lifetime."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from flows.datasets.budget_view import BudgetView
from models_db.values.amounts import Amount
from tasks.accounting.zcdp import release_amount

FORECAST_EPSILONS = ("0.5", "1", "2", "3", "4", "6", "8", "10")


@dataclass(frozen=True)
class ForecastRow:
    """Releases of one epsilon.

    Attributes:
        price: what each would cost.
        ever: how many of them what is left affords.
        now: how many of those in the window of time that is open or opens next; None without pacing.
        after: the lifetime epsilon after one; None if not even one is affordable.
    """

    epsilon: str
    price: Amount
    ever: int
    now: int | None
    after: str | None


def forecast_table(budget: BudgetView, delta: str, scope: str | None = None) -> Iterator[ForecastRow]:
    """Yield the remaining budget as numbers of releases at `delta`, by growing epsilon.

    Raises:
        EnvelopeUnknown: there is no such envelope.
        InvalidTarget: no release can have that delta.
    """
    left = budget.left(scope)
    for epsilon in FORECAST_EPSILONS:
        price = release_price(epsilon, delta)
        now = min(count_releases(budget.window.left, price), count_releases(left, price)) if budget.window else None
        ever = 0 if exceeds_window(budget, price) else count_releases(left, price)
        yield ForecastRow(epsilon, price, ever, now, epsilon_after(budget, price) if ever else None)


@lru_cache(maxsize=256)
def release_price(epsilon: str, delta: str) -> Amount:
    """Return the amount that a release may charge; see `release_amount`."""
    return release_amount(epsilon, delta)


def count_releases(left: Amount, price: Amount) -> int:
    """Return how many releases at a price fit into a balance."""
    return left.rho // price.rho


def exceeds_window(budget: BudgetView, price: Amount) -> bool:
    """Whether a release costs more than a whole window."""
    return budget.window is not None and not price.fits(budget.window.cap)


def epsilon_after(budget: BudgetView, asked: Amount) -> str:
    """The lifetime epsilon once `asked` is spent, too."""
    return budget.epsilon_of(budget.spent + asked)
