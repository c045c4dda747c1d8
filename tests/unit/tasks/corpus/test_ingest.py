"""Ingest is all or nothing: what goes in comes back, and what fails, stops or is killed leaves no trace."""

import csv
import errno
import hashlib
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models_db.errors import AlmonerError, Refused
from models_db.home import ProjectHome
from models_db.values.untrusted_text import is_visible
from tasks.corpus import ingest as ingest_module
from tasks.corpus.ingest import IngestedVersion, ingest
from tasks.corpus.keys import mark_of
from tasks.corpus.readers.documents import NOT_JSON, BadRecord
from tasks.corpus.readers.sources import source_changed
from tasks.corpus.store import DATABASE, iter_marks, open_corpus
from tasks.corpus.units import spells_missing_text
from tasks.corpus.versions import (
    StoreNotWritable,
    VersionMissing,
    remove_version,
    sweep_incoming,
    sweep_unrecorded,
    version_uids,
)
from tests.refusals import refusal
from tests.support import PATIENCE

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/corpus",)

KEY = bytes(range(32))
SECRET = "Zebulon Quartermaine"
ROOT = Path(__file__).resolve().parents[4]


def note(number: int, unit: object = "p1", text: str = "All well.") -> dict[str, object]:
    return {"id": f"n{number}", "who": unit, "text": text}


def tree(home: ProjectHome) -> dict[str, tuple[int, bytes]]:
    """Every path below the home with its mode and content."""
    return {
        str(path.relative_to(home.root)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(home.root.rglob("*"))
    }


# --- what goes in comes back -------------------------------------------------------------------------------

TEXTS = st.text(min_size=1).filter(lambda text: is_visible(text) and not spells_missing_text(text))


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(["p1", "p2", "ü", "7"]), TEXTS), min_size=1, max_size=8))
def test_every_text_comes_back_under_its_unit(records: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = ProjectHome(Path(folder) / "home")
        home.create()
        source = Path(folder) / "a.jsonl"
        source.write_text("".join(json.dumps({"who": unit, "text": text}) + "\n" for unit, text in records))
        version = ingest(home, source, "who", KEY)
        assert list(open_corpus(home, version.uid).texts()) == [text for _, text in records]
        units = {unit for unit, _ in records}
        assert (version.documents, version.units) == (len(records), len(units))
        assert set(iter_marks(home, version.uid)) == {(mark_of(KEY, unit), 1) for unit in units}


def test_three_formats_have_one_manifest_and_three_sources(home: ProjectHome, tmp_path: Path) -> None:
    rows = [("n1", "p1", "one\ntwo"), ("n2", "p2", "three")]
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps(dict(zip(("id", "who", "text"), r, strict=True))) + "\n" for r in rows)
    )
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "who", "text"), *rows])
    ids, units, texts = zip(*rows, strict=True)
    pq.write_table(pa.table({"id": ids, "who": units, "text": texts}), tmp_path / "a.parquet")
    versions = [ingest(home, tmp_path / f"a.{kind}", "who", KEY) for kind in ("jsonl", "csv", "parquet")]
    assert len({v.manifest_mark for v in versions}) == 1
    assert len({v.source_mark for v in versions}) == 3
    assert len({v.uid for v in versions}) == 3
    assert version_uids(home) == sorted(v.uid for v in versions)


