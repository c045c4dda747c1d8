"""A bar on a terminal, and a line a minute elsewhere."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from cli.framework import progress
from cli.framework.command import CommandContext
from cli.framework.progress import progress_bar
from models_db.home import ProjectHome
from tasks.common.progress import report


def reported(*, terminal: bool, as_json: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    with progress_bar(CommandContext(ProjectHome(Path("home")), as_json, console)):
        report("tokens", 3, 12)
        report("scoring", 1, 2)
    report("tokens", 12, 12)  # nobody listens any more
    return out.getvalue()


def test_a_terminal_sees_how_far_the_work_is() -> None:
    said = reported(terminal=True, as_json=False)
    assert "tokens" in said
    assert "3/12" in said
    assert "scoring" in said


def test_a_terminal_sees_that_work_is_prepared_before_any_of_it_is_done() -> None:
    out = io.StringIO()
    with progress_bar(
        CommandContext(ProjectHome(Path("home")), False, Console(file=out, force_terminal=True, width=80))
    ):
        pass
    assert "preparing" in out.getvalue()


@pytest.mark.parametrize(("terminal", "as_json"), [(True, True), (False, False), (False, True)])
def test_nothing_else_hears_of_short_work(terminal: bool, as_json: bool) -> None:
    assert reported(terminal=terminal, as_json=as_json) == ""


@pytest.mark.parametrize(("as_json", "said"), [(False, "tokens: 25 %\nscoring: 50 %\n"), (True, "")])
def test_without_a_terminal_long_work_says_a_line_now_and_then(
    as_json: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    assert reported(terminal=False, as_json=as_json) == said


def test_lines_do_not_say_how_many_documents_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    out = io.StringIO()
    with progress_bar(CommandContext(ProjectHome(Path("home")), False, Console(file=out, width=80))):
        report("ingesting", 337, 673)
        report("reading documents", 0, 0)
    assert out.getvalue() == "ingesting: 50 %\nreading documents: 0 %\n"


def test_two_lines_lie_a_minute_apart() -> None:
    said: list[object] = []
    times = iter((0.0, 59.0, 60.0, 119.0, 121.0))
    line = progress.ProgressLines(said.append, lambda: next(times))
    for done in range(4):
        line("tokens", done, 4)
    assert said == ["tokens: 25 %", "tokens: 75 %"]
