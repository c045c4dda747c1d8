"""The ledger as the tests of the contract see it: what people and a runner's own client do, and what they find.

The tests of this folder say what must hold whatever the ledger is made of. They name no table and no function of it,
and know a refusal by its name; what is behind the ledger stands here alone.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from sqlalchemy import select

from flows.audit.charges import charge_of_release, uncharged_releases
from flows.releases.resume import sweep_attempts
from flows.workspace.workspace import Workspace
from models_db.errors import Refused
from models_db.policies.rules import DatasetTerms
from models_db.services import (
    artifacts,
    attempts,
    budget,
    cohorts,
    datasets,
    exposures,
    gates,
    people,
    policies,
    proposals,
    requests,
    schedules,
)
from models_db.services.audit import chain, log
from models_db.services.audit.chain import Actor
from models_db.services.budget import Attempt, Balance, InvocationPlan
from models_db.services.datasets import LifetimeClaim
from models_db.services.gates import GateDecision
from models_db.services.queries import health
from models_db.sessions.database import Database
from models_db.tables import Lease
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.writes import insert
from models_db.writes.insert import PlannedHold, take_lease
from tests.support import (
    CAP,
    FAR,
    LATE,
    PLAN,
    PROVENANCE,
    ROUTINE,
    SOON,
    TEN,
    World,
    any_amounts,
    fetch,
    later,
    plan_of,
    planned,
    snapshot,
    terms,
    unguarded,
)

Part = tuple[int, int, int]
"""A part of a plan on a block: number of the mechanism, instalment, block."""
Held = Mapping[Part, Amount]

Guard = tuple[str, str]
"""A guard and what it guards."""

WITHIN: dict[str, tuple[Any, str, int]] = {
    "while arming": (budget, "arm", 1),
    "while committing": (artifacts, "record_artifact", 1),
    "while publishing": (artifacts, "record_publication", 1),
    "while a cohort is opened": (cohorts, "open_cohort", 1),
    "while a slot is decided": (schedules, "record_slot", 1),
}
"""Places in a transaction before it commits: whose function has just returned, its name, and which of its calls."""


class Reader(ABC):
    """What a ledger says, whoever has written it."""

    @property
    @abstractmethod
    def database(self) -> Database:
        """Where the ledger is."""

    def spent(self, dataset: str = "clinic") -> dict[int, Amount]:
        """What is spent of the account of each block."""
        return self._amounts(dataset, "spent")

    def held(self, dataset: str = "clinic") -> dict[int, Amount]:
        """What is reserved of the account of each block."""
        return self._amounts(dataset, "held")

    def sound(self) -> bool:
        """Whether `doctor` finds nothing."""
        with self.database.read() as session:
            return all(finding.ok for finding in health.check_health(session))

    def record(self, request: int) -> list[str]:
        """The kinds of the entries of the record about a request."""
        with self.database.read() as session:
            return [entry.kind for entry in log.stream_links(session, log.LogFilter(request_id=request))]

    def people(self, request: int) -> set[str]:
        """Who has done what the record says of a request."""
        with self.database.read() as session:
            return {entry.actor for entry in log.stream_links(session, log.LogFilter(request_id=request))}

    def left(self, dataset: str = "clinic") -> Amount:
        """What the fullest block of a dataset has left."""
        return self.balance(dataset).remaining

    def everything(self) -> object:
        """All that the ledger holds, to compare before and after a refusal."""
        return snapshot(self.database)

    def cap(self, dataset: str = "clinic") -> Amount:
        """The cap of a dataset's account."""
        return self.balance(dataset).cap

    def balance(self, dataset: str = "clinic") -> Balance:
        """What a dataset's account has spent and holds, on the fullest block of each, and what is left."""
        with self.database.read() as session:
            return budget.balance(session, datasets.find_dataset(session, dataset).account_id)

    def plan(self, request: int = 1) -> list[Amount]:
        """The plan of a request, in the order in which it is armed."""
        with self.database.read() as session:
            plan = json.loads(requests.find_request(session, request).canonical)["plan"]
        parts = [part for invocation in plan["invocations"] for part in invocation["instalments"]]
        return [Amount(int(part["rho"]), int(part["delta"])) for part in parts]

    def armed(self) -> list[tuple[int, int]]:
        """The parts that were armed at a charge, by mechanism and instalment, once for each block and attempt."""
        query = (
            "SELECT i.sequence, h.instalment FROM entry e JOIN hold h ON h.id = e.hold_id"
            " JOIN invocation i ON i.id = h.invocation_id WHERE e.kind = 'ARM' AND h.rho > 0"
        )
        return sorted((int(str(mechanism)), int(str(part))) for mechanism, part in fetch(self.database, query))

    def artifacts(self) -> int:
        """How many artifacts are recorded."""
        return self._count("artifact")

    def publications(self) -> int:
        """How many publications are recorded."""
        return self._count("publication")

    def deliveries(self) -> int:
        """How many deliveries of bundles are recorded."""
        return self._count("delivery")

    def units(self) -> int:
        """How many people are known, over all accounts."""
        return self._count("unit_mark")

    def blocks(self) -> int:
        """How many blocks there are, over all accounts."""
        return self._count("account WHERE parent_id IS NOT NULL")

    def at_work(self) -> list[int]:
        """The requests that run."""
        with self.database.read() as session:
            return [lease.request_id for lease in attempts.running_leases(session)]

    def leases_end(self) -> list[str]:
        """When the leases end that are recorded."""
        return [str(end) for (end,) in fetch(self.database, "SELECT expires_at FROM lease")]

    def _count(self, rows: str) -> int:
        [(number,)] = fetch(self.database, f"SELECT count(*) FROM {rows}")
        return int(str(number))

    def _amounts(self, dataset: str, counter: str) -> dict[int, Amount]:
        query = (
            f"SELECT a.block, a.rho_{counter}, a.delta_{counter} FROM account a"
            " JOIN dataset d ON d.account_id = a.parent_id WHERE d.name = :name"
        )
        rows = fetch(self.database, query, name=dataset)
        return {int(str(block)): Amount(int(str(rho)), int(str(delta))) for block, rho, delta in rows}


