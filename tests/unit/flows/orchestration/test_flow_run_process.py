"""The process of a flow run ends with its worker, however the worker was started."""

import signal
import subprocess
import sys

import pytest

from tests.support import PATIENCE

WAITING = """
import time
from flows.orchestration import flow_run_process
flow_run_process.run_flow_run = lambda *_: (print("begun", flush=True), time.sleep(3600))
flow_run_process.main()
"""


@pytest.mark.parametrize("ignored", [False, True], ids=["as a terminal starts it", "in the background of a script"])
def test_it_ends_when_its_worker_is_gone(ignored: bool) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", WAITING, "00000000-0000-0000-0000-000000000000", "release"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert process.stdout.readline() == b"begun\n"
            process.stdin.close()
            assert process.wait(PATIENCE) != 0
        finally:
            process.kill()
