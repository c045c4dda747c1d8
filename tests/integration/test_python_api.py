"""docs/python-api.md is run from top to bottom, and prints what it says that it prints."""

import importlib
import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests import tiny_model
from tests.integration.story import Almoner

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python-api.md").read_text()
MODEL = "smollm2-135m-instruct"
"""What the page names. The tiny model stands in for it, and nothing else on the page is changed."""

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def steps(page: str) -> Iterator[tuple[str, str, str | None]]:
    """Each block to run: its language, its lines, and what it prints if the page says so."""
    for language, lines, printed in BLOCK.findall(page):
        yield language, lines.replace(MODEL, tiny_model.NAME), printed or None


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
            exec(compile(lines, "docs/python-api.md", "exec"), names)
        assert printed in (None, out.getvalue()), f"{lines}\nprinted:\n{out.getvalue()}"
    return names


def test_the_page_does_what_it_says(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(almoner.folder)
    names = run(almoner, PAGE)
    assert names["found"].holds
    assert names["outcome"].spent.rho > 0
    assert names["budget"].balance.spent == names["outcome"].spent
    assert len(names["facts"]) > 10


def test_a_page_that_prints_something_else_is_noticed(almoner: Almoner) -> None:
    with pytest.raises(AssertionError, match="printed"):
        run(almoner, "```python\nprint(1)\n```\n\n```text\n2\n```\n")


def test_the_page_says_what_its_blocks_print() -> None:
    """A block that prints is followed by what it prints; the ones that cannot know it beforehand print nothing."""
    silent = [lines for language, lines, printed in steps(PAGE) if "print(" in lines and not printed]
    assert silent == []


def table_rows() -> list[tuple[str, str]]:
    part = PAGE.partition("## Which function a command calls")[2]
    return re.findall(r"^\| (`almoner .+?) \| (.+?) \|$", part, re.MULTILINE)


def dotted_names(cell: str) -> Iterator[str]:
    """A name without a dot belongs to the module of the name before it."""
    room = ""
    for name in re.findall(r"`([\w.]+)`", cell):
        if "." in name:
            room = name.rpartition(".")[0]
        yield name if "." in name else f"{room}.{name}"


def exists(name: str) -> bool:
    """Whether it is a module, or a name in one."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        room, _, last = name.rpartition(".")
        return hasattr(importlib.import_module(room), last)
    return True


def test_the_functions_that_commands_call_exist() -> None:
    rows = table_rows()
    assert len(rows) >= 10
    assert [name for _, cell in rows for name in dotted_names(cell) if not exists(name)] == []
