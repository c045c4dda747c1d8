"""The door to randomness."""

import inspect
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.mechanisms.core import rng
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom, OperatingSystemRandom, uniform_below_each

pytestmark = pytest.mark.contract


def test_kinds_say_who_is_protected():
    assert OS_RANDOM.kind == "os"
    assert DeterministicRandom("a").kind == "deterministic-not-private"


def test_the_private_source_cannot_be_seeded():
    with pytest.raises(TypeError):
        OperatingSystemRandom("seed")
    assert not list(inspect.signature(OperatingSystemRandom).parameters)


def test_the_private_source_asks_the_operating_system(monkeypatch):
    monkeypatch.setattr(rng.secrets, "token_bytes", lambda count: b"\x07" * count)
    assert OS_RANDOM.random_bytes(3) == b"\x07\x07\x07"
    assert OS_RANDOM.uniform_below(256) == 7


def test_two_private_draws_differ():
    assert OS_RANDOM.random_bytes(32) != OS_RANDOM.random_bytes(32)


def test_the_deterministic_source_repeats_itself_by_label():
    one, same, other = (DeterministicRandom(label) for label in ("a", "a", "b"))
    drawn = [one.random_bytes(45), one.uniform_below(1000)]
    assert drawn == [same.random_bytes(45), same.uniform_below(1000)]
    assert drawn[0] != other.random_bytes(45)
    assert one.random_bytes(45) != drawn[0]


@given(st.integers(1, 2**200), st.text(max_size=5))
def test_uniform_integers_stay_below_their_bound(bound, label):
    for source in (OS_RANDOM, DeterministicRandom(label)):
        assert 0 <= source.uniform_below(bound) < bound


def test_rejection_starts_over_instead_of_folding():
    class Scripted(DeterministicRandom):
        def random_bytes(self, count: int) -> bytes:
            return bytes([next(script)])

    script = iter([0b11000000, 0b01100000, 0b01000000])  # 6, 3, 2 of 3 bits
    source = Scripted("")
    assert source.uniform_below(5) == 3
    assert source.uniform_below(5) == 2


def test_every_value_is_equally_likely():
    counts = Counter(OS_RANDOM.uniform_below(5) for _ in range(20000))
    # 4000 expected, standard deviation 57: seven of them.
    assert set(counts) == set(range(5))
    assert all(abs(count - 4000) < 400 for count in counts.values())


@pytest.mark.parametrize("bound", [0, -1])
def test_an_empty_range_is_refused(bound):
    for source in (OS_RANDOM, DeterministicRandom("a")):
        with pytest.raises(ValueError, match="positive bound"):
            source.uniform_below(bound)


@given(st.lists(st.integers(1, 2**100), max_size=20), st.text(max_size=5))
def test_many_uniform_integers_stay_below_their_bounds(bounds, label):
    for source in (OS_RANDOM, DeterministicRandom(label)):
        drawn = uniform_below_each(bounds, source)
        assert len(drawn) == len(bounds)
        assert all(0 <= number < bound for number, bound in zip(drawn, bounds, strict=True))


def test_only_the_rejected_are_drawn_again():
    class Scripted(DeterministicRandom):
        def random_bytes(self, count: int) -> bytes:
            asked.append(count)
            return bytes(next(script) for _ in range(count))

    asked = []
    # Of 3, 8 and 3 bits: 6 is rejected, 200 too; then 3, and 255 as 3 bits is 7, then 1.
    script = iter([0b11000000, 200, 0b11111111, 0b01100000, 199, 0b00100000])
    assert uniform_below_each([5, 200, 8], Scripted("")) == [3, 199, 7]
    assert asked == [3, 2]


def test_every_one_of_many_values_is_equally_likely():
    counts = Counter(uniform_below_each([5] * 20000, OS_RANDOM))
    assert set(counts) == set(range(5))
    assert all(abs(count - 4000) < 400 for count in counts.values())


@pytest.mark.parametrize("bound", [0, -1])
def test_one_empty_range_among_many_is_refused(bound):
    with pytest.raises(ValueError, match="positive bound"):
        uniform_below_each([3, bound], OS_RANDOM)
    assert uniform_below_each([], OS_RANDOM) == []
