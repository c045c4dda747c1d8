"""Upgrade of a ledger to the newest schema."""

from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from migrations.schema_inventory import run, schema_differences
from models_db.errors import EnvironmentProblem
from models_db.sessions.database import Database, LedgerDiskFull, LedgerUnreachable, disk_is_full

_UPGRADE_LOCK = 0x616C6D6F6E6572  # 'almoner'
OLDEST_POSTGRESQL = 160_000
"""`server_version_num` from which on CREATEROLE reaches only the roles that it has made; before, it reached all."""


def upgrade(database: Database, revision: str = "head") -> None:
    """Run the missing migrations; all of it happens, or nothing.

    The schema is compared with the migrations before, because a revision that makes a guard anew would heal a damage
    unseen, and after.

    Raises:
        SchemaDiffers: a table, constraint, index or trigger is not as the migrations make it.
        ProtectionLost: a revision loses what an earlier one has put there.
        SchemaUnknown: a newer almoner has made this ledger.
        ScratchSchemaForbidden: see `migrations.schema_inventory.expected_items`.
        LedgerUnreachable: the database cannot be opened or stays locked.
        LedgerDiskFull: there is no room for it.
        PostgreSQLTooOld: its server cannot hold what the ledger needs.
    """
    require_supported(database)
    try:
        with database.engine.connect() as connection:
            suspend_references(connection)
            with connection.begin():
                _acquire_upgrade_lock(connection)
                before = MigrationContext.configure(connection).get_current_revision()
                if before is not None:
                    _require_expected_schema(connection, before)
                run(connection, revision)
                if MigrationContext.configure(connection).get_current_revision() != before:
                    _require_expected_schema(connection, revision)
    except CommandError:
        raise EnvironmentProblem(
            "The ledger's schema was made by a newer almoner than this one; nothing was changed.",
            "Use the newer version; a schema is never taken back.",
            code="SchemaUnknown",
        ) from None
    except OperationalError as problem:
        if disk_is_full(problem.orig, committing=False):  # nothing is decided by it: `upgrade` is repeated
            raise LedgerDiskFull(str(database.engine.url.database)) from problem
        raise LedgerUnreachable(database.engine.url.render_as_string(hide_password=True)) from problem


def stated_revisions(connection: Connection) -> tuple[str, ...]:
    """Return the revisions at which a ledger says it is: one, unless somebody has altered `alembic_version`."""
    return tuple(map(str, MigrationContext.configure(connection).get_current_heads()))


def require_supported(database: Database) -> None:
    """Check the version of a PostgreSQL server.

    Raises:
        PostgreSQLTooOld: under it, who may create roles may also become the owner of the ledger.
        LedgerUnreachable: it does not answer.
    """
    if database.is_sqlite:
        return
    with database.read() as session:
        version = int(session.scalar(text("SHOW server_version_num")) or 0)
    if version < OLDEST_POSTGRESQL:
        raise EnvironmentProblem(
            f"This server is PostgreSQL {version // 10_000}; the ledger needs {OLDEST_POSTGRESQL // 10_000} or newer,"
            " because in older versions a creator of roles can become the owner of the ledger. Nothing was changed.",
            "Upgrade the server (`pg_upgrade`), then repeat the command.",
            {"version": version // 10_000, "needed": OLDEST_POSTGRESQL // 10_000},
            code="PostgreSQLTooOld",
        )


def _require_expected_schema(connection: Connection, revision: str) -> None:
    if differences := schema_differences(connection, revision) + _dangling_references(connection):
        raise EnvironmentProblem(
            f"The ledger's schema is not what its migrations make: {'; '.join(differences)}. Nothing was changed.",
            "Do not use this ledger until you know who changed it; restore the schema from a backup.",
            {"differences": differences},
            code="SchemaDiffers",
        )


def suspend_references(connection: Connection) -> None:
    """SQLite rebuilds a table by dropping it, which enforced foreign keys forbid; only between transactions can this be
    set. It holds for this connection, which is closed at the end; `_dangling_references` makes up for it."""
    if connection.dialect.name == "sqlite":
        connection.detach()  # or the connection would be kept, and used again like this
        connection.connection.cursor().execute("PRAGMA foreign_keys=OFF")  # past SQLAlchemy, which would begin


def _dangling_references(connection: Connection) -> list[str]:
    if connection.dialect.name != "sqlite":
        return []
    tables = sorted({str(row[0]) for row in connection.execute(text("PRAGMA foreign_key_check"))})
    return [f"rows of {table} point nowhere" for table in tables]


def _acquire_upgrade_lock(connection: Connection) -> None:
    """Take the lock of upgrades on PostgreSQL; a writer of SQLite is alone already."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})"))
