"""Keyed partition of a dataset's units into blocks (for life) and batches (for one release); cohorts (PRIVACY §3).

Where a unit goes depends on its own id, its own cohort, a key and public numbers alone - never on another unit, on
its position, or on how many units there are. That is what makes "deleting one unit changes exactly one batch"
true, and with it parallel composition over blocks and batches.

Blocks carry accounts, so their key is the dataset's and is kept. Batches carry none: each split into batches has a key
of its own, which is destroyed when the release has been drawn (docs/decisions/0131).

The cohort of a unit of a new version is the one that the account knows, or the newest: a unit keeps the cohort in which
its account first saw it (`models_db.services.cohorts` has the rule and its proof, and says why it is a unit's own). A
reader of a version must know it without the ledger, so it is stored beside the unit while the version is made. The
ledger is asked for some thousand marks at a time: no more of them is in memory, however many there are.
"""

import secrets
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tasks.corpus.keys import KEY_BYTES, keyed_hash
from tasks.corpus.versions import named_problems

NOWHERE = -1
"""The block of a unit that a partition of some blocks does not read."""


@dataclass(frozen=True)
class PartitionScheme:
    """The partition fixed when a dataset is registered; it never changes, it only gets further cohorts.

    Attributes:
        key: the dataset's secret key, 32 bytes, drawn before ingest.
        blocks: the public number of blocks, at least 1; each block has its own account. Every cohort has as many: K.
        cohorts: how many cohorts they are of; blocks (c - 1)K to cK - 1 are those of cohort c.

    Every place is the whole 256-bit keyed hash (`keys.keyed_hash` gives the encoding) modulo a public number,
    so no place is likelier than another by more than 2^-256.
    """

    key: bytes = field(repr=False)
    blocks: int
    cohorts: int = 1

    def __post_init__(self) -> None:
        _require_key(self.key)
        _require_positive("blocks", self.blocks)
        self._require_even(self.blocks)

    def _require_even(self, whole: int) -> None:
        _require_positive("cohorts", self.cohorts)
        if whole % self.cohorts:
            raise ValueError(f"{self.cohorts} cohorts cannot have the same number of {whole} blocks")

    def block_of(self, unit: str, cohort: int = 1) -> int:
        """Return the unit's block: (cohort - 1)K + HMAC-SHA256(key, "block", unit) mod K; `NOWHERE` of a later cohort.

        >>> PartitionScheme(b"k" * 32, blocks=4).block_of("patient 17")
        0
        """
        return self._dealt(unit, cohort, self.blocks)

    def reads(self, unit: str, cohort: int = 1) -> bool:
        """Return whether the unit is in any of the blocks; of a whole partition every unit of its cohorts is."""
        return 1 <= cohort <= self.cohorts

    def _dealt(self, unit: str, cohort: int, whole: int) -> int:
        if not 1 <= cohort <= self.cohorts:
            return NOWHERE
        per_cohort = whole // self.cohorts
        return (cohort - 1) * per_cohort + int.from_bytes(keyed_hash(self.key, "block", unit), "big") % per_cohort

    def row_order(self, unit: str) -> bytes:
        """Rows of a batch are sorted by this: HMAC-SHA256(key, "row", unit), 32 bytes."""
        return keyed_hash(self.key, "row", unit)

    def document_order(self, unit: str, text: str) -> bytes:
        """Documents of a unit are joined in this order: HMAC-SHA256(key, "document", unit, text), 32 bytes.

        Equal texts tie, and then their order makes no difference.
        """
        return keyed_hash(self.key, "document", unit, text)


@dataclass(frozen=True)
class SomeBlocks(PartitionScheme):
    """Partition of a subset of a dataset's blocks, numbered from 0, for releases that read only these.

    Whether a unit is in one of them depends on its own id, the key and public numbers alone, as before. A unit of any
    other block is in none: it has no row, no batch and no part in a count.

    Attributes:
        blocks: how many they are.
        whole: how many the dataset has.
        read: their numbers in the dataset, in ascending order.
    """

    whole: int = 1
    read: tuple[int, ...] = (0,)

    def _require_even(self, whole: int) -> None:
        super()._require_even(self.whole)

    @classmethod
    def of(cls, scheme: PartitionScheme, read: Sequence[int]) -> "SomeBlocks":
        """Return the blocks `read` of a dataset's partition.

        Raises:
            ValueError: they are none, or not of that partition in ascending order.
        """
        numbers = tuple(read)
        if not numbers or list(numbers) != sorted(set(numbers) & set(range(scheme.blocks))):
            raise ValueError(f"{numbers} are not blocks of {scheme.blocks}")
        return cls(scheme.key, len(numbers), scheme.cohorts, scheme.blocks, numbers)

    def block_of(self, unit: str, cohort: int = 1) -> int:
        """Return the place of the unit's block among those that are read; `NOWHERE` for every other."""
        number = self._dealt(unit, cohort, self.whole)
        place = bisect_left(self.read, number)
        return place if place < len(self.read) and self.read[place] == number else NOWHERE

    def reads(self, unit: str, cohort: int = 1) -> bool:
        """Return whether the unit is in one of them."""
        return self.block_of(unit, cohort) != NOWHERE


