"""Partition selection: what it costs, that PyDP's probabilities keep it, whose coins decide."""

import json
import os
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import exp, mp, mpf, tanh

from models_db.values.amounts import Amount
from tasks.accounting.zcdp import independent_coordinates
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts import partition_selection
from tasks.mechanisms.counts.partition_selection import (
    EPSILON_GRID,
    LARGEST_EPSILON,
    LEAST_EPSILON,
    ROUNDING,
    PartitionSelection,
    SelectionUnaffordable,
    by_recursion,
    calibrate_selection,
    satisfies_dp,
)
from tests.refusals import refusal

pytestmark = pytest.mark.dear

CASES = [
    PartitionSelection(Fraction(1), Fraction(1e-8), 1),
    PartitionSelection(Fraction(5, 4), Fraction(1e-8), 5),
    PartitionSelection(Fraction(1, 64), Fraction(1e-11), 3),
    PartitionSelection(Fraction(4), Fraction(0.25), 1),
    PartitionSelection(Fraction(20), Fraction(1e-9), 5),
    PartitionSelection(Fraction(7), Fraction(1e-6), 1000),
]


def probabilities(selection: PartitionSelection) -> list[float]:
    return [selection.probability(units) for units in range(selection.units_for(1) + 1)]


def test_the_loss_is_the_formula():
    """Epsilon 1 for 4 candidates: tanh(1/8) (golden/accounting.json), and delta with 4 times 2^-44 on top."""
    loss = PartitionSelection(Fraction(1), Fraction(2**-20), 4).loss()
    with mp.workdps(40):
        assert loss.rho == int(mp.ceil(tanh(mpf(1) / 8) * 10**12))
    assert loss.delta == -((-(2**-20 + 4 * 2**-44) * 10**18) // 1)


@pytest.mark.parametrize("selection", CASES, ids=str)
def test_the_probabilities_are_the_papers_recursion(selection):
    """Desfontaines et al., Theorem 1: as large as the inequalities allow, step by step, in 40 digits."""
    with mp.workdps(40):
        each = mpf(selection.epsilon.numerator) / selection.epsilon.denominator / selection.contributions
        delta = mpf(selection.delta.numerator) / selection.delta.denominator
        fail = 1 - (1 - delta) ** (mpf(1) / selection.contributions)
        chance = mpf(0)
        for found in probabilities(selection):
            assert abs(found - chance) < 1e-14
            chance = min(exp(each) * chance + fail, 1 - exp(-each) * (1 - chance - fail), mpf(1))


@pytest.mark.parametrize("selection", CASES, ids=str)
def test_neighbouring_numbers_of_units_are_indistinguishable_at_what_is_charged(selection):
    """Every inequality of the definition on the doubles themselves, and the deltas of k coins within the charge."""
    with mp.workdps(60):
        growth = exp(mpf(selection.epsilon.numerator) / selection.epsilon.denominator / selection.contributions)
        chances = [mpf(chance) for chance in probabilities(selection)]
        fail = max(
            one - growth * other
            for less, more in pairwise(chances)
            for one, other in ((more, less), (less, more), (1 - less, 1 - more), (1 - more, 1 - less))
        )
        together = 1 - (1 - fail) ** selection.contributions
        assert together * 10**18 <= selection.loss().delta
        # And nothing is wasted: the charge is what PyDP needs, but for the rounding.
        assert together * 10**18 >= selection.loss().delta - 10**18 * 2 * selection.contributions * float(ROUNDING)


def test_pydps_split_of_delta_makes_up_the_whole():
    """1 - (1 - p(1))^k is the delta that PyDP was given."""
    for selection in CASES:
        with mp.workdps(40):
            together = 1 - (1 - mpf(selection.probability(1))) ** selection.contributions
            assert abs(together / mpf(float(selection.delta)) - 1) < 1e-12


@settings(max_examples=25)
@given(
    st.sampled_from([1, 2, 5, 17, 300]),
    st.floats(-2.5, 0.602).map(lambda exponent: 10**exponent),
    st.floats(-11.5, -1.0).map(lambda exponent: 10**exponent),
)
def test_every_selection_in_range_is_confirmed(contributions, each, fail):
    epsilon = Fraction(int(each * contributions * EPSILON_GRID), EPSILON_GRID)
    selection = PartitionSelection(epsilon, Fraction(min(fail * contributions, 0.4)), contributions)
    assert probabilities(selection)[-1] == 1  # StrategyDisagrees otherwise


@pytest.mark.parametrize(("each", "contributions"), [(LEAST_EPSILON, 1), (LARGEST_EPSILON, 1), (LARGEST_EPSILON, 5)])
def test_the_ends_of_the_range_are_confirmed(each, contributions):
    fail = Fraction(float(contributions * ROUNDING * 2))
    assert PartitionSelection(each * contributions, fail, contributions).units_for(1) > 1


def test_probabilities_that_break_an_inequality_are_refused():
    selection = CASES[1]
    found = probabilities(selection)
    assert satisfies_dp(found, selection)
    sure = 2.0**-43
    for place in (0, 1, len(found) // 2, len(found) - 2):
        more = [chance + sure * (number == place) for number, chance in enumerate(found)]
        less = [chance - sure * (number == place) for number, chance in enumerate(found)]
        assert not (satisfies_dp(more, selection) and satisfies_dp(less, selection))
    assert not satisfies_dp(found, PartitionSelection(selection.epsilon, selection.delta, 6))
    assert not satisfies_dp(found, PartitionSelection(selection.epsilon, Fraction(9.9e-9), 5))
    assert not satisfies_dp([*found[:3], found[2] / 2, *found[3:]], selection)


def test_another_pydp_that_keeps_more_is_not_drawn_with(monkeypatch):
    class Generous:
        def probability_of_keep(self, units: int) -> float:
            return min(1.0, units / 5)

    monkeypatch.setattr(
        "pydp.algorithms.partition_selection.create_truncated_geometric_partition_strategy",
        lambda *asked: Generous(),
    )
    partition_selection._probabilities.cache_clear()
    with refusal("StrategyDisagrees") as problem:
        CASES[0].keep({"a": 3}, OS_RANDOM)
    assert problem.value.exit_code == 3
    partition_selection._probabilities.cache_clear()


@pytest.fixture
def without_pydp(monkeypatch):
    """A platform for which PyDP has no wheel."""
    monkeypatch.setattr(partition_selection, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "pydp", None)  # an import would fail
    partition_selection._probabilities.cache_clear()
    yield
    partition_selection._probabilities.cache_clear()


@settings(max_examples=25)
@given(
    st.sampled_from([1, 2, 5, 17, 300]),
    st.floats(-2.5, 0.602).map(lambda exponent: 10**exponent),
    st.floats(-11.5, -1.0).map(lambda exponent: 10**exponent),
)
def test_the_recursion_keeps_what_is_charged_and_is_pydps_strategy(contributions, each, fail):
    epsilon = Fraction(int(each * contributions * EPSILON_GRID), EPSILON_GRID)
    selection = PartitionSelection(epsilon, Fraction(min(fail * contributions, 0.4)), contributions)
    theirs = probabilities(selection)
    ours = list(islice(by_recursion(selection), len(theirs) + 2))
    assert satisfies_dp(ours, selection)
    assert max(abs(one - other) for one, other in zip(ours, theirs, strict=False)) < 1e-11
    assert ours[-1] == 1


@pytest.mark.parametrize(("each", "contributions"), [(LEAST_EPSILON, 1), (LARGEST_EPSILON, 1), (LARGEST_EPSILON, 5)])
def test_without_pydp_the_ends_of_the_range_are_confirmed(each, contributions, without_pydp):
    fail = Fraction(float(contributions * ROUNDING * 2))
    assert PartitionSelection(each * contributions, fail, contributions).units_for(1) > 1


def test_without_pydp_the_same_coins_keep_the_same(request):
    counts = {f"{number:03}": number % 60 for number in range(300)}
    before = CASES[0].keep(counts, DeterministicRandom("a"))
    request.getfixturevalue("without_pydp")
    assert CASES[0].keep(counts, DeterministicRandom("a")) == before
    assert 0 < len(before) < 295


def test_a_recursion_that_keeps_more_is_not_drawn_with(without_pydp, monkeypatch):
    right = by_recursion
    monkeypatch.setattr(partition_selection, "by_recursion", lambda one: right(replace(one, delta=one.delta * 2)))
    with refusal("StrategyDisagrees"):
        CASES[0].keep({"a": 3}, OS_RANDOM)


def test_pydp_is_asked_for_exactly_what_is_charged(monkeypatch):
    from pydp.algorithms import partition_selection as pydp

    asked, real = [], pydp.create_truncated_geometric_partition_strategy
    monkeypatch.setattr(
        pydp,
        "create_truncated_geometric_partition_strategy",
        lambda *arguments: asked.append(arguments) or real(*arguments),
    )
    partition_selection._probabilities.cache_clear()
    CASES[1].probability(3)
    assert [(Fraction(epsilon), Fraction(delta), k) for epsilon, delta, k in asked] == [
        (CASES[1].epsilon, CASES[1].delta, 5)
    ]


@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("a")])
def test_what_nobody_names_is_never_kept_and_what_enough_name_always(rng):
    selection = CASES[1]
    enough = selection.units_for(1)
    counts = {"nobody": 0, "all": enough, "b": enough + 1, "Ä": 10**9, "less than nobody": -3}
    for _ in range(50):
        assert selection.keep(counts, rng) == ["all", "b", "Ä"]
    assert selection.keep({}, rng) == []


