"""The rooms: whose names they are, what may be in them, and what must not."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

CONCERNS = ("models_db",)

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("almoner", "cli", "flows", "migrations", "models_db", "tasks")
MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
MOST_LINES, MOST_LINES_OF_TESTS = 600, 650


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def installed() -> Mapping[str, list[str]]:
    """The distributions of each top-level name."""
    return packages_distributions()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_ours_alone(room: str) -> None:
    """PyPI has distributions that ship top-level `flows` and `tasks`; pip would merge them into ours unasked."""
    assert set(installed().get(room, ())) <= {"almoner"}
    found = importlib.util.find_spec(room)
    assert found is not None
    assert found.origin is not None
    assert Path(found.origin).parent == ROOT / room


def test_the_wheel_holds_the_rooms_and_their_documentation() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert sorted(built["only-include"]) == sorted([*ROOMS, "docs"])
    assert built["sources"] == {"docs": "almoner/docs"}
    for room in ROOMS:
        assert (ROOT / room / "py.typed").exists()


def imported_packages(path: Path) -> set[str]:
    """The packages of others that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found - set(ROOMS) - sys.stdlib_module_names


def undeclared(paths: Iterable[Path]) -> dict[str, str]:
    """Packages that no requirement of the wheel names, and a module that imports each; as deptry of `make audit`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, deptry = settings["project"], settings["tool"]["deptry"]
    asked = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    packages = {re.split(r"[^a-z0-9._-]", line.lower(), maxsplit=1)[0] for line in asked}
    modules = {deptry["package_module_name_map"].get(name, name.replace("-", "_")) for name in packages}
    known = modules | set(deptry["per_rule_ignores"]["DEP004"])
    return {package: named(path) for path in paths for package in imported_packages(path) - known}


def test_every_imported_package_is_declared() -> None:
    assert undeclared(MODULES) == {}


def test_the_search_for_undeclared_packages_finds_them() -> None:
    found = undeclared([ROOT / "tests" / "test_docs.py", ROOT / "tests" / "test_layout.py"])
    assert found["pytest"].startswith("tests/")


def test_no_flow_hides_another_module() -> None:
    """Prefect puts `flows/` first on sys.path when a flow is named by path, so a file there shadows its namesake."""
    taken = {*ROOMS, *sys.stdlib_module_names, *installed(), "prefect", "torch", "transformers"}
    assert [path.stem for path in (ROOT / "flows").glob("*.py") if path.stem in taken - {"__init__"}] == []


IMPORTED_FIRST = """
import importlib, sys
for module in sys.argv[1:]:
    for name in [name for name in sys.modules if name.split(".")[0] == "models_db"]:
        del sys.modules[name]
    importlib.import_module(module)
"""


@pytest.mark.slow
def test_any_module_of_the_ledger_can_be_imported_first() -> None:
    """A process that is spawned starts with whichever it needs, and finds rings that others never meet."""
    modules = [".".join(Path(named(path)).with_suffix("").parts) for path in MODULES if "models_db" in path.parts]
    assert "models_db.services.cohorts" in modules
    told = subprocess.run([sys.executable, "-c", IMPORTED_FIRST, *modules], cwd=ROOT, capture_output=True, text=True)
    assert told.stderr == ""
    assert told.returncode == 0


def dotted(path: Path, root: Path) -> str:
    """The name a module is imported by; a package's is its folder's."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """Modules of ours that a module imports: when it loads, inside its functions, or for its annotations alone."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            full_names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in modules else str(node.module) for name in full_names}
    return found & set(modules)


def circles(root: Path, paths: Iterable[Path]) -> list[list[str]]:
    """Modules that reach each other by imports: the strongly connected components of more than one (Tarjan, 1972)."""
    modules = {dotted(path, root): path for path in paths}
    graph = {name: imports_of(path, modules) - {name} for name, path in modules.items()}
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == order[name]:
            place = stack.index(name)
            found.append(sorted(stack[place:]))
            del stack[place:]

    for name in graph:
        if name not in order:
            visit(name)
    return sorted(component for component in found if len(component) > 1)


@pytest.mark.parametrize("folders", [ROOMS, ("benchmarks",)])
def test_no_modules_import_each_other_in_a_circle(folders: Sequence[str]) -> None:
    """A deferred import is for a slow library, never for a circle: whoever wants one part would need all of them."""
    assert circles(ROOT, (path for folder in folders for path in (ROOT / folder).rglob("*.py"))) == []


CIRCLES = {
    "when they load": ("from tasks.b import name\n", "import tasks.a\n"),
    "inside a function": ("from tasks import b\n", "def later():\n    from tasks.a import name\n"),
    "for annotations": ("import tasks.b\n", "if TYPE_CHECKING:\n    from tasks.a import name\n"),
}


@pytest.mark.parametrize("how", CIRCLES)
def test_the_search_for_circles_finds_them(tmp_path: Path, how: str) -> None:
    (tmp_path / "tasks").mkdir()
    texts = {"__init__": "", "top": "import tasks.a\n", "a": CIRCLES[how][0], "b": CIRCLES[how][1], "c": ""}
    for name, text in texts.items():
        (tmp_path / "tasks" / f"{name}.py").write_text(text)
    assert circles(tmp_path, (tmp_path / "tasks").glob("*.py")) == [["tasks.a", "tasks.b"]]


