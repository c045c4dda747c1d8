"""Inventory of a ledger's schema, its comparison with what the migrations make, and protections that stay.

A rebuilt table, a restored dump or a manual change can lose a trigger silently. There is no second list to maintain:
the reference is the same migrations run in a scratch place, which on SQLite is memory and on PostgreSQL a schema of the
same server inside a savepoint that is rolled back. So definitions are compared in the server's own wording.

Protections that a revision must not remove from the revisions before it. The reference of the self-check is made by the
same migrations, so a trigger that a revision loses is missing from the reference too, and the comparison reports
nothing. Therefore the protections of the ledger are counted before and after each revision, in every run of the
migrations: every name that disappears must be in the revision's own `gives_up`.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.pool import NullPool

import migrations
from models_db.errors import EnvironmentProblem

MIGRATIONS_FOLDER = Path(migrations.__file__).parent
VERSION_FOLDERS = [MIGRATIONS_FOLDER / "versions"]
"""The folders of the version files; tests add one with revisions to come."""


def settings_for(connection: Connection | None = None) -> Config:
    """Alembic's settings, for a connection that is open."""
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS_FOLDER))
    settings.set_main_option("path_separator", "os")
    settings.set_main_option("version_locations", os.pathsep.join(map(str, VERSION_FOLDERS)))
    settings.attributes["connection"] = connection
    return settings


def run(connection: Connection, revision: str = "head") -> None:
    """Run the missing migrations up to `revision`; nothing is committed here."""
    command.upgrade(settings_for(connection), revision)


def newest_revision() -> str:
    """Return the revision that this installation brings a ledger to."""
    return str(ScriptDirectory.from_config(settings_for()).get_current_head())


@dataclass(frozen=True, order=True)
class SchemaItem:
    """One thing the schema is made of.

    Attributes:
        table: the table it belongs to.
        kind: table, column, view, constraint, index, trigger, enforcement (of a foreign key), rule, policy, function (a
            door, or one that would be called in place of the server's own) or operator.
        name: its name.
        definition: all that it says and whether it is in force, free of the schema's own name.
    """

    table: str
    kind: str
    name: str
    definition: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" on {self.table}" if self.name != self.table else "")


def schema_items(connection: Connection) -> frozenset[SchemaItem]:
    """Everything in the connection's own schema."""
    return _sqlite_items(connection) if connection.dialect.name == "sqlite" else _postgresql_items(connection)


def expected_items(connection: Connection, revision: str = "head") -> frozenset[SchemaItem]:
    """Return the items that the migrations create in an empty database of the same kind.

    Raises:
        ScratchSchemaForbidden: the role may not create the schema this needs on PostgreSQL.
    """
    return (
        _items_of_memory_ledger(revision)
        if connection.dialect.name == "sqlite"
        else _items_of_scratch_schema(connection, revision)
    )


def schema_differences(connection: Connection, revision: str = "head") -> list[str]:
    """Return the differences between schema and migrations, one line each; tables beside the ledger are ignored.

    Raises:
        ScratchSchemaForbidden: see `expected_items`.
    """
    return compare_items(schema_items(connection), expected_items(connection, revision))


def compare_items(actual: frozenset[SchemaItem], expected: frozenset[SchemaItem]) -> list[str]:
    """Return the differences from `expected_items`, such as 'trigger entry_no_update on entry is missing'."""
    ledger = {item.table for item in expected}
    ours = {(item.table, item.kind, item.name): item for item in actual if item.table in ledger}
    theirs = {(item.table, item.kind, item.name): item for item in expected}
    return (
        [f"{item} is missing" for key, item in sorted(theirs.items()) if key not in ours]
        + [f"{item} is altered" for key, item in sorted(ours.items()) if key in theirs and item != theirs[key]]
        + [f"{item} is not of the ledger" for key, item in sorted(ours.items()) if key not in theirs]
    )


def _sqlite_items(connection: Connection) -> frozenset[SchemaItem]:
    """Return the statements that made each table (its columns and constraints are in there), index and trigger."""
    rows = connection.execute(text("SELECT tbl_name, type, name, sql FROM sqlite_master"))
    return frozenset(SchemaItem(table, kind, name, " ".join((sql or "").split())) for table, kind, name, sql in rows)


def _items_of_memory_ledger(revision: str) -> frozenset[SchemaItem]:
    with create_engine("sqlite://", poolclass=NullPool).begin() as scratch:
        run(scratch, revision)
        return schema_items(scratch)


