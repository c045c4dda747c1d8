"""Private ICL's rule: every token is drawn from the blend, and paid for before rows are read."""

from fractions import Fraction

from tasks.decoding.loop import DrawMeter
from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.systems.private_icl.rule import PrivateIclRule
from tests.unit.tasks.systems.fake_step import FakeSteps

ROWS = 2


def rule(steps: FakeSteps, clip_steps: int = 60 * 2**20, top_k: int = 0) -> PrivateIclRule:
    meter = DrawMeter(1, 4, lambda number: steps.seen.append(("arm", number)))
    return PrivateIclRule(
        IntegerTableMechanism(clip_steps, ROWS, Fraction(5), ROWS * clip_steps),
        top_k,
        DeterministicRandom("icl"),
        meter,
    )


def test_the_blend_decides() -> None:
    """Token 1 is second for the public model and for the rows, and best for both together."""
    steps = FakeSteps([[100.0, 90.0, 0.0]], {0: [[0.0, 90.0, 100.0]] * ROWS})
    assert rule(steps).next_tokens(steps.step(0)) == [1]


def test_without_rows_the_public_model_decides() -> None:
    steps = FakeSteps([[100.0, 40.0, 0.0]])
    assert rule(steps).next_tokens(steps.step(0)) == [0]


def test_an_absent_row_weighs_nothing_and_the_denominator_stays() -> None:
    """One of two rows: half of the weight, not all of it."""
    steps = FakeSteps([[100.0, 20.0]], {0: [[0.0, 120.0]]})
    assert rule(steps).next_tokens(steps.step(0)) == [0]  # 100 against 20 + 120/2
    both = FakeSteps([[100.0, 20.0]], {0: [[0.0, 120.0]] * ROWS})
    assert rule(both).next_tokens(both.step(0)) == [1]  # 100 against 20 + 120


def test_each_draw_is_armed_before_rows_are_read() -> None:
    steps = FakeSteps([[1.0, 0.0]], {0: [[0.0, 1.0]]})
    made = rule(steps)
    for position in range(3):
        made.next_tokens(steps.step(position))
    assert [what[0] for what in steps.seen] == ["arm", "read"] * 3
    assert made.facts(0) == {}


def test_generations_are_drawn_side_by_side() -> None:
    public = [[100.0, 0.0, 0.0], [0.0, 100.0, 0.0]]
    steps = FakeSteps(public, {0: [[0.0, 0.0, 300.0]] * ROWS, 1: []})
    assert rule(steps).next_tokens(steps.step(0)) == [2, 1]


def test_with_candidates_only_they_are_drawn() -> None:
    steps = FakeSteps([[100.0, 90.0, 0.0]], {0: [[0.0, 0.0, 300.0]] * ROWS})
    assert rule(steps, clip_steps=2**20, top_k=2).next_tokens(steps.step(0))[0] in {0, 1}
