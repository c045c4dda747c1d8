"""No telemetry leaves a Python script that uses almoner, also at a terminal, where Prefect would send its own.

Each case is a process of its own under a pseudo-terminal, in a fresh PREFECT_HOME, with Prefect's analytics client and
every socket intercepted. The same process with the settings taken away is noticed, so the interception works.
"""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.contract

CONCERNS = ("flows/__init__.py", "tasks/__init__.py")

ROOT = Path(__file__).parents[2]
WATCHED = """
import json, os, socket, sys
left = []
def watch(owner, name, what):
    def intercepted(*given, **named):
        left.append([name, what(given)])
        raise OSError("intercepted")
    setattr(owner, name, intercepted)
watch(socket.socket, "connect", lambda given: repr(given[1:]))
watch(socket.socket, "connect_ex", lambda given: repr(given[1:]))
watch(socket, "getaddrinfo", lambda given: repr(given[:2]))
watch(socket, "create_connection", lambda given: repr(given[:1]))
import amplitude
amplitude.Amplitude.track = lambda self, event: left.append(["track", event.event_type])
MUTATION
IMPORTS
from prefect import flow
@flow
def one() -> None: ...
from prefect._internal.analytics.service import AnalyticsService
service = AnalyticsService._instance
if service is not None and service._thread is not None:
    service.wait_for_analytics_check(60)
    service._queue.put_nowait(None)
    service._shutdown_requested = not service._analytics_enabled
    while service._analytics_enabled and not service._queue.empty(): pass
    service.shutdown(60)
json.dump({"left": left, "terminal": sys.stdout.isatty()}, open(sys.argv[1], "w"))
"""
NO_SETTING = "os.environ.setdefault = lambda *given: None"
"""The mutation: almoner as it would be if it set nothing."""
CI = ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "JENKINS_URL", "BUILDKITE", "TF_BUILD", "CI_NAME", "DRONE", "BUDDY")


def observed(folder: Path, imports: str, mutation: str = "", **environment: str) -> Mapping[str, Any]:
    """What a script at a terminal would have sent."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PREFECT_") and name not in (*CI, "DO_NOT_TRACK")
    }
    found, script = folder / "found.json", WATCHED.replace("IMPORTS", imports).replace("MUTATION", mutation)
    keyboard, terminal = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", script, str(found)], stdin=terminal, stdout=terminal, stderr=terminal, check=True,
            cwd=ROOT, env={**own, "PREFECT_HOME": str(folder / "prefect"), **environment}, timeout=300,
        )  # fmt: skip
    finally:
        os.close(terminal)
        os.close(keyboard)
    told: Mapping[str, Any] = json.loads(found.read_text())
    assert told["terminal"]
    return told


@pytest.mark.slow_except("import cli.app")
@pytest.mark.parametrize(
    "imports",
    [
        "import flows",
        "import flows.releases.propose",
        "from tasks.prefect_task import private_task",
        "import cli.app",
    ],
)
def test_no_telemetry_leaves_a_script(tmp_path: Path, imports: str) -> None:
    told = observed(tmp_path, imports)
    assert told["left"] == []


@pytest.mark.slow
def test_telemetry_that_leaves_would_be_noticed(tmp_path: Path) -> None:
    """The same script, in which almoner sets nothing."""
    told = observed(tmp_path, "import flows.releases.propose", NO_SETTING)
    assert ["track", "first_sdk_import"] in told["left"]
    assert ["track", "first_flow_defined"] in told["left"]


@pytest.mark.slow
def test_each_of_the_two_settings_keeps_it_back(tmp_path: Path) -> None:
    for name, loud in (("DO_NOT_TRACK", "0"), ("PREFECT_SERVER_ANALYTICS_ENABLED", "true")):
        folder = tmp_path / name
        folder.mkdir()
        assert observed(folder, "import flows.releases.propose", **{name: loud})["left"] == []


@pytest.mark.slow
def test_what_a_user_has_set_stands(tmp_path: Path) -> None:
    told = observed(
        tmp_path, "import flows.releases.propose", DO_NOT_TRACK="0", PREFECT_SERVER_ANALYTICS_ENABLED="true"
    )
    assert ["track", "first_sdk_import"] in told["left"]
