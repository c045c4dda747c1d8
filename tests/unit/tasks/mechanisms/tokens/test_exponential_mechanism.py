"""The token draw: what it costs, how it is calibrated, who confirms it."""

import json
from fractions import Fraction

import opendp.prelude as dp
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.conversions import bounded_range
from tasks.accounting.rounding import InexactNumber
from tasks.accounting.zcdp import rho_of
from tasks.mechanisms.core.opendp_check import OpenDPChargesMore, check_with_opendp
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.tokens import exponential_mechanism
from tasks.mechanisms.tokens.exponential_mechanism import (
    LARGEST_CLIP_STEPS,
    BudgetTooSmall,
    ExponentialMechanism,
    TokenDrawInvalid,
    calibrate,
)
from tests.golden.accounting_oracle import GOLDEN

pytestmark = pytest.mark.dear

TEMPERATURES = st.decimals("0.05", "5", places=2)
REFERENCES = st.integers(1, 500)
DRAWS = st.builds(ExponentialMechanism, st.integers(1, LARGEST_CLIP_STEPS), REFERENCES, TEMPERATURES.map(Fraction))


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(row["arguments"], row["value"]) for row in json.loads(GOLDEN.read_text()) if row["function"] == "clip_steps"],
)
def test_golden_clip_norm(arguments, value):
    epsilon, delta, draws, references, temperature = arguments
    found = calibrate(rho_of(epsilon, delta), draws, references, temperature)
    assert found.clip_steps == value
    assert float(found.clip_norm) == pytest.approx(0.5911, abs=5e-5)


def test_the_loss_is_the_formula():
    """C^2 / (2 B^2 tau^2) with C = 1/2, B = 4, tau = 1/2: 1/32."""
    draw = ExponentialMechanism(2**19, 4, Fraction(1, 2))
    assert draw.clip_norm == Fraction(1, 2)
    assert draw.bounded_range == Fraction(1, 2)
    assert draw.loss() == Amount(31250000000)
    assert draw.scale == 2**21


@given(DRAWS)
def test_the_loss_is_the_bounded_range_row(draw):
    assert draw.loss() == bounded_range(draw.bounded_range)


@given(st.integers(1, 10**14), st.integers(1, 5000), REFERENCES, TEMPERATURES)
def test_a_calibrated_plan_never_exceeds_its_budget(rho, draws, references, temperature):
    try:
        found = calibrate(rho, draws, references, temperature)
    except BudgetTooSmall:
        assert ExponentialMechanism(1, references, Fraction(temperature)).loss().rho * draws > rho
        return
    assert found.event(draws).loss.fits(Amount(rho))


@given(st.integers(10**9, 10**13), st.integers(1, 2000), REFERENCES, TEMPERATURES)
def test_a_calibrated_plan_uses_its_budget(rho, draws, references, temperature):
    assume(rho // draws >= 1000)
    found = calibrate(rho, draws, references, temperature)
    assume(2**11 <= found.clip_steps < LARGEST_CLIP_STEPS)
    assert found.event(draws).loss.rho >= rho * 0.999


@given(st.integers(1, 10**13), st.integers(1, 500), REFERENCES, TEMPERATURES)
def test_one_grid_step_more_would_not_fit(rho, draws, references, temperature):
    try:
        found = calibrate(rho, draws, references, temperature)
    except BudgetTooSmall:
        return
    assume(found.clip_steps < LARGEST_CLIP_STEPS)
    more = ExponentialMechanism(found.clip_steps + 1, references, Fraction(temperature))
    assert not more.event(draws).loss.fits(Amount(rho))


@given(DRAWS, st.integers(2, 10**4), st.integers(1, 100))
def test_instalments_add_up_to_the_plan(draw, draws, instalment):
    first = min(instalment, draws - 1)
    assert draw.event(first).loss + draw.event(draws - first).loss == draw.event(draws).loss


@given(DRAWS)
def test_more_noise_costs_less(draw):
    hotter = ExponentialMechanism(draw.clip_steps, draw.references, draw.temperature + 1)
    wider = ExponentialMechanism(draw.clip_steps, draw.references + 1, draw.temperature)
    assert hotter.loss().rho <= draw.loss().rho >= wider.loss().rho


@given(DRAWS)
def test_the_scale_never_falls_below_what_is_charged(draw):
    exactly = draw.temperature * draw.references * 2**20
    assert exactly <= Fraction(draw.scale) <= exactly * (1 + Fraction(1, 2**52))


def noisy_max(draw: ExponentialMechanism, monotonic: bool):
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=monotonic)
    return dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=draw.scale)


@given(DRAWS)
def test_opendps_map_is_our_loss(draw):
    exactly = float(draw.bounded_range**2 / 8)
    assert noisy_max(draw, monotonic=False).map(draw.clip_steps) == pytest.approx(exactly, rel=1e-12)


