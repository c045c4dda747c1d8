"""`almoner standing`: standing authorisations for recurring releases, decided once."""

from pathlib import Path
from typing import Annotated, NotRequired, cast

import typer
from typing_extensions import TypedDict

from cli.commands.governance.proposal import ProposalShown
from cli.commands.governance.proposal import show_proposal as show_proposal
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.options import PriceDetails
from cli.framework.result_types import PriceData
from cli.framework.review_screen import ProposalData, as_data, proposal_table, render_sections, waiting_sentence
from cli.framework.tables import fact_list
from flows.approvals import propose_change
from flows.workspace.workspace import open_workspace
from flows.workspace.yaml_files import read_fields
from models_db.values.amounts import Amount
from models_db.values.requests import ReleaseRequest

app = typer.Typer(no_args_is_help=True, help="Manage standing authorisations of schedules: propose, list, show, end.")


class StandingTerms(TypedDict):
    """What a standing authorisation allows; `runs_that_fit_now` is absent where the policy hides balances."""

    dataset: str
    runs: int
    until: str
    rho_each: str
    delta_fail_each: str
    rho_together: str
    runs_that_fit_now: NotRequired[int | None]


class StandingProposed(StandingTerms):
    """A proposed standing authorisation; `proposal` is null in a dry run."""

    proposal: int | None
    approvals_needed: int
    price: PriceData


class StandingEnded(TypedDict):
    """A standing authorisation that has ended."""

    proposal: int
    state: str


Number = Annotated[int, typer.Argument(metavar="ID", help="The authorisation's number, which is its proposal's.")]
Reason = Annotated[str, typer.Option(help="Reason: recorded, and published with every release under it.")]


@command(app, "propose")
def propose_authorisation(
    context: CommandContext,
    file: Annotated[Path, typer.Argument(help="The request that may be run again, a YAML file (docs/requests.md).")],
    runs: Annotated[int, typer.Option(min=1, max=10_000, help="Number of runs, failed ones included.")],
    until: Annotated[str, typer.Option(metavar="DATE", help="The last day, such as 2027-06-30.")],
    reason: Reason,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be authorised and stop.")] = False,
    details: PriceDetails = False,
) -> CommandResult[StandingProposed]:
    """Propose that requests like this file may run repeatedly without a decision at the spend gate.

    Example: almoner standing propose request.yaml --runs 12 --until 2099-12-31 --reason "monthly report" --dry-run
    """
    from flows.approvals.price_sections import price_sections

    written = read_fields(file, str(file), ReleaseRequest.model_fields)
    workspace = open_workspace(context.home)
    proposal = propose_change.propose_standing(workspace, written, runs, until, reason, dry_run=dry_run)
    price = proposal.quote.to_json(with_balance=proposal.with_balance)
    one = Amount(proposal.terms.rho, proposal.terms.delta)
    allowed = StandingTerms(
        dataset=proposal.quote.dataset.name,
        runs=runs,
        until=proposal.terms.until[:10],
        rho_each=one.rho_text,
        delta_fail_each=one.delta_text,
        rho_together=(one * runs).rho_text,
    )
    if proposal.with_balance:
        allowed["runs_that_fit_now"] = proposal.affordable_runs
    data = StandingProposed(
        proposal=proposal.number, approvals_needed=proposal.needed, **allowed, price=cast(PriceData, price)
    )
    ends = "It ends with the next version of almoner or of the policy: both are part of the approved configuration."
    shown = render_sections(price_sections(price), details=details)
    shown += [fact_list(allowed, title="Proposed authorisation"), ends]
    return CommandResult(data, [*shown, *waiting_sentence(proposal.number, proposal.needed)])


@command(app, "list")
def list_all(context: CommandContext) -> CommandResult[list[ProposalData]]:
    """List all standing authorisations with the runs they have used.

    Example: almoner standing list
    """
    rows = propose_change.list_proposals(open_workspace(context.home), "standing")
    return CommandResult([as_data(proposal) for proposal in rows], [proposal_table(rows)])


@command(app, "show")
def show_authorisation(context: CommandContext, standing: Number) -> CommandResult[ProposalShown]:
    """Show a standing authorisation: configuration, runs, decisions.

    Example: almoner standing show 3
    """
    return show_proposal(context, standing)


@command(app, "end")
def end_authorisation(
    context: CommandContext, standing: Number, reason: Annotated[str, typer.Option(help="Reason, recorded and signed.")]
) -> CommandResult[StandingEnded]:
    """End a standing authorisation (one steward suffices): no further run uses it; earlier runs stay.

    Example: almoner standing end 3 --reason "the study is over"
    """
    state = propose_change.revoke_authorisation(open_workspace(context.home), standing, reason)
    return CommandResult(
        StandingEnded(proposal=standing, state=state), [f"Standing authorisation {standing} is {state}."]
    )
