"""`op.rebuild_table`: change a table of the ledger as `op.batch_alter_table` does, and keep its triggers.

Version files import no project code; they reach this through Alembic's `op`, where `env.py` registers it. SQLite cannot
change a constraint, so Alembic makes the table anew, and then all its triggers are gone without a word; and while the
table is away, no trigger of another table may name it. So all triggers are set aside meanwhile and put back as they
were. On PostgreSQL the table is changed in place. Whether a named CHECK, index or trigger was lost all the same is seen
by `migrations.keeping`.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from alembic.operations import BatchOperations, MigrateOperation, Operations
from sqlalchemy import text


@Operations.register_operation("rebuild_table")
class RebuildTable(MigrateOperation):
    """A table to be changed."""

    def __init__(self, table: str) -> None:
        self.table = table

    @classmethod
    def rebuild_table(cls, operations: Operations, table: str) -> AbstractContextManager[BatchOperations]:
        """Inside, `with op.rebuild_table("entry") as batch:`, the operations of `batch` are gathered for the table."""
        made: AbstractContextManager[BatchOperations] = operations.invoke(cls(table))
        return made


@Operations.implementation_for(RebuildTable)
def _rebuild(operations: Operations, wanted: RebuildTable) -> AbstractContextManager[BatchOperations]:
    return _rebuilt(operations, wanted.table)


@contextmanager
def _rebuilt(operations: Operations, table: str) -> Iterator[BatchOperations]:
    if operations.get_bind().dialect.name != "sqlite":
        with operations.batch_alter_table(table) as batch:
            yield batch
        return
    aside = _take_away(operations)
    with operations.batch_alter_table(table, recreate="always") as batch:
        yield batch
    for statement in aside:
        operations.get_bind().exec_driver_sql(statement)


def _take_away(operations: Operations) -> list[str]:
    connection = operations.get_bind()
    found: Any = connection.execute(
        text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid")
    ).all()
    for name, _ in found:
        connection.exec_driver_sql(f"DROP TRIGGER {name}")
    return [str(statement) for _, statement in found]
