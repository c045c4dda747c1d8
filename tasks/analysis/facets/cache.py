"""Facets that were extracted once are not extracted again: one SQLite file in the private part of a project home.

The key of an entry is a keyed hash of the extractor's name, the unit and the text, under the dataset's key: no plain
hash of private data exists (docs/decisions/0004), and an entry tells nothing to who has not the key. The value is the
facets themselves, as private as the text; the file is as closed as the corpus.

The unit belongs to the key, although facets follow from the text. An entry outlives the process that made it, and on
another day another machine or library may round otherwise and find other facets of that text. If all units that say
the same shared an entry, whether one unit had ever been there would decide what is found of all those that came later.

Entries are written a batch at a time, so a run that is killed loses one batch. Two processes may write the same entry,
and it does not matter whose is kept. A file that is damaged is set aside and
made anew: nothing is lost but time.
"""

import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from models_db.errors import EnvironmentProblem
from tasks.analysis.facets.extractor import Extractor
from tasks.common.progress import Progress
from tasks.corpus.identity.keys import keyed_hash
from tasks.values.insight import Facets

DATABASE = "facets.sqlite"
BATCH = 256
"""Texts that are extracted and then written down together."""

_FORMAT = 1
_SCHEMA = f"""
CREATE TABLE facets (mark BLOB PRIMARY KEY, found TEXT NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {_FORMAT};
"""
_ASKED_AT_ONCE = 500
_LOCK_WAIT_S = 60.0


