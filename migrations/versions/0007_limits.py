"""Limits that bind: what was approved bounds what is held, times have one form, and decisions expire with the policy.

History must not move: this file imports no project code and is never edited once released. The plan of a request is
written by the database itself, from the request's own text, so nobody passes one; holds and mechanisms outside it are
denied. On PostgreSQL no function reads a time in the time zone of the session that calls it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0007"
down_revision = "0006"

DELEGATION_DAYS = 365
"""What a policy says of delegations that says nothing of them."""


def upgrade() -> None:
    tables()
    with policies_unguarded():
        fill_policies()
    fill_plans()
    if op.get_bind().dialect.name == "sqlite":
        arm_sqlite()
    else:
        arm_postgresql()


# --- Tables --------------------------------------------------------------------------------------------------


def whole(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=False)


def of_request(table: str) -> tuple[sa.Column[int], sa.ForeignKeyConstraint]:
    column: sa.Column[int] = sa.Column("request_id", ID, autoincrement=False, nullable=False)
    return column, sa.ForeignKeyConstraint(["request_id"], ["request.id"], name=f"fk_{table}_request_id")


def tables() -> None:
    op.create_table(
        "planned_release", *of_request("planned_release"), whole("invocations"),
        sa.PrimaryKeyConstraint("request_id", name="pk_planned_release"),
    )  # fmt: skip
    op.create_table(
        "planned_block", *of_request("planned_block"), whole("first_block"), whole("last_block"),
        sa.CheckConstraint("first_block >= 0 AND last_block >= first_block", name=op.f("ck_planned_block_run")),
        sa.PrimaryKeyConstraint("request_id", "first_block", name="pk_planned_block"),
    )  # fmt: skip
    op.create_table(
        "planned_invocation", *of_request("planned_invocation"), whole("sequence"),
        sa.Column("mechanism", sa.String(length=255), nullable=False), sa.Column("event", sa.Text(), nullable=False),
        whole("instalments"), sa.PrimaryKeyConstraint("request_id", "sequence", name="pk_planned_invocation"),
    )  # fmt: skip
    op.create_table(
        "planned_instalment", *of_request("planned_instalment"), whole("sequence"), whole("first_instalment"),
        whole("last_instalment"), sa.Column("rho", sa.BigInteger(), nullable=False),
        sa.Column("delta", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "first_instalment >= 0 AND last_instalment >= first_instalment AND rho >= 0 AND delta >= 0",
            name=op.f("ck_planned_instalment_run"),
        ),
        sa.PrimaryKeyConstraint("request_id", "sequence", "first_instalment", name="pk_planned_instalment"),
    )  # fmt: skip
    for column in LIMITS:
        op.execute(sa.text(f"ALTER TABLE policy_version ADD COLUMN {column} INTEGER"))


LIMITS = ("attempts", "approval_days", "request_days", "delegation_days")


@contextmanager
def policies_unguarded() -> Iterator[None]:
    """Inside, policies may be changed; afterwards their guard is what it was."""
    connection, name = op.get_bind(), "policy_version_no_update"
    if connection.dialect.name != "sqlite":
        op.execute(sa.text(f"ALTER TABLE policy_version DISABLE TRIGGER {name}"))
        yield
        op.execute(sa.text(f"ALTER TABLE policy_version ENABLE TRIGGER {name}"))
        return
    statement = connection.scalar(sa.text("SELECT sql FROM sqlite_master WHERE name = :name"), {"name": name})
    op.execute(sa.text(f"DROP TRIGGER {name}"))
    yield
    connection.exec_driver_sql(str(statement))


def fill_policies() -> None:
    """What policies have always said, in columns that guards read."""
    connection = op.get_bind()
    for number, body in connection.execute(sa.text("SELECT id, body FROM policy_version")).all():
        said = json.loads(body)
        if "attempts" in said:
            given = {name: said.get(name, DELEGATION_DAYS) for name in LIMITS}
            settings = ", ".join(f"{name} = :{name}" for name in LIMITS)
            update = sa.text(f"UPDATE policy_version SET {settings} WHERE id = :id")
            connection.execute(update, {**given, "id": number})


def fill_plans() -> None:
    """The plans of requests that are there; one without a plan in its text has none, and stays under the older guards."""
    connection = op.get_bind()
    for number, text in connection.execute(sa.text("SELECT id, canonical FROM request ORDER BY id")).all():
        plan = json.loads(text).get("plan")
        if isinstance(plan, dict):
            fill_plan(connection, number, plan)


def fill_plan(connection: sa.Connection, number: int, plan: dict[str, Any]) -> None:
    def insert(table: str, **values: object) -> None:
        row = {"request_id": number, **values}
        names = ", ".join(f":{name}" for name in row)
        connection.execute(sa.text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({names})"), row)

    for first, last, _ in runs([(block, None) for block in sorted(set(plan["blocks"]))]):
        insert("planned_block", first_block=first, last_block=last)
    for sequence, one in enumerate(plan["invocations"]):
        event = json.dumps(one["event"], ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        parts = [(each["rho"], each["delta"]) for each in one["instalments"]]
        insert("planned_invocation", sequence=sequence, mechanism=one["event"]["mechanism"], event=event,
               instalments=len(parts))  # fmt: skip
        for first, last, (rho, delta) in runs(list(enumerate(parts))):
            insert("planned_instalment", sequence=sequence, first_instalment=first, last_instalment=last,
                   rho=int(rho), delta=int(delta))  # fmt: skip
    insert("planned_release", invocations=len(plan["invocations"]))


def runs(numbered: list[tuple[int, Any]]) -> Iterator[tuple[int, int, Any]]:
    """First, last and value of each run of equal values at neighbouring numbers."""
    for (value, _), found in groupby(enumerate(numbered), key=lambda each: (each[1][1], each[1][0] - each[0])):
        group = [number for _, (number, _) in found]
        yield group[0], group[-1], value


# --- What the database itself refuses -----------------------------------------------------------------------
# As in 0002. In braces what differs between the backends: {plan_unfit} (the text of a request says no plan), {days}
# (the length of a window), {monday} (it closes on one), {last_moment AT DAYS} is `end_of` below.

IN_FORCE = "(SELECT y.policy_id FROM policy_adoption y ORDER BY y.id DESC LIMIT 1)"
ATTEMPTS = "(SELECT count(*) FROM transition t WHERE t.request_id = NEW.request_id AND t.to_state = 'running')"
POLICY_OF_REQUEST = "(SELECT p.{column} FROM policy_version p WHERE p.id = NEW.policy_id)"
POLICY_OF_SUBJECT = (
    "(SELECT p.{column} FROM policy_version p WHERE p.id = coalesce("
    "(SELECT r.policy_id FROM request r WHERE r.id = NEW.request_id),"
    " (SELECT m.policy_id FROM motion m WHERE m.id = NEW.motion_id)))"
)
PLANNED_PART = (  # the run of equal instalments that this one lies in
    "coalesce((SELECT q.last_instalment >= NEW.instalment AND q.rho >= NEW.rho AND q.delta >= NEW.delta"
    " FROM planned_instalment q WHERE q.request_id = i.request_id AND q.sequence = i.sequence"
    " AND q.first_instalment <= NEW.instalment ORDER BY q.first_instalment DESC LIMIT 1), FALSE)"
)
PLANNED_BLOCK = (
    "(a.kind <> 'block' OR coalesce((SELECT k.last_block >= a.block FROM planned_block k"
    " WHERE k.request_id = i.request_id AND k.first_block <= a.block ORDER BY k.first_block DESC LIMIT 1), FALSE))"
)
WRITTEN = (
    "NOT EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id)"
    " OR EXISTS (SELECT 1 FROM planned_release w WHERE w.request_id = NEW.request_id)"
)
PLAN_TABLES = ("planned_block", "planned_invocation", "planned_instalment", "planned_release")

GUARDS: list[tuple[str, str, str, str, str]] = [
    # name, table, operation, denied when, message
    ("request_says_plan", "request", "INSERT", "{plan_unfit}", "a request says its plan"),
    ("request_expires", "request", "INSERT",
     "NEW.expires_at > " + "{end NEW.created_at " + POLICY_OF_REQUEST.format(column="request_days") + "}",
     "a request expires as the policy says"),
    ("motion_expires", "motion", "INSERT",
     "NEW.expires_at > " + "{end NEW.created_at " + POLICY_OF_REQUEST.format(column="request_days") + "}"
     " AND NOT coalesce(NEW.kind = 'standing' AND NEW.expires_at <= NEW.until, FALSE)",
     "a motion expires as the policy says"),
    ("approval_expires", "approval", "INSERT",
     "NEW.expires_at > " + "{end NEW.at " + POLICY_OF_SUBJECT.format(column="approval_days") + "}",
     "an approval expires as the policy says"),
    ("delegation_expires", "delegation", "INSERT",
     "NEW.valid_to > {end NEW.at (SELECT p.delegation_days FROM policy_version p WHERE p.id = " + IN_FORCE + ")}",
     "a delegation ends as the policy says"),
    ("policy_says_limits", "policy_version", "INSERT",
     "NEW.attempts IS NULL OR NEW.attempts NOT BETWEEN 1 AND 100"
     + "".join(f" OR NEW.{name} IS NULL OR NEW.{name} NOT BETWEEN 1 AND 365" for name in LIMITS[1:]),
     "a policy says how often a request is run and how long decisions count"),
    ("transition_attempts", "transition", "INSERT WHEN NEW.to_state = 'running'",
     "EXISTS (SELECT 1 FROM request r JOIN policy_version p ON p.id = r.policy_id WHERE r.id = NEW.request_id"
     f" AND p.attempts <= {ATTEMPTS})",
     "the policy allows the request no further attempt"),
    ("invocation_planned", "invocation", "INSERT",
     "EXISTS (SELECT 1 FROM planned_release w WHERE w.request_id = NEW.request_id)"
     " AND NOT EXISTS (SELECT 1 FROM planned_invocation q WHERE q.request_id = NEW.request_id"
     " AND q.sequence = NEW.sequence AND q.mechanism = NEW.mechanism AND q.event = NEW.event)",
     "the request was approved for other mechanisms"),
    ("hold_planned", "hold", "INSERT",
     "EXISTS (SELECT 1 FROM invocation i JOIN planned_release w ON w.request_id = i.request_id"
     " JOIN account a ON a.id = NEW.account_id WHERE i.id = NEW.invocation_id"
     f" AND NOT ({PLANNED_PART} AND {PLANNED_BLOCK}))",
     "the request was approved for less than this"),
    ("account_pacing_by_policy", "account", "INSERT",
     "NEW.kind = 'pacing' AND NOT EXISTS (SELECT 1 FROM policy_version p, account r WHERE p.id = " + IN_FORCE
     + " AND r.id = NEW.parent_id AND r.kind = 'root' AND p.pacing_period IS NOT NULL"
     " AND NEW.rho_cap <= r.rho_cap / 1000 * p.pacing_permille"
     " AND NEW.delta_cap <= r.delta_cap / 1000 * p.pacing_permille"
     # At midnight of a Monday or of a first: as many windows end in any time as calendar windows do.
     " AND substr(NEW.closes_at, 11) = 'T00:00:00.000000Z'"
     " AND CASE p.pacing_period WHEN 'week' THEN {monday} ELSE substr(NEW.closes_at, 9, 2) = '01' END"
     " AND {days} BETWEEN CASE p.pacing_period WHEN 'week' THEN 7 ELSE 28 END"
     " AND CASE p.pacing_period WHEN 'week' THEN 14 ELSE 62 END)",
     "a window has the share and length of the policy in force"),
    *((f"{table}_with_its_request", table, "INSERT", WRITTEN, "a plan is written with its request")
      for table in PLAN_TABLES),
]  # fmt: skip
REPLACED = [("account_pacing_by_policy", "account")]
MERGED = {"invocation_planned": "invocation_is_sound", "hold_planned": "hold_is_sound"}
"""PostgreSQL: guards that become a case of their table's one function (0003), because a run asks them again and again."""

