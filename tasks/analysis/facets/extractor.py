"""Facet extractors: private preparation of each unit before any release, by rules or a model, and their cache.

Extraction costs nothing because each unit's facets are a function of that unit's text and of public values alone, bit
for bit: later mechanisms bound the contribution of a unit, and count it once for any facets. A failure on one unit
gives it empty facets and affects no other unit (PRIVACY §3).

Cache of extracted facets: one SQLite file in the private part of a project home. The key of an entry is a keyed hash of
the extractor's name, the unit and the text, under the dataset's key: no plain hash of private data exists
(docs/decisions/0004), and an entry reveals nothing without the key. The value is the facets themselves, as private as
the text; the file has the permissions of the corpus.

The key includes the unit, although facets follow from the text. An entry outlives the process that wrote it, and later
another machine or library may round differently and extract other facets from that text. If all units with the same
text shared an entry, the presence of one unit would decide the facets of all later ones.

Entries are written a batch at a time, so a run that is killed loses one batch. Two processes may write the same entry,
and either may be kept. A damaged file is set aside and replaced: nothing is lost but time.
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
from typing import TYPE_CHECKING, Protocol

from models_db.errors import EnvironmentProblem
from tasks.analysis.facets.facet_settings import FacetSettings
from tasks.analysis.facets.rule_based import RuleBasedExtractor
from tasks.common.progress import Progress
from tasks.corpus.keys import keyed_hash
from tasks.values.results import Facets

if TYPE_CHECKING:
    from tasks.inference.engine.engine import Engine

MODEL = "model"


class Extractor(Protocol):
    """Function from texts to facets, each a function of its own text."""

    @property
    def name(self) -> str:
        """Everything that facets depend on except the text: settings, model, wording, version. Public."""

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        """Return the facets of each text, in order; never fails because of a text."""


def extractor_for(
    settings: FacetSettings, engine: "Engine | None" = None, progress: Progress = lambda done, of: None
) -> Extractor:
    """Return the extractor that the settings name.

    Args:
        engine: the engine of the release's model; only `model` needs one.

    Raises:
        ValueError: `model` without an engine.
        TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall: the model cannot write such facets.
        ContextTooLong, NoChatTemplate: the model cannot take the prompt.
    """
    if settings.extractor == MODEL:
        from tasks.analysis.facets.model_based import (
            ModelExtractor,
        )  # imports torch, which `rake` does not need

        if engine is None:
            raise ValueError("facets by the model need an engine")
        return ModelExtractor.of(settings, engine, progress)
    return RuleBasedExtractor(settings, progress)


DATABASE = "facets.sqlite"
BATCH = 256
"""Texts that are extracted and then stored together."""

_FORMAT = 1
_SCHEMA = f"""
CREATE TABLE facets (mark BLOB PRIMARY KEY, found TEXT NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {_FORMAT};
"""
_KEYS_PER_QUERY = 500
_LOCK_WAIT_S = 60.0


def cached(
    extractor: Extractor,
    folder: Path,
    key: bytes,
    progress: Progress = lambda done, of: None,
    batch: int = BATCH,
) -> Extractor:
    """Wrap `extractor` so that it extracts only texts that the file in `folder` lacks.

    Args:
        folder: private; created if missing.
        key: the dataset's key.
        progress: called after each batch with the number of finished texts and of all texts.

    Raises:
        FacetCacheNotWritable: now or at a later call, the file cannot be read or written.
    """
    with _errors_by_name(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        _make_ready(folder / DATABASE)
    return CachedExtractor(extractor, folder / DATABASE, key, progress, batch)


def forget(folder: Path) -> None:
    """Replace the file in `folder` by an empty one, and remove all files set aside; waits for writers.

    The unit of an entry cannot be seen without its text, so all entries are removed: only time is lost.

    Raises:
        FacetCacheNotWritable: the file cannot be replaced.
    """
    if not folder.is_dir():
        return
    database = folder / DATABASE
    with _errors_by_name(folder), _alone(database.with_suffix(".lock")):
        if database.exists():
            with closing(_connection(database)) as connection:
                with suppress(sqlite3.DatabaseError):  # a damaged file has no writers
                    connection.execute("BEGIN EXCLUSIVE")
                _create(database)
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name not in (DATABASE, database.with_suffix(".lock").name):
                path.unlink()


@dataclass(frozen=True)
class CachedExtractor:
    """An `Extractor` with a cache; `cached` creates it."""

    extractor: Extractor
    database: Path
    key: bytes
    progress: Progress
    batch: int

    def __repr__(self) -> str:
        """Return the name alone, without the key."""
        return f"CachedExtractor({self.name})"

    @property
    def name(self) -> str:
        """The name of the wrapped extractor."""
        return self.extractor.name

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        """Return the facets of each text, for texts without a unit."""
        return self.of_units([""] * len(texts), texts)

    def of_units(self, units: Sequence[str], texts: Sequence[str]) -> list[Facets]:
        """Return the facets of each text; a unit never gets an entry of another unit.

        Args:
            units: the id of each text's unit.
        """
        marks = [self._mark(unit, text) for unit, text in zip(units, texts, strict=True)]
        facets_by_mark = self._read_cached(marks)
        missing = list(
            {mark: text for mark, text in zip(marks, texts, strict=True) if mark not in facets_by_mark}.items()
        )
        done = len(texts) - len(missing)
        self.progress(done, len(texts))
        for first in range(0, len(missing), self.batch):
            batch = missing[first : first + self.batch]
            extracted = dict(zip((mark for mark, _ in batch), self.extractor([text for _, text in batch]), strict=True))
            self._keep(extracted)
            facets_by_mark.update(extracted)
            self.progress(done + first + len(batch), len(texts))
        return [facets_by_mark[mark] for mark in marks]

    def _read_cached(self, marks: Sequence[bytes]) -> dict[bytes, Facets]:
        with _errors_by_name(self.database.parent), closing(_connection(self.database)) as connection:
            return dict(_read(connection, marks))

    def _keep(self, extracted: Mapping[bytes, Facets]) -> None:
        rows = [(mark, _to_json(facets)) for mark, facets in extracted.items()]
        with _errors_by_name(self.database.parent), closing(_connection(self.database)) as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO facets VALUES (?, ?)", rows)

    def _mark(self, unit: str, text: str) -> bytes:
        """Return the key of an entry, 32 bytes, also for a text that has no UTF-8 form."""
        return keyed_hash(self.key, "facets", self.name, unit, text.encode("utf-8", "surrogatepass"))


def _read(connection: sqlite3.Connection, marks: Sequence[bytes]) -> Iterator[tuple[bytes, Facets]]:
    """Read the existing entries; an unreadable entry counts as missing."""
    for first in range(0, len(marks), _KEYS_PER_QUERY):
        batch = marks[first : first + _KEYS_PER_QUERY]
        placeholders = ",".join("?" * len(batch))
        rows: Iterable[tuple[bytes, str]] = connection.execute(
            f"SELECT mark, found FROM facets WHERE mark IN ({placeholders})",  # noqa: S608 - only question marks
            batch,
        )
        for mark, stored in rows:
            with suppress(ValueError, AttributeError, TypeError):
                yield mark, _facets(stored)


def _to_json(facets: Facets) -> str:
    return json.dumps({name: list(phrases) for name, phrases in facets.values.items()})


def _facets(stored: str) -> Facets:
    values = {name: tuple(phrases) for name, phrases in json.loads(stored).items()}
    if not all(isinstance(phrase, str) for phrases in values.values() for phrase in phrases):
        raise ValueError("a phrase is text")
    return Facets(values)


def _make_ready(database: Path) -> None:
    """Ensure that a sound file of this format exists; one process at a time."""
    with _alone(database.with_suffix(".lock")):
        if database.exists() and not _is_intact(database):
            _set_aside(database)
        if not database.exists():
            _create(database)
        database.chmod(0o600)


def _create(database: Path) -> None:
    """Create an empty file; it gets its name only when it is complete."""
    draft = database.with_suffix(".new")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(_connection(draft)) as connection:
        connection.executescript(_SCHEMA)
    draft.rename(database)


def _is_intact(database: Path) -> bool:
    try:
        with closing(_connection(database)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()
            return bool(version == (_FORMAT,) and connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.OperationalError:  # locked, no room, no right to read it: not its contents
        raise
    except sqlite3.DatabaseError:
        return False


def _set_aside(database: Path) -> None:
    """Rename a damaged file, so that a person can look at it."""
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
def _errors_by_name(folder: Path) -> Iterator[None]:
    """Raise errors of the file by name alone; the text of an SQLite error may quote private values."""
    try:
        yield
    except sqlite3.Error as error:
        raise _facet_cache_not_writable(folder, getattr(error, "sqlite_errorname", type(error).__name__)) from None
    except OSError as error:
        raise _facet_cache_not_writable(folder, error.strerror or type(error).__name__) from None


def _facet_cache_not_writable(folder: Path, reason: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"Facets cannot be kept in {folder}: {reason}.",
        "Make room and check that the folder is yours. Its content may be deleted; it is then extracted again.",
        {"folder": str(folder), "reason": reason},
        code="FacetCacheNotWritable",
    )
