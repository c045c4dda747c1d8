"""A model of many workers that draw on few ledgers: discrete events, nothing measured, deterministic by its seed.

A worker is one accelerator. It takes a run when its poller looks, holds the plan, loads the model, and then goes
through rounds of texts in instalments: it arms `instalment` draws, waits until the ledger has answered, and draws them,
one draw of all its texts at once in `step_s`. A ledger is one queue, first come first served: every write of it locks
the head of its chain, so no two of them pass at once. When a worker dies, what it had armed last is forfeited; it comes
back after `repair_s` and takes the next run, and the run it had goes on later from the instalment after the lost one.

Sources of the checks in `tests/unit/benchmarks/test_capacity.py`: L. Kleinrock, Queueing Systems I (1975), section 3.2
(M/M/1), 5.6 (Pollaczek and Khinchine) and 3.8 (finite sources, M/M/1//N).
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

Service: TypeAlias = Callable[[Random], float]
"""Draws how many seconds one write takes when nobody else is there."""


def fixed(seconds: float) -> Service:
    """Always the same."""
    return lambda _: seconds


def exponential(mean: float) -> Service:
    """Of that mean, and without memory."""
    return lambda chance: chance.expovariate(1 / mean)


def measured(seconds: Sequence[float]) -> Service:
    """One of these, each as likely as any other."""
    return lambda chance: chance.choice(seconds)


@dataclass(frozen=True)
class Writes:
    """What the writes of a run take: to start and hold, to arm one instalment, to settle."""

    hold: Service
    arm: Service
    settle: Service


@dataclass(frozen=True)
class Fleet:
    """The workers, and what they do.

    Attributes:
        workers: accelerators.
        step_s: seconds of one draw of all texts that a worker advances at once.
        instalment: draws that one arm permits.
        draws: public limit of a text, so the draws of a round.
        rounds: rounds of texts in a run.
        load_s: seconds until a worker that has taken a run begins to draw.
        poll_s: seconds between two looks for a run; each worker has its own phase.
        mtbf_s: mean seconds between two failures of a worker; infinite for none.
        repair_s: seconds until it is there again.
        jitter: by which share of itself the time of an instalment differs at most. Workers whose times are all the
            same fall into a step in which nobody ever waits, which no real ones do.
    """

    workers: int
    step_s: float
    instalment: int
    draws: int = 512
    rounds: int = 40
    load_s: float = 30.0
    poll_s: float = 5.0
    mtbf_s: float = math.inf
    repair_s: float = 600.0
    jitter: float = 0.0

    @property
    def instalments(self) -> list[int]:
        """The draws of each instalment of a round."""
        whole, rest = divmod(self.draws, self.instalment)
        return [self.instalment] * whole + [rest] * bool(rest)


@dataclass
class Queue:
    """A ledger: when it is free, how long it was at work, and how long arms waited for their answer to begin."""

    free: float = 0.0
    working: float = 0.0
    waits: list[float] = field(default_factory=list)

    def serve(self, at: float, seconds: float) -> float:
        """When a write that arrives at `at` is answered; writes must arrive in the order of time."""
        begun = max(at, self.free)
        self.free = begun + seconds
        self.working += seconds
        return self.free


@dataclass(frozen=True)
class Outcome:
    """What became of it, after the first quarter, in which it warms up.

    Attributes:
        drawing: share of the workers' time in which they drew tokens that were kept.
        waiting: share in which they waited for a ledger.
        arms: instalments a second.
        wait_p50, wait_p99: seconds for which an arm waited in the queue, its own service not included.
        load: share of time in which the ledgers worked: the busiest one.
        forfeited: share of armed instalments that were lost with their worker.
    """

    drawing: float
    waiting: float
    arms: float
    wait_p50: float
    wait_p99: float
    load: float
    forfeited: float


@dataclass
class _Worker:
    """Where a worker is in its run."""

    ledger: int = 0
    left: list[int] = field(default_factory=list)
    fails: float = math.inf
    phase: float = 0.0
    runs: int = 0


class Simulation:
    """One fleet on some ledgers; `run` once."""

    def __init__(self, fleet: Fleet, writes: Writes, ledgers: int, seed: int) -> None:
        self.fleet, self.writes, self.chance = fleet, writes, Random(seed)
        self.queues = [Queue() for _ in range(ledgers)]
        self.workers = [_Worker(phase=self.chance.uniform(0, fleet.poll_s)) for _ in range(fleet.workers)]
        self.events: list[tuple[float, int, str]] = []
        self.drawn = self.waited = self.since = 0.0
        self.armed = self.lost = 0

    def run(self, seconds: float) -> Outcome:
        """What happens in so many seconds. All workers look for a run at the beginning, each in its phase.

        A quarter of the time should be longer than it takes until all of them draw.
        """
        for number, worker in enumerate(self.workers):
            worker.fails = self._failure(0.0)
            self._schedule(worker.phase, number, "hold")
        steps = {"hold": self._hold, "arm": self._arm, "settle": self._settle}
        while self.events:
            now, number, what = heapq.heappop(self.events)
            if now >= seconds:
                break
            if not self.since and now >= seconds / 4:
                self._forget(now)
            steps[what](now, number)
        for queue in self.queues:
            queue.working -= max(0.0, queue.free - seconds)
        return self._outcome(seconds - self.since)

    def _schedule(self, time: float, number: int, what: str) -> None:
        heapq.heappush(self.events, (time, number, what))

    def _failure(self, now: float) -> float:
        return now + self.chance.expovariate(1 / self.fleet.mtbf_s) if math.isfinite(self.fleet.mtbf_s) else math.inf

    def _polled(self, worker: _Worker, now: float) -> float:
        """When this worker's poller looks next."""
        period = self.fleet.poll_s
        return worker.phase + math.ceil((now - worker.phase) / period) * period if period else now

    def _hold(self, now: float, number: int) -> None:
        worker = self.workers[number]
        worker.ledger = self.chance.randrange(len(self.queues))  # where the run's dataset is
        worker.left = self.fleet.instalments * self.fleet.rounds
        if not worker.runs:  # somewhere in its first run, so that not all of them end at once
            del worker.left[: self.chance.randrange(len(worker.left))]
        worker.runs += 1
        answered = self.queues[worker.ledger].serve(now, self.writes.hold(self.chance))
        self._schedule(answered + self.fleet.load_s, number, "arm")

    def _arm(self, now: float, number: int) -> None:
        worker = self.workers[number]
        queue, service = self.queues[worker.ledger], self.writes.arm(self.chance)
        queue.waits.append(max(0.0, queue.free - now))
        answered = queue.serve(now, service)
        self.waited += answered - now
        self.armed += 1
        draws = worker.left.pop() * self.fleet.step_s * (1 + self.chance.uniform(-1, 1) * self.fleet.jitter)
        if answered + draws > worker.fails:
            self._fail(max(answered, worker.fails), number)
            return
        self.drawn += draws
        self._schedule(answered + draws, number, "arm" if worker.left else "settle")

    def _fail(self, now: float, number: int) -> None:
        worker = self.workers[number]
        self.lost += 1
        back = now + self.fleet.repair_s
        worker.fails = self._failure(back)
        self._schedule(self._polled(worker, back), number, "hold")

    def _settle(self, now: float, number: int) -> None:
        worker = self.workers[number]
        answered = self.queues[worker.ledger].serve(now, self.writes.settle(self.chance))
        self._schedule(self._polled(worker, answered), number, "hold")

    def _forget(self, now: float) -> None:
        self.since, self.drawn, self.waited, self.armed, self.lost = now, 0.0, 0.0, 0, 0
        for queue in self.queues:
            queue.working = max(0.0, queue.free - now)
            queue.waits.clear()

    def _outcome(self, seconds: float) -> Outcome:
        waits = sorted(wait for queue in self.queues for wait in queue.waits)
        whole = seconds * self.fleet.workers
        return Outcome(
            drawing=self.drawn / whole,
            waiting=self.waited / whole,
            arms=self.armed / seconds,
            wait_p50=quantile(waits, 0.5),
            wait_p99=quantile(waits, 0.99),
            load=max(queue.working for queue in self.queues) / seconds,
            forfeited=self.lost / self.armed if self.armed else 0.0,
        )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that so large a share does not pass; 0 of nothing."""
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def mean_wait(arrivals: Iterable[float], service: Service, chance: Random) -> float:
    """Mean seconds in one queue of writes that arrive at these times; their own service not included."""
    queue, total, count = Queue(), 0.0, 0
    for at in arrivals:
        total += max(0.0, queue.free - at)
        count += 1
        queue.serve(at, service(chance))
    return total / count


def finite_source(workers: int, think_s: float, service_s: float) -> float:
    """Writes a second of one ledger with exponential service, when each of some workers thinks between two of them.

    M/M/1//N: with a = service/think, P(idle) = 1 / sum over n of N!/(N-n)! a^n, whatever the distribution of thinking.
    """
    terms = [1.0]
    for number in range(workers):
        terms.append(terms[-1] * (workers - number) * service_s / think_s)
    return (1 - 1 / sum(terms)) / service_s
