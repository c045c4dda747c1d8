"""Batches that a release reads: public numbers only (PRIVACY §3).

A block is split by keyed hash into `per_block` batches,
and each sample has one batch to itself. `per_block` is declared in the request, or follows from a declared or noisily
counted population so that a batch has about as many units as `references`; it may exceed the number of samples, and
then only the first batches are read. Which ones is public and the same for all units, so a unit in an unread batch
contributes nothing, and a unit in a read one meets exactly one sample's draws: every block is still charged once
(docs/decisions/0002).

With labels, a block is split once for each label of the public set. A unit is read under one label, so it is in one
batch as before. How many units a label has is private: they are taken to be equally many, so a frequent label has
fuller batches than `references`, and a rare one emptier ones (docs/decisions/0020).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import TypeAlias

from models_db.errors import UsageError
from tasks.corpus.store import Place
from tasks.planning.labels_and_groups import PartParameters
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
