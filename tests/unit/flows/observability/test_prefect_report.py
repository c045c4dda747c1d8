"""What a Prefect server is told of a flow, when, and that nothing depends on it."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from flows.observability import prefect_report, tracing
from flows.observability.prefect_report import FlowReport, PrefectApi, open_report
from tests.support import PATIENCE

KEY = "pnu_quartermaine"


class Heard:
    """A server that writes down what it is asked, and answers with an id or an error."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any, str]] = []
        self.status = 201
        heard = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"null")
                heard.requests.append((self.command, self.path, body, self.headers.get("authorization", "")))
                self.send_response(heard.status)
                self.end_headers()
                self.wfile.write(json.dumps({"id": f"id-{len(heard.requests)}"}).encode())

            do_POST = do_PATCH = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/api"

    def states(self) -> list[tuple[str, str]]:
        """The states that were set, of flow runs and of task runs, in order."""
        return [
            (path.split("/")[2], body["state"]["type"])
            for _, path, body, _ in list(self.requests)
            if path.endswith("/set_state")
        ]


@pytest.fixture
def server() -> Iterator[Heard]:
    heard = Heard()
    yield heard
    heard.server.shutdown()
    heard.server.server_close()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own configuration."""
    for name in ("PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING", "PREFECT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))


def until(condition: Any) -> None:
    patience = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.005)


def test_stages_are_told_at_steps_and_at_the_end(server: Heard) -> None:
    report = FlowReport(PrefectApi(server.url), "execute", (0.3, PATIENCE * 10))
    report.begin_stage("hold")
    report.end_stage("hold", "done")
    until(lambda: server.states())
    assert server.states() == [("flow_runs", "RUNNING")], "a stage is told before its step"
    until(lambda: len(server.states()) == 3)
    report.begin_stage("generate")
    time.sleep(0.2)
    assert len(server.states()) == 3, "a stage is told between two steps"
    report.end_stage("generate", "BudgetExceeded")
    report.name_request(7)
    report.end("BudgetExceeded")
    assert server.states() == [
        ("flow_runs", "RUNNING"), ("task_runs", "RUNNING"), ("task_runs", "COMPLETED"),
        ("task_runs", "RUNNING"), ("task_runs", "FAILED"), ("flow_runs", "FAILED"),
    ]  # fmt: skip
    named = [body for command, _, body, _ in server.requests if command == "PATCH"]
    assert named[-1] == {"name": "execute-request-7", "tags": ["almoner", "request:7"]}
    assert server.requests[-1][2]["state"]["message"] == "BudgetExceeded"


def test_a_flow_that_is_not_live_is_told_when_it_has_ended(server: Heard) -> None:
    report = FlowReport(PrefectApi(server.url), "ingest")
    report.begin_stage("store")
    time.sleep(0.2)
    assert server.requests == []
    report.end_stage("store", "done")
    report.end("done")
    assert [state for _, state in server.states()] == ["RUNNING", "RUNNING", "COMPLETED", "COMPLETED"]


def test_an_interruption_is_a_cancellation(server: Heard) -> None:
    report = FlowReport(PrefectApi(server.url), "execute")
    report.end("RunInterrupted")
    assert server.states()[-1] == ("flow_runs", "CANCELLED")


@pytest.mark.parametrize("status", [401, 404, 422, 500])
def test_a_server_that_refuses_changes_nothing(
    server: Heard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    server.status = status
    monkeypatch.setenv("PREFECT_API_URL", server.url)

    @tracing.traced("execute")
    def work() -> int:
        with tracing.stage("generate"):
            return 5

    sentences: list[str] = []
    monkeypatch.setattr(prefect_report, "tell", sentences.append)
    assert work() == 5
    assert len(sentences) == 1
    assert "Nothing else is changed" in sentences[0]


def test_a_server_that_hangs_keeps_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_report, "SECONDS_AT_THE_END", 0.05)
    monkeypatch.setattr(FlowReport, "_send", lambda self: threading.Event().wait(1))
    sentences: list[str] = []
    monkeypatch.setattr(prefect_report, "tell", sentences.append)
    report = FlowReport(PrefectApi("http://127.0.0.1:9/api"), "execute")
    began = time.monotonic()
    report.end("done")
    assert time.monotonic() - began < 1
    assert len(sentences) == 1


def test_an_error_is_told_by_its_name_alone(server: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", server.url)

    @tracing.traced("execute")
    def work() -> None:
        with tracing.stage("generate"):
            raise ValueError(KEY)

    with pytest.raises(ValueError, match=KEY):
        work()
    assert server.states()[-2:] == [("task_runs", "FAILED"), ("flow_runs", "FAILED")]
    assert KEY not in str(server.requests)


def test_without_an_api_there_is_no_report() -> None:
    assert open_report("execute", tracing.DURATION_STEPS) is None


def test_no_flow_imports_prefect() -> None:
    modules = "flows.releases.propose, flows.releases.execute, flows.releases.publish, flows.datasets.register"
    code = f"import sys, {modules}; sys.exit('prefect' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_certificate_that_is_none_is_a_server_that_is_not_told(server: Heard, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for path in (tmp_path / "ca.pem", tmp_path / "missing.pem"):
        report = FlowReport(PrefectApi(server.url, certificate=str(path)), "execute")
        report.end("done")
        assert report.failed
    assert server.requests == []


@pytest.mark.parametrize("url", ["", "file:///etc", "ftp://host/api", "prefect:4200"])
def test_an_address_of_another_kind_is_none(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("PREFECT_API_URL", url)
    assert PrefectApi.configured() is None


def test_the_active_profile_counts_and_the_environment_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "prefect"
    folder.mkdir()
    (folder / "profiles.toml").write_text(
        'active = "team"\n[profiles.team]\nPREFECT_API_URL = "http://team:4200/api/"\n'
        f'PREFECT_API_KEY = "{KEY}"\n[profiles.other]\nPREFECT_API_URL = "http://other:4200/api"\n'
    )
    api = PrefectApi.configured()
    assert api is not None
    assert api.url == "http://team:4200/api"
    assert api.headers == {"Authorization": f"Bearer {KEY}"}
    assert KEY not in repr(api)
    monkeypatch.setenv("PREFECT_PROFILE", "other")
    assert PrefectApi.configured() == PrefectApi("http://other:4200/api")
    monkeypatch.setenv("PREFECT_API_URL", "http://mine/api")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "admin:pass")
    assert PrefectApi.configured() == PrefectApi("http://mine/api", {"Authorization": "Basic YWRtaW46cGFzcw=="})


@pytest.mark.parametrize("content", ["", "active = 1", "[profiles", 'active = "a"\n[profiles.a]\nPREFECT_API_URL = 4'])
def test_a_profile_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "profiles.toml").write_text(content)
    assert PrefectApi.configured() is None
