"""Histories of attempts, drawn at random, against a recomputation of what was used that shares nothing with the ledger.

A split that armed anything may have been used whole, so it costs a whole curve; or its whole rho once an assignment of
its request is known. An adversary chooses when attempts begin from nothing or go on, also from the journal of an older
split that was put back, when they fail, and when assignments get out. The sums of the ledger are never below the cost.
"""

import random
from dataclasses import dataclass, field

import pytest

from models_db.services import attempts, budget, datasets, exposures
from models_db.services.budget import Attempt
from models_db.services.verification import verify_rows
from models_db.values.amounts import Amount, RenyiCurve
from models_db.writes.database_errors import LimitInOrdersExceeded, RuleViolated
from tests.contracts.test_renyi_account import CURVE, PLAN, WHOLE, approved, limit, sums
from tests.support import World

CONCERNS = ("tasks/accounting", "models_db/services", "migrations/schema")

INSTALMENTS, STEPS, REQUESTS = 3, 30, 3
LIMITS = tuple(6 * value for value in (*CURVE.remove[:7], 40))


@dataclass
class Used:
    """What one request has used, as an adversary counts it.

    Attributes:
        splits: instalments that were armed with each split, by the attempt that began it.
        split: that of the running attempt.
        running: None if none does.
        known: whether an assignment of it got out.
    """

    request_id: int
    splits: dict[int, set[int]] = field(default_factory=dict)
    split: int = 0
    running: Attempt | None = None
    known: bool = False

    @property
    def cost(self) -> RenyiCurve:
        """The least that the ledger has to count for it."""
        each = RenyiCurve.of_rho(WHOLE) if self.known else CURVE
        total = RenyiCurve.of_rho(0)
        for armed in self.splits.values():
            total = total + each if armed else total
        return total


@dataclass
class Adversary:
    """Whoever runs requests, within what the ledger lets pass."""

    world: World
    choose: random.Random
    used: list[Used]
    refused: int = 0

    def begin(self, mine: Used) -> None:
        """Begin an attempt from nothing, or go on with a split that has something left; then hold the plan."""
        open_splits = [number for number, armed in mine.splits.items() if len(armed) < INSTALMENTS]
        goes_on = self.choose.choice([None, *open_splits])
        try:
            with self.world.database.write() as session:
                token = f"{mine.request_id}-{self.choose.random()}"
                number = attempts.start_attempt(
                    session, self.world.runner, mine.request_id, token, "here", goes_on, CURVE
                )
                mine.running = budget.load_attempt(session, mine.request_id, number, (0, 1))
        except LimitInOrdersExceeded:
            self.refused += 1
            return
        mine.split = number if goes_on is None else goes_on
        mine.splits.setdefault(mine.split, set())
        self.world.hold(mine.running, *PLAN)

    def arm(self, mine: Used, attempt: Attempt) -> None:
        """Arm an instalment that the split has not drawn yet; the ledger may say that no charge covers it."""
        left = sorted(set(range(INSTALMENTS)) - mine.splits[mine.split])
        if left:
            chosen = self.choose.choice(left)
            try:
                self.world.arm(attempt, 0, chosen)
                mine.splits[mine.split].add(chosen)
            except (RuleViolated, budget.AttemptClosed):
                self.refused += 1

    def step(self) -> None:
        """Do one thing with one request."""
        mine = self.choose.choice(self.used)
        if mine.running is None:
            self.begin(mine)
        elif self.choose.random() < 0.6:
            self.arm(mine, mine.running)
        elif mine.splits[mine.split] or self.choose.random() < 0.5:
            self.world.fail(mine.running)
            mine.running = None
        if not mine.known and mine.splits and self.choose.random() < 0.05:
            with self.world.database.write() as session:
                exposures.record_exposure(session, self.world.steward, mine.request_id, None, "a copy")
            mine.known = True

    @property
    def cost(self) -> RenyiCurve:
        """The least that the ledger has to count for the block."""
        total = RenyiCurve.of_rho(0)
        for mine in self.used:
            total += mine.cost
        return total


@pytest.mark.slow_except("sqlite-0-False", "sqlite-1-True", "postgresql-2-False", "postgresql-3-True")
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_no_history_costs_more_than_the_ledger_counts(world: World, seed: int, limited: bool) -> None:
    world.dataset("clinic", Amount(10**6, 100), blocks=2)
    adversary = Adversary(world, random.Random(seed), [Used(approved(world)) for _ in range(REQUESTS)])
    if limited:
        limit(world, LIMITS)
    for _ in range(STEPS):
        leaked = any(mine.known for mine in adversary.used)
        adversary.step()
        found = sums(world)
        for block in found:
            pairs = zip(found[block].values, adversary.cost.values, strict=True)
            assert all(counted >= cost for counted, cost in pairs), (seed, block)
        if limited and found and not leaked and not any(mine.known for mine in adversary.used):
            assert all(found[block].fits(LIMITS) for block in found)
    assert any(mine.splits for mine in adversary.used)
    with world.database.read() as session:
        account = datasets.find_dataset(session, "clinic").account_id
        assert verify_rows.compare_rows_with_chain(session) == []
        assert len(budget.list_charges(session, account)) >= sum(
            bool(armed) for mine in adversary.used for armed in mine.splits.values()
        )
