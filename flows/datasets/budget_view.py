"""View of a dataset's budget: its claim, its changes, its cohorts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from flows.audit.lifetime_claims import claims_of
from flows.governance.exposure import ended_figures, orders_budgets
from flows.governance.policy import require_visible_balances
from flows.workspace.policy_file import read_policy_in_force
from flows.workspace.workspace import Workspace
from models_db.services import budget, cohorts, datasets, exposures
from models_db.services.budget import Balance
from models_db.services.datasets import LifetimeClaim
from models_db.services.queries import lists
from models_db.services.queries.lists import BlockReaders
from models_db.tables import Dataset
from models_db.values.exposures import SecrecyEnd, ViewingRecord
from tasks.accounting.lifetime_claims import BudgetFacts
from tasks.planning.batches import Reading, format_ranges
from tasks.release.sections import WARNINGS, Warnings

if TYPE_CHECKING:
    from tasks.accounting.renyi_account import OrdersBudget


@dataclass(frozen=True)
class CohortLine:
    """Budget of one cohort, and the requests that have read it; the first cohort exists from the beginning."""

    number: int
    opened_at: str | None
    blocks: str
    balance: Balance
    readers: BlockReaders

    @property
    def opened_on(self) -> str | None:
        """Return the day on which the cohort was opened."""
        return self.opened_at and self.opened_at[:10]


@dataclass(frozen=True)
class BudgetView(BudgetFacts):
    """The budget of a dataset.

    Attributes:
        sharing: the datasets that draw on the budget.
        claims: all lifetime claims so far, the one in force last.
        cohorts: the budget of each cohort, if there are several; `balance` is that of the fullest block in view.
        viewing: the first day on which unprotected figures of the account were seen, and by whom; None if never.
        secrecy_ends: the releases of the account that claimed a smaller epsilon while their assignment was secret, and
            no longer do, each with when and why.
        orders: the account in Rényi orders, if the policy in force limits it.
        read: the blocks that the releases read, by number.
    """

    sharing: tuple[str, ...]
    blocks: int
    claims: tuple[LifetimeClaim, ...]
    cohorts: tuple[CohortLine, ...] = ()
    viewing: ViewingRecord | None = None
    secrecy_ends: tuple[tuple[int, SecrecyEnd], ...] = ()
    orders: "OrdersBudget | None" = None
    read: tuple[int, ...] = ()

    @property
    def warnings(self) -> tuple[Warnings, ...]:
        """Return what a reader of the budget must not miss: figures that were seen, and claims that have ended."""
        seen = [] if self.viewing is None else [self.viewing.sentence]
        lines = (*seen, *(f"Release {number}: {end.sentence}" for number, end in self.secrecy_ends))
        return (Warnings(WARNINGS, lines, signed=False),) if lines else ()

    @property
    def changes(self) -> tuple[tuple[LifetimeClaim, LifetimeClaim], ...]:
        """Return each change of the lifetime claim: the claim before, and after."""
        return tuple(zip(self.claims, self.claims[1:], strict=False))

    def of_cohort(self, line: CohortLine) -> "BudgetView":
        """Return the budget of releases that read only one cohort."""
        return replace(self, balance=line.balance, read=tuple(Reading(self.blocks).of(line.number)))

    @property
    def rho_admitted(self) -> int:
        """Return the most rho that releases of any plan may have together: what is left, within limits in orders.

        In units of 1e-12.
        """
        left = self.balance.remaining.rho
        if self.orders is None:
            return left
        return min(left, self.orders.room(self.orders.strictest(self.read), self.read))


def load_budget(workspace: Workspace, name: str, read: str | Sequence[int] | None = None) -> BudgetView:
    """Return the budget of a dataset for releases that read all of its cohorts, or some.

    Args:
        read: the cohorts by number, or 'newest'; None means all.

    Raises:
        DatasetUnknown, CohortUnknown: there is no such dataset or cohort.
        BalancesWithheld: the policy hides the figures from the owner of this home.
    """
    require_visible_balances(workspace, name)
    with workspace.database.read() as session:
        return budget_of_dataset(session, datasets.find_dataset(session, name), read)


def budget_of_dataset(session: Session, dataset: Dataset, read: str | Sequence[int] | None = None) -> BudgetView:
    """Return the budget as `load_budget` does, in an open session; the caller checks that the figures may be shown."""
    root, each = dataset.account_id, cohorts.blocks_per_cohort(session, dataset.account_id)
    blocks = (
        None if read is None else Reading(each, cohorts.resolve_cohorts(session, dataset, read), several=True).blocks
    )
    claims, lines, policy = claims_of(session, dataset), _cohort_lines(session, dataset), read_policy_in_force(session)
    return BudgetView(
        claim=claims[-1],
        balance=budget.balance(session, root, blocks),
        sharing=datasets_on_account(session, dataset),
        blocks=each,
        claims=claims,
        cohorts=lines,
        viewing=exposures.find_viewing(session, root),
        secrecy_ends=ended_figures(session, root),
        orders=orders_budgets(session, [root], policy).get(root),
        read=tuple(range(each * max(1, len(lines)))) if blocks is None else blocks,
    )


def _cohort_lines(session: Session, dataset: Dataset) -> tuple[CohortLine, ...]:
    """Return the budget of each cohort, if there are several."""
    root, each = dataset.account_id, cohorts.blocks_per_cohort(session, dataset.account_id)
    later = {one.number: one.created_at for one in cohorts.list_opened(session, root)}
    if not later:
        return ()
    balances, read = lists.cohort_balances(session, {root})[root], lists.block_readers(session, root)
    return tuple(
        CohortLine(
            number,
            later.get(number),
            format_ranges(Reading(each).of(number)),
            balance,
            read.get(number, lists.BlockReaders()),
        )
        for number, balance in balances.items()
    )


def datasets_on_account(session: Session, dataset: Dataset) -> tuple[str, ...]:
    """Return the names of all datasets on the account of this one, itself included."""
    return lists.datasets_on_account(session, dataset.account_id)
