"""What tests of several rooms share: required tools and data, snapshots, and a ledger with people and data in it."""

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.database.base import Base, utc_now
from models_db.policies.rules import PolicyTerms
from models_db.services import (
    artifacts,
    attempts,
    budget,
    cohorts,
    datasets,
    erasures,
    exposures,
    gates,
    people,
    policies,
    proposals,
    requests,
    schedules,
)
from models_db.services.audit import chain
from models_db.services.audit.chain import Actor
from models_db.services.budget import Attempt, InvocationPlan, Provenance
from models_db.services.cohorts import CohortPlan
from models_db.services.datasets import LifetimeClaim, Registration
from models_db.services.gates import GateDecision
from models_db.services.people import PasskeyTerms
from models_db.services.proposals import AuthorisationTerms
from models_db.sessions.database import Database
from models_db.tables import Artifact, Dataset, PolicyVersion, Proposal
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, digest, encode_canonical
from models_db.values.events import PrivacyEvent
from models_db.writes import insert, links
from tasks.common.extensions import Registry

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PROVENANCE = Provenance(device="cpu", code_digest="c" * 64, libraries={"torch": "2"}, rng_kind="os")
PATIENCE = 900.0
"""Seconds that a test waits for another process or thread; it only ends what hangs."""
FAR = timedelta(days=30)
LATE = "9999-01-01T00:00:00.000000Z"
SOON = utc_now(datetime.now(UTC) + timedelta(days=300))
"""A day that the policies of tests allow for decisions."""
CAP = Amount(1000, 100)
TEN = Amount(10)
NO_KEY = "0" * 64
"""A commitment to no key at all, in ledgers whose homes read no corpus."""


def today() -> str:
    """The day of now in UTC; asked for when it is compared, because a run of all tests may pass midnight."""
    return datetime.now(UTC).date().isoformat()


def event_of(mechanism: str) -> PrivacyEvent:
    """An event that says nothing of instalments: tests of the ledger choose them."""
    return PrivacyEvent(mechanism, 1, {"sigma": "1/2"}, Amount(), {"kind": "NoOp"})


def planned(*instalments: Amount, mechanism: str = "integer_draw") -> InvocationPlan:
    """One mechanism of a run, and its parts."""
    return InvocationPlan(event_of(mechanism), instalments)


PLAN = (planned(TEN),)
"""What requests of tests are approved for, if nothing else is said."""


def plan_of(blocks: Sequence[int], plan: Sequence[InvocationPlan] = PLAN) -> dict[str, Json]:
    """The plan of a canonical request."""
    each: list[Json] = [
        {
            "event": one.event.to_json(),
            "instalments": [{"rho": str(part.rho), "delta": str(part.delta)} for part in one.instalments],
        }
        for one in plan
    ]
    return {"blocks": list(blocks), "facts": {}, "invocations": each}


ROUTINE: dict[str, Json] = {
    "kind": "synthetic_corpus", "mechanism": "invisible_ink", "epsilon": "1", "number": 0, "plan": plan_of(range(1)),
}  # fmt: skip
"""What the standing authorisations of tests are for, on a single block."""


