"""docs/python-api.md and docs/python-flows.md are run from top to bottom, and print what they say that they print."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import almoner as almoner_package
from tasks.inference.catalogue.registry import RECOMMENDED
from tests import tiny_model
from tests.integration.story import Almoner

CONCERNS = ("almoner", "docs/python-api.md", "flows/releases")

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/python-api.md", "docs/python-flows.md")
README, PAGE, FLOWS = ((ROOT / name).read_text() for name in PAGES)
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def with_tiny(lines: str) -> str:
    """What stands on a page, with the tiny model in place of the recommended ones; nothing else is changed."""
    return re.sub("|".join(map(re.escape, RECOMMENDED)), tiny_model.NAME, lines)


def steps(page: str) -> Iterator[tuple[str, str, str | None]]:
    """Each block to run: its language, its lines, and what it prints if the page says so."""
    for language, lines, printed in BLOCK.findall(page):
        yield language, with_tiny(lines), printed or None


def run(almoner: Almoner, page: str) -> dict[str, Any]:
    """Every block in its turn, the names of one known to the next; the names at the end."""
    names: dict[str, Any] = {}
    for language, lines, printed in steps(page):
        if language == "sh":
            for line in lines.splitlines():
                almoner.type(line.removeprefix("almoner "))
            continue
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(lines, "a page", "exec"), names)
        assert printed in (None, out.getvalue()), f"{lines}\nprinted:\n{out.getvalue()}"
    return names


@pytest.mark.slow
def test_the_page_of_the_package_does_what_it_says(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(almoner.folder)
    names = run(almoner, PAGE)
    assert names["bundle"].verify().holds
    assert almoner.ask("release list")[0]["state"] == "published"


TEN_LINES = re.compile(r"^```python\n(import almoner, pandas\n.*?)^```\n", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [README, PAGE], ids=["README", "python-api"])
def test_a_release_takes_ten_lines(page: str) -> None:
    (lines,) = TEN_LINES.findall(page)
    assert len(list(filter(None, lines.splitlines()))) == 10


class Terminal(io.StringIO):
    """What a person sees."""

    def isatty(self) -> bool:
        return True


COMMANDS = re.compile(r"^almoner (?!models)(.+?)(?: {2,}#.*)?$", re.MULTILINE)


@pytest.mark.parametrize("commands", [1, 12], ids=["alone", "after the commands"])
def test_the_ten_lines_of_the_readme_publish_a_release(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, commands: int
) -> None:
    """With the request that stands above them, in a new home or in the one of the commands above them."""
    monkeypatch.chdir(almoner.folder)
    almoner.notes_file()
    (request,) = re.findall(r"^```yaml\n(dataset: clinic\n.*?)^```", README, re.DOTALL | re.MULTILINE)
    almoner.write("request.yaml", with_tiny(request))
    story = COMMANDS.findall(README.partition("## A first release")[2].partition("```yaml")[0])
    assert story[0] == "init"
    for line in story[:commands]:
        almoner.type(line)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    names: dict[str, Any] = {}
    exec(compile(*TEN_LINES.findall(README), "README.md", "exec"), names)
    assert names["bundle"].verify().holds
    assert "preparing" in terminal.getvalue(), "a run shows its progress"
    assert len(names["texts"]) == 4
    assert len(almoner.ask("release list")) == (1 if commands == 1 else 2)


def test_a_traceback_says_what_to_do(tmp_path: Path) -> None:
    """The ten lines in a script, without a home."""
    (tmp_path / "first.py").write_text(*TEN_LINES.findall(README))
    environment = os.environ | {"ALMONER_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "first.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "HomeMissing: " in done.stderr
    assert "`almoner init`" in done.stderr.partition("HomeMissing: ")[2]


def visits(people: str) -> list[dict[str, str]]:
    """Texts of a few people."""
    return [
        {"patient_id": f"{people}{number}", "id": f"{people}{number}", "text": "Slept well."} for number in range(5)
    ]


def test_a_dataset_with_a_version_is_registered_again_with_the_same_terms_alone(almoner: Almoner) -> None:
    almoner.type("init")
    home = almoner_package.open(almoner.home.root)
    terms: dict[str, Any] = {"unit": "patient_id", "epsilon": 8, "delta": "1e-6", "population": 60}
    first = home.register("clinic", **terms)
    first.ingest(visits("p"))
    assert home.register("clinic", **terms | {"epsilon": "8.0"}) == first
    changes = ({"unit": "id"}, {"epsilon": 4}, {"delta": 1e-7}, {"population": 61}, {"text": "note"}, {"blocks": 2})
    for change in (*changes, {"public": True}, {"public_metadata": {"region": "nowhere"}}):
        with pytest.raises(almoner_package.Refused, match="registered already"):
            home.register("clinic", **terms | change)
    assert [dataset.name for dataset in home.datasets()] == ["clinic"]


def test_a_shared_account_is_no_account_of_its_own(almoner: Almoner) -> None:
    """Who asked for a budget of its own got the dataset that spends another one's."""
    almoner.type("init")
    home = almoner_package.open(almoner.home.root)
    unit: dict[str, Any] = {"unit": "patient_id"}
    own: dict[str, Any] = unit | {"epsilon": 8, "delta": 1e-6}
    first = home.register("clinic", **own)
    home.register("elsewhere", **own)
    shared = home.register("b", **unit, shares_account_with="clinic")
    for dataset, people in (("clinic", "p"), ("elsewhere", "q"), ("b", "p")):
        home.dataset(dataset).ingest(visits(people))
    assert home.register("b", **unit, shares_account_with="clinic") == shared
    assert home.register("clinic", **own) == first
    for name, terms in (
        ("b", own),
        ("b", unit | {"shares_account_with": "elsewhere"}),
        ("b", unit | {"shares_account_with": "b"}),
        ("b", {"unit": "id", "shares_account_with": "clinic"}),
        ("clinic", unit | {"shares_account_with": "b"}),
        ("clinic", unit | {"shares_account_with": "clinic"}),
        ("elsewhere", unit | {"shares_account_with": "clinic"}),
    ):
        with pytest.raises(almoner_package.Refused, match="registered already"):
            home.register(name, **terms)


