"""Generations enter and leave between steps; rows keep every bit, and the timetable keeps its times."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.inference.engine.engine import Engine
from tasks.inference.engine.rows import Clock
from tasks.inference.engine.shapes import Sizes
from tests.unit.tasks.inference.fixtures import Twins
from tests.unit.tasks.inference.rows_at_work import PRIVATE, PUBLIC, text
from tests.unit.tasks.inference.traffic import LIFETIMES, MOST, Diary, Rows, crowd, differing, drive

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/inference/engine",)

CHANGED = "1-1"


def _set(new: list[int]) -> Callable[[Rows], Rows]:
    return lambda old: [batch | ({CHANGED: new} if CHANGED in batch else {}) for batch in old]


def _remove(old: Rows) -> Rows:
    return [{name: row for name, row in batch.items() if name != CHANGED} for batch in old]


CHANGES: dict[str, Callable[[Rows], Rows]] = {
    "replace": _set(text(len(crowd()[1][CHANGED]), 99)),
    "lengthen": _set(text(MOST, 11)),
    "lengthen beyond the limit": _set(text(3 * MOST, 11)),
    "shorten": _set(text(1, 11)),
    "empty": _set([]),
    "not a text": _set([999_999]),
    "remove": _remove,
    "remove a whole batch": lambda old: [batch if CHANGED not in batch else {} for batch in old],
    "permute": lambda old: [dict(reversed(batch.items())) for batch in old],
    "more rows than nominal": lambda old: [
        batch | ({f"new {n}": text(2 + n, 90 + n) for n in range(9)} if CHANGED in batch else {}) for batch in old
    ],
}


Undisturbed = Callable[[int | None, bool], tuple[Engine, Diary]]


@pytest.fixture(scope="module")
def undisturbed(tiny: Twins) -> Undisturbed:
    """An engine with so many rows a chunk, and what the crowd is in it before anything changes; run once each."""

    @cache
    def run(chunk_rows: int | None, chosen: bool) -> tuple[Engine, Diary]:
        engine = Engine(tiny.model, chunk_rows)
        return engine, drive(engine, crowd(), chosen=chosen)

    return run


@pytest.mark.slow_except(
    "4-True-replace", "4-True-permute", "4-True-lengthen", "4-False-more rows than nominal", "None-True-empty"
)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("chunk_rows", "chosen"), [(None, True), (4, True), (4, False)])
def test_with_staggered_entries_and_a_wrapped_clock_other_rows_keep_every_bit(
    undisturbed: Undisturbed, change: str, chunk_rows: int | None, chosen: bool
) -> None:
    engine, before = undisturbed(chunk_rows, chosen)
    after = drive(engine, CHANGES[change](crowd()), chosen=chosen)
    felt = {name for name in differing(before.rows, after.rows) if not name.startswith("new")}
    if change == "remove a whole batch":
        assert felt == set(crowd()[1])
    elif change == "permute" or change == "more rows than nominal":
        assert not felt
    else:
        assert felt == {CHANGED}
    assert after.times == before.times
    assert all(torch.equal(torch.stack(before.public[n]), torch.stack(after.public[n])) for n in before.public)


def test_the_timetable_of_these_tests_wraps_the_clock_and_staggers_entries(tiny: Twins) -> None:
    times = drive(Engine(tiny.model), crowd()).times
    columns = times[0][3]
    assert any(now > columns for _, now, _, _ in times)  # type: ignore[operator]
    assert {seen for _, _, seen, _ in times} > {columns}
    assert len({numbers for numbers, *_ in times}) > 6


@pytest.mark.slow
@settings(max_examples=8)
@given(
    lifetimes=st.lists(st.integers(1, 20), min_size=9, max_size=9),
    places=st.integers(1, 5),
    where=st.integers(0, 8),
    what=st.sampled_from(["remove", "replace"]),
)
def test_no_row_decides_when_others_enter_or_what_they_are(
    tiny: Twins, lifetimes: list[int], places: int, where: int, what: str
) -> None:
    """Removing or changing a row changes neither the entry steps nor any other row's bits."""
    rows = crowd()
    victim = next(iter(rows[where]))
    changed = [dict(batch) for batch in rows]
    if what == "remove":
        del changed[where][victim]
    else:
        changed[where][victim] = text(MOST, 77)
    engine = Engine(tiny.model, 4)
    before = drive(engine, rows, lifetimes=lifetimes, places=places)
    after = drive(engine, changed, lifetimes=lifetimes, places=places)
    assert after.times == before.times
    assert differing(before.rows, after.rows) == {victim}


