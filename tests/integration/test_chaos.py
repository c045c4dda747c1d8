"""Runs with several worker processes, of which any is killed at any moment: workers, the run.

Whatever the moments are, every draw that a worker made was paid before, none was made twice, and in the end each
release is there once, at the price that the ledger says. A request is known to the witnesses by its `top_k`.
"""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from models_db.services import attempts, budget, datasets
from models_db.services import requests as releases
from models_db.values.amounts import Amount
from tests.integration import nursery
from tests.integration.nursery import Nursery
from tests.integration.story import REQUEST, Almoner
from tests.support import fetch

INSTALMENT, FIRST_K, MOST_KILLS_EACH = 4, 50, 12
DRAWS = "SELECT COUNT(DISTINCT h.instalment) FROM entry e JOIN hold h ON h.id = e.hold_id JOIN invocation i"
DRAWS += " ON i.id = h.invocation_id WHERE e.kind = 'ARM' AND h.rho > 0 AND i.sequence = 1 AND i.request_id = :number"
SPENT = "SELECT a.id, a.rho_spent, COALESCE(SUM(h.rho), 0) FROM account a LEFT JOIN hold h ON h.account_id = a.id"
SPENT += " AND EXISTS (SELECT 1 FROM entry e WHERE e.hold_id = h.id AND e.kind = 'ARM') GROUP BY a.id, a.rho_spent"


@dataclass
class Chaos:
    """A home, and somebody who kills."""

    almoner: Almoner
    nursery: Nursery
    chance: random.Random
    requests: int = 0
    kills: int = 0
    victims: list[str] = field(default_factory=list)
    """What is killed first, the last of them before the others; then chance decides."""
    typical: float = 1.0
    """Seconds that a run takes that nobody disturbs."""

    @property
    def witness(self) -> Path:
        return self.almoner.folder / "witness"

    def worker_of(self, run: int) -> int | None:
        """One of the processes that draw for a run; None if it has none, before they start or after they ended."""
        try:
            family = psutil.Process(run).children()
            workers = [each.pid for each in family if any("spawn_main" in word for word in each.cmdline())]
        except psutil.Error:
            return None
        return self.chance.choice(workers) if workers else None

    def ask(self) -> int:
        """A new request that may run; its number."""
        self.requests += 1
        parameters = REQUEST["parameters"] | {"top_k": FIRST_K + self.requests, "instalment": INSTALMENT}
        file = self.almoner.request_file(epsilon=0.5, parameters=parameters, evaluation=["length"])
        self.almoner.type(f"release request {file}")
        self.almoner.type(f'approve {self.requests} --gate spend --reason "chaos"')
        return self.requests

    def begin(self, number: int) -> int:
        arguments = (dict(os.environ), f"run {number} --workers 2", self.almoner.folder / "said", self.witness)
        return self.nursery.start(nursery.command, *arguments)

    def produced(self, number: int) -> bool:
        with self.almoner.database.read() as session:
            return releases.state_of(session, number) == "produced"

    def disturb(self, number: int) -> None:
        """One kill, somewhere in a run; then what is left of it comes to its end."""
        run = self.begin(number)
        time.sleep(self.chance.uniform(0, self.typical))
        kind = self.victims.pop() if self.victims else self.chance.choice(["run", "worker"])
        victim = run if kind == "run" else self.worker_of(run)
        if victim is None:  # it has no workers yet, or none any more
            self.victims.append(kind)
        else:
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            self.kills += 1
        self.end(run)
        self.require_paid(number)

    def finish(self, number: int) -> None:
        """Nobody disturbs it, and it is produced."""
        began = time.monotonic()
        self.end(self.begin(number))
        assert self.produced(number), self.said()
        self.typical = time.monotonic() - began

    def end(self, run: int) -> int:
        try:
            return self.nursery.wait(run)
        except AssertionError:
            raise AssertionError(self.said()) from None

    def said(self) -> str:
        """The end of what all runs said; of one that hangs, where."""
        return (self.almoner.folder / "said").read_text()[-6000:]

    def drawn(self) -> dict[int, dict[int, list[int]]]:
        """By request and text the numbers of its draws, as its workers saw them."""
        found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        lines = self.witness.read_text().splitlines() if self.witness.exists() else []
        for top_k, *draws in (line.split(" ") for line in lines):
            for number, draw in (each.split(":") for each in draws):
                found[int(top_k) - FIRST_K][int(number)].append(int(draw))
        return found

    def require_paid(self, number: int) -> None:
        """No draw twice, and none that was not paid."""
        paid = int(str(fetch(self.almoner.database, DRAWS, number=number)[0][0])) * INSTALMENT
        for draws in self.drawn()[number].values():
            assert len(draws) == len(set(draws))
            assert max(draws) < paid


@pytest.fixture
def chaos(almoner: Almoner) -> Iterator[Chaos]:
    almoner.ingested()
    text = almoner.home.policy.read_text().replace("attempts: 5", "attempts: 100")
    assert "attempts: 100" in text
    almoner.type(f"policy adopt {almoner.write('patient.yaml', text)}")
    with Nursery() as made:
        yield Chaos(almoner, made, random.Random())


def carry_out(chaos: Chaos, kills: int) -> None:
    """Releases are asked for until there were so many kills; all of them are finished."""
    chaos.finish(chaos.ask())
    while chaos.kills < kills:
        number, before = chaos.ask(), chaos.kills
        while chaos.kills < kills and chaos.kills - before < MOST_KILLS_EACH and not chaos.produced(number):
            chaos.disturb(number)
        if not chaos.produced(number):
            chaos.finish(number)


def require_all_right(chaos: Chaos) -> None:
    almoner, numbers = chaos.almoner, range(1, chaos.requests + 1)
    almoner.type("run sweep")
    for number in numbers:
        assert chaos.produced(number)
        chaos.require_paid(number)
    assert set(chaos.drawn()) == set(numbers)  # the witnesses have seen something of each
    made = fetch(almoner.database, "SELECT request_id, COUNT(*) FROM artifact GROUP BY request_id")
    assert sorted(made) == [(number, 1) for number in numbers]
    accounts = fetch(almoner.database, SPENT)
    assert all(spent == armed for _, spent, armed in accounts)
    assert any(spent for _, spent, _ in accounts)
    with almoner.database.read() as session:
        balance = budget.balance(session, datasets.find_dataset(session, "clinic").account_id)
        assert attempts.running_leases(session) == []
    assert balance.held == Amount()
    assert sorted(int(path.name.split("-")[0]) for path in almoner.home.quarantine.iterdir()) == list(numbers)
    assert list(almoner.home.scratch.iterdir()) == []
    assert almoner.ask("audit verify")["holds"] is True
    assert almoner.ask("doctor")["ok"] is True


CONCERNS = ("flows/releases", "flows/schedules", "models_db/services", "tasks/decoding")


@pytest.mark.slow
def test_one_kill_of_each(chaos: Chaos) -> None:
    chaos.victims += chaos.chance.sample(["run", "worker"], 2)
    carry_out(chaos, 2)
    require_all_right(chaos)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_a_hundred_kills(chaos: Chaos) -> None:
    carry_out(chaos, 100)
    require_all_right(chaos)
    assert chaos.kills == 100