RECORDS: dict[str, list[tuple[str, ...]]] = {
    "planned_release": [("request_id",)],
    "planned_block": [("request_id", "first_block")],
    "planned_invocation": [("request_id", "sequence")],
    "planned_instalment": [("request_id", "sequence", "first_instalment")],
}


def guards(**backend: str) -> list[tuple[str, str, str, str, str]]:
    made = [(n, t, o, rendered(c, backend), m) for n, t, o, c, m in GUARDS]
    for table in RECORDS:
        made.append((f"{table}_no_update", table, "UPDATE", "TRUE", f"{table} is append-only"))
        made.append((f"{table}_no_delete", table, "DELETE", "TRUE", f"{table} is append-only"))
    return made


def rendered(condition: str, backend: dict[str, str]) -> str:
    for name in ("plan_unfit", "days", "monday"):
        condition = condition.replace(f"{{{name}}}", backend[name])
    while "{end " in condition:
        before, _, other = condition.partition("{end ")
        inside, _, after = other.partition("}")
        at, _, days = inside.partition(" ")
        condition = before + backend["end"].replace("@at", at).replace("@days", days) + after
    return condition


def collision(table: str, keys: list[tuple[str, ...]]) -> str:
    same = (" AND ".join(f"x.{column} = NEW.{column}" for column in key) for key in keys)
    return " OR ".join(f"EXISTS (SELECT 1 FROM {table} x WHERE {key})" for key in same)


