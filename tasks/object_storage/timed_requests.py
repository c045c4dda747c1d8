"""Requests of the library `requests` with one deadline for connection, headers and body, however slowly they come.

The library waits so long for each piece that comes. A server that sends a byte now and then would hold a run until
somebody ends it. Here every connection of a request is shut down when the request has to end.
"""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_here = threading.local()


@contextmanager
def with_deadline(seconds: float) -> Iterator[None]:
    """End every connection of this thread's `TimedAdapter` so many seconds from now, if the block still runs.

    Raises:
        requests.Timeout: the time was over before the block was.
    """
    watch = _Watch()
    timer = threading.Timer(seconds, watch.end)
    timer.daemon = True
    timer.start()
    _here.watch = watch
    try:
        yield
    except Exception as problem:
        if not watch.ended:
            raise
        raise requests.Timeout(f"no whole answer within {seconds:g} seconds") from problem
    finally:
        _here.watch = None
        timer.cancel()
        watch.close()
    if watch.ended:  # what was shut down can look like a complete answer
        raise requests.Timeout(f"no whole answer within {seconds:g} seconds")


class TimedAdapter(HTTPAdapter):  # type: ignore[misc]
    """The adapter of `requests`, whose connections end by `with_deadline`."""

    def init_poolmanager(self, *given: Any, **options: Any) -> None:
        """Make the pools of connections."""
        super().init_poolmanager(*given, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *given: Any, **options: Any) -> Any:
        """Return the pools of connections through a proxy."""
        manager = super().proxy_manager_for(*given, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager


class _Watch:
    """The connections of one block, each by a handle of its own: TLS and unread answers take the first one away."""

    def __init__(self) -> None:
        self.ended = False
        self._handles: list[socket.socket] = []
        self._lock = threading.Lock()

    def add(self, connected: socket.socket) -> None:
        with self._lock:
            self._handles.append(socket.socket(fileno=os.dup(connected.fileno())))
            if self.ended:
                self._shut_down()

    def end(self) -> None:
        with self._lock:
            self.ended = True
            self._shut_down()

    def close(self) -> None:
        with self._lock:
            for handle in self._handles:
                handle.close()
            self._handles.clear()

    def _shut_down(self) -> None:
        for handle in self._handles:
            with suppress(OSError):  # it has ended already
                handle.shutdown(socket.SHUT_RDWR)


class _Timed(HTTPConnection):
    """A connection, new or kept from an earlier request."""

    def _new_conn(self) -> socket.socket:
        return _watched(super()._new_conn())

    def request(self, *given: Any, **options: Any) -> None:
        if self.sock is not None:
            _watched(self.sock)
        super().request(*given, **options)


def _watched(connected: socket.socket) -> socket.socket:
    watch: _Watch | None = getattr(_here, "watch", None)
    if watch is not None:
        watch.add(connected)
    return connected


class _TimedTls(_Timed, HTTPSConnection):
    """The same over TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Timed


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TimedTls


_POOLS = {"http": _Pool, "https": _TlsPool}
