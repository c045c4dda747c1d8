"""Scores: what a row may contribute, that it depends on that row alone, and that one row moves nothing further."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.tokens.integer_table import LARGEST_CLIP_STEPS, IntegerTableMechanism
from tasks.mechanisms.tokens.utility_scores import LOWEST_SCORE, candidates, clip_rows, draw_tokens, sum_rows, utilities
from tests.refusals import refusal

pytestmark = pytest.mark.dear

GRID = 2**20
DRAW = IntegerTableMechanism(GRID // 2, 4, Fraction(1), 2 * GRID)  # C = 0.5, B = 4
VARIANTS = ["log_probability", "logit"]

# Everything a model in trouble can emit: NaN, infinities, the largest float32, subnormals.
LOGITS = st.one_of(
    st.floats(-30, 30, width=32),
    st.floats(width=32),
    st.sampled_from([math.nan, math.inf, -math.inf, 3.4028234663852886e38, -0.0]),
)
ANY_DRAW = st.builds(
    IntegerTableMechanism,
    st.one_of(st.integers(1, 2**22), st.integers(1, LARGEST_CLIP_STEPS)),
    st.integers(1, 64),
    st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(13, 10)]),
    st.just(0),
)


@st.composite
def batches(draw):
    """Public logits [G, V], private ones [N, V], and the generation of each row."""
    generations, rows, vocabulary = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 8))
    public = draw(arrays.arrays(np.float32, (generations, vocabulary), elements=LOGITS))
    public[:, draw(st.integers(0, vocabulary - 1))] = draw(st.floats(-10, 10, width=32))
    private = draw(arrays.arrays(np.float32, (rows, vocabulary), elements=LOGITS))
    generation = draw(st.lists(st.integers(0, generations - 1), min_size=rows, max_size=rows))
    return torch.from_numpy(public), torch.from_numpy(private), torch.tensor(generation)


def summed(draw, public, private, generation, variant):
    clipped = clip_rows(draw, private, public, generation, variant)
    return utilities(draw, public, sum_rows(clipped, generation, public.shape[0]))


@settings(max_examples=300)
@given(ANY_DRAW, batches(), st.sampled_from(VARIANTS), st.data())
def test_one_row_moves_no_score_by_more_than_the_clip_norm(draw, batch, variant, data):
    """The sensitivity of the mechanism: the batch without any one of its rows, all else equal."""
    public, private, generation = batch
    gone = data.draw(st.integers(0, len(private) - 1))
    rest = [row for row in range(len(private)) if row != gone]
    whole = summed(draw, public, private, generation, variant)
    less = summed(draw, public, private[rest], generation[rest], variant)
    assert (whole - less).abs().max() <= draw.clip_steps
    others = [g for g in range(len(public)) if g != generation[gone]]
    assert torch.equal(whole[others], less[others])


@settings(max_examples=300)
@given(ANY_DRAW, batches(), st.sampled_from(VARIANTS), st.data())
def test_a_row_is_isolated(draw, batch, variant, data):
    """Row i's integers are the same alone, among others, in any order, beside rows of NaN."""
    public, private, generation = batch
    together = clip_rows(draw, private, public, generation, variant)
    row = data.draw(st.integers(0, len(private) - 1))
    alone = clip_rows(draw, private[row : row + 1], public, generation[row : row + 1], variant)
    assert torch.equal(together[row], alone[0])
    order = torch.tensor(data.draw(st.permutations(range(len(private)))))
    shuffled = clip_rows(draw, private[order], public, generation[order], variant)
    assert torch.equal(shuffled, together[order])


CUDA = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [5, 133, 1000, 4099])
@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_a_row_is_isolated_at_every_width_and_offset(variant, width, device):
    """Odd widths and views that start anywhere, where vectorised reductions would take other paths."""
    torch.manual_seed(1)
    public, private = torch.randn(3, width) * 4, torch.randn(65, width) * 4
    public, private, generation = (tensor.to(device) for tensor in (public, private, torch.arange(65) % 3))
    together = clip_rows(DRAW, private, public, generation, variant)
    for start, stop in [(0, 1), (1, 2), (7, 64), (13, 20), (64, 65)]:
        part = clip_rows(DRAW, private[start:stop], public, generation[start:stop], variant)
        assert torch.equal(part, together[start:stop])


