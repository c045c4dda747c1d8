"""Challenges that passkeys answer to sign in: signed, so that none is kept, with an end, and used once.

Whoever asks for challenges costs no memory, and so displaces nobody's. A signature cannot be guessed, so wrong answers
are not counted: a count by address would shut out all who share a proxy, and one by the person who is named would let
anybody shut that person out. What is kept and counted are right answers, which nobody gives but that person.
"""

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field

from cli.web.sessions import Clock
from models_db.errors import Refused
from models_db.services.audit.chain import Actor

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
