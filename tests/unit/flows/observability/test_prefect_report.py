"""What a Prefect server is told of a flow, when, and that nothing depends on it."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from flows.observability import prefect_report, tracing
from flows.observability.prefect_report import FlowReport, PrefectApi, open_report
from tasks.common.retry import retry
from tests.faults import Failing, temporary, waits
from tests.support import PATIENCE

CONCERNS = ("flows", "tasks/prefect_task.py")

KEY = "pnu_quartermaine"


class Heard:
    """A server that writes down what it is asked, and answers with an id or an error."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any, str]] = []
        self.status = 201
        self.busy: list[int] = []
        """Statuses with which the next requests are turned away, before they are written down."""
        self.running = False
        heard = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"null")
                if heard.busy:
                    self.send_response(heard.busy.pop())
                    self.end_headers()
                    return
                heard.requests.append((self.command, self.path, body, self.headers.get("authorization", "")))
                self.send_response(heard.status)
                self.end_headers()
                state = "RUNNING" if heard.running else "COMPLETED"
                answer = {"id": str(UUID(int=len(heard.requests))), "state_type": state}
                self.wfile.write(json.dumps(answer).encode())

            do_GET = do_POST = do_PATCH = answer  # noqa: N815

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


def test_a_proposal_names_its_run_and_links_to_the_request_that_it_would_retract(server: Heard) -> None:
    for kind, request in (("retraction", 2), ("cap", None)):
        report = FlowReport(PrefectApi(server.url), "approve")
        report.name_proposal(kind, 5, request)
        report.end("done")
    named = [body for command, _, body, _ in server.requests if command == "PATCH"]
    assert named == [
        {"name": "approve-retraction-5", "tags": ["almoner", "proposal:5", "request:2"]},
        {"name": "approve-cap-5", "tags": ["almoner", "proposal:5"]},
    ]
    assert [body["key"] for _, path, body, _ in server.requests if path.endswith("/artifacts/")] == ["request-2"]


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


