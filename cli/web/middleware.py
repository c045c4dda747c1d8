"""Around every request: the right host, a method that only reads, somebody who has shown the token, strict headers."""

from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cli.web.access import Door
from cli.web.responses import told_error, wants_json
from cli.web.sessions import Patience, Sessions

READING = ("GET", "HEAD")
OPEN_PATHS = ("/login", "/healthz", "/style.css", "/favicon.svg")
"""What may be seen without the token; none of it tells anything about the home."""

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-robots-tag": "noindex",
}


class Shield:
    """ASGI middleware that lets in what may come in, and puts its headers on whatever goes out."""

    def __init__(self, app: ASGIApp, door: Door, sessions: Sessions, patience: Patience) -> None:
        self.app, self.door, self.sessions, self.patience = app, door, sessions, patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            else:  # a websocket
                await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope)
        turned_away = self._turned_away(request)
        await (turned_away or self.app)(scope, receive, _with_headers(send))

    def _turned_away(self, request: Request) -> Response | None:
        """The answer to whoever may not come in; None for everybody else."""
        if not self._host_fits(request.headers):
            return told_error(request, 421, "HostForeign", "The dashboard does not answer to that host name.",
                              "Use the address that was printed at its start, or start it with --name.")  # fmt: skip
        allowed = (*READING, "POST") if request.url.path == "/login" else READING
        if request.method not in allowed:
            found = told_error(request, 405, "ReadOnly", "The dashboard only reads.",
                               "Decisions are made with `almoner approve`, on the command line.")  # fmt: skip
            found.headers["allow"] = ", ".join(allowed)
            return found
        if self.door.token is None or request.url.path in OPEN_PATHS or self._has_session(request):
            return None
        return self._by_bearer(request)

    def _host_fits(self, headers: Headers) -> bool:
        hosts = headers.getlist("host")
        return len(hosts) == 1 and self.door.answers_to(hosts[0])

    def _has_session(self, request: Request) -> bool:
        try:
            cookies = SimpleCookie(request.headers.get("cookie", ""))
        except CookieError:
            return False
        found = cookies.get(cookie_name(self.door))
        return found is not None and self.sessions.is_open(found.value)

    def _by_bearer(self, request: Request) -> Response | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return self._asked_for_token(request)
        address = address_of(request)
        if seconds := self.patience.wait(address):
            return too_often(request, seconds)
        if self.door.opens_to(token.strip()):
            return None
        self.patience.was_wrong(address)
        return self._asked_for_token(request)

    def _asked_for_token(self, request: Request) -> Response:
        if not wants_json(request) and "authorization" not in request.headers:
            return Response(status_code=303, headers={"location": "/login"})
        found = told_error(request, 401, "TokenNeeded", "This needs the dashboard's token.",
                           "Send it as `Authorization: Bearer TOKEN`, or log in with a browser.")  # fmt: skip
        found.headers["www-authenticate"] = "Bearer"
        return found


def too_often(request: Request, seconds: int) -> Response:
    """The answer to too many wrong tokens."""
    found = told_error(request, 429, "TooManyWrongTokens", "Too many wrong tokens came from your address.",
                       f"Wait {seconds} seconds.")  # fmt: skip
    found.headers["retry-after"] = str(seconds)
    return found


def cookie_name(door: Door) -> str:
    """`__Host-` makes browsers keep it to this host, and to TLS."""
    return "__Host-almoner" if door.secure else "almoner"


def address_of(request: Request) -> str:
    """Where a request comes from; what proxies say of it is not asked."""
    return request.client.host if request.client else ""


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("content-security-policy", POLICY)
        await send(message)

    return sending