# --- SQLite --------------------------------------------------------------------------------------------------

# Functions on JSON are none that SQLite lets a trigger call (`trusted_schema=OFF`); the table `json_each` is.
INVOCATIONS = "json_each(NEW.canonical, '$.plan.invocations') j"
PARTS = "json_each(j.value, '$.instalments') k"
LISTED = "EXISTS (SELECT 1 FROM json_each(NEW.canonical, '$.plan') e WHERE e.key = '{name}' AND e.type = 'array')"
AMOUNTS = (  # whole numbers as text, which fit 64 bits
    "(SELECT count(*) FROM json_each(k.value) a WHERE a.key IN ('rho', 'delta') AND a.type = 'text'"
    " AND length(a.value) BETWEEN 1 AND 19 AND a.value NOT GLOB '*[^0-9]*'"
    " AND (length(a.value) < 19 OR a.value <= '9223372036854775807'))"
)
MEMBER = "EXISTS (SELECT 1 FROM json_each({of}) e WHERE e.key = '{name}' AND e.type = '{kind}')"
WHOLE_INVOCATION = " AND ".join((
    MEMBER.format(of="j.value", name="event", kind="object"),
    MEMBER.format(of="j.value", name="instalments", kind="array"),
    MEMBER.format(of="j.value, '$.event'", name="mechanism", kind="text"),
))  # fmt: skip
PLAN_UNFIT_SQLITE = (
    f"NOT {LISTED.format(name='blocks')} OR NOT {LISTED.format(name='invocations')}"
    " OR EXISTS (SELECT 1 FROM json_each(NEW.canonical, '$.plan.blocks') j"
    " WHERE j.type <> 'integer' OR j.value NOT BETWEEN 0 AND 2147483647)"
    f" OR EXISTS (SELECT 1 FROM {INVOCATIONS} WHERE CASE WHEN j.type = 'object' THEN NOT ({WHOLE_INVOCATION})"
    " ELSE TRUE END)"
    f" OR EXISTS (SELECT 1 FROM {INVOCATIONS}, {PARTS}"
    f" WHERE CASE WHEN k.type = 'object' THEN {AMOUNTS} <> 2 ELSE TRUE END)"
)
AMOUNT = "(SELECT CAST(a.value AS INTEGER) FROM json_each(k.value) a WHERE a.key = '{name}')"
PLAN_SQLITE = (
    "INSERT INTO planned_block (request_id, first_block, last_block) SELECT NEW.id, min(b), max(b) FROM"
    " (SELECT b, b - row_number() OVER (ORDER BY b) AS run FROM"
    " (SELECT DISTINCT j.value AS b FROM json_each(NEW.canonical, '$.plan.blocks') j)) GROUP BY run",
    "INSERT INTO planned_invocation (request_id, sequence, mechanism, event, instalments) SELECT NEW.id, j.key,"
    " (SELECT e.value FROM json_each(j.value, '$.event') e WHERE e.key = 'mechanism'),"
    " (SELECT e.value FROM json_each(j.value) e WHERE e.key = 'event'),"
    f" (SELECT count(*) FROM {PARTS}) FROM {INVOCATIONS}",
    "INSERT INTO planned_instalment (request_id, sequence, first_instalment, last_instalment, rho, delta)"
    " SELECT NEW.id, sequence, min(n), max(n), rho, delta FROM (SELECT sequence, n, rho, delta,"
    " n - row_number() OVER (PARTITION BY sequence, rho, delta ORDER BY n) AS run FROM"
    f" (SELECT j.key AS sequence, k.key AS n, {AMOUNT.format(name='rho')} AS rho, {AMOUNT.format(name='delta')} AS delta"
    f" FROM {INVOCATIONS}, {PARTS})) GROUP BY sequence, rho, delta, run",
    f"INSERT INTO planned_release (request_id, invocations) SELECT NEW.id, count(*) FROM {INVOCATIONS}",
)
PLAN_MISSING = (  # a statement that ignores conflicts would go on without a row
    "NOT EXISTS (SELECT 1 FROM planned_release w WHERE w.request_id = NEW.id AND w.invocations ="
    " (SELECT count(*) FROM planned_invocation q WHERE q.request_id = NEW.id))"
)
PLAN_NOT_WRITTEN = "the plan did not follow the request"


