"""Contribution bound of one unit: the first k different things it names count (PRIVACY §3, §5).

Both `SetHistogram` and `PartitionSelection` are charged for units that are in at most k counts, once in each. This is
where that is made true, unit by unit: nothing here looks at two units together.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


def bound_contributions(items: Iterable[Item], most: int) -> tuple[Item, ...]:
    """Return the first `most` different items that one unit names, in its own order.

    Raises:
        ValueError: `most` is not positive.
    """
    if most < 1:
        raise ValueError(f"a unit counts for at least one item, not {most}")
    return tuple(islice(dict.fromkeys(items), most))


def count_units_by_item(units: Iterable[Iterable[Item]], most: int) -> Counter[Item]:
    """Return the number of units for every item; each unit counts for its first `most` different items."""
    return Counter(item for items in units for item in bound_contributions(items, most))
