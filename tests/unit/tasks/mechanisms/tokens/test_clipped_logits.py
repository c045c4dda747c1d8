"""clip_c(z) = max(-c, z - max z + c) on the grid: bounded whatever a row is, and each row by itself."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.mechanisms.tokens.integer_table import LARGEST_CLIP_STEPS, IntegerTableMechanism
from tasks.mechanisms.tokens.utility_scores import blended, clip_recentred

GRID = 2**20
LOGITS = st.lists(
    st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.5, -3.0]), min_size=4, max_size=4
)
DRAWS = st.sampled_from([1, 17, 3 * GRID, LARGEST_CLIP_STEPS]).map(
    lambda steps: IntegerTableMechanism(steps, 7, Fraction(1), 0)
)


def clipped(draw: IntegerTableMechanism, *logits: list[float]) -> list[list[int]]:
    rows = torch.tensor(logits, dtype=torch.float32)
    found: list[list[int]] = clip_recentred(draw, rows, torch.ones_like(rows, dtype=torch.bool)).tolist()
    return found


def test_the_best_token_has_c_and_the_worst_at_least_minus_c() -> None:
    draw = IntegerTableMechanism(3 * GRID, 7, Fraction(1), 0)
    assert clipped(draw, [1.0, 0.5, -4.0, -40.0]) == [[3 * GRID, round(2.5 * GRID), -2 * GRID, -3 * GRID]]


@given(DRAWS, LOGITS)
def test_whatever_a_row_is_it_stays_in_the_window(draw: IntegerTableMechanism, logits: list[float]) -> None:
    """S is the sensitivity that the token draw is calibrated to."""
    (found,) = clipped(draw, logits)
    assert all(-draw.clip_steps <= entry <= draw.clip_steps for entry in found)
    if not any(map(math.isfinite, logits)):
        assert found == [0, 0, 0, 0]
    else:
        assert max(found) == draw.clip_steps


@given(DRAWS, st.lists(LOGITS, min_size=2, max_size=5))
def test_each_row_stands_for_itself(draw: IntegerTableMechanism, logits: list[list[float]]) -> None:
    assert clipped(draw, *logits) == [clipped(draw, one)[0] for one in logits]


def test_only_candidates_set_the_maximum() -> None:
    draw = IntegerTableMechanism(3 * GRID, 7, Fraction(1), 0)
    rows, allowed = torch.tensor([[1.0, 50.0, 0.0]]), torch.tensor([[True, False, True]])
    assert clip_recentred(draw, rows, allowed).tolist() == [[3 * GRID, -3 * GRID, 2 * GRID]]


def test_the_blend_is_twice_the_mean_of_both_but_for_a_public_shift() -> None:
    """(zbar + clip(z_pub)) / 2 with s = 2: differences between tokens are what a draw sees."""
    draw = IntegerTableMechanism(3 * GRID, 2, Fraction(2), 0)
    public = torch.tensor([[0.0, -1.0, -2.0]])
    allowed = torch.ones(1, 3, dtype=torch.bool)
    rows = torch.tensor([[1.0, 0.0, -4.0], [0.0, 2.0, -30.0]])
    sums = clip_recentred(draw, rows, allowed.expand(2, 3)).sum(0, keepdim=True)
    scores = blended(draw, public, allowed, sums)[0] / (GRID * draw.references)
    mean = (torch.tensor([3.0, 2.0, -2.0]) + torch.tensor([1.0, 3.0, -3.0])) / 2
    wanted = mean + torch.tensor([3.0, 2.0, 1.0])
    assert torch.allclose(scores - scores[0], wanted - wanted[0])
    assert blended(draw, public, allowed, torch.zeros_like(sums)).max() == 0


def test_other_precisions_are_refused() -> None:
    with pytest.raises(TypeError, match="float32"):
        clip_recentred(
            IntegerTableMechanism(1, 1, Fraction(1), 0), torch.zeros(1, 2).double(), torch.ones(1, 2, dtype=torch.bool)
        )