def arm_sqlite() -> None:
    connection = op.get_bind()
    for name, _ in REPLACED:
        op.execute(sa.text(f"DROP TRIGGER {name}"))
    made = guards(
        plan_unfit=PLAN_UNFIT_SQLITE, days="julianday(NEW.closes_at) - julianday(NEW.opens_at)",
        monday="strftime('%w', NEW.closes_at) = '1'",
        end="strftime('%Y-%m-%dT23:59:59.999999Z', substr(@at, 1, 10), '+' || (1 + @days) || ' days')",
    )  # fmt: skip
    for table, keys in RECORDS.items():
        made.append(
            (f"{table}_no_replace", table, "INSERT", collision(table, keys), f"{table} has recorded this already")
        )
    for name, table, operation, condition, message in made:
        change, _, only = operation.partition(" WHEN ")
        connection.exec_driver_sql(
            f"CREATE TRIGGER {name} BEFORE {change} ON {table}"
            f" WHEN {f'{only} AND ({condition})' if only else condition}"
            f" BEGIN SELECT RAISE(ABORT, 'almoner: {message}'); END"
        )
    write_plans_sqlite(connection)


def write_plans_sqlite(connection: sa.Connection) -> None:
    statements = "; ".join(PLAN_SQLITE)
    connection.exec_driver_sql(
        f"CREATE TRIGGER request_writes_plan AFTER INSERT ON request BEGIN {statements};"
        f" SELECT RAISE(ABORT, 'almoner: {PLAN_NOT_WRITTEN}') WHERE {PLAN_MISSING}; END"
    )