def test_a_server_that_is_busy_is_told_again(server: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own database is locked for a moment, as under several workers: the run would stay open on its page."""
    monkeypatch.setattr(prefect_report, "SECONDS_BETWEEN_TRIES", (0.0, 0.0))
    sentences: list[str] = []
    monkeypatch.setattr(prefect_report, "tell", sentences.append)
    report = FlowReport(PrefectApi(server.url), "execute")
    report.name_request(7)
    server.busy = [503, 429]
    report.end("done")
    assert server.states() == [("flow_runs", "RUNNING"), ("flow_runs", "COMPLETED")]
    assert sentences == []

    report = FlowReport(PrefectApi(server.url), "execute")
    server.busy = [503] * 3
    report.end("done")
    assert len(sentences) == 1


@pytest.fixture
def sentences(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a report says on the terminal."""
    found: list[str] = []
    monkeypatch.setattr(prefect_report, "tell", found.append)
    return found


@pytest.mark.parametrize("connected", [True, False])
def test_a_flow_ends_although_its_server_hangs(
    monkeypatch: pytest.MonkeyPatch, sentences: list[str], connected: bool
) -> None:
    let_go = threading.Event()

    def hang(report: FlowReport) -> None:
        if connected:
            report._connection_tried.set()
        let_go.wait(PATIENCE)

    monkeypatch.setattr(prefect_report, "SECONDS_AT_THE_END", 0.05 if connected else PATIENCE)
    monkeypatch.setattr(prefect_report, "SECONDS_TO_CONNECT", PATIENCE if connected else 0.05)
    monkeypatch.setattr(FlowReport, "_send", hang)
    report = FlowReport(PrefectApi("http://127.0.0.1:9/api"), "execute")
    report.end("done")
    assert report._thread.is_alive(), "the flow waited for its server"
    assert len(sentences) == 1
    let_go.set()


@pytest.mark.parametrize("steps", [(), (PATIENCE,)], ids=["at the end", "live"])
def test_a_server_that_accepts_no_connection_is_given_up_at_the_limit_for_connections(
    monkeypatch: pytest.MonkeyPatch, sentences: list[str], steps: tuple[float, ...]
) -> None:
    """As a machine that is gone: a connection is neither refused nor accepted. All other limits are longer."""
    monkeypatch.setattr(prefect_report, "SECONDS_TO_CONNECT", 0.05)
    for longer in ("SECONDS_TO_ANSWER", "SECONDS_AT_THE_END"):
        monkeypatch.setattr(prefect_report, longer, PATIENCE)
    with socket.socket() as full, ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(8):  # its queue is full of these, and it takes none
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        report = FlowReport(PrefectApi(f"http://127.0.0.1:{full.getsockname()[1]}/api"), "approve", steps)
        report.end("done")
        report._thread.join(PATIENCE)
    assert report.failed
    assert len(sentences) == 1


@pytest.mark.parametrize("url", ["http:///api", "http://127.0.0.1:99999/api"])
def test_an_address_without_a_host_or_port_is_a_server_that_is_not_told(sentences: list[str], url: str) -> None:
    report = FlowReport(PrefectApi(url), "approve")
    report.end("done")
    assert report.failed
    assert len(sentences) == 1


def test_a_flow_that_is_not_live_opens_no_connection_before_its_end(
    server: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time between two connections would tell the server how long the flow took."""
    connected = Failing(prefect_report._connect_once)
    monkeypatch.setattr(prefect_report, "_connect_once", connected)
    report = FlowReport(PrefectApi(server.url), "ingest")
    live = FlowReport(PrefectApi(server.url), "execute", (PATIENCE,))
    until(lambda: connected.calls == 1)  # that of the live one
    live.end("done")
    time.sleep(0.2)
    assert connected.calls == 1
    report.end("done")
    assert connected.calls == 2


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


@pytest.mark.slow
def test_no_flow_imports_prefect() -> None:
    releases = "flows.releases.propose, flows.releases.execute, flows.releases.publish"
    approvals = "flows.approvals.decide, flows.approvals.propose_change, flows.approvals.delegate"
    modules = f"{releases}, {approvals}, flows.datasets.register, flows.datasets.erase"
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


def test_instalments_are_shown_in_at_most_ten_groups(server: Heard) -> None:
    report = FlowReport(PrefectApi(server.url), "execute")
    report.begin_stage("generate")
    for number in range(1, 37):
        report.begin_instalment(number, 36)
    report.end_stage("generate", "done")
    report.end("done")
    names = [body["name"] for _, path, body, _ in server.requests if path.endswith("/task_runs/")]
    assert names == ["generate", *(f"instalments {first} to {first + 3} of 36" for first in range(1, 37, 4))]
    assert [state for _, state in server.states()].count("COMPLETED") == 1 + 9 + 1


def test_the_innermost_part_waits_for_a_retry(server: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", server.url)

    @tracing.traced("execute")
    def work() -> None:
        with tracing.stage("evaluate"):
            with tracing.stage("evaluate length"):
                retry(Failing(lambda: None, temporary()), "length")
            retry(Failing(lambda: None, temporary()), "loading the embedder")
        retry(Failing(lambda: None, temporary()), "outside of every stage")

    with waits() as seconds:
        work()
    assert seconds == [10, 10, 10]
    names = {
        str(UUID(int=number)): body["name"]
        for number, (_, path, body, _) in enumerate(server.requests, 1)
        if path.endswith("/task_runs/")
    }
    told = [
        (names[path.split("/")[3]], body["state"].get("name", body["state"]["type"]))
        for _, path, body, _ in server.requests
        if path.startswith("/api/task_runs/") and path.endswith("/set_state")
    ]
    again = ["AwaitingRetry", "Retrying"]
    assert [state for name, state in told if name == "evaluate length"] == ["RUNNING", *again, "COMPLETED"]
    assert [state for name, state in told if name == "evaluate"] == ["RUNNING", *again, "COMPLETED"]
    assert "zanzibarquux" not in repr(server.requests)


def test_a_group_ends_as_its_stage_does(server: Heard) -> None:
    report = FlowReport(PrefectApi(server.url), "execute")
    report.begin_stage("generate")
    report.begin_instalment(1, 1)
    report.end_stage("generate", "OutOfMemory")
    report.end("OutOfMemory")
    assert [state for _, state in server.states()][-3:] == ["FAILED", "FAILED", "FAILED"]


def test_the_page_of_a_run_that_died_is_closed(server: Heard, tmp_path: Path) -> None:
    """Its id is kept while it runs; whoever holds the lease next says that it died."""
    folder = tmp_path / "3-unfinished"
    died = FlowReport(PrefectApi(server.url), "execute", (PATIENCE,))
    died.keep_run(folder)
    kept = folder / prefect_report.RUNNING_FILE
    until(kept.exists)
    (earlier,) = kept.read_text().split()
    assert kept.stat().st_mode & 0o777 == 0o600
    server.running = True
    report = FlowReport(PrefectApi(server.url), "execute")
    report.keep_run(folder)
    report.end("done")
    closed = [path for _, path, body, _ in server.requests if body and body.get("state", {}).get("type") == "CRASHED"]
    assert closed == [f"/api/flow_runs/{earlier}/set_state"]
    assert not kept.exists()
    died.end("done")


@pytest.mark.parametrize("damage", [b"\xff", b"../../x\n", b"id-1\n" * 3, b""])
def test_a_damaged_file_of_ids_closes_nothing(server: Heard, tmp_path: Path, damage: bytes) -> None:
    (tmp_path / prefect_report.RUNNING_FILE).write_bytes(damage)
    report = FlowReport(PrefectApi(server.url), "execute")
    report.keep_run(tmp_path)
    report.end("done")
    assert not report.failed
    assert [command for command, *_ in server.requests if command == "GET"] == []
