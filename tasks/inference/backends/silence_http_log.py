"""Silence for the HTTP library's log, which would contain addresses and an endpoint's headers.

An endpoint may send back whatever it likes, the key included. Only requests of ours are silenced; others in the same
process are logged as ever.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LOGGERS: Final = (
    "httpx",
    "httpcore.connection",
    "httpcore.http11",
    "httpcore.http2",
    "httpcore.proxy",
    "httpcore.socks",
)

_here = threading.local()


def _loud(record: logging.LogRecord) -> bool:
    return not getattr(_here, "silent", False)


@contextmanager
def silence_log() -> Iterator[None]:
    """Suppress the log of this thread's HTTP requests inside the block."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_loud)  # one that is there already is not added again
    _here.silent = True
    try:
        yield
    finally:
        _here.silent = False
