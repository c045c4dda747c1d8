"""`almoner attack`: attacks on a request's configuration, on a public corpus with known members."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from cli.framework.result_types import MetricData
from cli.framework.tables import table
from flows.attacks.result_store import list_results
from flows.workspace.yaml_files import read_fields
from models_db.values.requests import ReleaseRequest
from models_db.values.untrusted_text import parse_digits

app = typer.Typer(no_args_is_help=True, help="Attack a release's public twin: run, list.")


class AttackedRelease(TypedDict):
    """One of the attacked releases, with a result for each attack."""

    name: str
    texts: int
    results: list[MetricData]


class AttackData(TypedDict):
    """Attacks on a configuration (docs/requests.md) on a public twin; `request` is null for a request file."""

    format: str
    configuration: dict[str, object]
    configuration_digest: str
    request: int | None
    code: str
    twin: dict[str, object]
    members: int
    nonmembers: int
    canaries: int
    copies: int
    finished: bool
    runs: list[AttackedRelease]


RELEASE_COLUMNS = {"request": "this request", "non_private": "without privacy", "copy": "the corpus itself"}


@command(app, "run")
def run_attack(
    context: CommandContext,
    request: Annotated[str, typer.Argument(metavar="ID_OR_FILE", help="A request's number, or a request file.")],
    on: Annotated[
        str | None, typer.Option(metavar="DATASET", help="The public twin; the request's own dataset unless given.")
    ] = None,
    members: Annotated[
        int | None, typer.Option(min=2, help="Number of member units; by default as many as the batches hold.")
    ] = None,
    canaries: Annotated[int, typer.Option(min=1, help="Number of secrets planted in the corpus.")] = 20,
    copies: Annotated[int, typer.Option(min=1, help="Number of times that each secret occurs in its document.")] = 3,
    anew: Annotated[bool, typer.Option("--anew", help="Discard the releases of an earlier attack.")] = False,
    device: Annotated[str, typer.Option(help="Device that runs the models: auto, cpu or cuda.")] = "auto",
) -> CommandResult[AttackData]:
    """Repeat the release on a public corpus with planted secrets and attack it, beside a release without privacy.

    Nothing of governed data is read and nothing is charged; the results are public and may be looked at before a
    decision (docs/attacks.md). Releases that are finished are kept: after Ctrl-C the same command goes on.

    Example: almoner attack run 1 --on public-notes
    """
    from flows.attacks.public_twin import TwinAttackRequest, attack_on_twin

    request_id = parse_digits(request)
    source = _read_request_file(Path(request)) if request_id is None else request_id
    attack_request = TwinAttackRequest(source, on, members, canaries, copies, anew)
    with progress_bar(context):
        result = cast(AttackData, attack_on_twin(context.home.root, attack_request, device))
    return CommandResult(result, _result_tables(result))


@command(app, "list")
def list_all(context: CommandContext) -> CommandResult[list[AttackData]]:
    """List the results of attacks, finished or not.

    Example: almoner attack list --json
    """
    results = cast(list[AttackData], list_results(context.home.require()))
    rows = [
        (
            each["twin"]["name"],
            each["configuration"]["mechanism"],
            each["configuration"]["epsilon"],
            each["members"],
            each["nonmembers"],
            each["canaries"],
            "yes" if each["finished"] else "no",
            each["configuration_digest"][:12],
        )
        for each in results
    ]
    columns = ("twin", "mechanism", "epsilon", "members", "non-members", "canaries", "finished", "configuration")
    return CommandResult(results, [table(columns, rows)])


def _read_request_file(path: Path) -> Mapping[str, object]:
    return read_fields(path, str(path), ReleaseRequest.model_fields)


def _result_tables(result: AttackData) -> list[RenderableType]:
    runs = {each["name"]: {r["name"]: r["line"] for r in each["results"]} for each in result["runs"]}
    columns = [name for name in RELEASE_COLUMNS if name in runs]
    rows = [
        (attack.replace("_", " "), *(runs[column].get(attack) for column in columns))
        for attack in next(iter(runs.values()))
    ]
    verdict = (
        f"On {result['twin']['name']!r}: {result['members']} members, {result['nonmembers']} non-members,"
        f" {result['canaries']} canaries said {result['copies']} times each."
    )
    return [
        table(("attack", *(RELEASE_COLUMNS[column] for column in columns)), rows),
        verdict,
        "An attack that finds nothing on the right cannot win: there its failure on the left says nothing.",
    ]
