"""The tables of the ledger, with what the schema derives from their columns, and what links say of their rows.

What links say of the rows that they name: kind, actor, dataset and request, one view for each table. A transaction is
one link. The tables in `LEADING` say what happened, those in `FOLLOWING` where none of these got a row (in the order of
their ranks). Actor, dataset and request follow from the columns of a row, or of the rows to which it refers. The views
have the same text on both databases.
"""

from collections.abc import Mapping
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


_GATE = "CASE {row}.gate WHEN 'proposal' THEN 'proposal.' ELSE 'request.' END"
_ACTORS = ("brought_by", *ACTORS)
_ENDED = "x.from_state = 'running' AND x.to_state = 'approved'"

LEADING = {
    "principal": "'principal.enrolled'",
    "role_grant": "'role.granted'",
    "role_revocation": "'role.revoked'",
    "passkey": "'passkey.registered'",
    "passkey_end": "'passkey.revoked'",
    "policy_adoption": "'policy.adopted'",
    "dataset": "'dataset.registered'",
    "dataset_version": "'dataset.ingested'",
    "cohort": "'cohort.opened'",
    "request": "'request.submitted'",
    "approval": f"{_GATE.format(row='x')} || x.decision",
    "withdrawal": f"(SELECT {_GATE.format(row='a')} FROM approval a WHERE a.id = x.approval_id)"
                  " || 'approval_withdrawn'",
    "proposal": "'proposal.proposed'",
    "carried": "'proposal.carried'",
    "entry": "'ledger.' || lower(x.kind)",
    "artifact": "'run.produced'",
    "internal_view": "CASE x.kind WHEN 'computed' THEN 'evaluation.internal' ELSE 'evaluation.shown' END",
    "assignment_exposure": "'assignment.exposed'",
    "erasure": "'dataset.erased'",
    "erasure_end": "'dataset.erasure_ended'",
    "publication": "'release.published'",
    "delivery": "'release.delivered'",
    "checkpoint": "'checkpoint.recorded'",
    "schedule": "'schedule.created'",
    "schedule_change": "'schedule.changed'",
    "schedule_slot": "'slot.decided'",
    "slot_end": "'slot.ended'",
    "restoration": "'backup.restored'",
    "twin_attack": "'attack.public_twin'",
    "rehearsal": "'release.rehearsed'",
}  # fmt: skip
FOLLOWING = {
    "account": "'account.opened'",
    "transition": "CASE WHEN x.to_state = 'running' THEN 'run.started'"
                  f" WHEN {_ENDED} THEN 'run.failed'"
                  " WHEN x.to_state = 'withdrawn' THEN 'request.withdrawn' ELSE 'request.moved' END",
    "evaluation": "'evaluation.' || x.exposure",
    "policy_version": "'policy.recorded'",
    "unit_claim": "'units.claimed'",
    "policy_rule": "'policy.recorded'",
    "invocation": "'ledger.hold'",
    "hold": "'ledger.hold'",
    "erased_version": "'dataset.erased'",
    "renyi_charge": "'ledger.charged'",
    "overlap_key": "'key.committed'",
}  # fmt: skip
"""The kind of a link by the last row of a table. Blocks are opened with their root, or with a cohort."""


def link_views(tables: Mapping[str, Table]) -> dict[str, str]:
    """Return the query of the view of each table whose rows links name."""
    ranks = dict.fromkeys(LEADING, "1") | {table: str(number) for number, table in enumerate(FOLLOWING, 2)}
    ranks["transition"] = f"CASE WHEN x.to_state IN ('running', 'withdrawn') OR {_ENDED} THEN 1 ELSE 3 END"
    queries: dict[str, str] = {}
    for name, kind in {**LEADING, **FOLLOWING}.items():
        actor = "coalesce(x.created_by, x.id)" if name == "principal" else _reached(tables, name, _ACTORS)
        dataset = f"(SELECT d.name FROM dataset d WHERE d.id = {_reached(tables, name, ('dataset_id',))})"
        if "dataset" in _targets(tables[name]):
            dataset = "x.dataset"
        queries[name] = (
            f"SELECT x.id AS row_id, {ranks[name]} AS rank, {kind} AS kind,"
            f" (SELECT p.name FROM principal p WHERE p.id = {actor}) AS actor,"
            f" CAST({dataset} AS VARCHAR(255)) AS dataset,"
            f" CAST({_reached(tables, name, ('request_id',))} AS INTEGER) AS request_id FROM {name} x"
        )
    return queries


def _reached(tables: Mapping[str, Table], table: str, columns: tuple[str, ...], row: str = "x") -> str:
    """Return the SQL of some columns of a row, or else of the rows to which it refers; NULL if there are none."""
    if columns == (f"{table}_id",):
        return f"{row}.id"
    targets = _targets(tables[table])
    found = [f"{row}.{name}" for name in columns if name in targets]
    if found in ([], [f"{row}.brought_by"]):
        other = f"{row}x"
        for name, target in targets.items():
            reached = _reached(tables, target, columns, other) if target not in ("", "principal", table) else "NULL"
            if reached != "NULL":
                found.append(f"(SELECT {reached} FROM {target} {other} WHERE {other}.id = {row}.{name})")
    return f"coalesce({', '.join(found)})" if len(found) > 1 else "".join(found) or "NULL"


def _targets(table: Table) -> dict[str, str]:
    """Return the table to which each column refers, or an empty text.

    A proposal may be about a publication that does not exist yet, so that one is no foreign key.
    """
    found = {column.name: next((key.column.table.name for key in column.foreign_keys), "") for column in table.columns}
    return found | ({"publication_id": "publication"} if "publication_id" in found else {})
