"""Encoding of arrays in journals: little-endian bytes in base 64, the same on every machine."""

from base64 import b64decode, b64encode
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

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
