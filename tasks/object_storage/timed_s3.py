"""fsspec's S3 file system, each of whose requests has one deadline and a bounded answer."""

import asyncio
from typing import Any, Final

from fsspec.asyn import sync_wrapper
from s3fs import S3FileSystem

_SECONDS: Final = 120
"""Seconds that a store has for a request and its answer, however often it is tried."""
_BYTES_A_SECOND: Final = 64 << 10
"""The slowest line over which objects are read and written."""


class TimedS3(S3FileSystem):  # type: ignore[misc]
    """The file system; the body of an object is read before its request ends."""

    async def _call_s3(self, method: str, *given: Any, **options: Any) -> Any:
        size = _requested(options["Range"]) if "Range" in options else len(options.get("Body", b""))
        try:
            async with asyncio.timeout(_SECONDS + size / _BYTES_A_SECOND):
                answer = await super()._call_s3(method, *given, **options)
                if method == "get_object":
                    answer["Body"] = _Body(await _whole(answer["Body"], size))
                return answer
        except TimeoutError:
            raise ConnectionAbortedError("no whole answer in time") from None  # not one that s3fs tries again

    call_s3 = sync_wrapper(_call_s3)


class _Body:
    """A body that has been read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self) -> bytes:
        """Return all of it."""
        return self._data

    def close(self) -> None:
        """Do nothing: the request has ended."""


def _requested(span: str) -> int:
    """Return how many bytes a range `bytes=FIRST-LAST` asks for."""
    first, last = span.removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1


async def _whole(body: Any, most: int) -> bytes:
    data = bytearray()
    try:
        async for piece in body.iter_chunks():
            data += piece
            if len(data) > most:
                raise ConnectionAbortedError("more than was asked for")
    finally:
        body.close()
    return bytes(data)
