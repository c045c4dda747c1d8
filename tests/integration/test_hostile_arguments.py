"""Arguments that no value can have: each command refuses them by name, and a device stays what it is."""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from almoner.home import open_home
from cli.app import app
from cli.command_table import ListedCommand
from flows.approvals.confirmation import require_reason
from models_db.home import ProjectHome
from tests.integration.story import REQUEST, Almoner
from tests.refusals import refusal

CONCERNS = ("cli", "models_db/values", "models_db/home.py")

BYTES = "bad\udcff"
NUL = "a\0b"
LONG = "n" * 300
LINES = {
    "an epsilon near zero": (
        'dataset cap clinic --epsilon 1e-400 --delta 1e-7 --reason "smaller" --dry-run', {1, 2}
    ),
    "an epsilon that is a fraction": ("budget simulate clinic --epsilon 1/3", {2}),
    "a delta that is a fraction": ("budget simulate clinic --epsilon 1 --delta 1/3", {2}),
    "a number of 5,000 digits": ("run " + "9" * 5000, {2}),
    "a time after all times": ("audit log --since 9999-12-31T23:59:59-12:00", {2}),
    "a time before all times": ("audit log --until 0001-01-01T00:00:00+14:00", {2}),
    "an export from such a time": ("audit export --to links.jsonl --since 9999-12-31T23:59:59-12:00", {2}),
    "an anchor of 300 bytes": (f"audit verify --against {LONG}", {1, 2, 3}),
    "a bundle of 300 bytes": (f"verify-release {LONG}", {1, 2, 3}),
    "a release of insights of 300 bytes": (f"insights compare {LONG} 1", {1, 2, 3}),
    "a release of insights of 5,000 digits": ("insights compare " + "9" * 5000 + " 1", {1, 2, 3}),
    "a release of insights that is memory": ("insights compare /proc/self/mem 1", {1, 2, 3}),
    "a backup of 300 bytes": (f"backup --to {LONG}", {2, 3}),
    "a backup without a name": ("backup --to ''", {2, 3}),
    "an attack on a request of 5,000 digits": ("attack run " + "9" * 5000 + " --on public-notes", {2, 3}),
    "an attack on a request in superscript": ("attack run ² --on public-notes", {2, 3}),
    "cohorts of 5,000 digits": ("budget show clinic --cohorts " + "9" * 5000, {2}),
    "a request of 20 digits": ("release show 99999999999999999999", {2}),
    "a page of 20 digits": ("audit log --before 99999999999999999999", {2}),
    "an anchor that is memory": ("audit verify --against /proc/self/mem", {1, 2, 3}),
}  # fmt: skip
TEXTS = (
    "dataset show {}",
    "budget show {}",
    "audit log --dataset {}",
    "attack run 1 --on {}",
    'approve 1 --gate spend --reason "{}"',
    'reject 1 --gate spend --reason "{}"',
    'user grant analyst steward --reason "{}"',
    "audit verify --against {}",
    "insights compare {} 1",
    "insights compare --last {}",
)


