"""Facts of a budget: shares and epsilons of amounts."""

from decimal import Decimal

import pytest

from models_db.services.budget import Balance
from models_db.values.amounts import Amount
from tasks.accounting.lifetime_claims import BudgetFacts, lifetime_claim, lifetime_epsilon, shares_of_cap

CLAIM = lifetime_claim("8", "1e-6")


def facts(spent: Amount, cap: Amount = CLAIM.cap) -> BudgetFacts:
    return BudgetFacts(CLAIM, Balance(cap, spent, Amount(), cap - spent))


def test_the_whole_cap_is_the_epsilon_of_the_claim() -> None:
    budget = facts(CLAIM.cap)
    assert budget.epsilon_spent == budget.epsilon_of(CLAIM.cap) == lifetime_epsilon(CLAIM.cap, CLAIM.delta_conversion)
    assert Decimal("7.999") < Decimal(budget.epsilon_spent) <= 8
    assert facts(Amount()).epsilon_spent == "0"


def test_shares_are_all_of_what_has_less_left() -> None:
    """200 of 1,000 are spent or held, and 3 of 10 of what may fail; a loss of rho alone can turn that round."""
    balance = Balance(Amount(1000, 10), Amount(150, 2), Amount(50, 1), Amount(800, 7))
    tenths = [Decimal(part) / 10 for part in range(11)]
    assert shares_of_cap(balance, balance.spent, balance.held) == (tenths[7], tenths[2], tenths[1])
    assert shares_of_cap(balance, Amount(300), loss=Amount(300)) == (tenths[5], tenths[3])
    assert shares_of_cap(Balance(Amount(), Amount(), Amount(), Amount()), Amount(1)) == (0, 0)
    no_failures = Balance(Amount(1000), Amount(500), Amount(), Amount(500))
    assert shares_of_cap(no_failures, Amount(500, 9)) == (tenths[5], tenths[5])


def test_what_is_left_is_of_the_fullest_block() -> None:
    """One block has spent 600 of 1,000; another has spent 100, and 500 of it are held."""
    balance = Balance(Amount(1000), Amount(600), Amount(500), Amount(400))
    assert shares_of_cap(balance)[0] == Decimal("0.4")
    said = BudgetFacts(CLAIM, balance).cost_sentence("shop", Amount(300), affordable=True)
    assert said == "It costs 30.0 % of the lifetime budget of shop; 10.0 % is left afterwards. No refunds."


@pytest.mark.parametrize(
    ("loss", "options", "sentence"),
    [
        (Amount(), {"affordable": True}, "It costs nothing of the lifetime budget."),
        (
            Amount(750),
            {"affordable": True},
            "It costs 75.0 % of the lifetime budget of shop; 5.0 % is left afterwards. No refunds.",
        ),
        (
            Amount(1, 3),
            {"affordable": True},
            "It costs 30.0 % of the lifetime budget of shop; 40.0 % is left afterwards. No refunds.",
        ),
        (
            Amount(750),
            {"affordable": False},
            "The budget does not afford it: it costs 75.0 % of the lifetime budget of shop.",
        ),
        (
            Amount(750),
            {"affordable": True, "with_balance": False},
            "It costs 75.0 % of the lifetime budget of shop, and the budget affords it. No refunds.",
        ),
    ],
)
def test_what_a_release_costs_and_leaves_is_one_sentence(loss: Amount, options: dict[str, bool], sentence: str) -> None:
    """200 of 1,000 are spent or held, and 3 of 10 of what may fail."""
    budget = BudgetFacts(CLAIM, Balance(Amount(1000, 10), Amount(150, 2), Amount(50, 1), Amount(800, 7)))
    assert budget.cost_sentence("shop", loss, **options) == sentence
