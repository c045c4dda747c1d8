"""Shards: a fixed public number of parts of a corpus, which a pass over it reads one after the other.

The shard of a unit is the first byte of the unit's mark, which is a keyed hash of its id (`identity.fingerprints`), so
it depends on that id and on the home's key alone. There are as many shards however many units there are. How many units
a shard has, and which ones, is private, like everything else about the store.

A shard is a way to read, and nothing is charged by it: blocks and batches (`partition`) are what they would be without.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tasks.corpus.identity.keys import keyed_hash
from tasks.corpus.store import SHARDS, PlacedUnit

UNITS_AT_ONCE = 4096
"""Consecutive shards are worked on together until they have so many units: a small corpus is one lot."""


@dataclass(frozen=True)
class Lot:
    """Units of consecutive shards. How many shards a lot has follows from how many units they have, which is private.

    Attributes:
        first, after: its first shard, and the first one of the next lot.
    """

    first: int = field(repr=False)
    after: int = field(repr=False)
    units: list[PlacedUnit] = field(repr=False)


def lots(shards: Iterable[list[PlacedUnit]], least: int = UNITS_AT_ONCE) -> Iterator[Lot]:
    """Yield the units of all shards, those of consecutive shards together until there are at least `least`."""
    first, units = 0, list[PlacedUnit]()
    for after, shard in enumerate(shards, 1):
        units += shard
        if len(units) >= least or after == SHARDS:
            yield Lot(first, after, units)
            first, units = after, []


@dataclass
class ShardProgress:
    """Progress of a pass over all shards, in parts of their public number; the number of lots is not visible in it.

    Attributes:
        report: called with the work done and all the work; must not show more than a coarse share (PRIVACY §1).
    """

    report: Callable[[int, int], None]
    _first: int = 0
    _after: int = SHARDS

    def enter(self, lot: Lot) -> None:
        """Count reports from now on as progress within this lot."""
        self._first, self._after = lot.first, lot.after

    def __call__(self, done: int, total: int) -> None:
        """Report progress within the current lot (without one, within the whole corpus)."""
        whole = max(total, 1)
        share = done if total else whole
        self.report(self._first * whole + (self._after - self._first) * share, SHARDS * whole)


def shard_of_text(key: bytes, text: str) -> int:
    """Return the shard of a text that is handed to workers: the first byte of its keyed hash under the dataset's key.

    It follows from this text alone, so its worker does not depend on any other text (PRIVACY §4.2 point 1).
    """
    return keyed_hash(key, "shard", text.encode("utf-8", "surrogatepass"))[0]
