"""Who has shown the token: sessions in memory, and how often somebody may be wrong.

A session is 256 random bits in a cookie; only its digest is kept here, and all of them end with the process.
"""

import hashlib
import ipaddress
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

SESSION_SECONDS = 8 * 3600.0
"""Seconds after which the token is asked for again."""

MOST_SESSIONS = 1000
MOST_WRONG_TOKENS = 5
"""Wrong tokens that one address may send within `PAUSE_SECONDS` seconds."""

PAUSE_SECONDS = 60.0
MOST_ADDRESSES = 10_000

Clock = Callable[[], float]


@dataclass
class Sessions:
    """The sessions that are open; the oldest one goes when there are too many."""

    clock: Clock = time.monotonic
    _ends: "OrderedDict[bytes, float]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> str:
        """A new session: the value of its cookie."""
        value = secrets.token_urlsafe(32)
        with self._lock:
            self._ends[_session_digest(value)] = self.clock() + SESSION_SECONDS
            while len(self._ends) > MOST_SESSIONS:
                self._ends.popitem(last=False)
        return value

    def is_open(self, value: str) -> bool:
        """Whether a cookie's value is an open session."""
        with self._lock:
            ends = self._ends.get(_session_digest(value))
            if ends is not None and ends <= self.clock():
                del self._ends[_session_digest(value)]
                return False
            return ends is not None


def _session_digest(value: str) -> bytes:
    # A look-up by digest: how long it takes says nothing about the value.
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


@dataclass
class LoginThrottle:
    """How many wrong tokens came from where lately; a neighbourhood of IPv6 counts as one address."""

    clock: Clock = time.monotonic
    _wrong: "OrderedDict[str, list[float]]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def seconds_to_wait(self, address: str) -> int:
        """Seconds until somebody from there may try again; 0 at once."""
        with self._lock:
            lately = self._recent_failures(_network_of(address))
            return 0 if len(lately) < MOST_WRONG_TOKENS else max(1, round(lately[0] + PAUSE_SECONDS - self.clock()))

    def record_failure(self, address: str) -> None:
        """Remember a wrong token."""
        with self._lock:
            place = _network_of(address)
            self._wrong[place] = [*self._recent_failures(place), self.clock()][-MOST_WRONG_TOKENS:]
            self._wrong.move_to_end(place)
            while len(self._wrong) > MOST_ADDRESSES:
                self._wrong.popitem(last=False)

    def _recent_failures(self, place: str) -> list[float]:
        return [at for at in self._wrong.get(place, []) if at > self.clock() - PAUSE_SECONDS]


def _network_of(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if parsed.version == 4 else str(ipaddress.ip_network(f"{address}/64", strict=False))
