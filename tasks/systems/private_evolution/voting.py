"""Private votes of units for candidates, before noise is added.

A unit casts one vote in a round, over the candidates of all labels together: it is read under one label, by a keyed
choice among those that its documents carry, and votes for the nearest candidate of that label. Its point is computed
from its own text alone (`tasks.inference.embeddings.unit_embeddings`), which candidate is nearest is exact in integers,
and of equally near ones it is the first in their public order (`tasks.mechanisms.vectors.fixed_point`). So adding or
removing a unit moves one count by one, and no other unit's vote.

Two kinds of units do not vote: those with none of the declared labels, and those whose text has the embedding of the
empty text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tasks.corpus.store import ShardProgress, UnitOrder
from tasks.decoding.run_context import RunContext
from tasks.inference.embeddings.unit_embeddings import Points, points_of
from tasks.mechanisms.vectors.fixed_point import GridPoints
from tasks.text.interfaces import Embedder

_AS_EMPTY = 1e-5
"""A point that is no farther than this from the empty text's, in each coordinate, is that of the empty text."""


@dataclass(frozen=True)
class BlockVotes:
    """Voting units with their labels and points.

    Attributes:
        label: the number of the label under which each votes, int64 [n].
        points: one point per unit.
    """

    label: NDArray[np.int64]
    points: GridPoints

    def counts(self, candidates: Sequence[Points]) -> list[int]:
        """Count the units that vote for each candidate, label by label.

        Args:
            candidates: for each label float32 [M, width], in the public order of its candidates.
        """
        return [votes for label, public in enumerate(candidates) for votes in self._under(label, public)]

    def _under(self, label: int, public: Points) -> list[int]:
        own = self.label == label
        voters = GridPoints(self.points.steps[own], self.points.usable[own])
        votes: list[int] = np.bincount(voters.nearest(public.astype(np.float64)), minlength=len(public)).tolist()
        return votes


@dataclass(frozen=True)
class VoteHistogram:
    """The units of a release; nothing is read before the first use of `voters`, which must be after ARM.

    Attributes:
        blocks: eligible blocks of the release.
        labels: the declared labels; may be empty.
        embed: computes points.
    """

    bench: RunContext
    blocks: Sequence[int]
    labels: Sequence[str]
    embed: Embedder

    @cached_property
    def voters(self) -> BlockVotes:
        """Voting units, computed once and kept in memory only; their texts are read some shards at a time."""
        progress = ShardProgress(self.bench.in_tenths("units for the votes"))
        empty = points_of(self.embed, [""])
        parts: list[tuple[list[UnitOrder], GridPoints]] = []
        for lot in self.bench.lots(self.blocks, self.labels):
            progress.enter(lot)
            points = points_of(self.embed, [placed.unit.text for placed in lot.units], progress)
            votes = (np.abs(points - empty) > _AS_EMPTY).any(axis=1)
            orders = [placed.order for placed, own in zip(lot.units, votes, strict=True) if own]
            parts.append((orders, GridPoints.of(points[votes])))
            progress(1, 1)
        return _in_order(parts)


def _in_order(parts: Sequence[tuple[list[UnitOrder], GridPoints]]) -> BlockVotes:
    """Join the voters of all lots, in the keyed order of units."""
    orders = [order for part, _ in parts for order in part]
    places = np.array(sorted(range(len(orders)), key=orders.__getitem__), np.int64)
    steps, usable = (np.concatenate([getattr(points, name) for _, points in parts]) for name in ("steps", "usable"))
    labels = np.array([orders[place][1] for place in places], np.int64)
    return BlockVotes(labels, GridPoints(steps[places], usable[places]))
