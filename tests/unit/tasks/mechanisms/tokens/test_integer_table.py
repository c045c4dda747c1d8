"""The integer draw: what it costs, how it is calibrated, and that it draws what its table says, to the last unit."""

import itertools
import json
import math
from bisect import bisect_right
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models_db.errors import AlmonerError
from models_db.values.amounts import Amount
from tasks.accounting.rounding import InexactNumber, enclose, iv, upper
from tasks.accounting.zcdp import bounded_range, rho_of
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.tokens import integer_table
from tasks.mechanisms.tokens.integer_table import (
    LARGEST_CLIP_STEPS,
    IntegerTableMechanism,
    calibrate,
    public_sampler,
)
from tests.golden.accounting_oracle import GOLDEN
from tests.opendp_draw import noisy_max
from tests.refusals import refusal

pytestmark = [pytest.mark.dear, pytest.mark.contract]

GOLDEN_STEPS = 619820
GOLDEN_ETA = "380301221450993/2251799813685248"
DRAW = IntegerTableMechanism(2**19, 7, Fraction(1), 7 * 2**19)
TEMPERATURES = st.decimals("0.05", "5", places=2)
REFERENCES = st.integers(1, 500)
DRAWS = st.builds(
    IntegerTableMechanism,
    st.integers(1, LARGEST_CLIP_STEPS),
    REFERENCES,
    TEMPERATURES.map(Fraction),
    st.integers(0, 2**30),
    st.integers(16, 24),
    st.integers(40, 62),
    st.integers(20, 30),
)
# Coarse and short, so that saturation, floor and the table's end are all within reach of a few thousand units.
COARSE = st.builds(
    IntegerTableMechanism,
    st.integers(1, 60),
    st.just(1),
    st.just(Fraction(1, 1000)),
    st.integers(0, 200),
    st.just(16),
    st.integers(22, 62),
    st.just(20),
)
# So fine that several units of score share a weight, and a move that is no multiple of them may cross one more place.
FINE = st.builds(IntegerTableMechanism, st.integers(1, 60), st.just(7), st.just(Fraction(1)), st.integers(0, 200))
SCORES = st.integers(-3000, 400)
EVERY = torch.ones(1, 1, dtype=torch.bool)


def as_written(draw, row, allowed):
    """The definition, in Python's integers: w(max(0, U - k) >> t), 0 where there is no candidate."""
    table, stride = draw.table, draw.stride
    below = [max(0, draw.head_room - score) >> stride for score in row]
    return [table.weight(index) * usable for index, usable in zip(below, allowed, strict=True)]


def drawn_as_written(draw, rows, allowed, rng):
    """The draw of the definition from the same random bytes."""
    weights = [as_written(draw, row, usable) for row, usable in zip(rows, allowed, strict=True)]
    numbers = integer_table.uniform_below_each([sum(row) for row in weights], rng)
    return [bisect_right(list(itertools.accumulate(row)), number) for row, number in zip(weights, numbers, strict=True)]


def draw_each(draw, rows, rng=OS_RANDOM):
    scores = torch.tensor(rows, dtype=torch.int64)
    return draw.draw_each(scores, EVERY.expand_as(scores), rng).tolist()


def test_the_loss_is_close_to_the_formula():
    """A = C / (B tau) = 1/8 and a little more: 1/128 of rho."""
    draw = IntegerTableMechanism(2**19, 4, Fraction(1), 0)
    assert Fraction(1, 8) < draw.fall < Fraction(1, 8) + Fraction(1, 2**23)
    assert draw.bounded_range == 2 * draw.fall
    assert 7812500000 < draw.loss().rho < 7812500000 * (1 + 2e-6)


def test_golden_draw():
    """Epsilon 10, delta 1e-5, T = 500, B = 7, tau = 1: PRIVACY §4.1 has C = 0.5911."""
    draw = calibrate(rho_of("10", "1e-5"), 500, 7, "1")
    assert (draw.clip_steps, draw.stride, draw.distance) == (GOLDEN_STEPS, 2, GOLDEN_STEPS // 4)
    assert draw.head_room == 7 * GOLDEN_STEPS
    assert draw.event(500).parameters["eta"] == GOLDEN_ETA
    assert float(draw.clip_norm) == pytest.approx(0.5911, abs=5e-5)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(row["arguments"], row["value"]) for row in json.loads(GOLDEN.read_text()) if row["function"] == "clip_steps"],
)
def test_golden_clip_norm(arguments, value):
    epsilon, delta, draws, references, temperature = arguments
    found = calibrate(rho_of(epsilon, delta), draws, references, temperature)
    assert 0 <= value - found.clip_steps <= 2**found.stride


