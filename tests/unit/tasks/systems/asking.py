"""Parameters and facts that the tests of several systems ask with."""

from typing import Any

from models_db.values.amounts import Amount
from tasks.accounting.zcdp import release_amount
from tasks.systems.invisible_ink import InvisibleInkParameters
from tasks.values.plan import PlanInputs

AMOUNT = release_amount("4", "1e-7")
OUT_OF_RANGE: tuple[dict[str, object], ...] = (
    {"samples": 0},
    {"references": 0},
    {"max_new_tokens": 0},
    {"temperature": 0},
    {"top_k": -1},
    {"seed": 42},
)
"""What every system that decodes by rows refuses; each system's tests add its own."""


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
) -> PlanInputs:
    """The public facts of one release."""
    return PlanInputs(amount, parameters or ink(), blocks, population, governed)
