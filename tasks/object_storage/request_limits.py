"""What every request to a store has: one deadline, a bounded answer, and one server."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from tasks.object_storage.bucket_settings import BucketSettings
from tasks.object_storage.errors import StoreAnswer

_SECONDS: Final = 120
"""Seconds that a store has for a request and its answer, however often it is tried."""
_BYTES_A_SECOND: Final = 64 << 10
"""The slowest line over which objects are read and written."""
_LARGEST_ANSWER: Final = 16 << 20
"""Bytes: more than a range of an object, or a page of a list, has."""


@asynccontextmanager
async def deadline(size: int = 0) -> AsyncIterator[None]:
    """End the block in time.

    Args:
        size: the bytes of an object that it moves.

    Raises:
        ConnectionAbortedError: it took too long; no library tries it again.
    """
    try:
        async with asyncio.timeout(_SECONDS + size / _BYTES_A_SECOND):
            yield
    except TimeoutError:
        raise ConnectionAbortedError("no whole answer in time") from None


def open_session(settings: BucketSettings) -> aiohttp.ClientSession:
    """Open a session with the settings of a bucket and nothing of the environment; it follows no redirection."""
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_redirection)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=settings.ca_file)),
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=settings.proxy,
        trust_env=False,
        auto_decompress=False,
        headers={"Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(sock_connect=10, sock_read=60),
        trace_configs=[trace],
        response_class=_BoundedResponse,
    )


async def _refuse_redirection(_session: object, _context: object, answer: aiohttp.TraceRequestRedirectParams) -> None:
    answer.response.close()
    raise StoreAnswer(str(answer.response.status))  # it would carry credentials and names elsewhere


class _BoundedResponse(aiohttp.ClientResponse):
    async def read(self) -> bytes:
        if self._body is None:
            self._body = await read_bounded(self.content.iter_any(), _LARGEST_ANSWER)
        return self._body


async def read_bounded(pieces: Any, most: int) -> bytes:
    """Return the bytes of an answer.

    Raises:
        ConnectionAbortedError: there are more than `most`.
    """
    data = bytearray()
    async for piece in pieces:
        data += piece
        if len(data) > most:
            raise ConnectionAbortedError("more than was requested")
    return bytes(data)
