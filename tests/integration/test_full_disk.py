"""A disk that is full: each command names it, says what to do, and leaves nothing half written.

The home lies on a small file system in memory, which is mounted in a name space of this test's own processes, so that
nobody else sees it; without the right to do so, the test is skipped and says why.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.story import Almoner
from tests.support import require

pytestmark = pytest.mark.contract

CONCERNS = ("models_db/sessions", "tasks/corpus", "flows/backup", "flows/datasets", "flows/workspace")

ROOT = Path(__file__).resolve().parents[2]
IN_A_NAMESPACE = ("unshare", "--mount", "--propagation", "private")
COMMANDS = {
    "dataset ingest clinic {notes}": ("StoreNotWritable", "LedgerDiskFull", "SeenFileUnwritable"),
    "dataset register other --unit a --epsilon 1 --delta 1e-7": (
        "KeyNotWritable", "LedgerDiskFull", "SeenFileUnwritable",
    ),
    'approve 2 --gate spend --reason "a first look" --confirm clinic': ("LedgerDiskFull", "SeenFileUnwritable"),
    "publish 1 --to {home}/out": ("LedgerDiskFull", "SeenFileUnwritable", "FileInaccessible"),
    "run 3": ("LedgerDiskFull", "SeenFileUnwritable", "FileInaccessible"),
    "backup --to {home}/backup.tar": ("LedgerNotCopied", "FileUnwritable", "LedgerDiskFull", "SeenFileUnwritable"),
}  # fmt: skip
"""Commands, and the errors that a full disk may be told by, depending on how many bytes are left."""

DRIVER = """
import json, os, shutil, subprocess, sys
from pathlib import Path
from cli.app import app
import pytest
from tests import tiny_embedder, tiny_model
from typer.testing import CliRunner
patch = pytest.MonkeyPatch()
tiny_model.install(patch)
tiny_embedder.install(patch)
home, kept, lines = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "none", str(home)], check=True)
shutil.copytree(kept, home, dirs_exist_ok=True, copy_function=shutil.copy2)

def tell(line):
    "What a command says in a process of its own, so that whoever held a run is gone."
    reading, writing = os.pipe()
    if not os.fork():
        done = CliRunner().invoke(app, [*line, "--json", "--home", str(home)])
        raised = done.exception
        said = done.stdout
        if raised is not None and not isinstance(raised, SystemExit):
            said = json.dumps({"raised": repr(raised)})
        with open(writing, "w") as out:
            out.write(said)
        os._exit(0)
    os.close(writing)
    with open(reading) as said:
        told = json.loads(said.read())
    os.wait()
    return told

def files():
    return sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.is_file() and "almoner.db" not in p.name)

told = []
for left in (0, 49152):
    filler = home / "filler"
    filler.unlink(missing_ok=True)
    free = os.statvfs(home).f_bavail * os.statvfs(home).f_frsize
    filler.write_bytes(bytes(max(0, free - left)))
    for line in lines:
        before = files()
        told.append({"left": left, "line": line, "said": tell(line), "new": sorted(set(files()) - set(before))})
filler.unlink()
after = [tell(line) for line in (["run", "3"], ["run", "sweep"], ["doctor"], ["audit", "verify"])]
sys.stdout.write(json.dumps({"told": told, "after": after}))
"""


@pytest.fixture
def namespace() -> None:
    """Somebody who may mount a file system where nobody else sees it."""
    tried = shutil.which("unshare") and subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True, check=False)
    require(tried and tried.returncode == 0, "no right to make a name space for mounts (root, CAP_SYS_ADMIN)")


@pytest.mark.slow
@pytest.mark.usefixtures("namespace")
def test_a_full_disk_is_named_and_leaves_nothing_behind(almoner: Almoner) -> None:
    almoner.passed()
    for _ in range(2):
        almoner.type(f"release request {almoner.request_file()}")
    almoner.type('approve 3 --gate spend --reason "another one"')
    home, kept = almoner.home.root, almoner.home.root.with_name("kept")
    shutil.copytree(home, kept)
    wanted = [[word.format(notes=almoner.notes_file(), home=home) for word in shlex.split(line)] for line in COMMANDS]
    command = [*IN_A_NAMESPACE, sys.executable, "-c", DRIVER, str(home), str(kept), json.dumps(wanted)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    full = 0
    for each in seen["told"]:
        names, said = COMMANDS[list(COMMANDS)[wanted.index(each["line"])]], each["said"]
        assert "raised" not in said, each
        if "error" not in said:  # it fitted into the room that was left
            continue
        full += 1
        assert said["error"] in names, each
        assert str(home) in said["message"], each
        assert "oom" in said["advice"], each
        assert each["new"] == [], each
    assert full >= len(COMMANDS)
    run, _, doctor, verified = seen["after"]
    assert run.get("state") == "produced", "with room it goes on, and pays nothing twice"
    assert (doctor.get("ok"), verified.get("holds")) == (True, True), "the ledger is unharmed"


@pytest.mark.slow
@pytest.mark.usefixtures("namespace")
def test_a_home_without_room_for_a_ledger_says_so(tmp_path: Path) -> None:
    """`almoner init`, where the disk is full before the schema is there; with room it goes on."""
    room = tmp_path / "room"
    room.mkdir()
    program = [sys.executable, "-c", "from cli.app import main; main()", "init", "--json", "--home", str(room / "home")]
    init = shlex.join(program)
    steps = f"""
mount -t tmpfs -o size=96k,mode=700 none room || exit 77
{init} > full
mount -o remount,size=24m room
{init} > roomy
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [*IN_A_NAMESPACE, "sh", "-c", steps]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    problem = json.loads((tmp_path / "full").read_text())
    assert (problem["error"], "MiB of room" in problem["advice"]) == ("LedgerDiskFull", True)
    assert json.loads((tmp_path / "roomy").read_text())["enrolled"] is True
