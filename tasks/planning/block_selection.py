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
from tasks.planning.block_rotation import Rotation, rotation_of_request
from tasks.values.plan import Plan, PlanInputs


@dataclass(frozen=True)
class Reading:
    """Cohorts that a request reads, and its turn over their blocks.

    Attributes:
        each: the number of blocks of every cohort.
        cohorts: numbers of the cohorts that are read, ascending.
        several: whether the dataset had more than one cohort; if not, a request does not name cohorts.
        turn: the group of these blocks that a rotating request reads; None without rotation.

    Raises:
        ValueError: the cohorts are not ascending numbers from 1.
    """

    each: int
    cohorts: tuple[int, ...] = (1,)
    several: bool = False
    turn: Rotation | None = None

    def __post_init__(self) -> None:
        if not self.cohorts or list(self.cohorts) != sorted(set(self.cohorts)) or self.cohorts[0] < 1:
            raise ValueError(f"{self.cohorts} are not cohorts in ascending order")
        if not self.several and self.cohorts != (1,):
            raise ValueError("a dataset with one cohort has the first one")

    @property
    def chosen(self) -> tuple[int, ...]:
        """Blocks of all cohorts that are read, ascending, before rotation."""
        return tuple(block for cohort in self.cohorts for block in self.of(cohort))

    def of(self, cohort: int) -> range:
        """Return the blocks of one cohort."""
        return range((cohort - 1) * self.each, cohort * self.each)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks that the request reads, ascending."""
        chosen = self.chosen
        return chosen if self.turn is None else tuple(chosen[place] for place in self.turn.blocks)

    @property
    def size(self) -> int:
        """Number of blocks that are read, in constant time: a stranger's bundle may claim absurdly many."""
        whole = self.each * len(self.cohorts)
        return whole // self.turn.groups if self.turn else whole

    def restrict_inputs(self, inputs: "PlanInputs") -> "PlanInputs":
        """Return the inputs of a plan for these blocks alone; only their number counts."""
        whole = replace(inputs, blocks=self.each * len(self.cohorts))
        return self.turn.restrict_inputs(whole) if self.turn else whole

    def renumber_plan(self, plan: "Plan") -> "Plan":
        """Return a plan for these blocks, numbered from 0, with the real numbers of the blocks."""
        turned = self.turn.renumber_plan(plan) if self.turn else plan
        if not self.several:
            return turned
        return replace(turned, blocks=self.blocks, facts={**turned.facts, BLOCKS_READ: self._blocks_read()})

    def _blocks_read(self) -> str:
        whose = describe_cohorts(self.cohorts)
        if self.turn is None:
            return f"{whose}: blocks {format_ranges(self.blocks)}"
        group = f"group {self.turn.group + 1} of {self.turn.groups} of the blocks of {whose}"
        return f"{group}: {format_ranges(self.blocks)}"

    def to_json(self) -> dict[str, Json]:
        """Return the fields of the selection in a canonical request."""
        fields: dict[str, Json] = {"cohorts": list(self.cohorts)} if self.several else {}
        return {**fields, **(self.turn.to_json() if self.turn else {})}


def describe_cohorts(cohorts: Sequence[int]) -> str:
    """Format cohorts by name: 'cohort 2', 'cohorts 1, 2'."""
    return f"cohort{'s' if len(cohorts) > 1 else ''} {', '.join(map(str, cohorts))}"


def format_ranges(numbers: Sequence[int]) -> str:
    """Format ascending numbers, runs of consecutive ones as '4 to 7'."""
    ranges = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run_numbers = [number for _, number in run]
        ranges.append(str(run_numbers[0]) if len(run_numbers) == 1 else f"{run_numbers[0]} to {run_numbers[-1]}")
    return ", ".join(ranges)


def reading_of_request(body: Mapping[str, Json], each: int) -> Reading:
    """Return the blocks that a canonical request reads, of a dataset whose cohorts have `each` blocks.

    Raises:
        RotationUnfit, ValueError: the fields are malformed.
    """
    cohort_field = body.get("cohorts")
    if cohort_field is None:
        return Reading(each, turn=rotation_of_request(body, each))
    if not isinstance(cohort_field, list) or not all(type(cohort) is int for cohort in cohort_field):
        raise ValueError("cohorts are numbers")
    cohorts = tuple(cohort for cohort in cohort_field if isinstance(cohort, int))
    return Reading(each, cohorts, several=True, turn=rotation_of_request(body, each * len(cohorts)))


def require_governed(reading: Reading, dataset: str, *, governed: bool) -> None:
    """Check that a rotating request is for a governed dataset: rotation spares a budget.

    Raises:
        RotationOfPublicData: the dataset has no budget.
    """
    if reading.turn is not None and not governed:
        raise RotationOfPublicData(dataset)


class RotationOfPublicData(UsageError):
    """Rotation over blocks of data that is marked public."""

    def __init__(self, dataset: str) -> None:
        super().__init__(
            f"The dataset {dataset!r} is marked public: no budget of it lasts longer by rotating over blocks.",
            "Leave `rotate_over` out.",
            {"dataset": dataset},
        )
