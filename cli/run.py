"""`almoner run`: execute an approved request here, or clean up after runs that died."""

from typing import Annotated

import typer

from cli.command import Answer, Opened, command
from cli.progress import showing
from cli.tables import facts
from cli.working import Device, Runner, RunnerAddress, Workers
from flows import telemetry
from flows.workspace import open_workspace
from models_db.errors import UsageError

What = Annotated[str, typer.Argument(metavar="ID|sweep", help="A request's number; or `sweep`.")]
Anew = Annotated[bool, typer.Option("--anew", help="Use nothing of an interrupted run; draw and pay everything again.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "run")(run)


def run(
    opened: Opened,
    what: What,
    device: Device = "auto",
    anew: Anew = False,
    workers: Workers = 1,
    runner: Runner = "processes",
    runner_address: RunnerAddress = None,
) -> Answer:
    """Run an approved request: reserve, arm, generate, evaluate, quarantine. `run sweep` cleans up after dead runs.

    A run that was interrupted goes on where it was and pays nothing twice.

    Example: almoner run 1
    """
    if what == "sweep":
        return _sweep(opened)
    if not what.isdigit():
        raise NotARun(what)
    with showing(opened):  # from here on, because loading the libraries that run models takes seconds
        _refuse_early(opened, int(what))
        from flows.execute import execute
        from tasks.runners.where import Where

        where = Where.of(runner, runner_address)
        outcome = execute.fn(opened.home.root, int(what), device, anew=anew, workers=workers, where=where)
    data = outcome.to_json()
    return Answer(
        data,
        [
            f"Request {what} is produced: {outcome.texts} texts wait in quarantine.",
            facts({"rho spent": outcome.spent.rho_text, "artifact": outcome.digest}),
            f'Next: `almoner approve {what} --gate publish --reason "..."`.',
        ],
    )


def _refuse_early(opened: Opened, request_id: int) -> None:
    """Refuse a run that may not begin before anything is loaded for it; `execute` checks the same again.

    Where runs are traced, a refusal is part of the trace, so there `execute` alone checks.
    """
    if telemetry.is_asked_for():
        return
    from flows.running import examine
    from flows.sweep import close_own_remains

    workspace = open_workspace(opened.home)
    close_own_remains(workspace, request_id)
    examine(workspace, request_id)


def _sweep(opened: Opened) -> Answer:
    from flows.sweep import sweep

    swept = sweep(open_workspace(opened.home))
    data = {"requests": list(swept.requests), "folders_removed": swept.folders}
    if not swept.requests and not swept.folders:
        return Answer(data, ["Nothing to clean up."])
    told = [f"Request {number}: its run is closed; what it had armed stays spent." for number in swept.requests]
    return Answer(data, [*told, f"{swept.folders} unfinished folders removed."])


class NotARun(UsageError):
    """Neither a number nor `sweep`."""

    def __init__(self, given: str) -> None:
        super().__init__(f"{given!r} is not a request number.", "Use `almoner run ID` or `almoner run sweep`.")
