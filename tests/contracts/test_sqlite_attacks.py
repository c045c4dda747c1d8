"""Attacks on the SQLite file by whoever can open it: denied by the guards, or seen by `almoner doctor` afterwards."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from migrations.schema_inventory import schema_differences
from models_db.database.base import utc_now
from models_db.services import policies
from models_db.services.queries import health
from models_db.sessions.database import Database
from tests.conftest import Ledgers
from tests.contracts.rows import DIGEST
from tests.contracts.town import Town, town_of
from tests.support import LATE, SOON, TEN, World, planned, snapshot, terms

CARELESS = ("recursive_triggers = OFF", "foreign_keys = OFF", "trusted_schema = ON", "busy_timeout = 5000")


@pytest.fixture(scope="module")
def town(ledgers: Ledgers) -> Iterator[Town]:
    with town_of(ledgers, "sqlite") as built:
        before = snapshot(built.world.database)
        yield built
        assert snapshot(built.world.database) == before


@pytest.fixture
def raw(town: Town) -> Iterator[sqlite3.Connection]:
    """A connection that set none of the ledger's pragmas, and whose changes are taken back."""
    with closing(sqlite3.connect(town.world.database.engine.url.database or "", isolation_level=None)) as connection:
        for pragma in CARELESS:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.rollback()


