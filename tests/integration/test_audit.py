"""The record as auditors use it: how the log is shown, desks without a key, homes that only read."""

import re
import shutil
from pathlib import Path

import pytest

from tests.integration.story import Almoner

pytestmark = pytest.mark.usefixtures("own_connections")

READING = ("audit log", "audit verify", "audit export --to {folder}/export.jsonl")


def test_the_log_folds_no_kind_and_no_time(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.published()
    monkeypatch.setattr("cli.framework.command.WIDTH_WITHOUT_TERMINAL", 80)
    out = almoner.type("audit log").out
    assert max(map(len, out.splitlines())) <= 80
    for link in almoner.ask("audit log"):
        assert re.search(rf"^ +{link['seq']} +{link['at'][:19]} +{re.escape(link['kind'])}: ", out, re.MULTILINE)
    assert "add --before" in almoner.type("audit log --limit 1").out


def test_an_auditor_needs_no_key_and_no_home(any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite a copy of the file is enough, on PostgreSQL the address."""
    any_almoner.registered()
    links = len(any_almoner.ask("audit log"))
    desk = any_almoner.folder / "desk"
    desk.mkdir()
    if any_almoner.database.is_sqlite:
        shutil.copy(any_almoner.home.root / "almoner.db", desk / "almoner.db")
    for line in READING:
        any_almoner.type(f"{line.format(folder=desk)} --home {desk}")
    monkeypatch.setenv("ALMONER_HOME", str(any_almoner.home.root))
    assert len((desk / "export.jsonl").read_text().splitlines()) == links
    assert not (desk / "keys").exists()


def test_reading_commands_change_nothing(any_almoner: Almoner) -> None:
    any_almoner.registered()
    before = any_almoner.everything()
    for line in READING:
        any_almoner.type(line.format(folder=any_almoner.folder))
    assert any_almoner.everything() == before


def test_a_home_without_a_ledger_is_named_and_not_made(almoner: Almoner, tmp_path: Path) -> None:
    assert almoner.ask("audit log", expected=3)["error"] == "HomeMissing"
    assert not almoner.home.root.exists()
