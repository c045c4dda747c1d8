"""`almoner serve`: look for what is due, again and again, until it is stopped."""

from typing import Annotated

import typer

from cli.commands.operations.schedule import look_tables
from cli.framework.command import Answer, Opened, command
from cli.framework.progress import in_lines, showing
from cli.framework.run_options import Device, Runner, RunnerAddress, Workers, settings_of
from models_db.values.canonical_json import Json

Every = Annotated[int, typer.Option(min=1, max=3600, help="Seconds between two looks.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "serve")(serve)


def serve(
    opened: Opened,
    every: Every = 30,
    without_prefect: Annotated[
        bool, typer.Option("--without-prefect", help="A plain loop: no Prefect server, no deployments.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Look once and stop; for cron or a systemd timer.")] = False,
    approved: Annotated[
        bool, typer.Option("--approved", help="Also run requests that stewards have approved one by one.")
    ] = False,
    device: Device = "auto",
    workers: Workers = 1,
    runner: Runner = "processes",
    runner_address: RunnerAddress = None,
) -> Answer:
    """Carry out schedules: worker and poller in one process, until it is stopped.

    An analyst's home asks for what is due, a runner's home runs it; one who is both does both.

    Example: almoner serve --once --without-prefect
    """
    from flows.schedules.serve import poll_once, serve_until_stopped  # they load Prefect

    settings = settings_of(device, workers, runner, runner_address, approved=approved)
    if once:
        with showing(opened):
            done = poll_once(opened.home, settings)
        return Answer(done.to_json(), look_tables(done.to_json()), exit_code=1 if done.problems else 0)
    with in_lines(opened):
        looks = serve_until_stopped(
            opened.home, settings, every, with_prefect=not without_prefect, say=lambda done: say(opened, done)
        )
    return Answer({"looks": looks}, [f"Stopped after {looks} looks."])


def say(opened: Opened, data: dict[str, Json]) -> None:
    """What one look has found, if it has found anything."""
    if any(data.values()):
        opened.say(*look_tables(data))
