"""The ledger as the tests of the contract see it: what people and a runner's own client do, and what they find.

The tests of this folder say what must hold whatever the ledger is made of. They name no table and no function of it,
and know a refusal by its name; what is behind the ledger stands here alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from flows.audit.charges import charge_of_release, uncharged_releases
from flows.releases.sweep import sweep_attempts
from flows.workspace.workspace import Workspace
from models_db.errors import Refused
from models_db.services.catalogue import datasets, requests
from models_db.services.lifecycle import attempts, envelopes, ledger
from models_db.services.lifecycle.ledger import Attempt, InvocationPlan
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.writes import budget_steps
from models_db.writes.budget_steps import PlannedHold
from tests.support import CAP, PROVENANCE, World, fetch, plan_of, planned, unguarded

Part = tuple[int, int, int]
"""A part of a plan on a block: number of the mechanism, instalment, block."""
Held = Mapping[Part, Amount]

Guard = tuple[str, str]
"""A guard and what it guards."""


@dataclass(frozen=True)
class Driver:
    """A ledger with an analyst, a steward and a runner, each of whom does their own part."""

    world: World

    @classmethod
    def on(cls, database: Database, **policy: Any) -> "Driver":
        """A new ledger, under a policy that demands no more than is said."""
        return cls(World.create(database, **policy))

    # --- what people do ------------------------------------------------------------------------------------------

    def register(self, dataset: str = "clinic", cap: Amount = CAP, blocks: int = 1) -> None:
        """Register a dataset and ingest a version of it."""
        self.world.dataset(dataset, cap, blocks=blocks)

    def request(self, plan: Sequence[InvocationPlan], dataset: str = "clinic") -> int:
        """Request a release that costs a plan on every block; return its number."""
        return self.world.request(dataset, approved=plan)

    def request_blocks(self, blocks: Sequence[int]) -> int:
        """Request a release that reads some blocks."""
        return self.world.request(plan=plan_of(blocks))

    def request_in_envelope(self, plan: Sequence[InvocationPlan], envelope: str, most: Amount) -> int:
        """Request a release that draws on a new envelope of `most`."""
        with self.world.database.write() as session:
            clinic = datasets.find_dataset(session, "clinic")
            envelopes.open_envelope(session, self.world.steward, clinic, envelope, most, "a study")
        return self.world.request(scope=envelope, approved=plan)

    def request_on_schedule(self, plan: Sequence[InvocationPlan], blocks: int, most: Amount) -> int:
        """Request a release under a standing authorisation of `most`; nobody has to approve it."""
        body = {"plan": plan_of(range(blocks), plan)}
        return self.world.routine(self.world.standing(most, **body), **body)

    def approve(self, request: int, gate: str = "spend") -> None:
        """A steward approves a request at a gate."""
        self.world.decide(request, gate)

    # --- what a runner does --------------------------------------------------------------------------------------

    def start(self, request: int) -> Attempt:
        """Begin an attempt."""
        return self.world.start(request)

    def go_on(self, request: int, from_attempt: Attempt) -> Attempt:
        """Begin an attempt that goes on from an interrupted one."""
        with self.world.database.write() as session:
            number = attempts.start_attempt(
                session, self.world.runner, request, "another token", "here", from_attempt.number
            )
            return ledger.load_attempt(session, request, number, from_attempt.blocks)

    def hold(self, attempt: Attempt, plan: Sequence[InvocationPlan], held: Held) -> None:
        """Reserve what a client of the runner's own has chosen: amounts by part, of some mechanisms."""
        accounts = self._accounts()
        steps = []
        for sequence, mechanism in enumerate(plan):
            rows = [
                (accounts[attempt.dataset, block], instalment, amount.rho, amount.delta)
                for (number, instalment, block), amount in held.items()
                if number == sequence
            ]
            if rows:
                steps.append(PlannedHold(ledger._invocation_row(attempt, sequence, mechanism, PROVENANCE), rows))
        with self.world.database.write() as session:
            budget_steps.reserve(session, self.world.runner.id, steps)

    def hold_elsewhere(self, attempt: Attempt, plan: Sequence[InvocationPlan], dataset: str) -> None:
        """Reserve the plan on the blocks of another dataset."""
        accounts = self._accounts()
        rows = [(accounts[dataset, 0], 0, plan[0].instalments[0].rho, plan[0].instalments[0].delta)]
        step = PlannedHold(ledger._invocation_row(attempt, 0, plan[0], PROVENANCE), rows)
        with self.world.database.write() as session:
            budget_steps.reserve(session, self.world.runner.id, [step])

    def arm(self, attempt: Attempt, parts: Sequence[tuple[int, int]]) -> None:
        """Arm parts, each a mechanism and its instalment, on one block after the other."""
        for sequence, instalment in parts:
            which = {"sequence": sequence, "instalment": instalment}
            with self.world.database.write() as session:
                for held in ledger._holds_by_account(session, ledger._HOLDS_OF_INSTALMENT, attempt, **which):
                    budget_steps.record_entries(session, self.world.runner.id, [(held.id, "ARM")])

    def enter(self, attempt: Attempt, kind: str, account: str | int) -> None:
        """Record one kind of entry on the holds of an attempt, one after the other.

        Args:
            account: of which these are: the number of a block, `scope` for the envelope, or `pacing` for the window.
        """
        query = (
            "SELECT h.id FROM hold h JOIN invocation i ON i.id = h.invocation_id JOIN account a ON a.id = h.account_id"
            " WHERE i.request_id = :request AND i.attempt = :attempt AND (a.block = :block OR a.kind = :kind)"
            " ORDER BY h.id"
        )
        which = {"block": account if isinstance(account, int) else -1, "kind": str(account)}
        rows = fetch(self.world.database, query, request=attempt.request_id, attempt=attempt.number, **which)
        for (hold,) in rows:
            with self.world.database.write() as session:
                budget_steps.record_entries(session, self.world.runner.id, [(int(str(hold)), kind)])

    def start_without_lease(self, request: int) -> None:
        """Begin an attempt and take no lease."""
        with self.world.database.write() as session:
            requests.record_transition(session, self.world.runner, request, "approved", "running")

    def sweep(self) -> list[int]:
        """Close what processes have left that are all gone; return the requests."""
        workspace = cast("Workspace", SimpleNamespace(database=self.world.database, actor=self.world.runner))
        with (
            patch("flows.releases.sweep.is_dead", lambda _: True),
            patch("flows.releases.sweep.remove_orphans", lambda _: 0),
        ):
            return list(sweep_attempts(workspace).requests)

    def produce(self, attempt: Attempt) -> None:
        """End an attempt with an artifact, as almoner does."""
        self.world.produce(attempt)

    def produce_cheaply(self, attempt: Attempt) -> None:
        """End an attempt with an artifact; what was not armed by now is given back, and not armed."""
        settle = ledger.settle

        def give_back(session: object, actor: object, which: Attempt, _: str) -> None:
            """As `settle`, but for what it does to holds that are not armed."""
            holds = ledger._holds_by_account(session, ledger._HOLDS_OF_ATTEMPT, which)  # type: ignore[arg-type]
            steps = [(one.id, "COMMIT" if "ARM" in one.entries else "RELEASE") for one in holds]
            budget_steps.record_entries(session, self.world.runner.id, steps)  # type: ignore[arg-type]

        ledger.settle = give_back  # type: ignore[assignment]
        try:
            self.world.produce(attempt)
        finally:
            ledger.settle = settle

    def fail(self, attempt: Attempt) -> None:
        """End an attempt without an artifact."""
        self.world.fail(attempt)

    # --- what is found -------------------------------------------------------------------------------------------

    def spent(self, dataset: str = "clinic") -> dict[int, Amount]:
        """What is spent of the account of each block."""
        query = (
            "SELECT a.block, a.rho_spent, a.delta_spent FROM account a JOIN dataset d ON d.account_id = a.parent_id"
            " WHERE d.name = :name AND a.kind = 'block'"
        )
        rows = fetch(self.world.database, query, name=dataset)
        return {int(str(block)): Amount(int(str(rho)), int(str(delta))) for block, rho, delta in rows}

    def used_beside(self, kind: str) -> list[int]:
        """What is spent or held of each envelope (`scope`) or window (`pacing`), in units of rho."""
        query = "SELECT rho_spent + rho_held FROM account WHERE kind = :kind ORDER BY id"
        return [int(str(used)) for (used,) in fetch(self.world.database, query, kind=kind)]

    def state(self, request: int) -> str:
        """Where a request is."""
        return self.world.state(request)

    def charge(self, request: int) -> str:
        """The charge of a release on each of its blocks, or the name of the refusal."""
        with self.world.database.read() as session:
            try:
                return charge_of_release(session, request).rho
            except Refused as refused:
                return refused.name

    def uncharged(self) -> list[int]:
        """The releases that `doctor` names because they were not charged their plan."""
        with self.world.database.read() as session:
            return uncharged_releases(session)

    @property
    def guard_of_holds(self) -> Guard:
        """What keeps a hold to its planned part; on PostgreSQL the guards of holds are asked together."""
        return ("hold_planned" if self.world.database.is_sqlite else "hold_is_sound", "hold")

    @property
    def guard_of_artifacts(self) -> Guard:
        """What keeps an artifact from a plan that is not charged."""
        return ("artifact_complete", "artifact")

    @contextmanager
    def without(self, *guards: Guard) -> Iterator[None]:
        """Take guards away for a while, as an owner of the database could."""
        if not guards:
            yield
            return
        with unguarded(self.world.database, *guards[0]), self.without(*guards[1:]):
            yield

    def _accounts(self) -> dict[tuple[str, int], int]:
        query = "SELECT d.name, a.block, a.id FROM account a JOIN dataset d ON d.account_id = a.parent_id"
        rows = fetch(self.world.database, f"{query} WHERE a.kind = 'block'")
        return {(str(name), int(str(block))): int(str(number)) for name, block, number in rows}


def parts_of(plan: Sequence[InvocationPlan], blocks: int) -> dict[Part, Amount]:
    """The amounts of a plan, by part, on every block."""
    return {
        (sequence, instalment, block): amount
        for sequence, mechanism in enumerate(plan)
        for instalment, amount in enumerate(mechanism.instalments)
        for block in range(blocks)
    }


def refusal_of(act: Callable[[], object]) -> str | None:
    """The name of the refusal that an act meets; None if it meets none."""
    try:
        act()
    except Refused as refused:
        return refused.name
    return None


__all__ = ["Driver", "parts_of", "planned", "refusal_of"]
