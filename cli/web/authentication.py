"""Authentication of the dashboard's clients: the middleware of every request, and the login form.

The middleware lets a request pass that names the right host, has a read-only method (or is a form of people who sign
in) and comes from a client with the token; every response gets strict headers. The login form exchanges the token for
a session. Forms that browsers send are read up to a size.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cli.web.access import AccessPolicy
from cli.web.responses import error_response, html_response, wants_json
from cli.web.sessions import LoginThrottle, Sessions

READ_METHODS = ("GET", "HEAD")
PUBLIC_PATHS = ("/login", "/healthz", "/style.css", "/favicon.svg")
"""Paths that need no token; they reveal nothing about the home."""

PERSONAL_POSTS = ("/sign-in", "/sign-out", "/sign", "/price", "/decide/")
"""Paths of the forms of people who sign in; the last one is the beginning of several."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SCRIPT_POLICY = CONTENT_SECURITY_POLICY + "; script-src 'self'"
"""Policy of the pages that ask the browser for a passkey: our one script besides."""

SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-robots-tag": "noindex",
}


class SecurityMiddleware:
    """ASGI middleware that refuses requests without access, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, access: AccessPolicy, sessions: Sessions, throttle: LoginThrottle) -> None:
        self.app, self.access, self.sessions, self.throttle = app, access, sessions, throttle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            else:  # a websocket
                await send({"type": "websocket.close", "code": 1008})
            return
        scope.setdefault("state", {})["decides"] = self.access.decides
        request = Request(scope)
        turned_away = self._refusal(request)
        await (turned_away or self.app)(scope, receive, _with_headers(send))

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a request without access; None if the request may pass."""
        if not self._is_host_allowed(request.headers):
            return error_response(request, 421, "HostForeign", "The dashboard does not answer to that host name.",
                              "Use the address that was printed at its start, or start it with --name.")  # fmt: skip
        allowed = (*READ_METHODS, "POST") if self._takes_forms(request.url.path) else READ_METHODS
        if request.method not in allowed:
            response = error_response(request, 405, "ReadOnly", *_read_only_words(self.access.decides))
            response.headers["allow"] = ", ".join(allowed)
            return response
        if self.access.token is None or request.url.path in PUBLIC_PATHS or self._has_session(request):
            return None
        return self._has_bearer_token(request)

    def _takes_forms(self, path: str) -> bool:
        personal = path in PERSONAL_POSTS[:-1] or path.startswith(PERSONAL_POSTS[-1])
        return path == "/login" or (self.access.decides and personal)

    def _is_host_allowed(self, headers: Headers) -> bool:
        hosts = headers.getlist("host")
        return len(hosts) == 1 and self.access.allows_host(hosts[0])

    def _has_session(self, request: Request) -> bool:
        try:
            cookies = SimpleCookie(request.headers.get("cookie", ""))
        except CookieError:
            return False
        cookie = cookies.get(cookie_name(self.access))
        return cookie is not None and self.sessions.is_open(cookie.value)

    def _has_bearer_token(self, request: Request) -> Response | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return self._token_challenge(request)
        address = client_address(request)
        if seconds := self.throttle.seconds_to_wait(address):
            return throttled_response(request, seconds)
        if self.access.accepts_token(token.strip()):
            return None
        self.throttle.record_failure(address)
        return self._token_challenge(request)

    def _token_challenge(self, request: Request) -> Response:
        if not wants_json(request) and "authorization" not in request.headers:
            return Response(status_code=303, headers={"location": "/login"})
        response = error_response(request, 401, "TokenRequired", "This needs the dashboard's token.",
                           "Send it as `Authorization: Bearer TOKEN`, or log in with a browser.")  # fmt: skip
        response.headers["www-authenticate"] = "Bearer"
        return response


def _read_only_words(decides: bool) -> tuple[str, str]:
    """Return message and advice for a form to a page that takes none."""
    if decides:
        return "This page takes no forms.", "Decisions are made at /mine, or with `almoner approve`, in a shell."
    return "The dashboard only reads.", "Decisions are made with `almoner approve`, on the command line."


def throttled_response(request: Request, seconds: int) -> Response:
    """Return the response to too many wrong tokens."""
    response = error_response(request, 429, "TooManyWrongTokens", "Too many wrong tokens came from your address.",
                       f"Wait {seconds} seconds.")  # fmt: skip
    response.headers["retry-after"] = str(seconds)
    return response


def cookie_name(access: AccessPolicy) -> str:
    """Return the name of the session cookie; over TLS `__Host-` makes browsers bind it to this host."""
    return "__Host-almoner" if access.is_secure else "almoner"


def client_address(request: Request) -> str:
    """Return the peer address of a request; headers of proxies are ignored."""
    return request.client.host if request.client else ""


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("content-security-policy", CONTENT_SECURITY_POLICY)
        await send(message)

    return sending


async def read_form(request: Request, most_bytes: int, most_fields: int) -> Mapping[str, str]:
    """Return the fields of a form, the first of each name, lines ended by a line feed; nothing if it is too large or no
    form.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            return {}
    try:
        read = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=most_fields)
    except ValueError:  # of no UTF-8, or with more fields
        return {}
    return {name: values[0].replace("\r\n", "\n") for name, values in read.items()}


MOST_FORM_BYTES = 4096
"""Largest size of the form in bytes."""

MOST_FIELDS = 5


@dataclass(frozen=True)
class Login:
    """The endpoint of the login form."""

    access: AccessPolicy
    sessions: Sessions
    throttle: LoginThrottle

    async def answer(self, request: Request) -> Response:
        """Return the form or, after POST, a new session or an error."""
        if self.access.token is None:
            return Response(status_code=303, headers={"location": "/"})
        if request.method != "POST":
            return self._form(wrong=False)
        if self._is_cross_site(request):
            return error_response(
                request, 403, "FormForeign", "This form was sent by another site.", "Open /login here."
            )
        if seconds := self.throttle.seconds_to_wait(client_address(request)):
            return throttled_response(request, seconds)
        if not await run_in_threadpool(self.access.accepts_token, await _token_in_form(request)):
            self.throttle.record_failure(client_address(request))
            return self._form(401, wrong=True)
        return self._start_session()

    def _form(self, status: int = 200, *, wrong: bool) -> Response:
        return html_response("login.html", status, decides=self.access.decides, wrong=wrong)

    def _is_cross_site(self, request: Request) -> bool:
        """Return whether another site sent the form; under our referrer policy our own form's origin is `null`."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site is not None:
            return site not in ("same-origin", "none")
        return origin is not None and not self.access.allows_host(origin.partition("://")[2])

    def _start_session(self) -> Response:
        response = Response(status_code=303, headers={"location": "/"})
        response.set_cookie(
            cookie_name(self.access), self.sessions.open(), path="/", httponly=True, samesite="strict",
            secure=self.access.is_secure,
        )  # fmt: skip
        return response


async def _token_in_form(request: Request) -> str:
    """Return the token from the form; an empty string if there is none."""
    return (await read_form(request, MOST_FORM_BYTES, MOST_FIELDS)).get("token", "").strip()
