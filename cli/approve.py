"""`almoner approve` and `almoner reject`: a steward's decision at a gate."""

from enum import StrEnum
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text

from cli.command import Answer, Opened, command
from cli.tables import facts, table
from flows.decide import Matter, decide, matter
from flows.workspace import open_workspace
from models_db.errors import UsageError


class Gate(StrEnum):
    """The two decisions: before private data is touched, and before anything leaves."""

    spend = "spend"
    publish = "publish"


Request = Annotated[int, typer.Argument(metavar="ID", help="The request's number.")]
GateOption = Annotated[Gate, typer.Option(help="Which decision.")]
Reason = Annotated[str, typer.Option(help="Why; recorded, signed, and published with the release.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "approve")(approve)
    command(app, "reject")(reject)


def approve(opened: Opened, request: Request, gate: GateOption, reason: Reason) -> Answer:
    """Approve what waits at a gate. Shows what is decided first; the approval is bound to exactly that.

    Example: almoner approve 1 --gate spend --reason "agreed in the March board"
    """
    return _decide(opened, request, gate, "approve", reason)


def reject(
    opened: Opened,
    request: Request,
    reason: Reason,
    gate: Annotated[Gate, typer.Option(help="Which decision.")] = Gate.spend,
) -> Answer:
    """Reject what waits at a gate; one rejection is enough. At the publish gate the spent budget stays spent.

    Example: almoner reject 1 --reason "the prompt names a person"
    """
    return _decide(opened, request, gate, "reject", reason)


def _decide(opened: Opened, request: int, gate: Gate, verdict: str, reason: str) -> Answer:
    if not reason.strip():
        raise ReasonMissing
    workspace = open_workspace(opened.home)
    asked = matter(workspace, request, gate.value)
    opened.say(*render(asked))
    state = decide(workspace, asked, verdict, reason.strip())
    word = {"approve": "Approved", "reject": "Rejected"}[verdict]
    data = {"request": request, "gate": gate.value, "decision": verdict, "state": state, "by": workspace.actor.name,
            "subject_sha256": asked.subject_digest}  # fmt: skip
    return Answer(data, [f"{word} by {workspace.actor.name} at the {gate.value} gate; the request is {state}.",
                         _next(request, gate, state)])  # fmt: skip


def render(asked: Matter) -> list[RenderableType]:
    """What a steward sees before deciding."""
    plain = {k: v for k, v in asked.shown.items() if k not in ("facts", "metrics", "samples")}
    parts: list[RenderableType] = [facts(plain, title=f"Request {asked.request_id}, {asked.gate} gate")]
    public = asked.shown.get("facts")
    if isinstance(public, dict):
        parts.append(facts(public, title="Public parameters"))
    metrics = asked.shown.get("metrics")
    if isinstance(metrics, dict):
        parts.append(table(("metric", "result"), [(name, _line(m)) for name, m in metrics.items()]))
    samples = asked.shown.get("samples")
    if isinstance(samples, list):
        parts += [Panel(Text(str(sample)), title=f"sample {n}") for n, sample in enumerate(samples, 1)]
    return parts


def _line(metric: object) -> str:
    return str(metric.get("line", "")) if isinstance(metric, dict) else str(metric)


def _next(request: int, gate: Gate, state: str) -> str:
    if state == "approved":
        return f"Next: `almoner run {request}`."
    if state == "produced" and gate is Gate.publish:
        return f"Next: `almoner publish {request} --to DIR`."
    return f"See `almoner release show {request}`."


class ReasonMissing(UsageError):
    """A decision without a reason."""

    def __init__(self) -> None:
        super().__init__("A decision needs a reason.", 'Say why: --reason "...".')
