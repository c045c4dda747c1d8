"""What a team relies on when it upgrades a ledger that is in use: budgets to the unit, claims word by word, the chain,
and that whatever was under way in schema 0001 goes on in the newest.

What is expected is worked out here from the record of 0001 alone, in plain Python, by no code that reads a ledger.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from migrations.upgrade import upgrade
from models_db.budgets import Amount
from models_db.canonical import digest
from models_db.engine import Database
from models_db.services import artifacts, audit_check, datasets, gates, ledger, people, policies
from models_db.services.audit_check import Anchor
from models_db.services.audits import Actor
from models_db.services.releases import WrongState
from tests.conftest import Ledgers
from tests.earlier import RECORDED, attempt_of, described, inherited
from tests.support import World, fetch, planned, terms

LINES = [json.loads(line) for line in RECORDED.read_text().splitlines()[1:]]
REQUESTS = described().requests


def recorded(table: str) -> list[dict[str, Any]]:
    """The rows of a table; the n-th was given the number n."""
    return [line["row"] for line in LINES if line["into"] == table]


@pytest.fixture
def world(backend: str, ledgers: Ledgers) -> Iterator[World]:
    """The recorded ledger after the upgrade, once on each backend."""
    with ledgers.new(backend, like=ledgers.recorded(backend, upgraded=True)) as made:
        yield inherited(made)


@pytest.fixture
def old(backend: str, ledgers: Ledgers) -> Iterator[Database]:
    """The same before it."""
    with ledgers.new(backend, like=ledgers.recorded(backend, upgraded=False)) as made:
        yield made


MOVES = {"HOLD": (1, 0), "ARM": (-1, 1), "RELEASE": (-1, 0), "COMMIT": (0, 0), "FORFEIT": (0, 0)}
"""What an entry does to what is held and what is spent. A hold that was armed is never given back."""


def budgets() -> dict[int, tuple[int, int, int, int]]:
    """(rho held, rho spent, delta held, delta spent) of each account, added up from the record's entries."""
    holds, found = recorded("hold"), defaultdict(lambda: [0, 0, 0, 0])
    for entry in recorded("entry"):
        hold = holds[entry["hold_id"] - 1]
        held, spent = MOVES[entry["kind"]]
        for place, amount in enumerate((hold["rho"], hold["delta"])):
            found[hold["account_id"]][2 * place] += held * amount
            found[hold["account_id"]][2 * place + 1] += spent * amount
    return {account: (a, b, c, d) for account, (a, b, c, d) in found.items()}


def test_budgets_are_exact(world: World) -> None:
    rows = fetch(
        world.database, "SELECT id, rho_held, rho_spent, delta_held, delta_spent, rho_cap, delta_cap FROM account"
    )
    expected = budgets()
    nothing = (0, 0, 0, 0)
    for number, row in enumerate(recorded("account"), 1):
        [found] = [each[1:] for each in rows if each[0] == number]
        assert found == (*expected.get(number, nothing), row["rho_cap"], row["delta_cap"]), number
    assert sum(held > 0 and spent > 0 for held, spent, _, _ in expected.values()) == 2
    assert world.balance().spent == Amount(expected[2][1], expected[2][3])


def test_claims_are_the_same_word_by_word(world: World) -> None:
    """Of datasets for life, of requests in every field, and of approvals what they were given for and until when."""
    with world.database.read() as session:
        for row, cap in zip(recorded("dataset"), recorded("cap"), strict=True):
            claim = datasets.lifetime(session, datasets.find(session, row["name"]))
            assert (claim.epsilon, claim.delta, claim.delta_conversion) == (
                cap["epsilon"], cap["delta"], cap["delta_conversion"],
            )  # fmt: skip
    for number, row in enumerate(recorded("request"), 1):
        [(canonical, stored)] = fetch(
            world.database, "SELECT canonical, digest FROM request WHERE id = :number", number=number
        )
        assert (canonical, stored) == (row["canonical"], row["digest"])
        assert digest(json.loads(str(canonical))) == stored
    query = "SELECT subject_digest, signature, expires_at, decision FROM approval ORDER BY id"
    names = ("subject_digest", "signature", "expires_at", "decision")
    assert fetch(world.database, query) == [tuple(row[name] for name in names) for row in recorded("approval")]


def test_a_head_that_was_kept_before_lies_on_the_chain_afterwards(old: Database) -> None:
    """What a bundle of that time carries: the upgrade adds links and changes none."""
    [(seq, head)] = fetch(old, "SELECT seq, hash FROM audit_head")
    upgrade(old)
    with old.read() as session:
        found = audit_check.verify(session, [Anchor(str(head), "k", int(str(seq)))])
    assert found.holds
    assert found.sound
    assert [each.verdict for each in found.placed] == ["on the chain"]
    assert found.links > int(str(seq))


Way = Callable[[World], int]
"""Takes a request on from where 0001 has left it to the publish gate; returns its number."""


def asked(name: str) -> Way:
    """Nobody, or not everybody, has approved it yet."""

    def go(world: World) -> int:
        assert world.decide(REQUESTS[name]) == "approved"
        return approved(name)(world)

    return go


def approved(name: str) -> Way:
    """It may run, or may run again."""

    def go(world: World) -> int:
        number = REQUESTS[name] if isinstance(REQUESTS[name], int) else REQUESTS[name][0]
        attempt = world.start(number)
        world.hold(attempt, planned(Amount(3), Amount(4)))
        world.arm(attempt)
        world.arm(attempt, instalment=1)
        world.produce(attempt)
        return number

    return go


