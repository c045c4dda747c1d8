"""Balances as pages show them: exact rho, percent of the cap, epsilon."""

from dataclasses import dataclass
from decimal import ROUND_FLOOR

from tasks.accounting.lifetime_claims import BudgetFacts, shares_of_cap
from tasks.common.published_values import format_percent, format_small


@dataclass(frozen=True)
class BalanceFigures:
    """Cap, spent, held and remaining amounts of an account; rho as exact decimals, `shares_of_cap` in percent."""

    rho_cap: str
    rho_spent: str
    rho_held: str
    rho_left: str
    spent_percent: str
    held_percent: str
    left_percent: str
    epsilon_spent: str
    delta_fail_cap: str
    delta_fail_spent: str
    delta_fail_left: str


def figures_of(budget: BudgetFacts) -> BalanceFigures:
    """Return a budget in figures; spent amounts are rounded up, remaining amounts down."""
    balance = budget.balance
    cap, spent, held, remaining = balance.cap, balance.spent, balance.held, balance.remaining
    left_share, spent_share, held_share = shares_of_cap(balance, spent, held)
    return BalanceFigures(
        rho_cap=cap.rho_text,
        rho_spent=spent.rho_text,
        rho_held=held.rho_text,
        rho_left=remaining.rho_text,
        spent_percent=format_percent(spent_share),
        held_percent=format_percent(held_share),
        left_percent=format_percent(left_share, ROUND_FLOOR),
        epsilon_spent=budget.epsilon_spent,
        delta_fail_cap=format_small(cap.delta_text),
        delta_fail_spent=format_small(spent.delta_text),
        delta_fail_left=format_small(remaining.delta_text),
    )
