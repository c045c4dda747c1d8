"""Balances as pages show them, and the burn-down of a lifetime budget to its end at the pace of the last months."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from typing import Literal

from sqlalchemy.orm import Session

from models_db.services.cohorts import FIRST_COHORT
from models_db.services.queries import lists
from tasks.accounting.lifetime_claims import BudgetFacts, shares_of_cap
from tasks.common.published_values import format_percent, format_small


@dataclass(frozen=True)
class BalanceFigures:
    """Cap, spent, held and remaining amounts of an account; rho as exact decimals, `shares_of_cap` in percent."""

    rho_cap: str
    rho_spent: str
    rho_held: str
    rho_left: str
    spent_percent: str
    held_percent: str
    left_percent: str
    epsilon_spent: str
    delta_fail_cap: str
    delta_fail_spent: str
    delta_fail_left: str


def figures_of(budget: BudgetFacts) -> BalanceFigures:
    """Return a budget in figures; spent amounts are rounded up, remaining amounts down."""
    balance = budget.balance
    cap, spent, held, remaining = balance.cap, balance.spent, balance.held, balance.remaining
    left_share, spent_share, held_share = shares_of_cap(balance, spent, held)
    return BalanceFigures(
        rho_cap=cap.rho_text,
        rho_spent=spent.rho_text,
        rho_held=held.rho_text,
        rho_left=remaining.rho_text,
        spent_percent=format_percent(spent_share),
        held_percent=format_percent(held_share),
        left_percent=format_percent(left_share, ROUND_FLOOR),
        epsilon_spent=budget.epsilon_spent,
        delta_fail_cap=format_small(cap.delta_text),
        delta_fail_spent=format_small(spent.delta_text),
        delta_fail_left=format_small(remaining.delta_text),
    )


RECENT_PERIOD = timedelta(days=90)
"""Number of days whose pace the forecast extends, including today."""

FAR_HORIZON = timedelta(days=3650)
"""Longest forecast: beyond it no day is named."""

SHORTEST_HISTORY = timedelta(days=14)
"""Shortest history from which a forecast is made."""

Outlook = Literal["early", "far", "near", "gone"]


@dataclass(frozen=True)
class BurnPoint:
    """Remaining budget at the end of a UTC day, in percent of the cap now in force, rounded down."""

    day: str
    left_percent: str


@dataclass(frozen=True)
class BurnDown:
    """The history of the block of a cohort that has spent most.

    Attributes:
        cohort: the number of the cohort; 1 for a dataset with a single cohort.
        points: the day before its budget began, every day with spending, and today.
        block: the number of the block.
        recent_percent: the spending of the last `recent_days` days in percent of the cap.
        gone_on: the day on which the budget would be used up at that pace, if the outlook is `near`.
        outlook: `early` (the history is too short), `far` (far off or never), `near`, or `gone` (used up).
    """

    cohort: int
    points: tuple[BurnPoint, ...]
    block: int
    recent_percent: str
    recent_days: int
    gone_on: str | None
    outlook: Outlook


def burn_downs(session: Session, account_id: int, opened: Mapping[int, str]) -> tuple[BurnDown, ...]:
    """Return the burn-downs of the cohorts of a root account, in order.

    Args:
        opened: the opening times of the cohorts after the first, by number.
    """
    blocks = lists.most_spent_blocks(session, account_id)
    spent = lists.spent_by_day(session, [block.account_id for block in blocks.values()])
    began, today = lists.first_registered(session, account_id), datetime.now(UTC).date()
    return tuple(
        burn_down_of(
            spent.get(block.account_id, []), block.rho_cap, block.block, opened.get(cohort, began)[:10], today, cohort
        )
        for cohort, block in blocks.items()
    )


def most_spent(burns: Sequence[BurnDown]) -> BurnDown | None:
    """Return the block with the least budget left, the first of equals: a release over all cohorts is bound by it."""
    return min(burns, key=lambda one: float(one.points[-1].left_percent), default=None)


def burn_down_of(
    spent: Sequence[tuple[str, int]], cap: int, block: int, since: str, today: date, cohort: int = FIRST_COHORT
) -> BurnDown:
    """Compute a burn-down from the spending of each day.

    Args:
        spent: UTC days, oldest first, with units of rho.
        since: the first day.
    """
    points, gone = [((date.fromisoformat(since) - timedelta(days=1)).isoformat(), 0)], 0
    for day, rho in spent:
        gone += rho
        points.append((day, gone))
    points.append((today.isoformat(), gone))
    latest = dict(points)  # of two on one day the later one
    first = max(date.fromisoformat(since), today - RECENT_PERIOD + timedelta(days=1))
    recent = sum(rho for day, rho in spent if day >= first.isoformat())
    days = (today - first).days + 1
    return BurnDown(
        cohort,
        tuple(BurnPoint(day, _left_percent(cap, at)) for day, at in latest.items()),
        block,
        format_percent(_share(recent, cap)),
        days,
        *_forecast_outlook(cap - gone, recent, days, today),
    )


def _left_percent(cap: int, gone: int) -> str:
    return format_percent(_share(max(cap - gone, 0), cap), ROUND_FLOOR)


def _share(rho: int, cap: int) -> Decimal:
    return Decimal(rho) / cap if cap else Decimal(0)


def _forecast_outlook(remaining: int, recent: int, days: int, today: date) -> tuple[str | None, Outlook]:
    """Return the forecast day and the outlook; whole days suffice for planning."""
    if remaining <= 0:
        return None, "gone"
    if days < SHORTEST_HISTORY.days:
        return None, "early"
    ahead = remaining * days // recent if recent else FAR_HORIZON.days + 1
    return ((today + timedelta(days=ahead)).isoformat(), "near") if ahead <= FAR_HORIZON.days else (None, "far")
