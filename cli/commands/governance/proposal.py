"""`almoner proposal`: decisions of stewards besides releases: caps, standing authorisations, retractions."""

from typing import Annotated

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.review_screen import ProposalData, approve_hint, as_data, proposal_table, render_review
from cli.framework.tables import table
from flows.approvals.decide import load_review
from flows.approvals.propose_change import ProposalRow, list_proposals, proposal_row
from flows.workspace.workspace import open_workspace
from models_db.services import gates, proposals
from models_db.values.request_state import Gate

app = typer.Typer(
    no_args_is_help=True, help="Inspect proposals (caps, standing authorisations, retractions): list, show."
)


class ProposalDecision(TypedDict):
    """A decision on a proposal."""

    at: str
    decision: str
    by: str
    reason: str
    expires_at: str | None


class ProposalShown(ProposalData):
    """A proposal with its decisions."""

    digest: str
    approvals: list[ProposalDecision]


ProposalId = Annotated[int, typer.Argument(metavar="ID", help="The proposal's number.")]


@command(app, "list")
def list_all(context: CommandContext) -> CommandResult[list[ProposalData]]:
    """List all proposals: content, proposer, and the approvals still needed.

    Example: almoner proposal list
    """
    rows = list_proposals(open_workspace(context.home))
    return CommandResult([as_data(proposal) for proposal in rows], [proposal_table(rows)])


@command(app, "show")
def show_proposal(context: CommandContext, proposal: ProposalId) -> CommandResult[ProposalShown]:
    """Show a proposal: the change it makes, and the decisions on it.

    Example: almoner proposal show 3
    """
    workspace = open_workspace(context.home)
    shown = load_review(workspace, proposal, Gate.PROPOSAL)
    with workspace.database.read() as session:
        row = proposal_row(session, proposals.find_proposal(session, proposal))
        decisions = [
            ProposalDecision(at=a.at, decision=a.decision, by=p.name, reason=a.reason, expires_at=a.expires_at)
            for a, p in gates.decisions_on(session, proposal, Gate.PROPOSAL)
        ]
    data = ProposalShown(**as_data(row), digest=shown.subject_digest, approvals=decisions)
    rows = [list(decision.values()) for decision in decisions]
    decided = table(("at", "decision", "by", "reason", "expires"), rows, "Decisions")
    renderables: list[RenderableType] = [*render_review(shown), decided]
    return CommandResult(data, [*renderables, *_next_step(row)])


def _next_step(proposal: ProposalRow) -> list[str]:
    if proposal.state != "open":
        return [f"The proposal is {proposal.state}."]
    return [f"{proposal.given} of {proposal.needed} approvals.", approve_hint(proposal.number)]
