"""The tests of Amin et al.: parameters, charge, calibration, and one run at a time."""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.errors import AlmonerError
from models_db.values.amounts import RHO_UNIT
from tasks.accounting.zcdp import pure_dp
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.registry import recompute
from tasks.mechanisms.tokens import sparse_vector
from tasks.mechanisms.tokens.sparse_vector import (
    LARGEST_NOISE,
    LEAST_NOISE_RATIO,
    NOISE_GRID,
    NORM,
    SparseVector,
    calibrate_tests,
)
from tests.refusals import refusal

NOISES = st.integers(1, LARGEST_NOISE * NOISE_GRID).map(lambda steps: Fraction(steps, NOISE_GRID))


@given(NOISES, st.integers(1, 2**20))
def test_a_run_costs_no_more_than_the_stated_bound_and_nearly_that(noise: Fraction, references: int) -> None:
    """2/(s^2 sigma^2) bounds epsilon tanh(epsilon/2) at the paper's split (PRIVACY §4.3), which tends to it."""
    tests = SparseVector(noise, references)
    stated = 2 / (tests.references * tests.sigma) ** 2
    assert tests.epsilon == 2 / (tests.references * tests.sigma)
    assert Fraction(tests.loss().rho - 1, RHO_UNIT) < stated
    if tests.epsilon < Fraction(1, 10):
        assert tests.loss().rho >= math.floor(stated * RHO_UNIT * Fraction(99, 100))


@given(NOISES, st.integers(1, 2**20), st.integers(7, 160))
def test_events_of_either_split_are_read_back(noise: Fraction, references: int, tenths: int) -> None:
    for tests in (SparseVector(noise, references), SparseVector(noise, references, Fraction(tenths, 10))):
        event = tests.event(3)
        assert SparseVector.from_event(event) == tests
        assert ("test_ratio" in event.parameters) == (tests.test_ratio != 2)
        assert recompute(event) == event.loss


def test_events_from_before_the_split_changed_mean_what_they_meant() -> None:
    event = SparseVector(Fraction(4), 7).event(1)
    assert dict(event.parameters) == {
        "noise_multiplier": "4", "references": 7, "norm": NORM, "sigma": "4/7", "epsilon": "1/2",
    }  # fmt: skip
    assert SparseVector.from_event(event).test_scale == 8 * NORM


@pytest.mark.parametrize("rho", [10**9, 10**11, 10**12])
def test_the_calibrated_split_has_the_least_noise_at_its_price(rho: int) -> None:
    """The difference of both noises has variance 2 (1 + a^2) b^2: 7 % less of its root than at the paper's split."""

    def spread(tests: SparseVector) -> float:
        return math.hypot(tests.threshold_scale, tests.test_scale)

    found = calibrate_tests(rho, 2, 7)
    assert found.test_ratio == LEAST_NOISE_RATIO
    others = [Fraction(tenths, 10) for tenths in (7, 10, 12, 13, 16, 20, 40)]
    equal = [replace(found, noise=_grid((1 + 2 / ratio) / found.epsilon), test_ratio=ratio) for ratio in others]
    assert all(other.epsilon <= found.epsilon for other in equal)
    assert all(spread(found) < spread(other) * 1.001 for other in equal)
    assert spread(found) / spread(equal[others.index(Fraction(2))]) == pytest.approx(0.931, abs=0.002)


def _grid(noise: Fraction) -> Fraction:
    return Fraction(math.ceil(noise * NOISE_GRID), NOISE_GRID)


@pytest.mark.parametrize("ratio", [Fraction(0), Fraction(-2), Fraction(1, 17), Fraction(17)])
def test_a_ratio_out_of_range_is_refused(ratio: Fraction) -> None:
    with refusal("ThresholdNoiseInvalid"):
        SparseVector(Fraction(4), 7, ratio)


def test_the_golden_charge() -> None:
    """b = 4: epsilon 1/2, rho = 0.5 tanh(0.25) = 0.122459..."""
    assert SparseVector(Fraction(4), 7).loss().rho == math.ceil(0.5 * math.tanh(0.25) * RHO_UNIT)


@given(st.integers(10, 10**13), st.integers(1, 500), st.integers(1, 1000))
def test_calibration_takes_the_least_noise_that_is_affordable(rho: int, runs: int, references: int) -> None:
    try:
        found = calibrate_tests(rho, runs, references)
    except AlmonerError as refused:
        if refused.code != "BudgetTooSmall":
            raise
        assert pure_dp(Fraction(163, 63 * LARGEST_NOISE)).rho * runs > rho
        return
    assert found.event(runs).loss.rho <= rho
    if found.noise > Fraction(1, NOISE_GRID):
        assert replace(found, noise=found.noise - Fraction(1, NOISE_GRID)).event(runs).loss.rho > rho


