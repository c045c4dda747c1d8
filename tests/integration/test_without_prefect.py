"""A machine without the extra `orchestration`: releases are made and schedules read, or a command names the extra."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tasks.common import extras
from tasks.common.extras import INSTALL_PREFECT, name_missing, require_orchestration
from tests.integration.story import Almoner
from tests.integration.test_schedules import LONG_AGO, authorised, scheduled
from tests.integration.test_without_generation import ROOT, asked, typed
from tests.support import snapshot

CONCERNS = ("cli", "flows", "tasks/common")
PREFECT = {"prefect": "prefect"}
TINY = """
import runpy

runpy.run_module("tests.integration.command_process", run_name="__main__")
"""
"""A command with the tiny model."""


def test_the_extra_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {Requirement(one).name for one in project["optional-dependencies"]["orchestration"]}
    assert names == {"anyio", "prefect"}
    assert not {Requirement(one).name for one in project["dependencies"]} & {*names, "prefect-client"}
    assert "almoner[orchestration]" in INSTALL_PREFECT


def test_only_prefect_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = ModuleNotFoundError("no", name="prefect.states")
    require_orchestration()
    assert name_missing(absent) is None  # it is installed: another problem
    monkeypatch.setattr(extras, "_is_installed", lambda name: name != "prefect")
    named = name_missing(absent)
    assert named is not None
    assert (named.code, named.exit_code, named.facts) == ("OrchestrationMissing", 3, {"extra": "orchestration"})
    assert name_missing(ModuleNotFoundError("no", name="prefect_ray")) is None
    assert name_missing(ValueError("prefect")) is None


@pytest.mark.slow_except("serve --ui")
@pytest.mark.parametrize(
    "line", ["serve --ui", "serve", "deploy", "deploy --write {file}", "worker --to out", "release start 1"]
)
def test_what_needs_it_says_so_and_changes_nothing(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    almoner.submitted()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    before, file = snapshot(almoner.database), almoner.folder / "prefect.yaml"
    refused = asked(almoner.home.root, line.format(file=file), 3, refused=PREFECT)
    assert refused["error"] == "OrchestrationMissing"
    assert INSTALL_PREFECT in refused["advice"]
    assert snapshot(almoner.database) == before
    assert not file.exists()
    assert not almoner.home.prefect.exists()


@pytest.mark.slow
def test_a_release_is_made_without_it(almoner: Almoner, tmp_path: Path) -> None:
    almoner.approved()
    home = almoner.home.root
    typed(home, "run 1", refused=PREFECT, command=TINY)
    typed(home, "approve 1 --gate publish --reason 'names nobody' --confirm clinic", refused=PREFECT)
    typed(home, f"publish 1 --to {almoner.folder / 'out'}", refused=PREFECT)
    assert asked(tmp_path / "nobody", f"verify-release {almoner.bundle}", refused=PREFECT)["holds"]
    assert asked(home, "doctor", refused=PREFECT)["ok"]


@pytest.mark.slow
def test_a_schedule_is_read_changed_and_ended_without_it(almoner: Almoner) -> None:
    """A steward's machine has no Prefect; it is needed where a rule is read, and its absence decides no slot."""
    authorised(almoner)
    scheduled(almoner)
    home = almoner.home.root
    assert [row["rule"] for row in asked(home, "schedule list", refused=PREFECT)] == ["1w"]
    before = snapshot(almoner.database)
    for line in (f"schedule create 1 --every 1d --start {LONG_AGO} --reason again", "schedule run 1", "serve"):
        assert asked(home, line, 3, refused=PREFECT)["error"] == "OrchestrationMissing"
    assert snapshot(almoner.database) == before
    assert asked(home, "schedule pause 1 --reason later", refused=PREFECT)["state"] == "paused"
    assert asked(home, "schedule end 1 --reason over", refused=PREFECT)["state"] == "ended"
    assert asked(home, "schedule show 1", refused=PREFECT)["slots"] == []
