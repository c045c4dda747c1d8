"""A steward's machine: what is typed there works without the packages of the extra `generation`, or names the extra."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from almoner.session import session
from tasks.common import extras
from tasks.common.extras import INSTALL, PACKAGES, GenerationMissing
from tests.integration.story import Almoner
from tests.support import free_port, snapshot, wait_until

CONCERNS = ("cli", "flows", "tasks/common")
ROOT = Path(__file__).parents[2]
PYDP = "python-dp"

DRIVER = """
import importlib.abc, importlib.metadata, json, os, sys

PACKAGES = json.loads(os.environ["REFUSED"])


class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in PACKAGES.values():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class Unlisted(importlib.metadata.Distribution):
    found = importlib.metadata.Distribution.from_name

    @classmethod
    def of(cls, name):
        if name in PACKAGES:
            raise importlib.metadata.PackageNotFoundError(name)
        return cls.found(name)


sys.meta_path.insert(0, Absent())
importlib.metadata.Distribution.from_name = Unlisted.of
"""
COMMAND = """
from cli.app import main

sys.argv[0] = "almoner"
main()
"""
REFUSED = {**PACKAGES, PYDP: "pydp"}


def process(home: Path, line: str, refused: dict[str, str] = REFUSED, command: str = COMMAND) -> subprocess.Popen[str]:
    """A command in a process that cannot import these packages and finds no sign of them."""
    environment = {**os.environ, "ALMONER_HOME": str(home), "REFUSED": json.dumps(refused), "TERM": "dumb"}
    words = [sys.executable, "-c", DRIVER + command, *shlex.split(line)]
    return subprocess.Popen(words, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def typed(home: Path, line: str, expected: int = 0, **options: Any) -> str:
    out, err = (done := process(home, line, **options)).communicate()
    assert done.returncode == expected, (line, out, err)
    return out


def asked(home: Path, line: str, expected: int = 0, **options: Any) -> Any:
    return json.loads(typed(home, f"{line} --json", expected, **options))


def test_the_packages_of_the_extra_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {Requirement(one).name for one in extras["generation"]} == {*PACKAGES, PYDP}
    assert not {Requirement(one).name for one in project["dependencies"]} & {*PACKAGES, PYDP}
    assert extras["steward"] == []


@pytest.mark.slow
def test_a_home_is_made_and_kept_without_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    notes = tmp_path / "notes.jsonl"
    notes.write_text("".join(f'{{"patient_id": "p{n}", "text": "a cough, day {n}"}}\n' for n in range(20)))
    for line in (
        "init",
        "dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6",
        f"dataset ingest clinic {notes}",
        "dataset list",
        "dataset show clinic",
        "budget show clinic",
        "budget forecast clinic",
        "user list",
        "policy show",
        "models list",
        "audit verify",
        "audit log",
        f"backup --to {tmp_path / 'backup.tar'}",
        "docs",
    ):
        typed(home, line)
    found = {each["check"]: each for each in asked(home, "doctor")["findings"]}
    assert found["packages for generation"]["ok"]
    assert INSTALL in found["packages for generation"]["detail"]


@pytest.mark.slow
def test_doctor_calls_half_of_them_a_fault(tmp_path: Path) -> None:
    typed(tmp_path / "home", "init")
    some = {name: PACKAGES[name] for name in ("torch", "spacy")}
    found = {each["check"]: each for each in asked(tmp_path / "home", "doctor", 3, refused=some)["findings"]}
    assert not found["packages for generation"]["ok"]
    assert found["packages for generation"]["detail"].startswith("spacy, torch not installed")


@pytest.mark.slow
def test_a_request_is_decided_without_them_and_run_where_they_are(almoner: Almoner) -> None:
    almoner.submitted()
    home = almoner.home.root
    assert asked(home, "release show 1")["state"] == "submitted"
    typed(home, "approve 1 --gate spend --reason 'a first look' --confirm clinic")
    before = snapshot(almoner.database)
    refused = asked(home, "run 1", 3)
    assert refused["error"] == "GenerationMissing"
    assert INSTALL in refused["advice"]
    assert refused["facts"] == {"extra": "generation", "packages": sorted(PACKAGES)}
    assert snapshot(almoner.database) == before  # nothing is held or spent, and no attempt is used up
    almoner.go_on_to("passed", after="approved")


@pytest.mark.slow
@pytest.mark.parametrize("package", ["spacy", "scikit-learn"])
def test_one_that_a_run_would_meet_in_its_middle_is_asked_for_first(almoner: Almoner, package: str) -> None:
    almoner.approved()
    before = snapshot(almoner.database)
    refused = asked(almoner.home.root, "run 1", 3, refused={package: PACKAGES[package]})
    assert (refused["error"], refused["facts"]["packages"]) == ("GenerationMissing", [package])
    assert snapshot(almoner.database) == before


@pytest.mark.slow
def test_a_release_is_read_published_and_verified_without_them(almoner: Almoner, tmp_path: Path) -> None:
    almoner.produced()
    home = almoner.home.root
    assert typed(home, "release texts 1")
    typed(home, f"report 1 --out {tmp_path / 'report.html'}")
    assert "clinic" in (tmp_path / "report.html").read_text()
    typed(home, "approve 1 --gate publish --reason 'names nobody' --confirm clinic")
    typed(home, f"publish 1 --to {almoner.folder / 'out'}")
    assert asked(tmp_path / "nobody", f"verify-release {almoner.bundle}")["holds"]
    typed(home, "audit verify")
    typed(home, "budget show clinic")


@pytest.mark.slow_except("release request {file}")
@pytest.mark.parametrize(
    "line",
    [
        "release request {file}",
        "models check smollm2-135m-instruct",
        "serve --once",
        "evaluate 1 --internal",
        "rehearse {file} --on clinic",
    ],
)
def test_what_needs_them_says_so_and_changes_nothing(almoner: Almoner, line: str) -> None:
    almoner.submitted()
    file = almoner.request_file(model="smollm2-135m-instruct")
    before = snapshot(almoner.database)
    refused = asked(almoner.home.root, line.format(file=file), 3)
    assert refused["error"] == "GenerationMissing"
    assert snapshot(almoner.database) == before


def test_python_names_the_extra_as_commands_do(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.registered()
    monkeypatch.setattr(extras, "missing_packages", lambda: ("torch",))
    with pytest.raises(GenerationMissing, match="torch"), session(almoner.home):
        raise ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")


@pytest.mark.slow
def test_the_dashboard_starts_without_them(almoner: Almoner) -> None:
    almoner.submitted()
    port = free_port()
    server = process(almoner.home.root, f"dashboard --port {port}")
    pages: list[str] = []

    def answered() -> bool:
        assert server.poll() is None, server.communicate()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                pages.append(answer.read().decode())
        except OSError:
            return False
        return True

    try:
        wait_until(answered)
    finally:
        server.terminate()
        server.communicate()
    assert "clinic" in pages[0]