@given(st.integers(10**9, 10**13), st.integers(1, 2000), REFERENCES, TEMPERATURES)
def test_opendps_map_confirms_the_charge(rho, draws, references, temperature):
    draw = calibrate(rho, draws, references, temperature)
    assume(draw.distance < draw.table.end)
    ideal = draw.clip_norm / (references * Fraction(temperature))
    assert noisy_max(draw).map(draw.clip_steps) == pytest.approx(float(ideal**2 / 2), rel=1e-9)
    assert 0 <= draw.fall - ideal <= Fraction(1, 2**22)


@settings(max_examples=50)
@given(DRAWS)
def test_the_loss_is_the_bounded_range_row(draw):
    assert draw.loss() == bounded_range(draw.bounded_range)


@settings(max_examples=100)
@given(st.one_of(COARSE, FINE), st.data())
def test_neighbouring_scores_stay_within_the_charge(draw, data):
    """Exact distributions of neighbours: the spread of ln(P/P') against eta, and D_alpha against alpha rho."""
    size, steps = data.draw(st.integers(2, 6)), draw.clip_steps
    row = data.draw(st.lists(SCORES, min_size=size, max_size=size))
    move = st.one_of(st.sampled_from([-steps, steps]), st.integers(-steps, steps))
    moves = data.draw(st.lists(move, min_size=size, max_size=size))
    other = [score + change for score, change in zip(row, moves, strict=True)]
    ours, theirs = as_written(draw, row, [1] * size), as_written(draw, other, [1] * size)
    ratios = [Fraction(one, two) for one, two in zip(ours, theirs, strict=True)]
    assert upper(iv.log(enclose(max(ratios) / min(ratios)))) <= draw.bounded_range + Fraction(1, 2**200)
    rho = float(draw.fall**2 / 2)
    p, q = ([weight / sum(weights) for weight in weights] for weights in (ours, theirs))
    for alpha in (1.01, 2, 5, 20):
        divergence = math.log(math.fsum(a**alpha * b ** (1 - alpha) for a, b in zip(p, q, strict=True))) / (alpha - 1)
        assert divergence <= alpha * rho + 1e-9


@settings(max_examples=100)
@given(st.one_of(COARSE, FINE), st.data())
def test_the_draw_is_the_definition_to_the_last_unit(draw, data):
    generations, size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    anything = st.one_of(SCORES, st.integers(-(2**63), 2**63 - 1))
    row = st.lists(anything, min_size=size, max_size=size)
    rows = data.draw(st.lists(row, min_size=generations, max_size=generations))
    usable = st.lists(st.booleans(), min_size=size, max_size=size).filter(any)
    allowed = data.draw(st.lists(usable, min_size=generations, max_size=generations))
    drawn = draw.draw_each(torch.tensor(rows), torch.tensor(allowed), DeterministicRandom("a")).tolist()
    assert drawn == drawn_as_written(draw, rows, allowed, DeterministicRandom("a"))
    assert all(usable[place] for usable, place in zip(allowed, drawn, strict=True))


WEIGHTS = st.one_of(st.integers(0, 2**62), st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**62 - 1, 2**62]))


@settings(max_examples=200)
@given(st.lists(WEIGHTS, min_size=1, max_size=12).filter(any))
def test_every_boundary_of_the_running_sums_is_where_it_should_be(weights):
    """The last number of each place and the first of the next, where the two halves carry, too."""
    sums = list(itertools.accumulate(weights))
    near = [number for total in sums for number in (total - 1, total, total + 1)]
    numbers = sorted({number for number in near if 0 <= number < sums[-1]})
    asked = []

    def given_numbers(bounds, rng):
        asked.extend(bounds)
        return numbers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integer_table, "uniform_below_each", given_numbers)
        places = integer_table._places(torch.tensor([weights] * len(numbers)), OS_RANDOM).tolist()
    assert places == [bisect_right(sums, number) for number in numbers]
    assert asked == [sums[-1]] * len(numbers)


