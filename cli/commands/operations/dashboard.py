"""`almoner dashboard`: read-only pages of budgets, pending decisions, releases and the audit log."""

from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from models_db.errors import EnvironmentProblem

Address = Annotated[str, typer.Option("--bind", metavar="ADDRESS", help="The address to listen on.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")]
Name = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="HOST",
        help="A host name under which browsers reach the dashboard; may be given several times.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File (mode 0600) with the access token of the dashboard."),
]
TokenEnv = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Environment variable with the access token, in place of --token-file."),
]
Certificate = Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="TLS certificate (PEM).")]
Key = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key of the TLS certificate (PEM).")
]


class DashboardEnded(TypedDict):
    """A dashboard that was served."""

    url: str
    ended: bool


Decide = Annotated[
    bool, typer.Option("--decide", help="Let people sign in with their passkeys, decide, and price requests.")
]


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "dashboard")(dashboard)


def dashboard(
    context: CommandContext,
    bind: Address = "127.0.0.1",
    port: Port = 8717,
    name: Name = None,
    token_file: TokenFile = None,
    token_env: TokenEnv = None,
    tls_cert: Certificate = None,
    tls_key: Key = None,
    decide: Decide = False,
) -> CommandResult[DashboardEnded]:
    """Serve a dashboard: datasets, budgets, the approval queue, releases, the audit log.

    By default it only reads, and listens on this machine only. Any other address needs a token and TLS. With --decide
    people sign in and decide with passkeys of their own (`almoner passkey invite`). Ctrl-C ends it.

    Example: almoner dashboard --port 8717
    """
    # Starlette and uvicorn come with Prefect; an import here keeps other commands fast.
    from cli.web.access import AccessOptions, access_policy
    from cli.web.application import serve_dashboard
    from flows.dashboard.viewer import open_viewer

    options = AccessOptions(bind, port, tuple(name or ()), token_file, token_env, tls_cert, tls_key, decide)
    access = access_policy(options)
    with open_viewer(context.home).open_view() as view:  # refuse now what every page would refuse
        context.print_progress(
            f"The dashboard of {context.home.root} for {view.actor.name}: {access.url}",
            *([f"People sign in and decide at {access.origin}/mine."] if access.decides else []),
            "Ctrl-C ends it.",
        )
    try:
        serve_dashboard(context.home, access)
    except OSError as problem:
        raise EnvironmentProblem(
            f"The dashboard cannot listen on {bind} port {port}: {problem.strerror or type(problem).__name__}.",
            "Choose another --port, or check --bind and the files for TLS.",
            {"address": bind, "port": port},
            code="AddressNotAvailable",
        ) from None
    return CommandResult(DashboardEnded(url=access.url, ended=True))
