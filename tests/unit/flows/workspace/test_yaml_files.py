"""Files that people write, and new files for them: what is wrong is said by place, never by content."""

from pathlib import Path

import pytest

from flows.workspace import yaml_files
from flows.workspace.yaml_files import new_file, read_yaml
from tests.refusals import refusal


def test_yaml_is_read_as_data(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1.0e-7\nb: [x, é]\n", encoding="utf-8")
    assert read_yaml(path, "a.yaml") == {"a": 1e-7, "b": ["x", "é"]}
    path.write_text("")
    assert read_yaml(path, "a.yaml") is None


@pytest.mark.parametrize("text", ["a: [1, 2", "a: b: c", "\tx: 1", "a: &b\n- *c", "!!python/object:os.system {}"])
def test_what_is_not_plain_yaml_is_refused_by_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"# first line\n{text}")
    with refusal("FileInvalid", match=r"a.yaml is not valid: line \d+: not YAML"):
        read_yaml(path, "a.yaml")


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2", "a: 1\nb: {c: 1, c: 1}", "- {a: 1, a: 2}", "{a: 1, 'a': 2}", "1: x\n1: y", "1: x\n'1': y"]
)
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with refusal("FileInvalid", match=r"line \d: not YAML \(a key is repeated\)") as refused:
        read_yaml(path, "a.yaml", "docs/policy.md")
    assert "docs/policy.md" in refused.value.advice


def test_equal_keys_of_different_mappings_are_no_doubles(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: {b: 1}\nc: {<<: x, b: 2}\n")
    assert read_yaml(path, "a.yaml") == {"a": {"b": 1}, "c": {"<<": "x", "b": 2}}


@pytest.mark.parametrize("content", [b"\xff\xfe", b"caf\xe9"])
def test_what_is_not_utf8_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    with refusal("FileUnreadable", match="not UTF-8"):
        read_yaml(path, "a.yaml")


def test_a_control_character_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: \x00")
    with refusal("FileInvalid"):
        read_yaml(path, "a.yaml")


def test_missing_and_huge_files_and_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refusal("FileUnreadable", match="No such file"):
        read_yaml(tmp_path / "none", "it")
    with refusal("FileUnreadable", match="directory"):
        read_yaml(tmp_path, "it")
    monkeypatch.setattr(yaml_files, "LARGEST_FILE", 3)
    (tmp_path / "big").write_text("a: 1")
    with refusal("FileUnreadable", match="larger than 3 bytes"):
        read_yaml(tmp_path / "big", "it")


def test_a_new_file_is_new(tmp_path: Path) -> None:
    with new_file(tmp_path / "a") as out:
        out.write(b"x")
    assert (tmp_path / "a").read_bytes() == b"x"
    with refusal("FileUnwritable", match="File exists"), new_file(tmp_path / "a"):
        pass
    with refusal("FileUnwritable", match="No such file"), new_file(tmp_path / "none" / "a"):
        pass
