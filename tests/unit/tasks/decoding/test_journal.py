"""The journal of a run: what is on disk is what is read again, and nothing else is."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.decoding import journal as journals
from tasks.decoding.journal import FILE, Contents, Journal, JournalInUse, JournalUnfit, JournalUnwritable

pytestmark = pytest.mark.contract

SPLIT_KEY = bytes(range(32))
RELEASED = {"batches_per_block": "4", "noisy_population": "12"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "1-unfinished"


def read(folder: Path) -> Contents | None:
    with Journal(folder, 1) as journal:
        return journal.open()


@pytest.fixture
def written(folder: Path) -> bytes:
    """Three lines: a beginning, and two steps."""
    with Journal(folder, 1) as journal:
        journal.assign("d" * 64, 1, SPLIT_KEY)
        journal.begin(1, RELEASED)
        journal.step(1, {0: (7, 1), 2: (8, 0.5)})
        journal.step(2, {2: (9, 1.25)})
    return (folder / FILE).read_bytes()


def test_what_was_written_is_read(folder: Path, written: bytes) -> None:
    assert read(folder) == Contents(
        "d" * 64, [1], SPLIT_KEY, 1, RELEASED, armed=2, tokens={0: [7], 2: [8, 9]}, kept={0: (1,), 2: (1.25,)}
    )


def test_nothing_is_left_of_a_run_that_wrote_nothing(folder: Path) -> None:
    assert read(folder) is None
    assert not folder.exists()


def test_attempts_go_on_one_after_the_other(folder: Path, written: bytes) -> None:
    for number in (2, 4):
        with Journal(folder, 1) as journal:
            journal.open()
            journal.assign("d" * 64, number, SPLIT_KEY)
            journal.go_on()
    found = read(folder)
    assert found is not None
    assert (found.attempts, found.since, found.armed) == ([1, 2, 4], 2, 2)
    with Journal(folder, 1) as journal:
        journal.open()
        journal.step(3, {0: (5, 2)})
    found = read(folder)
    assert found is not None
    assert (found.since, found.tokens[0], found.kept[0]) == (0, [7, 5], (2,))


def test_nobody_else_can_read_it(folder: Path, written: bytes) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [FILE]


def test_each_line_is_on_disk_when_it_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    write, sync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda *a: (done.append("write"), write(*a))[1])
    monkeypatch.setattr(os, "fsync", lambda *a: (done.append("sync"), sync(*a))[1])
    with Journal(folder, 1) as journal:
        journal.assign("d", 1, SPLIT_KEY)
        journal.begin(0, RELEASED)
        assert done == ["write", "sync", "sync", "sync"]  # the file, and both folders that name it
        journal.step(1, {0: (7,)})
    assert done[4:] == ["write", "sync"]


def test_a_line_that_is_torn_off_is_a_step_that_was_lost(folder: Path, written: bytes) -> None:
    """Wherever it is torn; what is written behind it is read again."""
    whole = written[: written[:-1].rindex(b"\n") + 1]
    for end in range(len(whole), len(written)):
        (folder / FILE).write_bytes(written[:end])
        with Journal(folder, 1) as journal:
            found = journal.open()
            assert found is not None
            assert found.tokens == {0: [7], 2: [8]}
            journal.step(2, {0: (1,)})
        assert (folder / FILE).read_bytes().startswith(whole)
        found = read(folder)
        assert found is not None
        assert found.tokens == {0: [7, 1], 2: [8]}


def test_a_disk_that_does_not_let_go_of_a_torn_line_is_named(
    folder: Path, written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / FILE).write_bytes(written[:-3])

    def no_room(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, Journal(folder, 1) as journal:
        patch.setattr(os, "fsync", no_room)
        with pytest.raises(JournalUnwritable, match="No space left on device"):
            journal.open()
    found = read(folder)
    assert found is not None
    assert found.tokens == {0: [7], 2: [8]}


@pytest.mark.parametrize("what", ["flip", "drop", "swap", "double", "empty", "other format", "zeros"])
def test_a_journal_that_was_changed_is_refused_and_left_as_it_is(folder: Path, written: bytes, what: str) -> None:
    first, second, third = written.splitlines(keepends=True)
    changed = {
        "flip": first + second.replace(b"[0,7,1]", b"[0,8,1]") + third,
        "drop": first + third,
        "swap": first + third + second,
        "double": first + second + second + third,
        "empty": b"",
        "other format": first.replace(journals.FORMAT.encode(), b"almoner-journal/9"),
        "zeros": first + b"\0" * len(second) + b"\n",
    }[what]
    (folder / FILE).write_bytes(changed)
    with pytest.raises(JournalUnfit, match="cannot be used") as refused:
        read(folder)
    assert "almoner run 1 --anew" in refused.value.advice
    assert (folder / FILE).read_bytes() == changed


def test_every_changed_byte_is_seen_or_the_line_is_lost(folder: Path, written: bytes) -> None:
    for place in range(len(written) - 1):
        (folder / FILE).write_bytes(written[:place] + bytes([written[place] ^ 1]) + written[place + 1 :])
        with pytest.raises(JournalUnfit):
            read(folder)


def test_another_unicode_is_refused(folder: Path, written: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that decide an answer may be others there."""
    monkeypatch.setattr("unicodedata.unidata_version", "99.0.0")
    with pytest.raises(JournalUnfit, match="begun with Unicode"):
        read(folder)


def test_a_link_is_not_followed(folder: Path, written: bytes) -> None:
    (folder / FILE).rename(folder / "elsewhere")
    (folder / FILE).symlink_to(folder / "elsewhere")
    with pytest.raises(JournalUnfit, match="cannot be opened"):
        read(folder)


def test_who_has_it_open_has_it_alone(folder: Path, written: bytes) -> None:
    with Journal(folder, 1) as journal:
        journal.open()
        with pytest.raises(JournalInUse, match="still works on request 1"):
            read(folder)
    assert read(folder) is not None


def test_it_is_removed_for_good(folder: Path, written: bytes) -> None:
    with Journal(folder, 1) as journal:
        journal.open()
        journal.discard()
        assert not folder.exists()
        journal.assign("e", 2, SPLIT_KEY)
        journal.begin(0, RELEASED)
    found = read(folder)
    assert found is not None
    assert (found.request, found.attempts, found.tokens) == ("e", [2], {})


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def full(*given: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        yield


def test_a_full_disk_is_named(folder: Path, full_disk: None) -> None:
    with Journal(folder, 1) as journal:
        journal.assign("d", 1, SPLIT_KEY)
        with pytest.raises(JournalUnwritable, match="No space left on device"):
            journal.begin(0, RELEASED)
    assert read(folder) is None
