"""Every conversion of PRIVACY §2 against a numerical supremum over alpha of D_alpha / alpha.

The suprema are computed here with mpmath from the densities alone, in both directions of each worst pair.
"""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import exp, inf, log, mp, mpf, pi, quad, sqrt

from models_db.values.amounts import Amount
from tasks.accounting import zcdp
from tests.golden.accounting_oracle import GOLDEN

pytestmark = [pytest.mark.dear, pytest.mark.contract]
CONCERNS = ("tasks/accounting",)

EPSILONS = ["0.01", "0.1", "0.5", "1", "2", "5", "12"]
# From (almost) one, where pure mechanisms attain the supremum, to far past every maximum.
ORDERS = [1 + mpf(10) ** (mpf(step) / 4) for step in range(-48, 13)]


@pytest.fixture(autouse=True)
def _digits():
    before, mp.dps = mp.dps, 50
    yield
    mp.dps = before


def supremum(divergence: Callable[[mpf], mpf]) -> mpf:
    """The largest D_alpha / alpha over the grid of orders."""
    return max(divergence(alpha) / alpha for alpha in ORDERS)


def renyi(first: list[mpf], second: list[mpf], alpha: mpf) -> mpf:
    """D_alpha of two distributions on a finite set."""
    return log(sum(p**alpha * q ** (1 - alpha) for p, q in zip(first, second, strict=True))) / (alpha - 1)


def coin(epsilon: mpf) -> tuple[list[mpf], list[mpf]]:
    """Randomised response on one bit."""
    heads = 1 / (1 + exp(-epsilon))
    return [heads, 1 - heads], [1 - heads, heads]


def covers(charged: Amount, truth: mpf, tight: bool = True) -> None:
    """The charge is not below the truth, nor more than a unit and the grid's distance to alpha = 1 above it."""
    found = mpf(charged.rho) / 10**12
    assert found >= truth
    if tight:
        assert found <= truth * (1 + mpf("1e-9")) + mpf("1.001e-12")


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        (row["function"], row["arguments"], row["value"])
        for row in json.loads(GOLDEN.read_text())
        if hasattr(zcdp, row["function"]) and row["function"] != "rho_of"
    ],
)
def test_golden_conversions(name, arguments, value):
    assert getattr(zcdp, name)(*arguments).rho == value


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_pure_dp_is_randomised_response(epsilon):
    first, second = coin(mpf(epsilon))
    covers(zcdp.pure_dp(epsilon), supremum(lambda alpha: renyi(first, second, alpha)))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("coordinates", [2, 7])
def test_independent_coordinates_add_up(epsilon, coordinates):
    first, second = coin(mpf(epsilon) / coordinates)
    truth = supremum(lambda alpha: coordinates * renyi(first, second, alpha))
    covers(zcdp.independent_coordinates(epsilon, coordinates), truth)


@pytest.mark.slow_except("1")
@pytest.mark.parametrize("epsilon", ["0.5", "1", "2"])
def test_discrete_laplace_needs_the_pure_row(epsilon):
    """At sensitivity 1 it costs what randomised response costs: continuous Laplace's rho would under-charge it."""
    decay = exp(-mpf(epsilon))
    reach = range(-400, 402)
    first = [decay ** abs(x) for x in reach]
    second = [decay ** abs(x - 1) for x in reach]
    mass = sum(first)
    truth = supremum(lambda alpha: renyi([p / mass for p in first], [q / mass for q in second], alpha))
    covers(zcdp.pure_dp(epsilon), truth)
    assert truth > mpf(epsilon) + decay - 1  # of continuous noise (Harrison and Manurangsi, arXiv 2510.25746)


@pytest.mark.parametrize("eta", ["0.05", "0.3", "1", "3"])
def test_bounded_range_covers_every_pair_and_nearly_attains_it(eta):
    """Worst pairs of range eta have two values of the log ratio, eta apart; the balanced one is the worst."""
    odds, worst = exp(mpf(eta)), mpf(0)
    for heads in [mpf(step) / 40 for step in range(1, 40)]:
        lifted = heads * odds / (heads * odds + 1 - heads)
        pair = [heads, 1 - heads], [lifted, 1 - lifted]
        for first, second in (pair, pair[::-1]):
            worst = max(worst, *(renyi(first, second, alpha) / alpha for alpha in ORDERS[::4]))
    covers(zcdp.bounded_range(eta), worst, tight=False)
    if mpf(eta) <= mpf("0.3"):
        assert worst > mpf("0.99") * mpf(eta) ** 2 / 8