def longer_than(most: int, paths: Iterable[Path]) -> dict[str, int]:
    lines = {named(path): len(path.read_text().splitlines()) for path in paths}
    return {name: count for name, count in lines.items() if count > most}


def test_modules_are_small_enough_to_read() -> None:
    assert longer_than(MOST_LINES, MODULES) == {}
    assert longer_than(MOST_LINES_OF_TESTS, (ROOT / "tests").rglob("*.py")) == {}


def test_folders_are_small_enough_to_read() -> None:
    """At most 14 modules in a folder, and three folders from the root to a module."""
    paths = [*MODULES, *(ROOT / "benchmarks").rglob("*.py")]
    held = Counter(named(path.parent) for path in paths if path.name != "__init__.py")
    assert {folder: count for folder, count in held.items() if count > 14} == {}
    assert [folder for folder in held if folder.count("/") > 2] == []


def test_tests_are_no_packages() -> None:
    """With importlib mode two test files may have one name; an `__init__.py` would bring the old rules back."""
    example = ROOT / "tests" / "extension_example"  # a package of others
    assert [path for path in (ROOT / "tests").rglob("__init__.py") if example not in path.parents] == []


@cache
def uses(path: Path) -> tuple[tuple[int, str], ...]:
    """Everything a module imports, calls or looks up, as dotted text with its line."""
    return tuple(_uses(path))


def _uses(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, f"import {alias.name}") for alias in names)
            case ast.ImportFrom(module=module, names=names):
                yield from ((node.lineno, f"import {module}.{alias.name}") for alias in names)
            case ast.Attribute() | ast.Name():
                yield node.lineno, ast.unparse(node)
            case ast.keyword(arg=str(name), value=ast.Constant(value=True)):
                yield node.lineno, f"{name}=True"
            case ast.Assert():
                yield node.lineno, "assert"


FORBIDDEN = {
    "assert": "vanishes under -O; raise an error of ours",
    "trust_remote_code=True": "runs code that comes with a model",
    "import pickle": "reading one runs code",
    "pickle.load": "runs code",
    "torch.load": "reads pickles; weights are safetensors",
    "torch.multinomial": "is no exact draw (PRIVACY §4.2)",
    "torch.manual_seed": "privacy randomness has no seed",
    "os.urandom": "tasks/mechanisms/core/rng.py is the only door to randomness",
    "eval": "runs text",
    "exec": "runs text",
}


ALL_THE_SAME = {("tasks/workers/pool.py", "import pickle")}
"""Messages between a run and its own workers, never what has lain on a disk (docs/decisions/0059)."""


def test_nothing_forbidden_is_used() -> None:
    found = [
        f"{named(path)}:{line}: {what}: {FORBIDDEN[what]}"
        for path in MODULES
        for line, what in uses(path)
        if what in FORBIDDEN and (named(path), what) not in ALL_THE_SAME
    ]
    assert found == []


SEEDED = {"import random", "np.random", "import numpy.random"}


def test_seeded_generators_make_fiction_and_error_bars_only() -> None:
    """Fiction, bootstraps, which texts are compared or shown in a prompt; nothing that protects a person."""
    seeded = [named(path) for path in MODULES if any(what in SEEDED for _, what in uses(path))]
    assert seeded == [
        "tasks/analysis/clustering/kmeans.py",
        "tasks/corpus/demo_clinic.py",
        "tasks/corpus/mock_records.py",
        "tasks/evaluation/charged.py",
        "tasks/evaluation/distributions.py",
        "tasks/evaluation/evaluation_input.py",
        "tasks/evaluation/in_context/demonstrations.py",
        "tasks/evaluation/intervals.py",
        "tasks/rehearsal/measures.py",
    ]


def test_only_keys_names_and_the_one_door_use_the_operating_systems_randomness() -> None:
    """`secrets` makes keys, nonces and folder names; mechanisms draw through `tasks.mechanisms.core.rng`."""
    using = {path for path in MODULES if any(what == "import secrets" for _, what in uses(path))}
    drawing = {"analysis", "evaluation", "generation", "insights", "mechanisms", "prompted_generation"}
    assert [name for name in map(named, using) if drawing & set(Path(name).parts)] == ["tasks/mechanisms/core/rng.py"]


def test_the_search_for_forbidden_things_finds_them(tmp_path: Path) -> None:
    """A search that finds nothing anywhere proves nothing."""
    path = tmp_path / "bad.py"
    path.write_text(
        "import pickle\nimport torch\nassert torch\ntorch.manual_seed(1)\npickle.load(open('x'))\n"
        "eval('1')\nload(trust_remote_code=True)\ntorch.multinomial\n"
    )
    found = {what for _, what in uses(path)}
    assert found >= {
        "import pickle", "assert", "torch.manual_seed", "pickle.load", "eval", "trust_remote_code=True",
        "torch.multinomial",
    }  # fmt: skip
