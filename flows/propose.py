"""From a request file to a priced, submitted request. Reads no private text and spends nothing."""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from prefect import flow

from flows.pricing import price
from flows.settings import PRIVATE_FLOW
from flows.workspace import Workspace, open_workspace
from models_db.home import ProjectHome
from models_db.requests import ReleaseRequest, parse
from models_db.services import datasets, releases
from tasks.generation.quote import Quote


@dataclass(frozen=True)
class Proposal:
    """A quote, and the number of the request it became (None in a dry run)."""

    quote: Quote
    request_id: int | None
    digest: str | None


@flow(name="propose", **PRIVATE_FLOW)
def propose(home: Path, written: dict[str, object], dry_run: bool = False) -> Proposal:
    """Validate a request, price it and, unless it is a dry run, submit it.

    Raises:
        UsageError: the request is not valid.
        BudgetExceeded: the dataset cannot afford it.
    """
    workspace = open_workspace(ProjectHome.locate(home))
    priced = price(workspace, parse(ReleaseRequest, written, "The request"))
    if dry_run:
        return Proposal(priced, None, None)
    priced.require_affordable()
    return submit(workspace, priced)


def submit(workspace: Workspace, priced: Quote) -> Proposal:
    """Record the request; from here on it waits for the spend gate."""
    with workspace.database.write() as session:
        dataset = datasets.find(session, priced.dataset.name)
        made = releases.submit(
            session,
            workspace.actor,
            dataset,
            datasets.newest_version(session, dataset),
            workspace.policy_version(session),
            {**priced.body, "nonce": secrets.token_hex(16)},
            timedelta(days=workspace.policy.request_days),
        )
        return Proposal(priced, made.id, made.digest)
