"""Sessions of clients that have shown the token, kept in memory, and a limit on failed logins.

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
"""Lifetime of a session in seconds; after it the dashboard asks for the token again."""

MOST_SESSIONS = 1000
MOST_WRONG_TOKENS = 5
"""Wrong tokens that one address may send within `PAUSE_SECONDS` seconds."""

PAUSE_SECONDS = 60.0
MOST_ADDRESSES = 10_000

Clock = Callable[[], float]


@dataclass
class Sessions:
    """The open sessions; when there are too many, the oldest is closed."""

    clock: Clock = time.monotonic
    _ends: "OrderedDict[bytes, float]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> str:
        """Open a session and return the value of its cookie."""
        value = secrets.token_urlsafe(32)
        with self._lock:
            self._ends[_session_digest(value)] = self.clock() + SESSION_SECONDS
            while len(self._ends) > MOST_SESSIONS:
                self._ends.popitem(last=False)
        return value

    def is_open(self, value: str) -> bool:
        """Return whether a cookie's value names an open session."""
        with self._lock:
            ends = self._ends.get(_session_digest(value))
            if ends is not None and ends <= self.clock():
                del self._ends[_session_digest(value)]
                return False
            return ends is not None


def _session_digest(value: str) -> bytes:
    # The look-up is by digest, so its duration reveals nothing about the value.
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


@dataclass
class LoginThrottle:
    """Counts recent wrong tokens by address; an IPv6 network counts as one address."""

    clock: Clock = time.monotonic
    _wrong: "OrderedDict[str, list[float]]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def seconds_to_wait(self, address: str) -> int:
        """Return the seconds until this address may try again; 0 means now."""
        with self._lock:
            lately = self._recent_failures(_network_of(address))
            return 0 if len(lately) < MOST_WRONG_TOKENS else max(1, round(lately[0] + PAUSE_SECONDS - self.clock()))

    def record_failure(self, address: str) -> None:
        """Count a wrong token against an address."""
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