def test_the_output_and_the_coins_do_not_depend_on_the_order_of_reading():
    selection, counts = CASES[3], {f"{number:03}": number % 4 for number in range(300)}
    backwards = dict(reversed(counts.items()))
    kept = selection.keep(counts, DeterministicRandom("a"))
    assert kept == selection.keep(backwards, DeterministicRandom("a"))
    assert kept == sorted(kept)
    assert 0 < len(kept) < 300
    assert kept != selection.keep(counts, DeterministicRandom("b"))


def test_a_forked_process_throws_other_coins():
    """PyDP's own generator would throw the same: it reads ahead, and a fork copies what it has read."""
    selection = PartitionSelection(Fraction(1), Fraction(0.25), 1)
    counts = {f"{number:03}": 1 for number in range(200)}
    selection.keep(counts, OS_RANDOM)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, json.dumps(selection.keep(counts, OS_RANDOM)).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert json.loads(pipe.read()) != selection.keep(counts, OS_RANDOM)


@given(st.integers(10**5, 10**14), st.integers(10**7, 10**17), st.sampled_from([1, 3, 5, 40]))
def test_a_calibrated_selection_never_exceeds_its_budget_and_uses_it(rho, delta, contributions):
    try:
        found = calibrate_selection(Amount(rho, delta), contributions)
    except SelectionUnaffordable:
        least = independent_coordinates(LEAST_EPSILON * contributions, contributions).rho
        assert rho < least or delta < 2 * contributions * ROUNDING * 10**18
        return
    assert found.loss().fits(Amount(rho, delta))
    assert found.loss().delta >= delta * (1 - Fraction(1, 10**15)) - 2
    if found.epsilon < LARGEST_EPSILON * contributions:
        more = independent_coordinates(found.epsilon + Fraction(1, EPSILON_GRID), contributions).rho
        assert more > rho


