"""How many layers each device has."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.inference.catalogue.model_check import MoreDevicesThanLayers, layers_of_devices, usable_bytes

GB = 10**9


def smallest_quotient(counts: tuple[int, ...], home: int, memories: tuple[int, ...]) -> float:
    rooms = [memories[0] - home, *memories[1:]]
    return min(room / count for room, count in zip(rooms, counts, strict=True) if count)


def test_home_has_fewer_layers_because_of_head_and_embeddings() -> None:
    assert layers_of_devices(80, 6 * GB, (80 * GB,) * 4) == (19, 21, 20, 20)
    assert layers_of_devices(80, 0, (80 * GB,) * 4) == (20, 20, 20, 20)
    assert layers_of_devices(80, 6 * GB, (80 * GB,)) == (80,)


def test_a_larger_device_has_more_layers() -> None:
    assert layers_of_devices(32, 0, (80 * GB, 24 * GB)) == (25, 7)


def test_home_may_have_no_layer_and_every_other_device_has_one() -> None:
    assert layers_of_devices(3, 100, (90, 80)) == (0, 3)
    assert layers_of_devices(3, 0, (100 * GB, 1, 1)) == (1, 1, 1)


def test_more_devices_than_layers_are_refused() -> None:
    with pytest.raises(MoreDevicesThanLayers, match="2 layers, which cannot be spread over 3 devices"):
        layers_of_devices(2, 0, (1, 1, 1))


@given(
    layers=st.integers(4, 9),
    home=st.integers(0, 120),
    memories=st.lists(st.integers(1, 100), min_size=2, max_size=4).map(tuple),
)
def test_no_other_layout_has_more_room_for_each_layer(layers: int, home: int, memories: tuple[int, ...]) -> None:
    """All layouts are tried."""
    found = layers_of_devices(layers, home, memories)
    assert sum(found) == layers
    assert all(count >= 1 for count in found[1:])
    tried = product(range(layers + 1), *[range(1, layers + 1)] * (len(memories) - 1))
    best = max(smallest_quotient(counts, home, memories) for counts in tried if sum(counts) == layers)
    assert smallest_quotient(found, home, memories) == pytest.approx(best)


@given(
    layers=st.integers(4, 40),
    home=st.integers(0, 300),
    each=st.integers(0, 60),
    memories=st.lists(st.integers(1, 1000), min_size=1, max_size=4).map(tuple),
)
def test_a_model_fits_if_every_device_holds_its_part(
    layers: int, home: int, each: int, memories: tuple[int, ...]
) -> None:
    counts = layers_of_devices(layers, home, memories)
    parts = [home + counts[0] * each, *(count * each for count in counts[1:])]
    holds = all(part <= memory for part, memory in zip(parts, memories, strict=True))
    assert (home + layers * each <= usable_bytes(counts, home, memories)) == holds


def test_one_device_has_its_whole_memory() -> None:
    for layers in (1, 7, 30):
        assert usable_bytes((layers,), 123, (1001,)) == 1001
