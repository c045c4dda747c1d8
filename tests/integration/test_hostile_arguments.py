"""Arguments that no value can have: each command refuses them by name, and a device stays what it is."""

import os
import stat
from pathlib import Path

import pytest

from models_db.home import ProjectHome
from tests.integration.story import Almoner

BYTES = "bad\udcff"
NUL = "a\0b"
LONG = "n" * 300
LINES = {
    "an epsilon near zero": (
        'dataset cap clinic --epsilon 1e-400 --delta 1e-7 --reason "smaller" --dry-run', {1, 2}
    ),
    "an epsilon that is a fraction": ("budget simulate clinic --epsilon 1/3", {2}),
    "a delta that is a fraction": ("budget simulate clinic --epsilon 1 --delta 1/3", {2}),
    "a number of 5,000 digits": ("run " + "9" * 5000, {2}),
    "a time after all times": ("audit log --since 9999-12-31T23:59:59-12:00", {2}),
    "a time before all times": ("audit log --until 0001-01-01T00:00:00+14:00", {2}),
    "an export from such a time": ("audit export --to links.jsonl --since 9999-12-31T23:59:59-12:00", {2}),
    "an anchor of 300 bytes": (f"audit verify --against {LONG}", {1, 2, 3}),
    "a bundle of 300 bytes": (f"verify-release {LONG}", {1, 2, 3}),
    "a backup of 300 bytes": (f"backup --to {LONG}", {2, 3}),
    "metrics without a name": ("metrics --to ''", {2, 3}),
    "a backup without a name": ("backup --to ''", {2, 3}),
    "an anchor that is memory": ("audit verify --against /proc/self/mem", {1, 2, 3}),
}  # fmt: skip
TEXTS = (
    "dataset show {}",
    "budget show {}",
    "audit log --dataset {}",
    "attack run 1 --on {}",
    'approve 1 --gate spend --reason "{}"',
    'reject 1 --gate spend --reason "{}"',
    'user grant analyst steward --reason "{}"',
    "audit verify --against {}",
)


@pytest.mark.parametrize("name", LINES)
def test_what_no_value_can_be_is_refused_by_name(almoner: Almoner, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    line, codes = LINES[name]
    almoner.ingested()
    monkeypatch.chdir(almoner.folder)
    before = almoner.everything()
    told = almoner.type(f"{line} --json", None)
    assert told.code in codes
    assert told.err or told.json["error"]
    assert almoner.everything() == before


def test_text_that_is_not_utf_8_is_refused_before_anything_is_read(almoner: Almoner) -> None:
    almoner.ingested()
    for line in TEXTS:
        for text in (BYTES, NUL):
            assert almoner.ask(line.format(text), 2)["error"] == "UnreadableArgument"


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_metrics_replace_no_device(almoner: Almoner, kind: str) -> None:
    almoner.ingested()
    target = almoner.folder / "target"
    if kind == "folder":
        target.mkdir()
    else:
        os.mkfifo(target)
    told = almoner.ask(f"metrics --to {target}", 3)
    assert told["error"] == "MetricsUnwritable"
    assert stat.S_ISDIR(target.stat().st_mode) if kind == "folder" else stat.S_ISFIFO(target.stat().st_mode)


@pytest.mark.parametrize("name", ["home?a=1", "home#b", "home%2e%2e", "home;c", "höme ü"])
def test_a_home_has_its_ledger_inside_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    from models_db.sessions.database import Database

    home = ProjectHome(tmp_path / name)
    assert Database(home.database_url).engine.url.database == str(home.root / "almoner.db")
