"""A system is one thing in one place: it leaves with its folder and a registry's line, and returns as an extension.

Nothing else of the product names it (`test_nothing_else_names_the_system`), and in a copy of the
product without it the other systems plan as before.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_layout import ROOMS, ROOT

YES = {"name": "yes", "keywords": ["pain"]}
REQUESTS: dict[str, dict[str, Any]] = {
    "few_shot_generation": {"samples": 4, "references": 8, "max_new_tokens": 16, "temperature": "1"},
    "question_histogram": {"questions": [{"question": "Does it hurt?", "rule": "keywords", "answers": [YES]}]},
}
CLASSES = {"few_shot_generation": "FewShotGeneration", "question_histogram": "QuestionHistogram"}

PLANS = """
import json, sys
from models_db.values.amounts import Amount
from tasks.systems.registry import SYSTEMS
from tasks.values.plan import PlanInputs

name, parameters = json.loads(sys.stdin.read())
def planned(name, parameters):
    system = SYSTEMS[name]
    ask = PlanInputs(Amount(10**9, 0), system.parameters.model_validate(parameters), 1, 500, True)
    plan = system.plan(ask)
    return [plan.facts, [repr(event) for event in plan.events], plan.samples, system.wording is None]
ink = {"samples": 4, "references": 8, "max_new_tokens": 16, "temperature": "1"}
print(json.dumps([sorted(SYSTEMS), planned("invisible_ink", ink), planned(name, parameters) if name else None]))
"""


def plans(root: Path, name: str | None, parameters: dict[str, Any]) -> list[Any]:
    """What the product in a folder plans, in a process of its own."""
    given = json.dumps([name, parameters])
    command = [sys.executable, "-P", "-c", PLANS]
    done = subprocess.run(
        command, cwd=root, env={"PYTHONPATH": str(root)}, input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: list[Any] = json.loads(done.stdout)
    return result


def without(system: str, folder: Path) -> Path:
    """A copy of the product without the folder of a system and without its lines in the registry."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.move(folder / "tasks" / "systems" / system, folder / "removed")
    registry = folder / "tasks" / "systems" / "registry.py"
    lines = registry.read_text().splitlines(keepends=True)
    left = [line for line in lines if CLASSES[system] not in line]
    assert len(lines) - len(left) == 2  # its import and its entry
    registry.write_text("".join(left))
    return folder


def installed_again(system: str, folder: Path) -> str:
    """Lay its folder down as a package that extends almoner, and return its name there."""
    package, name = folder / "returned", f"returned.{system}"
    shutil.move(folder / "removed", package)
    for module in package.glob("*.py"):
        module.write_text(module.read_text().replace(f"tasks.systems.{system}", "returned"))
    front = package / "__init__.py"
    front.write_text(front.read_text().replace(f'name: str = "{system}"', f'name: str = "{name}"'))
    information = folder / "returned-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: returned\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[almoner.systems]\n{name} = returned:SYSTEM\n")
    front.write_text(f"{front.read_text()}\n\nSYSTEM = {CLASSES[system]}()\n")
    return name


@pytest.mark.dear
@pytest.mark.parametrize("system", CLASSES)
def test_a_system_leaves_with_its_folder_and_returns_as_an_extension(system: str, tmp_path: Path) -> None:
    names, ink, own = plans(ROOT, system, REQUESTS[system])
    folder = without(system, tmp_path)
    assert plans(folder, None, {}) == [[name for name in names if name != system], ink, None]
    returned = installed_again(system, folder)
    again = plans(folder, returned, REQUESTS[system])
    assert again == [sorted([*(name for name in names if name != system), returned]), ink, own]


@pytest.mark.parametrize("system", CLASSES)
def test_nothing_else_names_the_system(system: str) -> None:
    own, pattern = ROOT / "tasks" / "systems" / system, re.compile(rf"\b({system}|{CLASSES[system]})")
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in {".py", ".html", ".js"}]
    naming = {path for path in files if own not in path.parents and pattern.search(path.read_text())}
    assert naming == {ROOT / "tasks" / "systems" / "registry.py"}
