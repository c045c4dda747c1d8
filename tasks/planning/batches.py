"""Batches and blocks that a release reads: public numbers only (PRIVACY §3).

Batches that a release reads: public numbers only (PRIVACY §3). A block is split by keyed hash into `per_block` batches,
and each sample has one batch to itself. `per_block` is declared in the request, or follows from a declared or noisily
counted population so that a batch has about as many units as `references`; it may exceed the number of samples, and
then only the first batches are read. Which ones is public and the same for all units, so a unit in an unread batch
contributes nothing, and a unit in a read one meets exactly one sample's draws: every block is still charged once
(docs/decisions/0002).

With labels, a block is split once for each label of the public set. A unit is read under one label, so it is in one
batch as before. How many units a label has is private: they are taken to be equally many, so a frequent label has
fuller batches than `references`, and a rare one emptier ones (docs/decisions/0020).

Selection of blocks that a request reads: those of some cohorts. A canonical request says which cohorts it reads if the
dataset had several when it was made. So what it reads follows from its own words and from the number of blocks that
every cohort has, which never changes: a cohort that is opened later adds nothing to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import lcm
from typing import TypeAlias

from models_db.errors import UsageError
from models_db.values.canonical_json import Json
from models_db.values.standing_terms import BLOCKS_READ
from tasks.corpus.store import Place
from tasks.planning.labels_and_groups import PartParameters
from tasks.values.plan import Plan, PlanInputs
from tasks.values.results import GeneratedText


def batches_per_cell(samples: int, cells: int, declared: int | None = None) -> int:
    """Return the least number of batches of each cell that gives every sample one of its own.

    Args:
        cells: blocks times labels.
        declared: batches of each cell that a request declares; more than the least are made, fewer are not.
    """
    return max(-(-samples // cells), declared or 0)


@dataclass(frozen=True)
class BatchLayout:
    """Distribution of `samples` over blocks and labels: as even as possible over either, earlier ones first.

    Attributes:
        labels: how many labels the request declares; 1 without labels.
    """

    samples: int
    blocks: int
    labels: int = 1

    def __post_init__(self) -> None:
        if self.samples < self.blocks:
            raise UsageError(
                f"{self.samples} samples cannot be shared by {self.blocks} blocks: each block makes at least one.",
                f"Ask for at least {self.blocks} samples.",
                {"samples": self.samples, "blocks": self.blocks},
                code="BlockWithoutSample",
            )
        if self.samples < self.labels:
            raise UsageError(
                f"{self.samples} samples cannot be shared by {self.labels} labels: each label has at least one.",
                f"Ask for at least {self.labels} samples, or declare fewer labels.",
                {"samples": self.samples, "labels": self.labels},
                code="LabelWithoutSample",
            )

    @property
    def cells(self) -> int:
        """Number of splits into batches: one for each label of each block."""
        return self.blocks * self.labels

    @property
    def most_in_a_block(self) -> int:
        """The least `per_block` that gives every sample a batch of its own."""
        return batches_per_cell(self.samples, self.cells)

    def per_block(self, units: int, references: int) -> int:
        """Return the batches per block and label, so that `units` units make batches of about `references`."""
        return max(self.most_in_a_block, round(max(units, 0) / (self.cells * references)))

    def sources(self) -> list[tuple[Place, ...]]:
        """Return the one batch of every sample, in the public order of the texts."""
        return [(place,) for place in sorted(self._place(sample) for sample in range(self.samples))]

    def labels_of_texts(self, labels: Sequence[str]) -> list[str | None]:
        """Return the label of every text, in their public order; None if there are no labels."""
        return [labels[label] if labels else None for ((_, label, _),) in self.sources()]

    def _place(self, sample: int) -> Place:
        """Return the place of a sample.

        Blocks and labels advance together; a shift by one after each common round reaches every pair exactly once.
        """
        batch, cell = divmod(sample, self.cells)
        return (cell + cell // lcm(self.blocks, self.labels)) % self.blocks, cell % self.labels, batch


@dataclass(frozen=True)
class GroupLayout:
    """One text for each public group, made of all units that are read for it, from every block.

    A unit is in one block, and read for as many groups at most as its contribution bound says: so much is charged, to
    every block.
    """

    groups: int
    blocks: int

    cells = 1
    most_in_a_block = 1

    def per_block(self, units: int, references: int) -> int:
        """Return 1: a group's units are not split any further."""
        return 1

    def sources(self) -> list[tuple[Place, ...]]:
        """Return the parts of every group, one in each block, in the order of the groups."""
        return [tuple((block, group, 0) for block in range(self.blocks)) for group in range(self.groups)]

    def labels_of_texts(self, labels: Sequence[str]) -> list[str | None]:
        """Return the groups' names, in their order."""
        return list(labels)


Layout: TypeAlias = BatchLayout | GroupLayout


def layout_of(parts: PartParameters, samples: int, blocks: int) -> Layout:
    """Return the layout of a release's texts over blocks and labels, or over groups.

    Raises:
        BlockWithoutSample, LabelWithoutSample: there are too few samples.
    """
    if parts.groups:
        return GroupLayout(len(parts.groups), blocks)
    return BatchLayout(samples, blocks, max(1, len(parts.labels)))


def labels_without_batches(parts: PartParameters, samples: int) -> list[str | None]:
    """Return the label of every text of a system whose texts belong to no batch, in their public order.

    Raises:
        LabelWithoutSample: there are too few samples.
    """
    return layout_of(parts, samples, 1).labels_of_texts(parts.names)


def with_labels(texts: Sequence[GeneratedText], labels: Sequence[str | None]) -> tuple[GeneratedText, ...]:
    """Return the texts with the labels of their places, one for each."""
    return tuple(replace(text, label=label) for text, label in zip(texts, labels, strict=True))


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
