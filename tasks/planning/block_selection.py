"""Selection of blocks that a request reads: those of some cohorts.

A canonical request says which cohorts it reads if the dataset had several when it was made. So what it reads follows
from its own words and from the number of blocks that every cohort has, which never changes: a cohort that is opened
later adds nothing to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from models_db.values.canonical_json import Json
from models_db.values.standing_terms import BLOCKS_READ
from tasks.values.plan import Plan, PlanInputs


@dataclass(frozen=True)
class Reading:
    """Cohorts that a request reads.

    Attributes:
        each: the number of blocks of every cohort.
        cohorts: numbers of the cohorts that are read, ascending.
        several: whether the dataset had more than one cohort; if not, a request does not name cohorts.

    Raises:
        ValueError: the cohorts are not ascending numbers from 1.
    """

    each: int
    cohorts: tuple[int, ...] = (1,)
    several: bool = False

    def __post_init__(self) -> None:
        if not self.cohorts or list(self.cohorts) != sorted(set(self.cohorts)) or self.cohorts[0] < 1:
            raise ValueError(f"{self.cohorts} are not cohorts in ascending order")
        if not self.several and self.cohorts != (1,):
            raise ValueError("a dataset with one cohort has the first one")

    def of(self, cohort: int) -> range:
        """Return the blocks of one cohort."""
        return range((cohort - 1) * self.each, cohort * self.each)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks that the request reads, ascending."""
        return tuple(block for cohort in self.cohorts for block in self.of(cohort))

    @property
    def size(self) -> int:
        """Number of blocks that are read, in constant time: a stranger's bundle may claim absurdly many."""
        return self.each * len(self.cohorts)

    def restrict_inputs(self, inputs: "PlanInputs") -> "PlanInputs":
        """Return the inputs of a plan for these blocks alone; only their number counts."""
        return replace(inputs, blocks=self.size)

    def renumber_plan(self, plan: "Plan") -> "Plan":
        """Return a plan for these blocks, numbered from 0, with the real numbers of the blocks."""
        if not self.several:
            return plan
        blocks_read = f"{describe_cohorts(self.cohorts)}: blocks {format_ranges(self.blocks)}"
        return replace(plan, blocks=self.blocks, facts={**plan.facts, BLOCKS_READ: blocks_read})

    def to_json(self) -> dict[str, Json]:
        """Return the fields of the selection in a canonical request."""
        return {"cohorts": list(self.cohorts)} if self.several else {}


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
        ValueError: the cohorts are malformed.
    """
    cohort_field = body.get("cohorts")
    if cohort_field is None:
        return Reading(each)
    if not isinstance(cohort_field, list) or not all(type(cohort) is int for cohort in cohort_field):
        raise ValueError("cohorts are numbers")
    cohorts = tuple(cohort for cohort in cohort_field if isinstance(cohort, int))
    return Reading(each, cohorts, several=True)
