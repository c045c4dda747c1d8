"""The project home: where it is, who may read it, and that no path leads out of it."""

import stat
from pathlib import Path

import pytest

from models_db.home import PathEscape, ProjectHome
from tests.refusals import refusal


@pytest.fixture
def home(tmp_path: Path) -> ProjectHome:
    made = ProjectHome(tmp_path / "home")
    made.create()
    return made


def test_every_folder_is_for_the_owner_only(tmp_path: Path) -> None:
    (tmp_path / "home" / "keys").mkdir(parents=True, mode=0o755)
    made = ProjectHome(tmp_path / "home")
    made.create()
    for folder in (made.root, made.keys, made.corpora, made.quarantine, made.scratch):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


def test_create_keeps_what_is_there(home: ProjectHome) -> None:
    home.policy.write_text("several_roles: true")
    home.create()
    assert home.policy.read_text() == "several_roles: true"


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ALMONER_HOME", raising=False)
    assert ProjectHome.locate().root == tmp_path / ".almoner"
    monkeypatch.setenv("ALMONER_HOME", "~/office")
    assert ProjectHome.locate().root == tmp_path / "office"
    monkeypatch.chdir(tmp_path)
    assert ProjectHome.locate(Path("here")).root == tmp_path / "here"


def test_where_the_ledger_is(home: ProjectHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALMONER_DATABASE_URL", raising=False)
    assert home.database_url == f"sqlite:///{home.root}/almoner.db"
    monkeypatch.setenv("ALMONER_DATABASE_URL", "postgresql://ledger/almoner")
    assert home.database_url == "postgresql://ledger/almoner"


def test_a_missing_home_says_what_to_do(tmp_path: Path, home: ProjectHome) -> None:
    with refusal("HomeMissing", match="no project home") as missing:
        ProjectHome(tmp_path / "elsewhere").require()
    assert "almoner init" in missing.value.advice
    assert home.require() is home


@pytest.mark.parametrize("parts", [("corpora", "a1"), ("quarantine", "1-2", "texts.jsonl"), ("policy.yaml",)])
def test_paths_inside(home: ProjectHome, parts: tuple[str, ...]) -> None:
    assert home.path_inside(*parts).is_relative_to(home.root.resolve())


@pytest.mark.parametrize(
    "parts",
    [
        ("..",),
        ("corpora", "..", ".."),
        ("/etc/passwd",),
        ("corpora", "/etc"),
        ("..", "home2", "x"),
        ("a", "..", "b"),
        ("quarantine", ".."),
        ("quarantine", "."),
        ("quarantine", ""),
        ("quarantine", "a/b"),
        ("quarantine", "a\0b"),
        (),
    ],
)
def test_paths_that_lead_out_are_refused(home: ProjectHome, parts: tuple[str, ...]) -> None:
    with pytest.raises(PathEscape):
        home.path_inside(*parts)


def test_a_link_that_leads_out_is_refused(home: ProjectHome, tmp_path: Path) -> None:
    (home.corpora / "link").symlink_to(tmp_path)
    with pytest.raises(PathEscape):
        home.path_inside("corpora", "link", "file")


def test_a_home_behind_a_link_is_a_home(home: ProjectHome, tmp_path: Path) -> None:
    (tmp_path / "shortcut").symlink_to(home.root)
    assert ProjectHome(tmp_path / "shortcut").path_inside("keys", "x") == home.root.resolve() / "keys" / "x"


def test_a_folder_whose_name_begins_like_the_home_is_outside(home: ProjectHome) -> None:
    with pytest.raises(PathEscape):
        home.path_inside("..", home.root.name + "2", "x")
