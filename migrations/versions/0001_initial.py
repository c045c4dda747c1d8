"""The schema of the ledger, on an empty database.

Until almoner 1.0 the schema is what `models_db.tables` and `migrations.schema` say. With 1.0 the statements that this
revision executes are written out in it, and each change is a further revision.
"""

from alembic import op

from migrations.schema import accounts, audit_log, datasets, forms, gates, logins, principals, proposals, requests
from migrations.schema.rendering import (
    create_action,
    create_deferred_guard,
    create_function,
    create_guards,
    execute,
)
from migrations.schema.tables import is_numbered, ledger_tables, link_views

revision = "0001"
down_revision = None

CONCEPTS = (principals, datasets, accounts, requests, gates, proposals, audit_log)
GUARDS = tuple(guard for concept in CONCEPTS for guard in concept.GUARDS)
ACTIONS = (*datasets.ACTIONS, *accounts.ACTIONS, *requests.ACTIONS, *proposals.ACTIONS, *audit_log.ACTIONS)
FUNCTIONS = (*logins.FUNCTIONS, *audit_log.FUNCTIONS)


def upgrade() -> None:
    """Create tables, the first head of the chain, views and functions; then guards and actions."""
    connection = op.get_bind()
    tables = ledger_tables()
    for table in tables:
        table.create(connection)
    execute(connection, audit_log.GENESIS)
    for name, query in link_views({table.name: table for table in tables}).items():
        execute(connection, f"CREATE VIEW link_of_{name} AS {query}")
    if connection.dialect.name == "sqlite":
        create_guards(connection, tables, GUARDS)
        for table in filter(is_numbered, tables):
            execute(connection, forms.sqlite_number_guard(table.name))
    else:
        for function in FUNCTIONS:
            create_function(connection, function)
        create_guards(connection, tables, GUARDS)
        create_deferred_guard(connection, "pending_link_is_told", "pending_link", audit_log.UNTOLD)
    for action in ACTIONS:
        create_action(connection, action)
