"""`almoner serve`: schedules on a Prefect server, and the worker that carries out their runs, until it is stopped."""

from contextlib import ExitStack
from typing import Annotated

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_lines
from cli.framework.run_options import Device, Runner, RunnerAddress, Workers, run_options
from flows.workspace.prefect_flow import names_prefect_server
from tasks.common.extras import require_orchestration


class ServingStopped(TypedDict):
    """A home whose schedules are served no more."""

    home: str


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "serve")(serve)


def serve(
    context: CommandContext,
    approved: Annotated[
        bool, typer.Option("--approved", help="Also run requests that stewards have approved one by one.")
    ] = False,
    ui: Annotated[
        bool, typer.Option("--ui", help="Start a Prefect server beside the home, whose page shows the schedules.")
    ] = False,
    ui_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of that server on this machine.")] = 4200,
    device: Device = "auto",
    workers: Workers = 1,
    runner: Runner = "processes",
    runner_address: RunnerAddress = None,
) -> CommandResult[ServingStopped]:
    """Run schedules until stopped, on the Prefect server that PREFECT_API_URL names or on one of its own.

    An analyst's home requests the due releases, a runner's home runs them; the home of an analyst who is also a runner
    does both.

    Example: almoner serve
    """
    require_orchestration()
    home = context.home.require()
    with ExitStack() as around:
        if ui or not names_prefect_server():
            from flows.orchestration.local_server import start_local_server

            page = around.enter_context(start_local_server(home.prefect, ui_port if ui else None))
            if ui:
                context.print_progress(f"Prefect's page: {page}")
        around.enter_context(progress_lines(context))
        from flows.orchestration.worker import serve_schedules  # Prefect reads the environment when it is imported
        from flows.orchestration.worker_settings import WorkerSettings

        options = run_options(device, workers, runner, runner_address)
        serve_schedules(WorkerSettings(home, options=options, approved=approved))
    return CommandResult(ServingStopped(home=str(home.root)), ["Stopped."])
