"""Clipped vectors: never longer than the clip norm, a function of one row alone, and close to what was meant."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tasks.mechanisms.vectors.clipping import LARGEST_WIDTH, clip_vectors
from tasks.mechanisms.vectors.noisy_mean import LARGEST_CLIP_STEPS

pytestmark = pytest.mark.dear

# Everything a model in trouble can emit: NaN, infinities, the largest float32, subnormals.
ENTRIES = st.one_of(
    st.floats(-30, 30, width=32),
    st.floats(width=32),
    st.sampled_from([math.nan, math.inf, -math.inf, 3.4028234663852886e38, 1e-45, -0.0]),
)
STEPS = st.one_of(st.integers(1, LARGEST_CLIP_STEPS), st.sampled_from([1, 2**20, LARGEST_CLIP_STEPS]))
GRIDS = st.one_of(st.integers(-100, 100), st.integers(10, 24))
ROWS = st.tuples(st.integers(0, 6), st.integers(1, 9)).flatmap(
    lambda shape: arrays.arrays(np.float32, shape, elements=ENTRIES).map(torch.from_numpy)
)


def norms(clipped):
    """The squared L2 norm of every row, in Python's integers."""
    return [sum(entry * entry for entry in row) for row in clipped.tolist()]


@settings(max_examples=400)
@given(ROWS, STEPS, GRIDS)
def test_no_row_is_longer_than_the_clip_norm(rows, steps, grid):
    clipped = clip_vectors(rows, steps, grid)
    assert clipped.dtype == torch.int64
    assert clipped.shape == rows.shape
    assert all(square <= steps * steps for square in norms(clipped))


@settings(max_examples=300)
@given(ROWS.filter(len), STEPS, GRIDS, st.data())
def test_a_row_is_isolated(rows, steps, grid, data):
    """Row i's integers are the same alone, among others, in any order, beside rows of NaN."""
    together = clip_vectors(rows, steps, grid)
    row = data.draw(st.integers(0, len(rows) - 1))
    assert torch.equal(clip_vectors(rows[row : row + 1], steps, grid)[0], together[row])
    order = torch.tensor(data.draw(st.permutations(range(len(rows)))))
    assert torch.equal(clip_vectors(rows[order], steps, grid), together[order])
    ruined = rows.clone()
    ruined[torch.arange(len(rows)) != row] = math.nan
    assert torch.equal(clip_vectors(ruined, steps, grid)[row], together[row])


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 64, 257])
def test_a_row_of_a_models_width_is_isolated_at_every_place(rows):
    given = torch.randn(rows, 577, generator=torch.Generator().manual_seed(rows)) * 10
    together = clip_vectors(given, 2**20 + 12345, 20)
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(clip_vectors(given[row : row + 1].clone(), 2**20 + 12345, 20)[0], together[row])


@settings(max_examples=300)
@given(ROWS, st.integers(2**20, LARGEST_CLIP_STEPS), st.integers(10, 24))
def test_integers_are_what_real_clipping_gives_to_a_few_steps(rows, steps, grid):
    """v min(1, C / |v|), by real numbers; never past zero; a row that is not finite is nothing."""
    for given_row, found in zip(rows.tolist(), clip_vectors(rows, steps, grid).tolist(), strict=True):
        if not all(map(math.isfinite, given_row)):
            assert found == [0] * len(found)
            continue
        longer = max(1.0, math.hypot(*given_row) * 2**grid / steps)
        for entry, integer in zip(given_row, found, strict=True):
            meant = entry / longer * 2**grid
            assert abs(integer - meant) < 6
            assert integer == 0 or (integer > 0) == (entry > 0)


def test_a_row_within_the_norm_is_only_truncated():
    given = torch.tensor([[0.75, -0.3, 2.0**-21, -(2.0**-20)], [0.0, -1.0, 0.0, 0.0]])
    assert clip_vectors(given, 2**20, 20).tolist() == [[786432, -314572, 0, -1], [0, -(2**20), 0, 0]]


def test_a_row_far_beyond_the_norm_keeps_its_direction():
    given = torch.tensor([[3e38, -4e38 / 1.25, 0.0], [3e-38, 4e-38, 0.0], [3.0, 4.0, 0.0]])
    found = clip_vectors(given, 2**20, 20).double()
    assert found[0] / found[0].norm() == pytest.approx(given[0].double() / given[0].double().norm(), abs=1e-5)
    assert found[0].norm() == pytest.approx(2**20, abs=4)
    assert found[1].tolist() == [0, 0, 0]
    assert found[2].tolist() == pytest.approx([0.6 * 2**20, 0.8 * 2**20, 0], abs=4)


@pytest.mark.parametrize("value", [3.4028234663852886e38, 1.0, 2.0])
def test_the_widest_row_does_not_overflow(value):
    clipped = clip_vectors(torch.full((1, LARGEST_WIDTH), value), LARGEST_CLIP_STEPS, 21)
    assert norms(clipped)[0] <= LARGEST_CLIP_STEPS**2
    assert norms(clipped)[0] >= (LARGEST_CLIP_STEPS - 2**9) ** 2
    assert bool((clipped > 0).all())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_with_one_bad_entry_is_an_absent_row(bad):
    given = torch.ones(3, 5)
    given[1, 4] = bad
    clipped = clip_vectors(given, 2**20, 18)
    assert clipped[1].tolist() == [0] * 5
    assert torch.equal(clipped[0], clipped[2])
    assert bool((clipped[0] > 0).all())


def test_no_rows_are_no_rows():
    assert clip_vectors(torch.zeros(0, 7), 2**20, 20).shape == (0, 7)


def test_the_values_given_are_left_alone():
    given = torch.tensor([[math.nan, 1.0], [5.0, 2.0]])
    before = given.clone()
    clip_vectors(given, 2**20, 20)
    assert math.isnan(given[0, 0])
    assert torch.equal(given.nan_to_num(), before.nan_to_num())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_other_than_float32_is_refused(dtype):
    with pytest.raises(TypeError, match="float32"):
        clip_vectors(torch.zeros(1, 2, dtype=dtype), 2**20, 20)


@pytest.mark.parametrize("shape", [(3,), (2, 0), (1, LARGEST_WIDTH + 1), (1, 1, 1)])
def test_other_than_rows_is_refused(shape):
    with pytest.raises(ValueError, match="rows of 1 to 2"):
        clip_vectors(torch.zeros(shape), 2**20, 20)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_another_device_gives_the_same_integers():
    given = torch.randn(33, 577, generator=torch.Generator().manual_seed(1)) * 10
    given[3, 2] = math.nan
    assert torch.equal(clip_vectors(given.cuda(), 2**20 + 3, 20).cpu(), clip_vectors(given, 2**20 + 3, 20))
