"""A plan's charge in Rényi orders, compared with the limits of the policy in force, before anybody approves or pays.

The ledger's guard compares the same integers when an attempt begins, and decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from models_db.values.amounts import RenyiCurve
from models_db.values.canonical_json import Json
from models_db.values.requests import format_decimal
from models_db.writes.database_errors import LimitInOrdersExceeded
from tasks.accounting.renyi_account import OrdersBudget
from tasks.common.published_values import round_up


@dataclass(frozen=True)
class LimitComparison:
    """What an attempt from nothing is charged on each of its blocks, beside the account that it would be charged to."""

    orders: OrdersBudget
    curve: RenyiCurve
    blocks: Sequence[int]

    @property
    def passed(self) -> tuple[Decimal, Decimal] | None:
        """The claim (epsilon, delta) that some block would pass; None if all hold."""
        return self.orders.passed_by(self.curve, self.blocks)

    @property
    def count(self) -> int | None:
        """How many such attempts the limits admit; None for any number."""
        return self.orders.count(self.curve, self.blocks)

    @property
    def room(self) -> int:
        """The rho, in units of 1e-12, of which every plan would fit the limit with the least room."""
        return self.orders.room(self._shown, self.blocks)

    @property
    def _shown(self) -> tuple[Decimal, Decimal]:
        return self.passed or self.orders.strictest(self.blocks)

    def refusal(self, dataset: str, asked: str, hint: str) -> LimitInOrdersExceeded:
        """Return the refusal; `asked` is the rho of the plan, `hint` says what would fit."""
        limit, charged = self._figures()
        return LimitInOrdersExceeded.of_price(dataset, asked, limit, charged, hint)

    def to_json(self) -> dict[str, Json]:
        """Return the limit with the least room, and what is charged of it before and with the request."""
        limit, charged = self._figures()
        return {
            "epsilon_limit_while_secret": limit[0],
            "delta_limit_while_secret": limit[1],
            "epsilon_charged_before": charged[0],
            "epsilon_charged_after": charged[1],
        }

    def _figures(self) -> tuple[tuple[str, str], tuple[str, str]]:
        epsilon, delta = self._shown
        before, after = (self.orders.epsilon(delta, self.blocks, curve) for curve in (None, self.curve))
        return (format_decimal(epsilon), format_decimal(delta)), (round_up(str(before)), round_up(str(after)))
