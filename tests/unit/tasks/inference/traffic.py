"""Generations that come and go on a public timetable, and what the engine says about each of their rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tasks.inference.engine.engine import Engine
from tasks.inference.engine.shapes import Sizes
from tests.unit.tasks.inference.rows_at_work import PRIVATE, PUBLIC, text

MOST, NEW = 14, 24
LIFETIMES = (3, 20, 5, 12, 2, 17, 9, 14, 9)
"""Tokens of each generation. With three places the clock of the private rows wraps round before all are done."""

Rows = list[dict[str, list[int]]]


def crowd() -> Rows:
    """Nine generations of two to four rows; the one that changes is in the second, which stays long."""
    sizes = (2, 3, 4, 2, 3, 2, 4, 3, 2)
    return [
        {f"{number}-{row}": text(3 + (7 * number + 5 * row) % (MOST - 2), 10 * number + row) for row in range(size)}
        for number, size in enumerate(sizes)
    ]


@dataclass
class Diary:
    """What happened.

    Attributes:
        rows: name -> float32 [K] at each of its steps.
        public: generation -> float32 [V] at each of its steps.
        times: which generations were live, where the clock stood and what was seen, at each step.
    """

    rows: dict[str, list[Tensor]] = field(default_factory=dict)
    public: dict[int, list[Tensor]] = field(default_factory=dict)
    times: list[tuple[object, ...]] = field(default_factory=list)


def drive(
    engine: Engine,
    rows: Rows,
    *,
    lifetimes: Sequence[int] = LIFETIMES,
    places: int = 3,
    chosen: bool = True,
    first: int = 0,
) -> Diary:
    """Whoever waits enters when a place is free; tokens are a function of the generation's number and position."""
    session = engine.session(Sizes.of([PUBLIC], [PRIVATE], MOST, NEW, 3), places)
    waiting, diary = list(range(first, first + len(rows))), Diary()
    while waiting or session.numbers:
        while waiting and len(session.numbers) < places:
            number = waiting.pop(0)
            session.enter(number, PUBLIC, PRIVATE, list(rows[number - first].values()))
        _note(session.numbers, session.public_logits(), diary.public)
        candidates = torch.arange(20).repeat(len(session.numbers), 1) * 7 % 300 if chosen else None
        logits = session.private_logits(candidates)
        names = [name for number in session.numbers for name in rows[number - first]]
        for name, values, valid in zip(names, logits.values, logits.valid, strict=True):
            if valid:
                diary.rows.setdefault(name, []).append(values)
        clock = session._private.clock
        diary.times.append((session.numbers, clock.now, clock.visible_columns, clock.columns))
        drawn = {number: len(session.drawn(number)) + 1 for number in session.numbers}
        for number, done in drawn.items():
            if done == lifetimes[number - first]:
                session.leave(number)
        session.advance([8 + (31 * number + 7 * drawn[number]) % 280 for number in session.numbers])
    return diary


def _note(numbers: Sequence[int], logits: Tensor, into: dict[int, list[Tensor]]) -> None:
    for number, row in zip(numbers, logits, strict=True):
        into.setdefault(number, []).append(row)


def differing(before: Mapping[str, list[Tensor]], after: Mapping[str, list[Tensor]]) -> set[str]:
    """Names whose bits are not the same on both sides."""
    return {
        name
        for name in before.keys() | after.keys()
        if name not in before
        or name not in after
        or not torch.equal(torch.stack(before[name]), torch.stack(after[name]))
    }
