"""Files that are written in place of others: whole or not at all, and for nobody else's eyes."""

import os
import stat
from pathlib import Path

import pytest

from tasks.common.files import write_new, write_over


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_takes_the_place_of_another(tmp_path: Path, *, durable: bool) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(b"before, and longer")
    path.chmod(0o644)
    with path.open("rb") as reader:
        write_over(path, b"after", 0o600, durable=durable)
        assert reader.read() == b"before, and longer"
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    other, path = tmp_path / "other", tmp_path / "kept.json"
    other.write_bytes(b"not ours")
    path.symlink_to(other)
    write_over(path, b"ours", 0o600)
    assert other.read_bytes() == b"not ours"
    assert not path.is_symlink()


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_leaves_the_earlier_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, problem: BaseException
) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(b"before")

    def fails(*_: object) -> None:
        raise problem

    monkeypatch.setattr(os, "fchmod" if step == "write" else step, fails)
    with pytest.raises(type(problem)):
        write_over(path, b"after", 0o600)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_replaces_none(tmp_path: Path) -> None:
    write_new(tmp_path / "a", b"1", 0o600)
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "a", b"2", 0o600)
    assert (tmp_path / "a").read_bytes() == b"1"
