"""Selection of the candidates that stay or are reworded after a round: public post-processing of noisy counts."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, cycle, islice

from tasks.mechanisms.core.rng import RandomSource, uniform_below_each
from tasks.systems.private_evolution.parameters import Selection


def choose(noisy: Sequence[int], how: Selection, most: int, threshold: int, rng: RandomSource) -> list[int]:
    """Select candidates of one label, and return their numbers.

    Args:
        noisy: a noisy count for each candidate, some of them negative; at least one.
        how: `rank`: the `most` of the highest counts, or all if there are fewer, the highest first, equal ones in their
            public order. `sample`: `most` draws in proportion to the counts above `threshold`, with repetitions; where
            no count is above it, each candidate is as likely as any other.
        threshold: not negative.
    """
    if how == "rank":
        return sorted(range(len(noisy)), key=lambda number: (-noisy[number], number))[:most]
    weights = [count if count > threshold else 0 for count in noisy]
    ends = list(accumulate(weights if any(weights) else [1] * len(noisy)))
    return [bisect_right(ends, drawn) for drawn in uniform_below_each([ends[-1]] * most, rng)]


@dataclass(frozen=True)
class Lineage:
    """The next generation of the candidates of one label.

    Attributes:
        kept: numbers of the unchanged candidates, each once, in the order of their selection.
        reworded: for each new text the number of the candidate that it is a rewording of.
    """

    kept: tuple[int, ...]
    reworded: tuple[int, ...]

    @classmethod
    def of(cls, selected: Sequence[int], total: int) -> "Lineage":
        """Derive `total` texts from the selected candidates.

        A candidate drawn several times stays once and is reworded as often as it was drawn again; the missing texts
        are then distributed over all draws in turn.

        Args:
            selected: at least one, and no more than `total`.
        """
        kept = tuple(dict.fromkeys(selected))
        chosen: set[int] = set()
        again = [number for number in selected if number in chosen or chosen.add(number)]  # type: ignore[func-returns-value]
        reworded = islice(chain(again, cycle(selected)), total - len(kept))
        return cls(kept, tuple(reworded))