@pytest.mark.parametrize(("rho", "runs"), [(0, 1), (9, 10)])
def test_a_budget_that_buys_no_test_is_refused(rho: int, runs: int) -> None:
    with refusal("BudgetTooSmall"):
        calibrate_tests(rho, runs, 7)


@pytest.mark.parametrize("noise", [Fraction(0), Fraction(-1), Fraction(1, 3), Fraction(LARGEST_NOISE + 1)])
def test_noise_out_of_range_is_refused(noise: Fraction) -> None:
    with refusal("ThresholdNoiseInvalid"):
        SparseVector(noise, 7)


def test_other_parameters_out_of_range_are_refused() -> None:
    with refusal("TokenDrawInvalid"):
        SparseVector(Fraction(1), 0)
    with refusal("TokenDrawInvalid"):
        calibrate_tests(10**12, 0, 7)
    with pytest.raises(ValueError, match="at least one run"):
        SparseVector(Fraction(1), 7).event(0)


@pytest.mark.parametrize("kind", ["begin", "below"])
@pytest.mark.parametrize("scale", ["threshold_scale", "test_scale"])
def test_noise_that_opendp_does_not_confirm_is_not_drawn(
    monkeypatch: pytest.MonkeyPatch, kind: str, scale: str
) -> None:
    """Half the noise of either sort costs more than a run is charged, whichever of the two is drawn first."""
    tests = SparseVector(Fraction(33), 7)
    monkeypatch.setattr(SparseVector, scale, property(lambda self: self.noise * NORM / 2))
    sparse_vector._confirmed_samplers.cache_clear()
    with refusal("OpenDPChargesMore"):
        tests.begin(Fraction(1, 2), OS_RANDOM) if kind == "begin" else tests.below(0, 0, OS_RANDOM)
    sparse_vector._confirmed_samplers.cache_clear()


@dataclass
class Drawn:
    """A measurement of OpenDP that remembers what was asked of it."""

    measurement: Any
    scale: float
    mapped: list[int] = field(default_factory=list)
    draws: int = 0

    def map(self, sensitivity: int) -> float:
        self.mapped.append(sensitivity)
        return float(self.measurement.map(sensitivity))

    def __call__(self, exact: int) -> int:
        assert self.mapped, "it was drawn from before OpenDP was asked about it"
        self.draws += 1
        return int(self.measurement(exact))


@pytest.mark.parametrize("ratio", [Fraction(2), LEAST_NOISE_RATIO])
def test_the_samplers_that_are_drawn_from_are_those_that_opendp_confirms(
    monkeypatch: pytest.MonkeyPatch, ratio: Fraction
) -> None:
    made: list[Drawn] = []

    def make(*space: object, scale: float) -> Drawn:
        made.append(Drawn(honest(*space, scale=scale), scale))
        return made[-1]

    honest = dp.m.make_laplace
    monkeypatch.setattr(dp.m, "make_laplace", make)
    sparse_vector._confirmed_samplers.cache_clear()
    tests = SparseVector(Fraction(35), 7, ratio)
    threshold = tests.begin(Fraction(1, 2), OS_RANDOM)
    for _ in range(3):
        tests.below(0, threshold, OS_RANDOM)
    sparse_vector._confirmed_samplers.cache_clear()
    found = [(each.scale, each.mapped, each.draws) for each in made]
    assert found == [(35 * NORM, [NORM], 1), (pytest.approx(float(ratio) * 35 * NORM, rel=1e-15), [2 * NORM], 3)]
    assert Fraction(made[1].scale) >= ratio * 35 * NORM, "rounded up"


def test_a_run_compares_distances_in_units_of_rows_and_norm() -> None:
    """With next to no noise the comparison is exact: a distance of 0.7 at s = 7 is 4.9 M."""
    tests = SparseVector(Fraction(1, NOISE_GRID), 7)
    threshold = tests.begin(Fraction(7, 10), OS_RANDOM)
    assert threshold == pytest.approx(4.9 * NORM, rel=0.05)
    assert tests.below(0, threshold, OS_RANDOM)
    assert tests.below(round(4.5 * NORM), threshold, OS_RANDOM)
    assert not tests.below(round(5.3 * NORM), threshold, OS_RANDOM)


def test_each_noise_is_fresh() -> None:
    tests = SparseVector(Fraction(4), 7)
    assert len({tests.begin(Fraction(1, 2), OS_RANDOM) for _ in range(20)}) == 20


def test_the_test_mode_repeats_itself() -> None:
    tests = SparseVector(Fraction(4), 7)
    first, second = (
        [tests.begin(Fraction(1, 2), rng) for _ in range(5)]
        for rng in (DeterministicRandom("a"), DeterministicRandom("a"))
    )
    assert first == second
    assert len(set(first)) == 5
