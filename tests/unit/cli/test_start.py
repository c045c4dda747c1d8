"""What a command imports before it does anything: counted in modules, never in seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.core import TyperGroup
from typer.testing import CliRunner

from cli.app import app
from cli.command_table import COMMANDS, START, ListedCommand

pytestmark = pytest.mark.dear
CONCERNS = ("cli", "flows")

HEAVY = {
    "alembic", "boto3", "botocore", "datasets", "dp_accounting", "fastapi", "jinja2", "opendp", "pandas",
    "prefect", "pyarrow", "pydp", "ray", "scipy", "securesystemslib", "sentence_transformers", "sklearn", "spacy",
    "starlette", "torch", "transformers", "uvicorn",
}  # fmt: skip
"""No command that only reads the ledger imports one of these."""
LEDGER = {"sqlalchemy", "cryptography", "numpy", "mpmath", "models_db", "flows"}
"""Nor, before a home is opened, one of these."""
PROBE = """
import atexit, json, os, sys
atexit.register(lambda: open(os.environ["PROBE"], "w").write(json.dumps(sorted(sys.modules))))
from cli.app import main
sys.argv[0] = "almoner"
main()
"""


def started(folder: Path, *words: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """A command in a process of its own, and the modules it imported."""
    report = folder / "modules.json"
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *words],
        env={**os.environ, "PROBE": str(report), "ALMONER_HOME": str(folder / "home"), "TERM": "dumb", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, set(json.loads(report.read_text()))


def shown(*words: str, columns: int = 200) -> Result:
    """What a command line that imports no command prints, in this process."""
    return CliRunner().invoke(app, words, env={"COLUMNS": str(columns), "TERM": "dumb"}, prog_name="almoner")


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def first_paragraph(help_text: str | None) -> str:
    return " ".join((help_text or "").partition("\n\n")[0].split())


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_the_table_says_what_the_module_says(entry) -> None:
    loaded = ListedCommand(entry).load()
    assert loaded.name == entry.name
    assert entry.help == first_paragraph(loaded.help)


def test_help_pages_name_values_alike() -> None:
    """A switch has no value; others are named by their type, or by a name of their own."""
    done = shown("budget", "simulate", "--help")
    assert "simulate [OPTIONS] {NAME}" in done.stdout
    assert "<bool>" not in done.stdout
    values = {line.split()[1]: line.split()[2] for line in done.stdout.splitlines() if line.startswith("│    --")}
    assert {name: values[name] for name in ("--delta", "--releases", "--home", "--cohorts")} == {
        "--delta": "TEXT", "--releases": "N", "--home": "PATH", "--cohorts": "newest|N,N"}  # fmt: skip


def test_every_module_with_commands_is_in_the_table() -> None:
    import importlib
    import pkgutil

    import cli.commands

    parts = {"cli.commands.dataset.erase"}  # of the group dataset
    found = set()
    for each in pkgutil.walk_packages(cli.commands.__path__, "cli.commands."):
        module = importlib.import_module(each.name)
        if hasattr(module, "register") or isinstance(getattr(module, "app", None), typer.Typer):
            found.add(each.name)
    assert found - parts == {entry.module for entry in COMMANDS}


def test_every_command_that_a_module_registers_is_in_the_table() -> None:
    import importlib

    offered = set()
    for module in {importlib.import_module(entry.module) for entry in COMMANDS}:
        root = typer.Typer()
        root.callback()(lambda: None)
        if hasattr(module, "register") and module.__name__ != "cli.commands.dataset.erase":
            module.register(root)
        offered |= set(typer.main.get_group(root).commands)
        if hasattr(module, "app"):
            group = {entry.name for entry in COMMANDS if entry.module == module.__name__} - offered
            assert len(group) == 1
            offered |= group
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert offered == {entry.name for entry in COMMANDS} == set(group.commands)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        *[(words, 0) for words in ([], ["--help"], ["-h"], ["help"], ["help", "all"], ["--version"])],
        *[(words, 2) for words in (["aprove"], ["help", "aprove"])],
    ],
)
def test_what_needs_no_command_imports_none(tmp_path: Path, words: list[str], code: int) -> None:
    done, modules = started(tmp_path, *words)
    assert done.returncode == code, done.stderr
    assert not packages(modules) & (HEAVY | LEDGER)
    mistyped = {"cli.command_table"} if code else set()
    assert {name for name in modules if name.startswith("cli.")} <= mistyped | {
        "cli.app",
        "cli.command_table",
        "cli.framework",
        "cli.framework.options",
    }
    assert len(modules) < 480


def test_the_first_page_begins_with_a_first_release_and_fits_a_screen() -> None:
    (page,) = {shown(*words, columns=80).stdout.rstrip() for words in ([], ["-h"], ["help"])}
    lines = page.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    panels = [line.split()[1] for line in lines if line.startswith("╭")]
    assert panels == ["Start", "All", "Options"]
    top, bottom = (next(i for i, line in enumerate(lines) if line.startswith(edge)) for edge in ("╭─ Start", "╰"))
    start = [line[2:20].strip() for line in lines[top + 1 : bottom] if line[2] != " "]
    assert start == [
        "init",
        "dataset register",
        "dataset ingest",
        "plan",
        "release request",
        "approve",
        "run",
        "publish",
    ]
    others = " ".join(line.strip("│ ") for line in lines).partition("All commands")[2].partition("Options")[0]
    assert {entry.name for entry in COMMANDS} <= set(others.replace(",", " ").split())
    assert "almoner help all" in lines[-1]


@pytest.mark.parametrize(("words", "line"), START)
def test_the_first_page_says_what_the_module_says(words: str, line: str) -> None:
    done = shown("help", *words.split())
    assert line in done.stdout
    assert f"Usage: almoner {words} " in done.stdout


def test_help_all_describes_every_command() -> None:
    done = shown("help", "all")
    for entry in COMMANDS:
        assert entry.name in done.stdout
        assert entry.help[:40] in done.stdout


def test_a_mistyped_command_is_corrected() -> None:
    assert "approve" in shown("aprove", "3").stderr


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert shown("--version").stdout == f"almoner {version('almoner')}\n"


def test_completion_of_a_command_imports_none(tmp_path: Path) -> None:
    done, modules = started(tmp_path, _ALMONER_COMPLETE="complete_bash", COMP_WORDS="almoner ap", COMP_CWORD="1")
    assert done.stdout.split() == ["approve"], done.stderr
    assert not packages(modules) & (HEAVY | LEDGER)


def test_completion_inside_a_group_names_its_commands(tmp_path: Path) -> None:
    done, modules = started(tmp_path, _ALMONER_COMPLETE="complete_bash", COMP_WORDS="almoner budget s", COMP_CWORD="2")
    assert set(done.stdout.split()) == {"show", "simulate"}, done.stderr
    assert not packages(modules) & HEAVY


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose `home` has one dataset."""
    folder = tmp_path_factory.mktemp("start")
    for words in (
        ["init"],
        ["dataset", "register", "clinic", "--unit", "patient", "--epsilon", "4", "--delta", "1e-5"],
    ):
        done, _ = started(folder, *words)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow_except("budget show clinic-0-800", "run 7-2-800", "plan clinic --choice 1-2-800")
