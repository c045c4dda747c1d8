"""What CI runs, and what is locked: the slow tests that concern what changed, and the packages of both locks."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import pytest_collection_modifyitems as mark_cases

ROOT = Path(__file__).resolve().parents[1]


def script(name: str) -> Any:
    """A program of .ci as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


slow, lock = script("slow"), script("lock")

FILES = {
    "tasks/noise.py": "ONE = 1\n",
    "tasks/other.py": "TWO = 2\n",
    "tests/helper.py": "from tasks.other import TWO\n",
    "tests/support.py": "",
    "tests/test_noise.py": "import pytest\nfrom tasks import noise\n\n@pytest.mark.slow\ndef test(): ...\n",
    "tests/test_other.py": "import tests.helper, tests.support\npytestmark = pytest.mark.slow\n",
    "models_db/rows/one.py": "THREE = 3\n",
    "tests/test_rows.py": "CONCERNS = ('models_db/rows',)\npytestmark = pytest.mark.slow\n",
    "tests/test_quick.py": "from tasks.noise import ONE\n",
}
NOISE, OTHER, ROWS = "tests/test_noise.py", "tests/test_other.py", "tests/test_rows.py"


def pins(text: str) -> dict[str, str]:
    """Versions in a lock, by name."""
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[.*?\])?==(\S+)", text, re.MULTILINE))


def git(root: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main", *arguments],
        cwd=root,
        check=True,
        capture_output=True,
    )


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one commit, on a branch beside main."""
    monkeypatch.delenv("CI_BASE", raising=False)
    git(tmp_path, "init")
    commit(tmp_path, FILES)
    git(tmp_path, "checkout", "-b", "work")
    return tmp_path


def commit(root: Path, files: dict[str, str]) -> None:
    """Write them and commit everything."""
    for name, content in files.items():
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(content)
    git(root, "add", ".")
    git(root, "commit", "-m", "more")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tasks/noise.py": "ONE = 2\n"}, [NOISE]),
        ({"tests/helper.py": "TWO = 2\n"}, [OTHER]),
        ({"tests/test_other.py": "pytestmark = pytest.mark.slow\n"}, [OTHER]),
        ({"tasks/noise.py": "", "tests/helper.py": ""}, [NOISE, OTHER]),
        ({"tests/support.py": "PATIENCE = 1\n"}, []),
        ({"tests/test_quick.py": "", "README.md": "more"}, []),
        ({"tests/test_new.py": "pytest.mark.slow\n"}, ["tests/test_new.py"]),
        ({"tests/test_new.py": "pytest.mark.slow_except('a')\n"}, ["tests/test_new.py"]),
        ({"models_db/rows/two.py": "FOUR = 4\n"}, [ROWS]),
        ({"models_db/others.py": "FIVE = 5\n"}, []),
    ],
)
def test_what_changed_chooses(checkout: Path, change: dict[str, str], expected: list[str]) -> None:
    commit(checkout, change)
    assert slow.main(checkout) == expected


def test_what_is_not_committed_has_changed_too(checkout: Path) -> None:
    commit(checkout, {"README.md": "more"})
    (checkout / "tests" / "test_new.py").write_text("pytest.mark.slow\n")
    (checkout / "tasks" / "noise.py").write_text("")
    assert slow.main(checkout) == ["tests/test_new.py", NOISE]


def test_on_main_the_newest_release_is_the_base(checkout: Path) -> None:
    git(checkout, "checkout", "main")
    assert slow.main(checkout) == [NOISE, OTHER, ROWS], "nobody can tell"
    git(checkout, "tag", "-a", "v1", "-m", "a release")
    commit(checkout, {"tasks/noise.py": ""})
    commit(checkout, {"README.md": "more"})
    assert slow.main(checkout) == [NOISE]


def test_a_base_may_be_named_and_an_unknown_one_is_none(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(checkout, {"tasks/noise.py": ""})
    commit(checkout, {"tests/helper.py": ""})
    monkeypatch.setenv("CI_BASE", "HEAD^")
    assert slow.main(checkout) == [OTHER]
    monkeypatch.setenv("CI_BASE", "no-such-commit")
    assert slow.main(checkout) == [NOISE, OTHER, ROWS]


def test_without_git_all_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(content)
    assert slow.main(tmp_path) == [NOISE, OTHER, ROWS]
    assert "all 3 files" in capsys.readouterr().err


def here(packages: Iterable[str]) -> set[str]:
    """The names of those packages of a lock that are for this platform."""
    found = [Requirement(package.partition(" \\")[0]) for package in packages]
    return {canonicalize_name(one.name) for one in found if one.marker is None or one.marker.evaluate()}


def needed(requirements: Iterable[str]) -> set[str]:
    """The names of all packages that requirements need on this platform, themselves included, by what is installed."""
    found, seen = [*map(Requirement, requirements)], set()
    for one in found:  # it grows
        if (key := (canonicalize_name(one.name), frozenset(one.extras))) in seen:
            continue
        seen.add(key)
        its = next((each.requires for each in distributions(name=one.name)), None)  # one of another platform is missing
        environments = [{"extra": extra} for extra in ("", *one.extras)]
        more = map(Requirement, its or ())
        found += [each for each in more if each.marker is None or any(map(each.marker.evaluate, environments))]
    return {name for name, _ in seen}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEPENDENCIES, OPTIONAL = PROJECT["project"]["dependencies"], PROJECT["project"]["optional-dependencies"]
OF_EXTRAS = [one for extra in lock.EXTRAS for one in OPTIONAL[extra]]
LOCKED = re.findall(r"^[^#\s](?:.|\n )*", (ROOT / "requirements.lock").read_text(), re.MULTILINE)


def test_every_package_of_the_program_is_locked_with_its_hashes() -> None:
    """As pip's hash mode demands, which one hash is enough to turn on: also with those extras that others ask for."""
    assert all(re.search(r" \\\n    --hash=sha256:[0-9a-f]{64}", package) for package in LOCKED)
    assert any(package.startswith("httpx[http2]==") for package in LOCKED)  # for Prefect


