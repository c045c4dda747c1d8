"""Who is believed to be dead."""

import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta

from flows.releases.resume import is_dead
from flows.workspace.workspace import process_owner
from models_db.database.base import utc_now
from models_db.tables import Lease

HERE = socket.gethostname()


def lease(holder: str, minutes: int = 5) -> Lease:
    expires = utc_now(datetime.now(UTC) + timedelta(minutes=minutes))
    return Lease(request_id=1, attempt=1, token="t", owner=holder, expires_at=expires)


def test_this_process_lives_however_long_it_was_silent() -> None:
    assert not is_dead(lease(process_owner()))
    assert not is_dead(lease(process_owner(), minutes=-60))


def test_a_process_that_has_ended_is_dead_at_once() -> None:
    gone = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    held = lease(process_owner(gone.pid))
    assert not is_dead(held)
    gone.kill()
    gone.communicate()
    assert is_dead(held)


def test_a_process_that_inherited_the_number_is_another() -> None:
    assert is_dead(lease(f"{HERE}/{os.getpid()}/0.00"))


def test_of_another_machine_only_its_silence_is_known() -> None:
    assert not is_dead(lease("elsewhere/1/0.00"))
    assert is_dead(lease("elsewhere/1/0.00", minutes=-1))
