"""Cohort of each unit of a new version: the one that the account knows, or the newest.

A unit keeps the cohort in which its account first saw it (`models_db.services.cohorts` has the rule and its
proof), and a reader of a version must know it without the ledger. So it is stored beside the unit while
the version is made. The ledger is asked for some thousand marks at a time: no more of them is in memory, however many
there are.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tasks.corpus.versions import named_problems

AT_ONCE = 5000
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
            return connection.execute(query, (last, AT_ONCE)).fetchall()
