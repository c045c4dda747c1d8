"""The door to randomness."""

import inspect
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.mechanisms import rng
from tasks.mechanisms.rng import OS_RANDOM, DeterministicRandom, OperatingSystemRandom


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