class HomeLedger(Reader):
    """The ledger of a home, which commands write."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def database(self) -> Database:
        """Where the ledger is."""
        return self._database

    def take_over(self, request: int = 1, attempt: int = 2) -> None:
        """Take the only lease there is for another attempt, as another machine does that has swept the first away."""
        with self.database.write() as session:
            held = session.scalars(select(Lease)).one()
            lease = Lease(request_id=request, attempt=attempt, token="t", owner="o", expires_at=held.expires_at)
            take_lease(session, lease)

    def record_unsigned_checkpoint(self) -> str:
        """Record a checkpoint that nobody has signed, as the ledger's founder; return who that is."""
        with self.database.write() as session:
            founder = people.list_all(session)[0]
            actor, head = Actor(founder.id, founder.name), chain.read_chain_head(session).hash
            chain.record_checkpoint(session, actor, head, "0" * 128, founder.public_key, "2026-01-01T00:00:00.000000Z")
        return founder.name


@dataclass(frozen=True)
class Driver(Reader):
    """A ledger with an analyst, a steward and a runner, each of whom does their own part."""

    world: World

    @property
    def database(self) -> Database:
        """Where the ledger is."""
        return self.world.database

    @classmethod
    def on(cls, database: Database, **policy: Any) -> "Driver":
        """A new ledger, under a policy that demands no more than is said; `datasets` says what differs for one."""
        return cls(World.create(database, **_rules(policy)))

    # --- what people do ------------------------------------------------------------------------------------------

    def enrol(self, name: str, *roles: str) -> None:
        """One more person, a steward unless roles are named."""
        self.world.person(name, *roles)

    def dismiss(self, name: str, role: str) -> None:
        """Take a role away."""
        self.world.revoke(name, role)

    def adopt(self, **policy: Any) -> None:
        """Adopt another policy."""
        with self.world.database.write() as session:
            policies.adopt(session, self.world.admin, terms(**_rules(policy)))

    def register(self, dataset: str = "clinic", cap: Amount = CAP, blocks: int = 1, beside: str | None = None) -> None:
        """Register a dataset, with an account of its own or beside another one, and ingest a version of it."""
        account = None
        if beside is not None:
            with self.world.database.read() as session:
                account = datasets.find_dataset(session, beside).account_id
        self.world.dataset(dataset, cap, blocks=blocks, account_id=account)

    def request(
        self,
        plan: Sequence[InvocationPlan] = PLAN,
        dataset: str = "clinic",
        hours: int | None = None,
        system: str = "invisible_ink",
    ) -> int:
        """Request a release that costs a plan on every block, and that expires after some hours; return its number."""
        valid = FAR if hours is None else timedelta(hours=hours)
        return self.world.request(dataset, approved=plan, valid=valid, mechanism=system)

    def request_under(self, **policy: Any) -> int:
        """Request a release under a policy that is not in force."""
        with self.world.database.write() as session:
            before = policies.policy_in_force(session)
            assert before is not None
            other = policies.adopt(session, self.world.admin, terms(**_rules(policy)))
            policies.adopt(session, self.world.admin, terms())
            clinic = datasets.find_dataset(session, "clinic")
            body: dict[str, Any] = {"kind": "k", "mechanism": "m", "epsilon": "1", "plan": plan_of([0])}
            version = datasets.newest_version(session, clinic)
            return requests.submit(session, self.world.analyst, clinic, version, other, body, FAR).id

    def request_blocks(self, blocks: Sequence[int]) -> int:
        """Request a release that reads some blocks."""
        return self.world.request(plan=plan_of(blocks))

    def request_on_schedule(self, plan: Sequence[InvocationPlan], blocks: int, most: Amount) -> int:
        """Request a release under a standing authorisation of `most`; nobody has to approve it."""
        body = {"plan": plan_of(range(blocks), plan)}
        return self.world.routine(self.world.standing(most, **body), **body)

    def approve(self, request: int, gate: str = "spend", by: str = "steward", hours: int | None = None) -> str:
        """Approve a request at a gate, for some hours; return its state."""
        valid = FAR if hours is None else timedelta(hours=hours)
        return self.world.decide(request, gate, by=self._person(by), valid=valid)

    def approve_another(self, request: int, digest: str) -> str:
        """Approve a request by another digest than its own."""
        decision = GateDecision(request, "spend", digest, "approve", "because", SOON)
        with self.world.database.write() as session:
            return gates.record_decision(session, self.world.steward, decision, "s", amount_check=any_amounts)

    def sign(self, request: int, signature: str) -> str:
        """Approve a request by a signature that somebody has."""
        decision = GateDecision(request, "spend", self.world.subject(request, "spend"), "approve", "because", SOON)
        with self.world.database.write() as session:
            return gates.record_decision(session, self.world.steward, decision, signature, amount_check=any_amounts)

    def reject(self, request: int, gate: str = "spend", by: str = "steward") -> str:
        """Reject a request at a gate; return its state."""
        return self.world.decide(request, gate, "reject", by=self._person(by))

    def take_back(self, request: int, gate: str = "spend", by: str = "steward") -> str:
        """Take an approval back; return the request's state."""
        return self.world.take_back(request, self._person(by), gate)

    def open_gate(self, request: int) -> None:
        """Say that the spend gate is passed, as a client of somebody's own does that counts no approvals."""
        with self.world.database.write() as session:
            requests.record_transition(session, self.world.runner, request, "submitted", "approved")

    def publish(self, request: int) -> None:
        """Publish a release."""
        with self.world.database.write() as session:
            artifacts.record_publication(session, self.world.runner, request)

    def later(self, hours: int) -> AbstractContextManager[None]:
        """Inside, everybody sees a clock that is some hours ahead."""
        return later(timedelta(hours=hours))

    def propose_cap(self, cap: Amount, by: str = "analyst", epsilon: str = "9") -> int:
        """Propose another cap of the clinic; return the proposal's number."""
        claim = LifetimeClaim(epsilon, "0.000001", 9 * 10**11, cap)
        with self.world.database.write() as session:
            clinic, policy = datasets.find_dataset(session, "clinic"), policies.policy_in_force(session)
            assert policy is not None
            return proposals.propose_cap(session, self._person(by), clinic, policy, claim, "a study", FAR).id

    def propose_authorisation(self, most: Amount = TEN, runs: int = 2, until: str = LATE, **changes: Json) -> int:
        """Propose an authorisation of runs on the clinic; return the proposal's number."""
        return self.world.standing(most, runs, until, carry=False, **changes)

    def propose_retraction(self, request: int) -> int:
        """Propose to call a publication back; return the proposal's number."""
        return self.world.retraction(request, carry=False)

    def request_run(self, authorisation: int, by: str = "analyst", **changes: Json) -> int:
        """Request a run under an authorisation, of its configuration but for some changes; return its number."""
        asked = ROUTINE | {"nonce": str(next(self.world._numbers))} | changes
        actor = self._person(by)
        with self.world.database.write() as session:
            clinic, policy = datasets.find_dataset(session, "clinic"), policies.policy_in_force(session)
            assert policy is not None
            version = datasets.newest_version(session, clinic)
            proposal = proposals.find_authorisation(session, authorisation, asked, actor)
            return requests.submit(session, actor, clinic, version, policy, asked, FAR, standing=proposal).id

    def look(self, request: int, by: str = "steward") -> bool:
        """See figures of a release that no mechanism protects; return whether there was anything to record."""
        with self.world.database.write() as session:
            artifact = artifacts.artifact_of(session, request)
            assert artifact is not None
            return exposures.record_view(session, self._person(by), artifact, "computed")

    # --- what a runner does --------------------------------------------------------------------------------------

    def start(self, request: int, by: str = "runner") -> Attempt:
        """Begin an attempt."""
        return replace(self.world, runner=self._person(by)).start(request)

    def reserve(self, attempt: Attempt, *plan: InvocationPlan) -> None:
        """Reserve a plan on the blocks of an attempt, as almoner does."""
        self.world.hold(attempt, *plan or PLAN)

    def reserve_rest(self, attempt: Attempt, *plan: InvocationPlan) -> None:
        """Reserve what no earlier attempt has armed of a plan, as almoner does when it goes on."""
        with self.world.database.write() as session:
            armed = budget.armed_instalments(session, attempt.request_id, range(1, attempt.number))
            paid = [len(armed.get(mechanism, ())) for mechanism in range(len(plan))]
            budget.hold(session, self.world.runner, attempt, plan, PROVENANCE, paid)

    def arm_part(self, attempt: Attempt, mechanism: int = 0, instalment: int = 0) -> Amount:
        """Arm one part of a plan on every block, as almoner does; return what a block is charged."""
        return self.world.arm(attempt, mechanism, instalment)

    def release(self, dataset: str = "clinic", *plan: InvocationPlan) -> int:
        """Request, approve, run and produce a release; return its number."""
        attempt = self.world.running(dataset, *plan or PLAN)
        self.reserve(attempt, *plan)
        for mechanism, each in enumerate(plan or PLAN):
            for instalment in range(len(each.instalments)):
                self.arm_part(attempt, mechanism, instalment)
        self.produce(attempt)
        return attempt.request_id

    def go_on(self, request: int, from_attempt: Attempt) -> Attempt:
        """Begin an attempt that goes on from an interrupted one."""
        with self.world.database.write() as session:
            number = attempts.start_attempt(
                session, self.world.runner, request, "another token", "here", from_attempt.number
            )
            return budget.load_attempt(session, request, number, from_attempt.blocks)

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
                steps.append(PlannedHold(budget._invocation_row(attempt, sequence, mechanism, PROVENANCE), rows))
        with self.world.database.write() as session:
            insert.reserve(session, self.world.runner.id, steps)

    def hold_elsewhere(self, attempt: Attempt, plan: Sequence[InvocationPlan], dataset: str) -> None:
        """Reserve the plan on the blocks of another dataset."""
        accounts = self._accounts()
        rows = [(accounts[dataset, 0], 0, plan[0].instalments[0].rho, plan[0].instalments[0].delta)]
        step = PlannedHold(budget._invocation_row(attempt, 0, plan[0], PROVENANCE), rows)
        with self.world.database.write() as session:
            insert.reserve(session, self.world.runner.id, [step])

    def arm(self, attempt: Attempt, parts: Sequence[tuple[int, int]]) -> None:
        """Arm parts, each a mechanism and its instalment, on one block after the other."""
        for sequence, instalment in parts:
            which = {"sequence": sequence, "instalment": instalment}
            with self.world.database.write() as session:
                for held in budget._holds_by_account(session, budget._HOLDS_OF_INSTALMENT, attempt, **which):
                    insert.record_entries(session, self.world.runner.id, [(held.id, "ARM")])

    def enter(self, attempt: Attempt, kind: str, block: int) -> None:
        """Record one kind of entry on the holds of an attempt on a block, one after the other."""
        query = (
            "SELECT h.id FROM hold h JOIN invocation i ON i.id = h.invocation_id JOIN account a ON a.id = h.account_id"
            " WHERE i.request_id = :request AND i.attempt = :attempt AND a.block = :block ORDER BY h.id"
        )
        rows = fetch(self.world.database, query, request=attempt.request_id, attempt=attempt.number, block=block)
        for (hold,) in rows:
            with self.world.database.write() as session:
                insert.record_entries(session, self.world.runner.id, [(int(str(hold)), kind)])

    def start_without_lease(self, request: int) -> None:
        """Begin an attempt and take no lease."""
        with self.world.database.write() as session:
            requests.record_transition(session, self.world.runner, request, "approved", "running")

    def sweep(self) -> list[int]:
        """Close what processes have left that are all gone; return the requests."""
        workspace = cast("Workspace", SimpleNamespace(database=self.world.database, actor=self.world.runner))
        with (
            patch("flows.releases.resume.is_dead", lambda _: True),
            patch("flows.releases.resume.remove_orphans", lambda _: 0),
        ):
            return list(sweep_attempts(workspace).requests)

    def produce(self, attempt: Attempt) -> None:
        """End an attempt with an artifact, as almoner does."""
        self.world.produce(attempt)

    def produce_cheaply(self, attempt: Attempt) -> None:
        """End an attempt with an artifact; what was not armed by now is given back, and not armed."""
        settle = budget.settle

        def give_back(session: object, actor: object, which: Attempt, _: str) -> None:
            """As `settle`, but for what it does to holds that are not armed."""
            holds = budget._holds_by_account(session, budget._HOLDS_OF_ATTEMPT, which)  # type: ignore[arg-type]
            steps = [(one.id, "COMMIT" if "ARM" in one.entries else "RELEASE") for one in holds]
            insert.record_entries(session, self.world.runner.id, steps)  # type: ignore[arg-type]

        budget.settle = give_back  # type: ignore[assignment]
        try:
            self.world.produce(attempt)
        finally:
            budget.settle = settle

    def fail(self, attempt: Attempt) -> None:
        """End an attempt without an artifact."""
        self.world.fail(attempt)

    # --- what is found -------------------------------------------------------------------------------------------

    def proposal_state(self, proposal: int) -> str:
        """Where a proposal is."""
        with self.world.database.read() as session:
            return proposals.state_of(session, proposals.find_proposal(session, proposal))

    def viewers(self, dataset: str = "clinic") -> tuple[str, ...]:
        """Who is on record for having seen unprotected figures of the account of a dataset."""
        with self.world.database.read() as session:
            found = exposures.find_viewing(session, datasets.find_dataset(session, dataset).account_id)
            return found.people if found else ()

    def state(self, request: int) -> str:
        """Where a request is."""
        return self.world.state(request)

    def charge(self, request: int) -> str:
        """The charge of a release on each of its blocks, or the name of the refusal."""
        with self.world.database.read() as session:
            try:
                return charge_of_release(session, request).rho
            except Refused as refused:
                return refused.code

    def uncharged(self) -> list[int]:
        """The releases that `doctor` names because they were not charged their plan."""
        with self.world.database.read() as session:
            return uncharged_releases(session)

    @property
    def guard_of_holds(self) -> Guard:
        """What keeps a hold to its planned part; on PostgreSQL the guards of holds are asked together."""
        return ("hold_planned", "hold")

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

    def _person(self, name: str) -> Actor:
        with self.world.database.read() as session:
            return Actor(people.find_principal(session, name).id, name)

    def _accounts(self) -> dict[tuple[str, int], int]:
        query = "SELECT d.name, a.block, a.id FROM account a JOIN dataset d ON d.account_id = a.parent_id"
        rows = fetch(self.world.database, query)
        return {(str(name), int(str(block))): int(str(number)) for name, block, number in rows}


def _rules(policy: dict[str, Any]) -> dict[str, Any]:
    """A policy whose `datasets` are rules of the ledger."""
    nothing = dict.fromkeys(("spend_approvals", "publish_approvals", "proposal_approvals", "rho_max", "delta_max"))
    given = policy.pop("datasets", {})
    return policy | {"rules": tuple(DatasetTerms(name, **nothing | rule) for name, rule in given.items())}


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
        return refused.code
    return None


__all__ = [
    "WITHIN",
    "Attempt",
    "Balance",
    "Driver",
    "HomeLedger",
    "InvocationPlan",
    "parts_of",
    "planned",
    "refusal_of",
]
