"""Policies in the ledger: recorded once, adopted by admins only, the last adopted one in force."""

from dataclasses import replace
from typing import Any

import pytest

from models_db.policies.policy import Policy
from models_db.policies.rules import PolicyTerms
from models_db.services import people, policies
from models_db.services.audit.chain import Actor
from models_db.sessions.database import Database
from models_db.values.requests import parse_model
from models_db.writes.database_errors import AlreadyRecorded
from tasks.accounting.renyi_account import terms_of
from tests.refusals import refusal
from tests.support import fetch, snapshot


def terms(**written: Any) -> PolicyTerms:
    return terms_of(parse_model(Policy, {"version": 1} | written, "policy.yaml"))


RICH = {
    "approvals": {"spend": 2, "publish": 3, "proposal": 4},
    "release": {"epsilon_max": 4, "delta_max": 1e-7},
    "datasets": {"ward": {"release": {"epsilon_max": 1, "delta_max": 1e-8}}, "clinic": {"approvals": {"spend": 5}}},
}


def found(database: Database) -> Actor:
    """The first principal, who has every role."""
    with database.write() as session:
        return people.found_ledger(session, "founder", "f" * 64, "0" * 64)


def adopt(database: Database, actor: Actor, wanted: PolicyTerms) -> int:
    with database.write() as session:
        return policies.adopt(session, actor, wanted).id


def digest_in_force(database: Database) -> str | None:
    with database.read() as session:
        version = policies.policy_in_force(session)
        return version.digest if version else None


def adoptions(database: Database) -> list[tuple[object, ...]]:
    return fetch(database, "SELECT body FROM audit WHERE kind = 'policy.adopted' ORDER BY seq")


def test_a_policy_is_kept_with_what_the_database_enforces(database: Database) -> None:
    wanted = terms(**RICH)
    adopt(database, found(database), wanted)
    [row] = fetch(
        database,
        "SELECT digest, body, spend_approvals, publish_approvals, proposal_approvals, rho_max, delta_max"
        " FROM policy_version",
    )
    assert row == (
        wanted.digest, wanted.body, 2, 3, 4, wanted.rho_max, wanted.delta_max,
    )  # fmt: skip
    rules = fetch(database, "SELECT dataset, spend_approvals, publish_approvals, rho_max, delta_max FROM policy_rule")
    clinic, ward = wanted.rules
    assert sorted(rules, key=str) == [
        ("clinic", 5, None, None, None),
        ("ward", None, None, ward.rho_max, ward.delta_max),
    ]
    assert ward.rho_max is not None
    assert clinic.rho_max is None


def test_the_last_adopted_policy_is_in_force_and_each_is_recorded_once(database: Database) -> None:
    founder, first, second = found(database), terms(attempts=1), terms(attempts=2)
    assert digest_in_force(database) is None
    numbers = [adopt(database, founder, each) for each in (first, second, second, first)]
    assert numbers[0] == numbers[3] != numbers[1] == numbers[2]
    assert digest_in_force(database) == first.digest
    assert len(adoptions(database)) == 3
    assert fetch(database, "SELECT count(*) FROM policy_adoption") == [(3,)]


@pytest.mark.parametrize("roles", [(), ("analyst", "runner", "steward", "auditor")])
def test_whoever_is_no_admin_adopts_nothing_and_leaves_no_trace(database: Database, roles: tuple[str, ...]) -> None:
    founder = found(database)
    adopt(database, founder, terms())
    with database.write() as session:
        other = people.enrol(session, founder, "other", "0" * 64)
        for role in roles:
            people.grant(session, founder, "other", role, "to work")
    before = snapshot(database)
    with refusal("RoleRequired"):
        adopt(database, other, terms(attempts=3))
    with refusal("RoleRequired"):
        adopt(database, other, terms())
    assert snapshot(database) == before


def test_a_refused_policy_leaves_no_half_of_itself(database: Database) -> None:
    """The database refuses the row of a rule; version, adoption and link of the record go with it."""
    founder, wanted = found(database), terms(**RICH)
    broken = replace(wanted, rules=(*wanted.rules, wanted.rules[0]))
    before = snapshot(database)
    with pytest.raises(AlreadyRecorded):
        adopt(database, founder, broken)
    assert snapshot(database) == before
    adopt(database, founder, wanted)
