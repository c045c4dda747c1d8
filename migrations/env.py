"""Alembic's environment: the caller hands over an open connection; each revision is one transaction."""

from alembic import context

from migrations.schema_inventory import ProtectionGuard
from models_db import tables  # noqa: F401  (registers every table for `alembic check`)
from models_db.database.base import Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    transaction_per_migration=True,
    compare_server_default=True,
    render_as_batch=False,  # batch mode silently drops triggers and checks on SQLite; see NOTES.md
    on_version_apply=ProtectionGuard(connection).after,
)
with context.begin_transaction():
    context.run_migrations()