def test_every_object_and_method_of_the_page_is_there_and_no_other() -> None:
    """The table names each public method, by which a reader finds the rest."""
    rows = re.findall(r"^\| (`[A-Z].*?) \| .*? \| (.*?) \|$", PAGE, re.MULTILINE)
    told = {
        name: set(re.findall(r"`(\w+)[(`]", cell)) for first, cell in rows for name in re.findall(r"`(\w+)`", first)
    }
    assert set(told) == {"Home", "Dataset", "Request", "Bundle", "Rows", "Price", "Budget", "Review", "Report"}
    for name in ("Home", "Dataset", "Request", "Bundle", "Rows"):
        own = {
            each
            for each, value in vars(getattr(almoner_package, name)).items()
            if not each.startswith("_") and callable(value)
        }
        assert own - {"at"} <= told[name], name


@pytest.mark.slow
def test_the_page_of_the_functions_does_what_it_says(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(almoner.folder)
    names = run(almoner, FLOWS)
    assert names["found"].holds
    assert names["outcome"].spent.rho > 0
    assert names["budget"].balance.spent == names["outcome"].spent
    assert len(names["facts"]) > 10


def test_a_page_that_prints_something_else_is_noticed(almoner: Almoner) -> None:
    with pytest.raises(AssertionError, match="printed"):
        run(almoner, "```python\nprint(1)\n```\n\n```text\n2\n```\n")


@pytest.mark.parametrize("page", [PAGE, FLOWS], ids=["python-api", "python-flows"])
def test_the_page_says_what_its_blocks_print(page: str) -> None:
    """A block that prints is followed by what it prints; the ones that cannot know it beforehand print drawn texts."""
    silent = [lines for _, lines, printed in steps(page) if "print(" in lines and "texts(" not in lines and not printed]
    assert silent == []
