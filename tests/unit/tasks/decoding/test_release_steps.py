"""Steps that release one thing each: the order of their parts, and what a death in each of them leaves."""

from typing import Any

import pytest

from models_db.values.canonical_json import Json
from tasks.decoding.run_context import ReleaseSteps, StepLost
from tests.watched_journal import WatchedJournal

pytestmark = pytest.mark.contract


class Once:
    """Writes down what happens, and dies where it is told to."""

    def __init__(self, dies_at: str = "") -> None:
        self.seen: list[Any] = []
        self.dies_at = dies_at
        self.armed: set[int] = set()
        self.begun: set[str] = set()
        self.released: dict[str, Json] = {}

    def note(self, what: str, *more: object) -> None:
        if what == self.dies_at:
            raise InterruptedError
        self.seen.append((what, *more) if more else what)

    def arm(self, sequence: int, instalment: int) -> None:
        self.note("arm", sequence, instalment)
        self.armed.add(sequence)

    def prepare(self) -> int:
        self.note("prepare")
        return 4

    def draw(self, prepared: int) -> Json:
        self.note("draw")
        return {"noisy": (prepared, 1)}  # type: ignore[dict-item]

    def drawing(self, name: str) -> None:
        self.note("begin", name)
        self.begun.add(name)

    def result(self, name: str, released: Json) -> None:
        self.note("keep", name)
        self.released[name] = released

    def run(self, earlier: "Once | None" = None, sequences: tuple[int, ...] = (1, 2)) -> Json:
        known = earlier or Once()
        paid = tuple(int(sequence in known.armed) for sequence in range(3))
        steps = ReleaseSteps(paid, known.released, frozenset(known.begun))
        journal = WatchedJournal(drawing=self.drawing, result=self.result)
        return steps.run_once("sizes", sequences, self.arm, journal, self.prepare, self.draw)


def test_the_order_of_the_parts() -> None:
    once = Once()
    assert once.run() == {"noisy": [4, 1]} == once.released["sizes"]
    assert once.seen == [("arm", 1, 0), ("arm", 2, 0), "prepare", ("begin", "sizes"), "draw", ("keep", "sizes")]


def test_what_was_kept_is_neither_read_nor_drawn_again() -> None:
    earlier, later = Once(), Once()
    earlier.run()
    assert later.run(earlier) == earlier.released["sizes"]
    assert later.seen == []


@pytest.mark.parametrize("dies_at", ["arm", "prepare", "begin"])
def test_who_died_before_it_drew_draws_with_what_is_paid(dies_at: str) -> None:
    earlier, later = Once(dies_at), Once()
    with pytest.raises(InterruptedError):
        earlier.run()
    assert later.run(earlier) == {"noisy": [4, 1]}
    assert [step for step in later.seen if step == "draw"] == ["draw"]


@pytest.mark.parametrize("dies_at", ["draw", "keep"])
def test_who_died_while_it_drew_has_lost_it(dies_at: str) -> None:
    earlier, later = Once(dies_at), Once()
    with pytest.raises(InterruptedError):
        earlier.run()
    with pytest.raises(StepLost, match="is lost"):
        later.run(earlier)
    assert later.seen == []


def test_a_result_that_nobody_paid_for_is_not_used() -> None:
    """A ledger that was put back beside a journal that was not."""
    earlier, later = Once(), Once()
    earlier.run()
    earlier.armed = {1}
    later.run(earlier)
    assert later.seen[0] == ("arm", 1, 0)
    assert "draw" in later.seen


def test_a_step_that_a_later_one_has_followed_is_not_drawn_twice() -> None:
    """A journal that was put back, from before the step was drawn, beside a ledger that was not."""
    earlier, later = Once(), Once()
    earlier.run(sequences=(0,))
    earlier.armed.add(1)
    earlier.begun, earlier.released = set(), {}
    with pytest.raises(StepLost):
        later.run(earlier, (0,))
    assert later.seen == []
    assert Once().run(earlier, (1,)) == {"noisy": [4, 1]}, "the last one that is paid may not have been drawn"


@pytest.mark.parametrize("dies_at", ["prepare", "begin", "draw", "keep"])
def test_what_costs_nothing_is_made_again_unless_it_was_kept(dies_at: str) -> None:
    earlier, later, last = Once(dies_at), Once(), Once()
    with pytest.raises(InterruptedError):
        earlier.run(sequences=())
    assert later.run(earlier, ()) == {"noisy": [4, 1]}
    assert last.run(later, ()) == {"noisy": [4, 1]}
    assert last.seen == []
