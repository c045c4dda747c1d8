"""Page that a Prefect server shows beside a run of a request: where the ledger says more, for people who may read it.

Where the dashboard has a public address it has links, else the commands that show the same. A link has the request's
number and never the name of its dataset, which the server does not learn.
"""

import os
import re
from typing import Final
from urllib.parse import urlsplit

from models_db.errors import UsageError

ADDRESS_VARIABLE: Final = "ALMONER_DASHBOARD_URL"
ADDRESS: Final = re.compile(r"(https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?)/?")

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
    written = os.environ.get(ADDRESS_VARIABLE, "")
    if not written:
        return None
    found = ADDRESS.fullmatch(written)
    try:
        _ = urlsplit(written).port  # of at most 65535
    except ValueError:
        found = None
    if found is None:
        raise UsageError(  # the address may hold a password and is not repeated
            f"{ADDRESS_VARIABLE} is no address of a dashboard. Nothing was done.",
            "Give https:// or http://, a host and a port, and nothing else: https://almoner.example.org:8717.",
            code="InvalidDashboardAddress",
        )
    return found[1]
