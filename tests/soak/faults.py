"""What goes wrong in a soak, and when: a plan drawn from a seed, so that a run can be told and tried again.

The plan is no mechanism and protects nobody, so a seeded generator is right here. What the operating system makes of
it, who is scheduled when, is not in the plan: the same seed gives the same faults, not the same run.
"""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

Backend = Literal["sqlite", "postgresql"]
Place = tuple[str, str, int]
"""A module, the name in it, and how often it is called at most in one process of a soak."""

PLACES: dict[str, Place] = {
    "a slot is decided": ("models_db.services.schedules", "record_slot", 4),
    "a slot has its request": ("flows.schedules.slots", "decide_slot", 4),
    "a run begins": ("models_db.services.attempts", "start_attempt", 4),
    "its plan is held": ("flows.releases.attempt", "RunningAttempt.hold", 4),
    "the ledger holds": ("models_db.services.budget", "hold", 4),
    "the ledger arms": ("models_db.services.budget", "arm", 16),
    "an instalment is armed": ("flows.releases.attempt", "RunningAttempt.arm", 16),
    "a journal begins": ("tasks.decoding.journal", "Journal.begin", 4),
    "a step is drawn": ("tasks.decoding.sampling_rule", "InvisibleInkRule.next_tokens", 48),
    "a step is written down": ("tasks.decoding.journal", "Journal.step", 48),
    "another attempt goes on": ("tasks.decoding.journal", "Journal.go_on", 1),
    "the draft is written": ("flows.releases.execute", "write_draft", 4),
    "the artifact is committed": ("models_db.services.artifacts", "record_artifact", 4),
    "the artifact is kept": ("flows.releases.execute", "commit_artifact", 4),
    "the journal is removed": ("tasks.decoding.journal", "Journal.discard", 8),
    "a run is given up": ("models_db.services.schedules", "end_slot", 1),
    "an attempt is closed": ("models_db.services.attempts", "fail_attempt", 2),
    "the home remembers": ("flows.workspace.rollback_guard", "save_head", 60),
}


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        kind: what; see `IN_A_PROCESS`, `AROUND` and `NETWORK`.
        place, number, before: at which call of which of `PROGRESS_FILE`; without a place after `delay`.
        delay: seconds after the process began.
        lasts: seconds until it is over.
        amount: bytes that a file may have when the disk is full; calls that fail; hours that a clock jumps.
        how: the variant: how a server is stopped, or what a network does.
    """

    kind: str
    place: str = ""
    number: int = 1
    before: bool = False
    delay: float = 0.0
    lasts: float = 0.0
    amount: int = 0
    how: str = ""

    @property
    def named(self) -> str:
        """Its kind and variant, as figures tell them."""
        return f"{self.kind}: {self.how}" if self.how else self.kind

    def to_json(self) -> dict[str, Any]:
        """What there is to say of it."""
        return {name: value for name, value in asdict(self).items() if value not in ("", 0, 0.0)}


@dataclass(frozen=True)
class Round:
    """One or two pollers that look several times each; what goes wrong in each of them, and around all of them."""

    number: int
    looks: tuple[int, ...]
    inside: tuple[Fault | None, ...]
    around: Fault | None

    @property
    def faults(self) -> list[Fault]:
        """All that goes wrong in it."""
        return [fault for fault in (*self.inside, self.around) if fault is not None]


def plan(seed: int, backend: Backend) -> Iterator[Round]:
    """Rounds without end. Seven of eight have a fault, and one of three has two pollers."""
    chance, number = random.Random(seed), 0
    while True:
        number += 1
        count = 2 if chance.random() < 1 / 3 else 1
        faulty = chance.random() < 7 / 8
        within = faulty and chance.random() < 1 / 2
        inside = [_inside(chance) if within and (chance.random() < 2 / 3 or at == 0) else None for at in range(count)]
        around = _around(chance, backend) if faulty and not within else None
        yield Round(number, tuple(chance.randint(1, 2) for _ in range(count)), tuple(inside), around)


def every_kind(backend: Backend) -> Iterator[Round]:
    """Each kind of fault a few times, at fixed places: the short soak of the tests."""
    inside = [
        Fault("kill", "a step is drawn", 6),
        Fault("disk full", "a step is written down", 9, before=True, lasts=0.5, amount=200),
        Fault("kill", "the artifact is committed", 1),
        Fault("disk errors", "the draft is written", 1, before=True, amount=3),
        Fault("kill", "a slot is decided", 2),
        Fault("interrupt", "the ledger arms", 3),
        Fault("clock jumps", "an instalment is armed", 2, amount=-1),
        Fault("clock jumps", "a step is drawn", 5, amount=2),
    ]
    around = [Fault("clock", how="forth", amount=3), Fault("clock", how="back", amount=2)]
    around += [Fault("clock", how="forth and back", amount=1)]
    around += [Fault("locked", delay=0.2, lasts=1.0)] if backend == "sqlite" else _each_of_postgresql()
    number = 0
    for fault in inside:
        number += 1
        yield Round(number, (1,), (fault,), None)
    for fault in around:
        number += 1
        yield Round(number, (1, 1), (None, None), fault)


def _each_of_postgresql() -> list[Fault]:
    restarts = [Fault("restart", how=how, delay=0.3) for how in RESTARTS]
    return restarts + [Fault("network", how=how, delay=0.3, lasts=0.5, number=2) for how in NETWORK]


RESTARTS = ("fast", "immediate")
NETWORK = ("cut", "stalls", "stalls and is cut", "answers are lost", "refused", "commit unheard", "commit lost")
IN_A_PROCESS = ("kill", "kill at a moment", "interrupt", "disk full", "disk errors", "clock jumps")
AROUND: dict[Backend, tuple[str, ...]] = {
    "sqlite": ("locked", "clock"),
    "postgresql": ("restart", "network", "network", "clock"),
}
CLOCKS = ("forth", "back", "forth and back")


def _inside(chance: random.Random) -> Fault:
    kind = chance.choice(IN_A_PROCESS)
    if kind == "kill at a moment":
        return Fault(kind, delay=round(chance.uniform(0.05, 4), 3))
    place = chance.choice(list(PLACES))
    number, before = chance.randint(1, PLACES[place][2]), chance.random() < 1 / 2
    if kind == "disk full":
        return Fault(kind, place, number, before, lasts=round(chance.uniform(0.05, 3), 3), amount=_room(chance))
    amounts = {"disk errors": chance.randint(1, 8), "clock jumps": chance.choice((-3, -1, 1, 2))}
    return Fault(kind, place, number, before, amount=amounts.get(kind, 0))


def _room(chance: random.Random) -> int:
    """Bytes up to which files can be written: from nothing to more than a journal has, less than a ledger."""
    return chance.choice((0, 1, 100, 300, 700, 1500, 4096, 20_000, 200_000))


def _around(chance: random.Random, backend: Backend) -> Fault:
    kind = chance.choice(AROUND[backend])
    delay, lasts = round(chance.uniform(0, 2.5), 3), round(chance.uniform(0.05, 1.5), 3)
    match kind:
        case "clock":
            return Fault(kind, how=chance.choice(CLOCKS), amount=chance.randint(1, 5))
        case "restart":
            return Fault(kind, how=chance.choice(RESTARTS), delay=delay)
        case "network":
            return Fault(kind, how=chance.choice(NETWORK), delay=delay, lasts=lasts, number=chance.randint(1, 12))
    return Fault(kind, delay=delay, lasts=lasts)
