"""Request to an endpoint and its outcome. No exception from here holds a key or an answer.

TLS is verified; nothing of the environment is used (no proxy, no certificates, no .netrc, no SSLKEYLOGFILE); redirects
are not followed; cookies are neither kept nor sent; an answer is read up to a size and not unpacked, and a request ends
in time however slowly its answer comes; nothing is logged.

*Answers.* An endpoint may send anything. One text and one number are taken from the first choice of a chat completion,
checked field by field, and an answer of any other form is malformed; the reason is in almoner's words and quotes
nothing of the answer.

*Time.* The HTTP library waits so long for each piece that comes. An endpoint that sends a byte of its headers now and
then, or `100 Continue` for ever, would hold a run until somebody ends it. Here every wait ends when the request has to.
How often an endpoint is asked, and when again after an error, is public.

*Log.* The HTTP library's log would contain addresses and an endpoint's headers, and an endpoint may send back whatever
it likes, the key included. Only requests of ours are silenced; others in the same process are logged as ever.
"""

import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpcore
import httpx

from tasks.inference.backends.endpoints import Endpoint, EndpointFailure, Key, endpoint_failed
from tasks.inference.backends.text_backend import SYSTEM, Completion, Sampling

CONNECT: Final = 20.0
"""Seconds for a connection, if the endpoint's timeout is not shorter."""

HEADERS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": "almoner",
}

HOPELESS: Final[frozenset[EndpointFailure]] = frozenset({"EndpointRejectedRequest", "EndpointRedirects"})
"""Failures that another attempt would not change."""


@dataclass(frozen=True)
class TransportError:
    """Reason why there is no text.

    Attributes:
        reason: in our own words, none of the endpoint.
        wait: seconds that the endpoint asks to be left alone; None if it says nothing.
    """

    code: EndpointFailure
    reason: str
    wait: float | None = None


def message(endpoint: Endpoint, prompt: str, how: Sampling) -> dict[str, Any]:
    """Return the body of a request: the prompt, the sampling parameters, and nothing else."""
    fields: dict[str, Any] = {
        "model": endpoint.model,
        "messages": [
            {"role": "system", "content": how.system or SYSTEM},
            {"role": "user", "content": prompt},
        ],
        endpoint.token_limit: how.max_new_tokens,
        "temperature": float(how.temperature),
        "stream": False,
    }
    return {**fields, "top_k": how.top_k} if how.top_k else fields


def client_for(endpoint: Endpoint) -> httpx.Client:
    """Return a client that speaks to this endpoint alone; the caller closes it.

    Raises:
        EndpointUnreachable: the file with its certificates cannot be read.
    """
    limits = httpx.Limits(max_connections=endpoint.at_once, max_keepalive_connections=endpoint.at_once)
    return httpx.Client(
        transport=TimedTransport(verify=_trusted(endpoint), trust_env=False, proxy=endpoint.proxy, limits=limits),
        trust_env=False,
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        timeout=httpx.Timeout(endpoint.timeout, connect=min(CONNECT, endpoint.timeout), pool=None),
    )


def _trusted(endpoint: Endpoint) -> ssl.SSLContext:
    try:
        return _certificates(endpoint.ca_file)
    except (OSError, ssl.SSLError):
        pass
    raise endpoint_failed(
        "EndpointUnreachable", endpoint.name, "the file with its certificates (ca_file) cannot be read"
    )


@cache
def _certificates(file: str | None) -> ssl.SSLContext:
    """Return the certificates of the package certifi, or those in a file; cached, as reading is slow."""
    context = httpx.create_ssl_context(trust_env=False) if file is None else ssl.create_default_context(cafile=file)
    context.keylog_filename = None  # type: ignore[assignment]  # Python takes it from SSLKEYLOGFILE; None forgets it
    return context


