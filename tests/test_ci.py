"""What CI runs, and what is locked: the slow tests that concern what changed, and the packages of both locks."""

import ast
import importlib.util
import re
import subprocess
import tomllib
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


def pins(path: Path) -> dict[str, str]:
    """Versions in a lock, by canonical name."""
    lines = (line.partition("==") for line in path.read_text().splitlines() if "==" in line)
    return {canonicalize_name(name): version for name, _, version in lines}


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


@pytest.mark.parametrize(
    ("name", "extras"), [("requirements-base.lock", ()), ("requirements-generation.lock", lock.EXTRAS)]
)
def test_a_lock_with_hashes_has_the_versions_of_the_program(name: str, extras: tuple[str, ...]) -> None:
    """Each entry has a hash, as pip's hash mode demands; what only other platforms need stands in this lock alone."""
    text = (ROOT / name).read_text()
    entries = re.split(r"\n(?=\S)", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    wanted = [Requirement(entry.partition(" \\")[0]) for entry in entries]
    here = {canonicalize_name(one.name): one for one in wanted if one.marker is None or one.marker.evaluate()}
    program = pins(ROOT / "requirements.lock")
    cuda = {each for each in here if each not in program}  # what torch of PyPI needs, and torch for CPUs does not
    assert all(each.startswith(("nvidia-", "cuda-", "triton", "setuptools")) for each in cuda), cuda
    assert {each: str(one.specifier) for each, one in here.items() if each not in cuda} == {
        each: f"=={program[each]}" for each in here if each not in cuda
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted_by_us = [
        *project["dependencies"],
        *(one for each in extras for one in project["optional-dependencies"][each]),
    ]
    assert lock.needed(wanted_by_us) <= here.keys()
    assert ("torch" in here) == ("prefect" in here) == bool(extras)
    assert bool(cuda) == bool(extras)


def test_every_dependency_is_locked_once_and_where_it_belongs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    program, development = (pins(ROOT / name) for name in ("requirements.lock", "requirements-dev.lock"))
    extras = project["project"]["optional-dependencies"]
    ours = [*project["project"]["dependencies"], *(one for name in lock.EXTRAS for one in extras[name])]
    tools = [*project["dependency-groups"]["docs"], *project["dependency-groups"]["dev"]]
    theirs = [*(one for one in tools if isinstance(one, str)), *(one for each in extras.values() for one in each)]
    assert not program.keys() & development.keys()
    for wanted, locked in ((ours, program), (theirs, program | development)):
        for one in map(Requirement, wanted):
            assert one.specifier.contains(locked[canonicalize_name(one.name)])
    assert {"ray", "moto", "mlcroissant", "pytest", "ruff"} <= development.keys()
    assert "-r requirements.lock" in (ROOT / "requirements-dev.lock").read_text().splitlines()


def test_what_a_package_needs_is_found_through_extras() -> None:
    assert "hypothesis" in lock.needed(["schemathesis-is-not-here", "hypothesis"])
    assert "torch" in lock.needed(["sentence-transformers"])
    assert "h2" in lock.needed(["prefect"])  # of httpx[http2]
    assert "h2" not in lock.needed(["httpx"])


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

    def __init__(self, name: str, quick: tuple[str, ...] = ("a", "b")) -> None:
        self.name, self.path = f"test[{name}]", Path("tests/test_new.py")
        self.nodeid = f"{self.path}::{self.name}"
        self.mark, self.added = pytest.mark.slow_except(*quick).mark, list[Any]()

    def get_closest_marker(self, name: str) -> pytest.Mark:
        assert name == "slow_except"
        return self.mark

    def add_marker(self, mark: Any) -> None:
        self.added.append(mark)


def test_cases_that_are_not_named_are_slow() -> None:
    cases: list[Any] = [Case("a"), Case("b"), Case("c"), Case("a-b")]
    mark_cases(SimpleNamespace(args=["tests"]), cases)
    assert [case.added for case in cases] == [[], [], [pytest.mark.slow], [pytest.mark.slow]]


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
