"""Facts of a lifetime budget, from which screens, reports, pages and tables take their figures."""

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

from models_db.services.budget import Balance
from models_db.services.datasets import LifetimeClaim
from models_db.values.amounts import Amount
from tasks.accounting.lifetime_claims import lifetime_epsilon
from tasks.common.published_values import format_share

NOTHING = Amount()


def shares_of_cap(balance: Balance, *amounts: Amount, loss: Amount = NOTHING) -> tuple[Decimal, ...]:
    """Return what is left after a loss, and amounts, as shares of the cap; of no cap, 0.

    All of them are of rho, or all of the failure probability: whichever has less left. So parts of a balance add up.
    """
    cap, left = balance.cap, balance.remaining
    kinds = [
        tuple(Decimal(part) / whole for part in parts)
        for whole, *parts in (
            (cap.rho, max(left.rho - loss.rho, 0), *(amount.rho for amount in amounts)),
            (cap.delta, max(left.delta - loss.delta, 0), *(amount.delta for amount in amounts)),
        )
        if whole
    ]
    return min(kinds, default=(Decimal(0),) * (1 + len(amounts)))


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

    def cost_sentence(self, dataset: str, loss: Amount, *, affordable: bool, with_balance: bool = True) -> str:
        """Return what a release of this loss takes of the cap, and what it leaves if it is run now.

        Args:
            affordable: whether it may be run now; a limit in Rényi orders counts, too.
            with_balance: whether the reader may know what is left.
        """
        if loss == NOTHING:
            return "It costs nothing of the lifetime budget."
        left, share = shares_of_cap(self.balance, loss, loss=loss)
        cost = f"{format_share(share)} of the lifetime budget of {dataset}"
        if not affordable:
            return f"The budget does not afford it: it costs {cost}."
        if not with_balance:
            return f"It costs {cost}, and the budget affords it. No refunds."
        return f"It costs {cost}; {format_share(left, ROUND_FLOOR)} is left afterwards. No refunds."
