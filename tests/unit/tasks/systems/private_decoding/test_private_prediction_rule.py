"""The rule of Amin et al.: runs of tests, each paid for before its first, and at most r private tokens a text."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

import pytest

from tasks.decoding.loop import DrawMeter
from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism, public_sampler
from tasks.mechanisms.tokens.sparse_vector import NOISE_GRID, SparseVector
from tasks.systems.private_prediction.rule import PrivatePredictionRule
from tests.unit.tasks.systems.fake_step import FakeSteps

ROWS = 4
ALIKE = [9.0, 0.0, 0.0, 0.0]
"""The public model is sure of token 0, and so is a row that agrees."""
OTHER = [0.0, 0.0, 0.0, 30.0]
"""A row that is sure of token 3."""
QUIET = SparseVector(Fraction(1, NOISE_GRID), ROWS)
"""Tests with next to no noise: what is near is found near."""


def rule(steps: FakeSteps, private_tokens: int = 2, size: int = 1, **changes: Any) -> PrivatePredictionRule:
    """Draws that take the best token, and a meter that writes into `steps.seen`."""
    given: dict[str, Any] = {
        "draw": IntegerTableMechanism(30 * 2**20, ROWS, Fraction(1), ROWS * 30 * 2**20),
        "public_draw": public_sampler("1/1000"),
        "tests": QUIET,
        "threshold": Fraction(7, 10),
        "private_tokens": private_tokens,
        "top_k": 0,
        "rng": DeterministicRandom("rule"),
        "meter": DrawMeter(size, private_tokens, lambda number: steps.seen.append(("arm", number))),
    }
    return PrivatePredictionRule(**given | changes)


def drawn(rule: PrivatePredictionRule, steps: FakeSteps, count: int) -> list[list[int]]:
    return [rule.next_tokens(steps.step(position)) for position in range(count)]


def test_where_the_rows_agree_the_token_is_public_and_the_run_goes_on() -> None:
    steps = FakeSteps([ALIKE], {0: [ALIKE] * ROWS})
    made = rule(steps)
    assert drawn(made, steps, 5) == [[0]] * 5
    assert steps.of("arm") == [0]
    assert made.facts(0) == {"private_tokens": 0.0}


def test_where_the_rows_differ_the_token_is_theirs() -> None:
    steps = FakeSteps([ALIKE], {0: [OTHER] * ROWS})
    made = rule(steps)
    assert drawn(made, steps, 2) == [[3], [3]]
    assert made.facts(0) == {"private_tokens": 2.0}


def test_each_run_is_armed_before_its_first_test_reads_anything() -> None:
    steps = FakeSteps([ALIKE], {0: [OTHER] * ROWS})
    drawn(rule(steps, private_tokens=3), steps, 3)
    kinds = [what[0] for what in steps.seen]
    assert kinds == ["arm", "read", "arm", "read", "arm", "read", "let go"]


def test_after_the_last_private_token_nothing_private_is_read_any_more() -> None:
    steps = FakeSteps([ALIKE], {0: [OTHER] * ROWS})
    made = rule(steps, private_tokens=2)
    assert drawn(made, steps, 6) == [[3], [3], [0], [0], [0], [0]]
    assert len(steps.of("read")) == 2
    assert steps.of("let go") == [0]
    assert steps.of("arm") == [0, 1]
    assert made.facts(0) == {"private_tokens": 2.0}


def test_generations_run_side_by_side() -> None:
    """The first has used up its private tokens while the second still runs, and a third never needs one."""
    steps = FakeSteps([ALIKE] * 3, {0: [OTHER] * ROWS, 1: [ALIKE] * ROWS, 2: []})
    made = rule(steps, private_tokens=1, threshold=Fraction(3, 2))
    assert drawn(made, steps, 3) == [[3, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert [made.facts(number)["private_tokens"] for number in range(3)] == [1, 0, 0]
    assert steps.of("let go") == [0]
    assert len(steps.of("read")) == 3


def test_a_late_generation_uses_what_is_prepaid() -> None:
    steps = FakeSteps([ALIKE] * 2, {0: [OTHER] * ROWS, 1: [OTHER] * ROWS})
    made = rule(steps, private_tokens=2)
    for position in range(2):
        made.next_tokens(steps.step(position, live=[0]))
    assert steps.of("arm") == [0, 1]
    assert made.next_tokens(steps.step(0, live=[1])) == [3]
    assert steps.of("arm") == [0, 1]


def test_a_batch_without_rows_is_far_from_the_public_model_by_one() -> None:
    """Its mean has no mass at all: theta below 1 makes its tokens private, and uniform; above 1 they are public."""
    steps = FakeSteps([ALIKE])
    made = rule(steps, private_tokens=4, threshold=Fraction(99, 100))
    drawn(made, steps, 1)
    assert made.facts(0) == {"private_tokens": 1.0}
    far = rule(steps, threshold=Fraction(101, 100))
    assert drawn(far, steps, 3) == [[0]] * 3


def test_the_mean_is_over_the_public_number_of_rows() -> None:
    """One row of four that agrees: mass 1/4 on the token the public model is sure of, distance about 3/4."""
    for threshold, private in ((Fraction(73, 100), 1.0), (Fraction(77, 100), 0.0)):
        steps = FakeSteps([ALIKE], {0: [ALIKE]})
        made = rule(steps, threshold=threshold)
        drawn(made, steps, 1)
        assert made.facts(0) == {"private_tokens": private}


class Recorded(SparseVector):
    """Tests that write down each noisy threshold that a run begins with."""

    begun: ClassVar[list[int]] = []

    def begin(self, threshold: Fraction, rng: Any) -> int:
        self.begun.append(super().begin(threshold, rng))
        return self.begun[-1]


@pytest.mark.parametrize("rows", [[OTHER] * ROWS, [ALIKE] * ROWS], ids=["private", "public"])
def test_the_threshold_is_drawn_afresh_after_each_private_token_and_at_no_other_time(rows: Sequence[Any]) -> None:
    Recorded.begun.clear()
    steps = FakeSteps([ALIKE], {0: rows})
    made = rule(steps, private_tokens=5, tests=Recorded(Fraction(1, 16), ROWS), threshold=Fraction(1))
    drawn(made, steps, 4)
    private = int(made.facts(0)["private_tokens"])
    assert len(Recorded.begun) == len(set(Recorded.begun)) == (private if private == 4 else private + 1)
    assert private == (4 if rows[0] is OTHER else 0)


def test_with_candidates_the_rows_are_only_asked_about_them() -> None:
    steps = FakeSteps([[9.0, 8.0, -50.0, -60.0]], {0: [OTHER] * ROWS})
    made = rule(steps, top_k=2, draw=IntegerTableMechanism(2**16, ROWS, Fraction(1), ROWS * 2**16))
    assert {token for tokens in drawn(made, steps, 2) for token in tokens} <= {0, 1}


@pytest.mark.parametrize(("position", "left"), [(1, 3), (3, 1), (4, 0), (40, 0)])
def test_a_generation_that_goes_on_from_another_attempt_has_used_all_it_may_have_used(position: int, left: int) -> None:
    """Each token it brings may have been private, and a run may have been open: r is a bound over both attempts."""
    steps = FakeSteps([ALIKE], {0: [OTHER] * ROWS})
    made = rule(steps, private_tokens=5)
    for more in range(8):
        made.next_tokens(steps.step(position + more))
    assert len(steps.of("read")) == left
    assert steps.of("let go") == [0]
    assert made.facts(0) == {"private_tokens": 5.0}
