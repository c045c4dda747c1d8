"""Connections with a deadline for a whole request, also if an endpoint answers slowly.

The HTTP library waits so long for each piece that comes. An endpoint that sends a byte of its headers now and then, or
`100 Continue` for ever, would hold a run until somebody ends it. Here every wait ends when the request has to.
"""

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

_here = threading.local()


@contextmanager
def with_deadline(until: float) -> Iterator[None]:
    """End every wait of this thread on `TimedTransport` in the block at that time of the monotonic clock."""
    _here.until = until
    try:
        yield
    finally:
        _here.until = None


def _remaining_seconds(timeout: float | None, over: type[Exception]) -> float | None:
    """Return the remaining seconds; raise `over` if there are none."""
    until: float | None = getattr(_here, "until", None)
    if until is None:
        return timeout
    remaining = until - time.monotonic()
    if remaining <= 0:
        raise over
    return remaining if timeout is None else min(timeout, remaining)


class TimedTransport(httpx.HTTPTransport):
    """httpx's transport with the deadline of `with_deadline`. Arguments are those of `httpx.HTTPTransport`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # httpx has no argument for it; tests notice if a version of it no longer asks here for its connections.
        self._pool._network_backend = _Network()


class _Network(httpcore.SyncBackend):
    """Makes connections."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        remaining = _remaining_seconds(timeout, httpcore.ConnectTimeout)
        return _Timed(super().connect_tcp(host, port, remaining, local_address, socket_options))


class _Timed(httpcore.NetworkStream):
    """A connection."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _remaining_seconds(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _remaining_seconds(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        remaining = _remaining_seconds(timeout, httpcore.ConnectTimeout)
        return _Timed(self._stream.start_tls(ssl_context, server_hostname, remaining))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
