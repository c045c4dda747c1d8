"""Links that the database writes from the rows it records, and that commit to all they say.

Every row of the ledger is named by one link of the chain, with the SHA-256 of its content; who, what and which dataset a
link tells comes from the row. On PostgreSQL nobody may append a link: a door puts down what it has recorded, `almoner_link`
makes links of that, and a transaction that leaves something untold is refused. On SQLite `models_db.linking` does the same
with the same views.

History must not move: this file imports no project code and is never edited once released. What a ledger holds already is
told as a whole, in one link `ledger.upgraded`. A later revision with a table of its own adds its view (`VIEWS`) and its
rank (`RANKS`).
"""

import hashlib
import json
import re
import secrets
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0009"
down_revision = "0008"
DROPPED = (  # doors to which a link's kind and body were handed
    "almoner_append(who text, kind text, dataset text, request_id integer, body text)",
    "almoner_claim_units(root bigint, marks bytea[], cohorts integer[])",
    "almoner_enter(holds bigint[], kinds text[], at text, actor bigint, who text, told text, dataset text,"
    " request integer, body text)",
    "almoner_reserve(plan jsonb, places integer[], accounts bigint[], instalments integer[], rhos bigint[],"
    " deltas bigint[], at text, actor bigint, who text, told text, dataset text, request integer, body text)",
)
gives_up = tuple(name[:63] for name in DROPPED)  # as the inventory has their names


def upgrade() -> None:
    postgresql = op.get_bind().dialect.name == "postgresql"
    tables()
    columns()
    first_caps()
    asked = ASKED if postgresql else "x.canonical AS asked"
    for table, query in VIEWS.items():
        op.execute(sa.text(f"CREATE VIEW link_of_{table} AS {query.replace('{asked}', asked)}".replace(":", "\\:")))
    if postgresql:
        arm_postgresql()
    else:
        arm_sqlite()
    tell_what_is_there()


# --- Tables --------------------------------------------------------------------------------------------------


def line(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(length=255), nullable=null)


def moment(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String(length=27), nullable=False)


def digest(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String(64), nullable=False)


def key(table: str) -> tuple[sa.Column[int], sa.PrimaryKeyConstraint]:
    return sa.Column("id", ID, autoincrement=True, nullable=False), sa.PrimaryKeyConstraint("id", name=f"pk_{table}")


