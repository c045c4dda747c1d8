"""Random number generator: the only source of randomness (PRIVACY §4.2 point 4).

Whatever protects a unit draws its bits from the operating system: here, or inside OpenDP, which reads the
same source. There is no seed to set. Tests that need a repeatable pipeline use `DeterministicRandom`, whose
kind says that it protects nobody; a run records the kind, and the ledger refuses every kind but `os`.
"""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

Kind: TypeAlias = Literal["os", "deterministic-not-private"]


class RandomSource(Protocol):
    """Source of a mechanism's randomness."""

    @property
    def kind(self) -> Kind:
        """`os`, or `deterministic-not-private`."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` uniform bytes."""

    def uniform_below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound).

        Raises:
            ValueError: `bound` is not positive.
        """


class OperatingSystemRandom:
    """The operating system's generator; the only source that protects anybody."""

    kind: Kind = "os"

    def random_bytes(self, count: int) -> bytes:
        """`count` uniform bytes from `secrets`."""
        return secrets.token_bytes(count)

    def uniform_below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound), by rejection."""
        return _uniform_below(bound, self.random_bytes)


class DeterministicRandom:
    """A repeatable stream for tests, SHA-256 of a label and a counter: NOT PRIVATE, refused by the ledger."""

    kind: Kind = "deterministic-not-private"

    def __init__(self, label: str) -> None:
        self._label = hashlib.sha256(label.encode()).digest()
        self._counter = 0

    def random_bytes(self, count: int) -> bytes:
        """Return the next `count` bytes of this label's stream."""
        blocks = []
        for _ in range(-(-count // 32)):
            blocks.append(hashlib.sha256(self._label + self._counter.to_bytes(8, "big")).digest())
            self._counter += 1
        return b"".join(blocks)[:count]

    def uniform_below(self, bound: int) -> int:
        """Return the next integer in [0, bound), by rejection."""
        return _uniform_below(bound, self.random_bytes)


OS_RANDOM = OperatingSystemRandom()


def uniform_below_each(bounds: Sequence[int], source: RandomSource) -> list[int]:
    """Return a uniform integer in [0, bound) for each bound, by rejection; one reading of bytes serves all still open.

    Raises:
        ValueError: a bound is not positive.
    """
    if any(bound < 1 for bound in bounds):
        raise ValueError("a uniform integer needs a positive bound")
    bits = [(bound - 1).bit_length() for bound in bounds]
    size = (max(bits, default=0) + 7) // 8
    drawn, pending = [0] * len(bounds), list(range(len(bounds)))
    while pending:
        taken = source.random_bytes(size * len(pending))
        for turn, place in enumerate(pending):
            chunk = taken[turn * size : (turn + 1) * size]
            drawn[place] = int.from_bytes(chunk, "big") >> (8 * size - bits[place])
        pending = [place for place in pending if drawn[place] >= bounds[place]]
    return drawn


def _uniform_below(bound: int, random_bytes: Callable[[int], bytes]) -> int:
    """Rejection from the next power of two: exactly uniform, under two tries on average."""
    if bound < 1:
        raise ValueError(f"a uniform integer needs a positive bound, not {bound}")
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        drawn = int.from_bytes(random_bytes(size), "big") >> (8 * size - bits)
        if drawn < bound:
            return drawn
