"""Erasure of a unit from a stored version: the file is written anew without it, so no freed page keeps its text.

SQLite marks the pages of deleted rows as free and leaves their bytes where they are; a write-ahead log or a journal may
hold them too. So nothing is deleted inside the file: what stays is copied into a new one, which takes its place in one
step. A process killed in between leaves the version unchanged, and a folder that `versions.sweep_incoming` removes.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from models_db.home import ProjectHome
from tasks.corpus.keys import ManifestMark
from tasks.corpus.store import DATABASE, SCHEMA, iter_content, open_corpus
from tasks.corpus.versions import incoming, named_problems, sync, version_folder

_UNITS = "INSERT INTO main.units SELECT number, unit, mark, cohort FROM old.units WHERE unit <> ? ORDER BY number"
_DOCUMENTS = """
INSERT INTO main.documents SELECT number, unit, document_id, text, label FROM old.documents
 WHERE unit IN (SELECT number FROM main.units) ORDER BY number"""
_SETTINGS = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY;"


def content_mark(
    home: ProjectHome, uid: str, overlap_key: bytes, *, has_unit_field: bool, without: str | None = None
) -> str:
    """Return the keyed mark of a version's present content, made as at its ingest; 64 hexadecimal digits.

    Args:
        has_unit_field: whether its units are named by a field; ids that were drawn are not part of the content.
        without: as if this unit were not in it.

    Raises:
        VersionMissing, StoreBusy, StoreUnreadable: as `open_corpus`.
    """
    manifest = ManifestMark(overlap_key)
    for unit, document_id, text in iter_content(home, uid):
        if unit != without:
            manifest.add(unit if has_unit_field else None, document_id, text)
    return manifest.hexdigest()


def documents_of(home: ProjectHome, uid: str, unit: str | None = None) -> int:
    """Return how many documents a version has, or one unit in it. Private: for the person at the keyboard alone.

    Raises:
        VersionMissing, StoreBusy, StoreUnreadable: as `open_corpus`.
    """
    return sum(unit is None or owner == unit for owner, _, _ in iter_content(home, uid))


def erase_unit(home: ProjectHome, uid: str, unit: str) -> None:
    """Write a version anew without a unit; on disk when this returns.

    Raises:
        VersionMissing, StoreBusy, StoreUnreadable: as `open_corpus`.
        StoreNotWritable: there is no room; the version is as it was.
    """
    corpus = open_corpus(home, uid)
    with incoming(home) as folder, named_problems():
        database = folder / DATABASE
        os.close(os.open(database, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _copy(corpus.database, database, unit)
        sync(database)
        os.replace(database, corpus.database)
        sync(corpus.database.parent)


def remove_beside(home: ProjectHome, uid: str) -> None:
    """Remove files that SQLite, or another writer of the file, has left beside a version's store.

    Raises:
        VersionMissing: the home holds no such version.
    """
    for path in strangers(home, uid):
        path.unlink()


def strangers(home: ProjectHome, uid: str) -> list[Path]:
    """Return the files in a version's folder that are not its store."""
    return sorted(path for path in version_folder(home, uid).iterdir() if path.name != DATABASE)


def _copy(source: Path, target: Path, unit: str) -> None:
    with closing(sqlite3.connect(target.absolute().as_uri(), uri=True, isolation_level=None)) as connection:
        connection.executescript(_SETTINGS + SCHEMA)
        connection.execute("ATTACH ? AS old", (f"{source.absolute().as_uri()}?mode=ro",))
        connection.execute("BEGIN")
        connection.execute(_UNITS, (unit,))
        connection.execute(_DOCUMENTS)
        connection.execute("INSERT INTO main.labelling SELECT field FROM old.labelling")
        connection.execute("COMMIT")
