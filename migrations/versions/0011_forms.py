"""Values have one form: times, types and numbers of rows, in every table that there is.

History must not move: this file imports no project code and is never edited once released. On PostgreSQL no function
reads a time in the time zone of the session that calls it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0009"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        arm_sqlite()
    else:
        arm_postgresql()


TIMES: dict[str, tuple[str, ...]] = {
    "account": ("opens_at", "closes_at"), "approval": ("at", "expires_at"), "artifact": ("created_at",),
    "audit": ("at",), "cap": ("created_at",), "carried": ("at",), "checkpoint": ("at",), "cohort": ("created_at",),
    "dataset": ("created_at",), "dataset_version": ("created_at",), "delegation": ("valid_from", "valid_to", "at"),
    "delegation_end": ("at",), "delivery": ("at",), "entry": ("at",), "erasure": ("at",), "erasure_end": ("at",),
    "evaluation": ("created_at",), "internal_view": ("at",), "invocation": ("created_at",), "lease": ("expires_at",),
    "motion": ("created_at", "expires_at", "until"),
    "policy_adoption": ("at",), "policy_version": ("created_at",), "principal": ("created_at",),
    "publication": ("at",), "request": ("created_at", "expires_at"), "restoration": ("taken_at", "at"),
    "role_grant": ("valid_from", "valid_to", "at"), "role_revocation": ("at",),
    "schedule": ("starts_at", "created_at"), "schedule_change": ("at",), "schedule_slot": ("slot", "at"),
    "scope_end": ("at",), "slot_end": ("at",), "standing_use": ("at",), "transition": ("at",),
    "twin_attack": ("at",), "unit_claim": ("created_at",), "withdrawal": ("at",),
}  # fmt: skip
"""Every column that holds a time. Times are compared as text, so there is one form of each: 27 characters, in UTC."""

ONE_FORM = "a time is written in its one form, in UTC"
ONE_TYPE = "a value is of the type of its column"
OWN_NUMBERS = "the ledger numbers its rows itself"


# --- SQLite --------------------------------------------------------------------------------------------------

DIGITS = "[0-9]"
FORM = "-".join((DIGITS * 4, DIGITS * 2, DIGITS * 2)) + f"T{':'.join([DIGITS * 2] * 3)}.{DIGITS * 6}Z"


def untimely_sqlite(column: str) -> str:
    """Not of the form, or no moment that there is.

    A text is counted in bytes, because for `length` and GLOB it ends at a NUL. Only if `strftime` adds something, be it
    nothing, does it count the 31st of February as the 3rd of March. A blob differs from every text; of no time at all
    nothing is true.
    """
    return (
        f"(length(CAST({column} AS BLOB)) <> 27 OR {column} NOT GLOB '{FORM}' OR {column} < '0001'"
        f" OR strftime('%Y-%m-%dT%H:%M:%S', substr({column}, 1, 19), '+0 days') IS NOT substr({column}, 1, 19))"
    )


def of_other_type(connection: sa.Connection, table: str) -> str:
    """Some value is not of its column's type: SQLite itself takes 0.5 as an integer, and a blob as text."""
    wrong = []
    for row in connection.execute(sa.text(f"PRAGMA table_info({table})")):
        kind = str(row.type).upper()
        type_ = "text" if kind.startswith(("VARCHAR", "TEXT")) else "blob" if kind == "BLOB" else "integer"
        wrong.append(f"typeof(NEW.{row.name}) NOT IN ('{type_}', 'null')")
    return " OR ".join(wrong)


def numbered(connection: sa.Connection, table: str) -> bool:
    found = [str(row.name) for row in connection.execute(sa.text(f"PRAGMA table_info({table})")) if row.pk]
    return found == ["id"]


def arm_sqlite() -> None:
    connection = op.get_bind()
    made = []
    for table, columns in TIMES.items():
        untimely = " OR ".join(untimely_sqlite(f"NEW.{column}") for column in columns)
        made.append((f"{table}_times", table, "INSERT", untimely, ONE_FORM))
    made.append(("lease_times_renewed", "lease", "UPDATE", untimely_sqlite("NEW.expires_at"), ONE_FORM))
    ledger = connection.scalars(
        sa.text("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'alembic_version' ORDER BY name")
    ).all()
    for table in ledger:
        made.append((f"{table}_types", table, "INSERT", of_other_type(connection, table), ONE_TYPE))
    for name, table, operation, condition, message in made:
        connection.exec_driver_sql(
            f"CREATE TRIGGER {name} BEFORE {operation} ON {table} WHEN {condition}"
            f" BEGIN SELECT RAISE(ABORT, 'almoner: {message}'); END"
        )
    for table in ledger:
        if numbered(connection, table) and table != "audit_head":
            number_sqlite(connection, table)


def number_sqlite(connection: sa.Connection, table: str) -> None:
    """A row has the number that follows the last one: behind the largest number there is, nothing could be recorded."""
    connection.exec_driver_sql(
        f"CREATE TRIGGER {table}_numbers AFTER INSERT ON {table}"
        f" WHEN NEW.id <> (SELECT max(x.id) FROM {table} x)"
        f" OR NEW.id <> 1 + coalesce((SELECT max(x.id) FROM {table} x WHERE x.id < NEW.id), 0)"
        f" BEGIN SELECT RAISE(ABORT, 'almoner: {OWN_NUMBERS}'); END"
    )


# --- PostgreSQL ----------------------------------------------------------------------------------------------

LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
DAY = (
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    f"|{LEAP}-02-29)"
)
MOMENT = f"^(?!0000){DAY}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{{6}}Z$"
"""A moment of the calendar: a CHECK must not ask functions whose answer depends on the session."""
IN_UTC = "timezone = 'UTC'"
"""Since PostgreSQL 18 a session's own time zone says what UTC and Z are: under `<UTC>-167` it is always next week."""


def arm_postgresql() -> None:
    for table, columns in TIMES.items():
        for column in columns:
            name, check = f"ck_{table}_{column}_moment", f"{column} ~ '{MOMENT}'".replace(":", "\\:")
            op.execute(sa.text(f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({check})"))
    tell_time_in_utc()


def tell_time_in_utc() -> None:
    """Whatever time zone a session has chosen, functions that read or tell a time do it in UTC."""
    timed = op.get_bind().scalars(
        sa.text(
            "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace"
            " AND p.prosrc ~* 'timestamp|time zone|::date|to_char' AND (p.prorettype = 'trigger'::regtype"
            " OR starts_with(p.proname, 'almoner_')) ORDER BY 1".replace(":", "\\:")
        )
    )
    for signature in timed.all():
        op.execute(sa.text(f"ALTER FUNCTION {signature} SET {IN_UTC}".replace(":", "\\:")))
