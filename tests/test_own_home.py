"""Tests live in a home of their own."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.inference.catalogue.model_store import models_folder
from tasks.inference.catalogue.registry import REGISTRY
from tests.own_home import FOLDER, STORE, WEIGHTS, linked, on_request


def test_the_home_of_tests_is_not_the_users() -> None:
    assert Path.home() == FOLDER / "home" != Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert models_folder() == FOLDER / "models"
    assert {model.name.partition("@")[0] for model in models_folder().glob("[!.]*")} <= set(WEIGHTS)


def test_models_that_a_stranger_has_are_there_for_tests_that_ask_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {spec.name: f"{spec.name}@{spec.revision}" for spec in REGISTRY}
    for name in (known[WEIGHTS[0]], known["gemma3-270m"], f"{WEIGHTS[1]}@local", "their-own@local"):
        (tmp_path / "store" / name).mkdir(parents=True)
    made = linked(tmp_path / "store", tmp_path / "models", WEIGHTS)
    assert [model.name for model in made.iterdir()] == [known[WEIGHTS[0]]]
    monkeypatch.setenv(STORE, str(tmp_path / "store"))
    with on_request("gemma3-270m"):
        assert [model.name for model in models_folder().iterdir()] == [known["gemma3-270m"]]
    assert models_folder() == FOLDER / "models"


def test_a_process_that_a_test_starts_keeps_the_environment_that_it_was_given(tmp_path: Path) -> None:
    code = "import os, tests.conftest; print(os.environ['ALMONER_HOME'], os.environ['HOME'])"
    environment = os.environ | {"ALMONER_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path), str(FOLDER / "home")]
    assert FOLDER.is_dir()
