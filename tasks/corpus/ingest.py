"""Ingestion of a source into the project home, all or nothing.

The version is written into a temporary folder, made durable, renamed into place and only then recorded. An
error or Ctrl-C leaves nothing; a kill leaves a folder that `versions.sweep_incoming` (before the rename) or
`versions.sweep_unrecorded` (after it) removes.
"""

import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from models_db.sessions.database import OutcomeUnknown
from tasks.common.progress import Progress
from tasks.corpus.keys import ManifestMark, mark_of, source_mark
from tasks.corpus.partition import Cohorts
from tasks.corpus.readers.documents import DUPLICATE_DOCUMENT, BadRecord, SourceDocument
from tasks.corpus.readers.readers import read_documents
from tasks.corpus.readers.sources import Shard, Source, file_repeated, source_changed, source_digest, source_state
from tasks.corpus.readers.text_form import AS_FOUND, TextForm, describe_forms
from tasks.corpus.store import DATABASE, SCHEMA
from tasks.corpus.unit_notes import UnitNotes
from tasks.corpus.units import LabelFields, fields_of_label, random_unit
from tasks.corpus.versions import incoming, named_problems, put_in_place, remove_version, sync

_DOCUMENTS_PER_REPORT = 1000

# No journal, because an interrupted file is thrown away; 64 MiB of cache bound memory, whatever the size.
_WRITING = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;"
_COUNTS = "SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM units)"


@dataclass(frozen=True)
class IngestedVersion:
    """Facts of a new version that the ledger records. The counts and marks are private (PRIVACY §7).

    Attributes:
        uid: random, 32 hexadecimal digits; says nothing about the content.
        documents: how many there are.
        units: how many privacy units they belong to.
        source_mark: keyed mark of the source's bytes, 64 hexadecimal digits.
        manifest_mark: keyed mark of the ordered content, 64 hexadecimal digits.
        left_out: how many documents belong to erased units, and are not in it.
        read_as: the sentence on encodings and delimiters that were found; recorded nowhere.
    """

    uid: str
    documents: int = field(repr=False)
    units: int = field(repr=False)
    source_mark: str = field(repr=False)
    manifest_mark: str = field(repr=False)
    left_out: int = field(default=0, repr=False)
    read_as: str | None = field(default=None, repr=False)


def ingest(
    home: ProjectHome,
    source: Source,
    unit_field: str | None,
    overlap_key: bytes,
    *,
    text_field: str = "text",
    id_field: str = "id",
    label_field: LabelFields = None,
    form: TextForm = AS_FOUND,
    cohorts: Cohorts | None = None,
    erased: frozenset[str] = frozenset(),
    progress: Progress = lambda done, total: None,
    record: Callable[[IngestedVersion], None] = lambda version: None,
    allowed_units: Collection[str] = (),
    notes: UnitNotes | None = None,
) -> IngestedVersion:
    """Copy a source into the home as a new dataset version.

    Without a unit field every document becomes a unit with a fresh random id. Ingesting the same people again
    then gives them other ids and so other blocks, which is why a dataset without a unit field may be
    ingested again only if it has one block; that is for the caller to refuse.

    Args:
        home: the project home.
        source: a file or folder, here or in a store, see `readers.read_documents`.
        unit_field: the field with the privacy unit's id, or None.
        overlap_key: the home's overlap key; marks are made with it.
        text_field: the field with the text.
        id_field: the field with the document's id, which may be absent.
        label_field: the field with the document's label, or several; None keeps no labels.
        form: the encoding and the delimiter of the source, where they are named.
        cohorts: what says of which cohort each unit is; None if there is one cohort only.
        erased: keyed marks of units, in hexadecimal digits, whose records are left out.
        progress: called at the start, every thousand documents, and at the end.
        record: called when the version is in place, to enter it into the ledger. If it refuses (any
            AlmonerError but OutcomeUnknown) the version is removed again. After any other failure of it the
            version stays, since only the ledger knows whether it was recorded: `versions.sweep_unrecorded` asks.
        allowed_units: ids of units that are taken although they spell a missing value.
        notes: tells on the terminal what looks wrong about the units.

    Raises:
        whatever `readers.read_documents` raises; DuplicateDocument, FileRepeated, SourceChanged, StoreNotWritable,
        HomeMissing; whatever `record` raises.
    """
    home.require()
    forms: set[TextForm] = set()
    opened = read_documents(
        source, unit_field, text_field, id_field, label_field, allowed_units=allowed_units, form=form, forms=forms
    )
    before = source_state(source)
    manifest = ManifestMark(overlap_key)
    with (
        closing(opened) as documents,
        incoming(home) as folder,
        _new_store(folder / DATABASE, fields_of_label(label_field)) as connection,
    ):
        kept_units = _Kept(erased, overlap_key)
        digest = source_digest(source)
        mark = source_mark(overlap_key, digest.whole).hex()
        found = _once(documents, digest.repeated) if digest.repeated else documents
        for document in kept_units.of(_watched(found, progress, before.size)):
            manifest.add(document.unit, document.document_id, document.text)
            _insert(connection, document, overlap_key)
            if notes is not None:
                notes.see(document)
        if cohorts is not None:
            cohorts.assign(connection)
        if notes is not None:
            notes.end(connection, overlap_key)
        counts = _commit(connection, folder / DATABASE)
        if source_state(source) != before:
            raise source_changed(source)
        version = IngestedVersion(
            secrets.token_hex(16), *counts, mark, manifest.hexdigest(), kept_units.left_out, describe_forms(forms)
        )
        put_in_place(home, folder, version.uid)
        try:
            record(version)
        except OutcomeUnknown:
            raise
        except AlmonerError:
            remove_version(home, version.uid)
            raise
    return version