def test_what_a_signing_machine_installs_is_the_base_alone_with_hashes() -> None:
    base = [package for package in LOCKED if package in lock.base()]
    assert here(base) == needed(DEPENDENCIES)
    assert lock.base() == "".join(f"{package}\n" for package in base)


def test_what_is_set_up_has_no_hashes_no_extras_and_nothing_of_cuda() -> None:
    lines = lock.versions().splitlines()
    left = {re.sub(r"\[.*?\]", "", package.partition(" \\")[0]) for package in LOCKED} - set(lines)
    assert {"triton", "nvidia-cublas", "cuda-toolkit"} <= pins("\n".join(left)).keys()
    assert all(line.startswith(lock.CUDA) for line in left)
    program = needed([*DEPENDENCIES, *OF_EXTRAS, *PROJECT["build-system"]["requires"], *lock.EDITABLE])
    assert here(lines) == {name for name in program if not name.startswith(lock.CUDA)}


def test_what_is_installed_first_needs_no_package() -> None:
    """`make setup` exports the versions before there are any packages."""
    for part in ("base", "versions"):
        command = [sys.executable, "-I", "-S", ROOT / ".ci" / "lock.py", "export", part]
        assert subprocess.run(command, capture_output=True, text=True).stdout == getattr(lock, part)()


def test_every_dependency_is_locked_once_and_where_it_belongs() -> None:
    program, development = pins(lock.versions()), pins((ROOT / "requirements-dev.lock").read_text())
    tools = [*PROJECT["dependency-groups"]["docs"], *PROJECT["dependency-groups"]["dev"]]
    theirs = [*(one for one in tools if isinstance(one, str)), *(one for each in OPTIONAL.values() for one in each)]
    assert not program.keys() & development.keys()
    for wanted, locked in (([*DEPENDENCIES, *OF_EXTRAS], program), (theirs, program | development)):
        for one in map(Requirement, wanted):
            assert one.specifier.contains(locked[canonicalize_name(one.name)])
    assert {"ray", "moto", "mlcroissant", "pytest", "ruff"} <= development.keys()


def test_every_slow_test_of_this_project_is_known() -> None:
    """A mark that is written in another way would never be chosen."""
    files = slow.slow_files(ROOT)
    assert "tests/unit/tasks/decoding/test_workers.py" in files
    assert slow.related(ROOT, "tests/unit/tasks/workers/test_runners.py") >= {
        "tasks/workers/backend_settings.py",
        "tests/bodies.py",
    }


class Case:
    """A case of one test, whose cases are slow but for "a" and "b"."""

    def __init__(self, name: str, quick: tuple[str, ...] = ("a", "b"), path: str = "tests/test_new.py") -> None:
        self.name, self.path = f"test[{name}]", ROOT / path
        self.nodeid = f"{self.path}::{self.name}"
        self.mark, self.added = pytest.mark.slow_except(*quick).mark, list[Any]()

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.mark if name == "slow_except" else None

    def add_marker(self, mark: Any) -> None:
        self.added.append(mark)


def test_cases_that_are_not_named_are_slow() -> None:
    cases: list[Any] = [Case("a"), Case("b"), Case("c"), Case("a-b")]
    mark_cases(SimpleNamespace(args=["tests"]), cases)
    assert [case.added for case in cases] == [[], [], [pytest.mark.slow], [pytest.mark.slow]]


