"""Store of a dataset version: one SQLite file, written once by `ingest` and read here, whole or shard by shard.

Everything that leaves this module is private. It goes into mechanisms, into the ledger's overlap check, or
into internal metrics after the publish decision (PRIVACY §7) - never into a log, a gate or a bundle.

Shards are a fixed public number of parts of a corpus, which a pass over it reads one after the other. The shard of a
unit is the first byte of the unit's mark, which is a keyed hash of its id (`tasks.corpus.keys.mark_of`), so it depends
on that id and on the home's key alone. There are as many shards however many units there are. How many units a shard
has, and which ones, is private, like everything else about the store. A shard is a way to read, and nothing is charged
by it: blocks and batches (`tasks.corpus.partition`) are what they would be without.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from models_db.errors import EnvironmentProblem, Refused
from models_db.home import ProjectHome
from tasks.corpus.keys import keyed_hash
from tasks.corpus.partition import BatchSplit, PartitionScheme, SomeBlocks
from tasks.corpus.versions import version_folder

DATABASE = "documents.sqlite"
FORMAT = 1
"""PRAGMA user_version of the file; a reader that meets another one refuses."""

SHARDS = 256
"""Parts of every version that a pass reads one after the other: public, and the same for all. The shard of a unit is
the first byte of its mark, a keyed hash of its id alone. Nothing is charged by shard (`tasks.corpus.store`)."""

SCHEMA = f"""
CREATE TABLE units (
    number INTEGER PRIMARY KEY,
    unit   TEXT NOT NULL UNIQUE,           -- normalised id, or random where the dataset has no unit field
    mark   BLOB NOT NULL,                  -- marks.mark_of(overlap key, unit)
    cohort INTEGER NOT NULL DEFAULT 1      -- in which the account first saw it (`tasks.corpus.partition`)
);
CREATE TABLE documents (
    number      INTEGER PRIMARY KEY,       -- order of the source
    unit        INTEGER NOT NULL REFERENCES units,
    document_id TEXT UNIQUE,               -- NULL where the record has none
    text        TEXT NOT NULL,
    label       TEXT                       -- normalised; NULL where the record has none
);
CREATE INDEX documents_by_unit ON documents (unit, label);
CREATE INDEX units_by_shard ON units (substr(mark, 1, 1));
CREATE TABLE labelling (field TEXT NOT NULL);  -- a row for each field that labels came from, in order; public
PRAGMA user_version = {FORMAT};
"""

_CARRIED = """
    SELECT units.number, units.unit, units.cohort, documents.label
    FROM units CROSS JOIN documents ON documents.unit = units.number ORDER BY units.number
"""
_EVERY = "SELECT number, unit, cohort, NULL FROM units"
_OF_SHARD = "SELECT number, unit, cohort, NULL FROM units WHERE substr(mark, 1, 1) = ? ORDER BY number"
_CARRIED_OF_SHARD = """
    SELECT units.number, units.unit, units.cohort, documents.label
    FROM units CROSS JOIN documents ON documents.unit = units.number
    WHERE substr(units.mark, 1, 1) = ? ORDER BY units.number
"""
_TEXTS_OF_SHARD = """
    SELECT text FROM units CROSS JOIN documents ON documents.unit = units.number
    WHERE substr(units.mark, 1, 1) = ? ORDER BY units.number
