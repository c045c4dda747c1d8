"""A receiver of webhooks on the loopback, for tests of notices."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """What arrived; `answers` are given in turn, the last one again and again."""

    url: str = ""
    answers: list[int] = field(default_factory=lambda: [204])
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def events(self) -> list[str]:
        return [json.loads(body)["event"] for _, body in self.seen]


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A real HTTP server on the loopback."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.seen.append((dict(self.headers.items()), body))
            answer = found.answers.pop(0) if len(found.answers) > 1 else found.answers[0]
            self.send_response(answer)
            self.send_header("Location", f"{found.url}elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}/"
    with serving(server):
        yield found
