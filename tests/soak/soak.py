"""A soak: round after round of pollers to which something happens; now and then a look at whether all still holds."""

import json
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from models_db.sessions.database import Database
from tests.integration import kill_driver
from tests.integration.story import Almoner
from tests.soak import checks, poller, world
from tests.soak.accounts import Draw, Key
from tests.soak.faults import Backend, Fault, Round
from tests.soak.ledgers import Ledger, opened
from tests.soak.poller import Work
from tests.support import PATIENCE, fetch

MINUTE = timedelta(minutes=1)
"""Seconds after which a process that has not ended is one that never will."""
MOST_QUIET_LOOKS = 12
MID_RUN = Fault("kill", "a step is drawn", 5)
BY_HAND = ("AuthorisationExhausted", "TooManyAttempts", "WrongState", "BudgetExceeded")
"""Refusals that a person who tries a run again may meet."""


@dataclass
class Figures:
    """What a soak has done, and what it has found."""

    rounds: int = 0
    checks: int = 0
    processes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Child:
    """A poller, the pipe it tells through, and what it has told."""

    process: BaseProcess
    end: Connection
    fault: Fault | None
    kill_at: float | None
    told: list[tuple[str, Any]] = field(default_factory=list)
    open: bool = True

    def read(self) -> None:
        """Take in what there is."""
        try:
            while self.open and self.end.poll(0):
                self.told.append(self.end.recv())
        except (EOFError, OSError):
            self.open = False

    def alive(self) -> bool:
        """Whether it still runs; one whose time has come is killed."""
        if self.kill_at is not None and time.monotonic() >= self.kill_at and self.process.pid is not None:
            self.kill_at = None
            _signal(self.process.pid, signal.SIGKILL)
        return self.process.is_alive()


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


