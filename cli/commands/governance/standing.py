"""`almoner standing`: authorisations for releases that come again and again, decided once."""

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.governance.proposal import show as show_motion
from cli.framework.command import Answer, Opened, command
from cli.framework.price_table import price_tables
from cli.framework.proposal_view import as_data, motion_table, waits
from cli.framework.tables import facts
from flows.approvals import propose_change as proposing
from flows.workspace.workspace import open_workspace
from flows.workspace.yaml_files import read_fields
from models_db.values.amounts import Amount
from models_db.values.requests import ReleaseRequest

app = typer.Typer(no_args_is_help=True, help="Standing authorisations for schedules: propose, list, show, end.")

Number = Annotated[int, typer.Argument(metavar="ID", help="The authorisation's number, which is its motion's.")]
Reason = Annotated[str, typer.Option(help="Why; recorded, and published with every release under it.")]


@command(app, "propose")
def propose(
    opened: Opened,
    file: Annotated[Path, typer.Argument(help="The request that may be run again, a YAML file (docs/requests.md).")],
    runs: Annotated[int, typer.Option(min=1, max=10_000, help="How many runs, failed ones included.")],
    until: Annotated[str, typer.Option(metavar="DATE", help="The last day, such as 2027-06-30.")],
    reason: Reason,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what it would allow and stop.")] = False,
) -> Answer:
    """Ask the stewards that requests like this file may run again and again without a decision at the spend gate.

    Example: almoner standing propose request.yaml --runs 12 --until 2099-12-31 --reason "monthly report" --dry-run
    """
    written = read_fields(file, str(file), ReleaseRequest.model_fields)
    workspace = open_workspace(opened.home)
    made = proposing.propose_standing(workspace, written, runs, until, reason, dry_run=dry_run)
    price = made.quote.to_json(with_balance=made.with_balance)
    one = Amount(made.terms.rho, made.terms.delta)
    allowed = {
        "dataset": made.quote.dataset.name,
        "runs": runs,
        "until": made.terms.until[:10],
        "rho_each": one.rho_text,
        "delta_fail_each": one.delta_text,
        "rho_together": (one * runs).rho_text,
        **({"runs_that_fit_now": made.affordable_runs} if made.with_balance else {}),
    }
    data = {"motion": made.number, "approvals_needed": made.needed, **allowed, "price": price}
    ends = "It ends with the next version of almoner or of the policy: both are part of what is approved."
    shown = [*price_tables(price), facts(allowed, title="What would be authorised"), ends]
    return Answer(data, [*shown, *waits(made.number, made.needed)])


@command(app, "list")
def every(opened: Opened) -> Answer:
    """All standing authorisations, with the runs they have used.

    Example: almoner standing list
    """
    found = proposing.list_proposals(open_workspace(opened.home), "standing")
    return Answer([as_data(motion) for motion in found], [motion_table(found)])


@command(app, "show")
def show(opened: Opened, standing: Number) -> Answer:
    """One standing authorisation: its configuration, its runs, who decided.

    Example: almoner standing show 3
    """
    return show_motion(opened, standing)


@command(app, "end")
def end(
    opened: Opened, standing: Number, reason: Annotated[str, typer.Option(help="Why; recorded and signed.")]
) -> Answer:
    """End a standing authorisation, as one steward: no further run draws on it; what ran stays as it is.

    Example: almoner standing end 3 --reason "the study is over"
    """
    state = proposing.revoke_authorisation(open_workspace(opened.home), standing, reason)
    return Answer({"motion": standing, "state": state}, [f"Standing authorisation {standing} is {state}."])
