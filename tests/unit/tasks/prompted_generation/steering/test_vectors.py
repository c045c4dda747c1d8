"""Units' contributions to steering vectors, and the vectors that a noisy sum says."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.inference.engine.session import RowHidden
from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean
from tasks.prompted_generation.steering.vectors import PublicOrigin, contributions, vectors_of

CONCERNS = ("tasks/prompted_generation/steering",)

MEAN = calibrate_mean(10**12, 1, "1")


def group(rows: Sequence[Sequence[float]], valid: Sequence[bool] | None = None) -> RowHidden:
    flags = torch.tensor(valid if valid is not None else [True] * len(rows), dtype=torch.bool)
    values = torch.tensor(rows, dtype=torch.float32).reshape(len(rows), 3)
    return RowHidden(values, torch.zeros(len(rows), dtype=torch.int64), flags)


def test_the_origin_is_the_mean_and_the_spread_of_public_draws() -> None:
    origin = PublicOrigin.of([group([[1, 0, 2], [3, 0, 2]]), group([[0, 0, 9], [0, 8, 1]], [False, True])])
    assert origin.centres.tolist() == [[2, 0, 2], [0, 8, 1]]
    assert origin.spreads.tolist() == [1, 1]  # a single draw has none
    assert PublicOrigin.of([group([[5, 0, 0], [-5, 0, 0], [0, 5, 0], [0, -5, 0]])]).spreads.tolist() == [5]


@pytest.mark.parametrize(
    "rows", [[], [[7.0, 7.0, 7.0]] * 2, [[float("inf"), 0.0, 0.0], [0.0, 0.0, 0.0]]], ids=["none", "equal", "infinite"]
)
def test_draws_without_a_spread_have_the_spread_one(rows: Any) -> None:
    assert PublicOrigin.of([group(rows)]).spreads.tolist() == [1]


def in_spreads(sums: Tensor) -> list[list[float]]:
    return (sums.double() / 2**MEAN.grid_exponent).tolist()


def test_what_a_unit_adds() -> None:
    origin = PublicOrigin(torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]), torch.tensor([4.0, 2.0]))
    short, long = [2.0, 2.0, 3.0], [1.0, 2.0, 203.0]
    sums = contributions(MEAN, [group([short, long]), group([[0.0, -1.0, 0.0]])], origin)
    assert sums.dtype == torch.int64
    expected = [[0.25, 0, 1], [0, -0.5, 0]]  # the long one is cut to length 1
    for found, wanted in zip(in_spreads(sums), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-5)


def test_what_adds_exactly_zero() -> None:
    origin = PublicOrigin(torch.full((2, 3), 5.0), torch.tensor([1.0, 1.0]))
    nothing = contributions(MEAN, [group([]), group([[9, 9, 9]], [False])], origin)
    assert not nothing.any()
    broken = group([[float("nan"), 0, 0], [float("inf"), 0, 0]])
    assert not contributions(MEAN, [broken, group([])], origin).any()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_no_unit_moves_the_sums_by_more_than_the_clip_norm(scale: float) -> None:
    origin = PublicOrigin(torch.randn(1, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([0.7]))
    rows = (torch.randn(50, 3, generator=torch.Generator().manual_seed(2)) * scale).tolist()
    whole = contributions(MEAN, [group(rows)], origin)
    for left_out in range(0, 50, 7):
        rest = contributions(MEAN, [group(rows[:left_out] + rows[left_out + 1 :])], origin)
        assert int((whole - rest).square().sum()) <= MEAN.clip_steps**2


def test_a_vector_is_the_mean_in_the_unit_of_hidden_states_less_what_noise_adds_to_its_length() -> None:
    sums = torch.tensor([[300, 400, 0]]) * 2**MEAN.grid_exponent
    (vector,) = vectors_of(MEAN, sums, 100, torch.tensor([2.0]))
    noise = 3 * (float(MEAN.sigma) / 100) ** 2
    assert vector.tolist() == pytest.approx([6 * (1 - noise / 25), 8 * (1 - noise / 25), 0], rel=1e-5)


def test_noise_alone_makes_next_to_no_vector() -> None:
    wide = MEAN.draw(torch.zeros((20, 500), dtype=torch.int64), DeterministicRandom("noise"))
    noise = float(MEAN.sigma) / 10 * 500**0.5
    lengths = vectors_of(MEAN, wide, 10, torch.ones(20)).norm(dim=1)
    assert float(MEAN.mean(wide, 10).norm(dim=1).mean()) == pytest.approx(noise, rel=0.02)
    assert float(lengths.mean()) < 0.1 * noise
    assert not vectors_of(MEAN, torch.zeros((1, 5), dtype=torch.int64), 10, torch.ones(1)).any()


def test_the_noise_is_that_of_the_mechanism() -> None:
    assert MEAN.loss().rho <= 10**12
    assert NoisyMean.from_event(MEAN.event()) == MEAN
