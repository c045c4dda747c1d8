"""Layout of a model's layers over several devices of one machine, in their order. Imports no torch.

The first device, home, holds everything but the layers too: embeddings, final norm, head, and the tensors of a session
that are not keys and values. Device d then has a room r_d: its memory without those weights. With n_d layers on it,
every one of them and its keys and values can take r_d / n_d bytes, so the smallest of these quotients decides whether a
model fits and how many rows it has memory for. `layers_of_devices` maximises that smallest quotient.

The layout depends on the shape, the precision and the total memory of the devices, which are public, and not on what is
free at the time: a release that goes on has the layout with which it began (PRIVACY §4.2 point 1).
"""

from collections.abc import Sequence

from models_db.errors import UsageError


class MoreDevicesThanLayers(UsageError):
    """A model with fewer layers than devices."""

    def __init__(self, layers: int, devices: int) -> None:
        super().__init__(
            f"The model has {layers} layers, which cannot be spread over {devices} devices.",
            "Name fewer devices, such as cuda:0-1, or one.",
            {"layers": layers, "devices": devices},
        )


def layers_of_devices(layers: int, home: int, memories: Sequence[int]) -> tuple[int, ...]:
    """Return how many layers each device has; every device but home has one at least.

    Each layer in turn goes to the device whose room would allow the most for each of its layers, the first of equals
    (the method of D'Hondt). No other layout has a larger smallest quotient q = r_d / n_d: when device d got its last
    layer, r_e / (n_e + 1) was at most q for every e. A layout that differs gives some e at least n_e + 1 layers.

    Args:
        home: bytes of the weights outside the layers.
        memories: bytes of each device; the first is home.

    Raises:
        MoreDevicesThanLayers.
    """
    if layers < len(memories):
        raise MoreDevicesThanLayers(layers, len(memories))
    rooms = [memories[0] - home, *memories[1:]]
    counts = [0 if len(memories) > 1 else 1, *(1 for _ in memories[1:])]
    for _ in range(layers - sum(counts)):
        counts[max(range(len(rooms)), key=lambda d: (rooms[d] / (counts[d] + 1), -d))] += 1
    return tuple(counts)


def usable_bytes(counts: Sequence[int], home: int, memories: Sequence[int]) -> int:
    """Return the most bytes that a model may take in all, its keys and values included, so that every device holds its
    part: of one device its memory, of several what the fullest allows.

    Args:
        counts: layers of each device; `home`, `memories` as in `layers_of_devices`.
    """
    rooms = [memories[0] - home, *memories[1:]]
    if rooms[0] < 0:
        return memories[0]  # less than what home alone has to hold
    return home + min(room * sum(counts) // count for room, count in zip(rooms, counts, strict=True) if count)
