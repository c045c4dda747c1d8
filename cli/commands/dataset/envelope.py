"""`almoner budget scope`: envelopes, parts of a dataset's budget kept for the requests that name them."""

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.options import DatasetName
from cli.framework.tables import fact_list, table
from flows.datasets.budget_view import close_envelope, load_budget, open_envelope
from flows.workspace.workspace import open_workspace
from models_db.values.amounts import Envelope

app = typer.Typer(no_args_is_help=True, help="Manage envelopes of a budget: open, close, list.")


class EnvelopeData(TypedDict):
    """An envelope of a budget; `rho_held` is reserved in it by runs that are under way."""

    scope: str
    rho_cap: str
    rho_spent: str
    rho_held: str
    rho_left: str
    delta_fail_left: str


class EnvelopeOpened(EnvelopeData):
    """An envelope that was opened."""

    dataset: str


class EnvelopeClosed(EnvelopeOpened):
    """An envelope that was closed, as it was."""

    open: bool


Scope = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the envelope; requests name it in their field `scope`.")
]
Reason = Annotated[str, typer.Option(help="Reason, recorded in the audit log.")]


@command(app, "open")
def open_envelope_command(
    context: CommandContext,
    name: DatasetName,
    scope: Scope,
    epsilon: Annotated[
        str,
        typer.Option(help="Epsilon of the envelope: its size is the budget of a dataset with this lifetime epsilon."),
    ],
    delta: Annotated[str, typer.Option(help="Delta of the envelope, used with --epsilon to compute its size.")],
    reason: Reason,
) -> CommandResult[EnvelopeOpened]:
    """Reserve a part of the remaining budget for requests that name it (stewards only), until it is closed.

    Example: almoner budget scope open clinic trial-7 --epsilon 2 --delta 1e-7 --reason "agreed in May"
    """
    envelope = open_envelope(open_workspace(context.home), name, scope, epsilon, delta, reason)
    sentence = f"Envelope {scope} is open; requests draw on it with `scope: {scope}`."
    data = envelope_to_json(envelope)
    return CommandResult(EnvelopeOpened(**data, dataset=name), [sentence, fact_list(data)])


@command(app, "close")
def close_envelope_command(
    context: CommandContext, name: DatasetName, scope: Scope, reason: Reason
) -> CommandResult[EnvelopeClosed]:
    """Close an envelope (stewards only): its remainder is free again, its spending stays.

    Example: almoner budget scope close clinic trial-7 --reason "the trial is over"
    """
    was = close_envelope(open_workspace(context.home), name, scope, reason)
    sentence = f"Envelope {scope} is closed; rho {was.left.rho_text} is free again."
    return CommandResult(EnvelopeClosed(**envelope_to_json(was), dataset=name, open=False), [sentence])


@command(app, "list")
def list_all(context: CommandContext, name: DatasetName) -> CommandResult[list[EnvelopeData]]:
    """List the open envelopes of a dataset's budget.

    Example: almoner budget scope list clinic
    """
    envelopes = load_budget(open_workspace(context.home), name).envelopes
    return CommandResult([envelope_to_json(envelope) for envelope in envelopes], [envelope_table(envelopes)])


def envelope_to_json(envelope: Envelope) -> EnvelopeData:
    """Return an envelope as JSON for programs."""
    return EnvelopeData(
        scope=envelope.name,
        rho_cap=envelope.cap.rho_text,
        rho_spent=envelope.spent.rho_text,
        rho_held=envelope.held.rho_text,
        rho_left=envelope.left.rho_text,
        delta_fail_left=envelope.left.delta_text,
    )


def envelope_table(envelopes: Iterable[Envelope]) -> RenderableType:
    """Return a table of envelopes, one in each row."""
    columns = ("scope", "rho cap", "rho spent", "rho held", "rho left")
    return table(columns, [list(envelope_to_json(each).values())[: len(columns)] for each in envelopes], "Envelopes")
