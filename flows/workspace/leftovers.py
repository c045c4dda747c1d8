"""Leftovers of backups and restorations that were killed: whole copies of a home, outside it.

A backup notes in the home where it writes before it begins, so that `doctor` can name what a killed one has left, and a
sweep, the next backup and each erasure remove it. A restoration writes beside the home, under the home's name.
"""

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flows.workspace.workspace import process_lives, process_owner
from models_db.errors import Finding
from models_db.home import ProjectHome
from tasks.common.files import FileUnfit, decode_json, encode_json, read_document, remove_path, write_new

_SUFFIX = ".partial"


def partial_path(to: Path) -> Path:
    """Return where an archive is written until it is complete: beside it, under a hidden name."""
    return to.with_name(f".{to.name}{_SUFFIX}")


@contextmanager
def noted(home: ProjectHome, to: Path) -> Iterator[None]:
    """Note in the home, until it is done, that this process writes an archive."""
    home.unfinished.mkdir(mode=0o700, exist_ok=True)
    note = home.unfinished / f"{secrets.token_hex(8)}.json"
    try:
        write_new(note, encode_json({"path": str(partial_path(to.absolute())), "owner": process_owner()}), 0o600)
        yield
    finally:
        note.unlink(missing_ok=True)
        with suppress(OSError):  # another backup writes
            home.unfinished.rmdir()


def find_leftovers(home: ProjectHome) -> Iterator[Path]:
    """Yield the files and folders outside a home that killed backups and restorations have left."""
    for note in _notes_of_dead(home):
        if (path := _path_in(note)) is not None:
            yield path
    staged = re.compile(re.escape(f".{home.root.name}.") + "[0-9a-f]{16}")
    try:
        names = os.listdir(home.root.absolute().parent)
    except OSError:  # whoever may not list it has left nothing there
        return
    for beside in (home.root.absolute().parent / name for name in sorted(names) if staged.fullmatch(name)):
        with suppress(OSError):
            state = beside.lstat()
            if stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid():
                yield beside


def remove_leftovers(home: ProjectHome) -> int:
    """Remove what `find_leftovers` finds, and its notes; return how many files and folders were removed.

    What cannot be removed stays, with its note, for `doctor` to name: no erasure waits for it.
    """
    removed = 0
    for note in list(_notes_of_dead(home)):
        with suppress(OSError):
            if (path := _path_in(note)) is not None:
                remove_path(path)
                removed += 1
            note.unlink(missing_ok=True)
    for path in list(find_leftovers(home)):
        with suppress(OSError):
            remove_path(path)
            removed += 1
    return removed


def check_leftovers(home: ProjectHome) -> Finding:
    """Find what killed backups and restorations have left."""
    found = ", ".join(map(str, find_leftovers(home)))
    detail = f"copies of the home, of commands that were killed: {found}; `almoner run sweep` removes them"
    return Finding("unfinished backups", ok=not found, detail=detail if found else "")


def _notes_of_dead(home: ProjectHome) -> Iterator[Path]:
    for note in sorted(home.unfinished.glob("*.json")):
        if not process_lives(str(_read(note).get("owner", ""))):
            yield note


def _path_in(note: Path) -> Path | None:
    """Return the partial archive that a note names; None if nothing of that name is there, or no plain file."""
    path = Path(str(_read(note).get("path", "")))
    is_partial = path.is_absolute() and path.name.startswith(".") and path.name.endswith(_SUFFIX)
    return path if is_partial and path.is_file() and not path.is_symlink() else None


def _read(note: Path) -> dict[str, object]:
    try:
        content = decode_json(read_document(note), note.name)
    except FileUnfit:  # cut off by the kill: nothing was written yet
        return {}
    return dict(content) if isinstance(content, dict) else {}
