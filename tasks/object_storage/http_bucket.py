"""Bucket of a store that speaks plain HTTP requests: Google Cloud Storage and Azure Blob Storage.

Three requests are enough to read: the state of an object, a page of a list, and a range of bytes in one state. They go
to one server, over https unless it is this machine; redirections are not followed, and neither proxies, certificates
nor passwords come from the environment or from files in the user's home.
"""

import io
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote, urlencode, urlsplit

import requests
from requests.structures import CaseInsensitiveDict
from urllib3.exceptions import HTTPError

from tasks.object_storage.address import Address, StoreReadOnly
from tasks.object_storage.backend import Entry, seconds_for
from tasks.object_storage.bucket_settings import BucketSettings, is_safe
from tasks.object_storage.errors import StoreAnswer, UnsafeUrlError
from tasks.object_storage.timed_requests import TimedAdapter, with_deadline

_READ_AHEAD: Final = 8 << 20
_ATTEMPTS: Final = 3
_PAUSE: Final = 0.5
"""Seconds before the second attempt; twice as long before the third."""
_TIMEOUT: Final = (10.0, 60.0)
"""Seconds to connect, and between two pieces of an answer."""
_LARGEST_PAGE: Final = 64 << 20
"""Bytes of an answer that is no part of an object."""
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})
_COMPLETE: Final = frozenset({200, 206})
_MACHINE_ROLE_HOSTS: Final = frozenset({"169.254.169.254", "metadata.google.internal"})


@dataclass(frozen=True)
class Answer:
    """Answer of a store: its status, headers and body, as sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpBucket(ABC):
    """One bucket; a `Backend`."""

    errors: tuple[type[Exception], ...] = ()
    sorted: bool

    def __init__(self, session: requests.Session, url: str) -> None:
        self._session = session
        self._url = url

    @abstractmethod
    def find(self, address: Address) -> Entry | None:
        """Return the object at exactly this address, or None."""

    @abstractmethod
    def pages(self, address: Address, prefix: str) -> Iterator[list[Entry]]:
        """Yield every object whose key begins with `prefix`."""

    @abstractmethod
    def read(self, entry: Entry, first: int, last: int) -> Answer:
        """Request the bytes from `first` to `last`, both included, of an object in the state of `entry`."""

    @abstractmethod
    def authorize(self, method: str, url: str, parameters: dict[str, str], headers: dict[str, str]) -> None:
        """Add what proves who asks to the parameters or headers of a request."""

    @abstractmethod
    def code(self, answer: Answer) -> str:
        """Return the code of an answer that is an error."""

    def open(self, entry: Entry) -> BinaryIO:
        """Open an object for reading in exactly the state of `entry`; the first bytes are requested when read."""
        return io.BufferedReader(_Ranges(lambda first, last: self._range(entry, first, last), entry.size), _READ_AHEAD)

    def put(self, address: Address, path: Path, mode: str) -> None:
        """Refuse: nothing is written here.

        Raises:
            StoreReadOnly.
        """
        raise StoreReadOnly(address)

    def _range(self, entry: Entry, first: int, last: int) -> bytes:
        answer = self.read(entry, first, last)
        if answer.status != 206 or not answer.headers.get("Content-Range", "").startswith(f"bytes {first}-{last}/"):
            raise StoreAnswer("another-range")
        return answer.body

    def request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str],
        headers: Mapping[str, str],
        size: int | None = None,
    ) -> Answer:
        """Send a request, at most three times while the store is busy or silent, and all within `seconds_for`.

        Args:
            size: bytes of the answer; None if unknown.

        Raises:
            StoreAnswer: the store answers with an error.
            requests.RequestException: no complete answer.
        """
        with with_deadline(seconds_for(size or 0)):
            return self._tried(method, path, parameters, headers, size)

    def _tried(
        self, method: str, path: str, parameters: Mapping[str, str], headers: Mapping[str, str], size: int | None
    ) -> Answer:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = self._send(method, path, dict(parameters), dict(headers), size)
            except requests.RequestException:
                if attempt == _ATTEMPTS:
                    raise
            else:
                if answer.status in _COMPLETE:
                    return answer
                if attempt == _ATTEMPTS or answer.status not in _BUSY:
                    raise StoreAnswer(str(answer.status) if answer.status in _BUSY else self.code(answer))
            time.sleep(_PAUSE * attempt)
        raise AssertionError("unreachable")

    def _send(
        self, method: str, path: str, parameters: dict[str, str], headers: dict[str, str], size: int | None
    ) -> Answer:
        url = f"{self._url}/{path}"
        self.authorize(method, url, parameters, headers)
        query = urlencode(parameters, quote_via=quote)  # a space is %20: not every store takes `+` for one
        with self._session.request(method, url, params=query, headers=headers, stream=True) as response:
            complete = response.status_code in _COMPLETE
            limit = size if complete and size is not None else _LARGEST_PAGE
            body = b""
            try:
                # Until there is no more: only then urllib3 compares the length with the one that was announced.
                while len(body) <= limit and (piece := response.raw.read(limit + 1 - len(body), decode_content=False)):
                    body += piece
            except (HTTPError, OSError) as problem:
                raise requests.ConnectionError("broken off") from problem
        if len(body) > limit or (complete and size is not None and len(body) < size):
            raise requests.ConnectionError("another length")
        return Answer(response.status_code, CaseInsensitiveDict(response.headers), body)


class _Ranges(io.RawIOBase):
    """Reader of an object, by ranges."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = min(len(buffer), self._size - self._position, _READ_AHEAD)
        if count <= 0:
            return 0
        buffer[:count] = self._read(self._position, self._position + count - 1)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError("a position is not negative")
        self._position = start + offset
        return self._position


class Session(requests.Session):  # type: ignore[misc]
    """Session for a store and for the server of its credentials, with nothing of the environment."""

    def __init__(self, settings: BucketSettings) -> None:
        super().__init__()
        self.trust_env = False
        self.verify = settings.ca_file or True
        if settings.proxy is not None:
            self.proxies = {"https": settings.proxy}
        self.mount("https://", TimedAdapter())
        self.mount("http://", _ThisMachine(_MACHINE_ROLE_HOSTS if settings.instance_role else frozenset()))

    def request(self, method: str, url: str, **options: Any) -> requests.Response:
        """Send a request, and follow no redirection: it would carry the credentials elsewhere."""
        return super().request(method, url, **{"timeout": _TIMEOUT, **options, "allow_redirects": False})


class _ThisMachine(TimedAdapter):
    """Plain http, to this machine and to a closed list of hosts."""

    def __init__(self, hosts: frozenset[str]) -> None:
        super().__init__()
        self._hosts = hosts

    def send(self, request: requests.PreparedRequest, *more: Any, **options: Any) -> requests.Response:
        """Send a request.

        Raises:
            UnsafeUrlError: it goes to another machine.
        """
        url = str(request.url)
        if not is_safe(url) and urlsplit(url).hostname not in self._hosts:
            raise UnsafeUrlError("plain http")
        return super().send(request, *more, **options)
