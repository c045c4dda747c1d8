"""Least privilege on PostgreSQL: what no login may do, and what nobody can say in another's name.

`tests/contract/hostile_logins.py` writes each deed for the ledger as it is, and tries it with logins that have all
rights of their roles: one of an analyst, a runner, a steward, an admin, an auditor, and of somebody who is nobody here.
"""

from collections.abc import Iterator

import pytest

from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from tests.conftest import Ledgers, PostgreSQL
from tests.contract import hostile_logins
from tests.contract.driver import planned, refusal_of
from tests.contract.hostile_logins import LOGINS, Siege, besieged, drivers, holds, pretending

CONCERNS = ("migrations", "models_db/services", "models_db/writes")

FORBIDDEN, ROLE, RULE = "LedgerForbidden", "RoleDenied", "RuleViolated"
RIGHTS = (
    "become the owner",
    "be the owner from the start",
    "be a replica",
    "be a superuser",
    "be another role",
    "make a role",
    "own a fact",
    "drop a guard",
    "drop a constraint",
    "replace a function",
    "change where a function looks",
    "drop a function",
    "make a table",
    "make a function",
    "make an operator",
    "make a schema",
    "drop an extension",
    "own a language",
    "watch what others define",
    "send the record elsewhere",
    "switch guards off in the catalogue",
    "change the server's settings",
    "change the database's settings",
    "run a program of the server",
    "copy a file of the server",
    "read a file of the server",
    "load a file of the server",
    "set a number back",
    "use a number up",
    "keep the record from others",
    "run a block of code",
    "call a function with the owner's rights",
    "use a guard on a table of one's own",
    "end another's session",
    "change everybody's settings",
    "read the passwords of logins",
    "write an entry of the record",
    "write a decision into the record",
    "write a policy into the record",
    "write an upgrade into the record",
)
"""What no login may do, whoever has it."""
CHANGES = (
    "changed", "removed", "emptied", "kept from others", "locked", "loaded from a file",
    "given another guard", "freed of its guards", "dropped", "swallowed by a rule",
)  # fmt: skip
"""What no login may do with any fact by a statement of its own."""
LIES = {
    "a schedule in another's name": ROLE,
    "a slot in another's name": ROLE,
    "a decision of somebody with a login": ROLE,
    "a decision of a steward without a login, by a runner": ROLE,
    "a decision of a steward without a login, by an analyst": ROLE,
    "a decision dated before the role ended": ROLE,
    "a withdrawal of another's approval": ROLE,
    "a request in another's name": ROLE,
    "a proposal in another's name": ROLE,
    "a step in another's name": ROLE,
    "a cohort in another's name": ROLE,
    "a role that she gives herself": ROLE,
    "a role in the admin's name": ROLE,
    "a role again that has ended": ROLE,
    "the admin's role taken away": ROLE,
    "another's run taken over": ROLE,
    "the next run taken in advance": ROLE,
    "money armed in another's name": ROLE,
    "money armed in no name": ROLE,
    "a plan in another's name": ROLE,
    "money armed by nobody": ROLE,
    "money armed by nobody, as a step": ROLE,
    "a plan by nobody": ROLE,
    "an entry of the record by nobody": ROLE,
    "the ledger kept from others by nobody": ROLE,
    "data taken in by nobody": ROLE,
    "a checkpoint by a reader": FORBIDDEN,
    "an entry of the record by a reader": FORBIDDEN,
    "money armed by a reader": FORBIDDEN,
    "a plan by a reader": FORBIDDEN,
    "a change that stays prepared and that nobody is told of": RULE,
    "a table of roles of one's own": ROLE,
    "a table of people of one's own": ROLE,
    "functions of one's own": ROLE,
    "a newest entry of one's own": RULE,
}
"""What people say of who they are, and what they put in the place of the ledger's own."""


@pytest.fixture(scope="module")
def siege(ledgers: Ledgers, postgresql: PostgreSQL) -> Iterator[Siege]:
    with besieged(ledgers, postgresql) as made:
        yield made


def test_all_of_them_are_tried() -> None:
    assert hostile_logins.RIGHTS.keys() == set(RIGHTS)
    assert hostile_logins.CHANGES.keys() == set(CHANGES)
    assert hostile_logins.LIES.keys() == LIES.keys()


@pytest.mark.parametrize("deed", RIGHTS)
def test_no_login_may(siege: Siege, deed: str) -> None:
    assert {who: siege.refusal_of_right(who, deed) for who in LOGINS} == dict.fromkeys(LOGINS, FORBIDDEN)


@pytest.mark.parametrize("who", LOGINS)
@pytest.mark.parametrize("change", CHANGES)
def test_no_fact_is(siege: Siege, change: str, who: str) -> None:
    assert siege.allowed(who, change) == []


@pytest.mark.parametrize("who", LOGINS)
def test_no_fact_is_put_in_again(siege: Siege, who: str) -> None:
    assert siege.copied(who) == []


@pytest.mark.parametrize("who", LOGINS)
def test_nobody_gives_herself_a_right(siege: Siege, who: str) -> None:
    assert siege.gives_herself(who) == []


@pytest.mark.parametrize("lie", LIES)
def test_nobody_is_somebody_else(siege: Siege, lie: str) -> None:
    assert (siege.refusal_of_lie(lie), siege.refusal_of_truth(lie)) == (LIES[lie], None)


def test_people_work_under_their_own_logins(postgresql_database: Database, postgresql: PostgreSQL) -> None:
    plan = planned(Amount(10), Amount(5))
    with drivers(postgresql_database, postgresql) as by:
        request = by["analyst"].request([plan])
        assert by["steward"].approve(request, by="good steward") == "approved"
        attempt = by["runner"].start(request, by="good runner")
        by["runner"].reserve(attempt, plan)
        by["runner"].arm_part(attempt)
        by["runner"].produce(attempt)
        assert refusal_of(lambda: by["runner"].approve(request, "publish", by="good runner")) in (ROLE, RULE)
        assert by["steward"].approve(request, "publish", by="good steward") == "produced"
        assert by["runner"].spent() == {0: Amount(15)}
        assert holds(by["runner"])
        assert by["runner"].people(request) == {"good analyst", "good steward", "good runner"}


def test_nobody_asks_in_the_name_of_somebody_without_a_login(
    postgresql_database: Database, postgresql: PostgreSQL
) -> None:
    with drivers(postgresql_database, postgresql) as by:
        assert refusal_of(pretending(by["analyst"], "analyst").request) == ROLE
        assert refusal_of(by["analyst"].request) is None
