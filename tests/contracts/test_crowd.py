"""Many people at once, each doing whatever comes next: nobody waits for ever, and the sums are right afterwards.

A deadlock would end a transaction with `LedgerUnreachable`: locks are taken in one order (proposals, accounts,
requests, then whole tables, the head of the chain last).
"""

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from sqlalchemy.orm import Session

from models_db.errors import Refused
from models_db.services import artifacts, budget, gates, people, requests
from models_db.services.audit import verify_chain
from models_db.services.audit.chain import Actor
from models_db.services.budget import InvocationPlan
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from tests.support import PATIENCE, World, fetch, plan_of, planned

PEOPLE = 6
STEPS = 25
BLOCKS = 3
ROUTINE_PLAN = planned(Amount(9), Amount(1))
"""What the standing authorisation is for."""


class Crowd:
    """What anybody of the crowd may do next; much of it is refused."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.other = world.person("second steward")
        self.attempts: list[Any] = []
        self.requests: list[int] = []
        self.plans: dict[int, InvocationPlan] = {}
        self.proposals: list[int] = []
        self.count = 0
        self.standing = world.standing(Amount(20), runs=20, plan=plan_of(range(BLOCKS), [ROUTINE_PLAN]))

    def act(self, chance: random.Random) -> None:
        """One thing, as chance has it."""
        steward = chance.choice([self.world.steward, self.other])
        acts: list[Callable[[], object]] = [
            lambda: self.ask(chance),
            self.ask_routinely,
            lambda: self.proposals.append(self.world.cap(Amount(chance.randrange(300, 2000), 100), carry=False)),
            lambda: self.world.decide(chance.choice(self.proposals), "proposal", by=steward),
            lambda: self.world.decide(chance.choice(self.requests), by=steward),
            lambda: self.begin(chance),
            lambda: self.begin(chance),
            lambda: self.world.arm(chance.choice(self.attempts), 0, chance.randrange(2)),
            lambda: self.world.arm(chance.choice(self.attempts), 0, chance.randrange(2)),
            lambda: chance.choice([self.world.fail, self.world.produce])(chance.choice(self.attempts)),
            lambda: self.come_and_go(*chance.choice([("second steward", "steward"), ("runner", "runner")])),
            lambda: self.write(lambda s: self.change(s, chance, steward)),
        ]
        with suppress(IndexError):  # there is none of that yet
            chance.choice(acts)()

    def write(self, act: Callable[[Session], object]) -> None:
        with self.world.database.write() as session:
            act(session)

    def ask(self, chance: random.Random) -> None:
        plan = planned(Amount(chance.randrange(20)), Amount(1))
        self.asked(self.world.request(approved=[plan]), plan)

    def ask_routinely(self) -> None:
        asked = self.world.routine(self.standing, plan=plan_of(range(BLOCKS), [ROUTINE_PLAN]))
        self.asked(asked, ROUTINE_PLAN)

    def asked(self, request: int, plan: InvocationPlan) -> None:
        self.plans[request] = plan
        self.requests.append(request)

    def begin(self, chance: random.Random) -> None:
        begun = self.world.start(chance.choice(self.requests))
        self.attempts.append(begun)
        self.world.hold(begun, self.plans[begun.request_id])

    def come_and_go(self, name: str, role: str) -> None:
        self.write(lambda s: people.revoke(s, self.world.admin, name, role, "left us"))
        self.write(lambda s: people.grant(s, self.world.admin, name, role, "is back"))

    def change(self, session: Session, chance: random.Random, steward: Actor) -> None:
        request = chance.choice(self.requests)
        chance.choice([
            lambda: gates.withdraw_approval(session, steward, request, "spend", "a doubt", f"s{chance.random()}"),
            lambda: requests.withdraw(session, self.world.analyst, request, "not needed"),
            lambda: artifacts.record_publication(session, self.world.runner, request),
        ])()  # fmt: skip


def test_a_crowd_never_stands_still(database: Database) -> None:
    world = World.create(database)
    world.dataset(cap=Amount(1000, 100), blocks=BLOCKS)
    crowd = Crowd(world)
    done: Counter[str] = Counter()
    gate = threading.Barrier(PEOPLE)

    def person(number: int) -> None:
        chance = random.Random(number)
        gate.wait()
        for _ in range(STEPS):
            try:
                crowd.act(chance)
                done["done"] += 1
            except Refused as refusal:
                done[refusal.code] += 1

    with ThreadPoolExecutor(PEOPLE) as pool:
        for ended in [pool.submit(person, number) for number in range(PEOPLE)]:
            ended.result(PATIENCE)
    assert done["done"] > PEOPLE * STEPS / 4
    with database.read() as session:
        assert budget.differing_counters(session) == []
        assert verify_chain.verify_chain(session).sound
    for cap, taken in fetch(database, "SELECT rho_cap, rho_held + rho_spent FROM account WHERE parent_id IS NOT NULL"):
        assert isinstance(taken, int)
        assert isinstance(cap, int)
        assert taken <= cap
