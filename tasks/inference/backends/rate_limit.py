"""Rate limit of requests to an endpoint, and back-off after errors. All of it is public."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

PATIENCE = 600.0
"""Longest pause in seconds that an endpoint may ask for (Retry-After); a longer one ends the attempts."""

FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds before a second attempt, and before any later one: each wait is twice the one before."""


class RateLimit:
    """Gives requests their turns, evenly: never more of them, or of their tokens, a minute than was said.

    Args:
        per_minute, tokens_per_minute: None if there is no limit.
        clock: seconds; only differences count.
    """

    def __init__(
        self, per_minute: int | None, tokens_per_minute: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._apart = 60.0 / per_minute if per_minute else 0.0
        self._a_token = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._clock = clock
        self._lock = threading.Lock()
        self._next = clock()

    def turn(self, tokens: int) -> float:
        """Reserve a turn for a request of at most `tokens` tokens; return the seconds until it may be sent."""
        with self._lock:
            now = self._clock()
            mine = max(now, self._next)
            self._next = mine + max(self._apart, self._a_token * tokens)
            return mine - now

    def hold(self, seconds: float) -> None:
        """Send no request for `seconds`."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


def wait_after(attempt: int) -> float:
    """Return the seconds to wait after the attempt of this number, from 0."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempt, 20))


def retry_after(header: str | None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float | None:
    """Return the seconds that an endpoint asks for, as a number or a date (RFC 9110, 10.2.3); None for neither."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # a year of twenty digits is no ValueError
        return None
    aware = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (aware - now()).total_seconds())
