"""Selection of blocks that a request reads: those of some cohorts, all of them or one group.

A canonical request says which cohorts it reads if the dataset had several when it was made, and over how many groups of
their blocks it rotates if it does. So what it reads follows from its own words and from the number of blocks that every
cohort has, which never changes: a cohort that is opened later adds nothing to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from models_db.errors import UsageError
from models_db.values.canonical_json import Json
from models_db.values.standing_terms import BLOCKS_READ
from tasks.planning.block_rotation import Rotation, rotation_in
from tasks.values.plan import Plan, PlanInputs


@dataclass(frozen=True)
class Reading:
    """Some cohorts of a dataset, and the turn that a request takes over their blocks.

    Attributes:
        each: the number of blocks of every cohort.
        cohorts: which it reads, ascending.
        several: whether the dataset had more than one; if not, a request says nothing of them.
        turn: of a request that rotates: which group of these blocks it reads.

    Raises:
        ValueError: there can be no such cohorts.
    """

    each: int
    cohorts: tuple[int, ...] = (1,)
    several: bool = False
    turn: Rotation | None = None

    def __post_init__(self) -> None:
        if not self.cohorts or list(self.cohorts) != sorted(set(self.cohorts)) or self.cohorts[0] < 1:
            raise ValueError(f"{self.cohorts} are no cohorts in ascending order")
        if not self.several and self.cohorts != (1,):
            raise ValueError("a dataset with one cohort has the first one")

    @property
    def chosen(self) -> tuple[int, ...]:
        """The blocks of its cohorts, ascending."""
        return tuple(block for cohort in self.cohorts for block in self.of(cohort))

    def of(self, cohort: int) -> range:
        """The blocks of one cohort."""
        return range((cohort - 1) * self.each, cohort * self.each)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks it reads, ascending."""
        chosen = self.chosen
        return chosen if self.turn is None else tuple(chosen[place] for place in self.turn.blocks)

    @property
    def size(self) -> int:
        """How many blocks it reads, also where a stranger's bundle says absurdly many."""
        whole = self.each * len(self.cohorts)
        return whole // self.turn.groups if self.turn else whole

    def asked(self, ask: "PlanInputs") -> "PlanInputs":
        """What a plan may depend on: these blocks alone, by their number."""
        whole = replace(ask, blocks=self.each * len(self.cohorts))
        return self.turn.asked(whole) if self.turn else whole

    def planned(self, plan: "Plan") -> "Plan":
        """A plan that was made for these blocks as if they were all, with their real numbers."""
        turned = self.turn.planned(plan) if self.turn else plan
        if not self.several:
            return turned
        return replace(turned, blocks=self.blocks, facts={**turned.facts, BLOCKS_READ: self._told()})

    def _told(self) -> str:
        whose = in_words(self.cohorts)
        if self.turn is None:
            return f"{whose}: blocks {runs(self.blocks)}"
        group = f"group {self.turn.group + 1} of {self.turn.groups} of the blocks of {whose}"
        return f"{group}: {runs(self.blocks)}"

    def to_json(self) -> dict[str, Json]:
        """What a canonical request says of it."""
        told: dict[str, Json] = {"cohorts": list(self.cohorts)} if self.several else {}
        return {**told, **(self.turn.to_json() if self.turn else {})}


def in_words(cohorts: Sequence[int]) -> str:
    """Some cohorts by name: 'cohort 2', 'cohorts 1, 2'."""
    return f"cohort{'s' if len(cohorts) > 1 else ''} {', '.join(map(str, cohorts))}"


def runs(numbers: Sequence[int]) -> str:
    """Ascending numbers, those that follow one another as '4 to 7'."""
    found = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        of = [number for _, number in run]
        found.append(str(of[0]) if len(of) == 1 else f"{of[0]} to {of[-1]}")
    return ", ".join(found)


def reading_in(body: Mapping[str, Json], each: int) -> Reading:
    """What a canonical request reads of a dataset whose cohorts have so many blocks each.

    Raises:
        RotationUnfit, ValueError: no request reads such a thing.
    """
    stated = body.get("cohorts")
    if stated is None:
        return Reading(each, turn=rotation_in(body, each))
    if not isinstance(stated, list) or not all(type(cohort) is int for cohort in stated):
        raise ValueError("cohorts are numbers")
    cohorts = tuple(cohort for cohort in stated if isinstance(cohort, int))
    return Reading(each, cohorts, several=True, turn=rotation_in(body, each * len(cohorts)))


def require_governed(reading: Reading, dataset: str, *, governed: bool) -> None:
    """Check that there is a budget that lasts longer by taking turns.

    Raises:
        NothingToRotate: there is none.
    """
    if reading.turn is not None and not governed:
        raise NothingToRotate(dataset)


class NothingToRotate(UsageError):
    """Rotation over blocks of data that is marked public."""

    def __init__(self, dataset: str) -> None:
        super().__init__(
            f"The dataset {dataset!r} is marked public: no budget of it lasts longer by rotating over blocks.",
            "Leave `rotate_over` out.",
            {"dataset": dataset},
        )
