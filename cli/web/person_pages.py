"""Pages of people who sign in with a passkey: what they may decide, one decision at a time, and prices of requests.

Each form states its own session's token and comes from a page of this very origin. What a form asks for is signed by
nobody here: a decision is recorded when a passkey of its person has signed it, and refused otherwise.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from cli.web.access import AccessPolicy
from cli.web.authentication import SCRIPT_POLICY, read_form
from cli.web.responses import FaultReporter, html_response, load_templates, with_error_pages, with_error_pages_async
from cli.web.sessions import PersonSession, PersonSessions, SignInChallenges
from flows.approvals.passkey_decision import (
    Prepared,
    prepare_decision,
    prepare_withdrawal,
    record_prepared,
    review_changed,
)
from flows.dashboard.person_pages import (
    decisions_page,
    is_in_force,
    own_approval,
    own_approvals,
    price_page,
    require_decider,
    review_page,
    view_of_person,
)
from flows.dashboard.release_page import texts_page
from flows.dashboard.viewer import View, Viewer, open_viewer
from flows.governance.passkeys import PasskeyAnswer, answer_refused, find_signer, host_of, passkey_fingerprint
from flows.workspace.workspace import open_workspace
from models_db.database.base import utc_now
from models_db.errors import EnvironmentProblem, Refused, UsageError
from models_db.home import ProjectHome
from models_db.services import people
from models_db.services.audit.chain import Actor
from models_db.values.canonical_json import InvalidJson, parse_json
from models_db.values.request_state import Gate
from models_db.values.untrusted_text import parse_digits, require_storable
from tasks.release.sections import Section, sections_to_json
from tasks.release.signatures.webauthn import decode_url, encode_url

MOST_FORM_BYTES = 60_000
MOST_REQUEST_BYTES = 600_000
"""Largest sizes of a form, and of the form with a request's text, in bytes."""

MOST_FIELDS = 12
MOST_PRICES = 2
"""Prices that are computed at once: one may take a processor for a while, and the other pages share the threads."""

Fields = Mapping[str, str]
PersonEndpoint = Callable[[Request, PersonSession], Response]
FormEndpoint = Callable[[Request, PersonSession, Fields], Response]


