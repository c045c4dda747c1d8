"""`almoner motion`: what stewards decide besides releases - caps, standing authorisations, retractions."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import RenderableType

from cli.approval_screen import render
from cli.command import Answer, Opened, command
from cli.tables import table
from flows.decide import matter
from flows.motions import MotionRow, row, rows
from flows.workspace import open_workspace
from models_db.base import moment
from models_db.budgets import Amount
from models_db.canonical import Json
from models_db.services import gates, motions

app = typer.Typer(no_args_is_help=True, help="Motions: caps, standing authorisations, retractions; list, show.")

MotionId = Annotated[int, typer.Argument(metavar="ID", help="The motion's number.")]


@command(app, "list")
def every(opened: Opened) -> Answer:
    """All motions: what is asked for, by whom, and how many stewards still have to approve.

    Example: almoner motion list
    """
    found = rows(open_workspace(opened.home))
    return Answer([as_data(motion) for motion in found], [motion_table(found)])


@command(app, "show")
def show(opened: Opened, motion: MotionId) -> Answer:
    """One motion: what it would change, who decided what.

    Example: almoner motion show 3
    """
    workspace = open_workspace(opened.home)
    shown = matter(workspace, motion, "motion")
    with workspace.database.read() as session:
        found = row(session, motions.find(session, motion))
        decisions = [
            (a.at, a.decision, p.name, a.reason, a.expires_at) for a, p in gates.motion_approvals(session, motion)
        ]
    names = ("at", "decision", "by", "reason", "expires_at")
    given: list[Json] = [dict(zip(names, decision, strict=True)) for decision in decisions]
    data = {**as_data(found), "digest": shown.subject_digest, "approvals": given}
    told: list[RenderableType] = [*render(shown), table((*names[:-1], "expires"), decisions, "Decisions")]
    return Answer(data, [*told, *_next(found)])


def _next(found: MotionRow) -> list[str]:
    if found.state != "open":
        return [f"The motion is {found.state}."]
    return [f"{found.given} of {found.needed} approvals.", asked_of_stewards(found.number)]


def asked_of_stewards(number: int) -> str:
    """What a steward types next."""
    return f'A steward decides: `almoner approve {number} --gate motion --reason "..."`, or `almoner reject`.'


def waits(number: int | None, needed: int) -> list[RenderableType]:
    """What a proposal says in the end; nothing was proposed without a number."""
    people = "1 steward" if needed == 1 else f"{needed} different stewards"
    if number is None:
        return [f"It would need the approval of {people}. Dry run: nothing was proposed."]
    return [f"Proposed as motion {number}; it takes effect when {people} approved.", asked_of_stewards(number)]


def motion_table(found: Sequence[MotionRow]) -> RenderableType:
    """Motions, one a line."""
    columns = ("motion", "dataset", "kind", "what", "state", "approvals", "proposer", "expires")
    return table(columns, [_line(motion) for motion in found])


def _line(found: MotionRow) -> tuple[object, ...]:
    given = f"{found.given} of {found.needed}" if found.state == "open" else ""
    ends = found.expires_at[:10] if found.expires_at > moment() and found.state == "open" else ""
    return (found.number, found.dataset, found.kind, found.content, found.state, given, found.proposer, ends)


def as_data(found: MotionRow) -> dict[str, Json]:
    """A motion as programs read it; what its kind has not is left out."""
    plain = {
        name: value for name, value in asdict(found).items() if value is not None and name not in ("rho", "number")
    }
    amount = found.rho if isinstance(found.rho, Amount) else None
    figures = {} if amount is None else {"rho": amount.rho_text, "delta_fail": amount.delta_text}
    return {"motion": found.number, **plain, **figures}