@given(DRAWS)
def test_the_monotonic_map_is_four_times_too_low(draw):
    exactly = float(draw.bounded_range**2 / 8)
    assert noisy_max(draw, monotonic=True).map(draw.clip_steps) == pytest.approx(exactly / 4, rel=1e-12)


def test_an_opendp_that_charges_more_is_not_drawn_with():
    draw = ExponentialMechanism(2**19, 4, Fraction(1))
    honest = noisy_max(draw, monotonic=False)
    assert check_with_opendp(honest, draw.clip_steps, draw.loss()) is honest
    with pytest.raises(OpenDPChargesMore) as refusal:
        check_with_opendp(honest, draw.clip_steps, Amount(draw.loss().rho * 999 // 1000))
    assert refusal.value.exit_code == 3


def test_the_shipped_sampler_is_the_confirmed_one(monkeypatch):
    asked = []
    monkeypatch.setattr(
        exponential_mechanism, "check_with_opendp", lambda *arguments: asked.append(arguments) or arguments[0]
    )
    draw = ExponentialMechanism(123457, 9, Fraction(1))
    assert draw.draw([0, -(2**52)], OS_RANDOM) in (0, 1)
    [(shipped, *charged)] = asked
    assert charged == [123457, draw.loss()]
    # Its own map, too: a monotonic metric would have confirmed four times as much.
    assert shipped.map(123457) == pytest.approx(float(draw.bounded_range**2 / 8), rel=1e-12)


def test_a_far_better_candidate_always_wins():
    draw = ExponentialMechanism(2**19, 7, Fraction(1))
    for best in range(3):
        scores = [-(2**52)] * 3
        scores[best] = 0
        assert draw.draw(scores, OS_RANDOM) == best


@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("one")])
def test_a_single_candidate_is_drawn_and_none_is_refused(rng):
    draw = ExponentialMechanism(2**19, 7, Fraction(1))
    assert draw.draw([-5], rng) == 0
    with pytest.raises(ValueError, match="at least one candidate"):
        draw.draw([], rng)


def test_the_test_mode_repeats_itself():
    draw = ExponentialMechanism(2**19, 7, Fraction(1))
    scores = [-(2**22) * place for place in range(20)]
    one, same = DeterministicRandom("a"), DeterministicRandom("a")
    drawn = [draw.draw(scores, one) for _ in range(50)]
    assert drawn == [draw.draw(scores, same) for _ in range(50)]
    assert len(set(drawn)) > 1


def test_the_event_tells_everything():
    event = ExponentialMechanism(2**19, 4, Fraction(9, 10)).event(48)
    assert event.mechanism == "token_draw"
    assert event.count == 48
    assert event.parameters == {
        "clip_steps": 2**19,
        "grid_exponent": 20,
        "references": 4,
        "temperature": "9/10",
        "eta": "5/18",
    }
    assert event.loss == ExponentialMechanism(2**19, 4, Fraction(9, 10)).loss() * 48
    assert event.relation == "add_or_remove_one"


@given(DRAWS, st.integers(1, 1000))
def test_an_event_can_be_read_back(draw, draws):
    stored = PrivacyEvent.from_json(json.loads(json.dumps(draw.event(draws).to_json())))
    assert ExponentialMechanism.from_event(stored) == draw


def test_another_grid_is_not_ours():
    event = ExponentialMechanism(5, 4, Fraction(1)).event(1)
    other = PrivacyEvent("token_draw", 1, {**event.parameters, "grid_exponent": 16}, event.loss, event.dp_event)
    with pytest.raises(ValueError, match="2\\^-20"):
        ExponentialMechanism.from_event(other)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: ExponentialMechanism(0, 7, Fraction(1)),
        lambda: ExponentialMechanism(2**31, 7, Fraction(1)),
        lambda: ExponentialMechanism(5, 0, Fraction(1)),
        lambda: ExponentialMechanism(5, 2**20 + 1, Fraction(1)),
        lambda: ExponentialMechanism(5, 7, Fraction(0)),
        lambda: ExponentialMechanism(5, 7, Fraction(1, 1001)),
        lambda: ExponentialMechanism(5, 7, Fraction(1001)),
        lambda: calibrate(10**12, 0, 7, "1"),
        lambda: calibrate(10**12, 5, 0, "1"),
        lambda: calibrate(10**12, 5, 7, "-1"),
    ],
)
def test_parameters_out_of_range_are_refused(bad):
    with pytest.raises(TokenDrawInvalid) as refusal:
        bad()
    assert refusal.value.exit_code == 2


def test_a_budget_below_one_grid_step_is_refused_by_name():
    with pytest.raises(BudgetTooSmall) as refusal:
        calibrate(1, 500, 7, "1")
    assert refusal.value.facts == {"draws": 500, "references": 7}
    assert "larger epsilon" in refusal.value.advice


def test_a_temperature_in_binary_is_refused():
    with pytest.raises(InexactNumber):
        calibrate(10**12, 5, 7, 0.9)


def test_an_event_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one draw"):
        ExponentialMechanism(5, 7, Fraction(1)).event(0)