def test_most_of_delta_is_not_half_of_it():
    """A delta above a half is more than any selection takes."""
    found = calibrate_selection(Amount(10**12, 9 * 10**17), 2)
    assert found.delta < Fraction(1, 2)
    assert found.units_for(1) > 1


@pytest.mark.parametrize(
    "bad",
    [
        lambda: PartitionSelection(Fraction(0), Fraction(1e-8), 1),
        lambda: PartitionSelection(Fraction(1, 3), Fraction(1e-8), 1),
        lambda: PartitionSelection(LEAST_EPSILON, Fraction(1e-8), 2),
        lambda: PartitionSelection(Fraction(5), Fraction(1e-8), 1),
        lambda: PartitionSelection(Fraction(1), Fraction(1, 10**8), 1),  # not a double
        lambda: PartitionSelection(Fraction(1), Fraction(0), 1),
        lambda: PartitionSelection(Fraction(1), Fraction(2**-44), 1),
        lambda: PartitionSelection(Fraction(1), Fraction(1, 2), 1),
        lambda: PartitionSelection(Fraction(1), Fraction(1e-8), 0),
        lambda: PartitionSelection(Fraction(1), Fraction(1e-8), 2**16 + 1),
        lambda: calibrate_selection(Amount(10**12, 10**12), 0),
    ],
)
def test_parameters_out_of_range_are_refused(bad):
    with refusal("SelectionInvalid") as refused:
        bad()
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("amount", [Amount(0, 10**10), Amount(1, 10**10), Amount(10**11, 0), Amount(10**11, 10**5)])
def test_too_little_rho_or_no_delta_is_refused_with_the_figures(amount):
    with pytest.raises(SelectionUnaffordable) as refused:
        calibrate_selection(amount, 5)
    assert refused.value.exit_code == 2
    assert refused.value.facts["delta"] == amount.delta_text
