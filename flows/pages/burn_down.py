"""How a lifetime budget went down, and when it would be gone at the pace of the last months."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from sqlalchemy.orm import Session

from flows.pages.figures import percent
from models_db.services import listings

RECENT = timedelta(days=90)
"""The days whose pace the forecast goes on with, today among them."""

FAR = timedelta(days=3650)
"""Beyond this a forecast names no day."""

EARLY = timedelta(days=14)
"""Of a shorter past no forecast is made."""

Outlook = Literal["early", "far", "near", "gone"]


@dataclass(frozen=True)
class Point:
    """What was left at the end of a UTC day, in percent of the cap that is in force now."""

    day: str
    left_percent: str


@dataclass(frozen=True)
class BurnDown:
    """The history of the block that has spent most.

    Attributes:
        points: the day before the dataset was registered, every day on which something was spent, and today.
        block: which block it is.
        recent_percent: of the cap, what was spent in the last `recent_days` days.
        gone_on: the day on which nothing would be left at that pace, if the outlook is `near`.
        outlook: `early` to tell, `far` off or never, `near`, or already `gone`.
    """

    points: tuple[Point, ...]
    block: int
    recent_percent: str
    recent_days: int
    gone_on: str | None
    outlook: Outlook


def burn_down(session: Session, account_id: int, since: str) -> BurnDown | None:
    """The burn-down of a root account since a moment; None if it has no block."""
    block = listings.fullest_block(session, account_id)
    if block is None:
        return None
    today = datetime.now(UTC).date()
    return drawn(listings.spent_by_day(session, block.id), block.rho_cap, block.block or 0, since[:10], today)


def drawn(spent: Sequence[tuple[str, int]], cap: int, block: int, since: str, today: date) -> BurnDown:
    """A burn-down from what was spent each day.

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
    first = max(date.fromisoformat(since), today - RECENT + timedelta(days=1))
    recent = sum(rho for day, rho in spent if day >= first.isoformat())
    days = (today - first).days + 1
    return BurnDown(
        tuple(Point(day, _left(cap, at)) for day, at in latest.items()),
        block,
        percent(recent, cap),
        days,
        *_outlook(cap - gone, recent, days, today),
    )


def _left(cap: int, gone: int) -> str:
    return percent(max(cap - gone, 0), cap)


def _outlook(left: int, recent: int, days: int, today: date) -> tuple[str | None, Outlook]:
    """Only a day for planning, so whole days will do."""
    if left <= 0:
        return None, "gone"
    if days < EARLY.days:
        return None, "early"
    ahead = left * days // recent if recent else FAR.days + 1
    return ((today + timedelta(days=ahead)).isoformat(), "near") if ahead <= FAR.days else (None, "far")