def ask(
    client: httpx.Client, endpoint: Endpoint, key: Key | None, fields: Mapping[str, Any], how: Sampling
) -> Completion | TransportError:
    """Send one request and return the completion or the failure."""
    headers = {**HEADERS, **({} if key is None else {"Authorization": key.header})}
    body = json.dumps(fields).encode()
    request = client.build_request("POST", endpoint.completions, content=body, headers=headers)
    try:
        with with_deadline(time.monotonic() + endpoint.timeout), silence_log():
            data = _answer(client, request, largest_answer(how))
    except httpx.TimeoutException:
        return TransportError("EndpointTimeout", f"no answer within {endpoint.timeout} seconds")
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as problem:
        return TransportError("EndpointUnreachable", _reason(problem))
    if isinstance(data, TransportError):
        return data
    completion = read_reply(data, how)
    if isinstance(completion, MalformedResponse):
        return TransportError("EndpointAnswerMalformed", completion.reason)
    if key is not None and key.is_in(completion.text):
        return TransportError("EndpointAnswerMalformed", "an answer repeats the key")
    return completion


def _status(response: httpx.Response) -> TransportError | None:
    code = response.status_code
    if code == httpx.codes.OK:
        return None
    reason = f"HTTP {code}"
    wait = retry_after(response.headers.get("Retry-After"))
    if 300 <= code < 400:
        return TransportError("EndpointRedirects", reason)
    if code == httpx.codes.TOO_MANY_REQUESTS:
        return TransportError("EndpointBusy", reason, wait)
    if code == httpx.codes.REQUEST_TIMEOUT:
        return TransportError("EndpointTimeout", reason, wait)
    if 400 <= code < 500:
        return TransportError("EndpointRejectedRequest", reason)
    if 500 <= code < 600:
        return TransportError("EndpointServerError", reason, wait)
    return TransportError("EndpointAnswerMalformed", reason)


def _answer(client: httpx.Client, request: httpx.Request, most: int) -> bytes | TransportError:
    response = client.send(request, stream=True)
    try:
        trouble = _status(response)
        return _body(response, most) if trouble is None else trouble
    finally:
        response.close()


def _body(response: httpx.Response, most: int) -> bytes | TransportError:
    """Return the bytes as they come: an answer that is packed is not unpacked, and is no JSON."""
    data = bytearray()
    for chunk in response.iter_raw():
        data += chunk
        if len(data) > most:
            return TransportError("EndpointAnswerMalformed", "an answer is longer than was asked for")
    return bytes(data)


def _reason(problem: Exception) -> str:
    """Return the kind of the problem in fixed words; its own message may quote anything."""
    if "CERTIFICATE_VERIFY_FAILED" in str(problem):
        return "its certificate is not one that is trusted"
    if isinstance(problem, httpx.ConnectError):
        return "no connection"
    if isinstance(problem, httpx.ProxyError):
        return "its proxy does not take the connection"
    return "the connection broke off"


CHARACTERS_PER_TOKEN = 64
"""A text has at most as many characters for each token that it may have: ordinary text has three to six."""

BYTES_PER_TOKEN = 6 * CHARACTERS_PER_TOKEN
"""JSON writes a character in six bytes at most, if it is in the basic plane."""

BYTES_BESIDE = 65_536
"""Room for everything in an answer that is not the text."""

_BYTES_OF_A_TOKEN = 4
"""Bytes of an ordinary token, for an estimate of a text's tokens if the endpoint does not count them."""


@dataclass(frozen=True)
class MalformedResponse:
    """Reason why a reply is malformed, in our own words."""

    reason: str


def largest_answer(how: Sampling) -> int:
    """Return the maximum number of bytes of an answer; a longer one is malformed."""
    return BYTES_BESIDE + BYTES_PER_TOKEN * how.max_new_tokens


