"""Number of runs that a budget affords, reading every block or rotating over them."""

from collections.abc import Sequence
from dataclasses import dataclass

from flows.governance.policy import hides_balances
from flows.workspace.workspace import Workspace
from models_db.services.catalogue import cohorts, datasets
from models_db.services.lifecycle import envelopes
from models_db.services.queries import lists
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from tasks.planning.block_rotation import affords, most_groups
from tasks.planning.block_selection import Reading


@dataclass(frozen=True)
class AffordableRuns:
    """Numbers of equal releases that fit into the remaining budget; None if they cost nothing.

    Attributes:
        groups: the number of groups of blocks over which `in_turns` rotates; 1 if the dataset has one block.
    """

    every_block: int | None
    in_turns: int | None
    groups: int

    def to_json(self) -> dict[str, Json]:
        """Return the numbers as JSON for programs."""
        return {"runs_if_each_reads_every_block": self.every_block, "runs_in_turns": self.in_turns,
                "groups": self.groups}  # fmt: skip

    def __str__(self) -> str:
        if self.every_block is None:
            return "A run costs nothing."
        sentence = f"The remaining budget affords {self.every_block} runs that read every block"
        return (
            f"{sentence}."
            if self.groups == 1
            else f"{sentence}, and {self.in_turns} in turns over {self.groups} groups."
        )


def affordable_runs(
    workspace: Workspace,
    name: str,
    price: Amount,
    groups: int | None = None,
    scope: str | None = None,
    read: str | Sequence[int] | None = None,
) -> AffordableRuns | None:
    """Return how many releases at that price the budget affords; None if the policy hides that from the caller.

    Rotation saves nothing in an envelope, which is one account for all blocks. A pacing window only delays releases.

    Args:
        groups: the number of groups of blocks over which the releases rotate; None means one group for each block.
        read: the cohorts that the releases read, or 'newest'; None means all.

    Raises:
        DatasetUnknown, EnvelopeUnknown, CohortUnknown: there is no such dataset, envelope or cohort.
        RotationUnfit: the groups would differ in size.
    """
    with workspace.database.read() as session:
        if hides_balances(session, workspace.actor):
            return None
        dataset = datasets.find_dataset(session, name)
        chosen = Reading(
            datasets.find_partition(session, dataset).blocks,
            cohorts.resolve_cohorts(session, dataset, read),
            several=True,
        ).chosen
        every = lists.remaining_of_blocks(session, {dataset.account_id})[dataset.account_id]
        balances = [every[block] for block in chosen]
        over = most_groups(len(balances)) if groups is None else groups
        if scope is not None:
            in_it = affords(price, [envelopes.remaining_amount(envelopes.find_envelope(session, dataset, scope))])
            return AffordableRuns(in_it, in_it, over)
    return AffordableRuns(affords(price, balances), affords(price, balances, over), over)
