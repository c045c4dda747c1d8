"""Report of a flow's run to a Prefect server, where one is configured, so that its page shows the run and its stages.

The server is a window and no door: a run asks it for nothing, waits for it at its end alone, and goes on whether or not
it answers. It says (`flows.observability.tracing`): the flow, its stages, the request's number
and how each ended, by the name of an error and never by its text. What a stage has read is private, and so is the time
that it took: states are sent in few steps after the beginning, or when the flow ends. A flow whose time grows with the
private corpus is reported when it has ended, as a whole (docs/observability.md).

Prefect itself is not imported: its REST API (version 3) takes eight requests.
"""

import base64
import math
import os
import re
import socket
import ssl
import threading
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from flows.observability.request_links import dashboard_address, describe_links
from tasks.common.files import write_over
from tasks.common.progress import tell
from tasks.inference.backends.silence_http_log import silence_log
from tasks.prefect_task import is_in_flow_run

if TYPE_CHECKING:
    import httpx

Result = TypeVar("Result")

API_VARIABLE: Final = "PREFECT_API_URL"
KEY_VARIABLE: Final = "PREFECT_API_KEY"
CERTIFICATE_VARIABLE: Final = "PREFECT_API_SSL_CERT_FILE"
PASSWORD_VARIABLE: Final = "PREFECT_API_AUTH_STRING"  # noqa: S105  # the name of a variable
SECONDS_TO_CONNECT: Final = 2.0
"""The longest that a flow waits at its end for a server to which there is no connection yet."""
SECONDS_TO_ANSWER: Final = 5.0
SECONDS_AT_THE_END: Final = 10.0
"""The longest that a flow waits for its last states to be taken by a server that it has reached."""
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
BUSY: Final = (429, 503)
"""Statuses of a server that has taken nothing yet and asks to be told again: Prefect's, while its SQLite is locked."""
SECONDS_BETWEEN_TRIES: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
CANCELLED: Final = ("RunInterrupted", "KeyboardInterrupt")
TAG: Final = "almoner"
AWAITING_RETRY: Final = {"type": "SCHEDULED", "name": "AwaitingRetry"}
RETRYING: Final = {"type": "RUNNING", "name": "Retrying"}
"""States by the names that Prefect's own engine gives them."""
INSTALMENT_GROUPS: Final = 10
"""Most task runs for the instalments of one request."""
RUNNING_FILE: Final = "flow-runs"
RUN_ID: Final = re.compile(r"[0-9a-f-]{36}")
MOST_EARLIER_RUNS: Final = 20


