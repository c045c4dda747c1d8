"""The ledger against a plain model: any order of steps, lawful or not, leaves both with the same.

The model (machine_model.py) says whether a step (machine_steps.py) is lawful; the ledger must do it, with as many links
of the chain as it has facts, or refuse it and change nothing.
"""

from inspect import signature
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text

from models_db.services import budget
from models_db.services.audit import verify_chain
from models_db.values.amounts import Amount
from tests.conftest import Ledgers
from tests.contracts.machine_model import STEWARDS, Plan, Policy
from tests.contracts.machine_steps import UNIT, Steps
from tests.support import fetch

amounts = st.builds(lambda r, d: Amount(r * UNIT, d * UNIT), st.integers(0, 8), st.integers(0, 8))
plans = st.lists(st.lists(amounts, min_size=1, max_size=3), min_size=1, max_size=2)
pick = st.integers(0, 10**6)
voters = st.sampled_from([*STEWARDS, "deputy"])
lasting = st.sampled_from([6, 48, 480])
HOSTILE = [
    "UPDATE account SET rho_held = 0 WHERE parent_id IS NOT NULL",
    "UPDATE account SET rho_cap = rho_cap + 1",
    "UPDATE account SET last_entry_id = last_entry_id + 1 WHERE parent_id IS NOT NULL",
    "UPDATE approval SET expires_at = '9999-01-01T00:00:00.000000Z' WHERE id > 0 OR 1 = 0",
    "DELETE FROM role_revocation WHERE 1 = 1",
    "DELETE FROM entry WHERE kind = 'ARM'",
    "UPDATE proposal SET rho = 0, runs = 99",
    "UPDATE audit SET actor = 'nobody'",
    "INSERT INTO entry (hold_id, kind, at, actor_id) SELECT hold_id, 'RELEASE', at, 4 FROM entry WHERE kind = 'ARM'",
    "INSERT INTO carried (proposal_id, actor_id, at) SELECT id, 4, '9990-01-01' FROM proposal WHERE kind = 'cap'",
]


ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "number": pick,
    "plan": plans,
    "who": voters,
    "verdict": st.sampled_from(["approve"] * 7 + ["reject"]),
    "valid": lasting,
    "by": st.sampled_from(STEWARDS),
    "name": st.sampled_from([*STEWARDS, "runner"]),
    "doubt": st.sampled_from(["too late", "no steward any more"]),
    "most": amounts,
    "votes": st.integers(0, 3),
    "kind": st.sampled_from(["cap", "standing", "standing", "retraction"]),
    "hours": st.sampled_from([1, 7, 60]),
    "terms_": st.builds(Policy, st.integers(1, 2), st.integers(1, 2)),
    "statement": st.sampled_from(HOSTILE),
}
"""What a step is given, by the name of its parameter."""

STEPS = {
    "ask": 2, "ask_under_standing": 4, "ask_approve_start_and_hold": 6, "decide": 4, "take_an_approval_back": 2,
    "withdraw": 1, "start": 5, "hold": 5, "arm": 10, "arm_after_a_doubt": 2, "fail_or_be_swept": 3,
    "arm_all_and_produce": 5, "crash_before_the_commit": 1, "approve_release": 3, "publish": 3, "move": 4,
    "decide_proposal": 3, "revoke_or_grant": 2, "lend_the_role_or_end_it": 2,
    "adopt": 2, "wait": 2, "set_the_clock_back": 1, "write_by_hand": 3,
}  # fmt: skip
"""How often each step is tried."""


class LedgerMachine(Steps, RuleBasedStateMachine):
    """Tries any step in any state, the heart of the ledger more often than the rest."""

    @initialize(plan=plans)
    def first(self, plan: Plan) -> None:
        self.ask_approve_start_and_hold(1, plan)

    @rule(what=st.sampled_from([name for name, weight in STEPS.items() for _ in range(weight)]), data=st.data())
    def act(self, what: str, data: st.DataObject) -> None:
        step = getattr(self, what)
        step(**{name: data.draw(ARGUMENTS[name], name) for name in list(signature(step).parameters)})

    # --- what must hold after every step

    @invariant()
    def the_accounts_agree(self) -> None:
        query = "SELECT parent_id, rho_cap, delta_cap, rho_held, rho_spent, delta_held, delta_spent FROM account"
        paper = self.paper
        spent, taken = paper.spent(), paper.taken()
        held = taken - spent
        for parent, rho_cap, delta_cap, *counters in fetch(self.database, query + " ORDER BY id"):
            assert (rho_cap, delta_cap) == (paper.cap.rho, paper.cap.delta)
            if parent is not None:
                assert counters == [held.rho, spent.rho, held.delta, spent.delta]

    @invariant()
    def the_budget_holds(self) -> None:
        spent = self.paper.spent()
        assert self.least.fits(spent), "what is spent never comes back"
        self.least = spent
        assert self.paper.taken().fits(self.paper.cap)
        with self.database.read() as session:
            assert budget.differing_counters(session) == []
            balance = budget.balance(session, self.clinic(session).account_id)
        assert (balance.spent, balance.remaining) == (spent, self.paper.left())

    @invariant()
    def the_chain_tells_every_change_once(self) -> None:
        assert self.head() == self.links

    @invariant()
    def the_states_agree(self) -> None:
        last = (
            "SELECT t.request_id, t.to_state FROM transition t WHERE t.number ="
            " (SELECT max(o.number) FROM transition o WHERE o.request_id = t.request_id)"
        )
        found = dict(fetch(self.database, last))
        assert found == {request.number: request.state for request in self.paper.requests.values()}

    def teardown(self) -> None:
        with self.closing, self.database.read() as session:
            session.execute(text("SELECT 1"))
            assert verify_chain.verify_chain(session).sound


def explore(ledgers: Ledgers, backend: str, examples: int, *, mutation: str = "", steps: int = 30) -> None:
    kind = type("Machine", (LedgerMachine,), {"ledgers": ledgers, "backend": backend, "mutation": mutation})
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=bool(mutation),
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # to shrink a failure, add Phase.shrink: it takes minutes
    )
    run_state_machine_as_test(kind, settings=limits)


@pytest.mark.parametrize(("backend", "examples"), [("sqlite", 6), ("postgresql", 2)])
def test_any_order_of_steps(ledgers: Ledgers, backend: str, examples: int) -> None:
    explore(ledgers, backend, examples)


MUTATIONS = {
    "an instalment needs no gate": "entry_arm_approved",
    "counters move by hand": "account_moves_by_entry",
    "anybody decides": "approval_by",
}


CONCERNS = ("migrations/schema", "models_db/services", "models_db/writes")


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_machine_finds_a_guard_that_is_missing(ledgers: Ledgers, mutation: str) -> None:
    """Without this the machine could be one that finds nothing."""
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        explore(ledgers, "sqlite", 100, mutation=f"DROP TRIGGER {MUTATIONS[mutation]}")


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "examples"), [("sqlite", 150), ("postgresql", 50)])
def test_any_order_of_steps_at_length(ledgers: Ledgers, backend: str, examples: int) -> None:
    explore(ledgers, backend, examples, steps=60)
