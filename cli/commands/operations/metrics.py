"""`almoner metrics`: budgets, requests and attempts as Prometheus reads them. Needs no key and writes no ledger."""

import time
from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from flows.workspace.workspace import open_read_only
from models_db.errors import EnvironmentProblem
from tasks.common.files import write_over


class MetricData(TypedDict):
    """A value of a Prometheus metric."""

    metric: str
    labels: dict[str, str]
    value: float


WORLD_READABLE = 0o644

To = Annotated[Path | None, typer.Option(help="Write to this file, in place of an earlier one (textfile collectors).")]
Port = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="Keep running; serve the metrics on this port of this machine only."),
]


def register(app: typer.Typer) -> None:
    """Register the command of this file."""
    command(app, "metrics")(metrics)


def metrics(context: CommandContext, to: To = None, port: Port = None) -> CommandResult[list[MetricData]]:
    """Print Prometheus metrics of budgets, requests, attempts and refusals. Contains no private data.

    Example: almoner metrics --to /var/lib/node_exporter/textfile/almoner.prom
    """
    from flows.observability import prometheus

    record = open_read_only(context.home)
    if port is not None:
        with prometheus.serve_metrics(record, port):
            context.print_progress(f"http://127.0.0.1:{port}/metrics")
            while True:
                time.sleep(3600)
    samples = prometheus.read_samples(record)
    if to is not None:
        try:
            write_over(to, prometheus.exposition_text(record), WORLD_READABLE, durable=False)
        except OSError as problem:
            raise MetricsUnwritable(to, problem.strerror or type(problem).__name__) from None
        shown = f"{len(samples)} values are in {to}."
    else:
        shown = prometheus.exposition_text(record).decode().rstrip("\n")
    data = [MetricData(metric=each.metric, labels=dict(each.labels), value=each.value) for each in samples]
    return CommandResult(data, [shown])


class MetricsUnwritable(EnvironmentProblem):
    """The file of metrics cannot be written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} cannot be written: {reason}.",
            "Name a file in a folder that this account may write.",
            {"path": str(path)},
        )
