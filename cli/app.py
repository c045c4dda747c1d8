"""The command `almoner`: its own options, above the commands of the table."""

import gc
from importlib.metadata import version
from typing import Annotated

import typer

import tasks as tasks  # its environment (no telemetry) is set before any library of a command is imported
from cli.command_table import CommandTable
from cli.framework.options import HomeOption

app = typer.Typer(
    name="almoner",
    cls=CommandTable,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,  # a pretty traceback shows local variables, and those may hold private text
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"almoner {version('almoner')}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]


@app.callback()
def root(context: typer.Context, almoner_home: HomeOption = None, almoner_version: VersionOption = False) -> None:
    """Private text corpora in, differentially private releases out: priced, approved and recorded in one ledger."""
    context.obj = almoner_home  # the command compares it with its own --home


def main() -> None:
    """Run the command line; this function is the console script.

    Garbage collection stays off until a command begins to work: imported modules are never garbage, and scanning them
    took a quarter of the time of a short command.
    """
    gc.disable()
    app()
