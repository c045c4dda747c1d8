"""Cohorts: units that come later bring budgets of their own, and no unit ever changes its block.

History must not move: this file imports no project code and is never edited once released. Three guards of 0001 know
that a root account may have several times as many blocks as its partition has, and the door that claims units takes
the cohort of each beside its mark.
"""

import sqlalchemy as sa
from alembic import op

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0005"
down_revision = "0004"
gives_up = ("almoner_claim_units(root bigint, marks bytea[])",)  # it has another argument now


def upgrade() -> None:
    tables()
    if op.get_bind().dialect.name == "sqlite":
        arm_sqlite()
    else:
        arm_postgresql()


def tables() -> None:
    op.create_table(
        "cohort",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("account_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("version_id", ID, nullable=False),
        sa.Column("population", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.String(length=27), nullable=False),
        sa.Column("created_by", ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cohort"),
        sa.CheckConstraint("number >= 2", name=op.f("ck_cohort_number")),
        sa.CheckConstraint("population >= 1", name=op.f("ck_cohort_population")),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name="fk_cohort_account_id"),
        sa.ForeignKeyConstraint(["version_id"], ["dataset_version.id"], name="fk_cohort_version_id"),
        sa.ForeignKeyConstraint(["created_by"], ["principal.id"], name="fk_cohort_created_by"),
        sa.UniqueConstraint("account_id", "number", name="uq_cohort_account_id_number"),
        sa.UniqueConstraint("version_id", name="uq_cohort_version_id"),
    )
    op.execute(sa.text("ALTER TABLE unit_mark ADD COLUMN cohort INTEGER NOT NULL DEFAULT 1"))


# --- What the database itself refuses -----------------------------------------------------------------------


def role(who: str, name: str, at: str) -> str:
    return (
        f"EXISTS (SELECT 1 FROM role_grant g WHERE g.principal_id = {who} AND g.role = '{name}' AND g.valid_from <= {at}"
        f" AND (g.valid_to IS NULL OR g.valid_to > {at})"
        " AND NOT EXISTS (SELECT 1 FROM role_revocation v WHERE v.grant_id = g.id))"
    )


LATER = "(SELECT count(*) FROM cohort c WHERE c.account_id = {account})"
OWN_BLOCKS = "(SELECT s.blocks FROM partition_scheme s WHERE s.account_id = NEW.account_id)"

GUARDS: list[tuple[str, str, str, str, str]] = [
    # name, table, operation, denied when, message
    ("dataset_like_its_account", "dataset", "INSERT",
     "EXISTS (SELECT 1 FROM dataset d WHERE d.account_id = NEW.account_id AND (d.governed <> NEW.governed"
     " OR ((EXISTS (SELECT 1 FROM partition_scheme s WHERE s.account_id = NEW.account_id AND s.blocks > 1)"
     " OR EXISTS (SELECT 1 FROM cohort c WHERE c.account_id = NEW.account_id))"
     " AND (NEW.unit_field IS NULL OR d.unit_field IS NULL OR d.unit_field <> NEW.unit_field))))",
     "datasets of one account are protected alike, and in several blocks name their units alike"),
    ("account_block_number", "account", "INSERT",
     "NEW.kind = 'block' AND NOT EXISTS (SELECT 1 FROM partition_scheme s WHERE s.account_id = NEW.parent_id"
     f" AND NEW.block < s.blocks * (1 + {LATER.format(account='NEW.parent_id')}))",
     "a block is one of its partition"),
    ("unit_mark_keeps_cohort", "unit_mark", "INSERT",
     "NEW.cohort <> coalesce((SELECT m.cohort FROM unit_mark m WHERE m.mark = NEW.mark"
     f" AND m.account_id = NEW.account_id), 1 + {LATER.format(account='NEW.account_id')})",
     "a unit stays in the cohort in which it was first seen"),
    ("cohort_by_steward", "cohort", "INSERT",
     f"NOT {role('NEW.created_by', 'steward', 'NEW.created_at')}",
     "only a steward opens a cohort"),
    ("cohort_in_turn", "cohort", "INSERT",
     f"NEW.number <> 2 + {LATER.format(account='NEW.account_id')}",
     "cohorts are opened one after the other"),
    ("cohort_of_named_units", "cohort", "INSERT",
     "NOT EXISTS (SELECT 1 FROM dataset_version v JOIN dataset d ON d.id = v.dataset_id WHERE v.id = NEW.version_id"
     " AND d.account_id = NEW.account_id AND d.governed AND d.unit_field IS NOT NULL AND NOT EXISTS (SELECT 1"
     " FROM dataset o WHERE o.account_id = d.account_id"
     " AND (o.unit_field IS NULL OR o.unit_field <> d.unit_field)))",
     "units that are not named alike would come back as new ones"),
    ("cohort_with_its_version", "cohort", "INSERT",
     "NOT EXISTS (SELECT 1 FROM dataset_version v WHERE v.id = NEW.version_id AND NOT EXISTS (SELECT 1"
     " FROM dataset_version w WHERE w.dataset_id = v.dataset_id AND w.number > v.number)"
     " AND EXISTS (SELECT 1 FROM dataset_version w JOIN dataset d ON d.id = w.dataset_id"
     " WHERE d.account_id = NEW.account_id AND w.id <> v.id))",
     "a cohort is opened with a further version of the data"),
]  # fmt: skip
REPLACED = [("dataset_like_its_account", "dataset"), ("account_block_number", "account")]

# The blocks of a cohort are those of the first one again, with the cap that the root has now.
AFTER_INSERT: list[tuple[str, str, str, str, str]] = [
    # name, table, statement, denied when, message
    ("cohort_opens_blocks", "cohort",
     "INSERT INTO account (kind, parent_id, block, rho_cap, delta_cap)"
     " SELECT 'block', r.id, b.block + s.blocks * (NEW.number - 1), r.rho_cap, r.delta_cap FROM account b"
     " JOIN account r ON r.id = b.parent_id JOIN partition_scheme s ON s.account_id = r.id"
     " WHERE b.parent_id = NEW.account_id AND b.kind = 'block' AND b.block < s.blocks ORDER BY b.block",
     "(SELECT count(*) FROM account b WHERE b.parent_id = NEW.account_id AND b.kind = 'block')"
     f" IS DISTINCT FROM NEW.number * {OWN_BLOCKS}",
     "the blocks did not follow the cohort"),
]  # fmt: skip

RECORDS: dict[str, list[tuple[str, ...]]] = {"cohort": [("id",), ("account_id", "number"), ("version_id",)]}


def guards() -> list[tuple[str, str, str, str, str]]:
    made = list(GUARDS)
    for table in RECORDS:
        made.append((f"{table}_no_update", table, "UPDATE", "TRUE", f"{table} is append-only"))
        made.append((f"{table}_no_delete", table, "DELETE", "TRUE", f"{table} is append-only"))
    return made


def collision(table: str, keys: list[tuple[str, ...]]) -> str:
    same = (" AND ".join(f"x.{column} = NEW.{column}" for column in key) for key in keys)
    return " OR ".join(f"EXISTS (SELECT 1 FROM {table} x WHERE {key})" for key in same)


def arm_sqlite() -> None:
    for name, _ in REPLACED:
        op.execute(sa.text(f"DROP TRIGGER {name}"))
    made = guards()
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
    for name, table, statement, condition, message in AFTER_INSERT:
        known = condition.replace("IS DISTINCT FROM", "IS NOT")  # which SQLite knows before 3.39, too
        op.execute(
            sa.text(
                f"CREATE TRIGGER {name} AFTER INSERT ON {table} BEGIN {statement};"
                f" SELECT RAISE(ABORT, 'almoner: {message}') WHERE {known}; END"
            )
        )


# --- PostgreSQL: the one door -------------------------------------------------------------------------------

BY_KEYS = ("plan_cache_mode = force_generic_plan", "enable_hashjoin = off", "enable_mergejoin = off")
QUEUE = (  # the caps of the new blocks are the root's, so nobody may change or spend them meanwhile
    " IF kind = 'cohort' THEN PERFORM 1 FROM account a WHERE coalesce(a.parent_id, a.id) IN"
    " (SELECT (g.value ->> 'account_id')::bigint FROM jsonb_array_elements(given) g) ORDER BY a.id FOR UPDATE; END IF;"
)  # fmt: skip
CLAIM = (
    "BEGIN IF NOT almoner_owner() AND NOT coalesce(almoner_may(almoner_principal(), 'runner')"
    " OR almoner_may(almoner_principal(), 'steward'), FALSE) THEN"
    " RAISE EXCEPTION 'almoner: only a runner or a steward takes data in' USING ERRCODE = '23514'; END IF;"
    # Whoever opens a cohort holds the root; who came first is waited for here, before the marks are locked.
    " PERFORM 1 FROM account a WHERE a.id = root AND a.kind = 'root' FOR KEY SHARE;"
    " IF NOT FOUND THEN"
    " RAISE EXCEPTION 'almoner: a unit belongs to one root account' USING ERRCODE = '23514'; END IF;"
    " LOCK TABLE unit_mark IN SHARE ROW EXCLUSIVE MODE;"
    " INSERT INTO unit_mark (mark, account_id, cohort) SELECT u.m, root, u.c FROM unnest(marks, cohorts) u(m, c)"
    " ON CONFLICT DO NOTHING; END"
)


def arm_postgresql() -> None:
    path = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema()) || ', pg_temp'"))
    for name, table in REPLACED:
        op.execute(sa.text(f"DROP TRIGGER {name} ON {table}"))
        op.execute(sa.text(f"DROP FUNCTION {name}()"))
    for name, table, operation, condition, message in guards():
        denies = (
            f"BEGIN IF {condition} THEN RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514'; END IF;"
            f" RETURN {'OLD' if operation == 'DELETE' else 'NEW'}; END"
        )
        trigger(name, table, f"BEFORE {operation}", "FOR EACH ROW", denies, path)
    for name, table, statement, condition, message in AFTER_INSERT:
        does = (
            f"BEGIN {statement}; IF {condition} THEN RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514';"
            " END IF; RETURN NULL; END"
        )
        trigger(name, table, "AFTER INSERT", "FOR EACH ROW", does, path)
    for table in RECORDS:
        denies = f"BEGIN RAISE EXCEPTION 'almoner: {table} is append-only' USING ERRCODE = '23514'; END"
        trigger(f"{table}_no_truncate", table, "BEFORE TRUNCATE", "FOR EACH STATEMENT", denies, path)
        told_or_denied(table, path)
    known = "".join(f"'{table}', " for table in RECORDS)
    widened("almoner_record", "(kind text, given jsonb) RETURNS SETOF jsonb", "LANGUAGE plpgsql SECURITY DEFINER",
            "<> ALL (ARRAY[", known, path)  # fmt: skip
    widened("almoner_queue", "(kind text, given jsonb) RETURNS void", "LANGUAGE plpgsql", "BEGIN", QUEUE, path)
    op.execute(sa.text("DROP FUNCTION almoner_claim_units(bigint, bytea[])"))
    function("CREATE", "almoner_claim_units", "(root bigint, marks bytea[], cohorts integer[]) RETURNS void",
             "LANGUAGE plpgsql SECURITY DEFINER", CLAIM, path)  # fmt: skip
    op.execute(sa.text("REVOKE ALL ON FUNCTION almoner_claim_units(bigint, bytea[], integer[]) FROM PUBLIC"))


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