"""
_SEPARATOR = "\n\n"
_LOCK_WAIT_S = 5.0

Place: TypeAlias = tuple[int, int, int]
"""(block, number of the label, batch within the block); without labels the number is 0."""

UnitOrder: TypeAlias = tuple[int, int, bytes]
"""Order of a unit; see `PlacedUnit`."""


@dataclass(frozen=True, slots=True)
class UnitDocuments:
    """One row of a batch: everything of one unit. Private, and absent from its own repr.

    Attributes:
        unit: the unit's id.
        text: its documents in keyed order, joined by an empty line.
    """

    unit: str = field(repr=False)
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PlacedUnit:
    """A unit as a pass by shard reads it. Private, and absent from its own repr.

    Attributes:
        order: sorts the units of a pass, whatever order they are read in: the place of the unit's block among those
            that are read, the number of its label (0 without labels), its place among rows (`row_order`).
        unit: its documents.
    """

    order: UnitOrder = field(repr=False)
    unit: UnitDocuments = field(repr=False)

    @property
    def label(self) -> int:
        """The number of the label that the unit is read under; 0 without labels."""
        return self.order[1]


@dataclass(frozen=True)
class Corpus:
    """One dataset version, open for reading; holds no connection, so it may be shared by threads."""

    uid: str
    database: Path

    @property
    def has_labels(self) -> bool:
        """Whether documents may have labels; public.

        Raises:
            StoreBusy, StoreUnreadable.
        """
        return bool(self.label_fields())

    def unit_count(self) -> int:
        """Return how many units there are. Private: for mechanisms and internal metrics, never a denominator."""
        with _reading(self.database) as connection:
            (count,) = connection.execute("SELECT count(*) FROM units").fetchone()
            return int(count)

    def texts(self, label: str | None = None) -> Iterator[str]:
        """Yield every document's text in the order of the source; for internal metrics (PRIVACY §7).

        Args:
            label: only documents that carry it.

        Raises:
            LabelsNotKept: a label is asked of a version that was ingested without.
        """
        if label is not None:
            self.require_labels()
        with _reading(self.database) as connection:
            every = "SELECT text FROM documents ORDER BY number"
            some = "SELECT text FROM documents WHERE label = ? ORDER BY number"
            for (text,) in connection.execute(every) if label is None else connection.execute(some, (label,)):
                yield text

    def labelled(self) -> Iterator[tuple[str, str]]:
        """(text, label) of every document that has a label, in the order of the source; for internal metrics.

        Raises:
            LabelsNotKept: the version was ingested without.
        """
        self.require_labels()
        with _reading(self.database) as connection:
            yield from connection.execute("SELECT text, label FROM documents WHERE label IS NOT NULL ORDER BY number")

    def label_fields(self) -> tuple[str, ...]:
        """Return the source's fields of the labels; none without labels. They are public, because they were declared.

        Whether a record had one, which there are and how many, is private.

        Raises:
            StoreBusy, StoreUnreadable.
        """
        with _reading(self.database) as connection:
            rows = connection.execute("SELECT field FROM labelling ORDER BY rowid")
            return tuple(str(name) for (name,) in rows)

    def require_labels(self) -> None:
        """Check that labels were kept.

        Raises:
            LabelsNotKept, StoreBusy, StoreUnreadable.
        """
        if not self.has_labels:
            raise Refused(
                "The request declares labels or groups, but the dataset's version was ingested without any.",
                "Ingest it again with --label-field FIELD, or ask without them.",
                code="LabelsNotKept",
            )

    def batches(
        self,
        scheme: PartitionScheme,
        split: BatchSplit,
        batches_per_block: int,
        places: Collection[Place],
        labels: Sequence[str] = (),
        most: int = 1,
    ) -> dict[Place, list[UnitDocuments]]:
        """Return the rows of every wanted batch, one per unit, in keyed order; an empty batch is an empty list.

        Which rows a batch has, and in which order, depends on the units in it alone. With labels, a unit is read under
        at most `most` of those that its documents carry (`BatchSplit.labels_of`), with a row for each: its
        documents with that label. A unit with none of them is in no batch. Only wanted texts are read, but every unit
        id is hashed (some microseconds each): ask for all batches of a step at once.

        Args:
            scheme: the dataset's partition.
            split: of every block into batches; may differ between releases.
            batches_per_block: the public number of batches in every block, and under every label of it.
            places: the batches to read, which must have been armed (PRIVACY §6).
            labels: the public label set, normalised; empty without labels.
            most: the public contribution bound: the most rows of a unit. Each unit is charged that many times for one
                batch.

        Raises:
            ValueError: a wanted batch outside the partition.
            LabelsNotKept: labels are asked of a version that was ingested without.
            StoreBusy, StoreUnreadable.
        """
        if labels:
            self.require_labels()
        rows: dict[Place, list[tuple[bytes, UnitDocuments]]] = {place: [] for place in sorted(places)}
        _require_inside(rows, scheme.blocks, max(len(labels), 1), batches_per_block)
        number_of = {label: number for number, label in enumerate(labels)}
        blocks = {block for block, _, _ in rows}
        with _reading(self.database) as connection:
            for number, unit, cohort, carried in _units(connection, number_of):
                if (block := scheme.block_of(unit, cohort)) not in blocks:
                    continue
                order = scheme.row_order(unit)
                read_under = [number_of[label] for label in split.labels_of(unit, carried, most)]
                for label in read_under if labels else [0]:
                    batch = split.batch_of(unit, batches_per_block)
                    if (place := (block, label, batch)) in rows:  # read at once, in the order of the store
                        row = _row(connection, scheme, number, unit, labels[label] if labels else None)
                        rows[place].append((order, row))
        return {place: [row for _, row in sorted(rows.pop(place), key=itemgetter(0))] for place in list(rows)}

    def each(
        self, scheme: PartitionScheme, split: BatchSplit, labels: Sequence[str] = ()
    ) -> Iterator[tuple[int, UnitDocuments]]:
        """Yield every unit once, one at a time, with the number of the label that it is read under; 0 without labels.

        With labels, a unit is read as in `batches`: under one of those that its documents carry, or not at all. Units
        come in the order of the source, so that a caller must not depend on the order; no more than one of
        them is in memory.

        Raises:
            LabelsNotKept: labels are asked of a version that was ingested without.
            StoreBusy, StoreUnreadable.
        """
        if labels:
            self.require_labels()
        number_of = {label: number for number, label in enumerate(labels)}
        with _reading(self.database) as connection:
            for number, unit, cohort, carried in _units(connection, number_of):
                if not scheme.reads(unit, cohort):
                    continue
                under = split.labels_of(unit, carried)
                row = _row(connection, scheme, number, unit, under[0] if labels else None)
                yield number_of[under[0]] if labels else 0, row

    def each_shard(
        self, scheme: PartitionScheme, split: BatchSplit, blocks: Sequence[int], labels: Sequence[str] = ()
    ) -> Iterator[list[PlacedUnit]]:
        """Yield the units that each of the `SHARDS` shards has in some blocks, of one shard after the other.

        Every unit of the blocks comes once, under one label, as in `each`; a shard without any is an empty list. No
        more than one shard is in memory. How many units a shard has is private.

        Args:
            blocks: the numbers of the blocks, each once; no text of another block is read.

        Raises:
            ValueError: a block outside the partition.
            LabelsNotKept: labels are asked of a version that was ingested without.
            StoreBusy, StoreUnreadable.
        """
        if labels:
            self.require_labels()
        _require_inside([(block, 0, 0) for block in blocks], scheme.blocks, 1, 1)
        number_of = {label: number for number, label in enumerate(labels)}
        place_of = {block: place for place, block in enumerate(blocks)}
        with _reading(self.database) as connection:
            for shard in range(SHARDS):
                placed = []
                for number, unit, cohort, carried in _units(connection, number_of, shard):
                    if (place := place_of.get(scheme.block_of(unit, cohort))) is None:
                        continue
                    under = split.labels_of(unit, carried)[0] if labels else None
                    order = place, number_of[under] if under is not None else 0, scheme.row_order(unit)
                    placed.append(PlacedUnit(order, _row(connection, scheme, number, unit, under)))
                yield placed

    def shard_texts(self, shard: int) -> list[str]:
        """Return the text of every document of a shard's units, from 0; for internal metrics, as `texts`.

        Raises:
            StoreBusy, StoreUnreadable.
        """
        with _reading(self.database) as connection:
            return [text for (text,) in connection.execute(_TEXTS_OF_SHARD, (bytes([shard]),))]


@dataclass(frozen=True)
class PartOfCorpus(Corpus):
    """Part of a version in some blocks: no method of it reads a unit of another block.

    Attributes:
        part: those blocks; the only partition that it can be read by.
    """

    part: SomeBlocks

    @classmethod
    def of(cls, corpus: Corpus, part: SomeBlocks) -> "PartOfCorpus":
        """Return the part of a version that lies in some blocks."""
        return cls(corpus.uid, corpus.database, part)

    def unit_count(self) -> int:
        """Return how many units those blocks have. Private, as `Corpus.unit_count`."""
        with _reading(self.database) as connection:
            return sum(self.part.reads(unit, cohort) for _, unit, cohort, _ in _units(connection, ()))

    def texts(self, label: str | None = None) -> Iterator[str]:
        """Refused: what reads whole versions is an internal metric, and a run has those of public data alone."""
        raise WholeCorpusRequested

    def labelled(self) -> Iterator[tuple[str, str]]:
        """Refused, as `texts`."""
        raise WholeCorpusRequested

    def batches(
        self,
        scheme: PartitionScheme,
        split: BatchSplit,
        batches_per_block: int,
        places: Collection[Place],
        labels: Sequence[str] = (),
        most: int = 1,
    ) -> dict[Place, list[UnitDocuments]]:
        """Return the same as `Corpus.batches`, of those blocks."""
        self._require(scheme)
        return super().batches(scheme, split, batches_per_block, places, labels, most)

    def each(
        self, scheme: PartitionScheme, split: BatchSplit, labels: Sequence[str] = ()
    ) -> Iterator[tuple[int, UnitDocuments]]:
        """Yield the same as `Corpus.each`, of those blocks."""
        self._require(scheme)
        return super().each(scheme, split, labels)

    def each_shard(
        self, scheme: PartitionScheme, split: BatchSplit, blocks: Sequence[int], labels: Sequence[str] = ()
    ) -> Iterator[list[PlacedUnit]]:
        """Yield the same as `Corpus.each_shard`, of those blocks."""
        self._require(scheme)
        return super().each_shard(scheme, split, blocks, labels)

    def shard_texts(self, shard: int) -> list[str]:
        """Refused, as `texts`."""
        raise WholeCorpusRequested

    def _require(self, scheme: PartitionScheme) -> None:
        if scheme != self.part:
            raise WholeCorpusRequested


class WholeCorpusRequested(ValueError):
    """Access to more of a version than the blocks that a release is charged for."""


def open_corpus(home: ProjectHome, uid: str) -> Corpus:
    """Return the version `uid` of the home, for reading.

    Raises:
        VersionMissing: the home holds no such version.
        StoreBusy, StoreUnreadable: its file is locked, damaged or of another format.
    """
    database = version_folder(home, uid) / DATABASE
    with _reading(database) as connection:
        if connection.execute("PRAGMA user_version").fetchone() != (FORMAT,):
            raise store_unreadable()
    return Corpus(uid, database)


def iter_marks(home: ProjectHome, uid: str) -> Iterator[tuple[bytes, int]]:
    """Yield every unit's mark (32 bytes) and cohort, in no meaningful order. Private: for the ledger alone.

    Raises:
        VersionMissing, StoreBusy, StoreUnreadable: as `open_corpus`.
    """
    with _reading(open_corpus(home, uid).database) as connection:
        yield from connection.execute("SELECT mark, cohort FROM units")


def iter_content(home: ProjectHome, uid: str) -> Iterator[tuple[str, str | None, str]]:
    """Yield (unit, document id, text) of every document in the order of the source, as for a manifest mark.

    Raises:
        VersionMissing, StoreBusy, StoreUnreadable: as `open_corpus`.
    """
    with _reading(open_corpus(home, uid).database) as connection:
        yield from connection.execute(
            "SELECT units.unit, documents.document_id, documents.text FROM documents"
            " JOIN units ON units.number = documents.unit ORDER BY documents.number"
        )


def _units(
    connection: sqlite3.Connection, labels: Collection[str], shard: int | None = None
) -> Iterator[tuple[int, str, int, list[str]]]:
    """Yield every unit that may have a row: number, id, cohort, and those of `labels` that its documents carry.

    Without labels that is every unit; with labels, those that carry at least one of them.

    Args:
        shard: only units of this shard.
    """
    of_shard: tuple[bytes, ...] = () if shard is None else (bytes([shard]),)
    if not labels:
        for number, unit, of, _ in connection.execute(_OF_SHARD if of_shard else _EVERY, of_shard):
            yield number, unit, of, []
        return
    every = connection.execute(_CARRIED_OF_SHARD if of_shard else _CARRIED, of_shard)
    for (number, unit, of), rows in groupby(every, key=itemgetter(0, 1, 2)):
        if carried := dict.fromkeys(label for *_, label in rows if label in labels):
            yield number, unit, of, list(carried)


def _row(
    connection: sqlite3.Connection, scheme: PartitionScheme, number: int, unit: str, label: str | None
) -> UnitDocuments:
    if label is None:
        cursor = connection.execute("SELECT text FROM documents WHERE unit = ?", (number,))
    else:
        cursor = connection.execute("SELECT text FROM documents WHERE unit = ? AND label = ?", (number, label))
    texts = [text for (text,) in cursor]
    if len(texts) > 1:  # one text needs no keyed order, and hashing it would read it once more
        texts.sort(key=lambda text: scheme.document_order(unit, text))
    return UnitDocuments(unit, _SEPARATOR.join(texts))


def _require_inside(places: Collection[Place], blocks: int, labels: int, batches: int) -> None:
    for block, label, batch in places:
        if not (0 <= block < blocks and 0 <= label < labels and 0 <= batch < batches):
            raise ValueError(
                f"batch {batch} of label {label} of block {block} is outside"
                f" {blocks} blocks of {labels} labels of {batches} batches"
            )


@contextmanager
def _reading(database: Path) -> Iterator[sqlite3.Connection]:
    """Open a read-only connection with named errors; SQLite's own errors may quote the text."""
    try:
        uri = f"{database.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=_LOCK_WAIT_S)) as connection:
            yield connection
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        raise (store_busy() if code == sqlite3.SQLITE_BUSY else store_unreadable()) from None


