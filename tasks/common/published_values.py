"""Published values: the closed, frozen base class of everything that is published, without floats; formats of numbers.

The formats are those of screens, reports and cards.
"""

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from models_db.values.canonical_json import Json, encode_canonical
from tasks.common.files import FileUnfit

Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
Figure = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,30}(\.[0-9]{1,60})?$")]
"""A non-negative plain decimal: '4', '0.0000001'."""
Name = Annotated[str, StringConstraints(min_length=1, max_length=300)]


class Strict(BaseModel):
    """A value with exactly the declared fields: only declared fields are published."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


Model = TypeVar("Model", bound=Strict)


def read_as(model: type[Model], value: Json, name: str) -> Model:
    """Return the content `value` of the file `name`, as a `model`.

    Raises:
        FileUnfit: with the first field that does not fit.
    """
    try:
        return model.model_validate_json(encode_canonical(value))
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise FileUnfit(name, f"has an unfit field {place!r}: {first['msg']}") from None


def figure(value: Decimal) -> str:
    """Format a decimal as a plain figure, without trailing zeros and without rounding."""
    text = format(value, "f")
    return re.sub(r"\.?0+$", "", text) if "." in text else text


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
