"""Somebody with all rights on the database changes rows and puts the guards back: nothing is spent or published."""

import pytest

from models_db.sessions.database import Database
from tasks.accounting.lifetime_claims import lifetime_claim
from tests.integration.story import Almoner
from tests.support import fetch

RAISED = ("UPDATE account SET rho_cap = rho_cap * 100", "UPDATE account SET epsilon = '70' WHERE id = 1")
ALTERED = {
    "the cap": RAISED,
    "the claim": ("UPDATE account SET epsilon = '70', delta = '0.5' WHERE id = 1",),
    "the counters' cap": ("UPDATE account SET delta_cap = delta_cap * 2 WHERE parent_id IS NOT NULL",),
    "the dataset": ("UPDATE dataset SET governed = NOT governed",),
    "the version": ("UPDATE dataset_version SET uid = substr(uid, 2) || 'e'",),
    "the policy": ("UPDATE policy_version SET publish_approvals = 7, several_roles = NOT several_roles",),
    "the policy's text": ("UPDATE policy_version SET body = '{}'",),
    "the policy in force": ("UPDATE policy_adoption SET at = '2020-01-01T00:00:00.000000Z'",),
    "the request": ("UPDATE request SET expires_at = '9999-01-01T00:00:00.000000Z'",),
    "an approval": ("UPDATE approval SET expires_at = '9999-01-01T00:00:00.000000Z'",),
    "a role": ("UPDATE role_grant SET valid_to = '9999-01-01T00:00:00.000000Z'",),
    "a person": ("UPDATE principal SET name = 'x' || name",),
    "the partition": ("UPDATE account SET key_name = substr(key_name, 2) || 'e'",),
    "a proposal from nowhere": (
        """
INSERT INTO proposal (kind, dataset_id, policy_id, proposer_id, reason, nonce, digest, created_at, expires_at, epsilon,
                    delta, delta_conversion, rho, delta_fail)
SELECT 'cap', 1, policy_id, requester_id, 'why', 'n', digest, created_at, expires_at, '8', '0.000001', 1,
       (SELECT rho_cap FROM account WHERE id = 1), (SELECT delta_cap FROM account WHERE id = 1) FROM request""",
        "INSERT INTO carried (proposal_id, actor_id, at) SELECT id, proposer_id, created_at FROM proposal",
    ),
}


def alter(database: Database, *statements: str) -> None:
    """Past every guard, all of which are there again afterwards."""
    with database.engine.begin() as connection:
        if not database.is_sqlite:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        triggers = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid"
        guards = connection.exec_driver_sql(triggers).all() if database.is_sqlite else []
        for name, _ in guards:
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.exec_driver_sql(statement)
        for _, guard in guards:
            connection.exec_driver_sql(guard)


@pytest.mark.parametrize("what", ALTERED)
def test_nothing_is_spent_on_what_was_altered(almoner: Almoner, what: str) -> None:
    almoner.approved()
    alter(almoner.database, *ALTERED[what])
    before = fetch(almoner.database, "SELECT count(*), max(seq) FROM audit")
    refused = almoner.ask("run 1", expected=1)
    assert refused["error"] in ("LedgerAltered", "PrincipalUnknown", "PolicyAltered"), refused
    assert fetch(almoner.database, "SELECT count(*) FROM entry") == [(0,)]
    assert fetch(almoner.database, "SELECT count(*), max(seq) FROM audit") == before
    assert fetch(almoner.database, "SELECT max(number) FROM transition") == [(2,)]
    assert "not as the chain tells" in almoner.type("doctor", expected=3).out
    assert almoner.ask("audit verify", expected=1)["differences"]


def test_the_attack_that_was_published_once_is_refused(any_almoner: Almoner) -> None:
    """A release of epsilon 12 on a claim of 8: raised behind the guards, run, approved, published."""
    any_almoner.ingested()
    file = any_almoner.request_file(epsilon=12.0)
    alter(any_almoner.database, *RAISED)
    assert any_almoner.ask(f"release request {file} --accept-weak-promise", expected=1)["error"] == "AmountsDiffer"
    derived = lifetime_claim("70", "0.000001").cap  # whoever knows what an epsilon is worth writes amounts that agree
    alter(
        any_almoner.database,
        f"UPDATE account SET rho_cap = {derived.rho}, delta_cap = {derived.delta}",
        f"UPDATE account SET rho = {derived.rho}, delta_fail = {derived.delta} WHERE id = 1",
    )
    any_almoner.type(f"release request {file} --accept-weak-promise")
    any_almoner.type('approve 1 --gate spend --reason "it fits"')
    refused = any_almoner.ask("run 1", expected=1)
    assert refused["error"] == "LedgerAltered"
    assert "account 1" in refused["message"]
    assert fetch(any_almoner.database, "SELECT count(*) FROM entry") == [(0,)]


@pytest.mark.parametrize(
    "statement",
    [*RAISED, "UPDATE artifact SET size = size + 1", "UPDATE approval SET reason = 'other'",
     "UPDATE evaluation SET result = replace(result, '1', '2')", "UPDATE audit SET body = '{}' WHERE seq = 5"],
)  # fmt: skip
def test_nothing_is_published_that_rests_on_what_was_altered(any_almoner: Almoner, statement: str) -> None:
    any_almoner.passed()
    alter(any_almoner.database, statement)
    refused = any_almoner.ask(f"publish 1 --to {any_almoner.folder / 'out'}", expected=1)
    assert refused["error"] == "LedgerAltered"
    assert not (any_almoner.folder / "out").exists()
    assert fetch(any_almoner.database, "SELECT count(*) FROM publication") == [(0,)]
