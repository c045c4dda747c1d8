"""The private step of summaries: exact sums of clipped rows, noise on every one, a public denominator."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tasks.inference.engine.session import RowHidden
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean
from tasks.systems.summaries.token_level_rule import noisy_means
from tests.unit.tasks.systems.summaries.summing import Diary, norms

MEAN = calibrate_mean(10**11, 4, "2.5")


def rows(values: Tensor, generation: list[int], valid: list[bool] | None = None) -> RowHidden:
    return RowHidden(
        values, torch.tensor(generation, dtype=torch.int64), torch.tensor(valid or [True] * len(values)).bool()
    )


def none(width: int) -> RowHidden:
    return RowHidden(torch.zeros(0, width), torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.bool))


def summed(given_rows: RowHidden, groups: int, references: int = 4) -> tuple[Diary, Tensor]:
    """Without noise."""
    diary = Diary()
    with diary.watching():
        found = noisy_means(MEAN, given_rows.values, given_rows, groups, references, OS_RANDOM)
    return diary, found


def test_a_mean_is_the_sum_of_clipped_rows_over_the_public_number() -> None:
    values = torch.tensor([[3.0, 4.0], [0.5, -0.5], [0.25, 1.0]])
    diary, found = summed(rows(values, [0, 0, 2]), 3, references=8)
    expected = torch.tensor([[1.5 + 0.5, 2.0 - 0.5], [0, 0], [0.25, 1.0]]) / 8  # the first is cut from 5 to 2.5
    torch.testing.assert_close(found, expected, rtol=0, atol=4 / 2**20)
    assert found.dtype == torch.float32
    assert [each.dtype for each in diary.sums] == [torch.int64]


def test_a_group_without_rows_gets_noise_like_any_other() -> None:
    wide = 400
    found = noisy_means(MEAN, torch.zeros(0, wide), none(wide), 2, 5, OS_RANDOM)
    stated = float(MEAN.sigma) / 5
    assert found.shape == (2, wide)
    assert (found != 0).float().mean() > 0.99
    assert found.std().item() == pytest.approx(stated, rel=0.15)


def test_rows_that_are_not_valid_or_not_finite_contribute_exactly_zero() -> None:
    values = torch.tensor([[1.0, 2.0], [math.nan, 0.0], [9.0, 9.0], [math.inf, 1.0], [-1.0, 0.5]])
    diary, _ = summed(rows(values, [0, 0, 0, 1, 0], [True, True, False, True, True]), 2)
    alone, _ = summed(rows(values[[0, 4]], [0, 0]), 2)
    assert torch.equal(diary.sums[0], alone.sums[0])
    assert diary.sums[0][1].tolist() == [0, 0]


def test_all_groups_are_drawn_at_once_and_a_coordinate_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[Any] = []
    draw = NoisyMean.draw

    def watched(mechanism: NoisyMean, sums: Tensor, rng: Any) -> Tensor:
        shapes.append(tuple(sums.shape))
        return draw(mechanism, sums, rng)

    monkeypatch.setattr(NoisyMean, "draw", watched)
    noisy_means(MEAN, torch.ones(3, 7), rows(torch.ones(3, 7), [0, 2, 2]), 4, 5, DeterministicRandom("means"))
    assert shapes == [(4, 7)]


@pytest.mark.parametrize("references", [1, 7])
def test_the_noise_on_a_mean_is_the_stated_one(references: int) -> None:
    """4000 coordinates: the sample variance is within 12 % with certainty for all purposes, and 30 % is far out."""
    found = noisy_means(MEAN, torch.zeros(0, 4000), none(4000), 1, references, OS_RANDOM).double()
    ratio = float(found.square().mean().sqrt()) / (float(MEAN.sigma) / references)
    spread = 1 / math.sqrt(2 * 4000)
    assert abs(ratio - 1) < 6.5 * spread
    for wrong in (0.7, 1.3):
        assert abs(ratio / wrong - 1) > 15 * spread


@settings(max_examples=60)
@given(st.data())
def test_whoever_else_is_there_a_row_adds_the_same_integers(data: st.DataObject) -> None:
    """Removing a row takes its own integers out of its own sum; those are never longer than S."""
    seed, count = data.draw(st.integers(0, 10**6)), data.draw(st.integers(1, 12))
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn((count, 33), generator=generator) * 10 ** data.draw(st.integers(-3, 4))
    generation = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    gone = data.draw(st.integers(0, count - 1))
    whole, _ = summed(rows(values, generation), 4)
    left = [number for number in range(count) if number != gone]
    fewer, _ = summed(rows(values[left], [generation[number] for number in left]), 4)
    moved = whole.sums[0] - fewer.sums[0]
    assert torch.equal(moved[generation[gone]], whole.rows[0][gone])
    assert norms(moved)[generation[gone]] <= MEAN.clip_steps**2
    assert not moved[[group for group in range(4) if group != generation[gone]]].any()
    order = data.draw(st.permutations(range(count)))
    other, _ = summed(rows(values[list(order)], [generation[number] for number in order]), 4)
    assert torch.equal(other.sums[0], whole.sums[0])
