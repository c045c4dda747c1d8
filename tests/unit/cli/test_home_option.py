"""One project home for a command: where it may be named, what comes first, and what `doctor` says of it."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALMONER_HOME", "elsewhere")  # and put back afterwards
    monkeypatch.delenv("ALMONER_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)


def home_of(*words: str, expected: int = 3) -> tuple[str, str]:
    """The home that `doctor` looks at, and from where; no home is there, so its one check fails."""
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == expected, done.output
    told = json.loads(done.stdout)
    return told["home"], told["home_from"]


def test_before_and_after_the_command_mean_the_same(tmp_path: Path) -> None:
    one = str(tmp_path / "one")
    assert home_of("--home", one, "doctor") == home_of("doctor", "--home", one) == (one, "--home")
    assert home_of("--home", one, "doctor", "--home", one) == (one, "--home")
    assert home_of("--home", "one", "doctor", "--home", one)[0] == one


def test_two_that_differ_are_refused() -> None:
    for words in (["doctor"], ["dataset", "list"], ["init"]):
        done = CliRunner().invoke(app, ["--home", "one", *words, "--home", "two", "--json"])
        told = json.loads(done.stdout)
        assert (done.exit_code, told["error"]) == (2, "HomesDiffer")
        assert told["facts"] == {"before": "one", "after": "two"}
    assert list(Path.cwd().iterdir()) == []
    assert "ALMONER_HOME" not in os.environ


def test_the_option_then_the_variable_then_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home_of("doctor") == (str(tmp_path / "user" / ".almoner"), "the default, ~/.almoner")
    monkeypatch.setenv("ALMONER_HOME", str(tmp_path / "two"))
    assert home_of("doctor") == (str(tmp_path / "two"), "ALMONER_HOME")
    assert home_of("doctor", "--home", str(tmp_path / "one")) == (str(tmp_path / "one"), "--home")


def test_a_relative_one_is_seen_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = (str(tmp_path / "one"), "--home (one, seen from the working directory)")
    assert home_of("--home", "one", "doctor") == seen
    monkeypatch.setenv("ALMONER_HOME", "two")
    assert home_of("doctor") == (str(tmp_path / "two"), "ALMONER_HOME (two, seen from the working directory)")


def test_people_read_it_too(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", "--home", str(tmp_path / "one")])
    assert done.stdout.startswith(f"Project home: {tmp_path / 'one'}, from --home.\n")


def test_init_says_how_its_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["init", "--home", "one"])
    assert f"Use it with `--home {tmp_path / 'one'}`" in done.stdout
    monkeypatch.setenv("ALMONER_HOME", str(tmp_path / "one"))
    assert "Next: `almoner dataset register" in CliRunner().invoke(app, ["init"]).stdout
