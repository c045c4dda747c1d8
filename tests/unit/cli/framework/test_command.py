"""How every command speaks and ends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
import typer
from rich.table import Table
from typer.testing import CliRunner

from cli.framework.command import CommandContext, CommandResult, command
from models_db.errors import AlmonerError, EnvironmentProblem, Refused, UsageError

Speak = Callable[[CommandContext], CommandResult]


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALMONER_HOME", str(tmp_path / "home"))  # and put back afterwards, whatever --home did


def typed(speak: Speak, *words: str) -> tuple[int, str, str]:
    """Run `speak` as a command beside another one; its exit code, stdout and stderr."""
    app = typer.Typer()
    command(app, "speak")(speak)
    command(app, "other")(lambda opened: CommandResult({}))
    done = CliRunner().invoke(app, ["speak", *words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_an_answer_is_for_people_or_for_programs() -> None:
    def speak(opened: CommandContext) -> CommandResult:
        opened.print_progress("one moment")
        return CommandResult({"budget": "8 ε", "left": None}, ["Plenty is left."])

    assert typed(speak) == (0, "Plenty is left.\n", "one moment\n")
    code, out, err = typed(speak, "--json")
    assert (code, json.loads(out), err) == (0, {"budget": "8 ε", "left": None}, "")
    assert "ε" in out


def test_an_answer_may_say_that_something_does_not_hold() -> None:
    assert typed(lambda opened: CommandResult({"ok": False}, ["It does not hold."], exit_code=1))[0] == 1


@pytest.mark.parametrize(("error", "code"), [(Refused, 1), (UsageError, 2), (EnvironmentProblem, 3)])
def test_an_error_is_told_once_with_advice_and_its_exit_code(error: type[AlmonerError], code: int) -> None:
    def speak(opened: CommandContext) -> CommandResult:
        raise error("It cannot be.", "Do [bold]this[/bold].", {"asked": 4})

    assert typed(speak) == (code, "", f"{error.__name__}: It cannot be.\nDo [bold]this[/bold].\n")
    ended, out, err = typed(speak, "--json")
    assert (ended, err) == (code, "")
    assert json.loads(out) == {
        "error": error.__name__,
        "message": "It cannot be.",
        "advice": "Do [bold]this[/bold].",
        "facts": {"asked": 4},
    }


def test_an_unforeseen_error_is_not_swallowed() -> None:
    def speak(opened: CommandContext) -> CommandResult:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        typed(speak)


def test_ctrl_c_ends_with_130() -> None:
    def speak(opened: CommandContext) -> CommandResult:
        raise KeyboardInterrupt

    code, out, err = typed(speak)
    assert (code, out) == (130, "")
    assert "Interrupted" in err


def test_a_home_is_found_by_option_then_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def speak(opened: CommandContext) -> CommandResult:
        return CommandResult({"home": str(opened.home.root)})

    assert json.loads(typed(speak, "--json")[1])["home"] == str(tmp_path / "home")
    assert json.loads(typed(speak, "--json", "--home", str(tmp_path / "x"))[1])["home"] == str(tmp_path / "x")


def test_a_command_keeps_its_own_parameters() -> None:
    def speak(
        opened: CommandContext, name: Annotated[str, typer.Argument(help="Who.")], times: int = 1
    ) -> CommandResult:
        return CommandResult({"said": name * times})

    assert json.loads(typed(speak, "ho", "--times", "2", "--json")[1]) == {"said": "hoho"}
    assert typed(speak)[0] == 2


def test_a_table_is_shown_as_a_table_and_nothing_as_markup() -> None:
    table = Table("column")
    table.add_row("value")
    _, out, _ = typed(lambda opened: CommandResult({}, [table, "[red]not red[/red]"]))
    assert "column" in out
    assert "value" in out
    assert "[red]not red[/red]" in out


def test_a_long_sentence_is_not_broken_where_there_is_no_terminal() -> None:
    sentence = "word " * 100
    assert sentence.strip() in typed(lambda opened: CommandResult({}, [sentence]))[1]
