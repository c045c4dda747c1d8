"""Who has seen unprotected figures of an account, and what a policy makes of that; what was erased of a dataset.

History must not move: this file imports no project code and is never edited once released. Internal evaluations that
were made before are marked too: the links of the chain tell by whom.
"""

import sqlalchemy as sa
from alembic import op

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    tables()
    mark_those_who_looked()
    if op.get_bind().dialect.name == "sqlite":
        arm_sqlite()
    else:
        arm_postgresql()


def tables() -> None:
    op.create_table(
        "internal_view",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("account_id", ID, nullable=False),
        sa.Column("artifact_id", ID, nullable=False),
        sa.Column("actor_id", ID, nullable=False),
        sa.Column("kind", sa.String(length=255), nullable=False),
        sa.Column("at", sa.String(length=27), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_internal_view"),
        sa.CheckConstraint("kind IN ('computed', 'shown')", name=op.f("ck_internal_view_kind")),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name="fk_internal_view_account_id"),
        sa.ForeignKeyConstraint(["artifact_id"], ["artifact.id"], name="fk_internal_view_artifact_id"),
        sa.ForeignKeyConstraint(["actor_id"], ["principal.id"], name="fk_internal_view_actor_id"),
    )
    op.create_index("ix_internal_view_account_id", "internal_view", ["account_id"])
    erasures()
    for table in ("policy_version", "policy_rule"):
        op.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN bars_viewers BOOLEAN"))


def key(table: str) -> tuple[sa.Column[int], sa.PrimaryKeyConstraint]:
    return sa.Column("id", ID, autoincrement=True, nullable=False), sa.PrimaryKeyConstraint("id", name=f"pk_{table}")