@pytest.mark.parametrize(
    ("line", "code", "most"),
    [
        ("budget show clinic", 0, 800),
        ("budget show clinik", 2, 800),
        ("budget forecast clinic", 0, 800),
        ("audit log", 0, 800),
        ("audit log --since yesterday", 2, 800),
        ("run soon", 2, 800),
        ("dataset list", 0, 800),
        ("release list", 0, 800),
        ("release show 7", 2, 800),
        ("run 7", 2, 800),
        ("publish 7 --to out", 2, 800),
        ("plan clinik", 2, 800),
        ("plan clinic --choice 1", 2, 800),
    ],
)
def test_reading_the_ledger_imports_no_library_of_the_work(home: Path, line: str, code: int, most: int) -> None:
    done, modules = started(home, *line.split())
    assert done.returncode == code, done.stderr
    assert not packages(modules) & (HEAVY | {"numpy"})
    assert len(modules) < most


@pytest.mark.slow
def test_a_stored_check_of_a_model_needs_no_transformers(home: Path) -> None:
    """What looks for the stored result is imported before the name is found wrong."""
    done, modules = started(home, "models", "check", "nosuch")
    assert done.returncode == 2, done.stderr
    assert "tasks.inference.loading.check_model" in modules
    assert "transformers" not in modules


NEVER = HEAVY - {"dp_accounting", "jinja2", "alembic"}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        pytest.param("dataset show clinik", 2, marks=pytest.mark.slow),
        pytest.param("approve 7 --gate spend --reason x", 2, marks=pytest.mark.slow),
        ("audit verify", 0),
        ("plan --help", 0),
        pytest.param("plan clinic --time soon", 2, marks=pytest.mark.slow),
        pytest.param("plan clinic", 2, marks=pytest.mark.slow),
        pytest.param("proposal list", 0, marks=pytest.mark.slow),
        pytest.param("user list", 0, marks=pytest.mark.slow),
    ],
)
def test_other_commands_import_no_model_and_no_cloud(home: Path, line: str, code: int) -> None:
    done, modules = started(home, *line.split())
    assert done.returncode == code, done.stderr
    assert not packages(modules) & NEVER
    assert len(modules) < 1250


@pytest.mark.slow
def test_running_no_schedule_imports_no_prefect(tmp_path: Path) -> None:
    assert started(tmp_path, "init")[0].returncode == 0
    done, modules = started(tmp_path, "schedule", "run", PREFECT_HOME=str(tmp_path / "none"))
    assert done.returncode == 0, done.stderr
    assert "prefect" not in packages(modules)
