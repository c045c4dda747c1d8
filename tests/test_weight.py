"""The weight of almoner: each figure is at most its ceiling, and a ceiling is lowered with the figure.

A ceiling rises only together with a line in CHANGELOG.md that says what the new weight is for. Formatting changes no
figure: statements are those of the syntax tree, without docstrings.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from models_db.database.base import Base
from tests.test_docs import COMMANDS
from tests.test_layout import ROOMS, ROOT, parsed

GENERATED = {"CHANGELOG.md", "docs/errors.md", "docs/python-reference.md"}
SHARED_OPTIONS = {"--home", "--json", "--json-schema", "--help"}

CEILING = {
    "statements of the product": 45008,
    "modules of the product": 551,
    "error classes": 93,
    "statements of tests": 66293,
    "statements of benchmarks": 7203,
    "tables": 50,
    "commands": 87,
    "options": 259,
    "settings of files": 164,
    "words of documentation": 109423,
    "decisions": 19,
}
SLACK = 0.005
"""A ceiling that is higher by more than this share is lowered."""


@cache
def tracked(pattern: str) -> tuple[Path, ...]:
    """Return the files of the checkout that match a pattern, new ones among them."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return tuple(ROOT / name for name in names if (ROOT / name).is_file())


def below(*folders: str) -> list[Path]:
    """Return the Python files below some folders."""
    return [path for path in tracked("*.py") if path.relative_to(ROOT).parts[0] in folders]


def statements(paths: Iterable[Path]) -> int:
    """Return how many statements files have, docstrings and other bare texts left out."""
    return sum(isinstance(node, ast.stmt) and not is_text(node) for path in paths for node in ast.walk(parsed(path)))


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def error_classes() -> int:
    """Return how many classes of the product derive from an exception, through any number of ours."""
    classes = {
        node.name: {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}
        for path in below(*ROOMS)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    }
    errors = {"Exception", "BaseException", "ValueError", "RuntimeError"}
    while more := {name for name, bases in classes.items() if bases & errors} - errors:
        errors |= more
    return len(errors & classes.keys())


def options() -> Iterator[str]:
    """Yield the own options of every command."""
    for name, command in COMMANDS.items():
        for parameter in command.params:
            if parameter.opts[0].startswith("-") and not SHARED_OPTIONS & set(parameter.opts):
                yield f"{name} {parameter.opts[0]}"


SETTINGS = """
import tasks.systems.registry  # its mechanisms bring every model of parameters
from models_db.values.requests import RequestModel

models, waiting = set(), [RequestModel]
while waiting:
    model = waiting.pop()
    models.add(model)
    waiting += model.__subclasses__()
print(len({name for model in models for name in model.model_fields}))
"""


def settings() -> int:
    """Return how many names request files may use, in their blocks and in every mechanism's parameters.

    They are counted in a process of its own, because other tests make models, and import others of ours.
    """
    command = [sys.executable, "-c", SETTINGS]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def words() -> int:
    """Return how many words the pages that people write have."""
    pages = [path for path in tracked("*.md") if path.relative_to(ROOT).as_posix() not in GENERATED]
    return sum(len(path.read_text(encoding="utf-8").split()) for path in pages)


@cache
def weight() -> Mapping[str, int]:
    """Return every figure of the weight."""
    return {
        "statements of the product": statements(below(*ROOMS)),
        "modules of the product": len(below(*ROOMS)),
        "error classes": error_classes(),
        "statements of tests": statements(below("tests")),
        "statements of benchmarks": statements(below("benchmarks")),
        "tables": len(Base.metadata.tables),
        "commands": len(COMMANDS),
        "options": len(set(options())),
        "settings of files": settings(),
        "words of documentation": words(),
        "decisions": len(tracked("docs/decisions/0*.md")),
    }


@pytest.mark.parametrize("name", CEILING)
def test_a_figure_is_at_its_ceiling(name: str) -> None:
    measured = weight()[name]
    assert measured <= CEILING[name], "remove something, or raise the ceiling with a line in CHANGELOG.md"
    assert measured >= CEILING[name] * (1 - SLACK) - 1, f"lower the ceiling to {measured}"


def test_every_figure_has_a_ceiling() -> None:
    assert weight().keys() == CEILING.keys()


if __name__ == "__main__":
    for name, figure in weight().items():
        sys.stdout.write(f"{name}: {figure}\n")
