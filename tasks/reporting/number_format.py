"""Number formats of reports."""

import re
from decimal import Decimal

from tasks.common.strict_model import figure


def format_small(value: str) -> str:
    """Format a decimal, small ones as `1e-7`."""
    number = Decimal(value).normalize()
    return re.sub(r"e-0*", "e-", f"{number:e}") if 0 < number < Decimal("0.001") else figure(number)


def format_number(value: object) -> str:
    """Format a figure of a metric; None is `not measurable`."""
    return "not measurable" if value is None else str(value)


def number(value: object) -> float | None:
    """Parse a stored figure for a chart; None for a value that is no number or not finite."""
    if value is None:
        return None
    try:
        decimal = Decimal(str(value))
    except ArithmeticError:
        return None
    return float(decimal) if decimal.is_finite() else None