def require(condition: object, reason: str) -> None:
    """Skip the test unless `condition` holds; under ALMONER_REQUIRE_ALL=1 fail it instead."""
    if condition:
        return
    if os.environ.get("ALMONER_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def shared_data(name: str) -> Path:
    """A public data set beside the checkout."""
    path = SHARED_DATA / name
    require(path.exists(), f"the data set {name} is not at {path}")
    return path


def substitute(patch: pytest.MonkeyPatch, registry: Registry[Any], name: str, entry: object) -> None:
    """Let a registry have a test's own entry under a name, also one of almoner's, until the test ends."""
    patch.setitem(registry._entries, name, entry)


def snapshot(database: Database) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table of the ledger, to compare before and after a refusal."""
    with database.read() as session:
        return {
            table.name: sorted((tuple(row) for row in session.execute(table.select())), key=repr)
            for table in Base.metadata.sorted_tables
        }


def wait_until(happened: Callable[[], object]) -> None:
    """Wait for another process; it only fails where it hangs."""
    patience = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < patience, "it has not happened"
        time.sleep(0.2)


@contextmanager
def later(by: timedelta) -> Iterator[None]:
    """Inside, the services see a clock that is `by` ahead."""
    with pytest.MonkeyPatch.context() as patch:
        for service in (
            artifacts,
            exposures,
            chain,
            datasets,
            gates,
            erasures,
            gates,
            exposures,
            people,
            proposals,
            insert,
            people,
            policies,
            requests,
            attempts,
            schedules,
        ):
            patch.setattr(service, "utc_now", lambda at=None: utc_now(at or datetime.now(UTC) + by))
        yield


def execute(database: Database, *statements: str, **values: object) -> None:
    """Hand-written SQL, in one write transaction."""
    with database.write() as session:
        for statement in statements:
            session.execute(text(statement), values)


def append_link(
    session: Session,
    actor: Actor,
    kind: str,
    body: dict[str, Json],
    dataset: str | None = None,
    request_id: int | None = None,
) -> int:
    """A link of no row, which only the owner of the tables can add. Returns its number."""
    said = encode_canonical(body).decode()
    if session.get_bind().dialect.name == "sqlite":
        return links.append_link(session, actor.name, kind, said, dataset, request_id)
    query = text("SELECT almoner_chain(:who, :kind, :dataset, CAST(:request AS INTEGER), :body)")
    given = {"who": actor.name, "kind": kind, "dataset": dataset, "request": request_id, "body": said}
    return int(session.execute(query, given).scalar_one())


def fetch(database: Database, query: str, **values: object) -> list[tuple[object, ...]]:
    """The rows of a hand-written query."""
    with database.read() as session:
        return [tuple(row) for row in session.execute(text(query), values)]


@contextmanager
def unguarded(database: Database, guard: str, table: str) -> Iterator[None]:
    """Inside, one guard of a table is away; on PostgreSQL all those of its new rows are."""
    if not database.is_sqlite:
        execute(database, f"ALTER TABLE {table} DISABLE TRIGGER {table}_is_sound")
        yield
        execute(database, f"ALTER TABLE {table} ENABLE TRIGGER {table}_is_sound")
        return
    [(statement,)] = fetch(database, "SELECT sql FROM sqlite_master WHERE name = :name", name=guard)
    execute(database, f"DROP TRIGGER {guard}")
    yield
    with database.engine.begin() as connection:
        connection.exec_driver_sql(str(statement))


def any_amounts(proposal: Proposal) -> None:
    """In place of the check of a proposal's amounts, which tests of the ledger alone have made up."""


def _blocks(session: Session, dataset: Dataset) -> int:
    return cohorts.blocks_per_cohort(session, dataset.account_id)


def terms(**given: Any) -> PolicyTerms:
    """A policy's terms; what is not given asks for nothing more than one approval."""
    open_terms: dict[str, Any] = {
        "body": "{}", "several_roles": False, "spend_approvals": 1, "publish_approvals": 1, "proposal_approvals": 1,
        "rho_max": None, "delta_max": None, "attempts": 100,
        "approval_days": 365, "request_days": 365, "rules": (),
    }  # fmt: skip
    whole = open_terms | given
    return PolicyTerms(digest=digest({"terms": repr(sorted(whole.items()))}), **whole)


@dataclass(frozen=True)
class World:
    """A ledger with four people and one policy, and the short way to every state of a request.

    One person may not do another's part under `several_roles=False`; every shortcut acts as the right one.
    """

    database: Database
    policy_id: int
    admin: Actor
    analyst: Actor
    steward: Actor
    runner: Actor
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    approved: Sequence[InvocationPlan] = PLAN
    """What its requests are approved for, if nothing else is said."""

    @classmethod
    def create(
        cls,
        database: Database,
        *,
        several_roles: bool = False,
        spend_approvals: int = 1,
        publish_approvals: int = 1,
        approved: Sequence[InvocationPlan] = PLAN,
        **more: Any,
    ) -> "World":
        """Enrol the people and adopt the policy."""
        with database.write() as session:
            admin = people.found_ledger(session, "admin", "key of admin", NO_KEY)
            analyst, steward, runner = (
                people.enrol(session, admin, name, f"key of {name}") for name in ("analyst", "steward", "runner")
            )
            for name in ("analyst", "steward", "runner"):
                people.grant(session, admin, name, name, "for the tests")
            policy = policies.adopt(
                session,
                admin,
                terms(
                    several_roles=several_roles,
                    spend_approvals=spend_approvals,
                    publish_approvals=publish_approvals,
                    **more,
                ),
            )
            return cls(database, policy.id, admin, analyst, steward, runner, approved=approved)

    def person(self, name: str, *roles: str) -> Actor:
        """One more person, a steward unless roles are named."""
        with self.database.write() as session:
            made = people.enrol(session, self.admin, name, f"key of {name}")
            for role in roles or ("steward",):
                people.grant(session, self.admin, name, role, "for the tests")
            return made

    def grant(self, name: str, role: str, **dates: str) -> None:
        """Give somebody a role."""
        with self.database.write() as session:
            people.grant(session, self.admin, name, role, "for the tests", **dates)

    def revoke(self, name: str, role: str) -> None:
        """Take a role away."""
        with self.database.write() as session:
            people.revoke(session, self.admin, name, role, "for the tests")

    def passkey(self, person: Actor, *, revoked: bool = False, key: str = "es256:1", signature: str = "s") -> int:
        """A passkey of a person, which nobody has certified. Returns its number."""
        terms = PasskeyTerms(f"{key} of {person.name}", "localhost", "http://localhost:8717", "")
        with self.database.write() as session:
            number = people.register_passkey(session, person, person, terms, "credential", signature).id
            if revoked:
                people.revoke_passkey(session, person, number, "lost")
            return number

    def take_back(self, request_id: int, by: Actor | None = None, gate: str = "spend") -> str:
        """Withdraw an approval. Returns the request's state."""
        with self.database.write() as session:
            said = f"signature {next(self._numbers)}"
            return gates.withdraw_approval(session, by or self.steward, request_id, gate, "a doubt", said)

    def account(self, cap: Amount = CAP, blocks: int = 1) -> int:
        """A root account with its blocks. Returns its id."""
        claim = LifetimeClaim("8", "0.000001", 9 * 10**11, cap)
        with self.database.write() as session:
            return datasets.open_account(session, claim, blocks, f"{next(self._numbers):016x}", NO_KEY, self.steward).id

    def dataset(
        self,
        name: str = "clinic",
        cap: Amount = CAP,
        *,
        blocks: int = 1,
        governed: bool = True,
        unit_field: str | None = "patient_id",
        account_id: int | None = None,
    ) -> str:
        """A dataset with one version. Returns its name."""
        account_id = account_id or self.account(cap, blocks)
        with self.database.write() as session:
            wanted = Registration(name, unit_field, "text", governed, None, None)
            datasets.register(session, self.steward, wanted, account_id)
        self.version(name, [f"{name}-unit".encode().ljust(32, b"\0")])
        return name

    def empty_dataset(self, name: str = "vacant", unit_field: str = "id", by: Actor | None = None) -> str:
        """A dataset without a version, or one more registration of it. Returns its name."""
        account_id = self.account()
        with self.database.write() as session:
            wanted = Registration(name, unit_field, "text", True, None, None)
            datasets.register(session, by or self.steward, wanted, account_id)
        return name

    def version(
        self,
        dataset: str,
        marks: Sequence[bytes],
        source: str | None = None,
        growth: CohortPlan | None = None,
        erased: frozenset[str] = frozenset(),
    ) -> int:
        """One more ingested version. Returns its number."""
        number, growth = next(self._numbers), growth or CohortPlan()
        with self.database.write() as session:
            found = datasets.find_dataset(session, dataset)
            known = cohorts.cohorts_by_unit(session, found.account_id, marks)
            made = datasets.add_version(
                session,
                self.steward if growth.opens else self.runner,
                found,
                uid=f"{number:032x}",
                source_mark=source or digest({"source": number}),
                manifest_mark=digest({"manifest": number}),
                units=[(mark, known.get(mark, growth.newest)) for mark in marks],
                cohort_plan=growth,
                erased=erased,
            )
            return made.number

    def growth(self, dataset: str = "clinic", *, opens: bool = False, declared: int | None = None) -> CohortPlan:
        """What is known of the dataset's cohorts before a version comes in."""
        with self.database.read() as session:
            found = datasets.find_dataset(session, dataset)
            return cohorts.plan_cohorts(session, self.steward, found, opens=opens, declared=declared)

    def request(
        self,
        dataset: str = "clinic",
        *,
        valid: timedelta = FAR,
        standing: int | None = None,
        approved: Sequence[InvocationPlan] = (),
        **body: Json,
    ) -> int:
        """A submitted request, under a standing authorisation if one is named. Returns its number.

        Args:
            approved: its plan, on every block; without one the plan of this world.
        """
        with self.database.write() as session:
            found = datasets.find_dataset(session, dataset)
            content: dict[str, Json] = {
                "kind": "synthetic_corpus",
                "mechanism": "invisible_ink",
                "epsilon": "1",
                "number": next(self._numbers),
                "plan": plan_of(
                    range(cohorts.count_cohorts(session, found.account_id) * _blocks(session, found)),
                    approved or self.approved,
                ),
            }
            policy = policies.policy_in_force(session)
            assert policy is not None
            version = datasets.newest_version(session, found)
            proposal = proposals.find_proposal(session, standing) if standing else None
            return requests.submit(
                session, self.analyst, found, version, policy, content | body, valid, standing=proposal
            ).id

    def subject(self, request_id: int, gate: str) -> str:
        """The digest that a gate decides on."""
        with self.database.read() as session:
            if gate == "spend":
                return requests.find_request(session, request_id).digest
            if gate == "proposal":
                return proposals.find_proposal(session, request_id).digest
            artifact = artifacts.artifact_of(session, request_id)
            assert artifact is not None
            return artifact.digest

    def decide(
        self,
        request_id: int,
        gate: str = "spend",
        verdict: str = "approve",
        *,
        by: Actor | None = None,
        valid: timedelta = FAR,
        reason: str = "because",
    ) -> str:
        """A steward's decision on a request or, at the gate `proposal`, on a proposal. Returns its state."""
        expires = utc_now(datetime.now(UTC) + valid)
        subject = self.subject(request_id, gate)
        decision = GateDecision(request_id, gate, subject, verdict, reason, expires)
        with self.database.write() as session:
            signature = f"signature {next(self._numbers)}"
            return gates.record_decision(session, by or self.steward, decision, signature, amount_check=any_amounts)

    def cap(self, amount: Amount, dataset: str = "clinic", *, carry: bool = True, valid: timedelta = FAR) -> int:
        """A proposal for another lifetime claim, carried unless it is to wait. Returns its number."""
        claim = LifetimeClaim("9", "0.000002", 10**12, amount)
        return self._moved(carry, lambda s, p: proposals.propose_cap(
            s, self.analyst, datasets.find_dataset(s, dataset), p, claim, "because", valid))  # fmt: skip

    def standing(
        self,
        most: Amount = TEN,
        runs: int = 2,
        until: str = LATE,
        dataset: str = "clinic",
        *,
        carry: bool = True,
        valid: timedelta = FAR,
        **body: Json,
    ) -> int:
        """A proposal for a standing authorisation of `ROUTINE`, carried unless it is to wait. Returns its number."""
        configuration = requests.configuration(self._routine(dataset) | body)
        wanted = AuthorisationTerms(configuration, most.rho, most.delta, runs, until)
        return self._moved(carry, lambda s, p: proposals.propose_standing(
            s, self.analyst, datasets.find_dataset(s, dataset), p, wanted, "because", valid))  # fmt: skip

    def _routine(self, dataset: str) -> dict[str, Json]:
        """`ROUTINE` on every block of a dataset."""
        with self.database.read() as session:
            return ROUTINE | {"plan": plan_of(range(_blocks(session, datasets.find_dataset(session, dataset))))}

    def retraction(self, request_id: int, *, carry: bool = True) -> int:
        """A proposal to call a publication back, carried unless it is to wait. Returns its number."""
        return self._moved(
            carry, lambda s, p: proposals.propose_retraction(s, self.analyst, request_id, p, "because", FAR)
        )

    def _moved(self, carry: bool, propose: Callable[[Session, PolicyVersion], Proposal]) -> int:
        with self.database.write() as session:
            policy = policies.policy_in_force(session)
            assert policy is not None
            number = propose(session, policy).id
        if carry:
            assert self.decide(number, "proposal") == "carried"
        return number

    def routine(self, standing: int, dataset: str = "clinic", **body: Json) -> int:
        """A request for what a standing authorisation is for. Returns its number."""
        asked: dict[str, Any] = self._routine(dataset) | {"nonce": str(next(self._numbers))} | body
        return self.request(dataset, standing=standing, **asked)

    def start(self, request_id: int, goes_on_from: int | None = None) -> Attempt:
        """An attempt at an approved request, eligible for every block."""
        token = f"token-{next(self._numbers)}"
        with self.database.write() as session:
            number = attempts.start_attempt(session, self.runner, request_id, token, "here", goes_on_from)
            dataset_id = requests.find_request(session, request_id).dataset_id
            blocks = _blocks(session, session.get_one(Dataset, dataset_id))
            return budget.load_attempt(session, request_id, number, tuple(range(blocks)))

    def running(self, dataset: str = "clinic", *approved: InvocationPlan, **body: Json) -> Attempt:
        """Requested, approved and started; without a plan for that of this world."""
        request_id = self.request(dataset, approved=approved, **body)
        self.decide(request_id)
        return self.start(request_id)

    def held(self, *approved: InvocationPlan, dataset: str = "clinic") -> Attempt:
        """Running, and its whole plan is reserved."""
        attempt = self.running(dataset, *approved)
        self.hold(attempt, *approved or self.approved)
        return attempt

    def hold(self, attempt: Attempt, *plan: InvocationPlan) -> None:
        """Reserve a plan."""
        with self.database.write() as session:
            budget.hold(session, self.runner, attempt, plan, PROVENANCE)

    def arm(self, attempt: Attempt, sequence: int = 0, instalment: int = 0) -> Amount:
        """Spend one instalment."""
        with self.database.write() as session:
            return budget.arm(session, self.runner, attempt, sequence, instalment)

    def settle(self, attempt: Attempt, outcome: str) -> None:
        """Close every hold of an attempt."""
        with self.database.write() as session:
            budget.settle(session, self.runner, attempt, outcome)

    def fail(self, attempt: Attempt) -> None:
        """End an attempt without an artifact."""
        with self.database.write() as session:
            attempts.fail_attempt(session, self.runner, attempt, "interrupted")

    def produce(
        self,
        attempt: Attempt,
        metrics: Sequence[tuple[str, str, Json]] = (),
        files: Mapping[str, Json] | None = None,
    ) -> Artifact:
        """End an attempt with an artifact, of some files that need not exist."""
        files = files or {"texts.jsonl": digest({"request": attempt.request_id, "attempt": attempt.number})}
        with self.database.write() as session:
            return artifacts.record_artifact(session, self.runner, attempt, files, 10, metrics)

    def produced(self, dataset: str = "clinic", *approved: InvocationPlan) -> Attempt:
        """Running, held, armed and produced."""
        attempt = self.held(*approved, dataset=dataset)
        self.arm(attempt)
        self.produce(attempt)
        return attempt

    def published(self, dataset: str = "clinic") -> Attempt:
        """Produced, approved at the second gate and published."""
        attempt = self.produced(dataset)
        self.decide(attempt.request_id, "publish")
        with self.database.write() as session:
            artifacts.record_publication(session, self.runner, attempt.request_id)
        return attempt

    def state(self, request_id: int) -> str:
        """Where a request is."""
        with self.database.read() as session:
            return requests.state_of(session, request_id)

    def balance(self, dataset: str = "clinic") -> budget.Balance:
        """What a dataset's account has left."""
        with self.database.read() as session:
            return budget.balance(session, datasets.find_dataset(session, dataset).account_id)


def free_port() -> int:
    """A port of this machine at which nothing listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
