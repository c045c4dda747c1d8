"""Base class of everything that is published: closed, frozen values without floats."""

import re
from decimal import Decimal
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
