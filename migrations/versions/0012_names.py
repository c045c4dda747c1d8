"""Names that nobody can take for another one: of datasets and envelopes one spelling, of people one reading.

History must not move: this file imports no project code and is never edited once released. Rows that are there keep
their names, whatever they are: a guard looks at what comes in.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        arm_sqlite()
    else:
        arm_postgresql()


LONGEST = 100
UNSEEN = (
    (1, 31), (127, 160), (173, 173), (1564, 1564), (5760, 5760), (8192, 8207), (8232, 8239), (8287, 8303),
    (12288, 12288), (65279, 65279), (917504, 917631),
)  # fmt: skip
"""Code points that a reader cannot see, or that steer a line: controls, joiners, marks of direction, all spaces but the
one of ASCII, tags. A NUL ends a text for GLOB, so SQLite is asked for it apart; PostgreSQL has none in a text."""


# --- SQLite --------------------------------------------------------------------------------------------------
# GLOB tells capitals from small letters and compares ranges by code point; 45 is the hyphen of a range.

CODES = ", ".join(f"{first}, 45, {last}" for first, last in UNSEEN)
PLAIN = (
    f"(NEW.name GLOB '[a-z0-9]*' AND NEW.name NOT GLOB '*[^a-z0-9_.-]*' AND length(NEW.name) <= {LONGEST}"
    " AND instr(NEW.name, char(0)) = 0)"
)
FIT = (
    f"(length(NEW.name) > 0 AND length(NEW.name) <= {LONGEST} AND NEW.name = trim(NEW.name)"
    f" AND NEW.name NOT GLOB ('*[' || char({CODES}) || ']*') AND instr(NEW.name, char(0)) = 0)"
)
ALIKE = "EXISTS (SELECT 1 FROM principal x WHERE x.name <> NEW.name AND lower(x.name) = lower(NEW.name))"

GUARDS: list[tuple[str, str, str, str, str]] = [
    # name, table, operation, denied when, message
    ("dataset_name_plain", "dataset", "INSERT", f"NOT coalesce({PLAIN}, FALSE)", "a dataset has a plain name"),
    ("account_scope_name_plain", "account", "INSERT", f"NEW.kind = 'scope' AND NEW.name IS NOT NULL AND NOT {PLAIN}",
     "an envelope has a plain name"),
    ("principal_name_fit", "principal", "INSERT", f"NOT coalesce({FIT}, FALSE)",
     "the name of a person is printable, without space around it"),
    ("principal_name_own", "principal", "INSERT", ALIKE, "the name of a person reads like that of nobody else"),
]  # fmt: skip


def arm_sqlite() -> None:
    for name, table, operation, condition, message in GUARDS:
        op.get_bind().exec_driver_sql(
            f"CREATE TRIGGER {name} BEFORE {operation} ON {table} WHEN {condition} "
            f"BEGIN SELECT RAISE(ABORT, 'almoner: {message}'); END"
        )


# --- PostgreSQL ----------------------------------------------------------------------------------------------

SIGNS = " || ".join(f"chr({first}) || '-' || chr({last})" for first, last in UNSEEN)
ON_POSTGRESQL = {
    PLAIN: f"(NEW.name COLLATE \"C\" ~ '^[a-z0-9][a-z0-9_.-]{{0,{LONGEST - 1}}}$')",
    FIT: (
        f"(length(NEW.name) > 0 AND length(NEW.name) <= {LONGEST} AND NEW.name = trim(NEW.name)"
        f" AND NEW.name COLLATE \"C\" !~ ('[' || {SIGNS} || ']'))"
    ),
}


TURNS = {"principal_name_own": "PERFORM 1 FROM audit_head FOR UPDATE; "}
"""Of two people who come in at once the second waits, and is then compared with the first."""


def arm_postgresql() -> None:
    path = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema()) || ', pg_temp'"))
    for name, table, operation, condition, message in GUARDS:
        for here, there in ON_POSTGRESQL.items():
            condition = condition.replace(here, there)
        denies = (
            f"BEGIN {TURNS.get(name, '')}IF {condition} THEN RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514'; END IF;"
            " RETURN NEW; END"
        )
        made = f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path = {path} AS $$ {denies} $$"
        op.execute(sa.text(made.replace(":", "\\:")))
        op.execute(
            sa.text(f"CREATE TRIGGER {name} BEFORE {operation} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")
        )
