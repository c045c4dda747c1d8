"""What is kept of attacks: for its owner's eyes, whole, and refused where it is damaged."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.attacks.result_store import AttackFolder
from models_db.home import ProjectHome
from tests.refusals import refusal


@pytest.fixture
def folder(tmp_path: Path) -> AttackFolder:
    return AttackFolder.for_configuration(ProjectHome(tmp_path), {"kind": "synthetic_corpus"}, "0" * 32)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_files_are_for_their_owner(folder: AttackFolder) -> None:
    """The texts of the configuration without privacy are verbatim copies, even if of a public corpus."""
    folder.write_texts("non_private", ["é", "two"])
    folder.write_texts("non_private", ["é"])
    folder.write_result({"finished": False})
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.path.iterdir()} == {
        "texts-non_private.json": 0o600,
        "result.json": 0o600,
    }
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert folder.read_texts("non_private") == ["é"]


def test_what_cannot_be_written_leaves_what_was(folder: AttackFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_texts("request", ["before"])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with refusal("AttackUnwritable", match="No space left"):
            folder.write_texts("request", ["after"])
    assert folder.read_texts("request") == ["before"]
    assert len(list(folder.path.iterdir())) == 1


def test_a_damaged_file_is_no_attack(folder: AttackFolder) -> None:
    assert folder.read_split() is None
    folder.write_result({"finished": True})
    (folder.path / "stage.json").write_text('{"members": 1}')
    with refusal("AttackUnreadable"):
        folder.read_split()
    folder.clear()
    assert folder.read_result() is None
