"""The tables of the ledger, which `models_db.tables` declares, with what the schema derives from their columns."""

from functools import cache

from sqlalchemy import (
    CheckConstraint,
    Column,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
)

import models_db.tables  # noqa: F401  (it fills the metadata)
from migrations.schema.definitions import with_article
from migrations.schema.forms import form_of, moment
from models_db.database.base import Base

ACTORS = (
    "actor_id", "created_by", "requester_id", "granted_by", "revoked_by", "ended_by", "proposer_id", "adopted_by",
    "approver_id",
)  # fmt: skip
"""The columns that say who adds a row; where one may be NULL, the database fills it in, as it does `brought_by`."""
TIMES = ("at", "created_at")
"""The columns that say when a row is added."""


@cache
def ledger_tables() -> list[Table]:
    """Return every table, each after those to which it refers, with the forms of its texts and times.

    The declared tables themselves get these checks, once: in a copy the order of constraints would be another one in
    each process. The `info` of a table has what its class says beside columns: `recorded_by` and `allows`.
    """
    classes = {mapper.local_table: mapper.class_ for mapper in Base.registry.mappers}
    for table in Base.metadata.sorted_tables:
        table.info |= {"recorded_by": classes[table].recorded_by, "allows": classes[table].allows}
        for column in table.columns:
            _check_form(table, column)
    return Base.metadata.sorted_tables


def _check_form(table: Table, column: Column[object]) -> None:
    """Add the constraints that a value has the form of its column, and on SQLite its type; a colon is no parameter."""
    name, is_time = column.name, column.name in times(table)
    form = moment(name) if is_time else form_of(table.name, name, str(column.type))
    kind = "text" if form else "blob" if isinstance(column.type, LargeBinary) else "integer"
    typed = f"typeof({name}) IN ('{kind}', 'null')"
    suffix = "moment" if is_time else "form" if form else "type"
    conditions = {"sqlite": f"{typed} AND {form.sqlite}", "postgresql": form.postgresql} if form else {"sqlite": typed}
    for dialect, condition in conditions.items():
        check = CheckConstraint(condition.replace(":", r"\:"), f"{name}_{suffix}")
        table.append_constraint(check.ddl_if(dialect=dialect))


def times(table: Table) -> list[str]:
    """Return the columns that hold a time."""
    return [column.name for column in table.columns if isinstance(column.type, String) and column.type.length == 27]


def author(table: Table) -> tuple[str, str] | None:
    """Return the columns that say who adds a row and when, if there are both and somebody always does.

    Nobody has added the first person, and the owner of the tables may open accounts.
    """
    who, when = ([column.name for column in table.columns if column.name in names] for names in (ACTORS, TIMES))
    return (who[0], when[0]) if who and when and table.name not in ("principal", "account") else None


def by_whom(table: Table) -> str:
    """Return the rule that `recorded_by` sets, in words."""
    roles = " or ".join(map(with_article, table.info["recorded_by"]))
    return f"only {roles} records {with_article(table.name.replace('_', ' '))}"


def is_numbered(table: Table) -> bool:
    """Return whether the database assigns the row numbers."""
    return "id" in table.columns and table.columns["id"].autoincrement is not False


def is_stamped(table: Table) -> bool:
    """Return whether people add rows, on PostgreSQL under their logins (`logins.stamp`); else the database does."""
    return "id" in table.columns and table.columns["id"].server_default is not None


def keys(table: Table) -> list[list[str]]:
    """Return every key under which there is at most one row, but for those of some rows only."""
    constraints = [each for each in table.constraints if isinstance(each, PrimaryKeyConstraint | UniqueConstraint)]
    indexes = [each for each in table.indexes if each.unique and each.dialect_options["sqlite"]["where"] is None]
    return sorted([column.name for column in key.columns] for key in (*constraints, *indexes))
