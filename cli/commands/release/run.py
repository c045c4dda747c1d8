"""`almoner run`: execute an approved request here, or clean up after runs that died."""

from typing import TYPE_CHECKING, Annotated, cast

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from cli.framework.run_options import Device, Runner, RunnerAddress, Workers
from cli.framework.tables import fact_list
from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import UsageError
from models_db.services import attempts, requests
from models_db.values.request_state import RequestState
from models_db.values.untrusted_text import parse_digits

if TYPE_CHECKING:
    from flows.releases.execute import RunOutcome


class ResumedFrom(TypedDict):
    """The interrupted attempt that a run went on from."""

    attempt: int
    tokens_drawn: int
    tokens_at_most: int
    draws_lost_per_text: int


class RequestProduced(TypedDict):
    """A request whose texts wait in quarantine; `goes_on_from` is null where nothing was interrupted."""

    request: int
    state: str
    artifact: str
    texts: int
    rho_spent: str
    goes_on_from: ResumedFrom | None


class AttemptsSwept(TypedDict):
    """Requests whose dead runs were closed (`run sweep`)."""

    requests: list[int]
    folders_removed: int


What = Annotated[str, typer.Argument(metavar="ID|sweep", help="A request's number; or `sweep`.")]
Anew = Annotated[bool, typer.Option("--anew", help="Use nothing of an interrupted run; draw and pay everything again.")]


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "run")(run_command)


def run_command(
    context: CommandContext,
    what: What,
    device: Device = "auto",
    anew: Anew = False,
    workers: Workers = 1,
    runner: Runner = "processes",
    runner_address: RunnerAddress = None,
) -> CommandResult[RequestProduced | AttemptsSwept]:
    """Run an approved request: reserve, arm, generate, evaluate, quarantine. `run sweep` cleans up after dead runs.

    A run that was interrupted goes on where it was and pays nothing twice.

    Example: almoner run 1
    """
    if what == "sweep":
        return _sweep_result(context)
    request_id = parse_digits(what)
    if request_id is None:
        raise UsageError(
            f"{what!r} is not a request number.", "Use `almoner run ID` or `almoner run sweep`.", code="InvalidRunId"
        )
    with progress_bar(context):  # from here on, because loading the libraries that run models takes seconds
        outcome = _execute(context, request_id, device, anew, workers, (runner, runner_address))
    data = cast(RequestProduced, outcome.to_json())
    return CommandResult(
        data,
        [
            f"Request {what} is produced: {outcome.texts} texts wait in quarantine.",
            fact_list({"rho spent": outcome.spent.rho_text, "artifact": outcome.digest}),
            f"Read them: `almoner release texts {what}`.",
            f'Then decide: `almoner approve {what} --gate publish --reason "..."`.',
        ],
    )


def _execute(
    context: CommandContext, request_id: int, device: str, anew: bool, workers: int, runner: tuple[str, str | None]
) -> "RunOutcome":
    """Execute as the flow `execute` does, but refuse a run that may not begin before model libraries are loaded."""
    workspace = open_workspace(context.home)
    _require_startable(workspace, request_id)
    from flows.releases.attempt import check
    from flows.releases.resume import forfeit_own_dead_attempts

    forfeit_own_dead_attempts(workspace, request_id)
    checked = check(workspace, request_id)
    from flows.releases.execute import run_checked
    from tasks.workers.backend_settings import WorkerBackend

    return run_checked(checked, device, anew=anew, workers=workers, backend=WorkerBackend.of(*runner))


def _require_startable(workspace: Workspace, request_id: int) -> None:
    """Refuse a request that cannot start, before the planners are loaded; the attempt checks it again.

    A request that is running is left to the sweep, because its process may be dead.
    """
    with workspace.database.read() as session:
        if requests.state_of(session, request_id) != RequestState.RUNNING:
            attempts.require_startable(session, request_id)


def _sweep_result(context: CommandContext) -> CommandResult[AttemptsSwept]:
    from flows.releases.resume import sweep_attempts

    swept = sweep_attempts(open_workspace(context.home))
    data = AttemptsSwept(requests=list(swept.requests), folders_removed=swept.folders)
    if not swept.requests and not swept.folders:
        return CommandResult(data, ["Nothing to clean up."])
    sentences = [f"Request {number}: its run is closed; the armed budget stays spent." for number in swept.requests]
    return CommandResult(data, [*sentences, f"{swept.folders} unfinished folders removed."])
