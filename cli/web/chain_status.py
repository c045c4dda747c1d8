"""Status of the audit chain for pages, checked in a thread, because the time of a check grows with the chain."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from flows.audit.verify import verify_record
from flows.workspace.workspace import ReadOnlyWorkspace
from models_db.database.base import utc_now
from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from models_db.services.audit.verify_chain import ChainReport
from models_db.sessions.read_only import ReadOnlyDatabase

WAIT_SECONDS = 2.0
"""Seconds that a page waits for a check of the chain; a short chain is checked by then."""

PAUSE_FACTOR = 20
"""Pause after a check, as a multiple of the time that the check took."""


@dataclass(frozen=True)
class ChainState:
    """The result of the last check of the chain.

    Attributes:
        verdict: `holds`, `broken`, `unread` (the chain could not be read), or `walking`, if no check has ended yet.
        links: the number of links that fit; `newer` is the number of links added since.
        told: the result in one sentence.
        at: the time at which the check ended; None before the first.
    """

    verdict: str
    links: int
    newer: int
    told: str
    at: str | None


@dataclass
class _ChainCheck:
    head: int
    verdict: str
    links: int
    told: str
    at: str
    ended: float
    lasted: float


class ChainWatch:
    """Checks the chain of a home in a thread whenever a page asks for its state and the chain has grown."""

    def __init__(self, home: ProjectHome, walk: Callable[[ReadOnlyWorkspace], ChainReport] | None = None) -> None:
        self._home = home
        self._walk = walk or (lambda record: verify_record(record).chain)
        self._last: _ChainCheck | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def is_bad(self) -> str:
        """Return the objection of the last check; empty if there is none or no check has ended. Starts no check."""
        last = self._last
        return last.told if last is not None and last.verdict != "holds" else ""

    def state(self, head: int) -> ChainState:
        """Return the state of the chain whose newest link has the number `head`; start a check if that link is new."""
        thread = self._start_check(head)
        if thread is not None:
            thread.join(WAIT_SECONDS)
        last = self._last
        if last is None:
            return ChainState("walking", 0, head, "The chain is being checked for the first time.", None)
        return ChainState(last.verdict, last.links, max(head - last.head, 0), last.told, last.at)

    def _start_check(self, head: int) -> threading.Thread | None:
        """Return the running check, or start one if the chain has grown; None if there is no need for one."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return self._thread
            last = self._last
            if last is not None and (last.head == head or time.monotonic() < last.ended + PAUSE_FACTOR * last.lasted):
                return None
            self._thread = threading.Thread(target=self._run_check, args=(head,), daemon=True, name="chain")
            self._thread.start()
            return self._thread

    def _run_check(self, head: int) -> None:
        began = time.monotonic()
        links, verdict, reason = 0, "unread", ""
        try:
            verification = self._walk(ReadOnlyWorkspace(self._home, ReadOnlyDatabase(self._home.database_url), ""))
            verdict, reason = _verdict_of(verification), _verdict_sentence(verification)
            links, head = verification.links, verification.head.seq
        except AlmonerError as problem:
            reason = problem.message
        ended = time.monotonic()
        self._last = _ChainCheck(head, verdict, links, reason, utc_now(datetime.now(UTC)), ended, ended - began)


def _verdict_of(report: ChainReport) -> str:
    return "holds" if report.holds and not (report.clock_back or report.unreadable) else "broken"


def _verdict_sentence(report: ChainReport) -> str:
    if not report.holds:
        return f"The chain is broken at link {report.broken_at}: {report.reason}."
    if report.clock_back:
        places = ", ".join(map(str, report.clock_back))
        return f"The clock went back at link {places}: expired approvals may have held there."
    if report.unreadable:
        return f"No reader can parse link {', '.join(map(str, report.unreadable))}: almoner cannot have written it."
    return f"The chain holds: {report.links} links, head {report.head.hash}."