# --- PostgreSQL ----------------------------------------------------------------------------------------------

BY_KEYS = ("plan_cache_mode = force_generic_plan", "enable_hashjoin = off", "enable_mergejoin = off")
MOMENT = "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{6}Z$"
PLAN_UNFIT_POSTGRESQL = (
    "CASE WHEN pg_input_is_valid(NEW.canonical, 'json') THEN"
    " json_typeof(NEW.canonical::json #> '{plan,blocks}') IS DISTINCT FROM 'array'"
    " OR json_typeof(NEW.canonical::json #> '{plan,invocations}') IS DISTINCT FROM 'array' ELSE TRUE END"
)
PLAN_POSTGRESQL = (
    "DECLARE plan json := NEW.canonical::json -> 'plan'; BEGIN"
    " IF EXISTS (SELECT 1 FROM json_array_elements(plan -> 'blocks') j WHERE json_typeof(j.value) <> 'number')"
    " OR EXISTS (SELECT 1 FROM json_array_elements(plan -> 'invocations') j"
    " WHERE json_typeof(j.value #> '{event,mechanism}') IS DISTINCT FROM 'string')"
    " OR EXISTS (SELECT 1 FROM json_array_elements(plan -> 'invocations') j,"
    " json_array_elements(j.value -> 'instalments') k, (VALUES ('rho'), ('delta')) a(name)"
    " WHERE json_typeof(k.value -> a.name) IS DISTINCT FROM 'string' OR k.value ->> a.name !~ '^[0-9]{1,19}$')"
    " THEN RAISE data_exception; END IF;"
    " INSERT INTO planned_block (request_id, first_block, last_block) SELECT NEW.id, min(b), max(b) FROM"
    " (SELECT b, b - row_number() OVER (ORDER BY b) AS run FROM"
    " (SELECT DISTINCT j.value::integer AS b FROM json_array_elements_text(plan -> 'blocks') j) d) e GROUP BY run;"
    " INSERT INTO planned_invocation (request_id, sequence, mechanism, event, instalments)"
    " SELECT NEW.id, j.n - 1, j.value #>> '{event,mechanism}', (j.value -> 'event')::text,"
    " json_array_length(j.value -> 'instalments')"
    " FROM json_array_elements(plan -> 'invocations') WITH ORDINALITY j(value, n);"
    " INSERT INTO planned_instalment (request_id, sequence, first_instalment, last_instalment, rho, delta)"
    " SELECT NEW.id, sequence, min(n), max(n), rho, delta FROM (SELECT sequence, n, rho, delta,"
    " n - row_number() OVER (PARTITION BY sequence, rho, delta ORDER BY n) AS run FROM"
    " (SELECT j.n - 1 AS sequence, k.n - 1 AS n, (k.value ->> 'rho')::bigint AS rho,"
    " (k.value ->> 'delta')::bigint AS delta FROM json_array_elements(plan -> 'invocations') WITH ORDINALITY j(value, n),"
    " json_array_elements(j.value -> 'instalments') WITH ORDINALITY k(value, n)) d) e"
    " GROUP BY sequence, rho, delta, run;"
    " INSERT INTO planned_release (request_id, invocations)"
    " SELECT NEW.id, json_array_length(plan -> 'invocations');"
    f" IF {PLAN_MISSING} THEN RAISE EXCEPTION 'almoner: {PLAN_NOT_WRITTEN}' USING ERRCODE = '23514'; END IF;"
    " RETURN NULL;"
    " EXCEPTION WHEN data_exception OR not_null_violation OR check_violation THEN"
    " RAISE EXCEPTION 'almoner: a request says its plan' USING ERRCODE = '23514'; END"
)


