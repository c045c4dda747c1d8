"""Login form: it exchanges the token for a session; and forms that browsers send, read up to a size."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from cli.web.access import AccessPolicy
from cli.web.middleware import client_address, cookie_name, throttled_response
from cli.web.responses import error_response, html_response
from cli.web.sessions import LoginThrottle, Sessions


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
        if not await run_in_threadpool(self.access.accepts_token, await _token(request)):
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


async def _token(request: Request) -> str:
    """Return the token from the form; an empty string if there is none."""
    return (await read_form(request, MOST_FORM_BYTES, MOST_FIELDS)).get("token", "").strip()
