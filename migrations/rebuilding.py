"""`op.rebuild_table`: change the constraints of a table on SQLite, and keep everything else of it.

Version files import no project code; they reach this through Alembic's `op`, where `env.py` registers it. SQLite cannot
change a constraint, so the table is made anew and its rows are copied. Alembic's own `batch_alter_table` does that from
what it has understood of the table: every trigger is gone without a word, and the clauses come in another order each
time. Here the table's own statement is taken, with some of its words replaced. While the table is away no trigger or
view may name it, so all of them are set aside and put back as they were, and so are the table's indexes.
"""

import re
from collections.abc import Mapping

from alembic.operations import MigrateOperation, Operations
from sqlalchemy import Connection, text

from models_db.errors import EnvironmentProblem


@Operations.register_operation("rebuild_table")
class RebuildTable(MigrateOperation):
    """A table to be made anew."""

    def __init__(self, table: str, changes: Mapping[str, str]) -> None:
        self.table = table
        self.changes = changes

    @classmethod
    def rebuild_table(cls, operations: Operations, table: str, changes: Mapping[str, str]) -> None:
        """Replace words of the table's CREATE statement; columns that it had and still has keep their values.

        Foreign keys must not be enforced meanwhile, which `migrations.upgrade` sees to. PostgreSQL changes a table in
        place: `op.alter_column` and its like.

        Raises:
            RebuildImpossible: not on SQLite, or the words are not there exactly once.
        """
        operations.invoke(cls(table, changes))


@Operations.implementation_for(RebuildTable)
def _rebuild(operations: Operations, wanted: RebuildTable) -> None:
    connection = operations.get_bind()
    if connection.dialect.name != "sqlite":
        raise RebuildImpossible(wanted.table, "only SQLite needs it")
    statement = _changed(wanted.table, "".join(_statements(connection, "table", wanted.table)), wanted.changes)
    indexes = _statements(connection, "index", wanted.table)
    triggers, views = _statements(connection, "trigger"), _statements(connection, "view")
    for kind in ("trigger", "view"):
        query = text("SELECT name FROM sqlite_master WHERE type = :kind")
        for name in connection.scalars(query, {"kind": kind}).all():
            connection.exec_driver_sql(f'DROP {kind} "{name}"')
    _replace(connection, wanted.table, statement)
    for again in (*indexes, *views, *triggers):
        connection.exec_driver_sql(again)


def _changed(table: str, statement: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        if statement.count(old) != 1:
            raise RebuildImpossible(table, f"{old!r} is there {statement.count(old)} times")
        statement = statement.replace(old, new)
    return statement


def _statements(connection: Connection, kind: str, table: str = "") -> list[str]:
    """What made the things of a kind, of one table or all; an index that belongs to a constraint has no statement."""
    query = "SELECT sql FROM sqlite_master WHERE type = :kind AND sql IS NOT NULL AND :table IN ('', tbl_name)"
    return list(connection.scalars(text(f"{query} ORDER BY rowid"), {"kind": kind, "table": table}))


def _replace(connection: Connection, table: str, statement: str) -> None:
    """The table by another statement, with the rows it had."""
    made = re.sub(rf'^CREATE TABLE "?{table}"?', f'CREATE TABLE "new_{table}"', statement, count=1)
    connection.exec_driver_sql(made)
    old, new = (_columns(connection, name) for name in (table, f"new_{table}"))
    kept = ", ".join(name for name in new if name in old)
    connection.exec_driver_sql(f'INSERT INTO "new_{table}" ({kept}) SELECT {kept} FROM "{table}"')  # noqa: S608
    connection.exec_driver_sql(f'DROP TABLE "{table}"')
    connection.exec_driver_sql(f'ALTER TABLE "new_{table}" RENAME TO "{table}"')


def _columns(connection: Connection, table: str) -> list[str]:
    return [str(row.name) for row in connection.execute(text(f'PRAGMA table_info("{table}")'))]


class RebuildImpossible(EnvironmentProblem):
    """A revision asks to rebuild a table that is not as it expects."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(
            f"Table {table} cannot be rebuilt: {reason}. Nothing was changed.",
            "This is a fault of that migration: report it, and go on with the version of almoner used so far.",
            {"table": table},
        )
