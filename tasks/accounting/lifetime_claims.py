"""Lifetime claims and budgets: integer caps derived from epsilon and delta (PRIVACY §10.2), and the figures of readers.

Lifetime claims: the integer caps behind an epsilon and a delta, derived and never accepted (PRIVACY §10.2). Every step
that proposes, shows, signs, applies, checks or publishes a cap derives the amounts from the text that people read, by
the function that registers a dataset. A differing amount in the ledger is an error in each of these steps.
"""

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from functools import lru_cache

from models_db.errors import Refused
from models_db.services.budget import Balance
from models_db.services.datasets import LifetimeClaim
from models_db.values.amounts import DELTA_UNIT, Amount
from models_db.values.requests import format_decimal, model_to_json
from tasks.accounting.rounding import InexactNumber
from tasks.accounting.zcdp import InvalidTarget, lifetime_cap, spent_epsilon
from tasks.common.published_values import format_share


@lru_cache(maxsize=4096)
def lifetime_claim(epsilon: str, delta: str) -> LifetimeClaim:
    """Return the lifetime claim (epsilon, delta) and the integer caps that enforce it.

    Raises:
        InvalidTarget, InexactNumber: no claim can be made from them.
    """
    cap = lifetime_cap(epsilon, delta)
    return LifetimeClaim(
        epsilon=str(model_to_json(cap.epsilon)),
        delta=str(model_to_json(cap.delta)),
        delta_conversion=int(cap.delta_conv * DELTA_UNIT),
        cap=cap.amount,
    )


def require_derived(what: str, stored: LifetimeClaim) -> LifetimeClaim:
    """Check that the amounts of a stored claim are those that its epsilon and delta give; returns the derived claim.

    Args:
        what: names what carries the claim, as in 'Proposal 3'.

    Raises:
        AmountsDiffer: they are not, or no claim can be made from the text, or the text is not in its one form.
    """
    try:
        derived = lifetime_claim(stored.epsilon, stored.delta)
    except (InvalidTarget, InexactNumber):
        raise AmountsDiffer(what, stored, None) from None
    if derived != stored:
        raise AmountsDiffer(what, stored, derived)
    return derived


@lru_cache(maxsize=4096)  # it searches, and lists and pages ask for the same amounts again
def lifetime_epsilon(amount: Amount, delta_conversion: int) -> str:
    """Return the epsilon of `amount` at a delta of `delta_conversion` (units of 1e-18), rounded up to four places."""
    if not amount.rho:
        return "0"
    epsilon = spent_epsilon(amount, Decimal(delta_conversion) / DELTA_UNIT)
    return format_decimal(epsilon.quantize(Decimal("0.0001"), rounding="ROUND_CEILING"))


class AmountsDiffer(Refused):
    """The ledger's amounts of a lifetime claim are not those that its epsilon and delta give."""

    def __init__(self, what: str, stored: LifetimeClaim, derived: LifetimeClaim | None) -> None:
        means = f"which is {_amounts(derived)}" if derived else "from which no amounts follow"
        super().__init__(
            f"{what} says epsilon {stored.epsilon} at delta {stored.delta}, {means};"
            f" the ledger has {_amounts(stored)}.",
            "Approve, run and publish nothing on it. `almoner audit log` shows who recorded it; `almoner doctor` lists"
            " every claim whose amounts differ.",
            {
                "subject": what,
                "epsilon": stored.epsilon,
                "delta": stored.delta,
                "stored_rho": stored.cap.rho_text,
                "stored_delta_fail": stored.cap.delta_text,
                "derived_rho": derived.cap.rho_text if derived else None,
                "derived_delta_fail": derived.cap.delta_text if derived else None,
            },
        )


def _amounts(claim: LifetimeClaim) -> str:
    conversion = Amount(0, claim.delta_conversion).delta_text
    return f"rho {claim.cap.rho_text}, failure delta {claim.cap.delta_text} and conversion delta {conversion}"


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