def store_busy() -> EnvironmentProblem:
    """Return the error of a stored version that another program has locked."""
    return EnvironmentProblem(
        "A stored dataset version is locked by another program.",
        "Close whatever has the file open for writing (almoner never does), then try again.",
        code="StoreBusy",
        temporary=True,
    )


def store_unreadable() -> EnvironmentProblem:
    """Return the error of a stored version that is damaged, incomplete or of another format."""
    return EnvironmentProblem(
        "A stored dataset version is damaged or was made by another version of almoner.",
        "Restore the folder `corpora` from a backup, or ingest the dataset again.",
        code="StoreUnreadable",
    )


UNITS_AT_ONCE = 4096
"""Consecutive shards are worked on together until they have so many units: a small corpus is one lot."""


@dataclass(frozen=True)
class Lot:
    """Units of consecutive shards. How many shards a lot has follows from how many units they have, which is private.

    Attributes:
        first, after: its first shard, and the first one of the next lot.
    """

    first: int = field(repr=False)
    after: int = field(repr=False)
    units: list[PlacedUnit] = field(repr=False)


def lots(shards: Iterable[list[PlacedUnit]], least: int = UNITS_AT_ONCE) -> Iterator[Lot]:
    """Yield the units of all shards, those of consecutive shards together until there are at least `least`."""
    first, units = 0, list[PlacedUnit]()
    for after, shard in enumerate(shards, 1):
        units += shard
        if len(units) >= least or after == SHARDS:
            yield Lot(first, after, units)
            first, units = after, []


@dataclass
class ShardProgress:
    """Progress of a pass over all shards, in parts of their public number; the number of lots is not visible in it.

    Attributes:
        report: called with the work done and all the work; must not show more than a coarse share (PRIVACY §1).
    """

    report: Callable[[int, int], None]
    _first: int = 0
    _after: int = SHARDS

    def enter(self, lot: Lot) -> None:
        """Count reports from now on as progress within this lot."""
        self._first, self._after = lot.first, lot.after

    def __call__(self, done: int, total: int) -> None:
        """Report progress within the current lot (without one, within the whole corpus)."""
        whole = max(total, 1)
        share = done if total else whole
        self.report(self._first * whole + (self._after - self._first) * share, SHARDS * whole)


def shard_of_text(key: bytes, text: str) -> int:
    """Return the shard of a text that is handed to workers: the first byte of its keyed hash under the dataset's key.

    It follows from this text alone, so its worker does not depend on any other text (PRIVACY §4.2 point 1).
    """
    return keyed_hash(key, "shard", text.encode("utf-8", "surrogatepass"))[0]