def cached(
    extractor: Extractor,
    folder: Path,
    key: bytes,
    progress: Progress = lambda done, of: None,
    batch: int = BATCH,
) -> Extractor:
    """`extractor`, which is only asked for what the file in `folder` does not have.

    Args:
        folder: private; made if it is not there.
        key: the dataset's.
        progress: told how many of all texts are done, after each batch.

    Raises:
        FacetCacheNotWritable: now or at a later call, the file cannot be read or written.
    """
    with _told(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        _make_ready(folder / DATABASE)
    return CachedExtractor(extractor, folder / DATABASE, key, progress, batch)


def forget(folder: Path) -> None:
    """Replace the file in `folder` by an empty one, and remove all that was set aside; writers are waited for.

    Entries do not tell whose they are to who has not the text, so none is looked for: what is lost is time.

    Raises:
        FacetCacheNotWritable: it cannot be replaced.
    """
    if not folder.is_dir():
        return
    database = folder / DATABASE
    with _told(folder), _alone(database.with_suffix(".lock")):
        if database.exists():
            with closing(_connection(database)) as connection:
                with suppress(sqlite3.DatabaseError):  # one that is damaged has no writers
                    connection.execute("BEGIN EXCLUSIVE")
                _create(database)
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name not in (DATABASE, database.with_suffix(".lock").name):
                path.unlink()


@dataclass(frozen=True)
class CachedExtractor:
    """What `cached` returns."""

    extractor: Extractor
    database: Path
    key: bytes
    progress: Progress
    batch: int

    def __repr__(self) -> str:
        """Without the key."""
        return f"CachedExtractor({self.name})"

    @property
    def name(self) -> str:
        """The extractor's."""
        return self.extractor.name

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        """One for each text; of nobody in particular."""
        return self.of_units([""] * len(texts), texts)

    def of_units(self, units: Sequence[str], texts: Sequence[str]) -> list[Facets]:
        """One for each text, by whose it is: nobody gets what was once found of another unit.

        Args:
            units: the id of each text's unit.
        """
        marks = [self._mark(unit, text) for unit, text in zip(units, texts, strict=True)]
        known = self._known(marks)
        left = list({mark: text for mark, text in zip(marks, texts, strict=True) if mark not in known}.items())
        before = len(texts) - len(left)
        self.progress(before, len(texts))
        for first in range(0, len(left), self.batch):
            some = left[first : first + self.batch]
            found = dict(zip((mark for mark, _ in some), self.extractor([text for _, text in some]), strict=True))
            self._keep(found)
            known.update(found)
            self.progress(before + first + len(some), len(texts))
        return [known[mark] for mark in marks]

    def _known(self, marks: Sequence[bytes]) -> dict[bytes, Facets]:
        with _told(self.database.parent), closing(_connection(self.database)) as connection:
            return dict(_read(connection, marks))

    def _keep(self, found: Mapping[bytes, Facets]) -> None:
        rows = [(mark, _written(facets)) for mark, facets in found.items()]
        with _told(self.database.parent), closing(_connection(self.database)) as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO facets VALUES (?, ?)", rows)

    def _mark(self, unit: str, text: str) -> bytes:
        """32 bytes; also of a text that has no UTF-8 form."""
        return keyed_hash(self.key, "facets", self.name, unit, text.encode("utf-8", "surrogatepass"))


def _read(connection: sqlite3.Connection, marks: Sequence[bytes]) -> Iterator[tuple[bytes, Facets]]:
    """The entries there are; one that cannot be read is as good as missing."""
    for first in range(0, len(marks), _ASKED_AT_ONCE):
        some = marks[first : first + _ASKED_AT_ONCE]
        places = ",".join("?" * len(some))
        rows: Iterable[tuple[bytes, str]] = connection.execute(
            f"SELECT mark, found FROM facets WHERE mark IN ({places})",  # noqa: S608 - places are question marks
            some,
        )
        for mark, written in rows:
            with suppress(ValueError, AttributeError, TypeError):
                yield mark, _facets(written)


def _written(facets: Facets) -> str:
    return json.dumps({name: list(phrases) for name, phrases in facets.values.items()})


def _facets(written: str) -> Facets:
    values = {name: tuple(phrases) for name, phrases in json.loads(written).items()}
    if not all(isinstance(phrase, str) for phrases in values.values() for phrase in phrases):
        raise ValueError("a phrase is text")
    return Facets(values)


def _make_ready(database: Path) -> None:
    """A sound file of this format, made if need be; one process at a time."""
    with _alone(database.with_suffix(".lock")):
        if database.exists() and not _sound(database):
            _set_aside(database)
        if not database.exists():
            _create(database)
        database.chmod(0o600)


def _create(database: Path) -> None:
    """Under its name only when it is whole."""
    made = database.with_suffix(".new")
    made.unlink(missing_ok=True)
    os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(_connection(made)) as connection:
        connection.executescript(_SCHEMA)
    made.rename(database)


def _sound(database: Path) -> bool:
    try:
        with closing(_connection(database)) as connection:
            form = connection.execute("PRAGMA user_version").fetchone()
            return bool(form == (_FORMAT,) and connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.OperationalError:  # locked, no room, no right to read it: not its contents
        raise
    except sqlite3.DatabaseError:
        return False


def _set_aside(database: Path) -> None:
    """Keep it under another name: a person may want to know."""
    names = (database.with_suffix(f".damaged-{number}") for number in count(1))
    database.rename(next(name for name in names if not name.exists()))
    database.with_name(f"{database.name}-journal").unlink(missing_ok=True)


def _connection(database: Path) -> sqlite3.Connection:
    # A rollback journal, not a WAL: it is one file when nobody writes, and can be set aside as one.
    return sqlite3.connect(database, timeout=_LOCK_WAIT_S)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Errors of the file by name; the text of one of SQLite's may quote what was to be written."""
    try:
        yield
    except sqlite3.Error as error:
        raise FacetCacheNotWritable(folder, getattr(error, "sqlite_errorname", type(error).__name__)) from None
    except OSError as error:
        raise FacetCacheNotWritable(folder, error.strerror or type(error).__name__) from None


class FacetCacheNotWritable(EnvironmentProblem):
    """The project home cannot keep facets."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"Facets cannot be kept in {folder}: {reason}.",
            "Make room and check that the folder is yours; everything in it may be deleted, it is only found again.",
            {"folder": str(folder), "reason": reason},
        )
