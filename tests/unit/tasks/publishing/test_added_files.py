"""Files beside a bundle's own: those of the Hub, git and file managers are not read, any other is named."""

import os

import pytest

from tasks.publishing.checks import PASSED_OVER
from tasks.publishing.verify import verify_release
from tasks.release.bundle_format import RECORD
from tests.refusals import refusal
from tests.unit.tasks.publishing.forging import failed

pytestmark = pytest.mark.dear


def test_a_file_too_many_is_named_without_what_controls_a_terminal(folder):
    for name in ("notes.txt", ".gitattributes2", ".git2", "\x1b[31mred", "\udce4", "x" * 250, *map(str, range(9))):
        (folder / name).touch()
    (told,) = [check.detail for check in verify_release(folder).checks if check.name == "files"]
    assert "15 unexpected files" in told
    assert "and 5 more" in told
    assert "\\x1b[31mred" in told
    assert told.isprintable()
    assert len(told) < 300


WHAT = {
    "empty": lambda path, outside: path.touch(),
    "record": lambda path, outside: path.write_text((path.parent / RECORD).read_text() + " "),
    "folder": lambda path, outside: ((path / "huggingface").mkdir(parents=True), (path / RECORD).write_text("{}")),
    "link": lambda path, outside: path.symlink_to(outside),
    "endless": lambda path, outside: path.symlink_to("/dev/zero"),
    "pipe": lambda path, outside: os.mkfifo(path),
    "without rights": lambda path, outside: path.mkdir(mode=0),
}


@pytest.mark.parametrize(
    ("name", "what"), [*((name, "empty") for name in sorted(PASSED_OVER)), *((".git", what) for what in WHAT)]
)
def test_what_the_hub_and_file_managers_add_is_not_read_and_named(folder, name, what, tmp_path, monkeypatch):
    WHAT[what](folder / name, tmp_path)
    opened, open_descriptor = [], os.open
    monkeypatch.setattr(os, "open", lambda path, *a, **b: opened.append(str(path)) or open_descriptor(path, *a, **b))
    report = verify_release(folder)
    assert report.holds, failed(report)
    assert report.to_json()["passed_over"] == [name]
    assert any(f"not read: {name}" in check.detail for check in report.checks)
    assert opened
    assert not [path for path in opened if path.startswith(str(folder / name))]


def test_such_a_name_below_the_top_or_in_another_spelling_is_one_too_many(folder):
    (folder / ".GIT").mkdir()
    assert failed(verify_release(folder)) == {"files"}


def test_a_folder_of_bundles_is_told_from_a_bundle(folder):
    for look in (verify_release, lambda place: verify_release(folder, later=place)):
        with refusal("NoBundle") as refused:
            look(folder.parent)
        assert str(folder) in refused.value.advice
    (folder / RECORD).unlink()
    assert not verify_release(folder).holds
