"""The network between pollers and PostgreSQL: a relay on loopback that cuts, stalls, refuses and loses answers."""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.faults import Fault

_COMMIT = b"COMMIT\x00"
_EXECUTE = b"E\x00\x00\x00\x09\x00"
_AT_ONCE = b"Z\x00\x00\x00\x05I"
"""How the server's answers end between two transactions; a statement that is sent then is a transaction of its own."""


@dataclass(eq=False)
class _Line:
    """One connection: both ends, whether the server is between two transactions, and whether its answers are lost."""

    client: socket.socket
    server: socket.socket
    between: bool = False
    deaf: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def cut(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def is_commit(self, data: bytes) -> bool:
        """Whether what is sent ends a transaction, or is a whole one."""
        return _COMMIT in data or (self.between and _EXECUTE in data and b"BEGIN" not in data)


class Network:
    """Passes everything on between clients on a port of loopback and a server's Unix socket, until it is told not to.

    Attributes:
        port: where clients connect.
        hit: how many connections or commits a fault has met.
    """

    def __init__(self, server: Path) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lines: set[_Line] = set()
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        self._commits: tuple[str, int] | None = None
        self.hit = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cut everything, and take no further clients."""
        self._flowing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._cut()

    def suffer(self, fault: Fault) -> None:
        """What happens, from beginning to end."""
        time.sleep(fault.delay)
        match fault.how:
            case "cut":
                self._cut()
            case "stalls" | "stalls and is cut":
                self._stall(fault)
            case "answers are lost":
                self._lose(fault)
            case "refused":
                self._refusing = True
                self._cut()
                time.sleep(fault.lasts)
                self._refusing = False
            case "commit unheard" | "commit lost":
                self._commits = (fault.how, fault.number)

    def heal(self) -> None:
        """Whatever has not happened will not."""
        self._commits, self._refusing = None, False
        self._flowing.set()

    def _stall(self, fault: Fault) -> None:
        self._flowing.clear()
        self.hit += len(self._lines)
        time.sleep(fault.lasts)
        if fault.how.endswith("cut"):
            self._cut()
        self._flowing.set()

    def _lose(self, fault: Fault) -> None:
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            line.deaf = True
        self.hit += len(lines)
        time.sleep(fault.lasts)
        for line in lines:
            line.cut()

    def _cut(self) -> None:
        with self._lock:
            lines = list(self._lines)
        self.hit += len(lines)
        for line in lines:
            line.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError):
            if self._refusing:
                return
            server.connect(str(self._server))
            line = _Line(client, server)
            with self._lock:
                self._lines.add(line)
            back = threading.Thread(target=self._back, args=(line,), daemon=True)
            back.start()
            self._forth(line)
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_WR)  # it does what it was sent, then finds that nobody is there
            back.join()
            with self._lock:
                self._lines.discard(line)

    def _forth(self, line: _Line) -> None:
        with contextlib.suppress(OSError):
            while data := line.client.recv(65536):
                self._flowing.wait()
                how = self._taken() if line.is_commit(data) else None
                if how == "commit lost":
                    line.cut()
                    return
                if how == "commit unheard":
                    line.deaf = True
                line.server.sendall(data)
                if how == "commit unheard":
                    return  # the way back hangs up when the server has answered

    def _back(self, line: _Line) -> None:
        with contextlib.suppress(OSError):
            while data := line.server.recv(65536):
                self._flowing.wait()
                line.between = data.endswith(_AT_ONCE)
                if not line.deaf:
                    line.client.sendall(data)
        line.cut()

    def _taken(self) -> str | None:
        """Whether this commit is the one that is to be lost, and how."""
        with self._lock:
            if self._commits is None:
                return None
            how, left = self._commits
            self._commits = (how, left - 1) if left > 1 else None
            if left > 1:
                return None
            self.hit += 1
            return how