def points(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{to}.id"], name=f"fk_{table}_{column}")


def tables() -> None:
    op.create_table(
        "unit_claim", *key("unit_claim"), sa.Column("account_id", ID, nullable=True), digest("salt"), digest("digest"),
        moment("created_at"), sa.Column("created_by", ID, nullable=True), points("unit_claim", "account_id", "account"),
        points("unit_claim", "created_by", "principal"),
    )  # fmt: skip
    op.create_table(
        "restoration", *key("restoration"), moment("taken_at"), sa.Column("link", ID, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False), moment("at"), sa.Column("actor_id", ID, nullable=False),
        sa.CheckConstraint("length(trim(reason)) > 0", name=op.f("ck_restoration_reason")),
        points("restoration", "actor_id", "principal"),
    )  # fmt: skip
    op.create_table(
        "twin_attack", *key("twin_attack"), line("dataset"), sa.Column("request_id", ID, nullable=True),
        digest("configuration"), digest("result"), sa.Column("attacks", sa.Text(), nullable=False), moment("at"),
        sa.Column("actor_id", ID, nullable=False), points("twin_attack", "request_id", "request"),
        points("twin_attack", "actor_id", "principal"),
    )  # fmt: skip
    op.create_table(
        "pending_link", *key("pending_link"), line("kind"), sa.Column("row_id", ID, nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False), sa.Column("account_id", ID, nullable=True),
    )  # fmt: skip


ADDED = [
    # table, column, type, points to
    ("principal", "created_by", "{id}", "principal"),
    ("account", "created_by", "{id}", "principal"),
    ("account", "reason", "TEXT", None),
    ("approval", "brought_by", "{id}", "principal"),
    ("withdrawal", "brought_by", "{id}", "principal"),
    ("evaluation", "created_by", "{id}", "principal"),
    ("delivery", "created_by", "{id}", "principal"),
    ("checkpoint", "created_by", "{id}", "principal"),
    ("artifact", "values_digest", "VARCHAR(64)", None),
    ("cap", "rho", "BIGINT", None),
    ("cap", "delta_fail", "BIGINT", None),
    ("unit_mark", "claim", "{id} NOT NULL DEFAULT '0'", None),
]


def columns() -> None:
    number = "BIGINT" if op.get_bind().dialect.name == "postgresql" else "INTEGER"
    for table, column, kind, to in ADDED:
        reference = f" CONSTRAINT fk_{table}_{column} REFERENCES {to} (id)" if to else ""
        op.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN {column} {kind.format(id=number)}{reference}"))


def first_caps() -> None:
    """The first claim of an account in units; what it was where stewards have changed it since nobody knows."""
    connection = op.get_bind()
    known = connection.execute(
        sa.text(
            "SELECT c.id, a.rho_cap, a.delta_cap FROM cap c JOIN account a ON a.id = c.account_id WHERE NOT EXISTS"
            " (SELECT 1 FROM carried y JOIN motion m ON m.id = y.motion_id JOIN dataset d ON d.id = m.dataset_id"
            " WHERE m.kind = 'cap' AND d.account_id = a.id)"
        )
    ).all()
    if connection.dialect.name == "postgresql":
        set_aside, put_back = ("ALTER TABLE cap DISABLE TRIGGER USER", "ALTER TABLE cap ENABLE TRIGGER USER")
    else:
        query = sa.text("SELECT sql FROM sqlite_master WHERE name = 'cap_no_update'")
        set_aside, put_back = "DROP TRIGGER cap_no_update", connection.scalar(query)
    connection.exec_driver_sql(set_aside)
    for number, rho, delta in known:
        given = {"id": number, "rho": rho, "delta": delta}
        connection.execute(sa.text("UPDATE cap SET rho = :rho, delta_fail = :delta WHERE id = :id"), given)
    connection.exec_driver_sql(put_back)


# --- What the link of a row tells ------------------------------------------------------------------------------
# One view a table, the same words on both backends: kind, actor, dataset and request of the link, and what people and
# exports read in its body. Names instead of numbers, amounts as text, nothing that changes later and nothing private.

OF_DATASET = "(SELECT d.name FROM dataset d WHERE d.id = {id})"
OF_REQUEST = "(SELECT d.name FROM request r JOIN dataset d ON d.id = r.dataset_id WHERE r.id = {id})"
FIRST_DATASET = "(SELECT d.name FROM dataset d WHERE d.account_id = {id} ORDER BY d.id LIMIT 1)"
NOBODY = "'unknown'"


def view(table: str, kind: str, actor: str | None, dataset: str = "NULL", request: str = "NULL", told: str = "",
         joined: str = "") -> str:  # fmt: skip
    """The query of a view; row `x` is the one that is told of, `p` who acts."""
    name = "p.name" if actor else NOBODY
    who = f" LEFT JOIN principal p ON p.id = {actor}" if actor else ""
    return (
        f"SELECT x.id AS row_id, {kind} AS link_kind, coalesce({name}, {NOBODY}) AS link_actor,"
        f" CAST({dataset} AS VARCHAR(255)) AS link_dataset, CAST({request} AS INTEGER) AS link_request"
        f"{', ' if told else ''}{told} FROM {table} x{who}{joined}"
    )


def words(column: str, name: str = "") -> str:
    """An amount as text."""
    return f"CAST({column} AS VARCHAR(40)) AS {name or column.split('.')[-1]}"


ATTEMPT = (
    "(SELECT count(*) FROM transition t WHERE t.request_id = x.request_id AND t.to_state = 'running'"
    " AND t.number <= x.number)"
)
ENDS = "x.to_state = 'running' OR x.from_state = 'running'"
PUBLISHED = (
    " JOIN artifact f ON f.id = {publication}.artifact_id JOIN request r ON r.id = f.request_id"
    " JOIN dataset d ON d.id = r.dataset_id"
)
OWN = "LEFT JOIN request r ON r.id = x.request_id LEFT JOIN motion m ON m.id = x.motion_id"
DECIDED = OWN.replace("x.", "a.")
BY_ACCOUNT = FIRST_DATASET.format(id="x.account_id")
OF_SLOT = " JOIN schedule s ON s.id = {schedule} JOIN dataset d ON d.id = s.dataset_id"
BROUGHT = "coalesce(x.brought_by, {approver})"

VIEWS: dict[str, str] = {
    "principal": view("principal", "'principal.enrolled'", "coalesce(x.created_by, x.id)",
                      told="x.name, x.public_key, x.login"),
    "role_grant": view("role_grant", "'role.granted'", "x.granted_by",
                       told='q.name, x.role, x.valid_from AS "from", x.valid_to AS "to", x.reason',
                       joined=" JOIN principal q ON q.id = x.principal_id"),
    "role_revocation": view("role_revocation", "'role.revoked'", "x.revoked_by", told="q.name, g.role, x.reason",
                            joined=" JOIN role_grant g ON g.id = x.grant_id"
                                   " JOIN principal q ON q.id = g.principal_id"),
    "delegation": view("delegation", "'delegation.given'", "x.from_id", OF_DATASET.format(id="x.dataset_id"),
                       told='x.id AS delegation, q.name AS "to", x.valid_from AS "from", x.valid_to AS "until",'
                            " x.reason, x.signature",
                       joined=" JOIN principal q ON q.id = x.to_id"),
    "delegation_end": view("delegation_end", "'delegation.ended'", "x.ended_by", told="x.delegation_id AS delegation"),
    "policy_version": view("policy_version", "'policy.recorded'", None, told="x.digest, x.several_roles"),
    "policy_rule": view("policy_rule", "'policy.recorded'", None, told="v.digest, x.dataset AS rule",
                        joined=" JOIN policy_version v ON v.id = x.policy_id"),
    "policy_adoption": view("policy_adoption", "'policy.adopted'", "x.adopted_by", told="v.digest, v.several_roles",
                            joined=" JOIN policy_version v ON v.id = x.policy_id"),
    "account": view("account", "CASE x.kind WHEN 'scope' THEN 'scope.opened' WHEN 'pacing' THEN 'pacing.opened'"
                    " ELSE 'account.opened' END", "x.created_by",
                    "CASE WHEN x.kind IN ('scope', 'pacing') THEN " + FIRST_DATASET.format(id="x.parent_id") + " END",
                    told="x.name AS scope, CASE WHEN x.kind IN ('scope', 'pacing') THEN CAST(x.rho_cap AS VARCHAR(40))"
                    " END AS rho, CASE WHEN x.kind IN ('scope', 'pacing') THEN CAST(x.delta_cap AS VARCHAR(40))"
                    " END AS delta, x.reason, x.opens_at, x.closes_at, x.id AS account, x.block"),
    "cap": view("cap", "'cap.recorded'", None, BY_ACCOUNT, told="x.account_id AS account, x.epsilon, x.delta"),
    "partition_scheme": view("partition_scheme", "'partition.recorded'", None, BY_ACCOUNT,
                             told="x.account_id AS account, x.blocks"),
    "scope_end": view("scope_end", "'scope.closed'", "x.ended_by", FIRST_DATASET.format(id="a.parent_id"),
                      told="a.name AS scope, x.reason", joined=" JOIN account a ON a.id = x.account_id"),
    "dataset": view("dataset", "'dataset.registered'", "x.created_by", "x.name",
                    told="x.name, x.unit_field AS unit, x.relation, x.governed, c.epsilon, c.delta, s.blocks,"
                         " x.account_id AS account, x.population",
                    joined=" LEFT JOIN cap c ON c.account_id = x.account_id"
                           " LEFT JOIN partition_scheme s ON s.account_id = x.account_id"),
    "dataset_version": view("dataset_version", "'dataset.ingested'", "x.created_by",
                            OF_DATASET.format(id="x.dataset_id"), told="x.number AS version, x.uid"),
    "unit_claim": view("unit_claim", "'units.claimed'", "x.created_by", BY_ACCOUNT),
    "cohort": view("cohort", "'cohort.opened'", "x.created_by", "d.name",
                   told="x.number AS cohort, v.number AS version, s.blocks, x.population",
                   joined=" JOIN dataset_version v ON v.id = x.version_id JOIN dataset d ON d.id = v.dataset_id"
                          " LEFT JOIN partition_scheme s ON s.account_id = x.account_id"),
    "request": view("request", "'request.submitted'", "x.requester_id", OF_DATASET.format(id="x.dataset_id"), "x.id",
                    told="x.digest, a.name AS scope, x.standing_id AS standing, {asked}",
                    joined=" LEFT JOIN account a ON a.id = x.scope_id"),
    "transition": view("transition", "CASE WHEN x.to_state = 'running' THEN 'run.started'"
                       " WHEN x.from_state = 'running' AND x.to_state = 'approved' THEN 'run.failed'"
                       " WHEN x.to_state = 'withdrawn' THEN 'request.withdrawn' ELSE 'request.moved' END",
                       "x.actor_id", OF_REQUEST.format(id="x.request_id"), "x.request_id",
                       told=f"CASE WHEN {ENDS} THEN {ATTEMPT} END AS attempt,"
                            " CASE WHEN x.to_state = 'running' AND x.detail <> '' THEN x.detail END AS goes_on_from,"
                            " CASE WHEN x.to_state = 'withdrawn' OR x.from_state = 'running' THEN x.detail END"
                            f" AS reason, CASE WHEN x.to_state = 'withdrawn' OR {ENDS} THEN NULL ELSE x.to_state END"
                            " AS state"),
    "approval": view("approval", "CASE x.gate WHEN 'motion' THEN 'motion.' ELSE 'request.' END || x.decision",
                     BROUGHT.format(approver="x.approver_id"),
                     OF_DATASET.format(id="coalesce(r.dataset_id, m.dataset_id)"), "x.request_id",
                     told="x.gate, x.subject_digest AS subject, x.reason, x.expires_at, x.signature,"
                          " x.motion_id AS motion, o.name AS on_behalf_of,"
                          " CASE WHEN x.brought_by <> x.approver_id THEN q.name END AS approver",
                     joined=f" JOIN principal q ON q.id = x.approver_id LEFT JOIN principal o ON o.id = x.on_behalf_of"
                            f" {OWN}"),
    "withdrawal": view("withdrawal",
                       "CASE a.gate WHEN 'motion' THEN 'motion.' ELSE 'request.' END || 'approval_withdrawn'",
                       "coalesce(x.brought_by, (SELECT b.approver_id FROM approval b WHERE b.id = x.approval_id))",
                       OF_DATASET.format(id="coalesce(r.dataset_id, m.dataset_id)"), "a.request_id",
                       told="a.gate, x.reason, x.signature, a.motion_id AS motion,"
                            " CASE WHEN x.brought_by <> a.approver_id THEN q.name END AS approver",
                       joined=" JOIN approval a ON a.id = x.approval_id JOIN principal q ON q.id = a.approver_id"
                              f" {DECIDED}"),
    "motion": view("motion", "'motion.proposed'", "x.proposer_id", OF_DATASET.format(id="x.dataset_id"),
                   told="x.id AS motion, x.kind, x.digest, x.reason"),
    "carried": view("carried", "'motion.carried'", "x.actor_id", OF_DATASET.format(id="m.dataset_id"), "f.request_id",
                    told="x.motion_id AS motion, m.kind, m.digest",
                    joined=" JOIN motion m ON m.id = x.motion_id LEFT JOIN publication b ON b.id = m.publication_id"
                           " LEFT JOIN artifact f ON f.id = b.artifact_id"),
    "standing_use": view("standing_use", "'standing.used'", "x.actor_id", OF_REQUEST.format(id="x.request_id"),
                         "x.request_id", told="x.motion_id AS motion, x.number, x.attempt"),
    "invocation": view("invocation", "'ledger.invocation'", "x.created_by", OF_REQUEST.format(id="x.request_id"),
                       "x.request_id", told="x.attempt, x.sequence, x.mechanism"),
    "hold": view("hold", "'ledger.held'", "i.created_by", OF_REQUEST.format(id="i.request_id"), "i.request_id",
                 told=f"i.attempt, i.sequence, x.instalment, {words('x.rho')}, {words('x.delta')}")
            .replace("FROM hold x", "FROM hold x JOIN invocation i ON i.id = x.invocation_id"),
    "entry": view("entry", "'ledger.entered'", "x.actor_id", OF_REQUEST.format(id="i.request_id"), "i.request_id",
                  told="i.attempt, i.sequence, h.instalment, x.kind AS entry",
                  joined=" JOIN hold h ON h.id = x.hold_id JOIN invocation i ON i.id = h.invocation_id"),
    "artifact": view("artifact", "'run.produced'", "x.created_by", OF_REQUEST.format(id="x.request_id"), "x.request_id",
                     told='x.attempt, x.digest AS artifact, x.values_digest AS "values"'),
    "evaluation": view("evaluation", "'evaluation.' || x.exposure", "x.created_by",
                       OF_REQUEST.format(id="f.request_id"), "f.request_id", told="x.metric",
                       joined=" JOIN artifact f ON f.id = x.artifact_id"),
    "internal_view": view("internal_view",
                          "CASE x.kind WHEN 'computed' THEN 'evaluation.internal' ELSE 'evaluation.shown' END",
                          "x.actor_id", OF_REQUEST.format(id="f.request_id"), "f.request_id", told="x.kind AS view",
                          joined=" JOIN artifact f ON f.id = x.artifact_id"),
    "erasure": view("erasure", "'dataset.erased'", "x.actor_id", OF_DATASET.format(id="x.dataset_id"),
                    told="x.id AS erasure, x.scope, v.number AS version, x.reason",
                    joined=" LEFT JOIN dataset_version v ON v.id = x.version_id"),
    "erased_version": view("erased_version", "'dataset.version_erased'", "e.actor_id",
                           OF_DATASET.format(id="e.dataset_id"), told="x.erasure_id AS erasure, v.number AS version",
                           joined=" JOIN dataset_version v ON v.id = x.version_id")
                      .replace("FROM erased_version x", "FROM erased_version x JOIN erasure e ON e.id = x.erasure_id"),
    "erasure_end": view("erasure_end", "'dataset.erasure_ended'", "x.actor_id", OF_DATASET.format(id="e.dataset_id"),
                        told="x.erasure_id AS erasure", joined=" JOIN erasure e ON e.id = x.erasure_id"),
    "publication": view("publication", "'release.published'", "x.actor_id", "d.name", "r.id",
                        told="f.digest AS artifact", joined=PUBLISHED.format(publication="x")),
    "delivery": view("delivery", "'release.delivered'", "x.created_by", "d.name", "r.id",
                     told="x.destination, x.bundle_digest AS bundle",
                     joined=" JOIN publication b ON b.id = x.publication_id" + PUBLISHED.format(publication="b")),
    "checkpoint": view("checkpoint", "'checkpoint.recorded'", "x.created_by", told="x.seq AS link, x.hash"),
    "schedule": view("schedule", "'schedule.created'", "x.created_by", OF_DATASET.format(id="x.dataset_id"),
                     told="x.id AS schedule, x.standing_id AS standing, x.kind, x.rule, x.zone, x.starts_at, x.reason"),
    "schedule_change": view("schedule_change", "'schedule.changed'", "x.actor_id", "d.name",
                            told="x.schedule_id AS schedule, x.kind, x.reason",
                            joined=OF_SLOT.format(schedule="x.schedule_id")),
    "schedule_slot": view("schedule_slot", "'slot.decided'", "x.actor_id", "d.name", "x.request_id",
                          told="x.schedule_id AS schedule, x.slot, x.skipped",
                          joined=OF_SLOT.format(schedule="x.schedule_id")),
    "slot_end": view("slot_end", "'slot.ended'", "x.actor_id", "d.name", "o.request_id",
                     told="o.schedule_id AS schedule, o.slot, x.reason",
                     joined=" JOIN schedule_slot o ON o.id = x.slot_id" + OF_SLOT.format(schedule="o.schedule_id")),
    "restoration": view("restoration", "'backup.restored'", "x.actor_id", told="x.taken_at, x.link, x.reason"),
    "twin_attack": view("twin_attack", "'attack.public_twin'", "x.actor_id", "x.dataset",
                        told="x.request_id AS request, x.configuration, x.result, x.attacks"),
}  # fmt: skip

# Three fields of what is asked, for whoever reads the record. On SQLite, which does not let views use its JSON functions
# either, the text is read by `models_db.linking`.
ASKED = ", ".join(
    f"CASE WHEN x.canonical IS JSON OBJECT THEN substr(x.canonical::json ->> '{name}', 1, 255) END AS {name}"
    for name in ("kind", "mechanism", "epsilon")
)

# Of the rows that one transaction records, those of the lowest rank have a link each, in their order; the others are
# named by the link of the row before them, or by the first one.
LEADING = (
    "approval", "artifact", "carried", "checkpoint", "cohort", "dataset", "dataset_version", "delegation",
    "delegation_end", "delivery", "erasure", "erasure_end", "internal_view", "motion", "policy_adoption", "principal",
    "publication", "request", "restoration", "role_grant", "role_revocation", "schedule", "schedule_change",
    "schedule_slot", "scope_end", "slot_end", "twin_attack", "withdrawal",
)  # fmt: skip
FOLLOWING = (
    "account", "transition", "evaluation", "policy_version", "unit_claim", "standing_use", "cap", "partition_scheme",
    "policy_rule", "invocation", "hold", "entry", "erased_version",
)  # fmt: skip
RANKS = {**dict.fromkeys(LEADING, 1), **{table: number for number, table in enumerate(FOLLOWING, 2)}}
BLOCK_RANK = len(RANKS) + 2
"""Of an account that is a block: it is opened with its root, or with a cohort. Envelopes, windows of time, and the steps
that begin and end a run without an artifact have links of their own always."""

# --- What the database itself refuses -----------------------------------------------------------------------

RECORDS: dict[str, list[tuple[str, ...]]] = {
    "unit_claim": [("id",)],
    "restoration": [("id",)],
    "twin_attack": [("id",)],
}


def role(who: str, name: str, at: str) -> str:
    return (
        f"EXISTS (SELECT 1 FROM role_grant g WHERE g.principal_id = {who} AND g.role = '{name}' AND g.valid_from <= {at}"
        f" AND (g.valid_to IS NULL OR g.valid_to > {at})"
        " AND NOT EXISTS (SELECT 1 FROM role_revocation v WHERE v.grant_id = g.id))"
    )


LONG, SHORT = 1_000_000, 10_000
DEPTH, DIGITS = 32, 100
TEXTS: dict[str, dict[str, int]] = {
    # bytes of what people write
    "role_grant": {"reason": SHORT}, "role_revocation": {"reason": SHORT}, "delegation": {"reason": SHORT},
    "approval": {"reason": SHORT, "attestation": LONG}, "withdrawal": {"reason": SHORT},
    "scope_end": {"reason": SHORT}, "account": {"reason": SHORT}, "transition": {"detail": SHORT},
    "motion": {"reason": SHORT, "configuration": LONG}, "schedule": {"reason": SHORT, "rule": SHORT},
    "schedule_change": {"reason": SHORT}, "schedule_slot": {"detail": SHORT}, "slot_end": {"detail": SHORT},
    "delivery": {"destination": SHORT}, "restoration": {"reason": SHORT}, "twin_attack": {"attacks": SHORT},
    "policy_version": {"body": LONG}, "request": {"canonical": 4 * LONG}, "invocation": {"event": LONG, "libraries": LONG},
    "artifact": {"files": 16 * LONG}, "evaluation": {"result": 16 * LONG}, "dataset": {"public_metadata": LONG},
}  # fmt: skip
JSON = {
    "motion": ("configuration",), "policy_version": ("body",), "request": ("canonical",),
    "invocation": ("event", "libraries"), "artifact": ("files",), "evaluation": ("result",),
    "dataset": ("public_metadata",),
}  # fmt: skip
BYTES = {"sqlite": "length(CAST(NEW.{column} AS BLOB))", "postgresql": "octet_length(NEW.{column})"}
DIGIT_RUN = {
    "sqlite": f"NEW.{{column}} GLOB '*' || replace(hex(zeroblob({DIGITS})), '00', '[0-9]') || '*'",
    "postgresql": f"NEW.{{column}} ~ '[0-9]{{{{{DIGITS}}}}}'",
}
# How deep a text is nested SQLite cannot tell: it does not let triggers use its JSON functions while it mistrusts the schema
# (trusted_schema=OFF), before 3.41. There `models_db.recording` asks.
TOO_DEEP = "almoner_deep(NEW.{column})"


def guards(dialect: str) -> list[tuple[str, str, str, str, str]]:
    """Name, table, operation, denied when, message."""
    made = [
        ("restoration_by_admin", "restoration", "INSERT", f"NOT {role('NEW.actor_id', 'admin', 'NEW.at')}",
         "only an admin restores a backup"),
        ("unit_mark_open_claim", "unit_mark", "INSERT", "EXISTS (SELECT 1 FROM unit_claim c WHERE c.id = NEW.claim)",
         "that claim of units is closed"),
    ]  # fmt: skip
    for table in RECORDS:
        made.append((f"{table}_no_update", table, "UPDATE", "TRUE", f"{table} is append-only"))
        made.append((f"{table}_no_delete", table, "DELETE", "TRUE", f"{table} is append-only"))
    for table, texts in TEXTS.items():
        long = [f"{BYTES[dialect].format(column=column)} > {most}" for column, most in texts.items()]
        digits = [f"({DIGIT_RUN[dialect].format(column=column)})" for column in JSON.get(table, ())]
        deep = [TOO_DEEP.format(column=column) for column in JSON.get(table, ()) if dialect == "postgresql"]
        wrong = " OR ".join([*long, *digits, *deep])
        made.append(
            (f"{table}_bounded", table, "INSERT", wrong, "a text is too long, too deep or has a number too long")
        )
    return made


def collision(table: str, keys: list[tuple[str, ...]]) -> str:
    same = (" AND ".join(f"x.{column} = NEW.{column}" for column in key) for key in keys)
    return " OR ".join(f"EXISTS (SELECT 1 FROM {table} x WHERE {key})" for key in same)


def arm_sqlite() -> None:
    made = guards("sqlite")
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


# --- PostgreSQL: doors that make the links ---------------------------------------------------------------------

BY_KEYS = ("plan_cache_mode = force_generic_plan", "enable_hashjoin = off", "enable_mergejoin = off")
DENY = "RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514';"
KNOWN = (
    "IF NOT almoner_owner() AND almoner_principal() IS NULL THEN "
    + DENY.format(message="the ledger knows nobody with this login")
    + " END IF;"
)
OF_NOBODY = ("cap", "partition_scheme", "policy_version", "policy_rule")
"""Tables that do not say who records a row: its link is that of an account, a dataset or an adoption."""
COUNTERS = "'rho_held', 'rho_spent', 'delta_held', 'delta_spent', 'last_entry_id'"
ACTING = (
    "IF NOT almoner_owner() THEN me := almoner_principal(); IF me IS NULL THEN "
    + DENY.format(message="the ledger knows nobody with this login")
    + " END IF; IF actor IS DISTINCT FROM me THEN "
    + DENY.format(message="everybody acts under their own login")
    + " END IF; END IF;"
)
INVOCATION = (
    "request_id", "attempt", "sequence", "mechanism", "event", "relation", "rng_kind", "device", "code_digest",
    "libraries", "idem_key",
)  # fmt: skip
ENTERED = (
    " FOR i IN 1 .. cardinality(holds) LOOP INSERT INTO entry (hold_id, kind, at, actor_id)"
    " VALUES (holds[i], {kind}, made_at, actor) RETURNING id INTO number; IF NOT FOUND THEN "
    + DENY.format(message="nothing is recorded there")
    + " END IF; entries[i] := number; END LOOP;"
)
ENTRIES = (  # as `almoner_row` of each
    'string_agg(\'{"actor_id":"\' || e.actor_id || \'","at":\' || to_json(e.at)::text || \',"hold_id":"\' || e.hold_id'
    ' || \'","id":"\' || e.id || \'","kind":"\' || e.kind || \'"}\', chr(10) ORDER BY e.id)'
)
HOLDS = (
    'string_agg(\'{"account_id":"\' || h.account_id || \'","delta":"\' || h.delta || \'","id":"\' || h.id'
    ' || \'","instalment":"\' || h.instalment || \'","invocation_id":"\' || h.invocation_id || \'","rho":"\' || h.rho'
    " || '\"}', chr(10) ORDER BY h.id)"
)
SHA = "encode(sha256(convert_to({text}, 'UTF8')), 'hex')"
FUNCTIONS: list[tuple[str, str, str, str]] = [
    # name, arguments and result, properties, body
    ("almoner_deep", "(given text) RETURNS boolean", "LANGUAGE plpgsql IMMUTABLE",  # nested deeper than a reader takes
     "DECLARE t text := regexp_replace(regexp_replace(given, '\"([^\"\\\\]|\\\\.)*\"', '', 'g'), '[^][{}]', '', 'g');"
     f" BEGIN IF length(t) <= {DEPTH} THEN RETURN FALSE; END IF;"
     f" FOR i IN 1 .. {DEPTH} LOOP t := replace(replace(t, '[]', ''), '{{}}', ''); END LOOP; RETURN t <> ''; END"),
    # The content of a row: its columns as text, by name. Counters and caps that motions move are derived, not told.
    ("almoner_row", "(kind text, given jsonb) RETURNS text", "LANGUAGE plpgsql STABLE",
     "BEGIN IF kind = 'account' THEN given := given - ARRAY[" + COUNTERS + "];"
     " IF given ->> 'kind' IN ('root', 'block') THEN"
     " given := given || jsonb_build_object('rho_cap', NULL, 'delta_cap', NULL); END IF; END IF;"
     " RETURN (SELECT '{' || string_agg(to_json(g.key)::text || ':' || coalesce(to_json(g.value)::text, 'null'), ','"
     " ORDER BY g.key COLLATE \"C\") || '}' FROM jsonb_each_text(given) g); END"),
    ("almoner_ranges", "(ids bigint[]) RETURNS text", "LANGUAGE sql STABLE",
     "SELECT string_agg(CASE WHEN y.a = y.b THEN y.a::text ELSE y.a || '-' || y.b END, ',' ORDER BY y.a) FROM"
     " (SELECT min(x.n) AS a, max(x.n) AS b FROM (SELECT u.n, u.n - row_number() OVER (ORDER BY u.n) AS island"
     " FROM unnest(ids) u(n)) x GROUP BY x.island) y"),
    ("almoner_rows", "(kind text, ids bigint[]) RETURNS text", "LANGUAGE plpgsql STABLE",
     "DECLARE content text; BEGIN EXECUTE format('SELECT "
     + SHA.format(text="string_agg(almoner_row(%L, to_jsonb(x)), chr(10) ORDER BY x.id)").replace("'", "''")
     + " FROM %I x WHERE x.id = ANY ($1)', kind, kind) INTO STRICT content USING ids;"
     " RETURN '{\"content\":\"' || content || '\",\"ids\":\"' || almoner_ranges(ids) || '\",\"table\":\"' || kind"
     " || '\"}'; END"),
    ("almoner_chain", "(who text, kind text, dataset text, request_id integer, body text) RETURNS bigint",
     "LANGUAGE plpgsql",
     "DECLARE last audit_head%ROWTYPE; made_at text; made text; BEGIN SELECT * INTO last FROM audit_head FOR UPDATE;"
     " made_at := almoner_now();"
     " made := " + SHA.format(text=
         "'{\"actor\":' || to_json(who)::text || ',\"at\":\"' || made_at || '\",\"body\":' || to_json(body)::text"
         " || ',\"dataset\":' || coalesce(to_json(dataset)::text, 'null') || ',\"kind\":' || to_json(kind)::text"
         " || ',\"prev_hash\":\"' || last.hash || '\",\"request_id\":' || coalesce(request_id::text, 'null')"
         " || ',\"seq\":\"' || (last.seq + 1) || '\"}'") + ";"
     " INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, dataset, request_id, body) VALUES"
     " (last.seq + 1, last.hash, made, made_at, who, kind, dataset, request_id, body); RETURN last.seq + 1; END"),
    ("almoner_pend", "(kind text, made jsonb) RETURNS void", "LANGUAGE plpgsql",
     "BEGIN INSERT INTO pending_link (kind, row_id, rank) VALUES (kind, (made ->> 'id')::bigint,"
     " CASE WHEN kind = 'account' AND made ->> 'kind' = 'block' THEN " + str(BLOCK_RANK) +
     " WHEN kind = 'account' AND made ->> 'kind' IN ('scope', 'pacing') OR kind = 'transition'"
     " AND (made ->> 'to_state' IN ('running', 'withdrawn') OR made ->> 'from_state' = 'running'"
     " AND made ->> 'to_state' = 'approved') THEN 1 ELSE CASE kind"
     + "".join(f" WHEN '{table}' THEN {rank}" for table, rank in RANKS.items()) + " END END);"
     " IF kind = 'cohort' THEN INSERT INTO pending_link (kind, row_id, rank) SELECT 'account', a.id, "
     + str(BLOCK_RANK) + " FROM account a JOIN partition_scheme s ON s.account_id = a.parent_id"
     " WHERE a.parent_id = (made ->> 'account_id')::bigint AND a.kind = 'block'"
     " AND a.block / s.blocks = (made ->> 'number')::integer - 1 ORDER BY a.id; END IF; END"),
    ("almoner_close_claims", "() RETURNS void", "LANGUAGE plpgsql",
     "DECLARE p record; secret text; BEGIN FOR p IN SELECT q.row_id, q.account_id FROM pending_link q"
     " WHERE q.kind = 'unit_claim' AND NOT EXISTS (SELECT 1 FROM unit_claim c WHERE c.id = q.row_id) LOOP"
     " secret := replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '');"
     " INSERT INTO unit_claim (id, account_id, salt, digest, created_at, created_by) VALUES (p.row_id, p.account_id,"
     " secret, almoner_marks(p.row_id, secret), almoner_now(), almoner_principal()); END LOOP; END"),
    ("almoner_marks", "(number bigint, secret text) RETURNS text", "LANGUAGE sql STABLE",
     "SELECT encode(sha256(convert_to(secret, 'UTF8') || coalesce(string_agg(int4send(octet_length(u.mark)) || u.mark"
     " || int8send(u.account_id) || int8send(u.cohort), ''::bytea ORDER BY u.mark), ''::bytea)), 'hex')"
     " FROM unit_mark u WHERE u.claim = number"),
    # Of what this transaction has recorded and not told, links; others see nothing of it, so all that is there is ours.
    ("almoner_link", "() RETURNS bigint", "LANGUAGE plpgsql SECURITY DEFINER",
     "DECLARE top integer; lead record; after bigint; before bigint := 0; rows text; told jsonb; number bigint; BEGIN "
     + KNOWN + " PERFORM almoner_close_claims(); SELECT min(p.rank) INTO top FROM pending_link p;"
     " FOR lead IN SELECT p.id, p.kind, p.row_id FROM pending_link p WHERE p.rank = top ORDER BY p.id LOOP"
     " IF NOT almoner_owner() AND lead.kind IN (" + ", ".join(f"'{table}'" for table in OF_NOBODY) + ") THEN "
     + DENY.format(message="that is recorded together with what it belongs to") + " END IF;"
     " SELECT min(q.id) INTO after FROM pending_link q WHERE q.rank = top AND q.id > lead.id;"
     " rows := almoner_rows(lead.kind, ARRAY[lead.row_id]) || coalesce((SELECT string_agg(',' ||"
     " almoner_rows(f.kind, f.ids), '' ORDER BY f.kind COLLATE \"C\") FROM (SELECT q.kind, array_agg(q.row_id) AS ids"
     " FROM pending_link q WHERE q.id >= before AND (after IS NULL OR q.id < after) AND q.id <> lead.id"
     " GROUP BY q.kind) f), '');"
     " EXECUTE format('SELECT to_jsonb(v) FROM %I v WHERE v.row_id = $1', 'link_of_' || lead.kind) INTO STRICT told"
     " USING lead.row_id;"
     " number := almoner_chain(told ->> 'link_actor', told ->> 'link_kind', told ->> 'link_dataset',"
     " (told ->> 'link_request')::integer, almoner_body(told, rows)); before := after; END LOOP;"
     " DELETE FROM pending_link; RETURN number; END"),
    ("almoner_body", "(told jsonb, rows text) RETURNS text", "LANGUAGE sql STABLE",
     "SELECT '{' || string_agg(to_json(g.key)::text || ':' || g.value, ',' ORDER BY g.key COLLATE \"C\") || '}' FROM"
     " (SELECT t.key, t.value::text AS value FROM jsonb_each(jsonb_strip_nulls(told - ARRAY['row_id', 'link_kind',"
     " 'link_actor', 'link_dataset', 'link_request'])) t UNION ALL SELECT 'rows', '[' || rows || ']') g"),
    # One link for mechanisms, holds and entries of one attempt.
    ("almoner_step",
     "(which text, invocations bigint[], holds bigint[], entries bigint[], actor bigint) RETURNS bigint",
     "LANGUAGE plpgsql",
     "DECLARE about record; every bigint[]; said text; rows text; BEGIN"
     " every := CASE WHEN cardinality(invocations) > 0 THEN invocations ELSE"
     " ARRAY(SELECT DISTINCT h.invocation_id FROM hold h WHERE h.id = ANY (holds)) END;"
     " SELECT min(i.request_id) AS request, max(i.request_id) AS other, min(i.attempt) AS attempt,"
     " max(i.attempt) AS last, min(i.sequence) AS sequence INTO about FROM invocation i WHERE i.id = ANY (every);"
     " IF which = 'mixed' OR about.request IS NULL OR about.request <> about.other OR about.attempt <> about.last THEN "
     + DENY.format(message="a step is of one attempt") + " END IF;"
     " rows := '[{\"content\":\"' || (SELECT " + SHA.format(text=ENTRIES) + " FROM entry e WHERE e.id = ANY (entries))"
     " || '\",\"ids\":\"' || almoner_ranges(entries) || '\",\"table\":\"entry\"}';"
     " IF which = 'arm' THEN SELECT '{\"attempt\":' || about.attempt || ',\"delta\":\"' || min(h.delta) ||"
     " '\",\"instalment\":' || min(h.instalment) || ',\"rho\":\"' || min(h.rho) || '\",\"rows\":' || rows ||"
     " '],\"sequence\":' || about.sequence || '}' INTO said FROM hold h WHERE h.id = ANY (holds)"
     " HAVING count(DISTINCT (h.invocation_id, h.instalment, h.rho, h.delta)) = 1;"
     " IF said IS NULL THEN " + DENY.format(message="an instalment is armed by itself") + " END IF;"
     " ELSIF which = 'hold' THEN IF cardinality(invocations) > 0 THEN rows := coalesce(rows || ',', '[') ||"
     " coalesce((SELECT '{\"content\":\"' || " + SHA.format(text=HOLDS) + " || '\",\"ids\":\"' || almoner_ranges(holds)"
     " || '\",\"table\":\"hold\"},' FROM hold h WHERE h.id = ANY (holds) HAVING count(*) > 0), '') || (SELECT '{\"content\":\"' || " + SHA.format(text=
         "string_agg(almoner_row('invocation', to_jsonb(i)), chr(10) ORDER BY i.id)")
     + " || '\",\"ids\":\"' || almoner_ranges(invocations) || '\",\"table\":\"invocation\"}' FROM invocation i"
     " WHERE i.id = ANY (invocations)); END IF;"
     " SELECT '{\"attempt\":' || about.attempt || ',\"blocks\":[' || coalesce((SELECT string_agg(y.block::text, ','"
     " ORDER BY y.block) FROM (SELECT DISTINCT a.block FROM hold h JOIN account a ON a.id = h.account_id"
     " WHERE h.id = ANY (holds) AND a.kind = 'block') y), '') || '],\"delta\":\"' || coalesce(sum(h.delta), 0) ||"
     " '\",\"mechanisms\":[' || (SELECT string_agg(to_json(i.mechanism)::text, ',' ORDER BY i.sequence)"
     " FROM invocation i WHERE i.id = ANY (every)) || '],\"rho\":\"' || coalesce(sum(h.rho), 0) || '\",\"rows\":' || rows"
     " || ']}' INTO said FROM hold h WHERE h.id = ANY (holds) AND h.account_id = (SELECT min(a.id) FROM hold g"
     " JOIN account a ON a.id = g.account_id WHERE g.id = ANY (holds) AND a.kind = 'block');"
     " ELSE SELECT '{\"armed_holds\":' || count(*) FILTER (WHERE e.kind <> 'RELEASE') || ',\"attempt\":' || about.attempt"
     " || ',\"released_holds\":' || count(*) FILTER (WHERE e.kind = 'RELEASE') || ',\"rows\":' || rows || ']}' INTO said"
     " FROM entry e WHERE e.id = ANY (entries); END IF;"
     " RETURN almoner_chain((SELECT p.name::text FROM principal p WHERE p.id = actor), 'ledger.' || which,"
     " (SELECT d.name::text FROM request r JOIN dataset d ON d.id = r.dataset_id WHERE r.id = about.request),"
     " about.request::integer, said); END"),
    # Locks as in `almoner_queue`: accounts, then what may be taken back, then the authorisation.
    ("almoner_enter", "(holds bigint[], kinds text[], at text, actor bigint) RETURNS bigint",
     "LANGUAGE plpgsql SECURITY DEFINER",
     "DECLARE me bigint; made_at text := at; number bigint; entries bigint[]; BEGIN " + ACTING +
     " PERFORM 1 FROM account a WHERE a.id IN (SELECT h.account_id FROM hold h WHERE h.id = ANY (holds))"
     " ORDER BY a.id FOR UPDATE;"
     " IF 'ARM' = ANY (kinds) THEN LOCK TABLE role_revocation, delegation_end, withdrawal IN SHARE MODE;"
     " PERFORM 1 FROM motion m WHERE m.id IN (SELECT r.standing_id FROM hold h JOIN invocation i"
     " ON i.id = h.invocation_id JOIN request r ON r.id = i.request_id WHERE h.id = ANY (holds))"
     " ORDER BY m.id FOR SHARE; END IF;"
     " IF me IS NOT NULL THEN made_at := almoner_now(); END IF;" + ENTERED.format(kind="kinds[i]") +
     " RETURN almoner_step(CASE WHEN kinds <@ ARRAY['ARM'] THEN 'arm' WHEN kinds <@ ARRAY['HOLD'] THEN 'hold'"
     " WHEN kinds <@ ARRAY['RELEASE'] THEN 'release' WHEN kinds <@ ARRAY['COMMIT', 'RELEASE'] THEN 'commit'"
     " WHEN kinds <@ ARRAY['FORFEIT', 'RELEASE'] THEN 'forfeit' ELSE 'mixed' END, '{}', holds, entries, actor); END"),
    ("almoner_reserve",
     "(plan jsonb, places integer[], accounts bigint[], instalments integer[], rhos bigint[], deltas bigint[],"
     " at text, actor bigint) RETURNS bigint", "LANGUAGE plpgsql SECURITY DEFINER",
     "DECLARE me bigint; made_at text := at; number bigint; numbers bigint[]; holds bigint[] := '{}'; entries bigint[];"
     " BEGIN " + ACTING +
     " IF me IS NOT NULL AND NOT coalesce(almoner_may(me, 'runner'), FALSE) THEN "
     + DENY.format(message="your roles do not record that") + " END IF;"
     " PERFORM 1 FROM account a WHERE a.id = ANY (accounts) ORDER BY a.id FOR UPDATE;"
     " PERFORM 1 FROM request r WHERE r.id IN (SELECT (g.value ->> 'request_id')::bigint"
     " FROM jsonb_array_elements(plan) g) ORDER BY r.id FOR NO KEY UPDATE;"
     " IF me IS NOT NULL THEN made_at := almoner_now(); END IF;"
     " FOR i IN 1 .. jsonb_array_length(plan) LOOP"
     f" INSERT INTO invocation ({', '.join(INVOCATION)}, created_at, created_by)"
     f" SELECT {', '.join(f'r.{column}' for column in INVOCATION)}, made_at, actor"
     " FROM jsonb_populate_record(NULL::invocation, plan -> (i - 1)) r RETURNING id INTO STRICT number;"
     " numbers[i] := number; END LOOP;"
     " FOR i IN 1 .. cardinality(accounts) LOOP"
     " INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)"
     " VALUES (numbers[places[i]], accounts[i], instalments[i], rhos[i], deltas[i]) RETURNING id INTO STRICT number;"
     " holds[i] := number; END LOOP;" + ENTERED.format(kind="'HOLD'") +
     " RETURN almoner_step('hold', numbers, holds, entries, actor); END"),
    ("almoner_claim_units", "(root bigint, marks bytea[], cohorts integer[]) RETURNS void",
     "LANGUAGE plpgsql SECURITY DEFINER",
     "DECLARE number bigint; BEGIN IF NOT almoner_owner() AND NOT coalesce(almoner_may(almoner_principal(), 'runner')"
     " OR almoner_may(almoner_principal(), 'steward'), FALSE) THEN "
     + DENY.format(message="only a runner or a steward takes data in") + " END IF;"
     # Whoever opens a cohort holds the root; who came first is waited for here, before the marks are locked.
     " PERFORM 1 FROM account a WHERE a.id = root AND a.kind = 'root' FOR KEY SHARE;"
     " IF NOT FOUND THEN " + DENY.format(message="a unit belongs to one root account") + " END IF;"
     " LOCK TABLE unit_mark IN SHARE ROW EXCLUSIVE MODE;"
     # A transaction makes one claim for an account, however many units it has and in however many calls.
     " SELECT p.row_id INTO number FROM pending_link p WHERE p.kind = 'unit_claim' AND p.account_id = root;"
     " IF NOT FOUND THEN number := nextval(pg_get_serial_sequence('unit_claim', 'id'));"
     " INSERT INTO pending_link (kind, row_id, rank, account_id) VALUES ('unit_claim', number, "
     + str(RANKS["unit_claim"]) + ", root); END IF;"
     " INSERT INTO unit_mark (mark, account_id, cohort, claim) SELECT u.m, root, u.c, number FROM"
     " unnest(marks, cohorts) u(m, c) ON CONFLICT DO NOTHING; END"),
]  # fmt: skip


def arm_postgresql() -> None:
    path = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema()) || ', pg_temp'"))
    for name in DROPPED:
        kinds = ", ".join(part.split()[-1] for part in name[name.index("(") + 1 : -1].split(","))
        op.execute(sa.text(f"DROP FUNCTION {name[: name.index('(')]}({kinds})"))
    for name, signature, properties, body in FUNCTIONS:
        function("CREATE", name, signature, properties, body, path)
        op.execute(sa.text(f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC"))
    for name, table, operation, condition, message in guards("postgresql"):
        denies = (
            f"BEGIN IF {condition} THEN {DENY.format(message=message)} END IF;"
            f" RETURN {'OLD' if operation == 'DELETE' else 'NEW'}; END"
        )
        function("CREATE", name, "() RETURNS trigger", "LANGUAGE plpgsql", denies, path)
        op.execute(
            sa.text(f"CREATE TRIGGER {name} BEFORE {operation} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")
        )
    for table in RECORDS:
        denies = f"BEGIN {DENY.format(message=f'{table} is append-only')} END"
        function("CREATE", f"{table}_no_truncate", "() RETURNS trigger", "LANGUAGE plpgsql", denies, path)
        op.execute(
            sa.text(
                f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} FOR EACH STATEMENT"
                f" EXECUTE FUNCTION {table}_no_truncate()"
            )
        )
    untold_is_denied(path)
    known = "'restoration', 'twin_attack', "
    edited("almoner_record", "(kind text, given jsonb) RETURNS SETOF jsonb", "LANGUAGE plpgsql SECURITY DEFINER", path, [
        ("<> ALL (ARRAY[", f"<> ALL (ARRAY[{known}"),
        ("DECLARE ", "DECLARE stored jsonb; "),
        ("RETURN QUERY EXECUTE format(", "EXECUTE format("),
        ("kind, columns, columns, kind) USING each;", "kind, columns, columns, kind) INTO STRICT stored USING each;"
         " PERFORM almoner_pend(kind, stored); RETURN NEXT stored;"),
    ])  # fmt: skip
    edited("almoner_stamped", "(kind text, given jsonb, me bigint) RETURNS jsonb", "LANGUAGE plpgsql STABLE", path, [
        ("RETURN made; END",
         "IF kind IN ('account', 'evaluation', 'delivery', 'checkpoint', 'principal') THEN"
         " made := made || jsonb_build_object('created_by', me); END IF;"
         " IF kind IN ('approval', 'withdrawal') THEN made := made || jsonb_build_object('brought_by', me); END IF;"
         " RETURN made; END"),
    ])  # fmt: skip


def untold_is_denied(path: str) -> None:
    """A transaction ends with a link for everything that it has recorded."""
    denies = (
        "BEGIN IF EXISTS (SELECT 1 FROM pending_link p WHERE p.id = NEW.id) THEN "
        + DENY.format(message="every change is told in the chain")
        + " END IF; RETURN NULL; END"
    )
    function("CREATE", "pending_link_is_told", "() RETURNS trigger", "LANGUAGE plpgsql SECURITY DEFINER", denies, path)
    op.execute(
        sa.text(
            "CREATE CONSTRAINT TRIGGER pending_link_is_told AFTER INSERT ON pending_link DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION pending_link_is_told()"
        )
    )


def edited(name: str, signature: str, properties: str, path: str, changes: list[tuple[str, str]]) -> None:
    """The function as the database has it, with some of its words replaced."""
    query = "SELECT p.prosrc FROM pg_proc p WHERE p.proname = :name AND p.pronamespace = current_schema()::regnamespace"
    source = op.get_bind().execute(sa.text(query), {"name": name}).scalar_one()
    source = re.sub(r" IF kind = '\w+' THEN RETURN QUERY INSERT INTO .*? CONTINUE; END IF;", "", source)
    for old, new in changes:
        if source.count(old) != 1:
            raise ValueError(f"{name} is not the function it was")
        source = source.replace(old, new)
    function("CREATE OR REPLACE", name, signature, properties, source, path)


def function(create: str, name: str, signature: str, properties: str, source: str, path: str) -> None:
    # What a door or a guard calls works under the settings of its caller; to set them again costs more than what it does.
    called = "SECURITY DEFINER" not in properties and "trigger" not in signature and name not in ("almoner_stamped",)
    settings = "" if called else " ".join(f"SET {each}" for each in (f"search_path = {path}", *BY_KEYS))
    made = f"{create} FUNCTION {name}{signature} {properties} {settings} AS $$ {source} $$"
    op.execute(sa.text(made.replace(":", "\\:")))


# --- What is there already ---------------------------------------------------------------------------------------

TOLD = ("lease", "audit", "audit_head", "alembic_version", "pending_link", "unit_mark")  # what no row of a link names
TRUTHS = ("several_roles", "governed", "bars_viewers")


def tell_what_is_there() -> None:
    """One link that commits to every row of a ledger from before; without people there is nothing to tell."""
    connection = op.get_bind()
    first = connection.execute(sa.text("SELECT id, name FROM principal ORDER BY id LIMIT 1")).first()
    if first is None:
        return
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if connection.scalar(sa.text("SELECT count(*) FROM unit_mark")):
        claim(connection, first.id, at)
    rows = [told for table in sorted(RANKS) if (told := contents(connection, table)) is not None]
    link(connection, at, first.name, {"rows": rows})


def claim(connection: sa.Connection, who: int, at: str) -> None:
    """The units of all accounts, under the number 0."""
    salt = secrets.token_hex(32)
    seen = hashlib.sha256(salt.encode())
    query = "SELECT mark, account_id, cohort FROM unit_mark WHERE claim = 0 ORDER BY mark"
    for mark, account, cohort in connection.execute(sa.text(query), execution_options={"yield_per": 10_000}):
        seen.update(len(mark).to_bytes(4, "big") + bytes(mark) + account.to_bytes(8, "big") + cohort.to_bytes(8, "big"))
    connection.execute(
        sa.text(
            "INSERT INTO unit_claim (id, salt, digest, created_at, created_by) VALUES (0, :salt, :digest, :at, :who)"
        ),
        {"salt": salt, "digest": seen.hexdigest(), "at": at, "who": who},
    )


def contents(connection: sa.Connection, table: str) -> dict[str, str] | None:
    """Table, ids and digest of all rows of a table; None of an empty one."""
    seen, found = hashlib.sha256(), Ranges()
    rows = connection.execute(sa.text(f"SELECT * FROM {table} ORDER BY id"), execution_options={"yield_per": 10_000})
    for row in rows.mappings():
        seen.update((b"\n" if found.known else b"") + content(table, dict(row)).encode())
        found.add(row["id"])
    return {"table": table, "ids": str(found), "content": seen.hexdigest()} if found.known else None


def content(table: str, row: dict[str, object]) -> str:
    """As `almoner_row`."""
    if table == "account":
        for name in ("rho_held", "rho_spent", "delta_held", "delta_spent", "last_entry_id"):
            row.pop(name)
        if row["kind"] in ("root", "block"):
            row["rho_cap"] = row["delta_cap"] = None
    told = {
        name: None if value is None else ("true" if value else "false") if name in TRUTHS else str(value)
        for name, value in row.items()
    }
    return canonical(told)


class Ranges:
    """Ascending numbers, as ranges."""

    def __init__(self) -> None:
        self.known: list[list[int]] = []

    def add(self, number: int) -> None:
        if self.known and self.known[-1][1] == number - 1:
            self.known[-1][1] = number
        else:
            self.known.append([number, number])

    def __str__(self) -> str:
        return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in self.known)


def canonical(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def link(connection: sa.Connection, at: str, actor: str, body: dict[str, object]) -> None:
    """A link of the audit chain; its trigger moves the head."""
    seq, previous = connection.execute(sa.text("SELECT seq, hash FROM audit_head")).one()
    made = {"seq": str(seq + 1), "prev_hash": previous, "at": at, "actor": actor, "kind": "ledger.upgraded",
            "dataset": None, "request_id": None, "body": canonical(body)}  # fmt: skip
    connection.execute(
        sa.text(
            "INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, body)"
            " VALUES (:seq, :prev_hash, :row_hash, :at, :actor, :kind, :body)"
        ),
        {**made, "seq": seq + 1, "row_hash": hashlib.sha256(canonical(made).encode()).hexdigest()},
    )
