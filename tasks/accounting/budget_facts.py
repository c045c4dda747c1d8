"""Facts of a lifetime budget, from which screens, reports, pages and tables take their figures."""

from dataclasses import dataclass
from decimal import Decimal

from models_db.services.budget import Balance
from models_db.services.datasets import LifetimeClaim
from models_db.values.amounts import Amount
from tasks.accounting.lifetime_claims import lifetime_epsilon


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
        """Return an amount as a share of the cap: of rho or of the failure probability, whichever is more."""
        parts = ((amount.rho, self.cap.rho), (amount.delta, self.cap.delta))
        return max(Decimal(part) / whole if whole else Decimal(0) for part, whole in parts)
