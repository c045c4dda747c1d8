"""Sessions in memory, of clients with the token and of people with a passkey, and challenges that passkeys answer.

Sessions of clients that have shown the token, kept in memory, and a limit on failed logins. A session is 256 random
bits in a cookie; only its digest is kept here, and all of them end with the process.

Challenges that passkeys answer to sign in: signed, so that none is kept, with an end, and used once. Whoever asks for
challenges costs no memory, and so displaces nobody's. A signature cannot be guessed, so wrong answers are not counted:
a count by address would shut out all who share a proxy, and one by the person who is named would let anybody shut that
person out. What is kept and counted are right answers, which nobody gives but that person.

Sessions of people who have signed in with a passkey, in memory. A session shows what its person may see and takes their
forms. It decides nothing: each decision needs an answer of its own. A session has a value in a cookie, of which only
the digest is kept here, and one in each form (against forged forms); both change with every decision, and all sessions
end with the process.
"""

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from flows.approvals.passkey_decision import Prepared
from models_db.errors import Refused
from models_db.services.audit.chain import Actor

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
            self._ends[_digest(value)] = self.clock() + SESSION_SECONDS
            while len(self._ends) > MOST_SESSIONS:
                self._ends.popitem(last=False)
        return value

    def is_open(self, value: str) -> bool:
        """Return whether a cookie's value names an open session."""
        with self._lock:
            ends = self._ends.get(_digest(value))
            if ends is not None and ends <= self.clock():
                del self._ends[_digest(value)]
                return False
            return ends is not None


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


SIGNED_IN_SECONDS = 30 * 60.0
PREPARED_SECONDS = 5 * 60.0
MOST_SESSIONS_OF_A_PERSON = 20
"""Open sessions of one person; the oldest is closed. Only that person's passkeys open one, so nobody closes others'."""

MOST_PREPARED = 20
"""Decisions of one session that wait for their signature; the oldest is dropped."""


@dataclass
class PersonSession:
    """One signed-in person.

    Attributes:
        passkey: the number of the passkey; once it is revoked, the session ends.
        form_token: what every form of this session holds.
        ends: when it ends, whatever happens.
    """

    person: Actor
    passkey: int
    ends: float
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    prepared: "OrderedDict[str, tuple[float, Prepared]]" = field(default_factory=OrderedDict)

    def accepts(self, form_token: str) -> bool:
        """Return whether a form was made for this session, compared in constant time."""
        return hmac.compare_digest(form_token.encode("utf-8", "surrogatepass"), self.form_token.encode())


@dataclass
class PersonSessions:
    """The open sessions of people; when one person has too many, their oldest is closed."""

    clock: Clock = time.monotonic
    _open: "OrderedDict[bytes, PersonSession]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, person: Actor, passkey: int) -> str:
        """Open a session and return the value of its cookie."""
        return self._keep(PersonSession(person, passkey, self.clock() + SIGNED_IN_SECONDS))

    def find(self, value: str) -> PersonSession | None:
        """Return the open session that a cookie's value names."""
        with self._lock:
            found = self._open.get(_digest(value))
            if found is not None and found.ends <= self.clock():
                del self._open[_digest(value)]
                return None
            return found

    def renew(self, value: str) -> str | None:
        """Give an open session new values, with the same end, and return that of its cookie; the old ones end.

        None if the session has ended meanwhile: it is not opened again.
        """
        with self._lock:
            found = self._open.pop(_digest(value), None)
        if found is None:
            return None
        return self._keep(PersonSession(found.person, found.passkey, found.ends, prepared=found.prepared))

    def close(self, value: str) -> None:
        """End the session that a cookie's value names, if there is one."""
        with self._lock:
            self._open.pop(_digest(value), None)

    def prepare(self, session: PersonSession, prepared: Prepared) -> str:
        """Keep a decision until it is signed, and return its name in the form."""
        name = secrets.token_urlsafe(16)
        with self._lock:
            session.prepared[name] = (self.clock() + PREPARED_SECONDS, prepared)
            while len(session.prepared) > MOST_PREPARED:
                session.prepared.popitem(last=False)
        return name

    def take_prepared(self, session: PersonSession, name: str) -> Prepared | None:
        """Return a decision that waits for its signature, once; None if there is none, or it has waited too long."""
        with self._lock:
            ends, prepared = session.prepared.pop(name, (0.0, None))
            return prepared if ends > self.clock() else None

    def _keep(self, session: PersonSession) -> str:
        value = secrets.token_urlsafe(32)
        with self._lock:
            self._open[_digest(value)] = session
            own = [name for name, one in self._open.items() if one.person.id == session.person.id]
            for name in own[:-MOST_SESSIONS_OF_A_PERSON]:
                del self._open[name]
        return value


def _digest(value: str) -> bytes:
    # The look-up is by digest, so its duration reveals nothing about the value.
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


CHALLENGE_SECONDS = 5 * 60.0
MOST_SIGN_INS = 20
"""Right answers of one person within `CHALLENGE_SECONDS` seconds."""

_END_BYTES, _NONCE_BYTES, _TAG_BYTES = 8, 16, 32
CHALLENGE_BYTES = _END_BYTES + _NONCE_BYTES + _TAG_BYTES
"""The end in microseconds of this process, random bits, HMAC-SHA-256 of both. A decision's challenge has 32 bytes."""


@dataclass
class SignInChallenges:
    """The challenges of one process."""

    clock: Clock = time.monotonic
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _started: float = field(init=False)
    _used: dict[bytes, tuple[float, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def issue(self) -> bytes:
        """Return a new challenge."""
        end = int((self._now() + CHALLENGE_SECONDS) * 1e6).to_bytes(_END_BYTES, "big")
        stated = end + secrets.token_bytes(_NONCE_BYTES)
        return stated + self._tag(stated)

    def is_valid(self, challenge: bytes) -> bool:
        """Return whether this process has made a challenge, not longer than `CHALLENGE_SECONDS` ago."""
        stated, tag = challenge[:-_TAG_BYTES], challenge[-_TAG_BYTES:]
        made_here = len(challenge) == CHALLENGE_BYTES and hmac.compare_digest(tag, self._tag(stated))
        return made_here and self._end_of(challenge) > self._now()

    def use(self, challenge: bytes, person: Actor) -> bool:
        """Return whether a valid challenge was not used yet; it is from now on.

        To be called with the answer verified: what is kept grows with right answers alone.

        Raises:
            SignInsTooMany: the person has signed in `MOST_SIGN_INS` times lately.
        """
        with self._lock:
            now = self._now()
            self._used = {one: kept for one, kept in self._used.items() if kept[0] > now}
            if challenge in self._used or not self.is_valid(challenge):
                return False
            if sum(who == person.id for _, who in self._used.values()) >= MOST_SIGN_INS:
                raise Refused(
                    f"Passkeys of {person.name!r} have signed in {MOST_SIGN_INS} times within"
                    f" {CHALLENGE_SECONDS / 60:.0f} minutes.",
                    "Wait, and begin again. If it was not you: `almoner passkey list`, `almoner passkey revoke"
                    " NUMBER`.",
                    {"name": person.name},
                    code="SignInsTooMany",
                )
            self._used[challenge] = (now + CHALLENGE_SECONDS, person.id)
            return True

    def _now(self) -> float:
        return self.clock() - self._started

    def _end_of(self, challenge: bytes) -> float:
        return int.from_bytes(challenge[:_END_BYTES], "big") / 1e6

    def _tag(self, stated: bytes) -> bytes:
        return hmac.digest(self._key, stated, hashlib.sha256)
