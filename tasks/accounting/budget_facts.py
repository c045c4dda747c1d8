"""Facts of a lifetime budget, from which screens, reports, pages and tables take their figures."""

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

from models_db.services.budget import Balance
from models_db.services.datasets import LifetimeClaim
from models_db.values.amounts import Amount
from tasks.accounting.lifetime_claims import lifetime_epsilon
from tasks.common.number_format import format_share


def share_of_cap(amount: Amount, cap: Amount) -> Decimal:
    """Return an amount as a share of a cap: of rho or of the failure probability, whichever is more; of no cap, 0."""
    parts = ((amount.rho, cap.rho), (amount.delta, cap.delta))
    return max(Decimal(part) / whole if whole else Decimal(0) for part, whole in parts)


@dataclass(frozen=True)
class BudgetFacts:
    """The lifetime claim in force, and the balance of the blocks that are looked at."""

    claim: LifetimeClaim
    balance: Balance

    @property
    def spent(self) -> Amount:
        """Amount that is spent for good."""
        return self.balance.spent

    @property
    def cap(self) -> Amount:
        """The most that may ever be spent."""
        return self.balance.cap

    @property
    def epsilon_spent(self) -> str:
        """Epsilon of the spent budget; see `epsilon_of`."""
        return self.epsilon_of(self.spent)

    def epsilon_of(self, amount: Amount) -> str:
        """Return the lifetime epsilon of an amount at the claim's delta, rounded up to four places."""
        return lifetime_epsilon(amount, self.claim.delta_conversion)

    def share_of_cap(self, amount: Amount) -> Decimal:
        """Return an amount as a share of the cap; see `share_of_cap`."""
        return share_of_cap(amount, self.cap)

    @property
    def share_left(self) -> Decimal:
        """Return the share of the cap that is neither spent nor held by running releases."""
        return max(1 - self.share_of_cap(self.spent + self.balance.held), Decimal(0))

    def cost_sentence(self, dataset: str, loss: Amount, *, affordable: bool, with_balance: bool = True) -> str:
        """Return what a release of this loss takes of the cap, and what it leaves if it is run now.

        Args:
            affordable: whether it may be run now; a limit in Rényi orders counts, too.
            with_balance: whether the reader may know what is left.
        """
        if loss == Amount():
            return "It costs nothing of the lifetime budget."
        cost = f"{format_share(self.share_of_cap(loss))} of the lifetime budget of {dataset}"
        if not affordable:
            return f"The budget does not afford it: it costs {cost}."
        if not with_balance:
            return f"It costs {cost}, and the budget affords it. No refunds."
        left = max(1 - self.share_of_cap(self.spent + self.balance.held + loss), Decimal(0))
        return f"It costs {cost}; {format_share(left, ROUND_FLOOR)} is left afterwards. No refunds."
