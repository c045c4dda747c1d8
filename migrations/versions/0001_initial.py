"""Tables of the ledger, and what the database itself refuses.

Both backends get the same columns, constraints, indexes and guards. History must not move: this file imports no
project code and is never edited once released.
"""

import sqlalchemy as sa
from alembic import op

# SQLite numbers rows by itself only in a column declared exactly INTEGER.
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0001"
down_revision = None

GENESIS = "0" * 64


def upgrade() -> None:
    tables()
    op.execute(sa.text(f"INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '{GENESIS}')"))
    if op.get_bind().dialect.name == "sqlite":
        arm_sqlite()
    else:
        arm_postgresql()


def tables() -> None:
    op.create_table(
        "account",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=255), nullable=False),
        sa.Column("parent_id", ID, nullable=True),
        sa.Column("block", sa.Integer(), nullable=True),
        sa.Column("rho_cap", sa.BigInteger(), nullable=False),
        sa.Column("delta_cap", sa.BigInteger(), nullable=False),
        sa.Column("rho_held", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("rho_spent", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("delta_held", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("delta_spent", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_entry_id", ID, server_default="0", nullable=False),
        sa.CheckConstraint(
            "(kind = 'root' AND parent_id IS NULL AND block IS NULL) OR (kind = 'block' AND parent_id IS NOT NULL AND block >= 0)",
            name=op.f("ck_account_kind"),
        ),
        sa.CheckConstraint(
            "delta_held >= 0 AND delta_spent >= 0 AND delta_held + delta_spent <= delta_cap",
            name=op.f("ck_account_delta"),
        ),
        sa.CheckConstraint(
            "rho_held >= 0 AND rho_spent >= 0 AND rho_held + rho_spent <= rho_cap", name=op.f("ck_account_rho")
        ),
        sa.ForeignKeyConstraint(["parent_id"], ["account.id"], name=op.f("fk_account_parent_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account")),
        sa.UniqueConstraint("parent_id", "block", name=op.f("uq_account_parent_id_block")),
    )
    op.create_table(
        "audit",
        sa.Column("seq", ID, autoincrement=False, nullable=False),
        sa.Column("prev_hash", sa.String(length=64), nullable=False),
        sa.Column("row_hash", sa.String(length=64), nullable=False),
        sa.Column("at", sa.String(length=27), nullable=False),
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=255), nullable=False),
        sa.Column("dataset", sa.String(length=255), nullable=True),
        sa.Column("request_id", sa.Integer(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit")),
        sa.UniqueConstraint("prev_hash", name=op.f("uq_audit_prev_hash")),
        sa.UniqueConstraint("row_hash", name=op.f("uq_audit_row_hash")),
    )
    op.create_index(op.f("ix_audit_at"), "audit", ["at"], unique=False)
    op.create_index(op.f("ix_audit_dataset"), "audit", ["dataset"], unique=False)
    op.create_table(
        "audit_head",
        sa.Column("id", ID, autoincrement=False, nullable=False),
        sa.Column("seq", ID, nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_audit_head_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_head")),
    )
    op.create_table(
        "checkpoint",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("seq", ID, nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("at", sa.String(length=27), nullable=False),
        sa.Column("signature", sa.String(length=255), nullable=False),
        sa.Column("public_key", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoint")),
    )
    op.create_table(
        "policy_version",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("several_roles", sa.Boolean(), nullable=False),
        sa.Column("spend_approvals", sa.Integer(), nullable=False),
        sa.Column("publish_approvals", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_version")),
        sa.UniqueConstraint("digest", name=op.f("uq_policy_version_digest")),
    )
    op.create_table(
        "principal",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("public_key", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_principal")),
        sa.UniqueConstraint("name", name=op.f("uq_principal_name")),
        sa.UniqueConstraint("public_key", name=op.f("uq_principal_public_key")),
    )
    op.create_table(
        "cap",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("account_id", ID, nullable=False),
        sa.Column("epsilon", sa.String(length=255), nullable=False),
        sa.Column("delta", sa.String(length=255), nullable=False),
        sa.Column("delta_conversion", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_cap_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cap")),
        sa.UniqueConstraint("account_id", name=op.f("uq_cap_account_id")),
    )
    op.create_table(
        "dataset",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("account_id", ID, nullable=False),
        sa.Column("unit_field", sa.String(length=255), nullable=True),
        sa.Column("text_field", sa.String(length=255), nullable=False),
        sa.Column("relation", sa.String(length=255), nullable=False),
        sa.Column("governed", sa.Boolean(), nullable=False),
        sa.Column("population", sa.BigInteger(), nullable=True),
        sa.Column("public_metadata", sa.String(), nullable=True),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.Column("created_by", ID, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_dataset_account_id")),
        sa.ForeignKeyConstraint(["created_by"], ["principal.id"], name=op.f("fk_dataset_created_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset")),
        sa.UniqueConstraint("name", name=op.f("uq_dataset_name")),
    )
    op.create_table(
        "partition_scheme",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("account_id", ID, nullable=False),
        sa.Column("function", sa.String(length=255), nullable=False),
        sa.Column("blocks", sa.Integer(), nullable=False),
        sa.Column("key_name", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_partition_scheme_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_partition_scheme")),
        sa.UniqueConstraint("account_id", name=op.f("uq_partition_scheme_account_id")),
    )
    op.create_table(
        "unit_mark",
        sa.Column("mark", sa.LargeBinary(length=32), nullable=False),
        sa.Column("account_id", ID, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_unit_mark_account_id")),
        sa.PrimaryKeyConstraint("mark", name=op.f("pk_unit_mark")),
    )
    op.create_table(
        "dataset_version",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("dataset_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("uid", sa.String(length=255), nullable=False),
        sa.Column("source_mark", sa.String(length=64), nullable=False),
        sa.Column("manifest_mark", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.Column("created_by", ID, nullable=False),
        sa.ForeignKeyConstraint(["created_by"], ["principal.id"], name=op.f("fk_dataset_version_created_by")),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name=op.f("fk_dataset_version_dataset_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset_version")),
        sa.UniqueConstraint("dataset_id", "number", name=op.f("uq_dataset_version_dataset_id_number")),
        sa.UniqueConstraint("uid", name=op.f("uq_dataset_version_uid")),
    )
    op.create_table(
        "request",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("dataset_id", ID, nullable=False),
        sa.Column("version_id", ID, nullable=False),
        sa.Column("policy_id", ID, nullable=False),
        sa.Column("canonical", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("requester_id", ID, nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.Column("expires_at", sa.String(length=27), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name=op.f("fk_request_dataset_id")),
        sa.ForeignKeyConstraint(["policy_id"], ["policy_version.id"], name=op.f("fk_request_policy_id")),
        sa.ForeignKeyConstraint(["requester_id"], ["principal.id"], name=op.f("fk_request_requester_id")),
        sa.ForeignKeyConstraint(["version_id"], ["dataset_version.id"], name=op.f("fk_request_version_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_request")),
        sa.UniqueConstraint("digest", name=op.f("uq_request_digest")),
    )
    op.create_index(op.f("ix_request_dataset_id"), "request", ["dataset_id"], unique=False)
    op.create_table(
        "approval",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("request_id", ID, nullable=False),
        sa.Column("gate", sa.String(length=255), nullable=False),
        sa.Column("subject_digest", sa.String(length=64), nullable=False),
        sa.Column("approver_id", ID, nullable=False),
        sa.Column("decision", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.String(length=27), nullable=False),
        sa.Column("expires_at", sa.String(length=27), nullable=False),
        sa.Column("signature", sa.String(length=255), nullable=False),
        sa.CheckConstraint("decision IN ('approve', 'reject')", name=op.f("ck_approval_decision")),
        sa.CheckConstraint("gate IN ('spend', 'publish')", name=op.f("ck_approval_gate")),
        sa.CheckConstraint("length(trim(reason)) > 0", name=op.f("ck_approval_reason")),
        sa.ForeignKeyConstraint(["approver_id"], ["principal.id"], name=op.f("fk_approval_approver_id")),
        sa.ForeignKeyConstraint(["request_id"], ["request.id"], name=op.f("fk_approval_request_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approval")),
        sa.UniqueConstraint(
            "request_id",
            "gate",
            "subject_digest",
            "approver_id",
            name=op.f("uq_approval_request_id_gate_subject_digest_approver_id"),
        ),
    )
    op.create_table(
        "artifact",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("request_id", ID, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("folder", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.Column("created_by", ID, nullable=False),
        sa.ForeignKeyConstraint(["created_by"], ["principal.id"], name=op.f("fk_artifact_created_by")),
        sa.ForeignKeyConstraint(["request_id"], ["request.id"], name=op.f("fk_artifact_request_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifact")),
        sa.UniqueConstraint("digest", name=op.f("uq_artifact_digest")),
        sa.UniqueConstraint("request_id", "attempt", name=op.f("uq_artifact_request_id_attempt")),
    )
    op.create_table(
        "invocation",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("request_id", ID, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("mechanism", sa.String(length=255), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("relation", sa.String(length=255), nullable=False),
        sa.Column("rng_kind", sa.String(length=255), nullable=False),
        sa.Column("device", sa.String(length=255), nullable=False),
        sa.Column("code_digest", sa.String(length=64), nullable=False),
        sa.Column("libraries", sa.Text(), nullable=False),
        sa.Column("idem_key", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.Column("created_by", ID, nullable=False),
        sa.CheckConstraint("rng_kind = 'os'", name=op.f("ck_invocation_rng")),
        sa.ForeignKeyConstraint(["created_by"], ["principal.id"], name=op.f("fk_invocation_created_by")),
        sa.ForeignKeyConstraint(["request_id"], ["request.id"], name=op.f("fk_invocation_request_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invocation")),
        sa.UniqueConstraint("idem_key", name=op.f("uq_invocation_idem_key")),
        sa.UniqueConstraint(
            "request_id", "attempt", "sequence", name=op.f("uq_invocation_request_id_attempt_sequence")
        ),
    )
    op.create_table(
        "lease",
        sa.Column("request_id", ID, autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("expires_at", sa.String(length=27), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["request.id"], name=op.f("fk_lease_request_id")),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_lease")),
    )
    op.create_table(
        "transition",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("request_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("from_state", sa.String(length=255), nullable=False),
        sa.Column("to_state", sa.String(length=255), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("at", sa.String(length=27), nullable=False),
        sa.Column("actor_id", ID, nullable=False),
        sa.CheckConstraint(
            "(from_state = 'draft' AND to_state = 'submitted') OR (from_state = 'submitted' AND to_state = 'approved') OR (from_state = 'submitted' AND to_state = 'rejected') OR (from_state = 'submitted' AND to_state = 'withdrawn') OR (from_state = 'approved' AND to_state = 'rejected') OR (from_state = 'approved' AND to_state = 'withdrawn') OR (from_state = 'approved' AND to_state = 'running') OR (from_state = 'running' AND to_state = 'approved') OR (from_state = 'running' AND to_state = 'produced') OR (from_state = 'produced' AND to_state = 'discarded') OR (from_state = 'produced' AND to_state = 'published')",
            name=op.f("ck_transition_legal"),
        ),
        sa.ForeignKeyConstraint(["actor_id"], ["principal.id"], name=op.f("fk_transition_actor_id")),
        sa.ForeignKeyConstraint(["request_id"], ["request.id"], name=op.f("fk_transition_request_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transition")),
        sa.UniqueConstraint("request_id", "number", name=op.f("uq_transition_request_id_number")),
    )
    op.create_table(
        "evaluation",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("artifact_id", ID, nullable=False),
        sa.Column("metric", sa.String(length=255), nullable=False),
        sa.Column("exposure", sa.String(length=255), nullable=False),
        sa.Column("invocation_id", ID, nullable=True),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.CheckConstraint("exposure <> 'charged' OR invocation_id IS NOT NULL", name=op.f("ck_evaluation_charge")),
        sa.CheckConstraint("exposure IN ('public', 'charged', 'internal')", name=op.f("ck_evaluation_exposure")),
        sa.ForeignKeyConstraint(["artifact_id"], ["artifact.id"], name=op.f("fk_evaluation_artifact_id")),
        sa.ForeignKeyConstraint(["invocation_id"], ["invocation.id"], name=op.f("fk_evaluation_invocation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluation")),
    )
    op.create_index(op.f("ix_evaluation_artifact_id"), "evaluation", ["artifact_id"], unique=False)
    op.create_table(
        "hold",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("invocation_id", ID, nullable=False),
        sa.Column("account_id", ID, nullable=False),
        sa.Column("instalment", sa.Integer(), nullable=False),
        sa.Column("rho", sa.BigInteger(), nullable=False),
        sa.Column("delta", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "rho >= 0 AND delta >= 0 AND rho = CAST(rho AS BIGINT) AND delta = CAST(delta AS BIGINT)",
            name=op.f("ck_hold_amount"),
        ),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_hold_account_id")),
        sa.ForeignKeyConstraint(["invocation_id"], ["invocation.id"], name=op.f("fk_hold_invocation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hold")),
        sa.UniqueConstraint(
            "invocation_id", "account_id", "instalment", name=op.f("uq_hold_invocation_id_account_id_instalment")
        ),
    )
    op.create_index(op.f("ix_hold_account_id"), "hold", ["account_id"], unique=False)
    op.create_table(
        "publication",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("artifact_id", ID, nullable=False),
        sa.Column("at", sa.String(length=27), nullable=False),
        sa.Column("actor_id", ID, nullable=False),
        sa.ForeignKeyConstraint(["actor_id"], ["principal.id"], name=op.f("fk_publication_actor_id")),
        sa.ForeignKeyConstraint(["artifact_id"], ["artifact.id"], name=op.f("fk_publication_artifact_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_publication")),
        sa.UniqueConstraint("artifact_id", name=op.f("uq_publication_artifact_id")),
    )
    op.create_table(
        "delivery",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("publication_id", ID, nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("bundle_digest", sa.String(length=64), nullable=False),
        sa.Column("at", sa.String(length=27), nullable=False),
        sa.ForeignKeyConstraint(["publication_id"], ["publication.id"], name=op.f("fk_delivery_publication_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delivery")),
    )
    op.create_table(
        "entry",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("hold_id", ID, nullable=False),
        sa.Column("kind", sa.String(length=255), nullable=False),
        sa.Column("at", sa.String(length=27), nullable=False),
        sa.Column("actor_id", ID, nullable=False),
        sa.CheckConstraint("kind IN ('HOLD', 'ARM', 'RELEASE', 'COMMIT', 'FORFEIT')", name=op.f("ck_entry_kind")),
        sa.ForeignKeyConstraint(["actor_id"], ["principal.id"], name=op.f("fk_entry_actor_id")),
        sa.ForeignKeyConstraint(["hold_id"], ["hold.id"], name=op.f("fk_entry_hold_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_entry")),
        sa.UniqueConstraint("hold_id", "kind", name=op.f("uq_entry_hold_id_kind")),
    )
    op.create_index(
        "uq_entry_armed_or_released",
        "entry",
        ["hold_id"],
        unique=True,
        sqlite_where=sa.text("kind IN ('ARM', 'RELEASE')"),
        postgresql_where=sa.text("kind IN ('ARM', 'RELEASE')"),
    )
    op.create_index(
        "uq_entry_closed",
        "entry",
        ["hold_id"],
        unique=True,
        sqlite_where=sa.text("kind IN ('COMMIT', 'FORFEIT', 'RELEASE')"),
        postgresql_where=sa.text("kind IN ('COMMIT', 'FORFEIT', 'RELEASE')"),
    )


# --- What the database itself refuses -----------------------------------------------------------------------
# One list serves both backends: a guard is a condition under which an insert or update is denied. What must hold is
# written as NOT EXISTS (everything that must hold), so that a missing row or a NULL denies. Messages are stable;
# `models_db.services.denials` turns them into named errors.

STATE = (
    "coalesce((SELECT t.to_state FROM transition t WHERE t.request_id = {request}"
    " ORDER BY t.number DESC LIMIT 1), 'draft')"
)
LATEST_ARTIFACT = "(SELECT f.digest FROM artifact f WHERE f.request_id = {request} ORDER BY f.attempt DESC LIMIT 1)"
APPROVALS = (
    "(SELECT count(*) FROM approval a WHERE a.request_id = {request} AND a.gate = '{gate}'"
    " AND a.decision = 'approve' AND a.subject_digest = {digest} AND a.expires_at > NEW.at)"
)
REJECTED = (
    "EXISTS (SELECT 1 FROM approval a WHERE a.request_id = {request} AND a.gate = '{gate}' AND a.decision = 'reject')"
)
ATTEMPTS = "(SELECT count(*) FROM transition t WHERE t.request_id = {request} AND t.to_state = 'running')"
HAS_ENTRY = "EXISTS (SELECT 1 FROM entry e WHERE e.hold_id = {hold} AND e.kind {kinds})"


HELD = HAS_ENTRY.format(hold="NEW.hold_id", kinds="= 'HOLD'")
ARMED = HAS_ENTRY.format(hold="NEW.hold_id", kinds="= 'ARM'")
OPENED = HAS_ENTRY.format(hold="h.id", kinds="= 'HOLD'")
SETTLED = HAS_ENTRY.format(hold="h.id", kinds="IN ('COMMIT', 'RELEASE')")
CLOSED = HAS_ENTRY.format(hold="h.id", kinds="IN ('COMMIT', 'RELEASE', 'FORFEIT')")


def moved(counter: str, amount: str, *, on_hold: str, on_arm: str, on_release: str) -> str:
    return (
        f"NEW.{counter} = OLD.{counter} + CASE e.kind WHEN 'HOLD' THEN {on_hold} * h.{amount}"
        f" WHEN 'ARM' THEN {on_arm} * h.{amount} WHEN 'RELEASE' THEN {on_release} * h.{amount} ELSE 0 END"
    )


FIXED_ACCOUNT_COLUMNS = ("id", "kind", "parent_id", "block", "rho_cap", "delta_cap")

GUARDS: list[tuple[str, str, str, str, str]] = [
    # name, table, operation, denied when, message
    ("dataset_like_its_account", "dataset", "INSERT",
     "EXISTS (SELECT 1 FROM dataset d WHERE d.account_id = NEW.account_id AND (d.governed <> NEW.governed"
     " OR (EXISTS (SELECT 1 FROM partition_scheme s WHERE s.account_id = NEW.account_id AND s.blocks > 1)"
     " AND (NEW.unit_field IS NULL OR d.unit_field IS NULL OR d.unit_field <> NEW.unit_field))))",
     "datasets of one account are protected alike, and in several blocks name their units alike"),
    ("version_keeps_blocks", "dataset_version", "INSERT",
     "EXISTS (SELECT 1 FROM dataset d JOIN partition_scheme s ON s.account_id = d.account_id"
     " WHERE d.id = NEW.dataset_id AND d.unit_field IS NULL AND s.blocks > 1 AND EXISTS (SELECT 1"
     " FROM dataset_version v JOIN dataset o ON o.id = v.dataset_id WHERE o.account_id = d.account_id))",
     "units without a name stay in their blocks"),
    ("policy_asks_somebody", "policy_version", "INSERT",
     "NEW.spend_approvals < 1 OR NEW.publish_approvals < 1",
     "each gate needs at least one approval"),
    ("account_opens_empty", "account", "INSERT",
     "NEW.rho_held <> 0 OR NEW.rho_spent <> 0 OR NEW.delta_held <> 0 OR NEW.delta_spent <> 0"
     " OR NEW.last_entry_id <> 0",
     "an account opens empty"),
    ("account_block_caps", "account", "INSERT",
     "NEW.kind = 'block' AND NOT EXISTS (SELECT 1 FROM account r WHERE r.id = NEW.parent_id AND r.kind = 'root'"
     " AND r.rho_cap = NEW.rho_cap AND r.delta_cap = NEW.delta_cap)",
     "a block carries the cap of its root account"),
    ("account_block_number", "account", "INSERT",
     "NEW.kind = 'block' AND NOT EXISTS (SELECT 1 FROM partition_scheme s WHERE s.account_id = NEW.parent_id"
     " AND NEW.block < s.blocks)",
     "a block is one of its partition"),
    ("account_moves_by_entry", "account", "UPDATE",
     " OR ".join(f"NEW.{c} IS DISTINCT FROM OLD.{c}" for c in FIXED_ACCOUNT_COLUMNS)
     + " OR NEW.last_entry_id <= OLD.last_entry_id"
     " OR NOT EXISTS (SELECT 1 FROM entry e JOIN hold h ON h.id = e.hold_id"
     " WHERE e.id = NEW.last_entry_id AND h.account_id = OLD.id AND "
     + moved("rho_held", "rho", on_hold="1", on_arm="-1", on_release="-1") + " AND "
     + moved("rho_spent", "rho", on_hold="0", on_arm="1", on_release="0") + " AND "
     + moved("delta_held", "delta", on_hold="1", on_arm="-1", on_release="-1") + " AND "
     + moved("delta_spent", "delta", on_hold="0", on_arm="1", on_release="0") + ")",
     "counters move only by the next entry"),
    ("unit_mark_one_account", "unit_mark", "INSERT",
     "EXISTS (SELECT 1 FROM unit_mark m WHERE m.mark = NEW.mark AND m.account_id <> NEW.account_id)",
     "a unit belongs to one root account"),
    ("request_own_version", "request", "INSERT",
     "NOT EXISTS (SELECT 1 FROM dataset_version v WHERE v.id = NEW.version_id AND v.dataset_id = NEW.dataset_id)",
     "a request reads a version of its own dataset"),
    ("invocation_relation", "invocation", "INSERT",
     "NOT EXISTS (SELECT 1 FROM request r JOIN dataset d ON d.id = r.dataset_id"
     " WHERE r.id = NEW.request_id AND d.relation = NEW.relation)",
     "the mechanism is not stated for the relation of the dataset"),
    ("invocation_running", "invocation", "INSERT",
     f"{STATE.format(request='NEW.request_id')} <> 'running'"
     f" OR NEW.attempt <> {ATTEMPTS.format(request='NEW.request_id')}",
     "only the running attempt of a request invokes mechanisms"),
    ("invocation_os_randomness", "invocation", "INSERT",
     "NEW.rng_kind <> 'os'",
     "only the randomness of the operating system protects anybody"),
    ("invocation_separate", "invocation", "INSERT",
     "EXISTS (SELECT 1 FROM request r JOIN policy_version p ON p.id = r.policy_id JOIN approval a"
     " ON a.request_id = r.id WHERE r.id = NEW.request_id AND NOT p.several_roles"
     " AND a.approver_id = NEW.created_by)",
     "nobody runs what they approved"),
    ("hold_not_negative", "hold", "INSERT",
     "NEW.rho < 0 OR NEW.delta < 0",
     "a hold is never negative"),
    ("hold_own_account", "hold", "INSERT",
     "NOT EXISTS (SELECT 1 FROM invocation i JOIN request r ON r.id = i.request_id"
     " JOIN dataset d ON d.id = r.dataset_id JOIN account a ON a.parent_id = d.account_id"
     " WHERE i.id = NEW.invocation_id AND a.id = NEW.account_id AND a.kind = 'block')",
     "a hold is on a block of its own dataset"),
    ("entry_needs_hold", "entry", "INSERT",
     f"NEW.kind <> 'HOLD' AND NOT {HELD}",
     "nothing is held"),
    ("entry_within_cap", "entry", "INSERT",
     "NEW.kind = 'HOLD' AND NOT EXISTS (SELECT 1 FROM hold h JOIN account a ON a.id = h.account_id"
     " WHERE h.id = NEW.hold_id AND a.rho_held + a.rho_spent + h.rho <= a.rho_cap"
     " AND a.delta_held + a.delta_spent + h.delta <= a.delta_cap)",
     "the cap would be passed"),
    ("entry_needs_arm", "entry", "INSERT",
     "NEW.kind IN ('COMMIT', 'FORFEIT')"
     f" AND NOT {ARMED}",
     "nothing is armed"),
    ("entry_arm_approved", "entry", "INSERT",
     "NEW.kind = 'ARM' AND NOT EXISTS (SELECT 1 FROM hold h JOIN invocation i ON i.id = h.invocation_id"
     " JOIN request r ON r.id = i.request_id JOIN policy_version p ON p.id = r.policy_id"
     f" WHERE h.id = NEW.hold_id AND {APPROVALS.format(request='r.id', gate='spend', digest='r.digest')}"
     f" >= p.spend_approvals AND NOT {REJECTED.format(request='r.id', gate='spend')}"
     f" AND {STATE.format(request='r.id')} = 'running' AND i.attempt = {ATTEMPTS.format(request='r.id')})",
     "the spend gate is not passed"),
    ("transition_follows", "transition", "INSERT",
     "NEW.number <> 1 + (SELECT count(*) FROM transition t WHERE t.request_id = NEW.request_id)"
     f" OR NEW.from_state <> {STATE.format(request='NEW.request_id')}",
     "the request has moved on"),
    ("transition_approved", "transition", "INSERT",
     "NEW.from_state = 'submitted' AND NEW.to_state = 'approved' AND NOT EXISTS (SELECT 1 FROM request r"
     " JOIN policy_version p ON p.id = r.policy_id WHERE r.id = NEW.request_id"
     f" AND {APPROVALS.format(request='r.id', gate='spend', digest='r.digest')} >= p.spend_approvals"
     f" AND NOT {REJECTED.format(request='r.id', gate='spend')})",
     "the spend gate is not passed"),
    ("transition_closes_holds", "transition", "INSERT",
     "NEW.from_state = 'running' AND EXISTS (SELECT 1 FROM invocation i JOIN hold h ON h.invocation_id = i.id"
     f" WHERE i.request_id = NEW.request_id AND {OPENED} AND NOT {CLOSED})",
     "an attempt ends with every hold closed"),
    ("transition_produced", "transition", "INSERT",
     "NEW.to_state = 'produced' AND NOT EXISTS (SELECT 1 FROM artifact f WHERE f.request_id = NEW.request_id"
     f" AND f.attempt = {ATTEMPTS.format(request='NEW.request_id')})",
     "nothing was produced"),
    ("transition_published", "transition", "INSERT",
     "NEW.to_state = 'published' AND NOT EXISTS (SELECT 1 FROM publication p JOIN artifact f"
     " ON f.id = p.artifact_id WHERE f.request_id = NEW.request_id)",
     "nothing was published"),
    ("approval_subject", "approval", "INSERT",
     "(NEW.gate = 'spend' AND (NOT EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id"
     " AND r.digest = NEW.subject_digest)"
     f" OR {STATE.format(request='NEW.request_id')} NOT IN ('submitted', 'approved')))"
     f" OR (NEW.gate = 'publish' AND ({LATEST_ARTIFACT.format(request='NEW.request_id')}"
     " IS DISTINCT FROM NEW.subject_digest"
     f" OR {STATE.format(request='NEW.request_id')} <> 'produced'))",
     "the approval is not for what is waiting"),
    ("approval_separate", "approval", "INSERT",
     "EXISTS (SELECT 1 FROM request r JOIN policy_version p ON p.id = r.policy_id WHERE r.id = NEW.request_id"
     " AND NOT p.several_roles AND (r.requester_id = NEW.approver_id OR EXISTS (SELECT 1 FROM invocation i"
     " WHERE i.request_id = r.id AND i.created_by = NEW.approver_id)))",
     "nobody approves what they requested or ran"),
    ("approval_expiry", "approval", "INSERT", "NEW.expires_at <= NEW.at", "the approval has expired"),
    ("artifact_complete", "artifact", "INSERT",
     f"{STATE.format(request='NEW.request_id')} <> 'running'"
     f" OR NEW.attempt <> {ATTEMPTS.format(request='NEW.request_id')}"
     " OR NOT EXISTS (SELECT 1 FROM invocation i WHERE i.request_id = NEW.request_id AND i.attempt = NEW.attempt)"
     " OR EXISTS (SELECT 1 FROM invocation i LEFT JOIN hold h ON h.invocation_id = i.id"
     " WHERE i.request_id = NEW.request_id AND i.attempt = NEW.attempt"
     f" AND NOT {SETTLED})"
     " OR EXISTS (SELECT 1 FROM invocation i WHERE i.request_id = NEW.request_id AND i.attempt = NEW.attempt"
     " AND NOT EXISTS (SELECT 1 FROM hold h JOIN entry e ON e.hold_id = h.id WHERE h.invocation_id = i.id"
     " AND e.kind = 'COMMIT'))",
     "an artifact needs every armed hold committed"),
    ("evaluation_charged", "evaluation", "INSERT",
     "NEW.exposure = 'charged' AND NOT EXISTS (SELECT 1 FROM artifact f JOIN invocation i"
     " ON i.request_id = f.request_id JOIN hold h ON h.invocation_id = i.id JOIN entry e ON e.hold_id = h.id"
     " WHERE f.id = NEW.artifact_id AND i.id = NEW.invocation_id AND e.kind = 'ARM')",
     "a charged metric needs an armed hold of its own request"),
    ("evaluation_internal", "evaluation", "INSERT",
     "NEW.exposure = 'internal' AND NOT EXISTS (SELECT 1 FROM artifact f JOIN request r ON r.id = f.request_id"
     " JOIN dataset d ON d.id = r.dataset_id WHERE f.id = NEW.artifact_id AND (NOT d.governed"
     " OR EXISTS (SELECT 1 FROM publication p WHERE p.artifact_id = f.id)"
     f" OR {STATE.format(request='r.id')} = 'discarded'))",
     "internal metrics wait for the publish decision"),
    ("publication_approved", "publication", "INSERT",
     "NOT EXISTS (SELECT 1 FROM artifact f JOIN request r ON r.id = f.request_id"
     " JOIN policy_version p ON p.id = r.policy_id WHERE f.id = NEW.artifact_id"
     f" AND {APPROVALS.format(request='r.id', gate='publish', digest='f.digest')} >= p.publish_approvals"
     f" AND NOT {REJECTED.format(request='r.id', gate='publish')} AND {STATE.format(request='r.id')} = 'produced'"
     f" AND {LATEST_ARTIFACT.format(request='r.id')} = f.digest)",
     "the publish gate is not passed"),
    ("audit_links", "audit", "INSERT",
     "NOT EXISTS (SELECT 1 FROM audit_head d WHERE d.seq + 1 = NEW.seq AND d.hash = NEW.prev_hash)",
     "the audit chain has moved on"),
    ("audit_head_follows", "audit_head", "UPDATE",
     "NEW.seq <> OLD.seq + 1 OR NOT EXISTS (SELECT 1 FROM audit a WHERE a.seq = NEW.seq"
     " AND a.prev_hash = OLD.hash AND a.row_hash = NEW.hash)",
     "the head follows the chain"),
]  # fmt: skip

# What an insert moves, and the condition under which the move did not happen. SQLite runs the statements of a trigger
# under the conflict rule of the outer one: after a CHECK refuses the update, `INSERT OR IGNORE INTO entry` would go on
# without it, and `INSERT OR FAIL` would stop with the entry in place. Hence this condition, and `entry_within_cap`
# before the insert; RAISE(ABORT) undoes the whole statement under any rule.
AFTER_INSERT: list[tuple[str, str, str, str, str]] = [
    # name, table, statement, denied when, message
    ("entry_moves_account", "entry",
     "UPDATE account SET last_entry_id = NEW.id,"
     " rho_held = rho_held + {sign_held} * (SELECT rho FROM hold WHERE id = NEW.hold_id),"
     " rho_spent = rho_spent + {sign_spent} * (SELECT rho FROM hold WHERE id = NEW.hold_id),"
     " delta_held = delta_held + {sign_held} * (SELECT delta FROM hold WHERE id = NEW.hold_id),"
     " delta_spent = delta_spent + {sign_spent} * (SELECT delta FROM hold WHERE id = NEW.hold_id)"
     " WHERE id = (SELECT account_id FROM hold WHERE id = NEW.hold_id)".format(
         sign_held="(CASE NEW.kind WHEN 'HOLD' THEN 1 WHEN 'ARM' THEN -1 WHEN 'RELEASE' THEN -1 ELSE 0 END)",
         sign_spent="(CASE NEW.kind WHEN 'ARM' THEN 1 ELSE 0 END)"),
     "NOT EXISTS (SELECT 1 FROM hold h JOIN account a ON a.id = h.account_id"
     " WHERE h.id = NEW.hold_id AND a.last_entry_id = NEW.id)",
     "the counters did not follow the entry"),
    ("audit_moves_head", "audit",
     "UPDATE audit_head SET seq = NEW.seq, hash = NEW.row_hash WHERE id = 1",
     "NOT EXISTS (SELECT 1 FROM audit_head d WHERE d.seq = NEW.seq AND d.hash = NEW.row_hash)",
     "the head did not follow the link"),
]  # fmt: skip

# Unique keys of the append-only tables. SQLite's REPLACE deletes the row it collides with, past the delete
# triggers of a connection that forgot `recursive_triggers`; so a collision is denied before it can happen.
RECORDS: dict[str, list[tuple[str, ...]]] = {
    "principal": [("id",), ("name",), ("public_key",)],
    "policy_version": [("id",), ("digest",)],
    "dataset": [("id",), ("name",)],
    "dataset_version": [("id",), ("uid",), ("dataset_id", "number")],
    "partition_scheme": [("id",), ("account_id",)],
    "unit_mark": [],
    "cap": [("id",), ("account_id",)],
    "request": [("id",), ("digest",)],
    "transition": [("id",), ("request_id", "number")],
    "approval": [("id",), ("request_id", "gate", "subject_digest", "approver_id")],
    "invocation": [("id",), ("idem_key",), ("request_id", "attempt", "sequence")],
    "hold": [("id",), ("invocation_id", "account_id", "instalment")],
    "entry": [("id",), ("hold_id", "kind")],
    "artifact": [("id",), ("digest",), ("request_id", "attempt")],
    "evaluation": [("id",)],
    "publication": [("id",), ("artifact_id",)],
    "delivery": [("id",)],
    "audit": [("seq",), ("prev_hash",), ("row_hash",)],
    "checkpoint": [("id",)],
}
NO_DELETE = (*RECORDS, "account", "audit_head")
NO_INSERT = ("audit_head",)


def guards() -> list[tuple[str, str, str, str, str]]:
    made = list(GUARDS)
    for table in RECORDS:
        made.append((f"{table}_no_update", table, "UPDATE", "TRUE", f"{table} is append-only"))
    for table in NO_DELETE:
        made.append((f"{table}_no_delete", table, "DELETE", "TRUE", f"{table} is append-only"))
    for table in NO_INSERT:
        made.append((f"{table}_no_insert", table, "INSERT", "TRUE", f"{table} has one row"))
    return made


def collision(table: str, keys: list[tuple[str, ...]]) -> str:
    same = (" AND ".join(f"x.{column} = NEW.{column}" for column in key) for key in keys)
    return " OR ".join(f"EXISTS (SELECT 1 FROM {table} x WHERE {key})" for key in same)


def arm_sqlite() -> None:
    replace = [
        (f"{table}_no_replace", table, "INSERT", collision(table, keys), f"{table} has recorded this already")
        for table, keys in {**RECORDS, "account": [("id",), ("parent_id", "block")]}.items()
        if keys
    ]
    for name, table, operation, condition, message in guards() + replace:
        known = condition.replace("IS DISTINCT FROM", "IS NOT")  # which SQLite knows before 3.39, too
        op.execute(
            sa.text(
                f"CREATE TRIGGER {name} BEFORE {operation} ON {table} WHEN {known} "
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


def arm_postgresql() -> None:
    # Unless a function names it last, pg_temp comes first: a temporary table `approval` or `account` would be read and
    # moved in place of the ledger's.
    path = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema()) || ', pg_temp'"))
    for name, table, operation, condition, message in guards():
        body = (
            f"BEGIN IF {condition} THEN RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514'; END IF;"
            f" RETURN {'OLD' if operation == 'DELETE' else 'NEW'}; END"
        )
        trigger(name, table, f"BEFORE {operation}", "FOR EACH ROW", body, path)
    for name, table, statement, condition, message in AFTER_INSERT:
        body = (
            f"BEGIN {statement}; IF {condition} THEN RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514';"
            " END IF; RETURN NULL; END"
        )
        trigger(name, table, "AFTER INSERT", "FOR EACH ROW", body, path)
    for table in NO_DELETE:
        body = f"BEGIN RAISE EXCEPTION 'almoner: {table} is append-only' USING ERRCODE = '23514'; END"
        trigger(f"{table}_no_truncate", table, "BEFORE TRUNCATE", "FOR EACH STATEMENT", body, path)


def trigger(name: str, table: str, when: str, scope: str, body: str, path: str) -> None:
    op.execute(
        sa.text(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path = {path} AS $$ {body} $$")
    )
    op.execute(sa.text(f"CREATE TRIGGER {name} {when} ON {table} {scope} EXECUTE FUNCTION {name}()"))
