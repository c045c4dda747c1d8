"""A ledger with something in every table and requests in every state; rows written by hand, past the services."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Executable

from models_db.base import Base, moment
from models_db.budgets import Amount
from models_db.services.ledger import Attempt
from tests.support import LATE, World, execute, fetch, planned, snapshot

DIGEST = "d" * 64


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

    @classmethod
    def build(cls, world: World) -> "Town":
        self = cls(world)
        world.person("second steward")
        world.dataset("clinic", Amount(1000, 100), blocks=2)
        world.dataset("harbour", Amount(1000, 100))
        world.dataset("library", Amount(1000, 100), governed=False)
        world.dataset("nameless", Amount(1000, 100), blocks=2, unit_field=None)
        world.dataset("ward", Amount(1000, 100), blocks=2, unit_field=None)
        self._submitted()
        self._running()
        self._produced()
        self._decided()
        at = moment()
        execute(
            world.database,
            f"INSERT INTO checkpoint (seq, hash, at, signature, public_key) SELECT seq, hash, '{at}', 's', 'k'"
            " FROM audit_head",
            f"INSERT INTO delivery (publication_id, destination, bundle_digest, at) VALUES (1, 'out', 'b', '{at}')",
            "INSERT INTO account (kind, rho_cap, delta_cap) VALUES ('root', 77, 7)",
            "INSERT INTO partition_scheme (account_id, function, blocks, key_name)"
            " SELECT id, 'hmac-sha256', 1, 'bare' FROM account WHERE rho_cap = 77",
        )
        assert all(rows for rows in snapshot(world.database).values())
        return self

    def _submitted(self) -> None:
        self.submitted, self.undecided, self.rejected = (self.world.request() for _ in range(3))
        self.do(approval(self, self.undecided))
        self.do(approval(self, self.rejected))
        self.do(approval(self, self.rejected, approver_id=self.second_steward, decision="reject"))
        self.approved = self.world.request()
        self.world.decide(self.approved)
        vetoed = self.world.request()
        self.world.decide(vetoed)
        self.do(approval(self, vetoed, approver_id=self.second_steward, decision="reject"))
        self.vetoed = self.world.start(vetoed)
        self.world.hold(self.vetoed, planned(Amount(10)))

    def _running(self) -> None:
        world = self.world
        self.running, self.held, self.armed, self.failed = (world.running() for _ in range(4))
        self.settled, self.complete = world.running(), world.running()
        for attempt in (self.held, self.armed, self.failed, self.settled, self.complete):
            world.hold(attempt, planned(Amount(10), Amount(10)))
        world.fail(self.failed)
        for attempt in (self.armed, self.settled, self.complete):
            world.arm(attempt)
        for attempt in (self.settled, self.complete):
            world.settle(attempt, "COMMIT")
        self.do(artifact(self, self.complete))

    def _produced(self) -> None:
        world = self.world
        self.cleared, self.contested, self.unarmed = world.produced(), world.produced(), world.running()
        world.hold(self.unarmed, planned(Amount(10)))
        world.fail(self.unarmed)
        self.produced = world.start(self.unarmed.request_id)
        world.hold(self.produced, planned(Amount(10)))
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

    @property
    def second_steward(self) -> int:
        return self.one("SELECT id FROM principal WHERE name = 'second steward'")

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
        query = "SELECT min(id) FROM hold WHERE invocation_id = :i AND instalment = :n"
        return int(self.one(query, i=self.invocation(attempt), n=instalment))

    def digest(self, attempt: Attempt) -> str:
        return self.world.subject(attempt.request_id, "publish")

    def artifact(self, attempt: Attempt) -> int:
        return int(self.one("SELECT id FROM artifact WHERE request_id = :r", r=attempt.request_id))


def insert(table: str, **values: object) -> Executable:
    return Base.metadata.tables[table].insert().values(**values)


def account(town: Town, **given: object) -> Executable:
    return insert("account", **{"kind": "root", "rho_cap": 5, "delta_cap": 5} | given)


def block(town: Town, **given: object) -> Executable:
    parent = town.one("SELECT id FROM account WHERE rho_cap = 77")
    return insert(
        "account", **{"kind": "block", "parent_id": parent, "block": 0, "rho_cap": 77, "delta_cap": 7} | given
    )


def dataset(town: Town, sharing: str, **given: object) -> Executable:
    row = {
        "name": "another", "account_id": town.account(sharing, None), "unit_field": "patient_id", "text_field": "text",
        "relation": "add_or_remove_one", "governed": True, "population": None, "public_metadata": None,
        "created_at": moment(), "created_by": town.world.analyst.id,
    }  # fmt: skip
    return insert("dataset", **row | given)


def version(town: Town, of: str) -> Executable:
    return insert(
        "dataset_version", dataset_id=town.one("SELECT id FROM dataset WHERE name = :name", name=of), number=9,
        uid="u", source_mark=DIGEST, manifest_mark=DIGEST, created_at=moment(), created_by=town.world.analyst.id,
    )  # fmt: skip


def policy(town: Town, spend: int, publish: int) -> Executable:
    return insert(
        "policy_version", digest=DIGEST, body="{}", several_roles=False, spend_approvals=spend,
        publish_approvals=publish, created_at=moment(),
    )  # fmt: skip


def unit_mark(town: Town, dataset: str, name: bytes) -> Executable:
    return insert("unit_mark", mark=name.ljust(32, b"\0"), account_id=town.account(dataset, None))


def request(town: Town, dataset: str, version: str) -> Executable:
    dataset_id = town.one("SELECT id FROM dataset WHERE name = :name", name=dataset)
    query = "SELECT v.id FROM dataset_version v JOIN dataset d ON d.id = v.dataset_id WHERE d.name = :name"
    return insert(
        "request", dataset_id=dataset_id, version_id=town.one(query, name=version), policy_id=town.world.policy_id,
        canonical="{}", digest=DIGEST, requester_id=town.world.analyst.id, created_at=moment(), expires_at=LATE,
    )  # fmt: skip


def invocation(town: Town, of: Attempt, **given: object) -> Executable:
    row = {
        "request_id": of.request_id, "attempt": of.number, "sequence": 9, "mechanism": "m", "event": "{}",
        "relation": "add_or_remove_one", "rng_kind": "os", "device": "cpu", "code_digest": DIGEST, "libraries": "{}",
        "idem_key": DIGEST, "created_at": moment(), "created_by": town.world.runner.id,
    }  # fmt: skip
    return insert("invocation", **row | given)


def hold(town: Town, of: Attempt, **given: object) -> Executable:
    row = {
        "invocation_id": town.invocation(of),
        "account_id": town.account("clinic"),
        "instalment": 9,
        "rho": 1,
        "delta": 0,
    }
    return insert("hold", **row | given)


def entry(town: Town, hold_id: int, kind: str, at: str = "") -> Executable:
    return insert("entry", hold_id=hold_id, kind=kind, at=at or moment(), actor_id=town.world.runner.id)


def unheld(town: Town, attempt: Attempt, *kinds: str, **given: object) -> list[Executable]:
    """A hold that the services did not make, with its entries."""
    number = int(town.one("SELECT max(id) + 1 FROM hold"))
    return [hold(town, attempt, id=number, **given), *(entry(town, number, kind) for kind in kinds)]


def released(town: Town, attempt: Attempt) -> list[Executable]:
    """One more mechanism of an attempt, held and given back without having run."""
    invocation_id, hold_id = (int(town.one(f"SELECT max(id) + 1 FROM {table}")) for table in ("invocation", "hold"))
    return [
        invocation(town, attempt, id=invocation_id),
        hold(town, attempt, id=hold_id, invocation_id=invocation_id),
        entry(town, hold_id, "HOLD"),
        entry(town, hold_id, "RELEASE"),
    ]


def transition(town: Town, request_id: int, from_state: str, to_state: str, number: int | None = None) -> Executable:
    count = town.one("SELECT count(*) FROM transition WHERE request_id = :r", r=request_id)
    return insert(
        "transition", request_id=request_id, number=number or count + 1, from_state=from_state, to_state=to_state,
        detail="", at=moment(), actor_id=town.world.runner.id,
    )  # fmt: skip


def approval(town: Town, of: int | Attempt, gate: str = "spend", **given: object) -> Executable:
    request_id = of if isinstance(of, int) else of.request_id
    row = {
        "request_id": request_id, "gate": gate, "approver_id": town.world.steward.id, "decision": "approve",
        "reason": "because", "at": moment(), "expires_at": "9000-01-01T00:00:00.000000Z", "signature": "s",
    }  # fmt: skip
    if "subject_digest" not in given:
        row["subject_digest"] = town.world.subject(request_id, gate)
    return insert("approval", **row | given)


def artifact(town: Town, of: Attempt, **given: object) -> Executable:
    row = {
        "request_id": of.request_id, "attempt": of.number, "digest": f"{of.request_id:064}",
        "files": "{}", "size": 1, "folder": "f", "created_at": moment(), "created_by": town.world.runner.id,
    }  # fmt: skip
    return insert("artifact", **row | given)


def evaluation(town: Town, attempt: Attempt, exposure: str, invocation_id: int | None = None) -> Executable:
    return insert(
        "evaluation", artifact_id=town.artifact(attempt), metric="m", exposure=exposure, invocation_id=invocation_id,
        result="{}", created_at=moment(),
    )  # fmt: skip


def publication(town: Town, attempt: Attempt, at: str = "") -> Executable:
    return insert("publication", artifact_id=town.artifact(attempt), at=at or moment(), actor_id=town.world.runner.id)


def audit(town: Town, ahead: int = 1, prev_hash: str = "") -> Executable:
    seq, head = fetch(town.world.database, "SELECT seq, hash FROM audit_head")[0]
    return insert(
        "audit", seq=int(str(seq)) + ahead, prev_hash=prev_hash or head, row_hash=DIGEST, at=moment(), actor="x",
        kind="forged", dataset=None, request_id=None, body="{}",
    )  # fmt: skip