@dataclass(frozen=True)
class PersonPages:
    """The pages of people of one home, at one origin."""

    home: ProjectHome
    access: AccessPolicy
    tell: FaultReporter
    sessions: PersonSessions = field(default_factory=PersonSessions)
    challenges: SignInChallenges = field(default_factory=SignInChallenges)
    _own: threading.local = field(default_factory=threading.local)
    _pricing: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(MOST_PRICES))

    def endpoints(self) -> list[tuple[str, str, Any]]:
        """Return the path, the method and the endpoint of every page."""
        pages: list[tuple[str, str, Any]] = [
            ("/webauthn.js", "GET", self._shown(self.script)),
            ("/passkeys/new", "GET", self._shown(self.invited)),
            ("/sign-in", "GET", self._shown(self.sign_in_page)),
            ("/sign-in", "POST", self._form(self.sign_in)),
            ("/sign-out", "POST", self._personal_form(self.sign_out)),
            ("/mine", "GET", self._personal(self.mine)),
            ("/decide/publish/{number}/texts", "GET", self._personal(self.texts)),
            ("/decide/{gate}/{number}", "GET", self._personal(self.review)),
            ("/decide/{gate}/{number}", "POST", self._personal_form(self.prepare)),
            ("/decide/{gate}/{number}/withdraw", "GET", self._personal(self.own_approval)),
            ("/decide/{gate}/{number}/withdraw", "POST", self._personal_form(self.withdraw)),
            ("/sign", "POST", self._personal_form(self.sign)),
            ("/price", "GET", self._personal(self.price_form)),
            ("/price", "POST", self._personal_form(self.price)),
        ]
        return pages

    # --- who asks, and from where ------------------------------------------------------------------------------

    @property
    def origin(self) -> str:
        """Return the one origin of these pages."""
        return str(self.access.origin)

    def _shown(self, page: Callable[[Request], Response]) -> Any:
        """Return the endpoint of a page that everybody sees; browsers come to it under the one origin."""

        def shown(request: Request) -> Response:
            if request.headers["host"].lower() != self.origin.partition("://")[2]:
                return RedirectResponse(f"{self.origin}{request.url.path}{_query(request)}", 303)
            return page(request)

        return with_error_pages(shown, self.tell, self.home)

    def _personal(self, page: PersonEndpoint) -> Any:
        """Return the endpoint of a page of whoever has signed in."""

        def personal(request: Request) -> Response:
            session = self._session(request)
            return RedirectResponse("/sign-in", 303) if session is None else page(request, session)

        return self._shown(personal)

    def _form(self, endpoint: Callable[[Request, Fields], Response]) -> Any:
        """Return the endpoint of a form, which takes it from pages of this origin alone."""

        async def posted(request: Request) -> Response:
            if not self._is_own_form(request):
                return await run_in_threadpool(with_error_pages(_refuse_foreign, self.tell, self.home), request)
            fields = await _read_form(request)

            def answer(one: Request) -> Response:
                require_storable(fields)
                return endpoint(one, fields)

            return await run_in_threadpool(with_error_pages(answer, self.tell, self.home), request)

        return with_error_pages_async(posted, self.tell)

    def _is_own_form(self, request: Request) -> bool:
        """Return whether a page of this origin sent a form; a browser always says so, and nothing else is let in."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        return request.headers.getlist("origin") == [self.origin] and site == "same-origin"

    def _personal_form(self, endpoint: FormEndpoint) -> Any:
        """Return the endpoint of a form of whoever has signed in, made for this very session."""

        def personal(request: Request, fields: Fields) -> Response:
            session = self._session(request)
            if session is None:
                return RedirectResponse("/sign-in", 303)
            if not session.accepts(fields.get("form_token", "")):
                raise _form_foreign()
            return endpoint(request, session, fields)

        return self._form(personal)

    def _session(self, request: Request) -> PersonSession | None:
        """Return the session of the cookie, if its passkey is still in force."""
        session = self.sessions.find(value := self._cookie(request))
        if session is None:
            return None
        with self._viewer().open_view() as view:
            if is_in_force(view.session, session.person, session.passkey):
                return session
        self.sessions.close(value)
        return None

    def _cookie(self, request: Request) -> str:
        try:
            found = SimpleCookie(request.headers.get("cookie", "")).get(self._cookie_name)
        except CookieError:
            return ""
        return "" if found is None else found.value

    @property
    def _cookie_name(self) -> str:
        return "__Host-almoner-person" if self.access.is_secure else "almoner-person"

    def _with_cookie(self, response: Response, value: str) -> Response:
        response.set_cookie(
            self._cookie_name, value, path="/", httponly=True, samesite="strict", secure=self.access.is_secure
        )
        return response

    def _viewer(self) -> Viewer:
        if not hasattr(self._own, "viewer"):
            self._own.viewer = open_viewer(self.home)
        return cast("Viewer", self._own.viewer)

    # --- what is shown -----------------------------------------------------------------------------------------

    def _page(self, template: str, view: View | None, session: PersonSession | None, **context: Any) -> HTMLResponse:
        """Return a page of ours; with a form in it, browsers have to state its origin."""
        frame: dict[str, Any] = {"doubt": "" if view is None else view.doubt, "broken": "", "decides": True,
                                 "secured": self.access.token is not None, "signed_in": session is not None,
                                 "form_token": "" if session is None else session.form_token}  # fmt: skip
        if view is not None:
            frame["viewer"] = {"name": view.actor.name, "roles": sorted(view.roles)}
        response = html_response(template, **{**frame, **context})
        response.headers["referrer-policy"] = "same-origin"
        return response

    def script(self, request: Request) -> Response:
        """Return the one script, which asks the browser for a passkey."""
        return Response(load_templates().get_template("webauthn.js").render(), media_type="text/javascript")

    def sign_in_page(self, request: Request) -> Response:
        """Show the form that signs in; every passkey of this host may answer."""
        challenge = encode_url(self.challenges.issue())
        page = self._page("sign_in.html", None, None, challenge=challenge, rp_id=host_of(self.origin))
        return _with_script(page)

    def sign_in(self, request: Request, fields: Fields) -> Response:
        """Open a session for whoever's passkey has answered a challenge of this process.

        Raises:
            AnswerRefused: the challenge is not of this process, too old, or used, or no passkey in force answered it.
            SignInsTooMany: that person has signed in very often lately.
        """
        try:
            challenge = decode_url(fields.get("challenge", ""), 100)
        except ValueError:
            raise answer_refused() from None
        if not self.challenges.is_valid(challenge):  # before anything reads the ledger
            raise answer_refused()
        answer = PasskeyAnswer.parse(fields)
        with self._viewer().open_view() as view:
            person, passkey, _ = find_signer(view.session, answer, self.origin, challenge)
            signed_in = Actor(person.id, person.name)
            if not self.challenges.use(challenge, signed_in):
                raise answer_refused()
            session = self.sessions.open(signed_in, passkey.id)
        self.sessions.close(self._cookie(request))
        return self._with_cookie(RedirectResponse("/mine", 303), session)

    def sign_out(self, request: Request, session: PersonSession, fields: Fields) -> Response:
        """End the session."""
        self.sessions.close(self._cookie(request))
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(
            self._cookie_name, path="/", secure=self.access.is_secure, httponly=True, samesite="strict"
        )
        return response

    def invited(self, request: Request) -> Response:
        """Show the page that creates a passkey; it sends nothing, and what it shows is certified elsewhere."""
        stated = _read_invitation(request.query_params.get("invitation", ""))
        late = stated["expires_at"] <= utc_now()
        page = self._page(
            "passkey_new.html", None, None, invitation=stated, late=late, rp_id=host_of(self.origin), origin=self.origin
        )
        return _with_script(page)

    def mine(self, request: Request, session: PersonSession) -> Response:
        """Show what the person may decide on now."""
        with self._viewer().open_view() as owner:
            view = view_of_person(owner, session.person)
            found = decisions_page(view)
            own = [
                {"number": one.id, "key": passkey_fingerprint(one.public_key), "since": one.at}
                for one in people.open_passkeys(view.session, view.actor.id)
            ]
            given = own_approvals(view.session, session.person)
            return self._page(
                "mine.html", view, session, items=found, passkeys=own, approvals=given, current_page="mine"
            )

    def review(self, request: Request, session: PersonSession) -> Response:
        """Show the review of a decision, and the form that prepares it."""
        gate, number = _subject(request)
        found = review_page(self._viewer(), session.person, number, gate)
        with self._viewer().open_view() as owner:
            view = view_of_person(owner, session.person)
            return self._page(
                "decide.html", view, session, review=found, review_sections=sections_to_json(found.sections),
                current_page="decide",
            )  # fmt: skip

    def texts(self, request: Request, session: PersonSession) -> Response:
        """Show every text of a release that waits for the person's decision at the publish gate."""
        number, query = _number(str(request.path_params["number"])), request.query_params
        page = parse_digits(query.get("page", "1")[:9]) or 1
        find, doubtful = query.get("find", "")[:300], query.get("doubtful") == "1"
        with self._viewer().open_view() as owner:
            require_decider(owner.session, session.person, number, Gate.PUBLISH)
            view = view_of_person(owner, session.person)
            content = texts_page(view, self.home, number, page, find, only_doubtful=doubtful)
            path = f"/decide/publish/{number}"
            return self._page(
                "texts.html", view, session, texts=content, current_page="decide", path=f"{path}/texts", back=path
            )

    def prepare(self, request: Request, session: PersonSession, fields: Fields) -> Response:
        """Check a decision, and ask for the signature of it."""
        gate, number = _subject(request)
        found = review_page(self._viewer(), session.person, number, gate)
        if fields.get("subject") != found.subject_digest:
            raise review_changed(number)
        prepared = prepare_decision(
            open_workspace(self.home), session.person, found, fields.get("verdict", ""),
            fields.get("reason", ""), fields.get("confirm", ""),
            override=fields.get("override") == "1",
        )  # fmt: skip
        return self._to_be_signed(session, prepared)

    def own_approval(self, request: Request, session: PersonSession) -> Response:
        """Show an approval of the person that nobody has used, and the form that takes it back."""
        gate, number = _subject(request)
        with self._viewer().open_view() as owner:
            view = view_of_person(owner, session.person)
            found = own_approval(view.session, session.person, number, gate)
            return self._page("withdraw.html", view, session, approval=found, current_page="decide")

    def withdraw(self, request: Request, session: PersonSession, fields: Fields) -> Response:
        """Check the withdrawal of an approval, and ask for the signature of it."""
        gate, number = _subject(request)
        workspace = open_workspace(self.home)
        prepared = prepare_withdrawal(workspace, session.person, number, gate, fields.get("reason", ""))
        return self._to_be_signed(session, prepared)

    def _to_be_signed(self, session: PersonSession, prepared: Prepared) -> Response:
        name = self.sessions.prepare(session, prepared)
        with self._viewer().open_view() as owner:
            view = view_of_person(owner, session.person)
            return _with_script(self._sign_page(view, session, name, prepared))

    def _sign_page(self, view: View, session: PersonSession, name: str, prepared: Prepared) -> HTMLResponse:
        credentials = [one.credential_id for one in people.open_passkeys(view.session, session.person.id)
                       if one.origin == self.origin]  # fmt: skip
        return self._page(
            "sign.html", view, session, name=name, prepared=prepared,
            statement=prepared.statement.decode(), challenge=encode_url(prepared.challenge),
            credentials=" ".join(credentials), rp_id=host_of(self.origin), current_page="decide",
        )  # fmt: skip

    def sign(self, request: Request, session: PersonSession, fields: Fields) -> Response:
        """Record a prepared decision or withdrawal that its person's passkey has signed."""
        prepared = self.sessions.take_prepared(session, fields.get("prepared", ""))
        if prepared is None:
            raise Refused(
                "No decision of this session waits for that signature: it was used, or it has waited for five minutes.",
                "Begin again at /mine.",
                code="NotPrepared",
            )
        state = record_prepared(open_workspace(self.home), prepared, PasskeyAnswer.parse(fields), self.origin)
        renewed = self.sessions.renew(self._cookie(request))
        with self._viewer().open_view() as owner:
            view = view_of_person(owner, session.person)
            now = None if renewed is None else self.sessions.find(renewed)
            page = self._page("decided.html", view, now, prepared=prepared, state=state, current_page="decide")
            return page if renewed is None else self._with_cookie(page, renewed)

    def price_form(self, request: Request, session: PersonSession) -> Response:
        """Show the form for a request's text."""
        return self._price_page(session, "", (), None)

    def price(self, request: Request, session: PersonSession, fields: Fields) -> Response:
        """Show the price of a request; submit it in the person's name, if they ask for that.

        Raises:
            PricingBusy: `MOST_PRICES` others are being computed.
            The errors of `price_page`.
        """
        written = fields.get("request", "").replace("\r\n", "\n")
        if not self._pricing.acquire(blocking=False):
            raise EnvironmentProblem(
                f"{MOST_PRICES} other prices are being computed here; this request was neither priced nor submitted.",
                "Send it again in a minute, or price it on the command line: `almoner release request FILE --dry-run`.",
                code="PricingBusy",
            )
        try:
            found = price_page(
                open_workspace(self.home), session.person, written, submit=fields.get("action") == "submit",
                accept_weak_promise=fields.get("accept_weak_promise") == "1",
            )  # fmt: skip
        finally:
            self._pricing.release()
        return self._price_page(session, written, found.sections, found.request)

    def _price_page(
        self, session: PersonSession, written: str, sections: tuple[Section, ...], number: int | None
    ) -> Response:
        with self._viewer().open_view() as owner:
            view = view_of_person(owner, session.person)
            return self._page(
                "price.html", view, session, written=written, review_sections=sections_to_json(sections),
                request=number, current_page="price",
            )  # fmt: skip


