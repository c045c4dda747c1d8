"""Heartbeat of a run that works for long without arming.

Other machines see of a run its lease alone, and arming prolongs that. But texts are written when everything is armed,
by an external model perhaps for hours: a sweep elsewhere would take such a run for dead, and what it has made could not
be committed.
"""

import time
from collections.abc import Callable
from typing import Final

from flows.releases.attempt import RunningAttempt
from models_db.errors import AlmonerError
from models_db.services import attempts, budget
from tasks.common.faults import Wait
from tasks.common.progress import Reporter, report

HEARTBEAT_SECONDS: Final = attempts.LEASE_DURATION.total_seconds() / 5
"""Seconds after which a lease is prolonged, when there is something to report."""


def heartbeat(run: RunningAttempt, clock: Callable[[], float] = time.monotonic) -> Reporter:
    """Reports progress, and prolongs the run's lease with it.

    A ledger that does not answer ends no run: it is asked again at the next beat.
    """
    last = clock()

    def report_and_renew(what: str, done: int, total: int) -> None:
        nonlocal last
        report(what, done, total)
        if clock() - last >= HEARTBEAT_SECONDS:
            last = clock()
            _prolong_lease(run)

    return report_and_renew


def renewing_wait(run: RunningAttempt, wait: Wait) -> Wait:
    """Return a wait before a retry that prolongs the run's lease; it is far shorter than a lease.

    Raises:
        AttemptClosed: by the wait that is returned, if another attempt has the lease.
    """

    def wait_and_renew(seconds: float) -> None:
        wait(seconds)
        _prolong_lease(run)

    return wait_and_renew


def _prolong_lease(run: RunningAttempt) -> None:
    """Extend the lease's expiry.

    Raises:
        AttemptClosed: another attempt has it: this one was swept away, and nothing that it makes would be taken.
    """
    try:
        with run.workspace.database.write() as session:
            mine = attempts.renew_attempt_lease(session, run.request_id, run.token)
    except AlmonerError:
        return
    if not mine:
        raise budget.AttemptClosed
