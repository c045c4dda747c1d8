"""A policy's columns, which guards read, are those that its text gives: wherever a policy is read."""

import pytest

from models_db.tables import PolicyRule, PolicyVersion
from tests.integration.story import Almoner

CONCERNS = ("flows/workspace", "models_db/policies", "models_db/services")

TEAM = """\
version: 1
several_roles: true
approvals: {spend: 2, publish: 2, proposal: 2}
attempts: 3
approval_days: 20
request_days: 40
release: {epsilon_max: 4, delta_max: 1.0e-6}
lifetime_while_secret: {epsilon: 5, delta: 1.0e-6}
datasets:
  clinic:
    approvals: {spend: 1, publish: 1, proposal: 3}
    release: {epsilon_max: 3, delta_max: 1.0e-6}
    lifetime_while_secret: {epsilon: 4, delta: 1.0e-6}
"""
UNSAID = {"id", "created_at", "policy_id"}
COLUMNS = [
    (table.__tablename__, column.name)
    for table in (PolicyVersion, PolicyRule)
    for column in table.__table__.columns
    if column.name not in UNSAID
]


def altered(column: str) -> str:
    words = {
        "digest": f"'{'e' * 64}'",
        "dataset": "'ward'",
        "several_roles": "0",
    }
    return words.get(column, "replace(body, '\"spend\":2', '\"spend\":1')" if column == "body" else f"{column} + 1")


@pytest.mark.slow
@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_an_altered_column_is_named_wherever_the_policy_is_read(almoner: Almoner, table: str, column: str) -> None:
    almoner.ingested()
    almoner.type(f"policy adopt {almoner.write('team.yaml', TEAM)}")
    assert almoner.ask("doctor")["ok"] is True
    with almoner.connection() as connection:
        connection.exec_driver_sql(f"DROP TRIGGER {table}_no_update")
        newest = "(SELECT max(policy_id) FROM policy_adoption)"
        where = f"id = {newest}" if table == "policy_version" else f"policy_id = {newest}"
        done = connection.exec_driver_sql(f"UPDATE {table} SET {column} = {altered(column)} WHERE {where}")
        assert done.rowcount == 1
    found = {f["check"]: f["ok"] for f in almoner.ask("doctor", expected=3)["findings"]}
    assert found["policies"] is False
    for line in ("budget show clinic", "policy show"):
        assert almoner.type(f"{line} --json", expected=3).json["error"] == "PolicyAltered"


def test_a_lax_row_under_a_digest_is_not_used(almoner: Almoner) -> None:
    """As an admin with SQL records it before the policy is adopted."""
    almoner.ingested()
    file = almoner.write("team.yaml", TEAM)
    digest = almoner.ask(f"policy check {file}")["digest"]
    with almoner.connection() as connection:
        connection.exec_driver_sql(
            "INSERT INTO policy_version (digest, body, several_roles, spend_approvals, publish_approvals,"
            " proposal_approvals, created_at, attempts, approval_days, request_days)"
            " SELECT ?, body, TRUE, 1, 1, 1, created_at, 100, 365, 365 FROM policy_version",
            (digest,),
        )
    almoner.type(f"policy adopt {file}", expected=None)
    assert almoner.type("policy show --json", expected=3).json["error"] == "PolicyAltered"
