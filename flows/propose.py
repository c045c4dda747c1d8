"""From a request file to a priced, submitted request. Reads no private text and spends nothing."""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from prefect import flow

from flows.policy import require_in_force, require_policy, told_by_policy, version_for_request, withholds_figures
from flows.pricing import price
from flows.settings import PRIVATE_FLOW
from flows.workspace import Workspace, open_workspace
from models_db.canonical import Json
from models_db.home import ProjectHome
from models_db.requests import ReleaseRequest, parse
from models_db.services import datasets, releases
from tasks.generation.quote import Quote


@dataclass(frozen=True)
class Proposal:
    """A quote, and the number of the request it became (None in a dry run).

    Attributes:
        with_balance: whether the policy lets its author see what is left of the budget.
    """

    quote: Quote
    with_balance: bool
    request_id: int | None = None
    digest: str | None = None

    @property
    def price(self) -> dict[str, Json]:
        """The price as programs read it, and no more of the budget than its author may know."""
        return self.quote.to_json(with_balance=self.with_balance)


@flow(name="propose", **PRIVATE_FLOW)
def propose(home: Path, written: dict[str, object], dry_run: bool = False) -> Proposal:
    """Validate a request, price it and, unless it is a dry run, submit it.

    Raises:
        UsageError: the request is not valid.
        PolicyDiffers: the policy of this home is not in force.
        PolicyForbids: the policy does not allow the request.
        BudgetExceeded, BudgetRefused: the dataset cannot afford it.
    """
    workspace = open_workspace(ProjectHome.locate(home))
    with workspace.database.read() as session:
        require_in_force(session, workspace)
        with_balance = not withholds_figures(session, workspace.actor)
    priced = price(workspace, parse(ReleaseRequest, written, "The request"))
    require_policy(workspace.policy, priced.body, priced.dataset.balance.cap)
    if dry_run:
        return Proposal(priced, with_balance)
    with told_by_policy(workspace):
        priced.require_affordable()
    return Proposal(priced, with_balance, *submit(workspace, priced))


def submit(workspace: Workspace, priced: Quote) -> tuple[int, str]:
    """Record the request, which from here on waits for the spend gate; returns its number and digest."""
    with workspace.database.write() as session:
        dataset = datasets.find(session, priced.dataset.name)
        made = releases.submit(
            session,
            workspace.actor,
            dataset,
            datasets.newest_version(session, dataset),
            version_for_request(session, workspace),
            {**priced.body, "nonce": secrets.token_hex(16)},
            timedelta(days=workspace.policy.request_days),
        )
        return made.id, made.digest
