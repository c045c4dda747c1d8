"""How many further releases a budget affords: by epsilon, now and ever."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from flows.datasets.budget_view import BudgetView
from models_db.values.amounts import Amount
from tasks.accounting.lifetime_claims import lifetime_epsilon
from tasks.accounting.zcdp import release_amount

LADDER = ("0.5", "1", "2", "3", "4", "6", "8", "10")


@dataclass(frozen=True)
class Rung:
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


def ladder(found: BudgetView, delta: str, scope: str | None = None) -> Iterator[Rung]:
    """What is left, counted in releases of `delta` and of growing epsilon.

    Raises:
        ScopeUnknown: there is no such envelope.
        InvalidTarget: no release can have that delta.
    """
    left = found.left(scope)
    for epsilon in LADDER:
        price = price_of(epsilon, delta)
        now = min(times(found.window.left, price), times(left, price)) if found.window else None
        ever = 0 if never(found, price) else times(left, price)
        yield Rung(epsilon, price, ever, now, after(found, price) if ever else None)


@lru_cache(maxsize=256)
def price_of(epsilon: str, delta: str) -> Amount:
    """What a release may charge; see `release_amount`."""
    return release_amount(epsilon, delta)


def times(left: Amount, price: Amount) -> int:
    """How many releases at a price fit into what is left."""
    return left.rho // price.rho


def never(found: BudgetView, price: Amount) -> bool:
    """Whether a release costs more than a whole window."""
    return found.window is not None and not price.fits(found.window.cap)


def after(found: BudgetView, asked: Amount) -> str:
    """The lifetime epsilon once `asked` is spent, too."""
    return lifetime_epsilon(found.balance.spent + asked, found.claim.delta_conversion)