def running(world: World) -> int:
    """Nothing is reserved yet."""
    attempt = attempt_of(world.database, "running")
    world.hold(attempt, planned(Amount(7)))
    world.arm(attempt)
    world.produce(attempt)
    return attempt.request_id


def held(world: World) -> int:
    """Everything is reserved, nothing paid."""
    attempt = attempt_of(world.database, "held")
    for instalment in instalments("held"):
        world.arm(attempt, instalment=instalment)
    world.produce(attempt)
    return attempt.request_id


def armed(world: World) -> int:
    """One instalment is paid."""
    attempt = attempt_of(world.database, "armed")
    first, *others = instalments("armed")
    with pytest.raises(ledger.Fenced):
        world.arm(attempt, instalment=first)  # never twice
    for instalment in others:
        world.arm(attempt, instalment=instalment)
    world.produce(attempt)
    return attempt.request_id


def produced(name: str) -> Way:
    """It waits at the publish gate."""
    return lambda _: int(REQUESTS[name][0])


def invocations(name: str) -> list[int]:
    """The numbers of those of an attempt of the record."""
    rows = [(row["request_id"], row["attempt"]) for row in recorded("invocation")]
    return [number for number, row in enumerate(rows, 1) if row == tuple(REQUESTS[name])]


def instalments(name: str) -> list[int]:
    """Those that the record has reserved for an attempt."""
    request, attempt = REQUESTS[name]
    numbers = [
        n
        for n, row in enumerate(recorded("invocation"), 1)
        if (row["request_id"], row["attempt"]) == (request, attempt)
    ]
    return sorted({row["instalment"] for row in recorded("hold") if row["invocation_id"] in numbers})


WAYS: dict[str, tuple[Way, int]] = {
    "submitted": (asked("submitted"), 7),
    "approved": (approved("approved"), 7),
    "whole": (approved("whole"), 7),
    "shared": (approved("shared"), 7),
    "failed": (approved("failed"), 7),
    "forfeited": (approved("forfeited"), 7),
    "running": (running, 7),
    "held": (held, 0),
    "armed": (armed, 0),
    "produced": (produced("produced"), 0),
    "cleared": (produced("cleared"), 0),
    "open_data": (produced("open_data"), 0),
}
"""Each state in which a request goes on, and what more it costs; 0 is what the record has reserved, and no more."""


@pytest.mark.parametrize("name", WAYS)
def test_a_request_goes_on_from_where_it_was(world: World, name: str) -> None:
    """To its publication, at exactly its price, and it can be called back after a policy of the new kind."""
    go, more = WAYS[name]
    number = REQUESTS[name] if isinstance(REQUESTS[name], int) else REQUESTS[name][0]
    reserved = Amount() if more else rest_of(name)
    row = recorded("request")[number - 1]
    dataset = recorded("dataset")[row["dataset_id"] - 1]["name"]
    before = world.balance(dataset).spent
    assert go(world) == number
    needed = recorded("policy_version")[row["policy_id"] - 1]["publish_approvals"]
    for by in voters(world)[:needed] if name != "cleared" else ():
        world.decide(number, "publish", by=by)
    with world.database.write() as session:
        artifacts.publish(session, world.runner, number)
    assert world.state(number) == "published"
    assert world.balance(dataset).spent == before + Amount(more) + reserved
    with world.database.write() as session:
        policies.adopt(session, world.admin, terms())
    world.retraction(number)
    assert world.state(number) == "retracted"


def voters(world: World) -> list[Actor]:
    """Both stewards of the record."""
    with world.database.read() as session:
        return [world.steward, Actor(people.find(session, "second steward").id, "second steward")]


def rest_of(name: str) -> Amount:
    """What an attempt of the record has reserved on a block and not paid yet."""
    if name not in ("held", "armed"):
        return Amount()
    request, attempt = REQUESTS[name]
    numbers = [
        n
        for n, row in enumerate(recorded("invocation"), 1)
        if (row["request_id"], row["attempt"]) == (request, attempt)
    ]
    done = {entry["hold_id"] for entry in recorded("entry") if entry["kind"] == "ARM"}
    open_holds = [row for n, row in enumerate(recorded("hold"), 1) if row["invocation_id"] in numbers and n not in done]
    one = min(row["account_id"] for row in open_holds)
    return Amount(sum(row["rho"] for row in open_holds if row["account_id"] == one))


@pytest.mark.parametrize("name", ["rejected", "refused", "withdrawn", "discarded", "published"])
def test_what_had_ended_stays_ended(world: World, name: str) -> None:
    number = REQUESTS[name] if isinstance(REQUESTS[name], int) else REQUESTS[name][0]
    state, spent = world.state(number), world.balance().spent
    with pytest.raises((WrongState, gates.GateClosed)):
        world.start(number)
    assert world.state(number) == state
    assert world.balance().spent == spent


def test_every_state_of_the_record_is_among_these() -> None:
    """But for what no code leaves behind (rows that the record's town wrote by hand), and what other tests end."""
    by_hand = {"settled", "complete", "decided"}
    elsewhere = {"unarmed", "vetoed", "contested", "half", "undecided"}  # test_upgrade.py; `unarmed` became `produced`
    ended = {"rejected", "refused", "withdrawn", "discarded", "published"}
    assert set(REQUESTS) == set(WAYS) | by_hand | elsewhere | ended
