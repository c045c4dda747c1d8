"""Parameters and facts that the tests of several systems ask with."""

from typing import Any

from models_db.budgets import Amount
from tasks.accounting.zcdp import release_amount
from tasks.generation.interface import Ask
from tasks.generation.invisible_ink import InvisibleInkParameters

AMOUNT = release_amount("4", "1e-7")


def ink(**changes: Any) -> InvisibleInkParameters:
    """Parameters of InvisibleInk: 3 texts of 12 draws, armed 4 at a time."""
    given: dict[str, Any] = {
        "samples": 3,
        "references": 4,
        "max_new_tokens": 12,
        "temperature": "1",
        "top_k": 50,
        "max_reference_tokens": 48,
        "instalment": 4,
    }
    return InvisibleInkParameters.model_validate(given | changes)


def ask(
    parameters: Any = None,
    amount: Amount | None = AMOUNT,
    *,
    blocks: int = 1,
    population: int | None = None,
    governed: bool = True,
) -> Ask:
    """The public facts of one release."""
    return Ask(amount, parameters or ink(), blocks, population, governed)
