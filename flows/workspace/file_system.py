"""File system of a project home: SQLite's write-ahead log needs memory that all processes share, hence one machine."""

import os
import re
from pathlib import Path
from typing import Final

from sqlalchemy import make_url

from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome

MOUNTS: Final = Path("/proc/self/mounts")
NETWORK: Final = frozenset(
    {
        "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs",
        "nfs4", "ocfs2", "orangefs", "pvfs2", "smb2", "smb3", "smbfs", "fuse.ceph", "fuse.cephfs",
        "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.mfs", "fuse.rclone", "fuse.s3fs",
        "fuse.seaweedfs", "fuse.smbnetfs", "fuse.sshfs",
        "fuse.blobfuse2", "fuse.mountpoint-s3", "fuse.goofys", "panfs", "wekafs", "vboxsf",
    }
)  # fmt: skip
"""Types of file systems that several machines may write, as the kernel names them."""


def require_local_ledger(home: ProjectHome) -> None:
    """Refuse a SQLite ledger on a network file system; its folder need not be there yet.

    Raises:
        NetworkFileSystem.
    """
    folder = ledger_folder(home)
    if folder is not None and (kind := file_system_of(folder)) in NETWORK:
        raise EnvironmentProblem(
            f"{folder} is on a network file system ({kind}), on which SQLite can lose or damage a ledger.",
            "Choose a folder on a disk of this machine, or keep the ledger in PostgreSQL (ALMONER_DATABASE_URL).",
            {"path": str(folder), "file_system": kind},
            code="NetworkFileSystem",
        )


def ledger_folder(home: ProjectHome) -> Path | None:
    """Return the folder of a SQLite ledger; None of any other address."""
    if not home.database_url.startswith("sqlite:"):
        return None
    database = make_url(home.database_url).database
    return Path(os.path.realpath(database)).parent if database else None


def file_system_of(folder: Path) -> str:
    """Return the type of the file system that `folder` is on, or would be; empty where the system does not tell."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    place, found, longest = Path(os.path.realpath(folder)), "", -1
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        mounted = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point))
        if place.is_relative_to(mounted) and len(mounted.parts) >= longest:  # of two on one point the later is seen
            found, longest = kind, len(mounted.parts)
    return found