def test_a_vocabulary_of_equal_largest_weights_does_not_overflow(monkeypatch):
    """2^20 weights of 2^62 are 2^82; the last number below their sum is the last place."""
    size = 2**20
    totals = []
    monkeypatch.setattr(
        integer_table, "uniform_below_each", lambda bounds, rng: totals.extend(bounds) or [bounds[0] - 1]
    )
    assert draw_each(DRAW, [[2**62] * size]) == [size - 1]
    assert totals == [2**82]


def test_64_generations_of_a_whole_vocabulary():
    torch.manual_seed(5)
    scores = (torch.randn(64, 49152) * 3 * 7 * 2**20).to(torch.int64)
    allowed = torch.rand(64, 49152) > 0.1
    drawn = DRAW.draw_each(scores, allowed, DeterministicRandom("b")).tolist()
    assert len(drawn) == 64
    assert bool(allowed[torch.arange(64), torch.tensor(drawn)].all())
    # The parts in which the work is done draw from one stream, in order.
    rng = DeterministicRandom("b")
    at_once = 2**18 // 49152
    for start in (0, at_once):
        part = slice(start, start + at_once)
        assert drawn[part] == drawn_as_written(DRAW, scores[part].tolist(), allowed[part].tolist(), rng)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_device_draws_what_the_cpu_draws(monkeypatch):
    monkeypatch.setattr(integer_table, "_SCORES_AT_ONCE", {})  # the same parts, so the same stream
    torch.manual_seed(6)
    scores = (torch.randn(64, 49152) * 3 * 7 * 2**20).to(torch.int64)
    allowed = torch.rand(64, 49152) > 0.1
    here = DRAW.draw_each(scores, allowed, DeterministicRandom("c"))
    assert torch.equal(DRAW.draw_each(scores.cuda(), allowed.cuda(), DeterministicRandom("c")).cpu(), here)


def test_scores_above_the_head_room_saturate():
    top = DRAW.head_room
    assert as_written(DRAW, [top, top + 1, 2**63 - 1], [1] * 3) == [2**62] * 3
    drawn = draw_each(DRAW, [[top, 2**63 - 1]] * 200)
    assert 50 < sum(drawn) < 150


def test_scores_all_at_the_floor_are_drawn_evenly():
    drawn = draw_each(DRAW, [[-(2**63), -(2**52), -(2**40)]] * 600)
    assert all(100 < drawn.count(place) < 300 for place in range(3))


def test_a_far_better_candidate_always_wins():
    for best in range(3):
        row = [-(2**52)] * 3
        row[best] = 0
        assert draw_each(DRAW, [row] * 50) == [best] * 50


def test_a_single_candidate_is_drawn_and_none_is_refused():
    assert draw_each(DRAW, [[-5], [-(2**63)]]) == [0, 0]
    none = torch.zeros(0, 5, dtype=torch.int64)
    assert DRAW.draw_each(none, none.bool(), OS_RANDOM).tolist() == []
    for shape, allowed in (((2, 3), [[True] * 3, [False] * 3]), ((1, 0), [[]])):
        with pytest.raises(ValueError, match="at least one candidate"):
            DRAW.draw_each(torch.zeros(shape, dtype=torch.int64), torch.tensor(allowed, dtype=torch.bool), OS_RANDOM)


def test_floats_are_no_scores():
    with pytest.raises(TypeError, match="int64"):
        DRAW.draw_each(torch.tensor([[math.nan, 0.0]]), torch.ones(1, 2, dtype=torch.bool), OS_RANDOM)


@settings(max_examples=60)
@given(st.integers(1, 10**14), st.integers(1, 5000), REFERENCES, TEMPERATURES)
def test_a_calibrated_plan_never_exceeds_its_budget_and_one_step_more_would(rho, draws, references, temperature):
    tau = Fraction(temperature)
    try:
        found = calibrate(rho, draws, references, temperature)
    except AlmonerError as refused:
        if refused.code != "BudgetTooSmall":
            raise
        least = IntegerTableMechanism(1, references, tau, 0)
        assert least.loss().rho * draws > rho
        return
    assert found.event(draws).loss.fits(Amount(rho))
    more = found.clip_steps + 2**found.stride
    assume(more <= LARGEST_CLIP_STEPS)
    assume(found.distance < found.table.end)
    assert not IntegerTableMechanism(more, references, tau, 0).event(draws).loss.fits(Amount(rho))


