"""Number formats of screens, reports and cards."""

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from tasks.common.strict_model import figure


def format_small(value: str) -> str:
    """Format a decimal, small ones as `1e-7`."""
    number = Decimal(value).normalize()
    return re.sub(r"e-0*", "e-", f"{number:e}") if 0 < number < Decimal("0.001") else figure(number)


def round_up(epsilon: str) -> str:
    """Return an epsilon to four places, never less than it is."""
    return figure(Decimal(epsilon).quantize(Decimal("0.0001"), ROUND_CEILING))


def round_down(epsilon: Decimal) -> str:
    """Return an epsilon to three places, never more than it is."""
    return figure(epsilon.quantize(Decimal("0.001"), ROUND_FLOOR))


def format_share(share: Decimal, rounding: str = ROUND_CEILING) -> str:
    """Return a share as `25.5 %`, to one place."""
    return f"{(share * 100).quantize(Decimal('0.1'), rounding)} %"


def format_percent(share: Decimal, rounding: str = ROUND_CEILING) -> str:
    """Return a share in percent, to one place."""
    return figure((share * 100).quantize(Decimal("0.1"), rounding))


def rounded(value: Decimal) -> str:
    """Return a figure with three significant digits."""
    return figure(Context(prec=3, rounding=ROUND_HALF_EVEN).plus(value))


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