@given(st.integers(1, 1000), st.sampled_from(["0.4", "2.5", "30"]))
def test_moved_coordinates_cost_what_their_l2_norm_does(coordinates, sigma):
    found = zcdp.gaussian_coordinates(coordinates, sigma)
    assert zcdp.gaussian(1, sigma).rho * coordinates - coordinates < found.rho
    assert found.rho <= zcdp.gaussian(1, sigma).rho * coordinates
    assert zcdp.gaussian_coordinates(coordinates**2, sigma) == zcdp.gaussian(coordinates, sigma)


def test_no_coordinate_is_no_mechanism():
    for conversion in (
        zcdp.gaussian_coordinates,
        lambda k, epsilon: zcdp.independent_coordinates("1", k),
    ):
        with pytest.raises(ValueError, match="at least one coordinate"):
            conversion(0, "1")


@pytest.mark.parametrize(("sensitivity", "sigma"), [("1", "0.4"), ("1", "2.5"), ("3", "7")])
def test_discrete_gaussian(sensitivity, sigma):
    """The discrete Gaussian's own supremum, reached as its worst order lands on the grid (CKS, Proposition 5)."""
    s, scale = int(sensitivity), mpf(sigma)
    reach = range(-150, 151 + s)
    first = [exp(-(mpf(x) ** 2) / (2 * scale**2)) for x in reach]
    second = [exp(-((mpf(x) - s) ** 2) / (2 * scale**2)) for x in reach]
    mass = sum(first)
    orders = [*ORDERS[::6], mpf(2), mpf(3)]
    orders = [alpha for alpha in orders if alpha <= 20]
    worst = max(renyi([p / mass for p in first], [q / mass for q in second], alpha) / alpha for alpha in orders)
    # Exactly s^2/(2 sigma^2) at integer orders; 1e-20 is the truncation of the sum.
    found = mpf(zcdp.gaussian(sensitivity, sigma).rho) / 10**12
    assert worst * (1 - mpf("1e-15")) <= found <= worst * (1 + mpf("1e-15")) + mpf("1.001e-12")


def test_continuous_gaussian_by_quadrature():
    alpha, s, scale = mpf("2.5"), 1, mpf(2)
    mp.dps = 20

    def density(x: mpf) -> mpf:
        return exp(-(alpha * x**2 + (1 - alpha) * (x - s) ** 2) / (2 * scale**2)) / (scale * sqrt(2 * pi))

    divergence = log(quad(density, [-inf, 0, inf])) / (alpha - 1)
    assert abs(divergence / alpha - mpf(zcdp.gaussian("1", "2").rho) / 10**12) < mpf("1e-12")


def test_replace_one_is_two_steps():
    assert zcdp.replace_one(Amount(7)) == Amount(28)
    assert zcdp.replace_one(Amount(7), one_hot=True) == Amount(14)
    with pytest.raises(ValueError, match="re-converted"):
        zcdp.replace_one(Amount(7, 1))


@given(st.decimals("0.001", "30", places=4), st.integers(1, 64))
def test_conversions_are_ordered(epsilon, coordinates):
    """More coordinates cost less, all cost less than epsilon^2/2."""
    pure = zcdp.pure_dp(epsilon).rho
    assert zcdp.independent_coordinates(epsilon, coordinates).rho <= pure
    assert pure <= int(epsilon**2 / 2 * 10**12) + 1


@pytest.mark.parametrize(
    "bad",
    [
        lambda: zcdp.pure_dp("0"),
        lambda: zcdp.gaussian("1", "-1"),
        lambda: zcdp.gaussian("0", "1"),
        lambda: zcdp.bounded_range("0"),
        lambda: zcdp.independent_coordinates("1", 0),
    ],
)
def test_impossible_parameters_are_refused(bad):
    with pytest.raises(ValueError):
        bad()