def read_reply(data: bytes, how: Sampling) -> Completion | MalformedResponse:
    """Return the text in an answer."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):  # also where it is no UTF-8, or a number is too long
        return MalformedResponse("an answer is not JSON")
    choice = _first_choice(answer)
    if isinstance(choice, MalformedResponse):
        return choice
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else None
    if not isinstance(text, str):
        return MalformedResponse("an answer has no text")
    if (unfit := _unfit(text, how)) is not None:
        return MalformedResponse(unfit)
    tokens = _tokens(answer, text, how)
    if tokens is None:
        return MalformedResponse("an answer does not count its tokens in whole numbers")
    return Completion(text, tokens, choice.get("finish_reason") == "stop")


def _first_choice(answer: Any) -> dict[str, Any] | MalformedResponse:
    if not isinstance(answer, dict):
        return MalformedResponse("an answer is no JSON object")
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return MalformedResponse("an answer does not have one choice")
    return choices[0]


def _unfit(text: str, how: Sampling) -> str | None:
    if not text.strip():
        return "an answer is empty"
    if len(text) > CHARACTERS_PER_TOKEN * how.max_new_tokens:
        return "an answer is longer than was asked for"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "an answer holds half a character"
    return None


def _tokens(answer: dict[str, Any], text: str, how: Sampling) -> int | None:
    """Return the endpoint's count of tokens, or an estimate; None if its count is no number."""
    usage = answer.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if count is None:
        return min(how.max_new_tokens, -(-len(text.encode()) // _BYTES_OF_A_TOKEN))
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        return None
    return min(count, how.max_new_tokens)


_deadline = threading.local()


@contextmanager
def with_deadline(until: float) -> Iterator[None]:
    """End every wait of this thread on `TimedTransport` in the block at that time of the monotonic clock."""
    _deadline.until = until
    try:
        yield
    finally:
        _deadline.until = None


def _remaining_seconds(timeout: float | None, over: type[Exception]) -> float | None:
    """Return the remaining seconds; raise `over` if there are none."""
    until: float | None = getattr(_deadline, "until", None)
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


PATIENCE = 600.0
"""Longest pause in seconds that an endpoint may ask for (Retry-After); a longer one ends the attempts."""

FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds before a second attempt, and before any later one: each wait is twice the one before."""


class RateLimit:
    """Gives requests their turns, evenly: never more of them, or of their tokens, a minute than was said.

    Args:
        per_minute, tokens_per_minute: None if there is no limit.
        clock: seconds; only differences count.
    """

    def __init__(
        self, per_minute: int | None, tokens_per_minute: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._apart = 60.0 / per_minute if per_minute else 0.0
        self._a_token = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._clock = clock
        self._lock = threading.Lock()
        self._next = clock()

    def turn(self, tokens: int) -> float:
        """Reserve a turn for a request of at most `tokens` tokens; return the seconds until it may be sent."""
        with self._lock:
            now = self._clock()
            mine = max(now, self._next)
            self._next = mine + max(self._apart, self._a_token * tokens)
            return mine - now

    def hold(self, seconds: float) -> None:
        """Send no request for `seconds`."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


def wait_after(attempt: int) -> float:
    """Return the seconds to wait after the attempt of this number, from 0."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempt, 20))


def retry_after(header: str | None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float | None:
    """Return the seconds that an endpoint asks for, as a number or a date (RFC 9110, 10.2.3); None for neither."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # a year of twenty digits is no ValueError
        return None
    aware = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (aware - now()).total_seconds())


HTTP_LOGGERS: Final = (
    "httpx",
    "httpcore.connection",
    "httpcore.http11",
    "httpcore.http2",
    "httpcore.proxy",
    "httpcore.socks",
)

_silence = threading.local()


def _loud(record: logging.LogRecord) -> bool:
    return not getattr(_silence, "silent", False)


@contextmanager
def silence_log() -> Iterator[None]:
    """Suppress the log of this thread's HTTP requests inside the block."""
    for name in HTTP_LOGGERS:
        logging.getLogger(name).addFilter(_loud)  # one that is there already is not added again
    _silence.silent = True
    try:
        yield
    finally:
        _silence.silent = False
