"""Databases that are told to commit and do not answer: a relay before PostgreSQL, a broken disk under SQLite."""

import contextlib
import os
import shutil
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import make_url
from sqlalchemy.engine.default import DefaultDialect

Fate = Literal["kept", "undone"]
"""What becomes of the next COMMIT: its answer is lost, or it never arrives."""

_SOCKET = ".s.PGSQL.5432"
_COMMIT = b"COMMIT\x00"
_EXECUTE = b"E\x00\x00\x00\x09\x00"
_AT_ONCE = b"Z\x00\x00\x00\x05I"
"""How the server's answers end between two transactions; a statement that is sent then is a transaction of its own."""


class Loss:
    """Loses the next COMMIT, once `fate` is set; with `for_good` everything after it, too."""

    def __init__(self) -> None:
        self.fate: Fate | None = None
        self.for_good = False
        self.lost = 0
        self.down = False

    def take(self) -> Fate | None:
        """The fate of the COMMIT that is under way."""
        fate, self.fate = self.fate, None
        if fate is not None:
            self.lost += 1
            self.down = self.for_good
        return fate


class BrokenDisk(Loss):
    """SQLite whose COMMIT fails, before or after it took effect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        real = DefaultDialect.do_commit

        def do_commit(dialect: Any, connection: Any) -> None:
            fate = self.take()
            if fate == "kept" or not (fate or self.down):
                real(dialect, connection)
            if fate or self.down:
                raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(DefaultDialect, "do_commit", do_commit)


class Relay(Loss):
    """Passes everything between clients and a server on a Unix socket; hangs up at a COMMIT that is to be lost."""

    def __init__(self, url: str) -> None:
        super().__init__()
        address = make_url(url)
        self._server = str(Path(str(address.query["host"])) / _SOCKET)
        self.folder = tempfile.mkdtemp(prefix="relay-")
        self.url = address.update_query_dict({"host": self.folder}).render_as_string(hide_password=False)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.path.join(self.folder, _SOCKET))
        self._listener.listen()
        self._threads: list[threading.Thread] = []
        self._clients: list[socket.socket] = []
        self._between: set[socket.socket] = set()
        self._unheard: set[socket.socket] = set()
        self._start(self._accept)

    def close(self) -> None:
        """Take no further clients, and hang up on those that are there: a pool that nobody collected keeps its own."""
        for end in (self._listener, *self._clients):
            _hang_up(end)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()
        shutil.rmtree(self.folder)

    def _start(self, work: Callable[..., None], *ends: socket.socket) -> None:
        thread = threading.Thread(target=work, args=ends, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while client := _accepted(self._listener):
            if self.down:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._clients.append(client)
            self._start(self._forth, client, server)
            self._start(self._back, server, client)

    def _forth(self, client: socket.socket, server: socket.socket) -> None:
        while data := _received(client):
            alone = self._alone(client, data)
            fate = self.take() if alone or _COMMIT in data else None
            if fate == "kept" and alone:
                self._unheard.add(client)  # before it has begun, nobody could find out what becomes of it
                server.sendall(data)
                return
            if fate == "kept":
                _hang_up(client)  # first, so that the answer goes nowhere
            if fate != "undone":
                with contextlib.suppress(OSError):  # the server has ended this session: the client is told by `_back`
                    server.sendall(data)
            if fate:
                break
        _hang_up(client)
        client.close()
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)  # it does what it was sent, then finds that nobody is there

    def _alone(self, client: socket.socket, data: bytes) -> bool:
        return client in self._between and _EXECUTE in data and b"BEGIN" not in data

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        while (data := _received(server)) and client not in self._unheard:
            (self._between.add if data.endswith(_AT_ONCE) else self._between.discard)(client)
            with contextlib.suppress(OSError):
                client.sendall(data)
        _hang_up(client)
        if client in self._unheard:
            client.close()
        server.close()


def _accepted(listener: socket.socket) -> socket.socket | None:
    try:
        return listener.accept()[0]
    except OSError:
        return None


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(65536)
    except OSError:
        return b""


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
