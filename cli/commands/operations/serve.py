"""`almoner serve`: a loop that runs due schedules until it is stopped."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer
from typing_extensions import TypedDict

from cli.commands.operations.schedule import poll_tables
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar, progress_lines
from cli.framework.run_options import Device, Runner, RunnerAddress, Workers, poller_settings
from flows.schedules.poll_result import PollResult
from tasks.common.extras import require_orchestration

if TYPE_CHECKING:
    from flows.schedules.poller import PollerSettings

Every = Annotated[int, typer.Option(min=1, max=3600, help="Seconds between two polls.")]


class ServingStopped(TypedDict):
    """A server of schedules that was stopped after a number of polls."""

    looks: int


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "serve")(serve)


def serve(
    context: CommandContext,
    every: Every = 30,
    without_prefect: Annotated[
        bool, typer.Option("--without-prefect", help="A plain loop: no Prefect server, no deployments.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Poll once and stop; for cron or a systemd timer.")] = False,
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
) -> CommandResult[PollResult | ServingStopped]:
    """Run schedules until stopped: poller and worker in one process.

    An analyst's home requests the due releases, a runner's home runs them; the home of an analyst who is also a runner
    does both.

    Example: almoner serve --once --without-prefect
    """
    require_orchestration()
    with ExitStack() as around:
        if ui:
            from flows.orchestration.local_server import start_local_server

            page = around.enter_context(start_local_server(context.home.require().prefect, ui_port))
            context.print_progress(f"Prefect's page: {page}")
        settings = poller_settings(device, workers, runner, runner_address, approved=approved)
        return _serve(context, settings, every, once=once, with_prefect=not without_prefect)


def _serve(
    context: CommandContext, settings: "PollerSettings", every: int, *, once: bool, with_prefect: bool
) -> CommandResult[PollResult | ServingStopped]:
    from flows.schedules.serve import poll_once, serve_until_stopped

    if once:
        with progress_bar(context):
            done = poll_once(context.home, settings)
        return CommandResult(done, poll_tables(done), exit_code=1 if done.problems else 0)
    with progress_lines(context):
        looks = serve_until_stopped(
            context.home,
            settings,
            every,
            with_prefect=with_prefect,
            say=lambda done: print_poll_result(context, done),
        )
    return CommandResult(ServingStopped(looks=looks), [f"Stopped after {looks} polls."])


def print_poll_result(context: CommandContext, done: PollResult) -> None:
    """Print the results of one poll, if there are any."""
    if done.slots or done.runs or done.problems:
        context.print_progress(*poll_tables(done))