def test_a_late_row_says_what_an_early_one_would(tiny: Twins) -> None:
    """Other columns, another neighbourhood: the same logits but for rounding."""
    late = drive(Engine(tiny.model), crowd())
    for number, batch in enumerate(crowd()):
        alone = drive(Engine(tiny.model), [batch], lifetimes=[LIFETIMES[number]], places=1, first=number)
        for name in batch:
            torch.testing.assert_close(
                torch.stack(late.rows[name]), torch.stack(alone.rows[name]), atol=1e-4, rtol=1e-4
            )
        torch.testing.assert_close(
            torch.stack(late.public[number]), torch.stack(alone.public[number]), atol=1e-4, rtol=1e-4
        )


def test_nothing_of_a_sick_row_stays_in_its_slot(tiny: Twins) -> None:
    """A slot that held NaN is as good as new for the next row."""
    engine = Engine(tiny.model, 4)
    session = engine.session(_sizes(), 2)
    session.enter(0, PUBLIC, PRIVATE, [text(9, 1), text(8, 2)])
    session.enter(1, PUBLIC, PRIVATE, [text(5, 4)])
    session.private_logits()
    cache = session._private.chunks[0].ring._cache
    with torch.inference_mode():
        for values in (*cache.keys, *cache.values):
            values[:2] = torch.nan  # what a row of NaN leaves everywhere
    session.leave(0)
    session.enter(2, PUBLIC, PRIVATE, [text(7, 5), text(6, 6)])
    assert session.private_logits().valid.all()
    session.advance([40, 41])
    assert session.private_logits().valid.all()


def test_a_clock_restarts_only_when_nobody_is_there(tiny: Twins) -> None:
    """Also a generation without rows keeps it going: else the number of rows would move others to other columns."""
    session = Engine(tiny.model).session(_sizes(), 2)
    session.enter(0, PUBLIC, PRIVATE, [])
    session.enter(1, PUBLIC, PRIVATE, [text(9, 1)])
    session.private_logits()
    began = session._private.clock.now
    session.leave(1)
    session.advance([40])
    session.private_logits()
    assert session._private.clock.now == began + 1
    session.leave(0)
    assert session._private.clock.now == 0


def test_generations_go_on_from_tokens_drawn_earlier(tiny: Twins) -> None:
    drawn, whole, later = [40, 41, 42], *(Engine(tiny.model).session(_sizes(), 2) for _ in range(2))
    for number in (0, 1):
        whole.enter(number, PUBLIC, PRIVATE, [text(9, number), text(20, 5)])
    for token in drawn:
        whole.public_logits(), whole.private_logits()
        whole.advance([token] * 2)
    later.enter(0, PUBLIC, PRIVATE, [text(9, 0), text(20, 5)], drawn)
    later.enter(1, PUBLIC, PRIVATE, [text(9, 1), text(20, 5)], drawn[:1])
    torch.testing.assert_close(later.public_logits()[0], whole.public_logits()[0], atol=1e-4, rtol=1e-4)
    expected = whole.private_logits().values[:2]
    torch.testing.assert_close(later.private_logits().values[:2], expected, atol=1e-4, rtol=1e-4)
    assert (list(later.drawn(0)), list(later.drawn(1))) == (drawn, drawn[:1])


def test_columns_before_the_clock() -> None:
    clock = Clock(32, torch.device("cpu"))
    clock.make_room(20)
    assert (clock.column, clock.visible_columns, clock.before(20)) == (20, 32, [(0, 20)])
    clock.now = 5 + 32
    assert (clock.column, clock.visible_columns, clock.before(20)) == (5, 32, [(17, 15), (0, 5)])
    assert clock.before(5) == [(0, 5)]
    clock.now = 64
    assert (clock.column, clock.before(20)) == (0, [(12, 20)])
    clock.restart()
    clock.make_room(10)
    assert clock.visible_columns == 16
    clock.make_room(14)  # reaches back over the end of the ring
    assert (clock.visible_columns, clock.before(14)) == (32, [(28, 4), (0, 10)])


def _sizes() -> Sizes:
    return Sizes.of([PUBLIC], [PRIVATE], MOST, 9, 2)
