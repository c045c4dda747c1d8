"""Local Prefect server, beside a home, for as long as a command runs."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flows.workspace.prefect_flow import API_VARIABLE, set_environment
from models_db.errors import EnvironmentProblem
from tasks.common.extras import require_orchestration

LOOPBACK: Final = "127.0.0.1"
SECONDS_TO_START: Final = 180.0
SECONDS_TO_STOP: Final = 30.0


@contextmanager
def start_local_server(folder: Path, port: int | None = None) -> Iterator[str]:
    """Start a Prefect server that only this machine reaches, and name it in this process's environment.

    Args:
        folder: receives its database and its log; made with mode 0700.
        port: 4200 for Prefect's page, whose script expects it there; None for a free one.

    Yields:
        the address of its page.

    Raises:
        EnvironmentProblem: Prefect is not installed, or the server has not begun to answer, for instance because
            something else listens at the port.
    """
    require_orchestration()
    port = port or _free_port()
    folder.mkdir(mode=0o700, exist_ok=True)
    environment = {**os.environ, "PREFECT_HOME": str(folder), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    environment.pop(API_VARIABLE, None)
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", LOOPBACK, "--port", str(port)]
    with os.fdopen(os.open(folder / "server.log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603
    try:
        _wait(process, port)
        with set_environment({API_VARIABLE: f"http://{LOOPBACK}:{port}/api"}):
            yield f"http://{LOOPBACK}:{port}"
    finally:
        _stop(process)


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    import httpx

    patience = time.monotonic() + SECONDS_TO_START
    while process.poll() is None and time.monotonic() < patience:
        try:
            if httpx.get(f"http://{LOOPBACK}:{port}/api/health", timeout=2, trust_env=False).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.3)
    raise EnvironmentProblem(
        f"Prefect's server has not begun to answer at port {port}.",
        "Its log is prefect/server.log in the home. If the port is taken, name another one with --ui-port.",
        {"port": port},
        code="LocalServerFailed",
    )


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
