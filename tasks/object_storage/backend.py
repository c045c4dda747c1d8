"""What the store of each kind does: find, list and read objects, each in one state that a tag names."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from tasks.object_storage.address import Address
from tasks.object_storage.errors import CredentialsUnset

SECONDS: Final = 120
"""Seconds that a store has for a request and its answer, however often it is tried."""
BYTES_A_SECOND: Final = 64 << 10
"""The slowest line over which objects are read and written."""


def seconds_for(size: int) -> float:
    """Return the seconds that a request may take which moves so many bytes of an object."""
    return SECONDS + size / BYTES_A_SECOND


@dataclass(frozen=True)
class Entry:
    """State of an object: its size in bytes, and a tag that changes with its content."""

    address: Address
    size: int
    tag: str


class Backend(Protocol):
    """One bucket. Its methods raise errors of libraries, which `translate_store_errors` translates.

    Attributes:
        errors: the kinds of errors that are no OSError.
        sorted: whether objects are listed in byte order of their keys.
    """

    errors: tuple[type[Exception], ...]
    sorted: bool

    def find(self, address: Address) -> Entry | None:
        """Return the object at exactly this address, or None; a missing bucket looks empty here."""

    def pages(self, address: Address, prefix: str) -> Iterator[list[Entry]]:
        """Yield every object whose key begins with `prefix`, by pages, with an address like `address`."""

    def open(self, entry: Entry) -> BinaryIO:
        """Open an object for reading, sequentially or with seeks, in exactly the state of `entry`.

        Raises:
            StoreAnswer, with code 412: the object is in another state.
        """

    def put(self, address: Address, path: Path, mode: str) -> None:
        """Upload a file under a name; with mode "create", only if the name is free."""


def read_secret(address: Address, variable: str | None) -> str | None:
    """Return the content of a variable that the settings name; None if they name none.

    Raises:
        CredentialsUnset: the variable is empty.
    """
    if variable is None:
        return None
    if not (value := os.environ.get(variable, "")):
        raise CredentialsUnset(address, variable)
    return value
