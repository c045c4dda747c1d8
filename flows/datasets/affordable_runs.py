"""Number of runs that a budget affords, reading every block or rotating over them."""

from collections.abc import Sequence
from dataclasses import dataclass

from flows.governance.exposure import orders_budget
from flows.governance.policy import hides_balances
from flows.workspace.workspace import Workspace
from models_db.services.catalogue import cohorts, datasets
from models_db.services.queries import lists
from models_db.values.amounts import Amount, RenyiCurve
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
    read: str | Sequence[int] | None = None,
    curve: RenyiCurve | None = None,
) -> AffordableRuns | None:
    """Return how many releases at that price the budget affords; None if the policy hides that from the caller.

    Where the policy limits the account in Rényi orders, both accounts have to admit a release.


    Args:
        groups: the number of groups of blocks over which the releases rotate; None means one group for each block.
        read: the cohorts that the releases read, or 'newest'; None means all.
        curve: what a release is charged in orders; None for its rho at each, which no plan exceeds.

    Raises:
        DatasetUnknown, CohortUnknown: there is no such dataset or cohort.
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
        orders, charge = orders_budget(session, dataset.account_id), curve or RenyiCurve.of_rho(price.rho)

        def in_orders(places: Sequence[int]) -> int | None:
            return None if orders is None else orders.count(charge, [chosen[place] for place in places])

    return AffordableRuns(affords(price, balances, 1, in_orders), affords(price, balances, over, in_orders), over)