@settings(max_examples=60)
@given(st.integers(10**9, 10**13), st.integers(1, 2000), REFERENCES, TEMPERATURES)
def test_the_table_costs_next_to_no_clip_norm(rho, draws, references, temperature):
    """Against the ideal draw, C = B tau sqrt(2 rho / T): at most a step and the table's 2^-23 nats less, never more."""
    ours = calibrate(rho, draws, references, temperature)
    ideal = math.isqrt(
        math.floor(2 * Fraction(rho // draws, 10**12) * (references * Fraction(temperature)) ** 2 * 4**20)
    )
    assume(ours.clip_steps + 2**ours.stride < LARGEST_CLIP_STEPS)
    assume(ours.distance < ours.table.end // 2)
    lost = Fraction(ideal - ours.clip_steps, 2**20) / (references * Fraction(temperature))
    assert 0 <= lost <= Fraction(2**ours.stride, ours.references * 2**20) / Fraction(temperature) + Fraction(1, 2**22)


def test_a_table_that_can_leak_no_more_is_affordable_at_any_clip_norm():
    """Its weights span 26.3 nats: that is its largest A."""
    found = calibrate(10**15, 1, 1, "1")
    assert found.clip_steps == LARGEST_CLIP_STEPS
    assert Fraction(2633, 100) < found.fall < Fraction(2635, 100)


@pytest.mark.parametrize(("nats", "room"), [(8, 8 * 7 * 2**20), (26, 26 * 7 * 2**20), (100, None)])
def test_head_room_is_what_agreeing_rows_add_up_to_a_limit(nats, room):
    draw = calibrate(100 * 10**12, 1, 7, "1", head_room_nats=nats)
    assert draw.head_room == (room or 7 * draw.clip_steps)
    assert calibrate(100 * 10**12, 1, 7, "1").loss() == draw.loss()


def test_extreme_public_parameters():
    for references, temperature in ((1, "0.001"), (1, "1000"), (2**20, "0.001"), (2**20, "1000")):
        draw = calibrate(10**12, 10, references, temperature)
        assert draw.event(10).loss.fits(Amount(10**12))
        assert draw_each(draw, [[0, -(2**60)], [-(2**60), 0]]) in ([0, 1], [0, 0], [1, 1])


@pytest.mark.parametrize(
    "bad",
    [
        {"clip_steps": 0},
        {"clip_steps": 2**31},
        {"references": 0},
        {"temperature": Fraction(1, 1001)},
        {"head_room": -1},
        {"head_room": 2**52 + 1},
        {"grid_exponent": 15},
        {"grid_exponent": 25},
        {"floor_bits": 19},
        {"floor_bits": 62},
        {"weight_bits": 63},
    ],
)
def test_parameters_out_of_range_are_named(bad):
    good = {"clip_steps": 1, "references": 1, "temperature": Fraction(1), "head_room": 0}
    with refusal("TokenDrawInvalid"):
        IntegerTableMechanism(**{**good, **bad})


def test_a_plan_without_draws_or_budget_is_refused():
    with refusal("TokenDrawInvalid", match="at least one draw"):
        calibrate(10**12, 0, 7, "1")
    with refusal("BudgetTooSmall"):
        calibrate(9, 10, 7, "1")
    with refusal("TokenDrawInvalid", match="references"):
        calibrate(10**12, 1, 0, "1")


def test_a_blend_is_a_draw_at_twice_the_temperature_or_with_twice_the_references():
    """Half of a mean of s rows, drawn at tau: sensitivity c/(2s), c^2 / (8 s^2 tau^2) (PRIVACY §4.3)."""
    rho = 266313968646
    hotter, wider = calibrate(rho, 48, 7, "2"), calibrate(rho, 48, 14, "1")
    assert hotter.clip_steps == wider.clip_steps
    assert hotter.loss() == wider.loss()
    assert hotter.loss().rho == pytest.approx(float(hotter.clip_norm**2 / (8 * 7**2)) * 1e12, rel=2e-5)


def test_a_temperature_in_binary_is_refused():
    for draw in (lambda: calibrate(10**12, 5, 7, 0.9), lambda: public_sampler(0.9)):
        with pytest.raises(InexactNumber):
            draw()