def test_marks_depend_on_the_overlap_key_and_the_content(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    source = jsonl([note(1)])
    one, same = ingest(home, source, "who", KEY), ingest(home, source, "who", KEY)
    assert (one.source_mark, one.manifest_mark) == (same.source_mark, same.manifest_mark)
    others = [ingest(home, source, "who", KEY[::-1]), ingest(home, jsonl([note(1, text="Worse.")]), "who", KEY)]
    assert all(o.source_mark != one.source_mark and o.manifest_mark != one.manifest_mark for o in others)


def test_without_a_unit_field_every_document_is_a_fresh_unit(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    source = jsonl([{"text": "equal"}, {"text": "equal"}])
    one, other = ingest(home, source, None, KEY), ingest(home, source, None, KEY)
    assert (one.documents, one.units) == (2, 2)
    assert one.manifest_mark == other.manifest_mark
    assert not set(iter_marks(home, one.uid)) & set(iter_marks(home, other.uid))


def test_a_person_with_several_records_may_be_named_by_the_field_id(
    home: ProjectHome, jsonl: Callable[..., Path]
) -> None:
    version = ingest(home, jsonl([note(1), note(2), note(1)]), "id", KEY)
    assert (version.documents, version.units) == (3, 2)


def test_a_version_is_closed_to_other_users(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    before = os.umask(0)
    try:
        version = ingest(home, jsonl([note(1)]), "who", KEY)
    finally:
        os.umask(before)
    folder = home.corpora / version.uid
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [(path.name, stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()] == [(DATABASE, 0o600)]


def test_no_plain_hash_of_private_data_is_kept_or_returned(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    source = jsonl([note(1, text=SECRET)])
    version = ingest(home, source, "who", KEY)
    kept = (home.corpora / version.uid / DATABASE).read_bytes() + repr(vars(version)).encode()
    for private in (source.read_bytes(), SECRET.encode(), b"p1", b"n1"):
        digest = hashlib.sha256(private)
        assert digest.digest() not in kept
        assert digest.hexdigest().encode() not in kept
    assert repr(version) == f"IngestedVersion(uid='{version.uid}')"


def test_progress_runs_from_nothing_to_the_whole_source(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    source = jsonl(note(n) for n in range(2500))
    calls: list[tuple[int, int]] = []
    ingest(home, source, "who", KEY, progress=lambda done, total: calls.append((done, total)))
    size = source.stat().st_size
    assert [total for _, total in calls] == [size] * 4
    assert calls[0] == (0, size)
    assert calls[-1] == (size, size)
    assert sorted(calls) == calls


def test_real_dialogues_come_back_whole(home: ProjectHome, shared_data: Path) -> None:
    source = shared_data / "mts_dialog.jsonl"
    version = ingest(home, source, "id", KEY)
    records = [json.loads(line) for line in source.read_bytes().splitlines()]
    assert list(open_corpus(home, version.uid).texts()) == [record["text"] for record in records]
    assert version.documents == version.units == len(records)


# --- what fails leaves no trace ----------------------------------------------------------------------------

BAD_LINES = [
    SECRET.encode(),
    f'{{"who": "p", "text": "{SECRET} '.encode() + b'\xff"}',
    json.dumps({"id": "n7", "who": "p1", "text": SECRET}).encode(),
    json.dumps({"id": SECRET, "text": "no unit"}).encode(),
    json.dumps({"id": SECRET, "who": SECRET}).encode(),
    json.dumps([SECRET]).encode(),
]


@pytest.mark.parametrize("line", BAD_LINES)
@pytest.mark.parametrize("position", [9, 2001])
def test_a_bad_line_anywhere_leaves_no_trace(
    home: ProjectHome, jsonl: Callable[..., Path], line: bytes, position: int
) -> None:
    ingest(home, jsonl([note(0)]), "who", KEY)
    before = tree(home)
    source = jsonl([line if n == position else note(n) for n in range(1, 2501)])
    with pytest.raises(AlmonerError) as caught:
        ingest(home, source, "who", KEY)
    assert f"Line {position} of 'notes.jsonl'" in caught.value.message
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + caught.value.diagnostics()
    assert tree(home) == before


@pytest.mark.parametrize("first", ["n1", 1, " 1", "1\t"])
def test_a_repeated_document_id_is_refused_however_it_is_spelt(
    home: ProjectHome, jsonl: Callable[..., Path], first: object
) -> None:
    again = str(first).strip()
    source = jsonl([{**note(1), "id": first}, note(5), {**note(2), "id": again}])
    with refusal("DuplicateDocument", match="Line 3"):
        ingest(home, source, "who", KEY)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, BrokenPipeError])
def test_an_interrupt_leaves_no_trace(home: ProjectHome, jsonl: Callable[..., Path], stop: type[BaseException]) -> None:
    before = tree(home)

    def interrupted(done: int, total: int) -> None:
        if done:
            raise stop

    with pytest.raises(stop):
        ingest(home, jsonl(note(n) for n in range(1500)), "who", KEY, progress=interrupted)
    assert tree(home) == before


def test_a_real_ctrl_c_leaves_no_trace(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    before = tree(home)
    source = jsonl(note(n) for n in range(5000))
    with started_ingest(home, source) as process:
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate(timeout=PATIENCE)[1]
    assert tree(home) == before


def test_a_full_disk_is_named_and_leaves_no_trace(
    home: ProjectHome, jsonl: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(home)
    monkeypatch.setattr(ingest_module, "_WRITING", ingest_module._WRITING + "PRAGMA max_page_count = 12;")
    with pytest.raises(StoreNotWritable, match="the disk is full") as caught:
        ingest(home, jsonl(note(n, text=SECRET * 50) for n in range(500)), "who", KEY)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert tree(home) == before


def test_a_disk_that_fills_at_the_last_moment(
    home: ProjectHome, jsonl: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real, synced = tree(home), os.fsync, []

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 3:  # the file, its folder, and then the folder it has been renamed into
            raise OSError(errno.ENOSPC, "No space left on device", SECRET)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreNotWritable, match="No space left on device"):
        ingest(home, jsonl([note(1)]), "who", KEY)
    assert len(synced) == 3
    assert tree(home) == before


@pytest.mark.slow
def test_a_file_size_limit_is_named_and_leaves_no_trace(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    before = tree(home)
    source = jsonl(note(n, text="x" * 1000) for n in range(2000))
    limit = "import resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n"
    done = subprocess.run(
        [sys.executable, "-c", limit + INGEST, str(home.root), str(source)],
        cwd=ROOT, capture_output=True, text=True, input="\n" * 9, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert "StoreNotWritable" in done.stderr
    assert tree(home) == before


def test_a_home_without_the_folder_is_named(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    home.corpora.rmdir()
    with pytest.raises(StoreNotWritable):
        ingest(home, jsonl([note(1)]), "who", KEY)
    with refusal("HomeMissing"):
        ingest(ProjectHome(home.root / "elsewhere"), jsonl([note(1)]), "who", KEY)


@pytest.mark.parametrize("replace", [True, False])
def test_a_source_that_changes_meanwhile_is_refused(
    home: ProjectHome, jsonl: Callable[..., Path], tmp_path: Path, replace: bool
) -> None:
    before = tree(home)
    source = jsonl([note(1)])

    def meddle(done: int, total: int) -> None:
        if not done:
            target = tmp_path / "other" if replace else source
            target.write_bytes(source.read_bytes() + json.dumps(note(2)).encode())
            target.rename(source)

    with refusal("SourceChanged"):
        ingest(home, source, "who", KEY, progress=meddle)
    assert tree(home) == before


# --- recording -----------------------------------------------------------------------------------------------


def test_record_is_called_once_the_version_can_be_read(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    seen: list[tuple[IngestedVersion, int]] = []

    def record(version: IngestedVersion) -> None:
        seen.append((version, len(list(iter_marks(home, version.uid)))))

    version = ingest(home, jsonl([note(1, "p1"), note(2, "p2")]), "who", KEY, record=record)
    assert seen == [(version, 2)]


def test_a_refusal_to_record_removes_the_version(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    before = tree(home)

    def refuse(version: IngestedVersion) -> None:
        raise Refused("The units overlap another dataset.")

    with pytest.raises(Refused, match="overlap"):
        ingest(home, jsonl([note(1)]), "who", KEY, record=refuse)
    assert tree(home) == before


def test_after_any_other_failure_to_record_the_ledger_decides(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    def crash(version: IngestedVersion) -> None:
        raise KeyboardInterrupt  # the ledger may have committed just before

    before = tree(home)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            ingest(home, jsonl([note(1)]), "who", KEY, record=crash)
    recorded, _orphan = version_uids(home)
    assert sweep_unrecorded(home, lambda uid: uid == recorded) == 1
    assert version_uids(home) == [recorded]
    assert sweep_unrecorded(home, lambda uid: False) == 1
    assert tree(home) == before


def test_a_version_being_recorded_is_not_swept(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    swept: list[int] = []
    version = ingest(
        home, jsonl([note(1)]), "who", KEY, record=lambda _: swept.append(sweep_unrecorded(home, lambda uid: False))
    )  # fmt: skip
    assert swept == [0]
    assert version_uids(home) == [version.uid]


# --- sweeping ------------------------------------------------------------------------------------------------

INGEST = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background has it ignored
import sys
from pathlib import Path
from models_db.home import ProjectHome
from tasks.corpus.ingest import ingest

def progress(done, total):
    if done:
        print("reading", flush=True)
        sys.stdin.readline()

ingest(ProjectHome(Path(sys.argv[1])), Path(sys.argv[2]), "who", bytes(32), progress=progress)
"""


class started_ingest:  # noqa: N801 - reads as a function
    """An ingest in a process of its own, stopped in the middle of the source."""

    def __init__(self, home: ProjectHome, source: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", INGEST, str(home.root), str(source)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> subprocess.Popen[str]:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "reading\n"
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_killed_ingest_leaves_only_what_a_sweep_removes(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    source = jsonl(note(n) for n in range(5000))
    ingest(home, source, "who", KEY)
    before = tree(home)
    with started_ingest(home, source) as process:
        left = [path for path in home.corpora.iterdir() if path.name.startswith(".incoming-")]
        assert len(left) == 1
        assert sweep_incoming(home) == 0  # a live one is left alone
        assert left[0].is_dir()
        process.kill()
        process.wait()
        assert left[0].is_dir()
    assert len(version_uids(home)) == 1
    assert sweep_incoming(home) == 1
    assert tree(home) == before
    assert sweep_incoming(home) == 0


def test_a_sweep_does_not_disturb_an_ingest_to_its_end(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    swept: list[int] = []
    source = jsonl(note(n) for n in range(3000))
    version = ingest(home, source, "who", KEY, progress=lambda done, total: swept.append(sweep_incoming(home)))
    assert set(swept) == {0}
    assert len(list(open_corpus(home, version.uid).texts())) == 3000


@pytest.mark.slow
def test_two_ingests_at_once_do_not_meet(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    source = jsonl(note(n) for n in range(1500))
    with started_ingest(home, source) as process:
        here = ingest(home, source, "who", KEY)
        process.communicate("\n\n\n", timeout=PATIENCE)
        assert process.returncode == 0
    assert here.uid in version_uids(home)
    assert len(version_uids(home)) == 2


def test_a_removed_version_is_gone(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    before = tree(home)
    version = ingest(home, jsonl([note(1)]), "who", KEY)
    remove_version(home, version.uid)
    assert tree(home) == before
    with pytest.raises(VersionMissing):
        remove_version(home, version.uid)


@pytest.mark.parametrize("uid", ["", "..", "../keys", "a" * 31, "A" * 32, "0" * 32, ".incoming-00"])
def test_nothing_but_a_version_can_be_removed(home: ProjectHome, uid: str) -> None:
    before = tree(home)
    with pytest.raises(VersionMissing):
        remove_version(home, uid)
    assert tree(home) == before


def test_the_store_is_an_ordinary_sqlite_file(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    version = ingest(home, jsonl(note(n, n % 7) for n in range(100)), "who", KEY)
    connection = sqlite3.connect(home.corpora / version.uid / DATABASE)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def test_every_error_here_says_what_to_do() -> None:
    bad_record = BadRecord(NOT_JSON, Path("a.jsonl"), 3)
    for error in (bad_record, StoreNotWritable("x"), source_changed(Path("a")), VersionMissing("x")):
        assert error.advice