@pytest.mark.parametrize("name", LINES)
def test_what_no_value_can_be_is_refused_by_name(almoner: Almoner, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    line, codes = LINES[name]
    almoner.ingested()
    monkeypatch.chdir(almoner.folder)
    before = almoner.everything()
    told = almoner.type(f"{line} --json", None)
    assert told.code in codes
    assert told.err or told.json["error"]
    assert almoner.everything() == before


def test_text_that_is_not_utf_8_is_refused_before_anything_is_read(almoner: Almoner) -> None:
    almoner.ingested()
    for line in TEXTS:
        for text in (BYTES, NUL):
            assert almoner.ask(line.format(text), 2)["error"] == "UnreadableArgument"


@pytest.mark.parametrize("by", ["the option", "the environment"])
@pytest.mark.parametrize("line", ["init", "doctor", "dataset list", "release list"])
def test_a_home_that_is_not_utf_8_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, by: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if by == "the environment":
        monkeypatch.setenv("ALMONER_HOME", BYTES)
    done = CliRunner().invoke(app, [*line.split(), "--json", *([] if by == "the environment" else ["--home", BYTES])])
    assert json.loads(done.stdout)["error"] == "HomePathUnreadable"
    assert done.exit_code == 3
    assert not list(tmp_path.iterdir())


SCALARS = {
    "bytes": (BYTES, {2, 3}),
    "nul": (NUL, {2, 3}),
    "long": (LONG, {0, 1, 2, 3}),
    "empty": ("", {0, 1, 2, 3}),
    "5,000 digits": ("9" * 5000, {0, 1, 2, 3}),
    "20 digits": ("9" * 20, {0, 1, 2, 3}),
    "superscript": ("²", {0, 1, 2, 3}),
    "a fraction": ("1/3", {0, 1, 2, 3}),
    "nothing finite": ("nan", {0, 1, 2, 3}),
    "a small number": ("1e-400", {0, 1, 2, 3}),
    "a large number": ("1e999999999", {0, 1, 2, 3}),
    "negative": ("-1", {0, 1, 2, 3}),
    "a late time": ("9999-12-31T23:59:59-12:00", {0, 1, 2, 3}),
    "inside a file": ("notes.jsonl/x", {0, 1, 2, 3}),
}
"""What an argument can be, and the exit codes that a command may end with."""
ELSEWHERE = {"dashboard", "demo", "serve", "models pull"}
"""Commands that serve, run for minutes, or reach a network; their arguments are tested where they are."""


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command below a group, by its words."""
    loaded = group.load() if isinstance(group, ListedCommand) else group
    if not isinstance(loaded, TyperGroup):
        yield " ".join(path), loaded
        return
    for name, inner in loaded.commands.items():
        yield from leaves(inner, (*path, name))


def arguments_of(line: Any) -> list[Any]:
    """Arguments and options that take a value."""
    return [
        one for one in line.params if not getattr(one, "is_flag", False) and one.name not in ("help", "port", "host")
    ]


def usual(one: Any) -> str:
    """A value that many parameters of that name take."""
    return "clinic" if one.name in ("name", "dataset") else "1"


def typed(name: str, line: Any, hostile: Any, value: str) -> list[str]:
    """A command line in which one argument is hostile and the others that it needs are usual."""
    chosen = {one.name: value if one is hostile else usual(one) for one in arguments_of(line)}
    needed = [one for one in arguments_of(line) if one.required or one is hostile]
    options = [f"{one.opts[0]}={chosen[one.name]}" for one in needed if one.param_type_name == "option"]
    positional = [chosen[one.name] for one in needed if one.param_type_name == "argument"]
    preview = ["--dry-run"] if any(one.name == "dry_run" for one in line.params) else []
    return [*name.split(), *preview, *options, "--", *positional]


def spoiled(almoner: Almoner, kinds: Callable[[int], Sequence[str]]) -> tuple[int, list[tuple[object, ...]]]:
    """Type every command with every argument spoiled; how many were typed, and which ended other than in a refusal."""
    faults: list[tuple[object, ...]] = []
    count = 0
    commands = dict(leaves(typer.main.get_command(app)))
    assert set(commands) >= ELSEWHERE
    for name, line in commands.items():
        if name in ELSEWHERE:
            continue
        for one in arguments_of(line):
            for kind in kinds(count):
                value, codes = SCALARS[kind]
                count += 1
                with pytest.MonkeyPatch.context() as patch:
                    patch.setenv("ALMONER_HOME", str(almoner.home))
                    done = CliRunner().invoke(app, typed(name, line, one, value), input="clinic\n")
                if (
                    not (done.exception is None or isinstance(done.exception, SystemExit))
                    or done.exit_code not in codes
                ):
                    faults.append((name, one.name, kind, done.exit_code, repr(done.exception)))
    return count, faults


def test_no_argument_of_any_command_ends_in_a_traceback(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each argument of each command takes one of the hostile values, in turn."""
    almoner.ingested()
    monkeypatch.chdir(almoner.folder)
    monkeypatch.setenv("HOME", str(almoner.folder))
    count, faults = spoiled(almoner, lambda number: (list(SCALARS)[number % len(SCALARS)],))
    assert faults == []
    assert count > 200


@pytest.mark.slow
def test_no_hostile_value_of_any_argument_ends_in_a_traceback(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.ingested()
    monkeypatch.chdir(almoner.folder)
    monkeypatch.setenv("HOME", str(almoner.folder))
    count, faults = spoiled(almoner, lambda number: tuple(SCALARS))
    assert faults == []
    assert count > 200 * len(SCALARS)


@pytest.mark.parametrize("name", ["home?a=1", "home#b", "home%2e%2e", "home;c", "höme ü"])
def test_a_home_has_its_ledger_inside_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    from models_db.sessions.database import Database

    home = ProjectHome(tmp_path / name)
    assert Database(home.database_url).engine.url.database == str(home.root / "almoner.db")


CONTROLS = ("a\x1b[2Jb", "a\x01b", "a\rb", "a\x7fb", "a\x85b")


@pytest.mark.parametrize("sign", [NUL, *CONTROLS])
def test_control_characters_are_refused_on_the_command_line_in_python_and_in_files(almoner: Almoner, sign: str) -> None:
    almoner.submitted()
    before = almoner.everything()[0]
    told = almoner.type(shlex.join(["approve", "1", "--gate", "spend", "--reason", sign, "--json"]), 2)
    assert told.json["error"] == "UnreadableArgument"
    request = open_home(almoner.home.root).request(1)
    for call in (
        lambda: request.approve("spend", reason=sign, confirm="clinic"),
        lambda: request.reject(reason=sign),
        lambda: request.withdraw(reason=sign),
    ):
        with refusal("UnreadableArgument"):
            call()
    with refusal("UnreadableArgument"):
        require_reason(sign)
    with refusal("FileInvalid", match="a text has a control character"):
        open_home(almoner.home.root).dataset("clinic").price(epsilon=1.0, delta=1e-6, prompt=sign)
    path = almoner.write("request.yaml", json.dumps(REQUEST | {"prompt": {"description": sign}}))
    assert almoner.ask(f"release request {path}", 2)["error"] in ("FileInvalid", "InvalidYaml")
    assert almoner.everything()[0] == before