NOW = "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')"
ADMIN, STEWARD = (
    "(SELECT id FROM principal WHERE name = 'admin')",
    "(SELECT id FROM principal WHERE name = 'steward')",
)
UNARMED = (
    "(SELECT min(h.id) FROM hold h WHERE EXISTS (SELECT 1 FROM entry e WHERE e.hold_id = h.id AND e.kind = 'HOLD')"
    " AND NOT EXISTS (SELECT 1 FROM entry e WHERE e.hold_id = h.id AND e.kind <> 'HOLD'))"
)
CLINIC = "(SELECT account_id FROM dataset WHERE name = 'clinic')"
DENIED = {
    "forget what was spent": "UPDATE account SET rho_spent = 0",
    "forget it quietly": "UPDATE OR IGNORE account SET rho_spent = 0",
    "replace the account": "REPLACE INTO account (id, rho_cap, delta_cap, created_at)"
    " SELECT id, 9999, 9999, created_at FROM account",
    "raise the cap": "UPDATE account SET rho_cap = rho_cap * 2, delta_cap = delta_cap * 2",
    "upsert a cap": "INSERT INTO account (id, rho_cap, delta_cap, created_at) SELECT id, 1, 1, created_at FROM account"
    " WHERE TRUE ON CONFLICT DO UPDATE SET rho_cap = 9999",
    "delete entries": "DELETE FROM entry",
    "delete one hold": "DELETE FROM hold WHERE id = 1",
    "turn an arm into a release": "UPDATE entry SET kind = 'RELEASE' WHERE kind = 'ARM'",
    "turn a rejection into an approval": "UPDATE approval SET decision = 'approve'",
    "prolong an approval": f"UPDATE OR REPLACE approval SET expires_at = '{LATE}'",
    "take a rejection away": "DELETE FROM approval WHERE decision = 'reject'",
    "give an approval back": "DELETE FROM withdrawal",
    "rewrite the chain": "UPDATE audit SET actor = 'x'",
    "cut the chain": "DELETE FROM audit WHERE seq > 5",
    "move the head": "UPDATE audit_head SET seq = 5",
    "another head": "INSERT INTO audit_head (id, seq, hash) VALUES (2, 0, 'x')",
    "replace the head": "INSERT OR REPLACE INTO audit_head (id, seq, hash) VALUES (1, 0, 'x')",
    "a link out of order": f"INSERT INTO audit SELECT seq + 2, hash, 'x', {NOW}, 'x', 'x', NULL, NULL, '{{}}'"
    f" FROM audit_head",
    "a link of long ago": "INSERT INTO audit SELECT seq + 1, hash, 'x', '2001', 'x', 'x', NULL, NULL, '{}' FROM"
    " audit_head",
    "make peace with the policy": "UPDATE policy_version SET several_roles = 1",
    "a rule for the policy in force": "INSERT INTO policy_rule (policy_id, dataset, spend_approvals)"
    " SELECT policy_id, 'clinic', 1 FROM policy_adoption ORDER BY id DESC LIMIT 1",
    "take a revocation away": "DELETE FROM role_revocation",
    "a role by nobody": f"INSERT INTO role_grant (principal_id, role, valid_from, granted_by, reason, at)"
    f" VALUES (1, 'admin', '2000', 999, 'r', {NOW})",
    "take the last admin's role": "INSERT INTO role_revocation (grant_id, revoked_by, reason, at)"
    f" SELECT id, {ADMIN}, 'r', {NOW} FROM role_grant WHERE role = 'admin' AND principal_id = {ADMIN}",
    "a wider block": f"INSERT OR FAIL INTO account (parent_id, block, rho_cap, delta_cap, created_at)"
    f" VALUES ({CLINIC}, 1, 99999, 9, {NOW})",
    "an account with a past": "INSERT INTO account (rho_cap, delta_cap, rho_spent) VALUES (9, 9, -5)",
    "arm by an analyst": f"INSERT OR IGNORE INTO entry (hold_id, kind, at, actor_id)"
    f" SELECT {UNARMED}, 'ARM', {NOW}, id FROM principal WHERE name = 'analyst'",
    "arm by nobody": f"INSERT INTO entry (hold_id, kind, at, actor_id) VALUES ({UNARMED}, 'ARM', {NOW}, 999)",
    "arm a hold to come": f"INSERT INTO entry (hold_id, kind, at, actor_id) VALUES (9999, 'ARM', {NOW}, {ADMIN})",
    "arm tomorrow": f"INSERT INTO entry (hold_id, kind, at, actor_id) VALUES ({UNARMED}, 'ARM', '{LATE}', {ADMIN})",
    "release what is armed": f"INSERT INTO entry (hold_id, kind, at, actor_id)"
    f" SELECT hold_id, 'RELEASE', {NOW}, {ADMIN} FROM entry WHERE kind = 'ARM'",
    "a negative hold": "INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)"
    " SELECT invocation_id, account_id, 99, -5, 0 FROM hold WHERE id = (SELECT max(id) FROM hold)",
    "a hold in text": "INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)"
    " SELECT invocation_id, account_id, 99, 'abc', 0 FROM hold WHERE id = (SELECT max(id) FROM hold)",
    "approve oneself": "INSERT INTO approval (request_id, gate, subject_digest, approver_id, decision, reason, at,"
    f" expires_at, signature) SELECT r.id, 'spend', r.digest, r.requester_id, 'approve', 'r', {NOW}, '{SOON}', 's'"
    " FROM request r WHERE r.id = 1",
    "approve as an admin": "INSERT INTO approval (request_id, gate, subject_digest, approver_id, decision, reason, at,"
    f" expires_at, signature) SELECT r.id, 'spend', r.digest, {ADMIN}, 'approve', 'r', {NOW}, '{SOON}', 's'"
    " FROM request r WHERE r.id = 1",
    "carry what nobody approved": "INSERT INTO carried (proposal_id, actor_id, at)"
    f" SELECT id, {STEWARD}, {NOW} FROM proposal WHERE id NOT IN (SELECT proposal_id FROM carried)",
    "carry it again": f"INSERT OR REPLACE INTO carried (proposal_id, actor_id, at) SELECT proposal_id, {STEWARD}, {NOW}"
    " FROM carried",
    "change a proposal": "UPDATE proposal SET rho = 99999",
    "a run more": "UPDATE proposal SET runs = 99",
    "publish what nobody approved": "INSERT INTO publication (artifact_id, at, actor_id)"
    f" SELECT max(id), {NOW}, {ADMIN} FROM artifact",
    "call back by hand": "INSERT INTO transition (request_id, number, from_state, to_state, detail, at, actor_id)"
    f" SELECT request_id, number + 1, 'published', 'retracted', '', {NOW}, {STEWARD} FROM transition"
    " WHERE to_state = 'published'",
    "a step of long ago": "INSERT INTO transition (request_id, number, from_state, to_state, detail, at, actor_id)"
    f" VALUES (1, 2, 'submitted', 'withdrawn', '', '2001-01-01T00:00:00.000000Z', {STEWARD})",
    "units for another account": "INSERT OR REPLACE INTO unit_mark (mark, account_id, cohort)"
    " SELECT mark, account_id + 1, cohort FROM unit_mark",
    "units of another cohort": "INSERT OR REPLACE INTO unit_mark (mark, account_id, cohort)"
    " SELECT mark, account_id, cohort + 1 FROM unit_mark",
    "a unit moved": "UPDATE unit_mark SET cohort = cohort + 1",
    "a cohort without blocks": "INSERT OR IGNORE INTO cohort (account_id, number, version_id, created_at, created_by)"
    f" SELECT d.account_id, 2, v.id, {NOW}, {STEWARD} FROM dataset d JOIN dataset_version v ON v.dataset_id = d.id",
    "another seed": "INSERT OR IGNORE INTO invocation (request_id, attempt, sequence, mechanism, event, relation,"
    " rng_kind, device, code_digest, libraries, idem_key, created_at, created_by) SELECT request_id, attempt, 99,"
    f" mechanism, event, relation, 'seeded', device, code_digest, libraries, 'k', {NOW}, {ADMIN} FROM invocation"
    " WHERE id = (SELECT max(id) FROM invocation)",
}  # fmt: skip


