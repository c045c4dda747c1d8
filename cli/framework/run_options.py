"""Options of every command that runs releases: the device, the number of workers and their backend."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flows.schedules.slots import RunOptions

Device = Annotated[
    str,
    typer.Option(
        help="Device that runs the model: auto, cpu, cuda or cuda:N; cuda:A-B spreads its layers over GPUs A to B."
    ),
]
Workers = Annotated[
    int,
    typer.Option(min=1, max=64, help="Number of workers. Each loads the model, so that one worker per GPU is usual."),
]
Runner = Annotated[str, typer.Option(envvar="ALMONER_RUNNER", help="Kind of workers: processes, threads or ray.")]
RunnerAddress = Annotated[
    str | None,
    typer.Option(
        envvar="ALMONER_RUNNER_ADDRESS",
        metavar="ADDRESS",
        help="Address of the Ray cluster. Default: a cluster on this machine.",
    ),
]


def run_options(device: str, workers: int, runner: str, runner_address: str | None) -> "RunOptions":
    """Return the options as those of a run.

    Raises:
        RunnerUnknown: there is no such kind of workers.
        RunnerAddressUnfit: the address does not fit the kind of workers.
    """
    from flows.schedules.slots import RunOptions  # it loads what runs releases
    from tasks.workers.backend_settings import WorkerBackend

    return RunOptions(device, workers, WorkerBackend.of(runner, runner_address))
