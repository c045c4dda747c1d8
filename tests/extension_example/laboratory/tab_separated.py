"""Reader of tab-separated files: the first line names the fields."""

from collections.abc import Iterator, Mapping
from typing import BinaryIO


def read_records(file: BinaryIO) -> Iterator[Mapping[str, object]]:
    """Yield the records of a file, front to back, one at a time.

    Raises:
        ValueError: a line has another number of cells than the first.
    """
    names = _cells(file.readline())
    for line in file:
        yield dict(zip(names, _cells(line), strict=True))


def _cells(line: bytes) -> list[str]:
    return line.decode("utf-8").rstrip("\r\n").split("\t")