@pytest.mark.parametrize(("file", "thorough"), [("test_policy.py", True), ("test_story.py", False)])
def test_whole_commands_are_thorough_but_for_the_stories(file: str, thorough: bool) -> None:
    cases: list[Any] = [Case("a", path=f"tests/integration/{file}"), Case("b", path=f"tests/integration/{file}")]
    mark_cases(SimpleNamespace(args=["tests"]), cases)
    assert [case.added for case in cases] == [[pytest.mark.thorough] if thorough else []] * 2


def test_a_named_case_that_does_not_exist_is_an_error() -> None:
    cases: list[Any] = [Case("a"), Case("c")]
    with pytest.raises(pytest.UsageError, match=re.escape("test_new.py::test: ['b']")):
        mark_cases(SimpleNamespace(args=["tests"]), cases)
    mark_cases(SimpleNamespace(args=["tests/test_new.py::test[a]"]), cases[:1])  # b was not asked for


def test_a_story_on_both_ledgers_concerns_what_lies_beneath_every_story() -> None:
    assert slow.related(ROOT, "tests/integration/test_erasure.py") >= {"migrations", "models_db"}
    assert "tests/integration/test_erasure.py" in slow.chosen(ROOT, {"models_db/home.py"})


class Batches:
    """What stands in for `make test-slow`: each batch takes a number of minutes and ends with a status."""

    def __init__(self, minutes: float, *, failing: str = "", endless: str = "") -> None:
        self.minutes, self.failing, self.endless = minutes, failing, endless
        self.time, self.run = 0.0, list[str]()

    def now(self) -> float:
        return self.time

    def __call__(self, files: list[str], seconds: float) -> int | None:
        self.run += files
        if self.endless in files:
            self.time += seconds
            return None
        self.time += 60 * self.minutes
        return 2 if self.failing in files else 0


MANY = [
    *(f"tests/{place}/test_{n}.py" for place in ("browser", "unit/cli", "statistical") for n in range(10)),
    *(f"tests/{place}/test_{n}.py" for place in ("integration", "contracts") for n in range(10)),
]


def bounded(batches: Batches, minutes: float, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """The exit status and the files that were printed as left out."""
    status = slow.run(MANY, minutes, batches, batches.now)
    lines = capsys.readouterr().err.splitlines()
    return status, [line.removeprefix("left out: ") for line in lines if line.startswith("left out: ")]


def test_slow_tests_end_with_their_minutes_and_contracts_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    batches = Batches(10)
    status, left = bounded(batches, 40, capsys)
    assert status == 0
    assert batches.time == 40 * 60
    assert batches.run == [*MANY[40:], *MANY[30:40], *MANY[20:24]]
    assert left == [*MANY[24:30], *MANY[:20]]
    batches = Batches(1)
    assert bounded(batches, 40, capsys) == (0, [])
    assert sorted(batches.run) == sorted(MANY)


def test_a_batch_without_an_end_is_interrupted_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    batches = Batches(13, endless=MANY[30])
    status, left = bounded(batches, 40, capsys)
    assert status == 0
    assert batches.time == 50 * 60
    assert left == [*MANY[46:50], *MANY[30:40], *MANY[20:30], *MANY[:20]]


def test_the_first_batch_that_fails_is_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    status, left = bounded(Batches(1, failing=MANY[41]), 40, capsys)
    assert status == 2
    assert left == [*MANY[46:50], *MANY[30:40], *MANY[20:30], *MANY[:20]]


@pytest.mark.parametrize(("recipe", "expected"), [("true", 0), ("exit 3", 2), ("sleep 60", None)])
def test_a_batch_is_what_make_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, expected: int | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Makefile").write_text(f"test-slow:\n\t@echo $(SLOW) > files\n\t@{recipe}\n")
    assert slow.test(["a", "b"], 2) == expected
    assert (tmp_path / "files").read_text() == "a b\n"


def test_files_whose_slow_tests_run_elsewhere_are_no_failure() -> None:
    recipe = subprocess.run(
        ["make", "-n", "--no-print-directory", "test-slow", "SLOW=a b"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert recipe.stdout.rstrip().endswith("a b || [ $? -eq 5 ]")


def test_what_a_file_concerns_is_there() -> None:
    named = {file: slow.concerns(ast.parse((ROOT / file).read_text())) for file in slow.slow_files(ROOT)}
    assert any(named.values())
    assert [(file, path) for file, paths in named.items() for path in paths if not (ROOT / path).exists()] == []
