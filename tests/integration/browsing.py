"""What a person's browser does on the dashboard of a home, with a passkey: in this process, without a browser."""

import html
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from starlette.testclient import TestClient

from cli.web.access import AccessOptions, access_policy
from cli.web.application import application
from flows.workspace.workspace import open_workspace
from tasks.release.signatures.ed25519 import SigningKey
from tasks.release.signatures.webauthn import encode_url
from tests.authenticator import ORIGIN, Authenticator
from tests.integration.story import Almoner
from tests.integration.team import Team
from tests.support import snapshot


def raised(problem: BaseException) -> None:
    raise problem


@dataclass
class Browser:
    """What a person's browser does on the dashboard of a home, with a passkey."""

    client: TestClient
    passkey: Authenticator
    origin: str = ORIGIN
    forms: dict[str, str] = field(default_factory=dict)

    def page(self, path: str, expected: int = 200) -> str:
        answer = self.client.get(path)
        assert answer.status_code == expected, (path, answer.status_code, answer.text[-2000:])
        return self.read(answer)

    def read(self, answer: httpx.Response) -> str:
        found = re.findall(r'<input type="hidden" name="([a-z_]+)" value="([^"]*)"', answer.text)
        self.forms = {name: html.unescape(value) for name, value in found}
        challenge = re.search(r'data-challenge="([^"]*)"', answer.text)
        self.challenge = decoded(challenge[1]) if challenge else b""
        return answer.text

    def post(self, path: str, expected: int | None = 200, headers: dict[str, str] | None = None, **fields: str) -> str:
        sent = {"origin": self.origin, "sec-fetch-site": "same-origin"} | (headers or {})
        answer = self.client.post(path, data=self.forms | fields, headers=sent)
        assert expected in (None, answer.status_code), (path, answer.status_code, answer.text[-1500:])
        return self.read(answer) if answer.status_code == 200 else answer.text

    def answer(self, **changes: Any) -> dict[str, str]:
        """The fields of the form after the passkey was touched."""
        challenge = changes.pop("signed", self.challenge)
        client_data = self.passkey.client_data("webauthn.get", challenge, **{
            name: changes.pop(name) for name in ("type", "origin", "crossOrigin") if name in changes})  # fmt: skip
        data = self.passkey.data(**changes)
        return {
            "credential_id": encode_url(self.passkey.credential_id),
            "authenticator_data": encode_url(data),
            "client_data": encode_url(client_data),
            "signature": encode_url(self.passkey.sign(data, client_data)),
        }

    def sign_in(self, expected: int = 303, **changes: Any) -> str:
        self.page("/sign-in")
        return self.post("/sign-in", expected, **self.answer(**changes))

    def prepare(
        self, verdict: str = "approve", gate: str = "spend", number: int = 1, expected: int = 200, **more: str
    ) -> str:
        self.page(f"/decide/{gate}/{number}")
        given = {"verdict": verdict, "reason": "agreed", "confirm": "clinic"} | more
        return self.post(f"/decide/{gate}/{number}", expected, **given)

    def decide(self, verdict: str = "approve", gate: str = "spend", number: int = 1, **more: str) -> str:
        self.prepare(verdict, gate, number, **more)
        return self.post("/sign", **self.answer())


def decoded(written: str) -> bytes:
    return urlsafe_b64decode(written + "=" * (-len(written) % 4))


def dashboard(home: Almoner, **options: Any) -> TestClient:
    made = access_policy(AccessOptions(decide=True, **options))
    app = application(home.home, made, tell=raised)
    return TestClient(app, base_url=str(made.origin), follow_redirects=False)


def registered(team: Team, name: str = "sue", kind: str = "es256", **more: Any) -> Authenticator:
    """A passkey of a person, by the commands that they type and the page that they open."""
    person = team.at(team.home(name))
    invited = person.ask(f"passkey invite --origin {more.get('origin', ORIGIN)}")
    passkey = Authenticator(kind, credential_id=f"of {name}".encode(), ledger=invited["ledger"], **more)
    person.type(f"passkey add {passkey.created(challenge_of(invited['url']))}")
    team.at(team.root)
    return passkey


def challenge_of(url: str) -> bytes:
    """What the page of an invitation gives to the browser."""
    stated = json.loads(decoded(parse_qs(urlsplit(url).query)["invitation"][0]))
    return decoded(stated["challenge"])


def signed_in(team: Team, name: str = "sue", **more: Any) -> Browser:
    passkey = registered(team, name, **more)
    browser = Browser(dashboard(team.root), passkey)
    browser.sign_in()
    return browser


def unchanged(team: Team, act: Callable[[], str], error: str) -> None:
    """Refused under that name, and no row of the ledger has changed."""
    before = snapshot(team.root.database)
    assert error in act()
    assert snapshot(team.root.database) == before


def owner_key(team: Team) -> SigningKey:
    return open_workspace(team.root.home).key