@pytest.mark.parametrize("attack", DENIED)
def test_the_file_itself_refuses(raw: sqlite3.Connection, attack: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=r"almoner:|CHECK constraint|UNIQUE constraint"):
        raw.execute(DENIED[attack])


@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE", "INSERT OR FAIL"])
def test_a_cap_below_what_is_spent_is_refused_whole(raw: sqlite3.Connection, verb: str) -> None:
    """A guard refuses before the row is there: the CHECK alone would stop only the update that follows from it."""
    in_force = "(SELECT policy_id FROM policy_adoption ORDER BY id DESC LIMIT 1)"
    raw.execute(
        "INSERT INTO proposal (kind, dataset_id, policy_id, proposer_id, reason, nonce, digest, created_at, expires_at,"
        f" epsilon, delta, delta_conversion, rho, delta_fail) SELECT 'cap', dataset_id, {in_force}, requester_id, 'r',"
        f" 'n', '{DIGEST}', {NOW}, '{SOON}', '1', '0', 1, 1, 0 FROM request WHERE id = 1"
    )
    proposal = raw.execute("SELECT max(id) FROM proposal").fetchone()[0]
    raw.execute(
        "INSERT INTO approval (proposal_id, gate, subject_digest, approver_id, decision, reason, at, expires_at,"
        f" signature) SELECT {proposal}, 'proposal', '{DIGEST}', {STEWARD}, 'approve', 'r', {NOW}, '{SOON}', 's'"
    )
    with pytest.raises(sqlite3.IntegrityError, match="the cap would be passed"):
        raw.execute(f"{verb} INTO carried (proposal_id, actor_id, at) VALUES ({proposal}, {STEWARD}, {NOW})")
    assert raw.execute("SELECT count(*) FROM carried WHERE proposal_id = ?", (proposal,)).fetchone() == (0,)


# --- what no guard can refuse is seen -----------------------------------------------------------------------------

SCHEMA = {
    "drop a guard": "DROP TRIGGER entry_arm_approved",
    "drop a key": "DROP INDEX uq_entry_closed",
    "drop a table": "DROP TABLE withdrawal",
    "a column more": "ALTER TABLE approval ADD COLUMN x",
    "another name": "ALTER TABLE role_revocation RENAME TO gone",
    "a trigger more": "CREATE TRIGGER mine BEFORE INSERT ON entry BEGIN SELECT RAISE(IGNORE); END",
    "an index more": "CREATE INDEX mine ON approval (request_id)",
    "a view in the way": "CREATE VIEW mine AS SELECT 1",
}


@pytest.mark.usefixtures("schemas_once")
@pytest.mark.parametrize("attack", [name for name in SCHEMA if name != "a view in the way"])
def test_a_changed_schema_is_seen(town: Town, attack: str) -> None:
    with town.world.database.engine.connect() as connection:
        connection.exec_driver_sql(SCHEMA[attack])
        assert schema_differences(connection), attack
        connection.rollback()


@pytest.mark.usefixtures("schemas_once")
@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE sqlite_master SET sql = replace(sql, 'rho_held + rho_spent <= rho_cap', 'TRUE') WHERE name = 'account'",
        "UPDATE sqlite_master SET sql = replace(sql, ' WHEN ', ' WHEN 0 AND ') WHERE name = 'entry_arm_approved'",
        "DELETE FROM sqlite_master WHERE name = 'approval_no_update'",
    ],
)
def test_an_edited_schema_is_seen(town: Town, ledgers: Ledgers, edit: str) -> None:
    with ledgers.new("sqlite", like=town.world.database) as copy:
        with closing(sqlite3.connect(copy.engine.url.database or "")) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(edit)
            connection.commit()
        with copy.engine.connect() as connection:
            assert schema_differences(connection)


