"""Figures as people read them."""

import re
from decimal import ROUND_CEILING, Decimal

from tasks.common.strict_model import figure


def format_small(value: str) -> str:
    """A decimal as people write small ones: 1e-7."""
    number = Decimal(value).normalize()
    return re.sub(r"e-0*", "e-", f"{number:e}") if 0 < number < Decimal("0.001") else figure(number)


def round_up(epsilon: str) -> str:
    """An epsilon to four places, never less than it is."""
    return figure(Decimal(epsilon).quantize(Decimal("0.0001"), ROUND_CEILING))


def format_percent(part: int, whole: int, rounding: str = ROUND_CEILING) -> str:
    """A share in percent, to one place."""
    share = Decimal(part) * 100 / whole if whole else Decimal(0)
    return figure(share.quantize(Decimal("0.1"), rounding))


def format_number(value: object) -> str:
    """A figure of a metric; what was not measured says so."""
    return "not measurable" if value is None else str(value)


def number(value: object) -> float | None:
    """A stored figure as a place on a chart; None for what is none, or not finite."""
    if value is None:
        return None
    try:
        found = Decimal(str(value))
    except ArithmeticError:
        return None
    return float(found) if found.is_finite() else None