def points(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{to}.id"], name=f"fk_{table}_{column}")


def erasures() -> None:
    op.create_table(
        "erasure", *key("erasure"), sa.Column("dataset_id", ID, nullable=False),
        sa.Column("scope", sa.String(length=255), nullable=False), sa.Column("version_id", ID, nullable=True),
        sa.Column("unit_mark", sa.String(length=64), nullable=True), sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor_id", ID, nullable=False), sa.Column("at", sa.String(length=27), nullable=False),
        sa.CheckConstraint(
            "(scope = 'unit' AND unit_mark IS NOT NULL AND version_id IS NULL)"
            " OR (scope = 'version' AND unit_mark IS NULL AND version_id IS NOT NULL)"
            " OR (scope = 'all' AND unit_mark IS NULL AND version_id IS NULL)",
            name=op.f("ck_erasure_scope"),
        ),
        sa.CheckConstraint("length(trim(reason)) > 0", name=op.f("ck_erasure_reason")),
        points("erasure", "dataset_id", "dataset"), points("erasure", "version_id", "dataset_version"),
        points("erasure", "actor_id", "principal"),
    )  # fmt: skip
    op.create_index("ix_erasure_dataset_id", "erasure", ["dataset_id"])
    op.create_table(
        "erased_version", *key("erased_version"), sa.Column("erasure_id", ID, nullable=False),
        sa.Column("version_id", ID, nullable=False), sa.Column("manifest_mark", sa.String(length=64), nullable=True),
        points("erased_version", "erasure_id", "erasure"), points("erased_version", "version_id", "dataset_version"),
        sa.UniqueConstraint("erasure_id", "version_id", name="uq_erased_version_erasure_id_version_id"),
    )  # fmt: skip
    op.create_index("ix_erased_version_version_id", "erased_version", ["version_id"])
    op.create_table(
        "erasure_end", *key("erasure_end"), sa.Column("erasure_id", ID, nullable=False),
        sa.Column("actor_id", ID, nullable=False), sa.Column("at", sa.String(length=27), nullable=False),
        points("erasure_end", "erasure_id", "erasure"), points("erasure_end", "actor_id", "principal"),
        sa.UniqueConstraint("erasure_id", name="uq_erasure_end_erasure_id"),
    )  # fmt: skip


def mark_those_who_looked() -> None:
    op.execute(
        sa.text(
            "INSERT INTO internal_view (account_id, artifact_id, actor_id, kind, at)"
            " SELECT d.account_id, f.id, p.id, 'computed', y.at FROM audit y JOIN request r ON r.id = y.request_id"
            " JOIN dataset d ON d.id = r.dataset_id JOIN principal p ON p.name = y.actor"
            " JOIN artifact f ON f.request_id = r.id AND f.attempt = (SELECT max(g.attempt) FROM artifact g"
            " WHERE g.request_id = r.id) WHERE y.kind = 'evaluation.internal' AND d.governed ORDER BY y.seq"
        )
    )


# --- What the database itself refuses -----------------------------------------------------------------------
# As in 0002: a guard is a condition under which a change is denied; {stale} is written differently by the backends.

STATE = (
    "coalesce((SELECT t.to_state FROM transition t WHERE t.request_id = r.id ORDER BY t.number DESC LIMIT 1), 'draft')"
)


def seen(who: str, dataset: str) -> str:
    return (
        "EXISTS (SELECT 1 FROM internal_view v JOIN dataset o ON o.account_id = v.account_id"
        f" WHERE o.id = {dataset} AND v.actor_id IN ({who}))"
    )


def bars(policy: str, dataset: str) -> str:
    """The strictest rule for any dataset of the account: they protect the same people."""
    return (
        "EXISTS (SELECT 1 FROM policy_version p JOIN dataset o ON TRUE JOIN dataset y ON y.account_id = o.account_id"
        " LEFT JOIN policy_rule q ON q.policy_id = p.id AND q.dataset = y.name"
        f" WHERE p.id = {policy} AND o.id = {dataset} AND coalesce(q.bars_viewers, p.bars_viewers, FALSE))"
    )


def role(who: str, name: str, at: str = "NEW.at") -> str:
    return (
        f"EXISTS (SELECT 1 FROM role_grant g WHERE g.principal_id = {who} AND g.role = '{name}' AND g.valid_from <= {at}"
        f" AND (g.valid_to IS NULL OR g.valid_to > {at})"
        " AND NOT EXISTS (SELECT 1 FROM role_revocation v WHERE v.grant_id = g.id))"
    )


def erased(version: str) -> str:
    return f"EXISTS (SELECT 1 FROM erased_version x WHERE x.version_id = {version} AND x.manifest_mark IS NULL)"


NOBODY_ERASES = f"NOT ({role('NEW.actor_id', 'steward')} OR {role('NEW.actor_id', 'admin')})"
GONE = "that version of the data was erased"
BARRED = "who has seen unprotected figures of the account is barred by the policy"

GUARDS: list[tuple[str, str, str, str, str]] = [
    # name, table, operation, denied when, message
    ("internal_view_decided", "internal_view", "INSERT",
     "NOT EXISTS (SELECT 1 FROM artifact f JOIN request r ON r.id = f.request_id JOIN dataset d ON d.id = r.dataset_id"
     " WHERE f.id = NEW.artifact_id AND d.account_id = NEW.account_id AND d.governed"
     " AND (EXISTS (SELECT 1 FROM publication p WHERE p.artifact_id = f.id)"
     f" OR {STATE} = 'discarded'))",
     "unprotected figures of governed data are seen after the publish decision, on their own account"),
    ("internal_view_between_releases", "internal_view", "INSERT",
     "EXISTS (SELECT 1 FROM request r JOIN dataset d ON d.id = r.dataset_id WHERE d.account_id = NEW.account_id"
     f" AND d.governed AND {STATE} IN ('running', 'produced'))",
     "a release of the account is running or waits at the publish gate"),
    ("internal_view_now", "internal_view", "INSERT", "{stale}", "the clock went backwards"),
    ("evaluation_viewed", "evaluation", "INSERT",
     "NEW.exposure = 'internal' AND EXISTS (SELECT 1 FROM artifact f JOIN request r ON r.id = f.request_id"
     " JOIN dataset d ON d.id = r.dataset_id WHERE f.id = NEW.artifact_id AND d.governed"
     f" AND (EXISTS (SELECT 1 FROM publication p WHERE p.artifact_id = f.id) OR {STATE} = 'discarded'))"
     " AND NOT EXISTS (SELECT 1 FROM internal_view v WHERE v.artifact_id = NEW.artifact_id)",
     "who sees unprotected figures is recorded before they are"),
    ("approval_not_by_viewer", "approval", "INSERT",
     "EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id AND "
     + seen("NEW.approver_id, NEW.on_behalf_of", "r.dataset_id") + " AND " + bars("r.policy_id", "r.dataset_id")
     + ") OR EXISTS (SELECT 1 FROM motion m WHERE m.id = NEW.motion_id AND "
     + seen("NEW.approver_id, NEW.on_behalf_of", "m.dataset_id") + " AND " + bars("m.policy_id", "m.dataset_id") + ")",
     BARRED),
    ("request_not_by_viewer", "request", "INSERT",
     seen("NEW.requester_id", "NEW.dataset_id") + " AND " + bars("NEW.policy_id", "NEW.dataset_id"), BARRED),
    ("motion_not_by_viewer", "motion", "INSERT",
     seen("NEW.proposer_id", "NEW.dataset_id") + " AND " + bars("NEW.policy_id", "NEW.dataset_id"), BARRED),
    ("erasure_by_steward", "erasure", "INSERT", NOBODY_ERASES, "only a steward or an admin erases"),
    ("erasure_own_version", "erasure", "INSERT",
     "NEW.version_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM dataset_version w WHERE w.id = NEW.version_id"
     " AND w.dataset_id = NEW.dataset_id)",
     "a version is erased of its own dataset"),
    ("erasure_between_releases", "erasure", "INSERT",
     "EXISTS (SELECT 1 FROM request r WHERE r.dataset_id = NEW.dataset_id"
     f" AND {STATE} IN ('running', 'produced'))",
     "a release of the dataset is running or waits at the publish gate"),
    ("erasure_now", "erasure", "INSERT", "{stale}", "the clock went backwards"),
    ("erased_version_of_erasure", "erased_version", "INSERT",
     "NOT EXISTS (SELECT 1 FROM erasure e JOIN dataset_version w ON w.dataset_id = e.dataset_id"
     " WHERE e.id = NEW.erasure_id AND w.id = NEW.version_id AND (e.scope <> 'version' OR e.version_id = w.id)"
     " AND ((e.scope = 'unit') = (NEW.manifest_mark IS NOT NULL)))"
     " OR EXISTS (SELECT 1 FROM erasure_end n WHERE n.erasure_id = NEW.erasure_id)",
     "an erasure concerns versions of its dataset, and says what is left of each"),
    ("erased_version_not_again", "erased_version", "INSERT", erased("NEW.version_id"), GONE),
    ("erasure_end_by_steward", "erasure_end", "INSERT", NOBODY_ERASES, "only a steward or an admin erases"),
    ("erasure_end_now", "erasure_end", "INSERT", "{stale}", "the clock went backwards"),
    ("request_of_erased", "request", "INSERT", erased("NEW.version_id"), GONE),
    ("approval_of_erased", "approval", "INSERT",
     "NEW.gate = 'spend' AND NEW.decision = 'approve' AND EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id"
     f" AND {erased('r.version_id')})",
     GONE),
    ("transition_of_erased", "transition", "INSERT",
     "NEW.to_state = 'running' AND EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id"
     f" AND {erased('r.version_id')})",
     GONE),
]  # fmt: skip

RECORDS: dict[str, list[tuple[str, ...]]] = {
    "internal_view": [("id",)],
    "erasure": [("id",)],
    "erased_version": [("id",), ("erasure_id", "version_id")],
    "erasure_end": [("id",), ("erasure_id",)],
}
NEWEST = "(SELECT y.at FROM audit y WHERE y.seq = (SELECT k.seq FROM audit_head k))"
TIME = '\'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\''


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
    made = guards(f"NEW.at < {NEWEST}")
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

BY_KEYS = ("plan_cache_mode = force_generic_plan", "enable_hashjoin = off", "enable_mergejoin = off")
QUEUE = (  # no run of the account begins and no release of it is produced while somebody begins to look
    " IF kind = 'internal_view' THEN PERFORM 1 FROM request r WHERE r.dataset_id IN (SELECT d.id FROM dataset d"
    " WHERE d.account_id IN (SELECT (g.value ->> 'account_id')::bigint FROM jsonb_array_elements(given) g))"
    " ORDER BY r.id FOR NO KEY UPDATE; END IF;"
    # Nor does a version come in while somebody erases: who takes one in locks the marks of units (0005).
    " IF kind = 'erasure' THEN PERFORM 1 FROM request r WHERE r.dataset_id IN (SELECT (g.value ->> 'dataset_id')::bigint"
    " FROM jsonb_array_elements(given) g) ORDER BY r.id FOR NO KEY UPDATE;"
    " LOCK TABLE unit_mark IN SHARE ROW EXCLUSIVE MODE; END IF;"
)  # fmt: skip


def arm_postgresql() -> None:
    path = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema()) || ', pg_temp'"))
    tolerated = f"to_char(({NEWEST})::timestamptz AT TIME ZONE 'UTC' - interval '5 minutes', {TIME})"
    for name, table, operation, condition, message in guards(f"NEW.at < {tolerated}"):
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
