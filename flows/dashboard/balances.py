"""Balances as pages show them: exact rho, percent of the cap, epsilon."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache

from models_db.services.lifecycle.ledger import Balance
from models_db.values.amounts import Amount
from tasks.accounting.lifetime_claims import lifetime_epsilon
from tasks.common.strict_model import figure
from tasks.reporting.number_format import format_small

epsilon_of = lru_cache(maxsize=4096)(lifetime_epsilon)
"""`lifetime_epsilon`, which searches; balances stay the same from one page to the next."""


@dataclass(frozen=True)
class BalanceFigures:
    """What an account may lose, has lost, keeps and has left; rho as exact decimals, shares in percent of the cap."""

    rho_cap: str
    rho_spent: str
    rho_held: str
    rho_in_envelopes: str
    rho_left: str
    spent_percent: str
    held_percent: str
    envelopes_percent: str
    left_percent: str
    epsilon_spent: str
    delta_fail_cap: str
    delta_fail_spent: str
    delta_fail_left: str


def figures_of(balance: Balance, delta_conversion: int) -> BalanceFigures:
    """A balance in figures; what is spent is rounded up, what is left down."""
    return BalanceFigures(
        rho_cap=format_rho(balance.cap),
        rho_spent=format_rho(balance.spent),
        rho_held=format_rho(balance.held),
        rho_in_envelopes=format_rho(balance.reserved),
        rho_left=format_rho(balance.remaining),
        spent_percent=format_percent(balance.spent.rho, balance.cap.rho),
        held_percent=format_percent(balance.held.rho, balance.cap.rho),
        envelopes_percent=format_percent(balance.reserved.rho, balance.cap.rho),
        left_percent=format_percent(balance.remaining.rho, balance.cap.rho, ROUND_FLOOR),
        epsilon_spent=epsilon_of(balance.spent, delta_conversion),
        delta_fail_cap=format_small(balance.cap.delta_text),
        delta_fail_spent=format_small(balance.spent.delta_text),
        delta_fail_left=format_small(balance.remaining.delta_text),
    )


def format_rho(amount: Amount) -> str:
    """Rho without zeros behind it."""
    return figure(Decimal(amount.rho_text))


def format_percent(part: int, whole: int, rounding: str = ROUND_CEILING) -> str:
    """A share in percent, to one place."""
    share = Decimal(part) * 100 / whole if whole else Decimal(0)
    return figure(share.quantize(Decimal("0.1"), rounding))