@dataclass
class Soak:
    """Where a soak is.

    Attributes:
        now: the clock of the schedules.
        skew: how far the clock of this machine is off.
        drawn: what pollers told before each draw.
        hands: decides whether a person tries again a run that was given up.
    """

    almoner: Almoner
    ledger: Ledger
    backend: Backend
    now: datetime
    hands: random.Random
    say: Callable[[str], None] = lambda _: None
    skew: timedelta = timedelta(0)
    figures: Figures = field(default_factory=Figures)
    drawn: dict[Key, list[Draw]] = field(default_factory=lambda: defaultdict(list))
    said: list[str] = field(default_factory=list)

    @property
    def database(self) -> Database:
        """The ledger, for whom nothing goes wrong."""
        return opened(self.ledger, self.almoner.home)

    # --- a round -----------------------------------------------------------------------------------------------

    def round(self, of: Round) -> None:
        """Let pollers look, and what is planned happen."""
        self.figures.rounds += 1
        self.figures.faults.update(fault.named for fault in of.faults)
        back, skew = self._clock(of.around)
        base, children = self.now - back, []
        for looks, fault in zip(of.looks, of.inside, strict=True):
            times = tuple(base + MINUTE * (at + 1) for at in range(looks))
            children.append(self._start(times, skew, fault))
        around = threading.Thread(target=self._around, args=(of.around,), daemon=True)
        around.start()
        self._await(children, str(of))
        around.join(PATIENCE)
        self.ledger.heal()
        self.now += MINUTE * max(of.looks)
        for child in children:
            self._take_in(child, of)
        self._set_right()

    def _clock(self, fault: Fault | None) -> tuple[timedelta, timedelta]:
        """How far the schedules' clock is set back in this round, and how far that of the machine is off.

        A clock that is set back finds a run that was killed just before.
        """
        if fault is None or fault.kind != "clock":
            return timedelta(0), self.skew
        hours = timedelta(hours=fault.amount)
        if fault.how == "back":
            self._look(self.skew, MID_RUN)
            return hours, self.skew - hours
        self.now += hours
        if fault.how == "forth":
            return timedelta(0), self.skew + hours
        self._look(self.skew + hours, MID_RUN)  # one that finds it early, and then all others find the old time
        return hours, self.skew

    def _set_right(self) -> None:
        """The clock of SQLite is the machine's: when it was wrong, it goes on where the ledger's newest link is."""
        if self.backend == "sqlite":
            ((newest,),) = fetch(self.database, "SELECT at FROM audit ORDER BY seq DESC LIMIT 1")
            self.skew = max(self.skew, datetime.fromisoformat(str(newest)) - datetime.now(UTC))

    def _look(self, skew: timedelta, fault: Fault | None = None) -> None:
        self.now += MINUTE
        child = self._start((self.now,), skew, fault)
        self._await([child], "a single look")
        self._take_in(child, None)

    def _around(self, fault: Fault | None) -> None:
        if fault is not None and fault.kind != "clock":
            try:
                self.ledger.suffer(fault)
            except BaseException as problem:
                self.figures.wrong.append(f"the soak itself: {type(problem).__name__}: {problem}")
                raise

    def _start(self, times: tuple[datetime, ...], skew: timedelta, fault: Fault | None) -> Child:
        environment = dict(os.environ)
        if self.ledger.exposed is not None:
            environment["ALMONER_DATABASE_URL"] = self.ledger.exposed
        work = Work(environment, times, skew, world.told(self.almoner), fault)
        context = get_context("forkserver")
        context.set_forkserver_preload([kill_driver.__name__, poller.__name__])
        end, its = context.Pipe(duplex=False)
        process = context.Process(target=poller.poll, args=(work, its))
        process.start()
        its.close()
        self.figures.processes += 1
        at_a_moment = fault is not None and fault.kind == "kill at a moment"
        return Child(process, end, fault, time.monotonic() + fault.delay if fault and at_a_moment else None)

    def _await(self, children: list[Child], what: str) -> None:
        begun, living = time.monotonic(), children
        while living := [child for child in living if child.alive()]:
            for child in living:
                child.read()
            if time.monotonic() - begun > PATIENCE:
                self.figures.wrong.append(f"a poller did not end in {PATIENCE:.0f} s: {what}")
                for child in children:
                    child.process.kill()
            time.sleep(0.01)
        for child in children:
            child.process.join()
            child.read()
            child.end.close()

    def _take_in(self, child: Child, of: Round | None) -> None:
        """What a poller has told, and whether it ended as it may."""
        for what, said in child.told:
            if what == "drawn":
                self.drawn[said["request"], said["first"]].extend(said["draws"])
                continue
            self.said.append(json.dumps(said))
            if what == "crash":
                self.figures.wrong.append(f"a poller crashed in round {of}: {said}")
            if what == "look":
                self._count(said)
        killed = child.process.exitcode == -signal.SIGKILL
        self.figures.ends["killed" if killed else f"exit {child.process.exitcode}"] += 1
        may_die = child.fault is not None and child.fault.kind.startswith("kill")
        if child.process.exitcode != 0 and not (killed and may_die):
            self.figures.wrong.append(f"a poller ended with {child.process.exitcode} in round {of}")

    def _count(self, look: dict[str, Any]) -> None:
        slots = look.get("slots", [])
        self.figures.outcomes.update("a slot became a request" for slot in slots if slot["request"])
        self.figures.outcomes.update(f"a slot was skipped: {slot['skipped']}" for slot in slots if slot["skipped"])
        for run in look.get("runs", []):
            reason = f": {run['reason']}" if run["reason"] else ""
            self.figures.outcomes[f"a run was {run['outcome']}{reason}"] += 1
        for problem in look.get("problems", []):
            self.figures.problems[problem["error"]] += 1

    # --- when all is quiet ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything come to an end, and look whether all holds."""
        self.ledger.heal()
        self._finish()
        with poller.clock(self.skew):
            self._by_hand()
            swept = self.almoner.ask("run sweep")
            found = checks.examine(self.almoner, self.database, self.drawn, "\n".join(self.said))
        self.figures.outcomes["sweeps of a dead run"] += len(swept["requests"])
        self.figures.outcomes["folders that a sweep removed"] += swept["folders_removed"]
        self.figures.checks += 1
        self.figures.wrong += found

    def _finish(self) -> None:
        """Look until nothing is to be run any more."""
        for _ in range(MOST_QUIET_LOOKS):
            self._look(self.skew)
            if not self._unfinished():
                return
        self.figures.wrong.append(f"requests {self._unfinished()} do not come to an end")

    def _unfinished(self) -> list[object]:
        query = """SELECT s.request_id FROM schedule_slot s WHERE s.request_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM slot_end e WHERE e.slot_id = s.id)
            AND NOT EXISTS (SELECT 1 FROM artifact a WHERE a.request_id = s.request_id)"""
        return [number for (number,) in fetch(self.database, query)]

    def _by_hand(self) -> None:
        """A person tries some of the runs that were given up again."""
        query = """SELECT s.request_id FROM schedule_slot s JOIN slot_end e ON e.slot_id = s.id
            WHERE NOT EXISTS (SELECT 1 FROM artifact a WHERE a.request_id = s.request_id) ORDER BY s.id"""
        for (number,) in fetch(self.database, query):
            if self.hands.random() < 1 / 2:
                done = self.almoner.type(f"run {number} --json", None)
                named = "produced" if done.code == 0 else str(done.json["error"])
                self.figures.outcomes[f"a run by hand: {named}"] += 1
                if done.code and named not in BY_HAND:
                    self.figures.wrong.append(f"`almoner run {number}` ended with {done.out}")

    @property
    def produced(self) -> int:
        """Releases that were made."""
        ((count,),) = fetch(self.database, "SELECT count(*) FROM artifact")
        return int(str(count))


def soak(it: Soak, rounds: Iterator[Round], releases: int, every: int, seconds: float = float("inf")) -> Figures:
    """Go on until so many releases are made, or the rounds or the time are over; look at all of it every so many."""
    looked, end = 0, time.monotonic() + seconds
    for each in rounds:
        it.round(each)
        made = it.produced
        it.say(f"round {each.number}: {made} releases; {', '.join(f.named for f in each.faults) or 'nothing wrong'}")
        if made - looked >= every:
            it.settle()
            looked = made
        if made >= releases or it.figures.wrong or time.monotonic() > end:
            break
    it.settle()
    return it.figures