@dataclass(frozen=True)
class BatchSplit:
    """The split of every block into batches for one release, and all else that is drawn from a key for it.

    Attributes:
        key: secret, 32 bytes, drawn for this split alone; the journal keeps it until the release has been drawn.
        name: the digest of the request and the attempt that began, which no other split of a ledger has: equal keys of
            two copies of a ledger make equal splits only of the same attempt.
    """

    key: bytes = field(repr=False)
    name: str

    def __post_init__(self) -> None:
        _require_key(self.key)

    @staticmethod
    def new_key() -> bytes:
        """Return 32 bytes of the operating system."""
        return secrets.token_bytes(KEY_BYTES)

    def batch_of(self, unit: str, batches: int) -> int:
        """Return the unit's batch within its block: HMAC-SHA256(key, "batch", name, unit) mod `batches`.

        Args:
            unit: a normalised unit id.
            batches: the public number of batches in the block, at least 1.
        """
        _require_positive("batches", batches)
        return int.from_bytes(self.keyed_hash("batch", unit), "big") % batches

    def labels_of(self, unit: str, carried: Iterable[str], most: int = 1) -> tuple[str, ...]:
        """Return the `most` labels of a unit to read, least by HMAC-SHA256(key, "label", name, unit, label).

        Each of them is as likely as any other, however many documents carry it. It depends on this unit's id and
        labels alone, so what another unit carries cannot move it (PRIVACY §3). `most` is the contribution bound.

        Args:
            carried: the labels of the declared set that its documents carry; without any, it is in no batch.
            most: the public number of labels that one unit may be read under, at least 1.
        """
        _require_positive("the contribution bound", most)
        ranked = ((self.keyed_hash("label", unit, label), label) for label in set(carried))
        return tuple(label for _, label in sorted(ranked)[:most])

    def keyed_hash(self, purpose: str, *parts: str) -> bytes:
        """Return HMAC-SHA256(key, purpose, name, parts), 32 bytes; each purpose has messages of its own."""
        return keyed_hash(self.key, purpose, self.name, *parts)


def _require_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a partition key has {KEY_BYTES} bytes, not {len(key)}")


def _require_positive(name: str, number: int) -> None:
    if number < 1:
        raise ValueError(f"{name} must be at least 1, not {number}")


MARKS_AT_ONCE = 5000
"""Units that are asked for in one question."""

CohortLookup: TypeAlias = Callable[[Sequence[bytes]], Mapping[bytes, int]]
"""The cohorts of those marks that the account knows."""


@dataclass(frozen=True)
class Cohorts:
    """Assignment of units to cohorts.

    Attributes:
        newest: the cohort of every unit that the account does not know.
        find_cohorts: asks the ledger about some marks.
    """

    newest: int
    find_cohorts: CohortLookup

    def assign(self, connection: sqlite3.Connection) -> None:
        """Write the cohort of every unit into a store file that is being made; its transaction is open.

        Raises:
            StoreNotWritable, and whatever `cohorts_by_mark` raises.
        """
        last = 0
        while units := self._read_units(connection, last):
            cohorts_by_mark = self.find_cohorts([mark for _, mark in units])
            with named_problems():
                connection.executemany(
                    "UPDATE units SET cohort = ? WHERE number = ?",
                    [(cohorts_by_mark.get(mark, self.newest), number) for number, mark in units],
                )
            last = units[-1][0]

    @staticmethod
    def _read_units(connection: sqlite3.Connection, last: int) -> list[tuple[int, bytes]]:
        query = "SELECT number, mark FROM units WHERE number > ? ORDER BY number LIMIT ?"
        with named_problems():
            return connection.execute(query, (last, MARKS_AT_ONCE)).fetchall()
