"""A SQLite ledger on a disk of this machine alone: what the kernel's table of mounts says about a folder."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from flows.backup.restore import restore_home
from flows.workspace import file_system
from flows.workspace.file_system import NETWORK, file_system_of, require_local_ledger
from models_db.home import ProjectHome
from tests.refusals import refusal

LINES = """\
sysfs /sys sysfs rw 0 0
/dev/sda1 / ext4 rw 0 0
server:/x /srv nfs4 rw 0 0
/dev/sdb1 /srv/disk xfs rw 0 0
server:/y /srv/with\\040space cifs rw 0 0
tmpfs /twice tmpfs rw 0 0
server:/z /twice nfs rw 0 0
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of mounts, in the place of the kernel's."""
    table = tmp_path / "mounts"
    table.write_text(LINES)
    monkeypatch.setattr(file_system, "MOUNTS", table)
    return table


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/home/x", "ext4"), ("/srv", "nfs4"), ("/srv/a/b", "nfs4"), ("/srv/disk/a", "xfs"), ("/srvx", "ext4"),
     ("/srv/with space/a", "cifs"), ("/twice/a", "nfs"), ("/srv/disk/../a", "nfs4")],
)  # fmt: skip
def test_the_nearest_mount_decides(mounts: Path, folder: str, kind: str) -> None:
    assert file_system_of(Path(folder)) == kind


def test_a_link_is_where_it_leads(mounts: Path, tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to("/srv/homes")
    assert file_system_of(tmp_path / "home" / "a") == "nfs4"


def test_a_system_that_tells_nothing_refuses_nothing(
    mounts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts.unlink()
    assert file_system_of(tmp_path) == ""
    require_local_ledger(ProjectHome(tmp_path))


def test_this_machine_says_where_it_is(tmp_path: Path) -> None:
    assert file_system_of(tmp_path)
    require_local_ledger(ProjectHome(tmp_path))


def _on(mounts: Path, folder: Path, kind: str) -> None:
    mounts.write_text(f"{LINES}server:/a {folder} {kind} rw 0 0\n")


@pytest.mark.parametrize("kind", sorted(NETWORK))
def test_init_and_restore_refuse_a_sqlite_ledger_there_and_make_nothing(
    mounts: Path, tmp_path: Path, kind: str
) -> None:
    _on(mounts, tmp_path, kind)
    typed = CliRunner().invoke(app, ["init", "--home", str(tmp_path / "home"), "--json"])
    told = json.loads(typed.stdout)
    assert (typed.exit_code, told["error"], told["facts"]["file_system"]) == (3, "NetworkFileSystem", kind)
    assert not (tmp_path / "home").exists()
    with refusal("NetworkFileSystem"):
        restore_home(tmp_path / "backup", ProjectHome(tmp_path / "restored"), "a test")


def test_a_ledger_elsewhere_decides_and_not_the_home(
    mounts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _on(mounts, tmp_path, "nfs4")
    monkeypatch.setenv("ALMONER_DATABASE_URL", "postgresql+psycopg://server/ledger")
    require_local_ledger(ProjectHome(tmp_path))
    monkeypatch.setenv("ALMONER_DATABASE_URL", "sqlite:////srv/ledgers/almoner.db")
    with refusal("NetworkFileSystem"):
        require_local_ledger(ProjectHome(Path("/home/x")))
