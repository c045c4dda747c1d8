"""The schema of the ledger, on an empty database.

Until almoner 1.0 this revision is edited where the schema changes. With 1.0 it is frozen, and with it
`migrations.schema`; from then on each change is a further revision. So it imports no project code outside `migrations`.
"""

from alembic import op

from migrations.schema import (
    accounts,
    audit_log,
    datasets,
    forms,
    gates,
    links,
    logins,
    principals,
    proposals,
    requests,
    schedules,
)
from migrations.schema.rendering import (
    create_action,
    create_deferred_guard,
    create_function,
    create_guards,
    create_tables,
    execute,
)

revision = "0001"
down_revision = None

CONCEPTS = (principals, datasets, accounts, requests, gates, proposals, schedules, audit_log)
TABLES = tuple(table for concept in CONCEPTS for table in concept.TABLES)
GUARDS = tuple(guard for concept in CONCEPTS for guard in concept.GUARDS)
ACTIONS = (*datasets.ACTIONS, *accounts.ACTIONS, *requests.ACTIONS, *proposals.ACTIONS, *audit_log.ACTIONS)
FUNCTIONS = (*proposals.FUNCTIONS, *logins.FUNCTIONS, *audit_log.FUNCTIONS, *forms.FUNCTIONS)


def upgrade() -> None:
    """Create tables, the first head of the chain, views and functions; then guards and actions."""
    connection = op.get_bind()
    create_tables(connection, TABLES)
    execute(connection, audit_log.GENESIS)
    for table, query in links.link_views({table.name: table for table in TABLES}).items():
        execute(connection, f"CREATE VIEW link_of_{table} AS {query}")
    if connection.dialect.name == "sqlite":
        create_guards(connection, TABLES, (*GUARDS, *forms.BOUNDS, *forms.sqlite_guards(TABLES)))
        for table in TABLES:
            if table.numbered:
                execute(connection, forms.sqlite_number_guard(table.name))
    else:
        for function in FUNCTIONS:
            create_function(connection, function)
        create_guards(connection, TABLES, (*forms.BOUNDS, *GUARDS))
        create_deferred_guard(connection, "pending_link_is_told", "pending_link", audit_log.UNTOLD)
    for action in ACTIONS:
        create_action(connection, action)
