"""The two samplers behind one interface: what both must do, and what tells them apart."""

import json
from fractions import Fraction
from typing import get_args

import pytest
import torch

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts.noisy_count import NoisyCount
from tasks.mechanisms.registry import recompute
from tasks.mechanisms.tokens import sampler
from tasks.mechanisms.tokens.exponential_mechanism import BudgetTooSmall, ExponentialMechanism, TokenDrawInvalid
from tasks.mechanisms.tokens.integer_table import WHOLE_TABLE_NATS, IntegerTableMechanism

pytestmark = pytest.mark.contract

RHO = 266313968646
CLASSES = {"table": IntegerTableMechanism, "opendp": ExponentialMechanism}


@pytest.fixture(params=sampler.KINDS)
def kind(request):
    return request.param


def test_kinds():
    assert set(CLASSES) == set(sampler.KINDS) == set(get_args(sampler.Kind))
    assert sampler.DEFAULT == "table"


def test_a_kind_is_calibrated_to_its_budget(kind):
    draw = sampler.calibrate(kind, RHO, 48, 7, "1")
    assert isinstance(draw, CLASSES[kind])
    assert 0.99999 * RHO < draw.event(48).loss.rho <= RHO
    assert draw.references == 7
    assert draw.temperature == 1
    assert draw.clip_norm == Fraction(draw.clip_steps, 2**draw.grid_exponent)
    assert draw.loss().rho == pytest.approx(float(draw.bounded_range**2 / 8) * 1e12, abs=1)


def test_a_stored_event_gives_the_same_draw_and_charge(kind):
    draw = sampler.calibrate(kind, RHO, 48, 7, "9/10", head_room_nats=WHOLE_TABLE_NATS)
    stored = PrivacyEvent.from_json(json.loads(json.dumps(draw.event(48).to_json())))
    assert sampler.from_event(stored) == draw
    assert recompute(stored) == draw.loss() * 48


def test_an_event_of_no_token_draw_is_none():
    with pytest.raises(KeyError):
        sampler.from_event(NoisyCount(Fraction(2)).event())


def test_a_blend_is_a_draw_at_twice_the_temperature_or_with_twice_the_references(kind):
    """Half of a mean of s rows, drawn at tau: sensitivity c/(2s), c^2 / (8 s^2 tau^2) (PRIVACY §4.3)."""
    hotter = sampler.calibrate(kind, RHO, 48, 7, "2")
    wider = sampler.calibrate(kind, RHO, 48, 14, "1")
    assert hotter.clip_steps == wider.clip_steps
    assert hotter.loss() == wider.loss()
    charge = hotter.clip_norm**2 / (8 * 7**2)
    assert hotter.loss().rho == pytest.approx(float(charge) * 1e12, rel=2e-5)


def test_bad_public_parameters_are_refused_alike(kind):
    for arguments in ((RHO, 0, 7, "1"), (RHO, 48, 0, "1"), (RHO, 48, 7, "0")):
        with pytest.raises(TokenDrawInvalid):
            sampler.calibrate(kind, *arguments)
    with pytest.raises(BudgetTooSmall):
        sampler.calibrate(kind, 47, 48, 7, "1")


@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("a")])
def test_a_place_for_each_generation(kind, rng):
    draw = sampler.calibrate(kind, RHO, 48, 7, "1")
    rows = torch.tensor([[0, -(2**40), -(2**40)], [-(2**40), 0, 0], [0, 0, 0]])
    allowed = torch.tensor([[True, True, True], [True, False, True], [False, False, True]])
    assert [draw.draw_each(rows, allowed, rng).tolist() for _ in range(20)] == [[0, 2, 2]] * 20
    assert draw.draw_each(rows[:0], allowed[:0], rng).tolist() == []
    with pytest.raises(ValueError, match="at least one candidate"):
        draw.draw_each(rows, torch.zeros_like(allowed), rng)


def test_the_charges_differ_by_less_than_the_tables_last_step():
    table, opendp = (sampler.calibrate(kind, RHO, 48, 7, "1") for kind in ("table", "opendp"))
    assert table.event(48).loss.fits(Amount(RHO))
    assert 1 - table.clip_norm / opendp.clip_norm < Fraction(1, 100_000)