@dataclass(frozen=True)
class PrefectApi:
    """Address of a Prefect server's API, and how it is reached.

    Attributes:
        headers: with the key or password, which is in no repr.
        certificate: path of the authorities that vouch for the server; None for those of the system.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificate: str | None = None

    @classmethod
    def configured(cls) -> "PrefectApi | None":
        """Return the API of the environment, else of Prefect's active profile; None without one.

        An address that is no http or https address counts as none.
        """
        settings = {**_active_profile(), **os.environ}
        url = settings.get(API_VARIABLE, "")
        if urlsplit(url).scheme not in ("http", "https"):
            return None
        headers: dict[str, str] = {}
        if key := settings.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        elif password := settings.get(PASSWORD_VARIABLE):
            headers["Authorization"] = f"Basic {base64.b64encode(password.encode()).decode()}"
        return cls(url.rstrip("/"), headers, settings.get(CERTIFICATE_VARIABLE) or None)


def _active_profile() -> dict[str, str]:
    """Return the settings of Prefect's active profile; none if it has no file that can be read."""
    folder = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    try:
        profiles = tomllib.loads((folder / "profiles.toml").read_text(encoding="utf-8"))
        active = os.environ.get("PREFECT_PROFILE") or profiles["active"]
        return {name: value for name, value in profiles["profiles"][active].items() if isinstance(value, str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


@dataclass
class FlowReport:
    """Report of one flow run to a Prefect server, sent by a thread of its own.

    Attributes:
        steps: seconds after the beginning at which the states of stages are sent, beside the end; without any, the
            server hears of the run when it has ended, and learns no duration.
        around: id of the flow run to which the stages belong; None: the report creates one, and says how it ended.
        failed: True if the server does not answer, or refuses a report.
    """

    api: PrefectApi
    flow: str
    steps: Sequence[float] = ()
    around: str | None = None
    failed: bool = False
    _run: str | None = None
    _kept_in: Path | None = None
    _group: str | None = None
    _events: "list[Callable[[_Server, str], None]]" = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)
    _connection_tried: threading.Event = field(default_factory=threading.Event)
    _outcome: str = "done"

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._send, name="prefect report", daemon=True)
        self._thread.start()

    def name_request(self, number: int) -> None:
        """Say which request the flow is about."""
        self._name_run(f"{self.flow}-request-{number}", {"request": number})

    def name_proposal(self, kind: str, number: int, request: int | None) -> None:
        """Say which proposal the flow is about, and the release of which request it would retract."""
        of_request = {} if request is None else {"request": request}
        self._name_run(f"{self.flow}-{kind}-{number}", {"proposal": number, **of_request})

    def _name_run(self, name: str, subjects: Mapping[str, int]) -> None:
        if self.around is None:
            self._add(lambda server, run: server.name_run(run, name, subjects))

    def begin_stage(self, name: str) -> None:
        """Say that a stage begins."""
        self._add(lambda server, run: server.begin_stage(run, name))

    def await_retry(self, name: str) -> None:
        """Say that a stage met a temporary fault, and waits before it is tried again."""
        self._add(lambda server, run: server.set_stage(name, AWAITING_RETRY))

    def retry_stage(self, name: str) -> None:
        """Say that a stage is tried again."""
        self._add(lambda server, run: server.set_stage(name, RETRYING))

    def end_stage(self, name: str, outcome: str) -> None:
        """Say how a stage ended, and the group of instalments in it: `done`, or the name of an error."""
        self._end_group(outcome)
        self._add(lambda server, run: server.set_stage(name, _final_state(outcome)))

    def begin_instalment(self, number: int, total: int) -> None:
        """Say that one of the plan's instalments is paid; a group of them is one task run.

        Args:
            number: from 1 to `total`, public numbers both.
        """
        size = math.ceil(total / INSTALMENT_GROUPS)
        first = (number - 1) // size * size + 1
        last = min(first + size - 1, total)
        group = f"instalments {first} to {last} of {total}" if last > first else f"instalment {first} of {total}"
        if group != self._group:
            self._end_group("done")
            self._group = group
            self.begin_stage(group)

    def _end_group(self, outcome: str) -> None:
        group, self._group = self._group, None
        if group is not None:
            self._add(lambda server, run: server.set_stage(group, _final_state(outcome)))

    def keep_run(self, folder: Path) -> None:
        """Keep the flow run's id in `folder` until it ends. Runs whose ids are there already died: they are closed.

        Only the process that holds the request's lease may call this.
        """
        if self.around is not None:
            return
        with self._lock:
            self._kept_in = folder / RUNNING_FILE
            earlier = [each for each in _read_ids(self._kept_in) if each != self._run]
            self._keep_id()
        self._add(lambda server, run: server.crash_runs(earlier))

    def _keep_id(self) -> None:
        if self._run is not None and self._kept_in is not None:
            ids = [*_read_ids(self._kept_in), self._run]
            with suppress(OSError):  # the page of a run that dies stays open; nothing else
                self._kept_in.parent.mkdir(mode=0o700, exist_ok=True)
                lines = "".join(f"{each}\n" for each in dict.fromkeys(ids))
                write_over(self._kept_in, lines.encode("ascii"), 0o600, durable=False)

    def end(self, outcome: str) -> None:
        """Send the remaining events and the outcome of the flow. Waits for the server, but not for long."""
        self._outcome = outcome
        self._end_group(outcome)
        self._ended.set()
        if self._connection_tried.wait(SECONDS_TO_CONNECT):
            self._thread.join(SECONDS_AT_THE_END)
        if self.failed or self._thread.is_alive():
            tell("Prefect's server was not told of this: it does not answer, or refuses it. Nothing else is changed.")

    def _add(self, event: "Callable[[_Server, str], None]") -> None:
        with self._lock:
            self._events.append(event)

    def _send(self) -> None:
        if not self.steps:
            self._ended.wait()
        try:
            _connect_once(self.api.url)
        except (OSError, ValueError):
            self.failed = True
            return
        finally:
            self._connection_tried.set()
        import httpx

        from tasks.inference.backends.deadlines import TimedTransport

        try:
            authorities = ssl.create_default_context(cafile=self.api.certificate)
            with (
                silence_log(),
                httpx.Client(
                    base_url=self.api.url,
                    headers=self.api.headers,
                    timeout=SECONDS_TO_ANSWER,
                    trust_env=False,
                    transport=TimedTransport(verify=authorities, trust_env=False),
                ) as client,
            ):
                self._report(_Server(client))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, KeyError, TypeError):
            self.failed = True

    def _report(self, server: "_Server") -> None:
        run, passed = self.around or server.create_run(self.flow), 0.0
        with self._lock:
            self._run = run
            self._keep_id()
        for step in self.steps:
            if self._ended.wait(step - passed):
                break
            passed = step
            self._send_events(server, run)
        self._ended.wait()
        self._send_events(server, run)
        if self.around is None:
            server.end_run(run, self._outcome)
            if self._kept_in is not None:
                self._kept_in.unlink(missing_ok=True)

    def _send_events(self, server: "_Server", run: str) -> None:
        with self._lock:
            events, self._events = self._events, []
        for event in events:
            event(server, run)