REWRITTEN = {
    "counters": "UPDATE account SET rho_spent = 0 WHERE rho_spent > 0",
    "an armed hold made small": "UPDATE hold SET rho = 1 WHERE id IN (SELECT hold_id FROM entry WHERE kind = 'ARM')",
    "an armed hold and its counters": (
        "UPDATE account SET rho_spent = rho_spent - (SELECT coalesce(sum(h.rho), 0) FROM hold h JOIN entry e"
        " ON e.hold_id = h.id AND e.kind = 'ARM' WHERE h.account_id = account.id);"
        "UPDATE hold SET rho = 0 WHERE id IN (SELECT hold_id FROM entry WHERE kind = 'ARM')"
    ),
    "an arm and its hold gone": (
        "UPDATE account SET rho_spent = 0, delta_spent = 0;"
        "DELETE FROM hold WHERE id IN (SELECT hold_id FROM entry WHERE kind = 'ARM');"
        "DELETE FROM entry WHERE hold_id NOT IN (SELECT id FROM hold)"
    ),
    "a rejection made an approval": "UPDATE approval SET decision = 'approve' WHERE decision = 'reject'",
    "a decision taken away": "DELETE FROM approval WHERE decision = 'reject'",
    "a decision nobody told of": (
        "INSERT INTO approval (request_id, gate, subject_digest, approver_id, decision, reason, at, expires_at,"
        f" signature) SELECT request_id, gate, subject_digest, approver_id, decision, 'r', {NOW}, expires_at, 'forged'"
        " FROM approval WHERE id = 1"
    ),
    "a withdrawal taken away": "DELETE FROM withdrawal",
    "a role nobody told of": (
        "INSERT INTO role_grant (principal_id, role, valid_from, granted_by, reason, at)"
        f" SELECT id, 'admin', {NOW}, {ADMIN}, 'r', {NOW} FROM principal WHERE name = 'analyst'"
    ),
    "a revocation taken away": "DELETE FROM role_revocation",
    "another policy in force": (
        f"INSERT INTO policy_adoption (policy_id, adopted_by, at) SELECT max(id), {ADMIN}, {NOW} FROM policy_version"
    ),
    "a publication nobody told of": (
        "INSERT INTO publication (artifact_id, at, actor_id) SELECT max(id) + 100, at, actor_id FROM publication"
    ),
    "a retraction taken away": "DELETE FROM carried WHERE proposal_id IN (SELECT id FROM proposal WHERE kind ="
    " 'retraction')",
    "a link": "UPDATE audit SET body = '{}' WHERE seq = 3",
    "the end of the chain": (
        "DELETE FROM audit WHERE seq > 20; UPDATE audit_head SET seq = 20,"
        " hash = (SELECT row_hash FROM audit WHERE seq = 20)"
    ),
    "a row that points nowhere": "UPDATE hold SET invocation_id = 9999 WHERE id = (SELECT max(id) FROM hold)",
    "an amount that no CHECK would admit": "UPDATE hold SET rho = -1 WHERE id = (SELECT max(id) FROM hold)",
}  # fmt: skip


@pytest.fixture(scope="module")
def honest(ledgers: Ledgers) -> Iterator[Database]:
    """A ledger that only the services have written."""
    with ledgers.new("sqlite") as database:
        world = World.create(database)
        world.dataset()
        second = world.person("second steward")
        with database.write() as session:
            for given in (terms(spend_approvals=2), terms()):
                policies.adopt(session, world.admin, given)
        world.published()
        world.retraction(world.published().request_id)
        running = world.held(planned(TEN, TEN))
        world.arm(running)
        request_id = world.request()
        world.decide(request_id)
        world.take_back(request_id)
        world.decide(request_id, verdict="reject", by=second)
        world.revoke("second steward", "steward")
        yield database


def examined(database: Database) -> list[str]:
    with database.read() as session:
        return [f"{finding.check}: {finding.detail}" for finding in health.check_health(session) if not finding.ok]


def test_an_honest_ledger_is_whole(honest: Database) -> None:
    assert examined(honest) == []


@pytest.mark.usefixtures("schemas_once")
@pytest.mark.parametrize("attack", REWRITTEN)
def test_what_was_rewritten_past_the_guards_is_seen(ledgers: Ledgers, honest: Database, attack: str) -> None:
    """Every trigger is dropped, rows are changed, and every trigger is put back: the schema looks as it did."""
    with ledgers.new("sqlite", like=honest) as copy:
        with closing(sqlite3.connect(copy.engine.url.database or "")) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            connection.executescript(REWRITTEN[attack])
            for _, statement in triggers:
                connection.execute(statement)
            connection.commit()
        with copy.engine.connect() as connection:
            assert schema_differences(connection) == []
        assert examined(copy), attack


def test_a_copy_that_is_attached_is_another_ledger(town: Town, raw: sqlite3.Connection, tmp_path: object) -> None:
    raw.rollback()
    raw.execute(f"ATTACH '{tmp_path}/copy' AS copy")
    raw.execute("CREATE TABLE copy.approval AS SELECT * FROM main.approval")
    raw.execute("CREATE TABLE copy.entry AS SELECT * FROM main.entry")
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE constraint"):
        raw.execute(
            "INSERT INTO main.entry (hold_id, kind, at, actor_id) SELECT hold_id, 'RELEASE', ?, 1 FROM copy.entry"
            " WHERE kind = 'ARM'",
            (utc_now(),),
        )


def test_there_are_enough_attacks() -> None:
    assert len(DENIED) + len(SCHEMA) + len(REWRITTEN) >= 70
