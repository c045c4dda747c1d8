"""Settings of a machine that carries out releases for Prefect: they come from its own environment, never from Prefect.

A flow run says one thing, the number of a request or of a schedule. The home, the destination of bundles and the
device are those of the machine, so that nobody who reaches the Prefect server can name others. So is the address of the
dashboard, to which the page of a request leads.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from flows.schedules.slots import DEFAULT_OPTIONS, RunOptions
from models_db.errors import UsageError
from models_db.home import ProjectHome
from tasks.object_storage.address import Place, parse_place
from tasks.workers.backend_settings import HERE, WorkerBackend

DESTINATION_VARIABLE: Final = "ALMONER_PUBLISH_TO"
DEVICE_VARIABLE: Final = "ALMONER_DEVICE"
HOME_VARIABLE: Final = "ALMONER_HOME"
DASHBOARD_VARIABLE: Final = "ALMONER_DASHBOARD_URL"
DASHBOARD_ADDRESS: Final = re.compile(r"(https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?)/?")
WORKERS_VARIABLE: Final = "ALMONER_WORKERS"
BACKEND_VARIABLE: Final = "ALMONER_RUNNER"
RUNNER_ADDRESS_VARIABLE: Final = "ALMONER_RUNNER_ADDRESS"
APPROVED_VARIABLE: Final = "ALMONER_APPROVED"


@dataclass(frozen=True)
class WorkerSettings:
    """Home, destination of bundles, and options of the runs of a machine.

    Attributes:
        destination: a folder, or an address in an object store, as it was typed; empty where nothing is published.
        approved: whether `almoner serve` also runs what stewards have approved one by one.
    """

    home: ProjectHome
    destination: str = ""
    options: RunOptions = DEFAULT_OPTIONS
    approved: bool = False

    @classmethod
    def of_environment(cls) -> "WorkerSettings":
        """Return the settings that the environment names.

        Raises:
            UsageError: its home is no path, it names no possible workers, or its dashboard has no address to link to.
        """
        dashboard_address()
        named = os.environ.get
        backend = WorkerBackend.of(named(BACKEND_VARIABLE) or HERE.kind, named(RUNNER_ADDRESS_VARIABLE))
        options = RunOptions(named(DEVICE_VARIABLE) or "auto", int(named(WORKERS_VARIABLE) or 1), backend)
        return cls(ProjectHome.locate(), named(DESTINATION_VARIABLE, ""), options, bool(named(APPROVED_VARIABLE)))

    @property
    def place(self) -> Place:
        """The destination.

        Raises:
            UsageError: there is none (`DestinationMissing`).
            as `tasks.object_storage.address.parse_place`.
        """
        if not self.destination:
            raise UsageError(
                f"{DESTINATION_VARIABLE} names no destination, so no release could be published from here.",
                f"Set {DESTINATION_VARIABLE} to a folder or s3://bucket/prefix, or use `almoner worker --to`.",
                code="DestinationMissing",
            )
        return parse_place(self.destination)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables from which a child process reads the same settings."""
        return {
            HOME_VARIABLE: str(self.home.root),
            DESTINATION_VARIABLE: self.destination,
            DEVICE_VARIABLE: self.options.device,
            WORKERS_VARIABLE: str(self.options.workers),
            BACKEND_VARIABLE: self.options.backend.kind,
            RUNNER_ADDRESS_VARIABLE: self.options.backend.address or "",
            APPROVED_VARIABLE: "1" if self.approved else "",
        }


# --- Page beside a run -----------------------------------------------------------------------------------------
#
# Where the ledger says more, for people who may read it. Where the dashboard has a public address it has links, else
# the commands that show the same. A link has the request's number and never the name of its dataset, which the server
# does not learn.

_COMMANDS: Final = """| of request {number} | command |
| --- | --- |
| price, state and decisions | `almoner release show {number}` |
| budget of the dataset that it names | `almoner budget show DATASET` |
| report | `almoner report {number}` |
| links of the audit log | `almoner audit log --release {number}` |
"""
_LINKS: Final = """| of request {number} | page of the dashboard |
| --- | --- |
| state and decisions | [request {number}]({address}/releases/{number}) |
| price | [its claim and mechanisms]({address}/releases/{number}#claim) |
| report | [its report]({address}/releases/{number}#report) |
| budget | [the budget of its dataset]({address}/releases/{number}/budget) |
| audit log | [its links]({address}/audit?request={number}) |
"""


def describe_links(number: int) -> str:
    """Return the page of a request as Markdown.

    Raises:
        UsageError: the dashboard's address is none (`InvalidDashboardAddress`).
    """
    address = dashboard_address()
    return _COMMANDS.format(number=number) if address is None else _LINKS.format(number=number, address=address)


def dashboard_address() -> str | None:
    """Return the address under which browsers reach the dashboard, without a slash at its end; None where none is set.

    Raises:
        UsageError: it is no http or https address, or has more than a host and a port (`InvalidDashboardAddress`).
    """
    written = os.environ.get(DASHBOARD_VARIABLE, "")
    if not written:
        return None
    found = DASHBOARD_ADDRESS.fullmatch(written)
    try:
        _ = urlsplit(written).port  # of at most 65535
    except ValueError:
        found = None
    if found is None:
        raise UsageError(  # the address may hold a password and is not repeated
            f"{DASHBOARD_VARIABLE} is no address of a dashboard. Nothing was done.",
            "Give https:// or http://, a host and a port, and nothing else: https://almoner.example.org:8717.",
            code="InvalidDashboardAddress",
        )
    return found[1]