def _connect_once(url: str) -> None:
    """Connect to a server and hang up: one that is gone is found here, before a flow waits for its answers.

    Raises:
        OSError: nobody accepts the connection.
        ValueError: the address has no host or no such port.
    """
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("the address has no host")
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    socket.create_connection((parts.hostname, port), SECONDS_TO_CONNECT).close()


def _read_ids(path: Path) -> list[str]:
    """Return the ids of flow runs in a file, which only names what a page shows; none if it is damaged."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []
    return [line for line in lines if RUN_ID.fullmatch(line)][-MOST_EARLIER_RUNS:]


@dataclass
class _Server:
    """The requests of Prefect's REST API that a report takes."""

    client: "httpx.Client"
    stages: dict[str, str] = field(default_factory=dict)

    def create_run(self, flow: str) -> str:
        """Create a flow run that is running; return its id."""
        flow_id = self._post("/flows/", {"name": f"almoner {flow}"})["id"]
        body = {"flow_id": flow_id, "name": flow, "tags": [TAG], "state": {"type": "PENDING"}}
        run = str(self._post("/flow_runs/", body)["id"])
        self._set_state("flow_runs", run, {"type": "RUNNING"})
        return run

    def name_run(self, run: str, name: str, subjects: Mapping[str, int]) -> None:
        """Name a flow run after what it is about, and attach the page that says where to look further on a request."""
        tags = [TAG, *(f"{kind}:{number}" for kind, number in subjects.items())]
        self._request("PATCH", f"/flow_runs/{run}", {"name": name, "tags": tags})
        if (request := subjects.get("request")) is not None:
            page = {"key": f"request-{request}", "type": "markdown", "data": describe_links(request)}
            self._post("/artifacts/", {**page, "flow_run_id": run})

    def begin_stage(self, run: str, name: str) -> None:
        """Create the task run of a stage."""
        body = {"flow_run_id": run, "name": name, "task_key": name, "dynamic_key": str(len(self.stages)),
                "tags": [TAG], "state": {"type": "PENDING"}}  # fmt: skip
        self.stages[name] = str(self._post("/task_runs/", body)["id"])
        self.set_stage(name, {"type": "RUNNING"})

    def set_stage(self, name: str, state: Mapping[str, str]) -> None:
        """Say in which state a stage is that has begun."""
        self._set_state("task_runs", self.stages[name], state)

    def end_run(self, run: str, outcome: str) -> None:
        """Say how the flow ended."""
        self._set_state("flow_runs", run, _final_state(outcome))

    def crash_runs(self, runs: Sequence[str]) -> None:
        """Say that other runs of this request died; a run that the server no longer has is left alone."""
        for run in runs:
            answer = self._ask("GET", f"/flow_runs/{run}")
            if answer.is_success and answer.json()["state_type"] == "RUNNING":
                self._set_state("flow_runs", run, {"type": "CRASHED", "message": "the process died"})

    def _set_state(self, kind: str, run: str, state: Mapping[str, str]) -> None:
        """Set the state of a flow run or task run; it is a fact, so no rule of the server may refuse it."""
        self._post(f"/{kind}/{run}/set_state", {"state": state, "force": True})

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._request("POST", path, body).json()

    def _request(self, method: str, path: str, body: Mapping[str, Any]) -> "httpx.Response":
        """Send a request, again for as long as the server is busy; a lost one would leave a run open on the page."""
        answer = self._ask(method, path, body)
        for seconds in SECONDS_BETWEEN_TRIES:
            if answer.status_code not in BUSY:
                break
            time.sleep(seconds)
            answer = self._ask(method, path, body)
        return answer.raise_for_status()

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> "httpx.Response":
        from tasks.inference.backends.deadlines import with_deadline

        with with_deadline(time.monotonic() + SECONDS_TO_ANSWER):
            return self.client.request(method, path, json=body)


def _final_state(outcome: str) -> dict[str, str]:
    """Return the state of an outcome: `done`, or the name of an error, which is its message."""
    if outcome == "done":
        return {"type": "COMPLETED"}
    return {"type": "CANCELLED" if outcome in CANCELLED else "FAILED", "message": outcome}


_FLOW_RUN_AROUND: ContextVar[str | None] = ContextVar("flow run around", default=None)


def open_report(flow: str, steps: Sequence[float]) -> FlowReport | None:
    """Begin to report a flow's run; None without a Prefect API, or inside a Prefect flow run, which shows itself.

    Raises:
        InvalidDashboardAddress: the report could not link to the dashboard.
    """
    if is_in_flow_run() or (api := PrefectApi.configured()) is None:
        return None
    dashboard_address()
    return FlowReport(api, flow, steps, _FLOW_RUN_AROUND.get())


def call_outside_engine(function: Callable[[], Result], flow_run: str) -> Result:
    """Call a function as if no Prefect flow run were under way, and report its stages as parts of `flow_run`.

    Prefect's engine would record when each stage began and ended to the microsecond; a report says it in steps.
    """

    def call() -> Result:
        _FLOW_RUN_AROUND.set(flow_run)
        return function()

    return Context().run(call)
