"""A server that never comes to an end: a byte now and then, of a handshake, of headers or of a body."""

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.support import PATIENCE

KEPT = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
HEADERS = b"HTTP/1.1 200 OK\r\nX-Never: "
BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.0 200 OK\r\n\r\n"
HINTS = b"HTTP/1.1 100 Continue\r\n\r\n"
STARTS = {"headers": (HEADERS, b"a"), "body": (BODY, b" "), "body without a length": (UNTIL_CLOSED, b" "),
          "hints": (b"", HINTS), "nothing": (b"", b"")}  # fmt: skip
"""What it says at first, and then again and again."""
BETWEEN = 0.05


@dataclass
class Dripping:
    """Listens on this machine until `close`.

    Attributes:
        first, then: what it says of an answer at once, and again and again.
        kept: how many requests of a connection it answers before.
        shown: TLS in front of it; None for none.
        unasked: whether it speaks before it was asked.
    """

    first: bytes
    then: bytes
    kept: int = 0
    shown: ssl.SSLContext | None = None
    unasked: bool = False
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """End every connection."""
        self.closing.set()
        self._listening.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                connected, _ = self._listening.accept()
                threading.Thread(target=self._drip, args=(connected,), daemon=True).start()

    def _drip(self, connected: socket.socket) -> None:
        with suppress(OSError):
            line = connected if self.shown is None else self.shown.wrap_socket(connected, server_side=True)
            with line:
                for _ in range(self.kept):
                    line.recv(65536)
                    line.sendall(KEPT)
                if not self.unasked:
                    line.recv(65536)
                line.sendall(self.first)
                while not self.closing.wait(BETWEEN):
                    line.sendall(self.then)


def ended(server: Dripping, act: Callable[[], object]) -> BaseException | None:
    """How `act` ended by itself: what it raised, None if nothing. What holds on until the server is closed fails."""
    how: list[BaseException | None] = []

    def acting() -> None:
        try:
            act()
        except BaseException as problem:  # noqa: BLE001 - it is returned
            how.append(problem)
        else:
            how.append(None)

    thread = threading.Thread(target=acting, daemon=True)
    thread.start()
    thread.join(min(PATIENCE, 60))
    by_itself = not thread.is_alive()
    server.close()
    thread.join()
    assert by_itself, "it holds as long as the server drips"
    return how[0]