def _with_script(page: HTMLResponse) -> HTMLResponse:
    page.headers["content-security-policy"] = SCRIPT_POLICY
    return page


def _query(request: Request) -> str:
    return f"?{request.url.query}" if request.url.query else ""


def _subject(request: Request) -> tuple[Gate, int]:
    try:
        gate = Gate(str(request.path_params["gate"]))
    except ValueError:
        raise _gate_unknown() from None
    return gate, _number(str(request.path_params["number"]))


def _number(written: str) -> int:
    number = parse_digits(written)
    if number is None:
        raise _gate_unknown()
    return number


def _read_invitation(written: str) -> dict[str, str]:
    """Return name, principal's key, challenge and end of an invitation; each is shown or given to the browser.

    Raises:
        InvitationUnfit: it is none.
    """
    try:
        stated = parse_json(decode_url(written, 4000), most_bytes=4000)
        found = {name: stated[name] for name in ("name", "principal", "challenge", "expires_at")}
        if not all(isinstance(value, str) for value in found.values()) or len(decode_url(found["challenge"], 50)) != 32:
            raise _invitation_unfit()
    except (InvalidJson, KeyError, TypeError, ValueError):
        raise _invitation_unfit() from None
    return found


async def _read_form(request: Request) -> Fields:
    """Return the fields of a form; nothing if it is too large, or says that it is something else."""
    most = MOST_REQUEST_BYTES if request.url.path == "/price" else MOST_FORM_BYTES
    fields = await read_form(request, most, MOST_FIELDS)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return fields if kind == "application/x-www-form-urlencoded" else {}


def _refuse_foreign(request: Request) -> Response:
    raise _form_foreign()


def _form_foreign() -> Refused:
    return Refused(
        "This form was not sent by a page of this dashboard in this session; nothing was recorded.",
        "Open the page again, under the address that the dashboard printed at its start.",
        code="FormForeign",
    )


def _gate_unknown() -> UsageError:
    return UsageError("There is no such decision.", "Begin at /mine.", code="GateUnknown")


def _invitation_unfit() -> UsageError:
    return UsageError(
        "This is no invitation.",
        "Open the whole address that `almoner passkey invite` printed.",
        code="InvitationUnfit",
    )
