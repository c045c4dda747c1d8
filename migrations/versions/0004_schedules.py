"""Schedules: when a standing authorisation is drawn on, each moment at which that was due, and what was decided then.

History must not move: this file imports no project code and is never edited once released. On PostgreSQL the door to
the tables learns four more names; it is put together from the text that the database has, which `migrations.upgrade`
has compared with the earlier revisions before.
"""

import sqlalchemy as sa
from alembic import op

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    tables()
    if op.get_bind().dialect.name == "sqlite":
        arm_sqlite()
    else:
        arm_postgresql()


# --- Tables --------------------------------------------------------------------------------------------------


def key(table: str) -> tuple[sa.Column[int], sa.PrimaryKeyConstraint]:
    return sa.Column("id", ID, autoincrement=True, nullable=False), sa.PrimaryKeyConstraint("id", name=f"pk_{table}")


def points(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{to}.id"], name=f"fk_{table}_{column}")


def said(table: str, column: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"length(trim({column})) > 0", name=op.f(f"ck_{table}_{column}"))


def line(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(length=255), nullable=null)


def moment(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String(length=27), nullable=False)


def body(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def ref(name: str, *, null: bool = False) -> sa.Column[int]:
    return sa.Column(name, ID, nullable=null)


def tables() -> None:
    op.create_table(
        "schedule", *key("schedule"), ref("dataset_id"), ref("standing_id"), line("kind"), body("rule"), line("zone"),
        moment("starts_at"), body("reason"), moment("created_at"), ref("created_by"),
        sa.CheckConstraint("kind IN ('cron', 'interval', 'rrule')", name=op.f("ck_schedule_kind")),
        said("schedule", "rule"), said("schedule", "reason"), points("schedule", "dataset_id", "dataset"),
        points("schedule", "standing_id", "motion"), points("schedule", "created_by", "principal"),
    )  # fmt: skip
    op.create_index("ix_schedule_dataset_id", "schedule", ["dataset_id"])
    op.create_table(
        "schedule_change", *key("schedule_change"), ref("schedule_id"),
        sa.Column("number", sa.Integer(), nullable=False), line("kind"), body("reason"), moment("at"), ref("actor_id"),
        sa.CheckConstraint("kind IN ('paused', 'resumed', 'ended')", name=op.f("ck_schedule_change_kind")),
        said("schedule_change", "reason"), points("schedule_change", "schedule_id", "schedule"),
        points("schedule_change", "actor_id", "principal"),
        sa.UniqueConstraint("schedule_id", "number", name="uq_schedule_change_schedule_id_number"),
    )  # fmt: skip
    op.create_table(
        "schedule_slot", *key("schedule_slot"), ref("schedule_id"), moment("slot"), ref("request_id", null=True),
        line("skipped", null=True), body("detail"), moment("at"), ref("actor_id"),
        sa.CheckConstraint("(request_id IS NULL) <> (skipped IS NULL)", name=op.f("ck_schedule_slot_decided")),
        points("schedule_slot", "schedule_id", "schedule"), points("schedule_slot", "request_id", "request"),
        points("schedule_slot", "actor_id", "principal"),
        sa.UniqueConstraint("schedule_id", "slot", name="uq_schedule_slot_schedule_id_slot"),
        sa.UniqueConstraint("request_id", name="uq_schedule_slot_request_id"),
    )  # fmt: skip
    op.create_table(
        "slot_end", *key("slot_end"), ref("slot_id"), line("reason"), body("detail"), moment("at"), ref("actor_id"),
        said("slot_end", "reason"), points("slot_end", "slot_id", "schedule_slot"),
        points("slot_end", "actor_id", "principal"), sa.UniqueConstraint("slot_id", name="uq_slot_end_slot_id"),
    )  # fmt: skip


# --- What the database itself refuses -----------------------------------------------------------------------
# As in 0002: a guard is a condition under which a change is denied; {stale}: the time of a row is older than the newest
# link of the chain.


def role(who: str, name: str, at: str) -> str:
    return (
        f"EXISTS (SELECT 1 FROM role_grant g WHERE g.principal_id = {who} AND g.role = '{name}' AND g.valid_from <= {at}"
        f" AND (g.valid_to IS NULL OR g.valid_to > {at})"
        " AND NOT EXISTS (SELECT 1 FROM role_revocation v WHERE v.grant_id = g.id))"
    )


LAST = "(SELECT c.{column} FROM schedule_change c WHERE c.schedule_id = NEW.schedule_id ORDER BY c.number DESC LIMIT 1)"
LAST_KIND = f"coalesce({LAST.format(column='kind')}, 'resumed')"
STATE = (
    "coalesce((SELECT t.to_state FROM transition t WHERE t.request_id = o.request_id"
    " ORDER BY t.number DESC LIMIT 1), 'draft')"
)
MAKER = "EXISTS (SELECT 1 FROM schedule s WHERE s.id = NEW.schedule_id AND s.created_by = NEW.actor_id)"
OWN_PAUSE = f"(NEW.kind <> 'resumed' OR {LAST.format(column='actor_id')} = NEW.actor_id)"

GUARDS: list[tuple[str, str, str, str, str]] = [
    # name, table, operation, denied when, message
    ("schedule_by_analyst", "schedule", "INSERT",
     f"NOT {role('NEW.created_by', 'analyst', 'NEW.created_at')}",
     "only an analyst makes a schedule"),
    ("schedule_of_its_dataset", "schedule", "INSERT",
     "NOT EXISTS (SELECT 1 FROM motion m WHERE m.id = NEW.standing_id AND m.kind = 'standing'"
     " AND m.dataset_id = NEW.dataset_id)",
     "a schedule draws on a standing authorisation of its own dataset"),
    ("schedule_change_in_turn", "schedule_change", "INSERT",
     "NOT (NEW.number = 1 + (SELECT count(*) FROM schedule_change c WHERE c.schedule_id = NEW.schedule_id)"
     f" AND CASE NEW.kind WHEN 'paused' THEN {LAST_KIND} = 'resumed' WHEN 'resumed' THEN {LAST_KIND} = 'paused'"
     f" ELSE {LAST_KIND} <> 'ended' END)",
     "the schedule is not where this change begins"),
    ("schedule_change_by_right", "schedule_change", "INSERT",
     f"NOT ({role('NEW.actor_id', 'steward', 'NEW.at')} OR ({MAKER} AND coalesce({OWN_PAUSE}, FALSE)))",
     "only a steward, or who made it, changes a schedule; what somebody else has paused a steward resumes"),
    ("schedule_change_now", "schedule_change", "INSERT", "{stale}", "the clock went backwards"),
    ("schedule_slot_by_analyst", "schedule_slot", "INSERT",
     f"NOT {role('NEW.actor_id', 'analyst', 'NEW.at')}",
     "only an analyst asks for what is due"),
    ("schedule_slot_active", "schedule_slot", "INSERT",
     f"{LAST_KIND} <> 'resumed'",
     "the schedule is paused or over"),
    ("schedule_slot_due", "schedule_slot", "INSERT",
     "length(NEW.slot) <> 27 OR NEW.slot > NEW.at"
     " OR NOT EXISTS (SELECT 1 FROM schedule s WHERE s.id = NEW.schedule_id AND s.starts_at <= NEW.slot)",
     "a slot is not taken before it has come"),
    ("schedule_slot_forward", "schedule_slot", "INSERT",
     "EXISTS (SELECT 1 FROM schedule_slot o WHERE o.schedule_id = NEW.schedule_id AND o.slot >= NEW.slot)",
     "that slot, or a later one, is decided"),
    ("schedule_slot_own_request", "schedule_slot", "INSERT",
     "NEW.request_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM request r JOIN schedule s"
     " ON s.standing_id = r.standing_id WHERE r.id = NEW.request_id AND s.id = NEW.schedule_id"
     " AND r.requester_id = NEW.actor_id AND r.created_at >= NEW.slot)",
     "a slot is for a request under the authorisation of its schedule"),
    ("schedule_slot_now", "schedule_slot", "INSERT", "{stale}", "the clock went backwards"),
    ("slot_end_of_a_run", "slot_end", "INSERT",
     "NOT EXISTS (SELECT 1 FROM schedule_slot o WHERE o.id = NEW.slot_id AND o.request_id IS NOT NULL"
     f" AND {STATE} IN ('submitted', 'approved'))",
     "what runs or has run is not given up"),
    ("slot_end_by_runner", "slot_end", "INSERT",
     f"NOT {role('NEW.actor_id', 'runner', 'NEW.at')}",
     "only a runner gives a run up"),
    ("slot_end_now", "slot_end", "INSERT", "{stale}", "the clock went backwards"),
]  # fmt: skip

RECORDS: dict[str, list[tuple[str, ...]]] = {
    "schedule": [("id",)],
    "schedule_change": [("id",), ("schedule_id", "number")],
    "schedule_slot": [("id",), ("schedule_id", "slot"), ("request_id",)],
    "slot_end": [("id",), ("slot_id",)],
}
NEWEST = "(SELECT y.at FROM audit y WHERE y.seq = (SELECT k.seq FROM audit_head k))"


def guards(stale: str) -> list[tuple[str, str, str, str, str]]:
    made = [(n, t, o, c.replace("{stale}", stale), m) for n, t, o, c, m in GUARDS]
    for table in RECORDS:
        made.append((f"{table}_no_update", table, "UPDATE", "TRUE", f"{table} is append-only"))
        made.append((f"{table}_no_delete", table, "DELETE", "TRUE", f"{table} is append-only"))
    return made


def collision(table: str, keys: list[tuple[str, ...]]) -> str:
    same = (" AND ".join(f"x.{column} = NEW.{column}" for column in key) for key in keys)
    return " OR ".join(f"EXISTS (SELECT 1 FROM {table} x WHERE {key})" for key in same)


def arm_sqlite() -> None:
    made = guards(stale=f"NEW.at < {NEWEST}")
    for table, keys in RECORDS.items():
        made.append(
            (f"{table}_no_replace", table, "INSERT", collision(table, keys), f"{table} has recorded this already")
        )
    for name, table, operation, condition, message in made:
        op.execute(
            sa.text(
                f"CREATE TRIGGER {name} BEFORE {operation} ON {table} WHEN {condition} "
                f"BEGIN SELECT RAISE(ABORT, 'almoner: {message}'); END"
            )
        )


# --- PostgreSQL: the one door -------------------------------------------------------------------------------

TIME = '\'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\''
BY_KEYS = ("plan_cache_mode = force_generic_plan", "enable_hashjoin = off", "enable_mergejoin = off")
ROWS = "SELECT (g.value ->> '{column}')::bigint FROM jsonb_array_elements(given) g"
QUEUE = (  # who changes a schedule and who decides what is due wait for each other, before anything else is locked
    " IF kind IN ('schedule_change', 'schedule_slot') THEN PERFORM 1 FROM schedule s WHERE s.id IN ("
    + ROWS.format(column="schedule_id") + ") ORDER BY s.id FOR NO KEY UPDATE;"
    " ELSIF kind = 'slot_end' THEN PERFORM 1 FROM request r WHERE r.id IN (SELECT o.request_id FROM schedule_slot o"
    " WHERE o.id IN (" + ROWS.format(column="slot_id") + ")) ORDER BY r.id FOR NO KEY UPDATE; END IF;"
)  # fmt: skip
LOCK = (
    "BEGIN IF NOT almoner_owner() AND almoner_principal() IS NULL THEN"
    " RAISE EXCEPTION 'almoner: the ledger knows nobody with this login' USING ERRCODE = '23514'; END IF;"
    " PERFORM 1 FROM schedule s WHERE s.id = number FOR NO KEY UPDATE; END"
)


def arm_postgresql() -> None:
    path = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema()) || ', pg_temp'"))
    tolerated = f"to_char(({NEWEST})::timestamptz AT TIME ZONE 'UTC' - interval '5 minutes', {TIME})"
    for name, table, operation, condition, message in guards(stale=f"NEW.at < {tolerated}"):
        denies = (
            f"BEGIN IF {condition} THEN RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514'; END IF;"
            f" RETURN {'OLD' if operation == 'DELETE' else 'NEW'}; END"
        )
        trigger(name, table, f"BEFORE {operation}", "FOR EACH ROW", denies, path)
    for table in RECORDS:
        denies = f"BEGIN RAISE EXCEPTION 'almoner: {table} is append-only' USING ERRCODE = '23514'; END"
        trigger(f"{table}_no_truncate", table, "BEFORE TRUNCATE", "FOR EACH STATEMENT", denies, path)
        told_or_denied(table, path)
    known = "".join(f"'{table}', " for table in RECORDS)
    widened("almoner_record", "(kind text, given jsonb) RETURNS SETOF jsonb", "LANGUAGE plpgsql SECURITY DEFINER",
            "<> ALL (ARRAY[", known, path)  # fmt: skip
    widened("almoner_queue", "(kind text, given jsonb) RETURNS void", "LANGUAGE plpgsql", "BEGIN", QUEUE, path)
    function("CREATE", "almoner_lock_schedule", "(number bigint) RETURNS void", "LANGUAGE plpgsql SECURITY DEFINER",
             LOCK, path)  # fmt: skip
    op.execute(sa.text("REVOKE ALL ON FUNCTION almoner_lock_schedule(bigint) FROM PUBLIC"))


def widened(name: str, signature: str, properties: str, after: str, more: str, path: str) -> None:
    """The function as the database has it, with some more words after the first place where it says `after`."""
    query = "SELECT p.prosrc FROM pg_proc p WHERE p.proname = :name AND p.pronamespace = current_schema()::regnamespace"
    source = op.get_bind().execute(sa.text(query), {"name": name}).scalar_one()
    if after not in source:
        raise ValueError(f"{name} is not the function it was")
    function("CREATE OR REPLACE", name, signature, properties, source.replace(after, after + more, 1), path)


def told_or_denied(table: str, path: str) -> None:
    """At the end of a transaction that changed `table`, the newest link of the chain must be of that transaction."""
    denies = (
        "BEGIN IF NOT almoner_owner() AND (SELECT y.xmin FROM audit y WHERE y.seq = (SELECT k.seq FROM audit_head k))"
        " IS DISTINCT FROM pg_current_xact_id()::xid"
        " THEN RAISE EXCEPTION 'almoner: every change is told in the chain' USING ERRCODE = '23514'; END IF;"
        " RETURN NULL; END"
    )
    name = f"{table}_is_told"
    function("CREATE", name, "() RETURNS trigger", "LANGUAGE plpgsql SECURITY DEFINER", denies, path)
    op.execute(
        sa.text(
            f"CREATE CONSTRAINT TRIGGER {name} AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED"
            f" FOR EACH ROW EXECUTE FUNCTION {name}()"
        )
    )


def function(create: str, name: str, signature: str, properties: str, source: str, path: str) -> None:
    settings = " ".join(f"SET {setting}" for setting in (f"search_path = {path}", *BY_KEYS))
    made = f"{create} FUNCTION {name}{signature} {properties} {settings} AS $$ {source} $$"
    op.execute(sa.text(made.replace(":", "\\:")))


def trigger(name: str, table: str, when: str, scope: str, source: str, path: str) -> None:
    function("CREATE", name, "() RETURNS trigger", "LANGUAGE plpgsql", source, path)
    op.execute(sa.text(f"CREATE TRIGGER {name} {when} ON {table} {scope} EXECUTE FUNCTION {name}()"))
