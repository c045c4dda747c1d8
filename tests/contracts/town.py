"""A ledger with something in every table, and requests in every state."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Executable

from models_db.database.base import utc_now
from models_db.policies.rules import DatasetTerms
from models_db.services import artifacts, datasets, erasures, exposures, gates, people, policies, proposals, schedules
from models_db.services.audit.chain import Actor
from models_db.services.budget import Attempt
from models_db.services.erasures import ErasureRequest
from models_db.services.schedules import Timing
from models_db.values.amounts import Amount
from tests.conftest import Ledgers
from tests.contracts.rows import DIGEST, PLAN, WIDE, approval, artifact, publication
from tests.support import NO_KEY, TEN, World, execute, fetch, plan_of, planned, snapshot, terms


@dataclass
class Town:
    """A ledger with something in every table, and requests in every state."""

    world: World
    submitted: int = 0
    approved: int = 0
    rejected: int = 0
    undecided: int = 0
    running: Attempt = field(init=False)
    held: Attempt = field(init=False)
    armed: Attempt = field(init=False)
    failed: Attempt = field(init=False)
    vetoed: Attempt = field(init=False)
    lost: Attempt = field(init=False)
    settled: Attempt = field(init=False)
    complete: Attempt = field(init=False)
    unarmed: Attempt = field(init=False)
    produced: Attempt = field(init=False)
    cleared: Attempt = field(init=False)
    decided: Attempt = field(init=False)
    contested: Attempt = field(init=False)
    discarded: Attempt = field(init=False)
    published: Attempt = field(init=False)
    open_data: Attempt = field(init=False)
    deputised: Attempt = field(init=False)
    reopened: int = 0
    elsewhere: Attempt = field(init=False)
    limited: Attempt = field(init=False)
    routine: Attempt = field(init=False)
    scheduled: int = 0
    exhausted: int = 0
    retracted: Attempt = field(init=False)
    open_proposal: int = 0
    open_retraction: int = 0
    ready_proposal: int = 0
    carried_cap: int = 0
    standing: int = 0
    schedule: int = 0
    paused: int = 0
    looked: Attempt = field(init=False)
    spurned: Attempt = field(init=False)
    unseen: Attempt = field(init=False)
    emptied: int = 0
    kept: int = 0
    gone: int = 0
    gone_approved: int = 0
    erasure: int = 0
    passkey: int = 0
    revoked_passkey: int = 0

    @classmethod
    def build(cls, world: World) -> "Town":
        self = cls(world)
        world.person("second steward")
        self._further_people()
        world.dataset("clinic", Amount(1000, 100), blocks=2)
        world.dataset("harbour", Amount(1000, 100))
        world.dataset("library", Amount(1000, 100), governed=False)
        world.dataset("nameless", Amount(1000, 100), blocks=2, unit_field=None)
        world.dataset("ward", Amount(1000, 100), blocks=2, unit_field=None)
        self._further_datasets()
        self._submitted()
        self._running()
        self._produced()
        self._decided()
        self._decided_otherwise()
        execute(
            world.database,
            "INSERT INTO account (epsilon, delta, delta_conversion, rho, delta_fail, blocks, key_name, key_commitment,"
            f" created_at, rho_cap, delta_cap) VALUES ('1', '0', 0, 77, 7, 1, '00000000000000ba', '{NO_KEY}',"
            f" '{utc_now()}', 77, 7)",
        )
        self._require_whole()
        return self

    def _require_whole(self) -> None:
        empty = [table for table, rows in snapshot(self.world.database).items() if not rows]
        assert empty == ["pending_link"]

    def _further_people(self) -> None:
        self.world.person("auditor", "auditor")
        self.world.person("deputy", "auditor")
        self.world.person("former", "runner", "steward", "analyst", "admin")
        self.revoked_passkey = self.world.passkey(self.actor("second steward"), revoked=True)
        self.passkey = self.world.passkey(self.world.steward)

    def _further_datasets(self) -> None:
        self.world.dataset("estate", Amount(1000, 100))
        self.world.dataset("limited", Amount(10**6, 10**6))
        self.world.dataset("grown", Amount(1000, 100), blocks=2)
        self.world.dataset("seen", Amount(1000, 100))
        self.world.empty_dataset("vacant")
        self.world.empty_dataset("corrected", "wrong")
        self.world.empty_dataset("corrected")
        later = [b"later-unit".ljust(32, b"\0")]
        self.world.version("grown", later, growth=self.world.growth("grown", opens=True))

    def _decided_otherwise(self) -> None:
        self._narrowed()
        self._moved()
        self._on_schedules()
        self._lapsed()
        self._viewed()
        self._erased()
        at = utc_now()
        execute(
            self.world.database,
            "INSERT INTO checkpoint (seq, hash, at, signature, public_key, created_by, signed_at)"
            f" SELECT seq, hash, '{at}', 's', 'key of steward', {self.world.steward.id}, '{at}' FROM audit_head",
            "INSERT INTO delivery (publication_id, destination, bundle_digest, at, created_by)"
            f" VALUES (1, 'out', '{DIGEST}', '{at}', {self.world.runner.id})",
            "INSERT INTO restoration (taken_at, link, reason, at, actor_id)"
            f" VALUES ('{at}', 1, 'a disk', '{at}', {self.world.admin.id})",
            "INSERT INTO twin_attack (dataset, request_id, configuration, result, attacks, at, actor_id)"
            f" VALUES ('library', 1, '{DIGEST}', '{DIGEST}', 'membership', '{at}', {self.world.runner.id})",
            "INSERT INTO rehearsal (dataset, request_id, configuration, result, at, actor_id)"
            f" VALUES ('twin', 1, '{DIGEST}', '{{}}', '{at}', {self.world.runner.id})",
            "INSERT INTO principal (name, public_key, created_at, login)"
            f" VALUES ('stranger', 'key of stranger', '{at}', 'stranger')",
        )

    def _submitted(self) -> None:
        self.submitted, self.undecided, self.rejected = (self.world.request() for _ in range(3))
        self.do(approval(self, self.undecided))
        self.do(approval(self, self.rejected))
        self.do(approval(self, self.rejected, approver_id=self.second_steward, decision="reject"))
        self.approved = self.world.request(approved=WIDE)
        self.world.decide(self.approved)
        vetoed = self.world.request(approved=WIDE)
        self.world.decide(vetoed)
        self.do(approval(self, vetoed, approver_id=self.second_steward, decision="reject"))
        self.vetoed = self.world.start(vetoed)
        self.world.hold(self.vetoed, planned(TEN))

    def _running(self) -> None:
        world = self.world
        self.running, self.held, self.armed, self.failed = (world.running("clinic", *WIDE) for _ in range(4))
        self.lost, self.complete = world.running("clinic", *WIDE), world.running()
        self.settled = world.running(evaluation=["length", "of an extension"])
        for attempt in (self.held, self.armed, self.failed, self.lost):
            world.hold(attempt, planned(TEN, TEN))
        for attempt in (self.settled, self.complete):
            world.hold(attempt, *PLAN)
        world.fail(self.failed)
        for attempt in (self.armed, self.lost, self.settled, self.complete):
            world.arm(attempt)
        world.fail(self.lost)
        for attempt in (self.settled, self.complete):
            world.settle(attempt, "COMMIT")
        self.do(artifact(self, self.complete))

    def _produced(self) -> None:
        world = self.world
        self.cleared, self.contested, self.unarmed = world.produced(), world.produced(), world.running()
        world.hold(self.unarmed, *PLAN)
        world.fail(self.unarmed)
        self.produced = world.start(self.unarmed.request_id)
        world.hold(self.produced, *PLAN)
        world.arm(self.produced)
        world.produce(self.produced, [("length", "public", {"mean": 3})])
        self.do(approval(self, self.contested, "publish"))
        self.do(approval(self, self.contested, "publish", approver_id=self.second_steward, decision="reject"))
        self.do(approval(self, self.cleared, "publish"))
        self.open_data = world.produced("library")

    def _decided(self) -> None:
        self.published, self.discarded, self.decided = (
            self.world.published(),
            self.world.produced(),
            self.world.produced(),
        )
        self.world.decide(self.discarded.request_id, "publish", "reject")
        self.do(approval(self, self.decided, "publish"))
        self.do(publication(self, self.decided))

    def _narrowed(self) -> None:
        """One release on another dataset, one under a limit; a policy that is over."""
        world = self.world
        self.elsewhere = world.running("estate", *WIDE)
        world.hold(self.elsewhere, planned(TEN))
        with world.database.write() as session:
            rule = DatasetTerms("limited", 1, 1, 1, 100, None)
            policies.adopt(session, world.admin, terms(rules=(rule,)))
        self.limited = world.running("limited", *WIDE)
        world.hold(self.limited, planned(TEN))
        with world.database.write() as session:
            policies.adopt(session, world.admin, terms())

    def _moved(self) -> None:
        """Proposals of each kind, carried and waiting."""
        world = self.world
        self.carried_cap = world.cap(Amount(2000, 200), "harbour")
        self.open_proposal = world.cap(Amount(3000, 300), "harbour", carry=False)
        self.ready_proposal = world.cap(Amount(4000, 400), "harbour", carry=False)
        self.do(approval(self, self.ready_proposal, "proposal"))
        wide = {"plan": plan_of(range(2), WIDE)}
        self.standing = world.standing(runs=2, **wide)
        self.scheduled = world.routine(self.standing, **wide)
        self.routine = world.start(world.routine(self.standing, **wide))
        world.hold(self.routine, planned(TEN))
        once = world.standing(runs=1, **wide)
        self.exhausted = world.routine(once, **wide)
        world.fail(world.start(self.exhausted))
        self.retracted = world.published()
        world.retraction(self.retracted.request_id)
        self.open_retraction = world.retraction(self.published.request_id, carry=False)

    def _on_schedules(self) -> None:
        """One schedule with a slot that was skipped and one whose run was given up; another is paused."""
        world, begins = self.world, utc_now()
        with world.database.write() as session:
            clinic, proposal = datasets.find_dataset(session, "clinic"), proposals.find_proposal(session, self.standing)
            for rule in ("1h", "2h"):
                timing = Timing("interval", rule, "UTC", begins)
                made = schedules.create(session, world.analyst, clinic, proposal, timing, "every hour")
                self.schedule, self.paused = self.schedule or made.id, made.id
            schedules.record_change(session, world.steward, self.paused, "paused", "a doubt")
            slot = schedules.find_schedule(session, self.schedule)
            schedules.record_slot(session, world.analyst, slot, begins, skipped="BudgetExceeded")
        due = utc_now()
        asked = world.routine(self.standing, plan=plan_of(range(2), WIDE))
        with world.database.write() as session:
            slot = schedules.find_schedule(session, self.schedule)
            decided = schedules.record_slot(session, world.analyst, slot, due, request_id=asked)
            schedules.end_slot(session, world.runner, decided, "PlanChanged", "")

    def _viewed(self) -> None:
        """Two people have seen unprotected figures."""
        world = self.world
        self.looked, self.spurned, self.unseen = (
            world.published("seen"),
            world.produced("seen"),
            world.published("seen"),
        )
        world.decide(self.spurned.request_id, "publish", "reject")
        for who, attempt in ((self.actor("second steward"), self.looked), (world.analyst, self.spurned)):
            with world.database.write() as session:
                made = artifacts.artifact_of(session, attempt.request_id)
                assert made is not None
                exposures.record_view(session, who, made, "shown")
        with world.database.write() as session:
            leaked = self.spurned.request_id
            exposures.record_exposure(session, world.steward, leaked, None, "a copy of the journal")

    def _erased(self) -> None:
        """Of one dataset the first version is gone; of the second a unit, of which nobody knows yet that it is gone."""
        world = self.world
        world.dataset("emptied", Amount(1000, 100))
        self.gone, self.gone_approved = world.request("emptied"), self._approved("emptied")
        self.emptied = self.id_of("dataset_version", "TRUE")
        world.version("emptied", [b"other-unit".ljust(32, b"\0")])
        second = self.id_of("dataset_version", "TRUE")
        with world.database.write() as session:
            found = datasets.find_dataset(session, "emptied")
            wanted = ErasureRequest("version", "over", {self.emptied: None}, version=self.emptied)
            erasures.end_erasure(session, world.steward, erasures.record_erasure(session, world.steward, found, wanted))
        with world.database.write() as session:
            found = datasets.find_dataset(session, "emptied")
            wanted = ErasureRequest("unit", "asked", {second: "d" * 64}, unit_mark="e" * 64)
            self.erasure = erasures.record_erasure(session, world.steward, found, wanted).id
        world.version("emptied", [b"third-unit".ljust(32, b"\0")], erased=frozenset({"e" * 64}))
        self.kept = self.id_of("dataset_version", "TRUE")

    def _lapsed(self) -> None:
        """Roles and approvals that were given, used and taken back; one role has an end."""
        world = self.world
        world.grant("deputy", "steward", valid_to=utc_now(datetime.now(UTC) + timedelta(days=9)))
        request_id = world.request(approved=WIDE)
        world.decide(request_id, by=self.actor("deputy"))
        self.deputised = world.start(request_id)
        world.hold(self.deputised, planned(TEN))
        self.reopened = self._approved("clinic")
        with world.database.write() as session:
            gates.withdraw_approval(session, world.steward, self.reopened, "spend", "a doubt", "s")
            for role in ("runner", "steward", "analyst", "admin"):
                people.revoke(session, world.admin, "former", role, "left")

    def _approved(self, dataset: str, **given: Any) -> int:
        request_id = self.world.request(dataset, **given)
        self.world.decide(request_id)
        return request_id

    @property
    def now(self) -> str:
        return utc_now()

    def actor(self, name: str) -> Actor:
        return Actor(int(self.one("SELECT id FROM principal WHERE name = :name", name=name)), name)

    def id_of(self, table: str, condition: str) -> int:
        return int(self.one(f"SELECT max(id) FROM {table} WHERE {condition}"))

    @property
    def after_the_deputy(self) -> str:
        """A time at which the deputy is no steward any more."""
        return utc_now(datetime.now(UTC) + timedelta(days=10))

    @property
    def second_steward(self) -> int:
        return self.actor("second steward").id

    def do(self, *statements: Executable) -> None:
        with self.world.database.write() as session:
            for statement in statements:
                session.execute(statement)

    def one(self, query: str, **values: object) -> Any:
        [row] = fetch(self.world.database, query, **values)
        return row[0]

    def account(self, dataset: str, block: int | None = 0) -> int:
        root = self.one("SELECT account_id FROM dataset WHERE name = :name", name=dataset)
        if block is None:
            return int(root)
        return int(
            self.one("SELECT id FROM account WHERE parent_id = :root AND block = :block", root=root, block=block)
        )

    def invocation(self, attempt: Attempt, sequence: int = 0) -> int:
        return int(
            self.one(
                "SELECT id FROM invocation WHERE request_id = :r AND attempt = :a AND sequence = :s",
                r=attempt.request_id,
                a=attempt.number,
                s=sequence,
            )
        )

    def hold(self, attempt: Attempt, instalment: int = 0) -> int:
        query = "SELECT min(h.id) FROM hold h WHERE h.invocation_id = :i AND h.instalment = :n"
        return int(self.one(query, i=self.invocation(attempt), n=instalment))

    def digest(self, attempt: Attempt) -> str:
        return self.world.subject(attempt.request_id, "publish")

    def artifact(self, attempt: Attempt) -> int:
        return int(self.one("SELECT id FROM artifact WHERE request_id = :r", r=attempt.request_id))


@contextmanager
def town_of(ledgers: Ledgers, backend: str) -> Iterator[Town]:
    """A town on a backend."""
    with ledgers.new(backend) as database:
        yield Town.build(World.create(database, approved=PLAN))