@given(ANY_DRAW, batches(), st.sampled_from(VARIANTS))
def test_contributions_are_integers_in_the_window(draw, batch, variant):
    clipped = clip_rows(draw, batch[1], batch[0], batch[2], variant)
    assert clipped.dtype == torch.int64
    assert clipped.abs().max() <= draw.clip_steps


@given(ANY_DRAW, batches(), st.sampled_from(VARIANTS))
def test_whatever_is_not_finite_contributes_nothing(draw, batch, variant):
    public, private, generation = batch
    clipped = clip_rows(draw, private, public, generation, variant)
    bad = ~(private.isfinite() & public[generation].isfinite())
    assert (clipped[bad] == 0).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_difference_beyond_the_grids_range_is_clipped_to_its_own_side(sign):
    """1e35 logits are infinitely many grid steps in float32, and more than any integer holds."""
    private = torch.full((1, 9), sign * 1e35)
    clipped = clip_rows(DRAW, private, torch.zeros(1, 9), torch.zeros(1, dtype=torch.int64), "logit")
    assert (clipped == sign * DRAW.clip_steps).all()


def reference(draw: IntegerTableMechanism, private: list[float], public: list[float], variant: str) -> list[int]:
    """The formula, written out in doubles."""
    shift = 0.0
    if variant == "log_probability":
        shift = math.log(math.fsum(map(math.exp, private))) - math.log(math.fsum(map(math.exp, public)))
    limit = float(draw.clip_norm)
    return [
        round(max(-limit, min(limit, own - known - shift)) * GRID) for own, known in zip(private, public, strict=True)
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_window_is_the_formula(variant):
    torch.manual_seed(2)
    private, public = torch.randn(20, 300) * 3, torch.randn(1, 300) * 3
    draw = IntegerTableMechanism(2 * GRID, 4, Fraction(1), 0)
    clipped = clip_rows(draw, private, public, torch.zeros(20, dtype=torch.int64), variant)
    wanted = [reference(draw, row, public[0].tolist(), variant) for row in private.tolist()]
    # The shift is good to about 2^-12, a float32 difference to 2^-20: 300 of 2^20 steps.
    assert (clipped - torch.tensor(wanted)).abs().max() <= (300 if variant == "log_probability" else 4)
    assert len(clipped.unique()) > 1000


def test_log_probability_spends_no_window_on_the_normalising_constant():
    """A row that is the public row plus a constant says nothing new, and contributes (nearly) nothing."""
    public = torch.linspace(-5, 5, 50)[None]
    private = public + 3.0
    row = torch.zeros(1, dtype=torch.int64)
    assert clip_rows(DRAW, private, public, row, "log_probability").abs().max() < GRID / 2000
    assert (clip_rows(DRAW, private, public, row, "logit") == DRAW.clip_steps).all()


def test_clipping_needs_float32():
    row = torch.zeros(1, dtype=torch.int64)
    for dtype in (torch.float64, torch.bfloat16):
        with pytest.raises(TypeError, match="float32"):
            clip_rows(DRAW, torch.zeros(1, 3, dtype=dtype), torch.zeros(1, 3), row, "logit")


def test_sums_are_by_generation_and_absent_rows_add_nothing():
    clipped = torch.tensor([[1, -2], [10, 20], [100, 200]])
    assert sum_rows(clipped, torch.tensor([2, 0, 2]), 3).tolist() == [[10, 20], [0, 0], [101, 198]]
    assert sum_rows(clipped[:0], torch.tensor([], dtype=torch.int64), 2).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_without_any_unit_is_drawn_from_the_public_logits(variant):
    public = torch.tensor([[1.0, 3.0]])
    no_rows, none = torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)
    assert summed(DRAW, public, no_rows, none, variant).tolist() == [[-2 * 4 * GRID, 0]]


def test_scores_are_public_logits_in_units_of_g_over_b_plus_the_sum():
    public = torch.tensor([[1.0, 3.0, -0.5]])
    sums = torch.tensor([[5, -7, 0]])
    assert utilities(DRAW, public, sums).tolist() == [[-2 * 4 * GRID + 5, -7, round(-3.5 * 4 * GRID)]]


