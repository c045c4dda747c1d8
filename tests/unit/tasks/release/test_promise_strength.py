"""Which promises are called weak, and how bounds on guesses are said."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.release.claim import (
    ReplaceOne,
    describe_guesses,
    describe_replace_one,
    guessing_bounds,
    lifetime_weaknesses,
    release_weaknesses,
    require_accepted,
)
from tests.refusals import refusal


@pytest.mark.parametrize(
    ("epsilon", "delta", "population", "weaknesses"),
    [
        ("8", "0.0001", None, 0),
        ("8.01", "0.0001", None, 1),
        ("8", "0.00011", None, 1),
        ("8", "0.00001", 1000, 0),
        ("8", "0.000011", 1000, 1),
        ("40", "0.005", 16, 2),
        ("4", "0.0000001", 3000, 0),
        ("1000000000", "0.5", 1, 2),
    ],
)
def test_a_release_is_weak_beyond_epsilon_8_and_delta_of_a_hundredth_of_one_over_n(
    epsilon: str, delta: str, population: int | None, weaknesses: int
) -> None:
    found = release_weaknesses(epsilon, delta, population)
    assert len(found) == weaknesses
    assert all(line.startswith("WEAK PROMISE: ") for line in found)


def test_a_lifetime_may_have_a_little_more_than_a_release() -> None:
    assert lifetime_weaknesses("10", "0.000001", 1000) == ()
    assert len(lifetime_weaknesses("10.5", "0.000001", 1000)) == 1
    assert len(release_weaknesses("10", "0.000001", 1000)) == 1


def test_the_advised_delta_is_no_weakness_itself() -> None:
    [line] = release_weaknesses("1", "0.01", 16)
    assert line.endswith("for 16 people take at most 6e-4.")
    assert release_weaknesses("1", "0.0006", 16) == ()


@given(st.decimals("0.01", "200", places=2), st.integers(1, 10**9))
def test_no_bound_is_said_to_be_certainty(epsilon: Decimal, people: int) -> None:
    _, right = guessing_bounds(epsilon, Decimal("1e-7"))
    assert "100" not in describe_guesses(right)
    for line in release_weaknesses(str(epsilon), "1e-9", people):
        assert "100 %" not in line


@pytest.mark.parametrize(
    ("delta", "exact", "said"),
    [
        ("0.0000001", False, "epsilon 8.7055 at delta 1e-7"),
        ("0.0000001", True, "epsilon 8.705447915257 at delta 0.0000001"),
        ("0.0027557914190039208080052049", False, "epsilon 8.7055 at delta 0.0028"),
        ("0.1627557914190039208080052049", False, "no useful promise: delta would be 0.17"),
        ("0.1627557914190039208080052049", True, "no useful promise: delta would be 0.17"),
    ],
)
def test_a_delta_of_many_digits_is_rounded_up_or_called_useless(delta: str, exact: bool, said: str) -> None:
    assert describe_replace_one(ReplaceOne(epsilon="8.705447915257", delta=delta, rho=None), exact=exact) == said


def test_a_weak_promise_has_to_be_accepted() -> None:
    require_accepted((), accepted=False)
    require_accepted(("WEAK PROMISE: x",), accepted=True)
    with refusal("WeakPromise", match="WEAK PROMISE: x") as refused:
        require_accepted(("WEAK PROMISE: x",), accepted=False)
    assert "--accept-weak-promise" in refused.value.advice
