"""What a large ledger costs: many datasets with many blocks each, against one dataset with as many blocks.

    python -m benchmarks.ledger.size                                            # 100 datasets of 100 blocks
    python -m benchmarks.ledger.size --datasets 10000 --blocks 1000 --rounds 5  # ten million accounts, some 10 GB

Both ledgers are filled by the services that the commands use, every guard on. The operations take turns in one process,
so the ratio of their medians holds on a noisy machine: for what concerns one dataset it should be 1, however many
others there are. `doctor`, `audit verify` and `dataset list` look at everything: they are given once, by the account.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median

import yaml
from sqlalchemy.orm import Session

from benchmarks.ledger.writes import PLAN, PROVENANCE, backends, planned
from flows.dashboard.dataset_pages import dataset_page, overview_page
from flows.dashboard.viewer import View
from flows.datasets import budget as budget_view
from flows.datasets.inventory import list_datasets
from flows.workspace.policy_file import DEFAULT_POLICY
from migrations.upgrade import upgrade
from models_db.database.base import utc_now
from models_db.policies.policy import Policy
from models_db.services import attempts, budget, datasets, gates, people, policies, requests
from models_db.services.audit import verify_chain
from models_db.services.audit.chain import Actor
from models_db.services.budget import Attempt
from models_db.services.datasets import Registration
from models_db.services.queries import health
from models_db.sessions.database import Database
from models_db.tables import PolicyVersion
from models_db.values.requests import parse_model
from tasks.accounting.lifetime_claims import lifetime_claim
from tasks.accounting.renyi_account import terms_of

FIRST = parse_model(Policy, yaml.safe_load(DEFAULT_POLICY), "policy", "docs/policy.md")
POLICY_TERMS = terms_of(FIRST)
CLAIM = lifetime_claim("1000", "0.9")
TOGETHER = 50  # datasets registered in one transaction while filling
TOMORROW = utc_now(datetime.now(UTC) + timedelta(days=1))
BUSY = "d000000"  # the dataset that releases are made of


@dataclass
class Ledger:
    """A filled ledger, and the approved and running requests on its first dataset."""

    database: Database
    actor: Actor
    policy: PolicyVersion
    blocks: int
    datasets: int = 0
    whole: list[Attempt] = field(default_factory=list)
    one: list[Attempt] = field(default_factory=list)

    def look(self, act: Callable[[View], object]) -> None:
        with self.database.read() as session:
            act(View(session, self.actor, frozenset({"steward"}), FIRST, ""))

    def register(self, name: str | None = None) -> None:
        with self.database.write() as session:
            self.registered(session, name or f"extra{time.monotonic_ns()}")

    def registered(self, session: Session, name: str) -> None:
        account = datasets.open_account(session, CLAIM, self.blocks, "0" * 16, "0" * 64)
        datasets.register(session, self.actor, Registration(name, "u", "t", True, None, None), account.id)
        self.datasets += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--blocks", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--backends", nargs="+", default=["sqlite"], choices=["sqlite", "postgresql"])
    given = parser.parse_args()
    with backends() as makers:
        for backend in given.backends:
            single, many = (
                filled(makers[backend](f"ledger_{number}"), number, given.blocks, given.rounds)
                for number in (1, given.datasets)
            )
            print(f"{backend}, medians of {given.rounds} rounds in ms, load included")
            print(f"{'':30}{'1 dataset':>12}{f'{given.datasets:,}':>12}{'ratio':>8}")
            for name, (alone, among) in in_turns(single, many, given.rounds).items():
                first, second = 1e3 * median(alone), 1e3 * median(among)
                print(f"{name:30}{first:12.2f}{second:12.2f}{second / first:8.2f}", flush=True)
            for name, act in CONCERNING_ALL.items():
                took = timed(lambda: act(many))  # noqa: B023
                accounts = many.datasets * (many.blocks + 1)
                print(f"{name:30}{took:12.1f} s{1e6 * took / accounts:12.2f} us an account", flush=True)
            for each in (single, many):
                each.database.dispose()


def in_turns(single: Ledger, many: Ledger, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of every operation on either ledger, round by round; the first round warms up."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for number in range(rounds + 1):
        for name, act in concerning_one(single.blocks):
            for on, own in zip((single, many), found.setdefault(name, ([], [])), strict=True):
                took = timed(lambda: act(on))  # noqa: B023
                if number:
                    own.append(took)
    return found


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def filled(database: Database, count: int, blocks: int, rounds: int) -> Ledger:
    upgrade(database)
    with database.write() as session:
        actor = people.found_ledger(session, "bench", "key", "0" * 64)
        made = Ledger(database, actor, policies.adopt(session, actor, POLICY_TERMS), blocks)
    started = time.perf_counter()
    while made.datasets < count:
        with database.write() as session:
            for number in range(made.datasets, min(count, made.datasets + TOGETHER)):
                made.registered(session, f"d{number:06}")
    print(f"filled with {count:,} datasets in {time.perf_counter() - started:.1f} s", flush=True)
    with database.write() as session:
        dataset = datasets.find_dataset(session, BUSY)
        marks = {"source_mark": "0" * 64, "manifest_mark": "0" * 64}
        version = datasets.add_version(session, actor, dataset, uid="0" * 32, **marks, units=[(b"u" * 32, 1)])
        for number in range(2 * rounds + 2):
            body = {"kind": "k", "mechanism": "m", "epsilon": "1", "number": number, "plan": planned(blocks)}
            request = requests.submit(session, actor, dataset, version, made.policy, body, timedelta(days=1))
            decision = gates.GateDecision(request.id, "spend", request.digest, "approve", "benchmark", TOMORROW)
            gates.record_decision(session, actor, decision, "signature")
            attempts.start_attempt(session, actor, request.id, "token", "here")
            read = tuple(range(blocks)) if number % 2 else (blocks // 2,)
            (made.whole if number % 2 else made.one).append(budget.load_attempt(session, request.id, 1, read))
    return made


def concerning_one(blocks: int) -> Iterator[tuple[str, Callable[[Ledger], object]]]:
    yield f"register, {blocks:,} blocks", lambda on: on.register()
    for name, take in ((f"{blocks:,} blocks", lambda on: on.whole), ("1 block of them", lambda on: on.one)):
        yield f"hold, {name}", lambda on, take=take: hold(on, take(on)[-1])
        yield f"arm, {name}", lambda on, take=take: arm(on, take(on)[-1])
        yield f"commit, {name}", lambda on, take=take: settle(on, take(on).pop())
    yield (
        "budget show",
        lambda on: on.look(
            lambda look: budget_view.budget_of_dataset(look.session, datasets.find_dataset(look.session, BUSY))
        ),
    )
    yield "dashboard, overview", lambda on: on.look(overview_page)
    yield "dashboard, a dataset", lambda on: on.look(lambda look: dataset_page(look, BUSY))
    yield "a name that is not there", lambda on: on.look(lost)


def lost(look: View) -> None:
    try:
        datasets.find_dataset(look.session, "nobody")
    except datasets.DatasetUnknown:
        return


def sound(look: View) -> None:
    if not verify_chain.verify_chain(look.session).sound:
        raise SystemExit("the chain is broken")


def whole(look: View) -> None:
    if wrong := [finding.detail for finding in health.check_health(look.session) if not finding.ok]:
        raise SystemExit(f"the ledger lost count: {wrong}")


def hold(on: Ledger, attempt: Attempt) -> None:
    with on.database.write() as session:
        budget.hold(session, on.actor, attempt, PLAN, PROVENANCE)


def arm(on: Ledger, attempt: Attempt) -> None:
    with on.database.write() as session:
        budget.arm(session, on.actor, attempt, 0, 0)


def settle(on: Ledger, attempt: Attempt) -> None:
    with on.database.write() as session:
        budget.settle(session, on.actor, attempt, "COMMIT")


def listed(look: View) -> None:
    for _ in list_datasets(look.session):
        pass


CONCERNING_ALL: dict[str, Callable[[Ledger], object]] = {
    "dataset list": lambda on: on.look(listed),
    "audit verify": lambda on: on.look(sound),
    "doctor": lambda on: on.look(whole),
}


if __name__ == "__main__":
    main()
