"""Facts of a budget: shares and epsilons of amounts."""

from decimal import Decimal

import pytest

from models_db.services.budget import Balance
from models_db.values.amounts import Amount
from tasks.accounting.budget_facts import BudgetFacts
from tasks.accounting.lifetime_claims import lifetime_claim, lifetime_epsilon

CLAIM = lifetime_claim("8", "1e-6")


def facts(spent: Amount, cap: Amount = CLAIM.cap) -> BudgetFacts:
    return BudgetFacts(CLAIM, Balance(cap, spent, Amount(), cap - spent))


def test_the_whole_cap_is_the_epsilon_of_the_claim() -> None:
    budget = facts(CLAIM.cap)
    assert budget.epsilon_spent == budget.epsilon_of(CLAIM.cap) == lifetime_epsilon(CLAIM.cap, CLAIM.delta_conversion)
    assert Decimal("7.999") < Decimal(budget.epsilon_spent) <= 8
    assert facts(Amount()).epsilon_spent == "0"


def test_a_share_is_of_whatever_is_scarcer() -> None:
    budget = facts(Amount(), Amount(1000, 10))
    assert budget.share_of_cap(Amount(250, 1)) == Decimal("0.25")
    assert budget.share_of_cap(Amount(250, 9)) == Decimal("0.9")
    assert facts(Amount(), Amount(1000)).share_of_cap(Amount(500)) == Decimal("0.5")


@pytest.mark.parametrize(
    ("loss", "options", "sentence"),
    [
        (Amount(), {"affordable": True}, "It costs nothing of the lifetime budget."),
        (
            Amount(250),
            {"affordable": True},
            "It costs 25.0 % of the lifetime budget of shop; 55.0 % is left",
        ),
        (
            Amount(1, 3),
            {"affordable": True},
            "It costs 30.0 % of the lifetime budget of shop; 40.0 % is left",
        ),
        (
            Amount(250),
            {"affordable": False},
            "The budget does not afford it: it costs 25.0 % of the lifetime",
        ),
        (
            Amount(250),
            {"affordable": True, "with_balance": False},
            "It costs 25.0 % of the lifetime budget of shop, and the budget affords it.",
        ),
    ],
)
def test_what_a_release_costs_and_leaves_is_one_sentence(loss: Amount, options: dict[str, bool], sentence: str) -> None:
    """200 of 1,000 are spent or held, and 3 of 10 of what may fail."""
    budget = BudgetFacts(CLAIM, Balance(Amount(1000, 10), Amount(150, 2), Amount(50, 1), Amount(800, 7)))
    assert budget.cost_sentence("shop", loss, **options).startswith(sentence)
    assert budget.share_left == Decimal("0.7")
