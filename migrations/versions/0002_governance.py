"""Roles, delegation, motions, envelopes and pacing; on PostgreSQL one door for every write.

History must not move: this file imports no project code and is never edited once released. On SQLite `account`,
`approval` and `transition` are rebuilt, because SQLite cannot change a constraint; their triggers are set aside and
put back, and the self-check of `migrations.upgrade` compares the whole.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0002"
down_revision = "0001"
gives_up = (  # an index that has become two better ones, and a key that kept a lapsed approval from being given again
    "ix_audit_dataset",
    "uq_approval_request_id_gate_subject_digest_approver_id",
)


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        with sqlite_triggers_set_aside():
            rebuild_sqlite()
            common()
        arm_sqlite()
    else:
        for name, table in REPLACED:
            if not name.endswith("_no_replace"):
                op.execute(sa.text(f"DROP TRIGGER {name} ON {table}"))
                op.execute(sa.text(f"DROP FUNCTION {name}()"))
        change_postgresql()
        common()
        arm_postgresql()


# --- Tables --------------------------------------------------------------------------------------------------


def common() -> None:
    """What both backends can do alike: new tables, nullable columns, indexes, and roles for those who are there."""
    people()
    motions()
    add_columns()
    op.drop_index("ix_audit_dataset", "audit")
    op.create_index("ix_audit_dataset_seq", "audit", ["dataset", "seq"])
    op.create_index("ix_audit_request_id_seq", "audit", ["request_id", "seq"])
    op.create_index("ix_audit_actor_seq", "audit", ["actor", "seq"])
    op.create_index("ix_audit_kind_seq", "audit", ["kind", "seq"])
    op.create_index("uq_principal_login", "principal", ["login"], unique=True)
    roles_for_those_who_are_there()


def key(table: str) -> tuple[sa.Column[int], sa.PrimaryKeyConstraint]:
    return sa.Column("id", ID, autoincrement=True, nullable=False), sa.PrimaryKeyConstraint("id", name=f"pk_{table}")


def points(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{to}.id"], name=f"fk_{table}_{column}")


def reason(table: str) -> sa.CheckConstraint:
    return sa.CheckConstraint("length(trim(reason)) > 0", name=op.f(f"ck_{table}_reason"))


def line(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(length=255), nullable=null)


def moment(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(length=27), nullable=null)


def ref(name: str, *, null: bool = False) -> sa.Column[int]:
    return sa.Column(name, ID, nullable=null)


def people() -> None:
    op.create_table(
        "role_grant", *key("role_grant"), ref("principal_id"), line("role"), moment("valid_from"),
        moment("valid_to", null=True), ref("granted_by"), sa.Column("reason", sa.Text(), nullable=False), moment("at"),
        sa.CheckConstraint(
            "role IN ('analyst', 'runner', 'steward', 'auditor', 'admin')", name=op.f("ck_role_grant_role")
        ),
        sa.CheckConstraint("valid_to IS NULL OR valid_to > valid_from", name=op.f("ck_role_grant_dates")),
        reason("role_grant"), points("role_grant", "principal_id", "principal"),
        points("role_grant", "granted_by", "principal"),
    )  # fmt: skip
    op.create_index("ix_role_grant_principal_id", "role_grant", ["principal_id"])
    op.create_table(
        "role_revocation", *key("role_revocation"), ref("grant_id"), ref("revoked_by"),
        sa.Column("reason", sa.Text(), nullable=False), moment("at"), reason("role_revocation"),
        points("role_revocation", "grant_id", "role_grant"), points("role_revocation", "revoked_by", "principal"),
        sa.UniqueConstraint("grant_id", name="uq_role_revocation_grant_id"),
    )  # fmt: skip
    op.create_table(
        "delegation", *key("delegation"), ref("from_id"), ref("to_id"), ref("dataset_id"), moment("valid_from"),
        moment("valid_to"), sa.Column("reason", sa.Text(), nullable=False), line("signature"), moment("at"),
        sa.CheckConstraint("from_id <> to_id", name=op.f("ck_delegation_other")),
        sa.CheckConstraint("valid_to > valid_from", name=op.f("ck_delegation_dates")), reason("delegation"),
        points("delegation", "from_id", "principal"), points("delegation", "to_id", "principal"),
        points("delegation", "dataset_id", "dataset"),
    )  # fmt: skip
    op.create_index("ix_delegation_from_id", "delegation", ["from_id"])
    op.create_table(
        "delegation_end", *key("delegation_end"), ref("delegation_id"), ref("ended_by"), moment("at"),
        points("delegation_end", "delegation_id", "delegation"), points("delegation_end", "ended_by", "principal"),
        sa.UniqueConstraint("delegation_id", name="uq_delegation_end_delegation_id"),
    )  # fmt: skip
    op.create_table(
        "policy_rule", *key("policy_rule"), ref("policy_id"), line("dataset"),
        sa.Column("spend_approvals", sa.Integer()), sa.Column("publish_approvals", sa.Integer()),
        sa.Column("motion_approvals", sa.Integer()), sa.Column("rho_max", sa.BigInteger()),
        sa.Column("delta_max", sa.BigInteger()), points("policy_rule", "policy_id", "policy_version"),
        sa.UniqueConstraint("policy_id", "dataset", name="uq_policy_rule_policy_id_dataset"),
    )  # fmt: skip
    op.create_table(
        "policy_adoption", *key("policy_adoption"), ref("policy_id"), ref("adopted_by"), moment("at"),
        points("policy_adoption", "policy_id", "policy_version"), points("policy_adoption", "adopted_by", "principal"),
    )  # fmt: skip


def motions() -> None:
    op.create_table(
        "motion", *key("motion"), line("kind"), ref("dataset_id"), ref("policy_id"), ref("proposer_id"),
        sa.Column("reason", sa.Text(), nullable=False), line("nonce"),
        sa.Column("digest", sa.String(64), nullable=False),
        moment("created_at"), moment("expires_at"), line("epsilon", null=True), line("delta", null=True),
        sa.Column("delta_conversion", sa.BigInteger()), sa.Column("rho", sa.BigInteger()),
        sa.Column("delta_fail", sa.BigInteger()), sa.Column("runs", sa.Integer()), moment("until", null=True),
        sa.Column("config_digest", sa.String(64)), sa.Column("configuration", sa.Text()),
        ref("publication_id", null=True),
        sa.CheckConstraint(
            "(kind = 'cap' AND epsilon IS NOT NULL AND delta IS NOT NULL AND delta_conversion IS NOT NULL"
            " AND rho IS NOT NULL AND delta_fail IS NOT NULL)"
            " OR (kind = 'standing' AND rho IS NOT NULL AND delta_fail IS NOT NULL AND runs >= 1"
            " AND until IS NOT NULL AND config_digest IS NOT NULL AND configuration IS NOT NULL)"
            " OR (kind = 'retraction' AND publication_id IS NOT NULL)",
            name=op.f("ck_motion_whole"),
        ),
        reason("motion"), points("motion", "dataset_id", "dataset"), points("motion", "policy_id", "policy_version"),
        points("motion", "proposer_id", "principal"), sa.UniqueConstraint("digest", name="uq_motion_digest"),
    )  # fmt: skip
    op.create_index("ix_motion_dataset_id", "motion", ["dataset_id"])
    op.create_table(
        "carried", *key("carried"), ref("motion_id"), ref("actor_id"), moment("at"),
        points("carried", "motion_id", "motion"), points("carried", "actor_id", "principal"),
        sa.UniqueConstraint("motion_id", name="uq_carried_motion_id"),
    )  # fmt: skip
    op.create_table(
        "standing_use", *key("standing_use"), ref("motion_id"), sa.Column("number", sa.Integer(), nullable=False),
        ref("request_id"), sa.Column("attempt", sa.Integer(), nullable=False), ref("actor_id"), moment("at"),
        points("standing_use", "motion_id", "motion"), points("standing_use", "request_id", "request"),
        points("standing_use", "actor_id", "principal"),
        sa.UniqueConstraint("motion_id", "number", name="uq_standing_use_motion_id_number"),
        sa.UniqueConstraint("request_id", "attempt", name="uq_standing_use_request_id_attempt"),
    )  # fmt: skip
    op.create_table(
        "withdrawal", *key("withdrawal"), ref("approval_id"), sa.Column("reason", sa.Text(), nullable=False),
        line("signature"), moment("at"), reason("withdrawal"), points("withdrawal", "approval_id", "approval"),
        sa.UniqueConstraint("approval_id", name="uq_withdrawal_approval_id"),
    )  # fmt: skip
    op.create_table(
        "scope_end", *key("scope_end"), ref("account_id"), ref("ended_by"),
        sa.Column("reason", sa.Text(), nullable=False), moment("at"), reason("scope_end"),
        points("scope_end", "account_id", "account"), points("scope_end", "ended_by", "principal"),
        sa.UniqueConstraint("account_id", name="uq_scope_end_account_id"),
    )  # fmt: skip


COUNTERS = ("rho_held", "rho_spent", "delta_held", "delta_spent")
ADDED = [
    # table, column, type, points to
    ("principal", "login", "VARCHAR(255)", None),
    ("policy_version", "motion_approvals", "INTEGER", None),
    ("policy_version", "rho_max", "BIGINT", None),
    ("policy_version", "delta_max", "BIGINT", None),
    ("policy_version", "pacing_period", "VARCHAR(255)", None),
    ("policy_version", "pacing_permille", "INTEGER", None),
    ("request", "scope_id", "{id}", "account"),
    ("request", "standing_id", "{id}", "motion"),
    ("request", "config_digest", "VARCHAR(64)", None),
]


def add_columns() -> None:
    """Plain SQL, because Alembic adds no column with a foreign key on SQLite, and SQLite does."""
    number = "INTEGER" if op.get_bind().dialect.name == "sqlite" else "BIGINT"
    for table, column, kind, to in ADDED:
        reference = f" CONSTRAINT fk_{table}_{column} REFERENCES {to} (id)" if to else ""
        op.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN {column} {kind.format(id=number)}{reference}"))


ACCOUNT_KIND = (
    "(kind = 'root' AND parent_id IS NULL AND block IS NULL AND name IS NULL AND opens_at IS NULL)"
    " OR (kind = 'block' AND parent_id IS NOT NULL AND block >= 0 AND name IS NULL AND opens_at IS NULL)"
    " OR (kind = 'scope' AND parent_id IS NOT NULL AND block IS NULL AND length(trim(name)) > 0"
    " AND opens_at IS NULL)"
    " OR (kind = 'pacing' AND parent_id IS NOT NULL AND block IS NULL AND name IS NULL"
    " AND opens_at IS NOT NULL AND closes_at > opens_at)"
)
APPROVAL_GATE = (
    "(gate IN ('spend', 'publish') AND request_id IS NOT NULL AND motion_id IS NULL)"
    " OR (gate = 'motion' AND motion_id IS NOT NULL AND request_id IS NULL)"
)
LEGAL = " OR ".join(
    f"(from_state = '{a}' AND to_state = '{b}')"
    for a, b in (
        ("draft", "submitted"), ("submitted", "approved"), ("submitted", "rejected"), ("submitted", "withdrawn"),
        ("approved", "submitted"), ("approved", "rejected"), ("approved", "withdrawn"), ("approved", "running"),
        ("running", "approved"), ("running", "produced"), ("produced", "discarded"), ("produced", "published"),
        ("published", "retracted"),
    )
)  # fmt: skip


def change_postgresql() -> None:
    for column in (line("name", null=True), moment("opens_at", null=True), moment("closes_at", null=True)):
        op.add_column("account", column)
    op.drop_constraint("ck_account_kind", "account")
    op.create_check_constraint(op.f("ck_account_kind"), "account", ACCOUNT_KIND)
    op.create_unique_constraint("uq_account_parent_id_name", "account", ["parent_id", "name"])
    op.create_unique_constraint("uq_account_parent_id_opens_at", "account", ["parent_id", "opens_at"])
    op.drop_constraint("ck_transition_legal", "transition")
    op.create_check_constraint(op.f("ck_transition_legal"), "transition", LEGAL)
    op.drop_constraint("uq_approval_request_id_gate_subject_digest_approver_id", "approval")
    op.drop_constraint("ck_approval_gate", "approval")
    op.alter_column("approval", "request_id", nullable=True)
    for number in ("motion_id", "on_behalf_of"):
        op.add_column("approval", ref(number, null=True))
    op.add_column("approval", sa.Column("attestation", sa.Text()))
    op.create_check_constraint(op.f("ck_approval_gate"), "approval", APPROVAL_GATE)
    op.create_foreign_key("fk_approval_on_behalf_of", "approval", "principal", ["on_behalf_of"], ["id"])
    op.create_index("ix_approval_request_id", "approval", ["request_id"])
    op.create_index("ix_approval_motion_id", "approval", ["motion_id"])


def rebuild_sqlite() -> None:
    rebuilt(
        "account", *key("account"), line("kind"), ref("parent_id", null=True), sa.Column("block", sa.Integer()),
        sa.Column("rho_cap", sa.BigInteger(), nullable=False), sa.Column("delta_cap", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), server_default="0", nullable=False) for name in COUNTERS),
        sa.Column("last_entry_id", ID, server_default="0", nullable=False), line("name", null=True),
        moment("opens_at", null=True),
        moment("closes_at", null=True), sa.CheckConstraint(ACCOUNT_KIND, name=op.f("ck_account_kind")),
        sa.CheckConstraint(
            "delta_held >= 0 AND delta_spent >= 0 AND delta_held + delta_spent <= delta_cap",
            name=op.f("ck_account_delta"),
        ),
        sa.CheckConstraint(
            "rho_held >= 0 AND rho_spent >= 0 AND rho_held + rho_spent <= rho_cap", name=op.f("ck_account_rho")
        ),
        points("account", "parent_id", "account"),
        sa.UniqueConstraint("parent_id", "block", name="uq_account_parent_id_block"),
        sa.UniqueConstraint("parent_id", "name", name="uq_account_parent_id_name"),
        sa.UniqueConstraint("parent_id", "opens_at", name="uq_account_parent_id_opens_at"),
        copied="id, kind, parent_id, block, rho_cap, delta_cap, rho_held, rho_spent, delta_held, delta_spent,"
        " last_entry_id",
    )  # fmt: skip
    rebuilt(
        "transition", *key("transition"), ref("request_id"), sa.Column("number", sa.Integer(), nullable=False),
        line("from_state"), line("to_state"), sa.Column("detail", sa.Text(), nullable=False), moment("at"),
        ref("actor_id"), sa.CheckConstraint(LEGAL, name=op.f("ck_transition_legal")),
        points("transition", "actor_id", "principal"), points("transition", "request_id", "request"),
        sa.UniqueConstraint("request_id", "number", name="uq_transition_request_id_number"),
        copied="id, request_id, number, from_state, to_state, detail, at, actor_id",
    )  # fmt: skip
    rebuilt(
        "approval", *key("approval"), ref("request_id", null=True), line("gate"),
        sa.Column("subject_digest", sa.String(64), nullable=False), ref("approver_id"), line("decision"),
        sa.Column("reason", sa.Text(), nullable=False), moment("at"), moment("expires_at"), line("signature"),
        ref("motion_id", null=True), ref("on_behalf_of", null=True), sa.Column("attestation", sa.Text()),
        sa.CheckConstraint("decision IN ('approve', 'reject')", name=op.f("ck_approval_decision")),
        sa.CheckConstraint(APPROVAL_GATE, name=op.f("ck_approval_gate")), reason("approval"),
        points("approval", "approver_id", "principal"), points("approval", "request_id", "request"),
        points("approval", "motion_id", "motion"), points("approval", "on_behalf_of", "principal"),
        copied="id, request_id, gate, subject_digest, approver_id, decision, reason, at, expires_at, signature",
    )  # fmt: skip
    op.create_index("ix_approval_request_id", "approval", ["request_id"])
    op.create_index("ix_approval_motion_id", "approval", ["motion_id"])


def rebuilt(table: str, *parts: sa.schema.SchemaItem, copied: str) -> None:
    """The table anew, with the rows it had. Foreign keys are not enforced meanwhile (`migrations.upgrade`)."""
    op.create_table(f"new_{table}", *parts)
    op.execute(sa.text(f"INSERT INTO new_{table} ({copied}) SELECT {copied} FROM {table}"))
    op.drop_table(table)
    op.rename_table(f"new_{table}", table)


@contextmanager
def sqlite_triggers_set_aside() -> Iterator[None]:
    """Inside, no table has a trigger; afterwards all have theirs again, but for those this revision replaces."""
    connection = op.get_bind()
    found = connection.execute(
        sa.text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid")
    ).all()
    for name, _ in found:
        op.execute(sa.text(f"DROP TRIGGER {name}"))
    yield
    replaced = {name for name, _ in REPLACED}
    for name, statement in found:
        if name not in replaced:
            connection.exec_driver_sql(statement)


def roles_for_those_who_are_there() -> None:
    """A ledger made before roles lets its people go on: the first is its admin; all may do what they could before."""
    connection = op.get_bind()
    known = connection.execute(sa.text("SELECT id, name FROM principal ORDER BY id")).all()
    if not known:
        return
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    for number, _ in known:
        for role in ("admin", "analyst", "runner", "steward", "auditor"):
            if role != "admin" or number == known[0].id:
                grant = {"p": number, "role": role, "by": known[0].id, "at": at}
                connection.execute(
                    sa.text(
                        "INSERT INTO role_grant (principal_id, role, valid_from, granted_by, reason, at)"
                        " VALUES (:p, :role, :at, :by, 'held before roles were recorded', :at)"
                    ),
                    grant,
                )
    told(connection, at, known[0].name, {"admin": known[0].name, "principals": len(known)})


def told(connection: sa.Connection, at: str, actor: str, body: dict[str, object]) -> None:
    """A link of the audit chain, as `models_db.services.audits` made them when this was written."""

    def canonical(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)

    seq, previous = connection.execute(sa.text("SELECT seq, hash FROM audit_head")).one()
    link = {"seq": str(seq + 1), "prev_hash": previous, "at": at, "actor": actor, "kind": "roles.migrated",
            "dataset": None, "request_id": None, "body": canonical(body)}  # fmt: skip
    row_hash = hashlib.sha256(canonical(link).encode()).hexdigest()
    connection.execute(
        sa.text(
            "INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, body)"
            " VALUES (:seq, :prev_hash, :row_hash, :at, :actor, :kind, :body)"
        ),
        {**link, "seq": seq + 1, "row_hash": row_hash},
    )
    if connection.dialect.name == "sqlite":  # its triggers are set aside; PostgreSQL's has moved the head
        connection.execute(
            sa.text("UPDATE audit_head SET seq = :seq, hash = :hash"), {"seq": seq + 1, "hash": row_hash}
        )


# --- What the database itself refuses -----------------------------------------------------------------------
# As in 0001: a guard is a condition under which a change is denied; with WHEN, for such rows only: PostgreSQL would plan
# the whole condition for all others too. What differs between the backends is written in
# braces: {stale} (the time of a row is older than the newest link of the chain), {days} (the length of a window).

VALID_ROLE = (
    "EXISTS (SELECT 1 FROM role_grant g WHERE g.principal_id = {who} AND g.role = '{role}' AND g.valid_from <= {at}"
    " AND (g.valid_to IS NULL OR g.valid_to > {at})"
    " AND NOT EXISTS (SELECT 1 FROM role_revocation v WHERE v.grant_id = g.id))"
)
DELEGATED = (
    "EXISTS (SELECT 1 FROM delegation l WHERE l.from_id = {giver} AND l.to_id = {taker} AND l.dataset_id = {dataset}"
    " AND l.valid_from <= {at} AND l.valid_to > {at}"
    " AND NOT EXISTS (SELECT 1 FROM delegation_end n WHERE n.delegation_id = l.id))"
)


def role(who: str, name: str, at: str = "NEW.at") -> str:
    return VALID_ROLE.format(who=who, role=name, at=at)


def delegated(giver: str, taker: str, dataset: str) -> str:
    return DELEGATED.format(giver=giver, taker=taker, dataset=dataset, at="NEW.at")


STATE = (
    "coalesce((SELECT t.to_state FROM transition t WHERE t.request_id = {request}"
    " ORDER BY t.number DESC LIMIT 1), 'draft')"
)
ATTEMPTS = "(SELECT count(*) FROM transition t WHERE t.request_id = {request} AND t.to_state = 'running')"
LATEST_ARTIFACT = "(SELECT f.digest FROM artifact f WHERE f.request_id = {request} ORDER BY f.attempt DESC LIMIT 1)"
STANDS = (  # an approval `a` counts: unexpired, not withdrawn, and its giver is still a steward
    "a.decision = 'approve' AND a.expires_at > NEW.at AND NOT EXISTS (SELECT 1 FROM withdrawal w"
    f" WHERE w.approval_id = a.id) AND {role('coalesce(a.on_behalf_of, a.approver_id)', 'steward')}"
    f" AND (a.on_behalf_of IS NULL OR {delegated('a.on_behalf_of', 'a.approver_id', '{dataset}')})"
)
COUNTED = (  # people, not rows: whoever acts for somebody is that somebody
    "(SELECT count(DISTINCT coalesce(a.on_behalf_of, a.approver_id)) FROM approval a WHERE a.{subject}_id = {number} AND a.gate = '{gate}'"
    " AND a.subject_digest = {digest} AND " + STANDS + ")"
)
BLOCKED = (
    "EXISTS (SELECT 1 FROM approval a WHERE a.{subject}_id = {number} AND a.gate = '{gate}' AND a.decision = 'reject')"
)
NEEDED = (  # the most that is asked for any dataset of the account: they protect the same people
    "(SELECT max(coalesce(q.{gate}_approvals, p.{gate}_approvals, 2)) FROM dataset o JOIN dataset y"
    " ON y.account_id = o.account_id LEFT JOIN policy_rule q ON q.policy_id = p.id AND q.dataset = y.name"
    " WHERE o.id = {dataset})"
)


def passed(gate: str, subject: str, alias: str, digest: str) -> str:
    """Enough approvals count for the subject in row `alias`, whose policy is row `p`, and nobody has rejected it."""
    names = {"gate": gate, "subject": subject, "number": f"{alias}.id", "digest": digest}
    counted = COUNTED.format(**names, dataset=f"{alias}.dataset_id")
    return f"({counted} >= {NEEDED.format(gate=gate, dataset=f'{alias}.dataset_id')} AND NOT {BLOCKED.format(**names)})"


SPEND_GATE = passed("spend", "request", "r", "r.digest")
PUBLISH_GATE = passed("publish", "request", "r", "f.digest")
MOTION_GATE = passed("motion", "motion", "m", "m.digest")

STANDING = (  # the authorisation `m` of request `r` is in force
    "EXISTS (SELECT 1 FROM motion m WHERE m.id = r.standing_id AND m.kind = 'standing' AND m.until > NEW.at"
    " AND m.dataset_id = r.dataset_id AND m.config_digest = r.config_digest"
    " AND EXISTS (SELECT 1 FROM carried c WHERE c.motion_id = m.id)"
    " AND NOT " + BLOCKED.format(subject="motion", number="m.id", gate="motion") + ")"
)
DRAWN = "EXISTS (SELECT 1 FROM standing_use u WHERE u.request_id = r.id AND u.attempt = {attempt})"

HAS_ENTRY = "EXISTS (SELECT 1 FROM entry e WHERE e.hold_id = {hold} AND e.kind = '{kind}')"
SIBLING = (  # hold `s` narrows the same instalment as hold `h`, and is reserved
    "s.invocation_id = h.invocation_id AND s.instalment = h.instalment AND s.rho >= h.rho AND s.delta >= h.delta"
    f" AND {HAS_ENTRY.format(hold='s.id', kind='HOLD')} AND NOT {HAS_ENTRY.format(hold='s.id', kind='RELEASE')}"
)
IN_SCOPE = f"(r.scope_id IS NULL OR EXISTS (SELECT 1 FROM hold s WHERE s.account_id = r.scope_id AND {SIBLING}))"
IN_WINDOW = (
    "(p.pacing_period IS NULL OR EXISTS (SELECT 1 FROM hold s JOIN account x ON x.id = s.account_id"
    " JOIN entry k ON k.hold_id = s.id AND k.kind = 'HOLD' WHERE x.kind = 'pacing' AND x.parent_id = b.parent_id"
    f" AND x.opens_at <= k.at AND k.at < x.closes_at AND {SIBLING}))"
)
RESERVED = (  # what open envelopes under the root still keep free
    "coalesce((SELECT sum(x.{counter}_cap - x.{counter}_held - x.{counter}_spent) FROM account x"
    " WHERE x.parent_id = {root} AND x.kind = 'scope'"
    " AND NOT EXISTS (SELECT 1 FROM scope_end o WHERE o.account_id = x.id){other}), 0)"
)


def fits(counter: str) -> str:
    """Hold `h` of request `r` fits account `a`, beside what is reserved for others."""
    other = " AND x.id IS DISTINCT FROM r.scope_id"
    reserved = RESERVED.format(counter=counter, root="a.parent_id", other=other)
    return (
        f"a.{counter}_held + a.{counter}_spent + h.{counter}"
        f" + (CASE a.kind WHEN 'block' THEN {reserved} ELSE 0 END) <= a.{counter}_cap"
    )


def within(limit: str, counter: str) -> str:
    """All holds of the attempt on the account, and this one, stay within a limit, if there is one.

    SQLite takes a CROSS JOIN in the order in which it is written; otherwise it would read every hold of the account.
    """
    return (
        f"({limit} IS NULL OR NEW.{counter} + coalesce((SELECT sum(z.{counter}) FROM invocation j CROSS JOIN hold z"
        " WHERE z.invocation_id = j.id AND j.request_id = i.request_id AND j.attempt = i.attempt"
        f" AND z.account_id = NEW.account_id), 0) <= {limit})"
    )


def bound(counter: str) -> str:
    return (
        f"coalesce((SELECT q.{counter}_max FROM policy_rule q JOIN dataset y ON y.name = q.dataset"
        f" WHERE q.policy_id = p.id AND y.id = r.dataset_id), p.{counter}_max)"
    )


def granted(counter: str) -> str:
    column = {"rho": "rho", "delta": "delta_fail"}[counter]
    return f"(SELECT m.{column} FROM motion m WHERE m.id = r.standing_id)"


def moved(counter: str, amount: str, *, on_hold: str, on_arm: str, on_release: str) -> str:
    return (
        f"NEW.{counter} = OLD.{counter} + CASE e.kind WHEN 'HOLD' THEN {on_hold} * h.{amount}"
        f" WHEN 'ARM' THEN {on_arm} * h.{amount} WHEN 'RELEASE' THEN {on_release} * h.{amount} ELSE 0 END"
    )


IDENTITY = ("id", "kind", "parent_id", "block", "name", "opens_at", "closes_at")
NEW_CAP = (  # the newest cap that was carried for the account's root
    "(SELECT m.{column} FROM carried c JOIN motion m ON m.id = c.motion_id JOIN dataset d ON d.id = m.dataset_id"
    " WHERE m.kind = 'cap' AND d.account_id = coalesce(OLD.parent_id, OLD.id) ORDER BY c.id DESC LIMIT 1)"
)
BY_ENTRY = (
    "(NEW.rho_cap = OLD.rho_cap AND NEW.delta_cap = OLD.delta_cap AND NEW.last_entry_id > OLD.last_entry_id"
    " AND EXISTS (SELECT 1 FROM entry e JOIN hold h ON h.id = e.hold_id"
    " WHERE e.id = NEW.last_entry_id AND h.account_id = OLD.id AND "
    + moved("rho_held", "rho", on_hold="1", on_arm="-1", on_release="-1") + " AND "
    + moved("rho_spent", "rho", on_hold="0", on_arm="1", on_release="0") + " AND "
    + moved("delta_held", "delta", on_hold="1", on_arm="-1", on_release="-1") + " AND "
    + moved("delta_spent", "delta", on_hold="0", on_arm="1", on_release="0") + "))"
)  # fmt: skip
BY_MOTION = (
    "(OLD.kind IN ('root', 'block') AND NEW.last_entry_id = OLD.last_entry_id AND "
    + " AND ".join(f"NEW.{c} = OLD.{c}" for c in COUNTERS)
    + f" AND coalesce(NEW.rho_cap = {NEW_CAP.format(column='rho')}, FALSE)"
    f" AND coalesce(NEW.delta_cap = {NEW_CAP.format(column='delta_fail')}, FALSE))"
)
IN_FORCE = "(SELECT y.policy_id FROM policy_adoption y ORDER BY y.id DESC LIMIT 1)"
ROOMY = (  # block `x` has room for the envelope NEW beside all others
    "x.{counter}_held + x.{counter}_spent + NEW.{counter}_cap + " + RESERVED.replace("x.", "z.").replace(
        "account x", "account z").replace("{other}", "").replace("{root}", "NEW.parent_id") + " <= x.{counter}_cap"
)  # fmt: skip

GUARDS: list[tuple[str, str, str, str, str]] = [
    # name, table, operation, denied when, message
    ("role_grant_by_admin", "role_grant", "INSERT",
     f"NOT ({role('NEW.granted_by', 'admin')} OR (NEW.role = 'admin' AND NEW.principal_id = NEW.granted_by"
     " AND NOT EXISTS (SELECT 1 FROM role_grant)))",
     "only an admin grants roles"),
    ("role_revocation_by_admin", "role_revocation", "INSERT",
     f"NOT {role('NEW.revoked_by', 'admin')}",
     "only an admin revokes roles"),
    ("role_revocation_leaves_admin", "role_revocation", "INSERT",
     "EXISTS (SELECT 1 FROM role_grant o WHERE o.id = NEW.grant_id AND o.role = 'admin')"
     " AND NOT EXISTS (SELECT 1 FROM role_grant g WHERE g.id <> NEW.grant_id AND g.role = 'admin'"
     " AND g.valid_from <= NEW.at AND g.valid_to IS NULL"
     " AND NOT EXISTS (SELECT 1 FROM role_revocation v WHERE v.grant_id = g.id))",
     "a ledger keeps an admin"),
    ("delegation_of_a_steward", "delegation", "INSERT",
     f"NOT {role('NEW.from_id', 'steward')}",
     "only a steward delegates, and only their own vote"),
    ("delegation_end_own", "delegation_end", "INSERT",
     f"NOT ({role('NEW.ended_by', 'admin')} OR EXISTS (SELECT 1 FROM delegation l WHERE l.id = NEW.delegation_id"
     " AND NEW.ended_by IN (l.from_id, l.to_id)))",
     "a delegation is ended by those it binds"),
    ("policy_motions_ask_somebody", "policy_version", "INSERT",
     "NEW.motion_approvals < 1 OR NEW.pacing_permille NOT BETWEEN 1 AND 1000"
     " OR (NEW.pacing_period IS NOT NULL"
     " AND (NEW.pacing_period NOT IN ('week', 'month') OR NEW.pacing_permille IS NULL))",
     "a policy asks somebody, and paces by weeks or months"),
    ("policy_rule_asks_somebody", "policy_rule", "INSERT",
     "NEW.spend_approvals < 1 OR NEW.publish_approvals < 1 OR NEW.motion_approvals < 1",
     "each gate needs at least one approval"),
    ("policy_rule_before_use", "policy_rule", "INSERT",
     "EXISTS (SELECT 1 FROM policy_adoption y WHERE y.policy_id = NEW.policy_id)"
     " OR EXISTS (SELECT 1 FROM request r WHERE r.policy_id = NEW.policy_id)",
     "a policy in use gets no further rules"),
    ("policy_adoption_by_admin", "policy_adoption", "INSERT",
     f"NOT {role('NEW.adopted_by', 'admin')}",
     "only an admin adopts a policy"),
    ("dataset_by_steward", "dataset", "INSERT",
     f"NOT ({role('NEW.created_by', 'steward', 'NEW.created_at')}"
     f" OR {role('NEW.created_by', 'admin', 'NEW.created_at')})",
     "only a steward or an admin registers a dataset"),
    ("version_by_runner", "dataset_version", "INSERT",
     f"NOT ({role('NEW.created_by', 'runner', 'NEW.created_at')}"
     f" OR {role('NEW.created_by', 'steward', 'NEW.created_at')})",
     "only a runner or a steward takes data in"),
    ("account_moves_by_entry", "account", "UPDATE",
     " OR ".join(f"NEW.{c} IS DISTINCT FROM OLD.{c}" for c in IDENTITY) + f" OR NOT ({BY_ENTRY} OR {BY_MOTION})",
     "counters move only by the next entry"),
    ("account_scope_fits", "account", "INSERT",
     "NEW.kind = 'scope' AND (NEW.name IS NULL OR NOT EXISTS (SELECT 1 FROM account r WHERE r.id = NEW.parent_id AND r.kind = 'root')"
     " OR EXISTS (SELECT 1 FROM account x WHERE x.parent_id = NEW.parent_id AND x.kind = 'block' AND NOT ("
     + ROOMY.replace("{counter}", "rho") + " AND " + ROOMY.replace("{counter}", "delta") + ")))",
     "the envelope does not fit what is left"),
    ("account_pacing_by_policy", "account", "INSERT",
     "NEW.kind = 'pacing' AND NOT EXISTS (SELECT 1 FROM policy_version p, account r WHERE p.id = " + IN_FORCE
     + " AND r.id = NEW.parent_id AND r.kind = 'root' AND p.pacing_period IS NOT NULL"
     " AND NEW.rho_cap <= r.rho_cap / 1000 * p.pacing_permille"
     " AND NEW.delta_cap <= r.delta_cap / 1000 * p.pacing_permille"
     " AND {days} BETWEEN CASE p.pacing_period WHEN 'week' THEN 6.99 ELSE 27.99 END"
     " AND CASE p.pacing_period WHEN 'week' THEN 14.01 ELSE 62.01 END)",
     "a window has the share and length of the policy in force"),
    ("account_windows_apart", "account", "INSERT",
     "NEW.kind = 'pacing' AND EXISTS (SELECT 1 FROM account x WHERE x.parent_id = NEW.parent_id AND x.kind = 'pacing'"
     " AND x.opens_at < NEW.closes_at AND NEW.opens_at < x.closes_at)",
     "windows of time do not overlap"),
    ("scope_end_of_scope", "scope_end", "INSERT",
     "NOT EXISTS (SELECT 1 FROM account x WHERE x.id = NEW.account_id AND x.kind = 'scope')"
     f" OR NOT {role('NEW.ended_by', 'steward')}",
     "a steward closes an envelope"),
    ("request_by_analyst", "request", "INSERT",
     f"NOT {role('NEW.requester_id', 'analyst', 'NEW.created_at')}",
     "only an analyst requests a release"),
    ("request_policy_in_force", "request", "INSERT",
     f"NEW.policy_id IS DISTINCT FROM {IN_FORCE}",
     "a request is made under the policy in force"),
    ("request_own_scope", "request", "INSERT",
     "NEW.scope_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM account x JOIN dataset d ON d.account_id = x.parent_id"
     " WHERE x.id = NEW.scope_id AND x.kind = 'scope' AND d.id = NEW.dataset_id"
     " AND NOT EXISTS (SELECT 1 FROM scope_end o WHERE o.account_id = x.id))",
     "a request draws on an open envelope of its own dataset"),
    ("invocation_separate", "invocation", "INSERT",
     "EXISTS (SELECT 1 FROM request r JOIN policy_version p ON p.id = r.policy_id JOIN approval a"
     " ON a.request_id = r.id OR a.motion_id = r.standing_id WHERE r.id = NEW.request_id AND NOT p.several_roles"
     " AND (NEW.created_by IN (a.approver_id, a.on_behalf_of)"
     " OR (a.motion_id = r.standing_id AND r.requester_id IN (a.approver_id, a.on_behalf_of))))",
     "nobody runs what they approved"),
    ("invocation_not_by_requester", "invocation", "INSERT",
     "EXISTS (SELECT 1 FROM request r JOIN policy_version p ON p.id = r.policy_id WHERE r.id = NEW.request_id"
     " AND NOT p.several_roles AND r.requester_id = NEW.created_by)",
     "nobody runs what they requested"),
    ("invocation_by_runner", "invocation", "INSERT",
     f"NOT {role('NEW.created_by', 'runner', 'NEW.created_at')}",
     "only a runner invokes mechanisms"),
    ("hold_own_account", "hold", "INSERT",
     "NOT EXISTS (SELECT 1 FROM invocation i JOIN request r ON r.id = i.request_id"
     " JOIN dataset d ON d.id = r.dataset_id JOIN account a ON a.parent_id = d.account_id"
     " WHERE i.id = NEW.invocation_id AND a.id = NEW.account_id AND (a.kind IN ('block', 'pacing')"
     " OR (a.id = r.scope_id AND NOT EXISTS (SELECT 1 FROM scope_end o WHERE o.account_id = a.id))))",
     "a hold is on a block of its own dataset"),
    ("hold_within_release", "hold", "INSERT",
     "NOT EXISTS (SELECT 1 FROM invocation i JOIN request r ON r.id = i.request_id"
     " JOIN policy_version p ON p.id = r.policy_id WHERE i.id = NEW.invocation_id AND "
     + " AND ".join(within(bound(c), c) + " AND " + within(granted(c), c) for c in ("rho", "delta")) + ")",
     "the policy, or the standing authorisation, allows a release less than this"),
    ("entry_within_cap", "entry", "INSERT WHEN NEW.kind = 'HOLD'",
     "NOT EXISTS (SELECT 1 FROM hold h JOIN account a ON a.id = h.account_id"
     " JOIN invocation i ON i.id = h.invocation_id JOIN request r ON r.id = i.request_id"
     f" WHERE h.id = NEW.hold_id AND {fits('rho')} AND {fits('delta')})",
     "the cap would be passed"),
    ("entry_released_together", "entry", "INSERT WHEN NEW.kind = 'RELEASE'",
     "EXISTS (SELECT 1 FROM hold s JOIN account x ON x.id = s.account_id"
     " JOIN hold h ON h.invocation_id = s.invocation_id AND h.instalment = s.instalment"
     " WHERE s.id = NEW.hold_id AND x.kind IN ('scope', 'pacing')"
     f" AND {HAS_ENTRY.format(hold='h.id', kind='ARM')})",
     "what an instalment has armed counts in its envelope and window too"),
    ("entry_arm_approved", "entry", "INSERT WHEN NEW.kind = 'ARM'",
     "NOT EXISTS (SELECT 1 FROM hold h JOIN account b ON b.id = h.account_id"
     " JOIN invocation i ON i.id = h.invocation_id"
     " JOIN request r ON r.id = i.request_id JOIN policy_version p ON p.id = r.policy_id"
     f" WHERE h.id = NEW.hold_id AND {STATE.format(request='r.id')} = 'running'"
     f" AND i.attempt = {ATTEMPTS.format(request='r.id')}"
     f" AND ({SPEND_GATE} OR ({STANDING} AND {DRAWN.format(attempt='i.attempt')}))"
     f" AND (b.kind <> 'block' OR ({IN_SCOPE} AND {IN_WINDOW})))",
     "the spend gate is not passed"),
    ("entry_by_runner", "entry", "INSERT",
     f"NOT {role('NEW.actor_id', 'runner')}",
     "only a runner moves the budget"),
    ("entry_now", "entry", "INSERT", "{stale}", "the clock went backwards"),
    ("transition_now", "transition", "INSERT", "{stale}", "the clock went backwards"),
    ("transition_approved", "transition", "INSERT WHEN NEW.to_state = 'approved' AND NEW.from_state = 'submitted'",
     "NOT EXISTS (SELECT 1 FROM request r"
     " JOIN policy_version p ON p.id = r.policy_id WHERE r.id = NEW.request_id"
     f" AND ({SPEND_GATE} OR {STANDING}))",
     "the spend gate is not passed"),
    ("transition_by_runner", "transition", "INSERT",
     f"(NEW.to_state = 'running' OR NEW.from_state = 'running') AND NOT {role('NEW.actor_id', 'runner')}",
     "only a runner runs a release"),
    ("transition_submits", "transition", "INSERT WHEN NEW.from_state = 'draft'",
     "NOT EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id"
     " AND r.requester_id = NEW.actor_id)",
     "a request is submitted by its requester"),
    ("transition_reopens", "transition", "INSERT WHEN NEW.from_state = 'approved' AND NEW.to_state = 'submitted'",
     "EXISTS (SELECT 1 FROM request r"
     " JOIN policy_version p ON p.id = r.policy_id WHERE r.id = NEW.request_id"
     f" AND ({SPEND_GATE} OR {STANDING}))",
     "the spend gate is passed"),
    ("transition_rejected", "transition", "INSERT",
     "NEW.to_state IN ('rejected', 'discarded') AND NOT EXISTS (SELECT 1 FROM approval a"
     " WHERE a.request_id = NEW.request_id AND a.decision = 'reject'"
     " AND a.gate = CASE NEW.to_state WHEN 'rejected' THEN 'spend' ELSE 'publish' END)",
     "nobody has rejected it"),
    ("transition_withdrawn", "transition", "INSERT WHEN NEW.to_state = 'withdrawn'",
     "NOT (EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id"
     f" AND r.requester_id = NEW.actor_id) OR {role('NEW.actor_id', 'steward')} OR {role('NEW.actor_id', 'admin')})",
     "a request is withdrawn by its requester, a steward or an admin"),
    ("transition_unexpired", "transition", "INSERT WHEN NEW.to_state = 'running'",
     "NOT EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id"
     " AND r.expires_at > NEW.at)",
     "the request has expired"),
    ("transition_draws", "transition", "INSERT WHEN NEW.to_state = 'running'",
     "EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id"
     " AND r.standing_id IS NOT NULL AND NOT "
     + DRAWN.format(attempt=f"1 + {ATTEMPTS.format(request='r.id')}") + ")",
     "a run under a standing authorisation draws on it"),
    ("transition_retracted", "transition", "INSERT WHEN NEW.to_state = 'retracted'",
     "NOT EXISTS (SELECT 1 FROM carried c JOIN motion m ON m.id = c.motion_id"
     " JOIN publication p ON p.id = m.publication_id JOIN artifact f ON f.id = p.artifact_id"
     " WHERE m.kind = 'retraction' AND f.request_id = NEW.request_id)",
     "the stewards have not retracted it"),
    ("approval_subject", "approval", "INSERT",
     "(NEW.gate = 'spend' AND (NOT EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id"
     " AND r.digest = NEW.subject_digest)"
     f" OR {STATE.format(request='NEW.request_id')} NOT IN ('submitted', 'approved')))"
     f" OR (NEW.gate = 'publish' AND ({LATEST_ARTIFACT.format(request='NEW.request_id')}"
     " IS DISTINCT FROM NEW.subject_digest"
     f" OR {STATE.format(request='NEW.request_id')} <> 'produced'))"
     " OR (NEW.gate = 'motion' AND NOT EXISTS (SELECT 1 FROM motion m WHERE m.id = NEW.motion_id"
     " AND m.digest = NEW.subject_digest AND CASE WHEN EXISTS (SELECT 1 FROM carried c WHERE c.motion_id = m.id)"
     " THEN NEW.decision = 'reject' ELSE m.expires_at > NEW.at END))",
     "the approval is not for what is waiting"),
    ("approval_by_steward", "approval", "INSERT",
     f"NOT {role('coalesce(NEW.on_behalf_of, NEW.approver_id)', 'steward')}",
     "only a steward decides"),
    ("approval_delegated", "approval", "INSERT",
     "NEW.on_behalf_of IS NOT NULL AND NOT "
     + delegated("NEW.on_behalf_of", "NEW.approver_id",
                 "coalesce((SELECT r.dataset_id FROM request r WHERE r.id = NEW.request_id),"
                 " (SELECT m.dataset_id FROM motion m WHERE m.id = NEW.motion_id))"),
     "nobody has delegated that decision"),
    ("approval_separate", "approval", "INSERT",
     "EXISTS (SELECT 1 FROM request r JOIN policy_version p ON p.id = r.policy_id WHERE r.id = NEW.request_id"
     " AND NOT p.several_roles AND (r.requester_id IN (NEW.approver_id, NEW.on_behalf_of)"
     " OR EXISTS (SELECT 1 FROM invocation i WHERE i.request_id = r.id"
     " AND i.created_by IN (NEW.approver_id, NEW.on_behalf_of))))"
     " OR EXISTS (SELECT 1 FROM motion m JOIN policy_version p ON p.id = m.policy_id WHERE m.id = NEW.motion_id"
     " AND NOT p.several_roles AND m.proposer_id IN (NEW.approver_id, NEW.on_behalf_of))",
     "nobody approves what they requested or ran"),
    ("approval_not_by_admin", "approval", "INSERT",
     f"({role('NEW.approver_id', 'admin')} OR {role('NEW.on_behalf_of', 'admin')})"
     " AND EXISTS (SELECT 1 FROM policy_version p WHERE NOT p.several_roles AND p.id = coalesce("
     "(SELECT r.policy_id FROM request r WHERE r.id = NEW.request_id),"
     " (SELECT m.policy_id FROM motion m WHERE m.id = NEW.motion_id)))",
     "an admin does not approve"),
    ("approval_counts_once", "approval", "INSERT",
     "NEW.decision = 'approve' AND EXISTS (SELECT 1 FROM approval a WHERE a.decision = 'approve'"
     " AND (a.request_id = NEW.request_id OR a.motion_id = NEW.motion_id) AND a.gate = NEW.gate"
     " AND a.subject_digest = NEW.subject_digest AND a.expires_at > NEW.at"
     " AND NOT EXISTS (SELECT 1 FROM withdrawal w WHERE w.approval_id = a.id)"
     " AND (a.approver_id IN (NEW.approver_id, NEW.on_behalf_of) OR a.on_behalf_of IN (NEW.approver_id,"
     " NEW.on_behalf_of)))",
     "that person has approved it already"),
    ("approval_not_taken_back", "approval", "INSERT",
     "EXISTS (SELECT 1 FROM withdrawal w JOIN approval a ON a.id = w.approval_id WHERE a.signature = NEW.signature"
     " AND a.approver_id = NEW.approver_id)",
     "that very approval was taken back; sign another, with another reason"),
    ("approval_now", "approval", "INSERT", "{stale}", "the clock went backwards"),
    ("withdrawal_unused", "withdrawal", "INSERT",
     "NOT EXISTS (SELECT 1 FROM approval a WHERE a.id = NEW.approval_id AND a.decision = 'approve' AND ("
     f"(a.gate = 'spend' AND {STATE.format(request='a.request_id')} IN ('submitted', 'approved'))"
     f" OR (a.gate = 'publish' AND {STATE.format(request='a.request_id')} = 'produced'"
     " AND NOT EXISTS (SELECT 1 FROM publication p JOIN artifact f ON f.id = p.artifact_id"
     " WHERE f.request_id = a.request_id))"
     " OR (a.gate = 'motion' AND NOT EXISTS (SELECT 1 FROM carried c WHERE c.motion_id = a.motion_id))))",
     "an approval is taken back only before it is used"),
    ("publication_approved", "publication", "INSERT",
     "NOT EXISTS (SELECT 1 FROM artifact f JOIN request r ON r.id = f.request_id"
     " JOIN policy_version p ON p.id = r.policy_id WHERE f.id = NEW.artifact_id"
     f" AND {PUBLISH_GATE} AND {STATE.format(request='r.id')} = 'produced'"
     f" AND {LATEST_ARTIFACT.format(request='r.id')} = f.digest)",
     "the publish gate is not passed"),
    ("publication_by_runner", "publication", "INSERT",
     f"NOT ({role('NEW.actor_id', 'runner')} OR {role('NEW.actor_id', 'steward')})",
     "only a runner or a steward publishes"),
    ("publication_now", "publication", "INSERT", "{stale}", "the clock went backwards"),
    ("motion_proposed", "motion", "INSERT",
     f"NOT ({role('NEW.proposer_id', 'analyst', 'NEW.created_at')} OR"
     f" {role('NEW.proposer_id', 'steward', 'NEW.created_at')})"
     f" OR NEW.policy_id IS DISTINCT FROM {IN_FORCE}",
     "an analyst or a steward proposes, under the policy in force"),
    ("motion_of_its_dataset", "motion", "INSERT",
     "NEW.kind = 'retraction' AND NOT EXISTS (SELECT 1 FROM publication p JOIN artifact f ON f.id = p.artifact_id"
     " JOIN request r ON r.id = f.request_id WHERE p.id = NEW.publication_id AND r.dataset_id = NEW.dataset_id)",
     "a release is retracted by a motion on its own dataset"),
    ("motion_not_negative", "motion", "INSERT",
     "NEW.rho < 0 OR NEW.delta_fail < 0",
     "an amount is never negative"),
    ("carried_approved", "carried", "INSERT",
     "NOT EXISTS (SELECT 1 FROM motion m JOIN policy_version p ON p.id = m.policy_id WHERE m.id = NEW.motion_id"
     f" AND m.expires_at > NEW.at AND {MOTION_GATE})",
     "the motion has not its approvals"),
    ("carried_keeps_envelopes", "carried", "INSERT",
     "EXISTS (SELECT 1 FROM motion m JOIN dataset d ON d.id = m.dataset_id JOIN account b"
     " ON b.parent_id = d.account_id AND b.kind = 'block' WHERE m.id = NEW.motion_id AND m.kind = 'cap' AND ("
     + " OR ".join(
         f"b.{c}_held + b.{c}_spent + {RESERVED.format(counter=c, root='d.account_id', other='')} > m.{column}"
         for c, column in (("rho", "rho"), ("delta", "delta_fail")))
     + "))",
     "the cap would be passed"),
    ("carried_now", "carried", "INSERT", "{stale}", "the clock went backwards"),
    ("standing_use_now", "standing_use", "INSERT", "{stale}", "the clock went backwards"),
    ("withdrawal_now", "withdrawal", "INSERT", "{stale}", "the clock went backwards"),
    ("standing_use_allowed", "standing_use", "INSERT",
     "NOT EXISTS (SELECT 1 FROM request r JOIN motion m ON m.id = r.standing_id WHERE r.id = NEW.request_id"
     " AND m.id = NEW.motion_id AND NEW.number <= m.runs"
     " AND NEW.number = 1 + (SELECT count(*) FROM standing_use u WHERE u.motion_id = m.id)"
     f" AND NEW.attempt = 1 + {ATTEMPTS.format(request='r.id')}"
     f" AND {STATE.format(request='r.id')} = 'approved')"
     f" OR NOT EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id AND {STANDING})"
     f" OR NOT {role('NEW.actor_id', 'runner')}",
     "the standing authorisation does not cover this run"),
    ("audit_now", "audit", "INSERT", "{stale}", "the clock went backwards"),
]  # fmt: skip

CAPS_MOVED = (
    "EXISTS (SELECT 1 FROM motion m JOIN dataset d ON d.id = m.dataset_id JOIN account x ON x.id = d.account_id"
    " OR (x.parent_id = d.account_id AND x.kind = 'block') WHERE m.id = NEW.motion_id AND m.kind = 'cap'"
    " AND (x.rho_cap <> m.rho OR x.delta_cap <> m.delta_fail))"
)
OF_THE_ROOT = (
    "(SELECT d.account_id FROM motion m JOIN dataset d ON d.id = m.dataset_id"
    " WHERE m.id = NEW.motion_id AND m.kind = 'cap')"
)
AFTER_INSERT: list[tuple[str, str, str, str, str]] = [
    ("carried_moves_cap", "carried",
     "UPDATE account SET rho_cap = (SELECT m.rho FROM motion m WHERE m.id = NEW.motion_id),"
     " delta_cap = (SELECT m.delta_fail FROM motion m WHERE m.id = NEW.motion_id)"
     f" WHERE id = {OF_THE_ROOT} OR (kind = 'block' AND parent_id = {OF_THE_ROOT})",
     CAPS_MOVED,
     "the caps did not follow the motion"),
]  # fmt: skip

# Guards of 0001 that are made anew above, and those whose unique keys have changed.
REPLACED = [
    *[(name, table) for name, table, *_ in GUARDS if name in (
        "account_moves_by_entry", "invocation_separate", "hold_own_account", "entry_within_cap", "entry_arm_approved",
        "transition_approved", "approval_subject", "approval_separate", "publication_approved")],
    ("principal_no_replace", "principal"), ("approval_no_replace", "approval"), ("account_no_replace", "account"),
]  # fmt: skip
KEYS: dict[str, list[tuple[str, ...]]] = {
    "principal": [("id",), ("name",), ("public_key",), ("login",)],
    "approval": [("id",)],
    "account": [("id",), ("parent_id", "block"), ("parent_id", "name"), ("parent_id", "opens_at")],
}
RECORDS: dict[str, list[tuple[str, ...]]] = {
    "role_grant": [("id",)],
    "role_revocation": [("id",), ("grant_id",)],
    "delegation": [("id",)],
    "delegation_end": [("id",), ("delegation_id",)],
    "policy_rule": [("id",), ("policy_id", "dataset")],
    "policy_adoption": [("id",)],
    "motion": [("id",), ("digest",)],
    "carried": [("id",), ("motion_id",)],
    "standing_use": [("id",), ("motion_id", "number"), ("request_id", "attempt")],
    "withdrawal": [("id",), ("approval_id",)],
    "scope_end": [("id",), ("account_id",)],
}


NEWEST = "(SELECT y.at FROM audit y WHERE y.seq = (SELECT k.seq FROM audit_head k))"


def guards(**backend: str) -> list[tuple[str, str, str, str, str]]:
    made = [
        (n, t, o, c.replace("{stale}", backend["stale"]).replace("{days}", backend["days"]), m)
        for n, t, o, c, m in GUARDS
    ]
    for table in RECORDS:
        made.append((f"{table}_no_update", table, "UPDATE", "TRUE", f"{table} is append-only"))
        made.append((f"{table}_no_delete", table, "DELETE", "TRUE", f"{table} is append-only"))
    return made


def collision(table: str, keys: list[tuple[str, ...]]) -> str:
    same = (" AND ".join(f"x.{column} = NEW.{column}" for column in key) for key in keys)
    return " OR ".join(f"EXISTS (SELECT 1 FROM {table} x WHERE {key})" for key in same)


def arm_sqlite() -> None:
    made = guards(stale=f"NEW.at < {NEWEST}", days="julianday(NEW.closes_at) - julianday(NEW.opens_at)")
    for table, keys in {**RECORDS, **KEYS}.items():
        made.append(
            (f"{table}_no_replace", table, "INSERT", collision(table, keys), f"{table} has recorded this already")
        )
    for name, table, operation, condition, message in made:
        known = condition.replace("IS DISTINCT FROM", "IS NOT")  # which SQLite knows before 3.39, too
        change, _, only = operation.partition(" WHEN ")
        op.execute(
            sa.text(
                f"CREATE TRIGGER {name} BEFORE {change} ON {table} WHEN {f'{only} AND ({known})' if only else known} "
                f"BEGIN SELECT RAISE(ABORT, 'almoner: {message}'); END"
            )
        )
    for name, table, statement, condition, message in AFTER_INSERT:
        op.execute(
            sa.text(
                f"CREATE TRIGGER {name} AFTER INSERT ON {table} BEGIN {statement};"
                f" SELECT RAISE(ABORT, 'almoner: {message}') WHERE {condition}; END"
            )
        )


# --- PostgreSQL: one door ------------------------------------------------------------------------------------
# Application roles read, and may call these functions; they have no right to write any table. The functions belong to
# the owner of the schema and run with its rights; who calls is `session_user`, what time it is says the server.

TIME = '\'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\''
RECORDED = (
    "account", "approval", "artifact", "cap", "carried", "checkpoint", "dataset", "dataset_version", "delegation",
    "delegation_end", "delivery", "entry", "evaluation", "hold", "invocation", "motion", "partition_scheme",
    "policy_adoption", "policy_rule", "policy_version", "principal", "publication", "request", "role_grant",
    "role_revocation", "scope_end", "standing_use", "transition", "withdrawal",
)  # fmt: skip
OFTEN = {  # what a run writes again and again: its insert is planned once, that of the others for every row
    "invocation": (
        "request_id", "attempt", "sequence", "mechanism", "event", "relation", "rng_kind", "device", "code_digest",
        "libraries", "idem_key", "created_at", "created_by",
    ),
    "hold": ("invocation_id", "account_id", "instalment", "rho", "delta"),
    "entry": ("hold_id", "kind", "at", "actor_id"),
}  # fmt: skip
TOLD = (  # changes that must have a link of the chain in their own transaction
    "account", "approval", "artifact", "cap", "carried", "dataset", "dataset_version", "delegation", "delegation_end",
    "delivery", "entry", "evaluation", "invocation", "motion", "partition_scheme", "policy_adoption", "policy_rule",
    "policy_version", "principal", "publication", "request", "role_grant", "role_revocation", "scope_end",
    "standing_use", "transition", "withdrawal",
)  # fmt: skip

FUNCTIONS: list[tuple[str, str, str, str]] = [
    # name, arguments and result, properties, body
    ("almoner_owner", "() RETURNS boolean", "LANGUAGE plpgsql STABLE SECURITY DEFINER",
     "BEGIN RETURN pg_has_role(session_user, current_user, 'MEMBER'); END"),  # inside, current_user is the owner
    ("almoner_principal", "() RETURNS bigint", "LANGUAGE sql STABLE",
     "SELECT p.id FROM principal p WHERE p.login = session_user"),
    ("almoner_now", "() RETURNS text", "LANGUAGE sql VOLATILE",
     f"SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', {TIME})"),
    ("almoner_may", "(who bigint, wanted text) RETURNS boolean", "LANGUAGE sql STABLE",
     "SELECT " + VALID_ROLE.replace("'{role}'", "wanted").format(who="who", at="almoner_now()")),
    ("almoner_brings", "(whose bigint, me bigint) RETURNS boolean", "LANGUAGE sql STABLE",  # from one without a login
     "SELECT EXISTS (SELECT 1 FROM principal p WHERE p.id = whose AND p.login IS NULL)"
     " AND (almoner_may(me, 'steward') OR almoner_may(me, 'admin'))"),
    ("almoner_queue", "(kind text, given jsonb) RETURNS void", "LANGUAGE plpgsql",
     # Guards look before they let pass; whoever changes what they look at waits here. Order: motion, accounts, request.
     "BEGIN IF kind IN ('approval', 'carried', 'withdrawal') THEN"
     " PERFORM 1 FROM motion m WHERE m.id IN (SELECT (g.value ->> 'motion_id')::bigint"
     " FROM jsonb_array_elements(given) g UNION SELECT a.motion_id FROM approval a WHERE a.id IN"
     " (SELECT (g.value ->> 'approval_id')::bigint FROM jsonb_array_elements(given) g))"
     " ORDER BY m.id FOR NO KEY UPDATE; END IF;"
     " IF kind = 'entry' THEN PERFORM 1 FROM account a WHERE a.id IN (SELECT h.account_id FROM hold h"
     " WHERE h.id IN (SELECT (g.value ->> 'hold_id')::bigint FROM jsonb_array_elements(given) g))"
     " ORDER BY a.id FOR UPDATE;"
     " ELSIF kind IN ('hold', 'dataset') THEN PERFORM 1 FROM account a WHERE a.id IN"
     " (SELECT (g.value ->> 'account_id')::bigint FROM jsonb_array_elements(given) g) ORDER BY a.id FOR UPDATE;"
     " ELSIF kind = 'account' THEN PERFORM 1 FROM account a WHERE coalesce(a.parent_id, a.id) IN"
     " (SELECT (g.value ->> 'parent_id')::bigint FROM jsonb_array_elements(given) g) ORDER BY a.id FOR UPDATE;"
     " ELSIF kind = 'carried' THEN PERFORM 1 FROM account a WHERE coalesce(a.parent_id, a.id) IN"
     " (SELECT d.account_id FROM motion m JOIN dataset d ON d.id = m.dataset_id WHERE m.kind = 'cap' AND m.id IN"
     " (SELECT (g.value ->> 'motion_id')::bigint FROM jsonb_array_elements(given) g)) ORDER BY a.id FOR UPDATE;"
     " ELSIF kind IN ('approval', 'artifact', 'invocation', 'standing_use', 'transition') THEN"
     " PERFORM 1 FROM request r WHERE r.id IN (SELECT (g.value ->> 'request_id')::bigint"
     " FROM jsonb_array_elements(given) g) ORDER BY r.id FOR NO KEY UPDATE;"
     " ELSIF kind IN ('publication', 'withdrawal') THEN PERFORM 1 FROM request r WHERE r.id IN"
     " (SELECT f.request_id FROM artifact f WHERE f.id IN (SELECT (g.value ->> 'artifact_id')::bigint"
     " FROM jsonb_array_elements(given) g) UNION SELECT a.request_id FROM approval a WHERE a.id IN"
     " (SELECT (g.value ->> 'approval_id')::bigint FROM jsonb_array_elements(given) g))"
     " ORDER BY r.id FOR NO KEY UPDATE;"
     " ELSIF kind IN ('policy_adoption', 'policy_rule') THEN PERFORM 1 FROM policy_version p WHERE p.id IN"
     " (SELECT (g.value ->> 'policy_id')::bigint FROM jsonb_array_elements(given) g) ORDER BY p.id FOR UPDATE;"
     " ELSIF kind = 'role_revocation' THEN PERFORM 1 FROM role_grant g WHERE g.role = 'admin'"
     " ORDER BY g.id FOR UPDATE; END IF;"
     # What was decided may be taken back at this very moment; who spends or publishes waits for that, then sees it.
     " IF kind IN ('carried', 'publication') OR (kind = 'entry' AND given @> '[{\"kind\": \"ARM\"}]') THEN"
     " LOCK TABLE role_revocation, delegation_end, withdrawal IN SHARE MODE;"
     " PERFORM 1 FROM motion m WHERE m.id IN (SELECT r.standing_id FROM hold h JOIN invocation i"
     " ON i.id = h.invocation_id JOIN request r ON r.id = i.request_id WHERE h.id IN"
     " (SELECT (g.value ->> 'hold_id')::bigint FROM jsonb_array_elements(given) g)) ORDER BY m.id FOR SHARE;"
     " ELSIF kind IN ('request', 'motion') THEN LOCK TABLE policy_adoption IN SHARE MODE; END IF; END"),
    ("almoner_stamped", "(kind text, given jsonb, me bigint) RETURNS jsonb", "LANGUAGE plpgsql STABLE",
     "DECLARE made jsonb := given; who text; BEGIN"
     " IF given ? 'id' THEN RAISE EXCEPTION 'almoner: the ledger numbers its rows itself' USING ERRCODE = '23514';"
     " END IF;"
     " FOREACH who IN ARRAY ARRAY['actor_id', 'created_by', 'requester_id', 'granted_by', 'revoked_by', 'from_id',"
     " 'ended_by', 'proposer_id', 'adopted_by', 'approver_id'] LOOP"
     " IF given ? who AND (given ->> who)::bigint IS DISTINCT FROM me"
     " AND NOT (kind = 'approval' AND almoner_brings((given ->> who)::bigint, me))"
     " THEN RAISE EXCEPTION 'almoner: everybody acts under their own login' USING ERRCODE = '23514'; END IF;"
     " END LOOP;"
     " IF kind = 'withdrawal' AND NOT EXISTS (SELECT 1 FROM approval a WHERE a.id = (given ->> 'approval_id')::bigint"
     " AND (a.approver_id = me OR almoner_brings(a.approver_id, me)))"
     " THEN RAISE EXCEPTION 'almoner: everybody acts under their own login' USING ERRCODE = '23514'; END IF;"
     " IF NOT coalesce(CASE"
     " WHEN kind IN ('principal', 'policy_version', 'policy_rule') THEN almoner_may(me, 'admin')"
     " WHEN kind IN ('cap', 'partition_scheme') THEN almoner_may(me, 'admin') OR almoner_may(me, 'steward')"
     " WHEN kind = 'account' THEN almoner_may(me, 'admin') OR almoner_may(me, 'steward')"
     " OR (given ->> 'kind' = 'pacing' AND almoner_may(me, 'runner'))"
     " WHEN kind IN ('hold', 'artifact') THEN almoner_may(me, 'runner')"
     " WHEN kind IN ('evaluation', 'delivery') THEN almoner_may(me, 'runner') OR almoner_may(me, 'steward')"
     " WHEN kind = 'checkpoint' THEN almoner_may(me, 'runner') OR almoner_may(me, 'steward')"
     " OR almoner_may(me, 'auditor') OR almoner_may(me, 'admin')"
     " ELSE TRUE END, FALSE)"
     " THEN RAISE EXCEPTION 'almoner: your roles do not record that' USING ERRCODE = '23514'; END IF;"
     " IF kind = 'request' AND given ->> 'digest' IS DISTINCT FROM"
     " encode(sha256(convert_to(given ->> 'canonical', 'UTF8')), 'hex')"
     " THEN RAISE EXCEPTION 'almoner: the digest is not of the text' USING ERRCODE = '23514'; END IF;"
     " IF kind = 'checkpoint' AND given ->> 'seq' <> '0' AND NOT EXISTS (SELECT 1 FROM audit y"
     " WHERE y.seq = (given ->> 'seq')::bigint AND y.row_hash = given ->> 'hash')"
     " THEN RAISE EXCEPTION 'almoner: the chain has no such link' USING ERRCODE = '23514'; END IF;"
     " IF given ? 'at' THEN made := jsonb_set(made, '{at}', to_jsonb(almoner_now())); END IF;"
     " IF given ? 'created_at' THEN made := jsonb_set(made, '{created_at}', to_jsonb(almoner_now())); END IF;"
     " RETURN made; END"),
    ("almoner_record", "(kind text, given jsonb) RETURNS SETOF jsonb", "LANGUAGE plpgsql SECURITY DEFINER",
     "DECLARE me bigint; stamped jsonb := given; columns text; each jsonb; BEGIN"
     " IF kind <> ALL (ARRAY[" + ", ".join(f"'{t}'" for t in RECORDED) + "]) THEN"
     " RAISE EXCEPTION 'almoner: nothing is recorded there' USING ERRCODE = '23514'; END IF;"
     " IF NOT almoner_owner() THEN me := almoner_principal();"
     " IF me IS NULL THEN RAISE EXCEPTION 'almoner: the ledger knows nobody with this login' USING ERRCODE = '23514';"
     " END IF;"
     " SELECT jsonb_agg(almoner_stamped(kind, g.value, me) ORDER BY g.ordinality) INTO stamped"
     " FROM jsonb_array_elements(given) WITH ORDINALITY g; END IF;"
     " PERFORM almoner_queue(kind, given);"
     " SELECT string_agg(quote_ident(k), ', ') INTO columns FROM jsonb_object_keys(stamped -> 0) k;"
     " FOR each IN SELECT g.value FROM jsonb_array_elements(stamped) WITH ORDINALITY g ORDER BY g.ordinality LOOP"
     + "".join(
         f" IF kind = '{table}' THEN RETURN QUERY INSERT INTO {table} AS made ({', '.join(columns)})"
         f" SELECT {', '.join(f'r.{column}' for column in columns)} FROM jsonb_populate_record(NULL::{table}, each) r"
         " RETURNING to_jsonb(made); CONTINUE; END IF;"
         for table, columns in OFTEN.items()
     )
     + " RETURN QUERY EXECUTE format('INSERT INTO %I AS made (%s) SELECT %s FROM jsonb_populate_record(NULL::%I, $1)"
     " RETURNING to_jsonb(made)', kind, columns, columns, kind) USING each; END LOOP; END"),
    ("almoner_append",
     "(who text, kind text, dataset text, request_id integer, body text) RETURNS TABLE (seq bigint, hash text)",
     "LANGUAGE plpgsql SECURITY DEFINER",
     "#variable_conflict use_column\n"
     "DECLARE last audit_head%ROWTYPE; at text; made text; BEGIN"
     " IF NOT almoner_owner() AND (who IS NULL OR who IS DISTINCT FROM (SELECT p.name FROM principal p"
     " WHERE p.id = almoner_principal())) THEN"
     " RAISE EXCEPTION 'almoner: everybody acts under their own login' USING ERRCODE = '23514'; END IF;"
     " IF NOT almoner_owner() AND (json_typeof(body::json) IS DISTINCT FROM 'object'"
     " OR almoner_append.kind !~ '^[a-z]+([._][a-z]+)*$' OR almoner_append.dataset IS NOT NULL"
     " AND NOT EXISTS (SELECT 1 FROM dataset d WHERE d.name = almoner_append.dataset)) THEN"
     " RAISE EXCEPTION 'almoner: that is no link' USING ERRCODE = '23514'; END IF;"
     " SELECT * INTO last FROM audit_head FOR UPDATE;"
     " at := almoner_now();"
     " made := encode(sha256(convert_to('{\"actor\":' || to_json(who)::text || ',\"at\":\"' || at || '\",\"body\":'"
     " || to_json(body)::text || ',\"dataset\":' || coalesce(to_json(almoner_append.dataset)::text, 'null')"
     " || ',\"kind\":' || to_json(almoner_append.kind)::text || ',\"prev_hash\":\"' || last.hash"
     " || '\",\"request_id\":'"
     " || coalesce(almoner_append.request_id::text, 'null') || ',\"seq\":\"' || (last.seq + 1) || '\"}', 'UTF8')),"
     " 'hex');"
     " INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, dataset, request_id, body) VALUES"
     " (last.seq + 1, last.hash, made, at, who, almoner_append.kind, almoner_append.dataset,"
     " almoner_append.request_id, almoner_append.body);"
     " RETURN QUERY SELECT last.seq + 1, made; END"),
    ("almoner_lock_accounts", "(root bigint, blocks integer[]) RETURNS void", "LANGUAGE plpgsql SECURITY DEFINER",
     "BEGIN IF NOT almoner_owner() AND almoner_principal() IS NULL THEN"
     " RAISE EXCEPTION 'almoner: the ledger knows nobody with this login' USING ERRCODE = '23514'; END IF;"
     " PERFORM 1 FROM account a WHERE a.id = root OR (a.parent_id = root AND (a.block IS NULL OR"
     " a.block = ANY (blocks))) ORDER BY a.id FOR UPDATE; END"),
    ("almoner_lock_request", "(number bigint) RETURNS void", "LANGUAGE plpgsql SECURITY DEFINER",
     "BEGIN IF NOT almoner_owner() AND almoner_principal() IS NULL THEN"
     " RAISE EXCEPTION 'almoner: the ledger knows nobody with this login' USING ERRCODE = '23514'; END IF;"
     " PERFORM 1 FROM request r WHERE r.id = number FOR NO KEY UPDATE; END"),
    ("almoner_lock_motion", "(number bigint) RETURNS void", "LANGUAGE plpgsql SECURITY DEFINER",
     "BEGIN IF NOT almoner_owner() AND almoner_principal() IS NULL THEN"
     " RAISE EXCEPTION 'almoner: the ledger knows nobody with this login' USING ERRCODE = '23514'; END IF;"
     " PERFORM 1 FROM motion m WHERE m.id = number FOR NO KEY UPDATE; END"),
    ("almoner_soon", "(wanted text) RETURNS text", "LANGUAGE sql VOLATILE",  # a lease is short, whoever asks
     "SELECT least(wanted, to_char(clock_timestamp() AT TIME ZONE 'UTC' + interval '1 hour', " + TIME + "))"),
    ("almoner_runs", "(number bigint, attempt bigint) RETURNS boolean", "LANGUAGE sql STABLE",  # the caller began it
     "SELECT almoner_may(almoner_principal(), 'runner') AND attempt = count(*)"
     " AND (array_agg(t.actor_id ORDER BY t.number DESC))[1] = almoner_principal()"
     " FROM transition t WHERE t.request_id = $1 AND t.to_state = 'running'"),
    ("almoner_lease", "(request bigint, attempt integer, token text, owner text, expires_at text) RETURNS void",
     "LANGUAGE plpgsql SECURITY DEFINER",
     "BEGIN IF NOT almoner_owner() AND NOT coalesce(almoner_runs($1, $2), FALSE) THEN"
     " RAISE EXCEPTION 'almoner: only a runner runs a release' USING ERRCODE = '23514'; END IF;"
     " INSERT INTO lease (request_id, attempt, token, owner, expires_at) VALUES ($1, $2, $3, $4, almoner_soon($5))"
     " ON CONFLICT (request_id) DO UPDATE SET attempt = $2, token = $3, owner = $4, expires_at = almoner_soon($5)"
     " WHERE lease.attempt < $2; END"),
    ("almoner_renew", "(request bigint, token text, expires_at text) RETURNS boolean",
     "LANGUAGE plpgsql SECURITY DEFINER",
     "BEGIN UPDATE lease l SET expires_at = almoner_soon($3) WHERE l.request_id = $1 AND l.token = $2"
     " AND (almoner_owner() OR almoner_runs(l.request_id, l.attempt)); RETURN FOUND; END"),
    ("almoner_claim_units", "(root bigint, marks bytea[]) RETURNS void", "LANGUAGE plpgsql SECURITY DEFINER",
     "BEGIN IF NOT almoner_owner() AND NOT coalesce(almoner_may(almoner_principal(), 'runner')"
     " OR almoner_may(almoner_principal(), 'steward'), FALSE) THEN"
     " RAISE EXCEPTION 'almoner: only a runner or a steward takes data in' USING ERRCODE = '23514'; END IF;"
     " IF NOT EXISTS (SELECT 1 FROM account a WHERE a.id = root AND a.kind = 'root') THEN"
     " RAISE EXCEPTION 'almoner: a unit belongs to one root account' USING ERRCODE = '23514'; END IF;"
     " LOCK TABLE unit_mark IN SHARE ROW EXCLUSIVE MODE;"
     " INSERT INTO unit_mark (mark, account_id) SELECT m, root FROM unnest(marks) m ON CONFLICT DO NOTHING; END"),
]  # fmt: skip


def arm_postgresql() -> None:
    path = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema()) || ', pg_temp'"))
    op.create_foreign_key("fk_approval_motion_id", "approval", "motion", ["motion_id"], ["id"])
    tolerated = f"to_char(({NEWEST})::timestamptz AT TIME ZONE 'UTC' - interval '5 minutes', {TIME})"
    days = "extract(epoch FROM (NEW.closes_at::timestamptz - NEW.opens_at::timestamptz)) / 86400"
    for name, signature, properties, body in FUNCTIONS:
        function(name, signature, properties, body, path)
        arguments = signature[1 : signature.index(")")]
        kinds = ", ".join(part.split()[-1] for part in arguments.split(",") if part.strip())
        op.execute(sa.text(f"REVOKE ALL ON FUNCTION {name}({kinds}) FROM PUBLIC"))
    for name, table, operation, condition, message in guards(stale=f"NEW.at < {tolerated}", days=days):
        body = (
            f"BEGIN IF {condition} THEN RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514'; END IF;"
            f" RETURN {'OLD' if operation == 'DELETE' else 'NEW'}; END"
        )
        change, _, only = operation.partition(" WHEN ")
        trigger(name, table, f"BEFORE {change}", "FOR EACH ROW" + (f" WHEN ({only})" if only else ""), body, path)
    for name, table, statement, condition, message in AFTER_INSERT:
        body = (
            f"BEGIN {statement}; IF {condition} THEN RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514';"
            " END IF; RETURN NULL; END"
        )
        trigger(name, table, "AFTER INSERT", "FOR EACH ROW", body, path)
    for table in RECORDS:
        body = f"BEGIN RAISE EXCEPTION 'almoner: {table} is append-only' USING ERRCODE = '23514'; END"
        trigger(f"{table}_no_truncate", table, "BEFORE TRUNCATE", "FOR EACH STATEMENT", body, path)
    for table in TOLD:
        told_or_denied(table, path)
    plan_by_keys()


# What a guard asks is looked up by keys: one plan serves every row, and a row is not worth reading a table for.
BY_KEYS = ("plan_cache_mode = force_generic_plan", "enable_hashjoin = off", "enable_mergejoin = off")


def plan_by_keys() -> None:
    """The guards of 0001 like those made here (`function`)."""
    older = op.get_bind().scalars(
        sa.text(
            "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.prorettype = 'trigger'::regtype"
            " AND p.pronamespace = current_schema()::regnamespace AND NOT p.proconfig @>"
            " ARRAY['plan_cache_mode=force_generic_plan'] ORDER BY 1"
        )
    )
    for signature in older.all():
        for setting in BY_KEYS:
            op.execute(sa.text(f"ALTER FUNCTION {signature} SET {setting}".replace(":", "\\:")))


def told_or_denied(table: str, path: str) -> None:
    """At the end of a transaction that changed `table`, the newest link of the chain must be of that transaction."""
    body = (
        "BEGIN IF NOT almoner_owner() AND (SELECT y.xmin FROM audit y WHERE y.seq = (SELECT k.seq FROM audit_head k))"
        " IS DISTINCT FROM pg_current_xact_id()::xid"
        " THEN RAISE EXCEPTION 'almoner: every change is told in the chain' USING ERRCODE = '23514'; END IF;"
        " RETURN NULL; END"
    )
    name = f"{table}_is_told"
    function(name, "() RETURNS trigger", "LANGUAGE plpgsql SECURITY DEFINER", body, path)
    op.execute(
        sa.text(
            f"CREATE CONSTRAINT TRIGGER {name} AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED"
            f" FOR EACH ROW EXECUTE FUNCTION {name}()"
        )
    )


def function(name: str, signature: str, properties: str, body: str, path: str) -> None:
    settings = " ".join(f"SET {setting}" for setting in (f"search_path = {path}", *BY_KEYS))
    made = f"CREATE FUNCTION {name}{signature} {properties} {settings} AS $$ {body} $$"
    op.execute(sa.text(made.replace(":", "\\:")))


def trigger(name: str, table: str, when: str, scope: str, body: str, path: str) -> None:
    function(name, "() RETURNS trigger", "LANGUAGE plpgsql", body, path)
    op.execute(sa.text(f"CREATE TRIGGER {name} {when} ON {table} {scope} EXECUTE FUNCTION {name}()"))
