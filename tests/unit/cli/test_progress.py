"""A bar on a terminal, and silence elsewhere."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from cli.command import Opened
from cli.progress import showing
from models_db.home import ProjectHome
from tasks.progress import report


def reported(*, terminal: bool, as_json: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    with showing(Opened(ProjectHome(Path("home")), as_json, console)):
        report("tokens", 3, 12)
        report("scoring", 1, 2)
    report("tokens", 12, 12)  # nobody listens any more
    return out.getvalue()


def test_a_terminal_sees_how_far_the_work_is() -> None:
    said = reported(terminal=True, as_json=False)
    assert "tokens" in said
    assert "3/12" in said
    assert "scoring" in said


@pytest.mark.parametrize(("terminal", "as_json"), [(True, True), (False, False), (False, True)])
def test_nothing_else_hears_anything(terminal: bool, as_json: bool) -> None:
    assert reported(terminal=terminal, as_json=as_json) == ""
