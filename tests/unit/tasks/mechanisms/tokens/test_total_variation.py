"""Distributions on an integer grid: never above their norm, each row by itself, and close to the true softmax."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.mechanisms.tokens.sparse_vector import NORM
from tasks.mechanisms.tokens.utility_scores import distances, distributions, within_norm

LOGITS = st.lists(
    st.lists(st.floats(-60, 60, width=32) | st.sampled_from([math.nan, math.inf, -math.inf]), min_size=5, max_size=5),
    min_size=1,
    max_size=6,
)


def rows(logits: list[list[float]]) -> torch.Tensor:
    return torch.tensor(logits, dtype=torch.float32)


def everything(logits: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(logits, dtype=torch.bool)


@given(LOGITS)
def test_no_row_exceeds_the_norm(logits: list[list[float]]) -> None:
    given_rows = rows(logits)
    found = distributions(given_rows, everything(given_rows))
    assert (found >= 0).all()
    assert (found.sum(1) <= NORM).all()
    assert (found[~given_rows.isfinite()] == 0).all()


def test_a_large_vocabulary_does_not_exceed_the_norm_either() -> None:
    """Rounded to nearest, 49,152 equal tokens could sum to more than one."""
    flat = torch.zeros(1, 49_152)
    found = distributions(flat, everything(flat))
    assert NORM - 49_152 < found.sum() <= NORM


def test_they_are_the_softmax() -> None:
    torch.manual_seed(1)
    logits = torch.randn(4, 300) * 4
    found = distributions(logits, everything(logits)).double() / NORM
    assert torch.allclose(found, logits.double().softmax(1), atol=1e-6, rtol=5e-4)


def test_only_candidates_count() -> None:
    logits = rows([[0.0, 5.0, 0.0]])
    found = distributions(logits, torch.tensor([[True, False, True]]))
    assert found.tolist() == [[NORM // 2, 0, NORM // 2]]


def test_a_row_without_a_finite_logit_contributes_nothing() -> None:
    logits = rows([[math.nan, -math.inf, math.inf]])
    assert distributions(logits, everything(logits)).tolist() == [[0, 0, 0]]


@given(LOGITS, st.randoms(use_true_random=False))
def test_each_row_stands_for_itself(logits: list[list[float]], shuffle) -> None:
    """Whatever is beside it, in whatever order, a row has the same bits."""
    alone = [distributions(rows([one]), everything(rows([one])))[0].tolist() for one in logits]
    order = list(range(len(logits)))
    shuffle.shuffle(order)
    moved = rows([logits[number] for number in order])
    assert distributions(moved, everything(moved)).tolist() == [alone[number] for number in order]


def test_what_exceeds_the_norm_contributes_nothing() -> None:
    given_rows = torch.tensor([[NORM, 0], [NORM, 1], [-NORM, -1], [1, -1]])
    assert within_norm(given_rows).tolist() == [[NORM, 0], [0, 0], [0, 0], [1, -1]]


@given(LOGITS, LOGITS.map(lambda logits: logits[0]), st.integers(1, 50))
def test_one_row_more_moves_a_distance_by_at_most_the_norm(
    logits: list[list[float]], joining: list[float], references: int
) -> None:
    """The sensitivity that the sparse vector is calibrated to."""
    present = rows(logits)
    public = distributions(rows([[0.0, 1.0, 2.0, 3.0, 4.0]]), torch.ones(1, 5, dtype=torch.bool))
    sums = distributions(present, everything(present)).sum(0, keepdim=True)
    one = rows([joining])
    after = sums + distributions(one, everything(one))
    (before,), (moved,) = distances(references, public, sums), distances(references, public, after)
    assert abs(before - moved) <= NORM


def test_a_distance_is_one_for_no_rows_and_two_for_strangers() -> None:
    public = torch.tensor([[NORM, 0]])
    assert distances(3, public, torch.tensor([[0, 0]])) == [3 * NORM]
    assert distances(3, public, torch.tensor([[0, 3 * NORM]])) == [6 * NORM]
    assert distances(3, public, torch.tensor([[3 * NORM, 0]])) == [0]


def test_other_precisions_are_refused() -> None:
    with pytest.raises(TypeError, match="float32"):
        distributions(torch.zeros(1, 3, dtype=torch.float64), torch.ones(1, 3, dtype=torch.bool))
