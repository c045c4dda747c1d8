"""Prefect's page in a browser: it shows a release's flow run with its task runs, and nothing private."""

import time
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest

from flows.orchestration.local_server import start_local_server
from tasks.evaluation.registry import METRICS
from tests.browser.chromium import Tab, running
from tests.faults import Failing, temporary, waits
from tests.integration.canary import leaks
from tests.integration.story import Almoner
from tests.support import PATIENCE, free_port, substitute

pytestmark = [pytest.mark.slow, pytest.mark.browser]
CONCERNS = ("flows/observability", "flows/orchestration")
DESK = 1280


def shown(tab: Tab, until: Callable[[str], bool]) -> str:
    """The words of a page, once they are there: its script asks the server for them."""
    patience = time.monotonic() + PATIENCE
    while not until(words := str(tab.ask("document.body.innerText"))):
        assert time.monotonic() < patience, words
        time.sleep(0.2)
    return words


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Prefect's connections to it stay open
def test_a_run_is_on_the_page_with_its_stages_and_metrics(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.approved()
    faulty = Failing(METRICS["length"].compute, temporary())
    substitute(monkeypatch, METRICS, "length", replace(METRICS["length"], compute=faulty))
    port = free_port()
    monkeypatch.setenv("PREFECT_UI_API_URL", f"http://127.0.0.1:{port}/api")  # else its script asks port 4200
    with start_local_server(almoner.home.prefect, port) as page, running() as tab:
        with waits():
            almoner.type("run 1")
        (run,) = httpx.post(f"{page}/api/flow_runs/filter", json={}, trust_env=False).json()
        tab.open(f"{page}/runs/flow-run/{run['id']}", DESK)
        words = shown(tab, lambda words: "Completed" in words and "execute-request-1" in words)
        tasks = {each["name"]: each["id"] for each in
                 httpx.post(f"{page}/api/task_runs/filter", json={}, trust_env=False).json()}  # fmt: skip
        assert {"hold", "generate", "evaluate", "evaluate length", "commit"} <= tasks.keys()
        tab.open(f"{page}/runs/task-run/{tasks['evaluate length']}", DESK)
        words += shown(tab, lambda words: "evaluate length" in words and "Completed" in words)
    assert leaks(words) == []
