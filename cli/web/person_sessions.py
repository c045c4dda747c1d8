"""Sessions of people who have signed in with a passkey, in memory.

A session shows what its person may see and takes their forms. It decides nothing: each decision needs an answer of its
own. A session has a value in a cookie, of which only the digest is kept here, and one in each form (against forged
forms); both change with every decision, and all sessions end with the process.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from flows.approvals.passkey_decision import Prepared
from models_db.services.audit.chain import Actor

SIGNED_IN_SECONDS = 30 * 60.0
PREPARED_SECONDS = 5 * 60.0
MOST_SESSIONS = 20
"""Open sessions of one person; the oldest is closed. Only that person's passkeys open one, so nobody closes others'."""

MOST_PREPARED = 20
"""Decisions of one session that wait for their signature; the oldest is dropped."""

Clock = Callable[[], float]


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
            for name in own[:-MOST_SESSIONS]:
                del self._open[name]
        return value


def _digest(value: str) -> bytes:
    # The look-up is by digest, so its duration reveals nothing about the value.
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