def arm_postgresql() -> None:
    path = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema()) || ', pg_temp'"))
    for name, table in REPLACED:
        op.execute(sa.text(f"DROP TRIGGER {name} ON {table}"))
        op.execute(sa.text(f"DROP FUNCTION {name}()"))
    made = guards(
        plan_unfit=PLAN_UNFIT_POSTGRESQL,
        days=f"CASE WHEN {written('opens_at')} AND {written('closes_at')} THEN"
        " extract(epoch FROM (left(NEW.closes_at, 26)::timestamp - left(NEW.opens_at, 26)::timestamp)) / 86400 END",
        monday="extract(isodow FROM left(NEW.closes_at, 10)::date) = 1",
        end="(to_char(left(@at, 10)::date::timestamp + (1 + @days) * interval '1 day', 'YYYY-MM-DD')"
        " || 'T23:59:59.999999Z')",
    )  # fmt: skip
    for name, table, operation, condition, message in made:
        if name in MERGED:
            merge(MERGED[name], condition, message, path)
            continue
        denies = (
            f"BEGIN IF ({condition}) THEN RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514'; END IF;"
            f" RETURN {'OLD' if operation == 'DELETE' else 'NEW'}; END"
        )
        change, _, only = operation.partition(" WHEN ")
        trigger(name, table, f"BEFORE {change}", "FOR EACH ROW" + (f" WHEN ({only})" if only else ""), denies, path)
    trigger("request_writes_plan", "request", "AFTER INSERT", "FOR EACH ROW", PLAN_POSTGRESQL, path)
    for table in RECORDS:
        denies = f"BEGIN RAISE EXCEPTION 'almoner: {table} is append-only' USING ERRCODE = '23514'; END"
        trigger(f"{table}_no_truncate", table, "BEFORE TRUNCATE", "FOR EACH STATEMENT", denies, path)


def written(column: str) -> str:
    return f"(NEW.{column} ~ '{MOMENT}' AND pg_input_is_valid(left(NEW.{column}, 26), 'timestamp'))"


def merge(name: str, condition: str, message: str, path: str) -> None:
    """One more case of a table's one guard, behind those that it has."""
    query = "SELECT p.prosrc FROM pg_proc p WHERE p.proname = :name AND p.pronamespace = current_schema()::regnamespace"
    source = op.get_bind().execute(sa.text(query), {"name": name}).scalar_one()
    end = " END; IF denied IS NOT NULL"
    if source.count(end) != 1:
        raise ValueError(f"{name} is not the guard it was")
    body = source.replace(end, f" WHEN {condition} THEN 'almoner: {message}'{end}")
    function("CREATE OR REPLACE", name, "() RETURNS trigger", "LANGUAGE plpgsql", body, path)


def function(create: str, name: str, signature: str, properties: str, source: str, path: str) -> None:
    settings = " ".join(f"SET {setting}" for setting in (f"search_path = {path}", *BY_KEYS))
    made = f"{create} FUNCTION {name}{signature} {properties} {settings} AS $$ {source} $$"
    op.execute(sa.text(made.replace(":", "\\:")))


def trigger(name: str, table: str, when: str, scope: str, source: str, path: str) -> None:
    function("CREATE", name, "() RETURNS trigger", "LANGUAGE plpgsql", source, path)
    op.execute(sa.text(f"CREATE TRIGGER {name} {when} ON {table} {scope} EXECUTE FUNCTION {name}()"))
