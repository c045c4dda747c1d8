"""Protections that a revision must not remove from the revisions before it.

The reference of the self-check is made by the same migrations, so a trigger that a revision loses is missing from the
reference too, and the comparison reports nothing. Therefore the protections of the ledger are counted before and after
each revision, in every run of the migrations: every name that disappears must be in the revision's own `gives_up`.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from alembic.runtime.migration import MigrationContext, MigrationInfo
from sqlalchemy import Connection

from migrations.schema_inventory import SchemaItem, schema_items
from models_db.errors import EnvironmentProblem

_CONSTRAINT_NAME = re.compile(r'CONSTRAINT "?(\w+)"?')
_PROTECTING_KINDS = ("constraint", "index", "trigger", "enforcement", "function")


class ProtectionGuard:
    """Looks at a database before and after each revision."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._before = protections(schema_items(connection))

    def after(
        self, ctx: MigrationContext, step: MigrationInfo, heads: Collection[Any], run_args: Mapping[str, Any]
    ) -> None:
        """Alembic's `on_version_apply`: it calls this when a revision has run.

        Raises:
            ProtectionLost: the revision has lost what it does not give up.
        """
        now = protections(schema_items(self._connection))
        lost = self._before - now - set(declared_removals(step.up_revision))
        if lost:
            raise EnvironmentProblem(
                f"Migration {step.up_revision_id} loses what protects the ledger: {', '.join(sorted(lost))}. Nothing"
                " was changed.",
                "This is a fault of that migration: report it, and go on with the version of almoner used so far.",
                {"revision": str(step.up_revision_id), "lost": sorted(lost)},
                code="ProtectionLost",
            )
        self._before = now


def protections(items: Iterable[SchemaItem]) -> frozenset[str]:
    """Return the names of all items that refuse something; on SQLite constraints stand in the text of their table."""
    names: set[str] = set()
    for item in items:
        if item.kind == "table":
            names.update(_CONSTRAINT_NAME.findall(item.definition))
        elif item.kind in _PROTECTING_KINDS and not item.name.startswith("sqlite_autoindex"):
            names.add(item.name)
    return frozenset(names)


def declared_removals(revision: object) -> tuple[str, ...]:
    """Return the protections that a version file declares as dropped for good."""
    return tuple(getattr(getattr(revision, "module", None), "gives_up", ()))