_POSTGRESQL_ITEMS = """
WITH here AS (SELECT current_schema()::regnamespace::oid AS schema),
     tables AS (SELECT c.* FROM pg_class c, here WHERE c.relnamespace = here.schema AND c.relkind IN ('r', 'p')),
     keeper AS (SELECT t.relowner AS owner FROM tables t WHERE t.relname = 'audit_head'),
     foreigners AS ( -- functions and operators of the schema that no extension has brought
       SELECT p.oid, p.proname AS name, 'function' AS kind FROM pg_proc p, here WHERE p.pronamespace = here.schema
        UNION ALL SELECT o.oid, o.oprname, 'operator' FROM pg_operator o, here WHERE o.oprnamespace = here.schema
       EXCEPT SELECT d.objid, p.proname, 'function' FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
        WHERE d.deptype = 'e'
       EXCEPT SELECT d.objid, o.oprname, 'operator' FROM pg_depend d JOIN pg_operator o ON o.oid = d.objid
        WHERE d.deptype = 'e')
SELECT t.relname, 'table', t.relname, -- a table that inherits from one of ours adds rows that no trigger has seen
       concat_ws(' ', t.relpersistence, t.relrowsecurity, t.relforcerowsecurity, t.relowner = k.owner,
                 EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhparent = t.oid),
                 EXISTS (SELECT 1 FROM aclexplode(t.relacl) a WHERE a.grantee = 0))
  FROM tables t LEFT JOIN keeper k ON TRUE
UNION ALL
SELECT t.relname, 'column', a.attname,
       concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
                 pg_get_expr(d.adbin, d.adrelid))
  FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef d ON d.adrelid = t.oid AND d.adnum = a.attnum
UNION ALL
SELECT t.relname, 'constraint', c.conname, concat_ws(' ', pg_get_constraintdef(c.oid), c.convalidated)
  FROM tables t JOIN pg_constraint c ON c.conrelid = t.oid AND c.contype NOT IN ('n', 't')
UNION ALL
SELECT t.relname, 'index', i.indexrelid::regclass::text,
       concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisvalid)
  FROM tables t JOIN pg_index i ON i.indrelid = t.oid
UNION ALL
SELECT t.relname, 'trigger', g.tgname,
       concat_ws(' ', pg_get_triggerdef(g.oid), g.tgenabled, p.proconfig::text, p.prosecdef, p.prosrc)
  FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal JOIN pg_proc p ON p.oid = g.tgfoid
UNION ALL
SELECT t.relname, 'enforcement', c.conname,
       string_agg(concat_ws(' ', g.tgfoid::regproc, g.tgenabled), ', ' ORDER BY g.tgfoid)
  FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid AND g.tgisinternal
  JOIN pg_constraint c ON c.oid = g.tgconstraint
 GROUP BY t.relname, c.conname
UNION ALL
SELECT t.relname, 'rule', r.rulename, concat_ws(' ', pg_get_ruledef(r.oid), r.ev_enabled)
  FROM tables t JOIN pg_rewrite r ON r.ev_class = t.oid
UNION ALL
SELECT t.relname, 'policy', y.polname,
       concat_ws(' ', y.polcmd, y.polpermissive, pg_get_expr(y.polqual, y.polrelid),
                 pg_get_expr(y.polwithcheck, y.polrelid))
  FROM tables t JOIN pg_policy y ON y.polrelid = t.oid
UNION ALL
SELECT v.relname, 'view', v.relname, -- what links tell of rows
       concat_ws(' ', pg_get_viewdef(v.oid), v.reloptions::text, v.relowner = k.owner)
  FROM keeper k, pg_class v, here
 WHERE v.relnamespace = here.schema AND v.relkind = 'v' AND starts_with(v.relname, 'link_of_')
UNION ALL
SELECT 'audit_head', 'function', concat(p.proname, '(', pg_get_function_identity_arguments(p.oid), ')'), -- the ledger's
       concat_ws(' ', pg_get_function_result(p.oid), p.prosecdef, p.provolatile, p.proconfig::text, p.proleakproof,
                 p.prolang::text, p.proowner = k.owner,
                 EXISTS (SELECT 1 FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                          WHERE a.grantee = 0), p.prosrc)
  FROM keeper k, pg_proc p, here WHERE p.pronamespace = here.schema AND starts_with(p.proname, 'almoner_')
UNION ALL
SELECT 'audit_head', f.kind, f.name, f.oid::text -- with arguments that fit better, it replaces the server's
  FROM foreigners f
 WHERE EXISTS (SELECT 1 FROM pg_proc s WHERE s.proname = f.name AND s.pronamespace = 'pg_catalog'::regnamespace)
    OR f.kind = 'operator'
"""


_INSUFFICIENT_PRIVILEGE = "42501"


def _postgresql_items(connection: Connection) -> frozenset[SchemaItem]:
    schema = str(connection.scalar(text("SELECT quote_ident(current_schema())")))
    rows = connection.execute(text(_POSTGRESQL_ITEMS))
    return frozenset(SchemaItem(*(_unqualified(part, schema) for part in row)) for row in rows)


def _unqualified(wording: str, schema: str) -> str:
    return _normalise_word_list(wording.replace(f"{schema}.", "").replace(f"search_path={schema},", "search_path=,"))


_QUOTED_WORD = r"'(?:[^']|'')*'::character varying"
_WORD_CAST = re.compile(rf"({_QUOTED_WORD})")
_WORD_LIST = re.compile(rf"\(ARRAY\[({_QUOTED_WORD}(?:, {_QUOTED_WORD})*)\]\)::text\[\]")


def _normalise_word_list(wording: str) -> str:
    """Return the same list of words, whether the server read it as it was written or from a dump of itself.

    PostgreSQL shows `kind IN ('a', 'b')` as an array cast to text; after a dump, as an array of words cast to text.
    """
    return _WORD_LIST.sub(lambda match: "ARRAY[" + _WORD_CAST.sub(r"(\1)::text", match[1]) + "]", wording)


def _items_of_scratch_schema(connection: Connection, revision: str) -> frozenset[SchemaItem]:
    trial = connection.begin_nested()
    try:
        scratch = f"almoner_reference_{connection.scalar(text('SELECT pg_backend_pid()'))}"
        connection.execute(text(f"CREATE SCHEMA {scratch}"))
        connection.execute(text(f"SET LOCAL search_path TO {scratch}"))
        run(connection, revision)
        return schema_items(connection)
    except ProgrammingError as problem:
        if getattr(problem.orig, "sqlstate", None) != _INSUFFICIENT_PRIVILEGE:
            raise
        raise EnvironmentProblem(
            "The schema of the ledger cannot be compared with its migrations: that needs a scratch schema, which this"
            " database role may not create. Nothing was changed.",
            "As the owner of the database: `GRANT CREATE ON DATABASE ... TO ...`.",
            code="ScratchSchemaForbidden",
        ) from None
    finally:
        trial.rollback()


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
