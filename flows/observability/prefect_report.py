"""Report of a flow's run to a Prefect server, where one is configured, so that its page shows the run and its stages.

The server is a window and no door: a run asks it for nothing, waits for it at its end alone, and goes on whether or not
it answers. A report says what a trace says (`flows.observability.tracing`): the flow, its stages, the request's number
and how each ended, by the name of an error and never by its text. What a stage has read is private, and so is the time
that it took: states are sent in few steps after the beginning, or when the flow ends. A flow whose time grows with the
private corpus is reported when it has ended, as a whole (docs/observability.md).

Prefect itself is not imported: its REST API (version 3) takes eight requests.
"""

import base64
import os
import ssl
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from tasks.common.progress import tell
from tasks.inference.backends.silence_http_log import silence_log
from tasks.prefect_task import is_in_flow_run

if TYPE_CHECKING:
    import httpx

API_VARIABLE: Final = "PREFECT_API_URL"
KEY_VARIABLE: Final = "PREFECT_API_KEY"
CERTIFICATE_VARIABLE: Final = "PREFECT_API_SSL_CERT_FILE"
PASSWORD_VARIABLE: Final = "PREFECT_API_AUTH_STRING"  # noqa: S105  # the name of a variable
REPORT_STEPS: Final = (60, 300, 900, 3600, 14400, 43200)
"""Seconds after the beginning of a flow at which the states of its stages are sent; and when it ends."""
SECONDS_TO_ANSWER: Final = 5.0
SECONDS_AT_THE_END: Final = 10.0
"""The longest that a flow waits for its last states to be taken."""
CANCELLED: Final = ("RunInterrupted", "KeyboardInterrupt")
TAG: Final = "almoner"
WHERE_TO_LOOK: Final = """| of request {number} | command |
| --- | --- |
| price, state and decisions | `almoner release show {number}` |
| report | `almoner report {number}` |
| links of the audit log | `almoner audit log --release {number}` |
"""
"""The page that is attached to a flow run: where the ledger says more, for those who may read it."""

StateType = Literal["RUNNING", "COMPLETED", "FAILED", "CANCELLED"]


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
    """Return the settings of Prefect's active profile; none where it has no file that can be read."""
    folder = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    try:
        profiles = tomllib.loads((folder / "profiles.toml").read_text(encoding="utf-8"))
        active = os.environ.get("PREFECT_PROFILE") or profiles["active"]
        return {name: value for name, value in profiles["profiles"][active].items() if isinstance(value, str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


@dataclass
class FlowReport:
    """What a Prefect server is told of one run of a flow, by a thread of its own.

    Attributes:
        live: whether the server hears of the run while it goes on; else when it ends, so that it learns no duration.
        failed: whether the server does not answer, or refuses what it is told.
    """

    api: PrefectApi
    flow: str
    live: bool = True
    failed: bool = False
    _events: "list[tuple[str, StateType, str]]" = field(default_factory=list)
    _request: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)
    _outcome: str = "done"

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._send, name="prefect report", daemon=True)
        self._thread.start()

    def name_request(self, number: int) -> None:
        """Say which request the flow is about."""
        self._request = number

    def begin_stage(self, name: str) -> None:
        """Say that a stage begins."""
        with self._lock:
            self._events.append((name, "RUNNING", ""))

    def end_stage(self, name: str, outcome: str) -> None:
        """Say how a stage ended: `done`, or the name of an error."""
        with self._lock:
            self._events.append((name, *_final_state(outcome)))

    def end(self, outcome: str) -> None:
        """Send what is left, and how the flow ended. Waits for the server, but not for long."""
        self._outcome = outcome
        self._ended.set()
        self._thread.join(SECONDS_AT_THE_END)
        if self.failed or self._thread.is_alive():
            tell("Prefect's server was not told of this: it does not answer, or refuses it. Nothing else is changed.")

    def _send(self) -> None:
        import httpx

        try:
            authorities = ssl.create_default_context(cafile=self.api.certificate)
            with (
                silence_log(),
                httpx.Client(
                    base_url=self.api.url,
                    headers=self.api.headers,
                    timeout=SECONDS_TO_ANSWER,
                    trust_env=False,
                    verify=authorities,
                ) as client,
            ):
                self._report(_Server(client))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, KeyError, TypeError):
            self.failed = True

    def _report(self, server: "_Server") -> None:
        if not self.live:
            self._ended.wait()
        run, passed = server.create_run(self.flow), 0
        for step in REPORT_STEPS:
            if self._ended.wait(step - passed):
                break
            passed = step
            self._send_events(server, run)
        self._ended.wait()
        self._send_events(server, run)
        if self._request is not None:
            server.attach(run, f"request-{self._request}", WHERE_TO_LOOK.format(number=self._request))
        server.set_state("flow_runs", run, *_final_state(self._outcome))

    def _send_events(self, server: "_Server", run: str) -> None:
        with self._lock:
            events, self._events = self._events, []
        if self._request is not None:
            server.name_run(run, f"{self.flow}-request-{self._request}", [TAG, f"request:{self._request}"])
        for name, state, message in events:
            server.report_stage(run, name, state, message)


@dataclass
class _Server:
    """The requests of Prefect's REST API that a report takes."""

    client: "httpx.Client"
    stages: dict[str, str] = field(default_factory=dict)

    def create_run(self, flow: str) -> str:
        """Create a flow run that is running; return its id."""
        flow_id = self._post("/flows/", {"name": f"almoner {flow}"})["id"]
        body = {"flow_id": flow_id, "name": f"{flow}", "tags": [TAG], "state": {"type": "PENDING"}}
        run = str(self._post("/flow_runs/", body)["id"])
        self.set_state("flow_runs", run, "RUNNING", "")
        return run

    def name_run(self, run: str, name: str, tags: list[str]) -> None:
        """Rename a flow run."""
        self.client.patch(f"/flow_runs/{run}", json={"name": name, "tags": tags}).raise_for_status()

    def report_stage(self, run: str, name: str, state: StateType, message: str) -> None:
        """Set the state of a stage's task run, which is created when it begins."""
        if state == "RUNNING":
            body = {"flow_run_id": run, "name": name, "task_key": name, "dynamic_key": str(len(self.stages)),
                    "tags": [TAG], "state": {"type": "PENDING"}}  # fmt: skip
            self.stages[name] = str(self._post("/task_runs/", body)["id"])
        self.set_state("task_runs", self.stages[name], state, message)

    def set_state(self, kind: str, run: str, state: StateType, message: str) -> None:
        """Set the state of a flow run or task run; it is a fact, so no rule of the server may refuse it."""
        body = {"state": {"type": state, **({"message": message} if message else {})}, "force": True}
        self._post(f"/{kind}/{run}/set_state", body)

    def attach(self, run: str, key: str, markdown: str) -> None:
        """Attach a page to a flow run."""
        self._post("/artifacts/", {"key": key, "type": "markdown", "data": markdown, "flow_run_id": run})

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        answer = self.client.post(path, json=body)
        answer.raise_for_status()
        return answer.json()


def _final_state(outcome: str) -> tuple[StateType, str]:
    """Return the state and message of an outcome: `done`, or the name of an error."""
    if outcome == "done":
        return "COMPLETED", ""
    return ("CANCELLED" if outcome in CANCELLED else "FAILED"), outcome


def open_report(flow: str, *, live: bool) -> FlowReport | None:
    """Begin to report a flow's run; None without a Prefect API, or inside a Prefect flow run, which shows itself."""
    if is_in_flow_run() or (api := PrefectApi.configured()) is None:
        return None
    return FlowReport(api, flow, live)
