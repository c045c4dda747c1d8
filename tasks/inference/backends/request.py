"""Request to an endpoint and its outcome. No exception from here holds a key or an answer.

TLS is verified; nothing of the environment is used (no proxy, no certificates, no .netrc, no SSLKEYLOGFILE); redirects
are not followed; cookies are neither kept nor sent; an answer is read up to a size and not unpacked, and a request ends
in time however slowly its answer comes; nothing is logged.
"""

import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpx

from tasks.inference.backends.api_key import Key
from tasks.inference.backends.deadlines import TimedTransport, with_deadline
from tasks.inference.backends.endpoints import Endpoint
from tasks.inference.backends.errors import EndpointFailure, endpoint_failed
from tasks.inference.backends.interface import SYSTEM, Completion, Sampling
from tasks.inference.backends.rate_limit import retry_after
from tasks.inference.backends.response import MalformedResponse, largest, read_reply
from tasks.inference.backends.silence_http_log import silence_log

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
            data = _answer(client, request, largest(how))
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
