"""The ledger against a plain model: any order of steps, legal or not, leaves both with the same counters."""

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy.exc import IntegrityError

from models_db.budgets import Amount, total
from models_db.errors import Refused
from models_db.services import audit_check, ledger
from models_db.services.denials import Denied
from models_db.services.ledger import Attempt, BudgetExceeded, Fenced
from tests.conftest import Ledgers
from tests.support import World, execute, fetch, planned

CAP = Amount(60, 6)
BLOCKS = 2
amounts = st.builds(Amount, st.integers(0, 20), st.integers(0, 2))
plans = st.lists(st.lists(amounts, min_size=1, max_size=3), min_size=1, max_size=2)
eligible = st.sampled_from([(0,), (1,), (0, 1)])


@dataclass
class Model:
    """One attempt, as anybody would keep it on paper."""

    attempt: Attempt
    open: bool = True
    held: dict[tuple[int, int], Amount] = field(default_factory=dict)
    armed: dict[tuple[int, int], Amount] = field(default_factory=dict)
    mechanisms: int = 0

    @property
    def complete(self) -> bool:
        """Whether every mechanism of the plan was armed at least once, so that there can be an artifact."""
        return self.mechanisms > 0 and len({sequence for sequence, _ in self.armed}) == self.mechanisms


class LedgerMachine(RuleBasedStateMachine):
    """Rules try every step in every state; the model says what must come of it."""

    ledgers: Ledgers
    backend: str
    attempts = Bundle("attempts")

    def __init__(self) -> None:
        super().__init__()
        self.closing = ExitStack()
        self.world = World.create(self.closing.enter_context(self.ledgers.new(self.backend)))
        self.world.dataset(cap=CAP, blocks=BLOCKS)
        self.models: list[Model] = []

    def left(self, block: int) -> Amount:
        """What the model says a block has left."""
        used = [
            amount
            for model in self.models
            if block in model.attempt.blocks
            for amount in (*model.held.values(), *model.armed.values())
        ]
        return CAP - total(used)

    @rule(target=attempts, blocks=eligible)
    def begin(self, blocks: tuple[int, ...]) -> Model:
        begun = self.world.running()
        model = Model(Attempt(begun.request_id, begun.number, begun.dataset, begun.account_id, blocks))
        self.models.append(model)
        return model

    @rule(target=attempts, model=attempts)
    def begin_again(self, model: Model) -> Model:
        latest = [m for m in self.models if m.attempt.request_id == model.attempt.request_id][-1]
        if latest.open or self.world.state(model.attempt.request_id) != "approved":
            with pytest.raises(Refused):
                self.world.start(model.attempt.request_id)
            return model
        begun = self.world.start(model.attempt.request_id)
        assert begun.number == latest.attempt.number + 1
        again = Model(Attempt(begun.request_id, begun.number, begun.dataset, begun.account_id, model.attempt.blocks))
        self.models.append(again)
        return again

    @rule(model=attempts, plan=plans)
    def hold(self, model: Model, plan: list[list[Amount]]) -> None:
        def act() -> None:
            self.world.hold(model.attempt, *(planned(*instalments) for instalments in plan))

        asked = total([amount for instalments in plan for amount in instalments])
        if not all(asked.fits(self.left(block)) for block in model.attempt.blocks):
            with pytest.raises(BudgetExceeded):
                act()
        elif not model.open or model.mechanisms:
            with pytest.raises(Refused):
                act()
        else:
            act()
            model.mechanisms = len(plan)
            model.held = {(s, i): part for s, parts in enumerate(plan) for i, part in enumerate(parts)}

    @rule(model=attempts, sequence=st.integers(0, 1), instalment=st.integers(0, 2))
    def arm(self, model: Model, sequence: int, instalment: int) -> None:
        key = (sequence, instalment)
        if key in model.held:
            assert self.world.arm(model.attempt, sequence, instalment) == model.held[key]
            model.armed[key] = model.held.pop(key)
        else:
            with pytest.raises((Fenced, Denied)):
                self.world.arm(model.attempt, sequence, instalment)

    @rule(model=attempts)
    def fail(self, model: Model) -> None:
        if model.open:
            self.world.fail(model.attempt)
            model.open, model.held = False, {}
        else:
            with pytest.raises(Fenced):
                self.world.fail(model.attempt)

    @rule(model=attempts)
    def produce(self, model: Model) -> None:
        if model.open and model.complete:
            self.world.produce(model.attempt)
            model.open, model.held = False, {}
        else:
            with pytest.raises((Fenced, Denied)):
                self.world.produce(model.attempt)

    @rule(model=attempts)
    def crash_before_the_commit(self, model: Model) -> None:
        """Whatever a transaction did, without its commit nothing happened."""
        with self.world.database.write() as session:
            with suppress(Fenced):
                ledger.settle(session, self.world.runner, model.attempt, "FORFEIT")
            session.rollback()

    @rule(setting=st.sampled_from(["rho_held = 0", "rho_spent = 0", "rho_cap = rho_cap + 1", "last_entry_id = 0"]))
    def write_by_hand(self, setting: str) -> None:
        with pytest.raises(IntegrityError):
            execute(self.world.database, f"UPDATE account SET {setting}")

    @invariant()
    def counters_agree(self) -> None:
        found = fetch(
            self.world.database,
            "SELECT rho_held, rho_spent, delta_held, delta_spent FROM account WHERE kind = 'block' ORDER BY block",
        )
        for block, counters in enumerate(found):
            mine = [model for model in self.models if block in model.attempt.blocks]
            held = total([amount for model in mine for amount in model.held.values()])
            spent = total([amount for model in mine for amount in model.armed.values()])
            assert counters == (held.rho, spent.rho, held.delta, spent.delta)
            assert (held + spent).fits(CAP)

    def teardown(self) -> None:
        with self.closing, self.world.database.read() as session:
            assert ledger.recomputed(session) == []
            assert audit_check.verify(session).holds


def explore(ledgers: Ledgers, backend: str, examples: int) -> None:
    kind = type("Machine", (LedgerMachine,), {"ledgers": ledgers, "backend": backend})
    limits = settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # to shrink a failure, add Phase.shrink: it takes minutes
    )
    run_state_machine_as_test(kind, settings=limits)


def test_any_order_of_steps(ledgers: Ledgers) -> None:
    explore(ledgers, "sqlite", examples=12)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "examples"), [("sqlite", 60), ("postgresql", 20)])
def test_any_order_of_steps_at_length(ledgers: Ledgers, backend: str, examples: int) -> None:
    explore(ledgers, backend, examples)