@dataclass
class _Kept:
    """Leaves out the documents of erased units, and counts them."""

    erased: frozenset[str]
    overlap_key: bytes = field(repr=False)
    left_out: int = 0

    def of(self, documents: Iterator[SourceDocument]) -> Iterator[SourceDocument]:
        """Yield the documents of units that were not erased."""
        for document in documents:
            unit = document.unit
            if self.erased and unit is not None and mark_of(self.overlap_key, unit).hex() in self.erased:
                self.left_out += 1
            else:
                yield document


def _once(documents: Iterator[SourceDocument], repeated: Mapping[int, int]) -> Iterator[SourceDocument]:
    """Yield the same documents.

    Raises:
        FileRepeated: one comes from a table that repeats an earlier one.
    """
    for document in documents:
        if isinstance(table := document.source, Shard) and table.number in repeated:
            raise file_repeated(table.folder, table.number, repeated[table.number])
        yield document


def _watched(documents: Iterator[SourceDocument], progress: Progress, total: int) -> Iterator[SourceDocument]:
    """Yield the same documents, reporting as they pass."""
    progress(0, total)
    for count, document in enumerate(documents, 1):
        yield document
        if count % _DOCUMENTS_PER_REPORT == 0:
            progress(document.offset, total)
    progress(total, total)


@contextmanager
def _new_store(database: Path, label_fields: tuple[str, ...]) -> Iterator[sqlite3.Connection]:
    """Create a store file (0600) and open its transaction."""
    with named_problems():
        os.close(os.open(database, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(database, isolation_level=None)
    with closing(connection):
        with named_problems():
            connection.executescript(_WRITING + SCHEMA + "BEGIN;")
            connection.executemany("INSERT INTO labelling (field) VALUES (?)", [(name,) for name in label_fields])
        yield connection


def _commit(connection: sqlite3.Connection, database: Path) -> tuple[int, int]:
    """Close a store whose file is on disk when this returns: (documents, units)."""
    with named_problems():
        documents, units = connection.execute(_COUNTS).fetchone()
        connection.execute("COMMIT")
        connection.close()
        sync(database)
    return documents, units


def _insert(connection: sqlite3.Connection, document: SourceDocument, overlap_key: bytes) -> None:
    unit = document.unit if document.unit is not None else random_unit()
    with named_problems():
        row = connection.execute("SELECT number FROM units WHERE unit = ?", (unit,)).fetchone()
        number = row[0] if row else _insert_unit(connection, unit, mark_of(overlap_key, unit))
        try:
            connection.execute(
                "INSERT INTO documents (unit, document_id, text, label) VALUES (?, ?, ?, ?)",
                (number, document.document_id, document.text, document.label),
            )
        except sqlite3.IntegrityError:
            raise BadRecord(DUPLICATE_DOCUMENT, document.source, document.position) from None


def _insert_unit(connection: sqlite3.Connection, unit: str, mark: bytes) -> int | None:
    return connection.execute("INSERT INTO units (unit, mark) VALUES (?, ?)", (unit, mark)).lastrowid
