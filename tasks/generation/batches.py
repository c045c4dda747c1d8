"""Which batches a release reads: public numbers only (PRIVACY §3).

A block is split by keyed hash into `per_block` batches, and each sample has one batch to itself. `per_block` is
declared in the request, or follows from a declared or noisily counted population so that a batch has about as many
units as `references`; it may exceed the number of samples, and then only the first batches are read. Which ones is
public and the same for all units, so a unit in an unread batch contributes nothing, and a unit in a read one meets
exactly one sample's draws: every block is still charged once (docs/decisions/0002).
"""

from dataclasses import dataclass

from tasks.generation.interface import BlockWithoutSample

Place = tuple[int, int]


@dataclass(frozen=True)
class BatchLayout:
    """How `samples` are shared out over `blocks` blocks: as evenly as possible, earlier blocks first."""

    samples: int
    blocks: int

    def __post_init__(self) -> None:
        if self.samples < self.blocks:
            raise BlockWithoutSample(self.samples, self.blocks)

    @property
    def most_in_a_block(self) -> int:
        """The least `per_block` that gives every sample a batch of its own."""
        return -(-self.samples // self.blocks)

    def per_block(self, units: int, references: int) -> int:
        """Batches per block so that `units` units make batches of about `references`."""
        return max(self.most_in_a_block, round(max(units, 0) / (self.blocks * references)))

    def places(self) -> list[Place]:
        """The (block, batch) of every sample, in the public order of the texts."""
        return sorted((sample % self.blocks, sample // self.blocks) for sample in range(self.samples))