@pytest.mark.parametrize("exponent", [16, 18, 24])
def test_scores_are_on_the_grid_that_the_draw_names(exponent):
    draw = IntegerTableMechanism(2**exponent // 2, 4, Fraction(1), 0, grid_exponent=exponent)
    public, private = torch.tensor([[1.0, 3.0, -0.5]]), torch.tensor([[1.25, 9.0, -0.5 - 2**-10]])
    row = torch.zeros(1, dtype=torch.int64)
    clipped = clip_rows(draw, private, public, row, "logit")
    assert clipped.tolist() == [[2**exponent // 4, 2**exponent // 2, -(2**exponent) // 2**10]]
    assert utilities(draw, public, clipped - clipped).tolist() == [[-8 * 2**exponent, 0, -14 * 2**exponent]]


def test_scores_of_no_candidate_and_of_huge_logits_stay_far_from_overflow():
    public = torch.tensor([[0.0, -math.inf, math.nan, -3e38, math.inf]])
    found = utilities(IntegerTableMechanism(1, 2**20, Fraction(1), 0), public, torch.zeros(1, 5, dtype=torch.int64))
    assert found.tolist() == [[0] + [LOWEST_SCORE] * 4]


def test_candidates_are_top_k_plus():
    """k = 2: l_2 = 4; C = 0.5, B = 4: everything from 4 - 0.25 up."""
    public = torch.tensor([[0.0, 5.0, 3.75, 4.0, 3.7], [1.0, 1.0, 1.0, 0.0, 9.0]])
    found = candidates(public, 2, DRAW)
    kept = [set(t[a].tolist()) for t, a in zip(found.tokens, found.allowed, strict=True)]
    assert kept == [{1, 2, 3}, {0, 1, 2, 4}]
    assert found.tokens.shape == (2, 4)


@pytest.mark.parametrize("top_k", [None, 0, 5, 6])
def test_the_whole_vocabulary_is_a_choice(top_k):
    public = torch.tensor([[0.0, math.nan, 3.0, -math.inf, 1.0]])
    found = candidates(public, top_k, DRAW)
    assert found.tokens.tolist() == [[0, 1, 2, 3, 4]]
    assert found.allowed.tolist() == [[True, False, True, False, True]]


@settings(max_examples=200)
@given(batches(), st.integers(1, 8))
def test_candidates_by_the_definition(batch, top_k):
    public = batch[0]
    found = candidates(public, top_k, DRAW)
    for row, tokens, allowed in zip(public.tolist(), found.tokens, found.allowed, strict=True):
        finite = sorted((logit for logit in row if math.isfinite(logit)), reverse=True)
        cut = finite[top_k - 1] - 0.25 if top_k <= len(finite) else -math.inf
        wanted = {token for token, logit in enumerate(row) if math.isfinite(logit) and logit >= np.float32(cut)}
        assert set(tokens[allowed].tolist()) == wanted


def test_a_model_without_a_finite_public_logit_is_named():
    with refusal("NoCandidates") as refused:
        candidates(torch.tensor([[0.0, 1.0], [math.nan, -math.inf]]), 1, DRAW)
    assert refused.value.exit_code == 3


def test_gathering_candidates():
    public = torch.tensor([[0.0, 5.0, 4.9], [7.0, 0.0, 0.0]])
    found = candidates(public, 1, DRAW)
    assert found.of_public(public).tolist() == [[5.0, pytest.approx(4.9)], [7.0, -math.inf]]
    private = torch.arange(9.0).reshape(3, 3)
    rows = found.of_rows(private, torch.tensor([1, 0, 0]))
    assert rows[:, 0].tolist() == [0.0, 4.0, 7.0]
    assert rows[1:, 1].tolist() == [5.0, 8.0]


@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("a")])
def test_tokens_are_drawn_among_the_candidates(rng):
    public = torch.tensor([[0.0, 50.0, 0.0, 49.9], [60.0, 0.0, 0.0, 0.0]])
    found = candidates(public, 1, DRAW)
    row_sums = torch.zeros(found.tokens.shape, dtype=torch.int64)
    summed_scores = utilities(DRAW, found.of_public(public), row_sums)
    drawn = [draw_tokens(DRAW, found, summed_scores, rng) for _ in range(60)]
    assert {tokens[0] for tokens in drawn} == {1, 3}
    assert {tokens[1] for tokens in drawn} == {0}
