"""Rotation over blocks: each release reads one group of a dataset's blocks, and only that group is charged.

The blocks are split into groups of equal size once and for all by their numbers. A request names how many groups there
are (`rotate_over`); which one a release reads is decided from the ledger when it is submitted: the group with most
budget left. Every block has an account of its own (PRIVACY §3), so by parallel composition a unit pays for the releases
of its own group alone, whatever the choice; the choice looks at amounts that were spent, which are public.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from models_db.errors import UsageError
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.standing_terms import BLOCKS_READ
from tasks.values.plan import Plan, PlanInputs


@dataclass(frozen=True)
class Rotation:
    """One turn: group number `group` (from 0) of `groups`, of a dataset with `whole` blocks.

    Raises:
        RotationUnfit: the groups would not be of one size.
    """

    groups: int
    group: int
    whole: int

    def __post_init__(self) -> None:
        if not 2 <= self.groups <= self.whole or self.whole % self.groups:
            raise RotationUnfit(self.groups, self.whole)
        if not 0 <= self.group < self.groups:
            raise ValueError(f"there is no group {self.group} of {self.groups}")

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks of the group, ascending."""
        return tuple(range(self.group, self.whole, self.groups))

    def restrict_inputs(self, inputs: "PlanInputs") -> "PlanInputs":
        """Return the inputs of a plan for the group alone: they are the same for every group."""
        share = None if inputs.population is None else max(1, inputs.population // self.groups)
        return replace(inputs, blocks=len(self.blocks), population=share)

    def renumber_plan(self, plan: "Plan") -> "Plan":
        """Return a plan for the group's blocks, numbered from 0, with the real numbers of the blocks."""
        blocks_read = f"group {self.group + 1} of {self.groups}: {', '.join(map(str, self.blocks))} of {self.whole}"
        return replace(plan, blocks=self.blocks, facts={**plan.facts, BLOCKS_READ: blocks_read})

    def to_json(self) -> dict[str, Json]:
        """Return the fields of the turn in a canonical request."""
        return {"rotate_over": self.groups, "group": self.group}


def rotation_of_request(body: Mapping[str, Json], blocks: int) -> Rotation | None:
    """Return the turn that a canonical request takes; None if it does not rotate.

    Raises:
        RotationUnfit, ValueError: the fields are malformed.
    """
    groups, group = body.get("rotate_over"), body.get("group")
    if groups is None and group is None:
        return None
    if not isinstance(groups, int) or not isinstance(group, int):
        raise ValueError("a turn is a number of groups, and which of them")
    return Rotation(groups, group, blocks)


def next_turn(groups: int, balances: Sequence[Amount]) -> Rotation:
    """Return the turn to take: the group whose most spent block has most left; of equal groups the first.

    Args:
        balances: what each block has left, by its number.

    Raises:
        RotationUnfit: the groups would not be of one size.
    """
    turns = [Rotation(groups, group, len(balances)) for group in range(max(groups, 1))]
    return max(turns, key=lambda turn: (_room(turn, balances), -turn.group))


def _room(turn: Rotation, balances: Sequence[Amount]) -> tuple[int, int]:
    return min(balances[block].rho for block in turn.blocks), min(balances[block].delta for block in turn.blocks)


def affords(
    price: Amount,
    balances: Sequence[Amount],
    groups: int = 1,
    in_orders: Callable[[Sequence[int]], int | None] | None = None,
) -> int | None:
    """Return how many releases at a price the blocks can pay for; None if a release costs nothing.

    Without rotation (one group) each release charges every block. With it each charges the blocks of one group, and a
    group affords as many as its fullest block.

    Args:
        in_orders: how many of them the limits in Rényi orders admit on blocks, by their places in `balances`; None for
            any number. Both accounts have to admit a release.

    Raises:
        RotationUnfit: the groups would not be of one size.
    """
    if price == Amount():
        return None
    whole = range(len(balances))
    parts = [whole] if groups == 1 else [Rotation(groups, group, len(balances)).blocks for group in range(groups)]

    def count(part: Sequence[int]) -> int:
        paid = min(price.count_in(balances[block]) or 0 for block in part)
        admitted = None if in_orders is None else in_orders(part)
        return paid if admitted is None else min(paid, admitted)

    return sum(map(count, parts))


def most_groups(blocks: int) -> int:
    """Return the most groups that blocks can be split into: one group per block."""
    return max(blocks, 1)


class RotationUnfit(UsageError):
    """Number of groups that does not divide the blocks into groups of one size."""

    def __init__(self, groups: int, blocks: int) -> None:
        fitting = [number for number in range(2, blocks + 1) if blocks % number == 0]
        super().__init__(
            f"A release cannot rotate over {groups} groups of {blocks} blocks: groups have the same number of blocks.",
            f"Rotate over {' or '.join(map(str, fitting[:8]))} groups." if fitting else "The dataset has one block.",
            {"rotate_over": groups, "blocks": blocks},
        )
