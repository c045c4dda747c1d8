"""Encoding of arrays in journals: little-endian bytes in base 64, the same on every machine."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from models_db.values.canonical_json import Json

Stored = Literal["<f4", "<f8", "<i8"]


def text_of(array: NDArray[Any], stored: Stored) -> str:
    """Return the numbers of an array, row by row; its shape is stored elsewhere."""
    return b64encode(array.astype(stored).tobytes()).decode("ascii")


def array_of(text: str, stored: Stored) -> NDArray[Any]:
    """Return the numbers again, one-dimensional, in this machine's order of bytes, and writable.

    Raises:
        TypeError, ValueError: it is no such text.
    """
    array = np.frombuffer(b64decode(text, validate=True), stored)
    return array.astype(array.dtype.newbyteorder("="))


def sums_json(sums: NDArray[np.int64]) -> Json:
    """Return the stored form of noisy sums: little-endian int64 in base 64, with their shape."""
    return {"shape": list(sums.shape), "sums": text_of(sums, "<i8")}


def sums_of_json(stored: Json) -> NDArray[np.int64]:
    """Read noisy sums from their stored form.

    Raises:
        KeyError, TypeError, ValueError: another form.
    """
    fields = cast("Mapping[str, Any]", stored)
    return array_of(fields["sums"], "<i8").reshape(fields["shape"])
