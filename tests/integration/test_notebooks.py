"""docs/notebooks: executed with the models of this machine; the output that is kept is that of the code as it is."""

import copy
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebooks import NOTEBOOKS, ROOT, structures

CONCERNS = ("almoner", "docs/notebooks", "flows/approvals", "flows/datasets", "flows/releases", "flows/reports")


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def named(path: Path) -> str:
    return path.stem


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_a_notebook_runs_and_shows_what_it_keeps(path: Path, tmp_path: Path) -> None:
    """Its structure: figures, digests and texts differ each time."""
    result = tmp_path / path.name
    done = subprocess.run(
        [sys.executable, "-m", "tests.notebooks", str(path), str(result)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for (source, kept), (_, shown) in zip(structures(read(path)), structures(read(result)), strict=True):
        assert kept == shown, f"{source}\n\nType `make notebooks` if this is as it should be."


def test_there_are_two_and_the_readme_and_the_guide_name_them() -> None:
    assert [path.name for path in NOTEBOOKS] == ["first-release.ipynb", "insights.ipynb"]
    for page in ("README.md", "docs/python-api.md"):
        assert [path.name for path in NOTEBOOKS if path.name not in (ROOT / page).read_text()] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_a_kept_notebook_was_executed_from_top_to_bottom_without_an_error(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert {output.name for output in outputs if output.output_type == "stream"} <= {"stdout"}
    assert len(outputs) > len(code) / 2


class Active(HTMLParser):
    """What of a fragment runs or loads something."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(fragment)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "img", "link", "object", "embed", "form", "svg"):
            self.found.append(tag)
        self.found += [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_kept_output_loads_nothing_and_says_nothing_of_the_machine(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"(?:/home|/root|/tmp|/work|/usr|/var)/\S*", text) == []
    pages = [
        "".join(o.data.get("text/html", "")) for c in read(path).cells for o in c.get("outputs", []) if "data" in o
    ]
    assert sum(map(bool, pages)) >= 4
    assert [Active(page).found for page in pages if page and Active(page).found] == []


def test_another_structure_is_noticed() -> None:
    kept = read(NOTEBOOKS[0])
    changed = copy.deepcopy(kept)
    outputs = [output for cell in changed.cells for output in cell.get("outputs", ())]
    pages = [output for output in outputs if "text/html" in output.get("data", {})]
    figures = re.compile(r"0\.\d{6,}")
    pages[0].data["text/html"] = figures.sub("0.7", pages[0].data["text/html"])
    assert structures(changed) == structures(kept)
    for old, new in (("Look twice", "Look"), ("<caption", "<p>more</p><caption"), ("Price", "Cost")):
        other = copy.deepcopy(changed)
        page = next(
            o for c in other.cells for o in c.get("outputs", ()) if old in o.get("data", {}).get("text/html", "")
        )
        page.data["text/html"] = page.data["text/html"].replace(old, new)
        assert structures(other) != structures(kept), old
    outputs[-1].output_type = "stream"
    outputs[-1] |= {"name": "stderr", "text": "a warning"}
    assert structures(changed) != structures(kept)
