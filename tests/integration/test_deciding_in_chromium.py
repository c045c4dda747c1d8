"""A steward's browser: a passkey in Chromium's virtual authenticator is registered, signs in, approves and rejects."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from cli.web.access import AccessOptions, access_policy
from cli.web.application import application
from flows.governance.passkeys import ANSWER_FIELDS
from models_db.home import ProjectHome
from tests.browser.chromium import Tab, running
from tests.browser.test_dashboard import violations
from tests.browser.test_report_page import DESK, PHONE
from tests.integration.story import REQUEST, Almoner
from tests.integration.team import Team
from tests.support import PATIENCE, fetch

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.usefixtures("own_connections")]


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with running() as found:
        yield found


@contextmanager
def serving(home: ProjectHome) -> Iterator[str]:
    """The dashboard at a free port of this machine, and its origin."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = access_policy(AccessOptions(port=listening.getsockname()[1], decide=True))
        server = uvicorn.Server(uvicorn.Config(application(home, made), access_log=False, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield str(made.origin)
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


@contextmanager
def another_site(page: str) -> Iterator[int]:
    """Somebody else's server on this machine, with one page. Its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            """Nothing is told."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join(PATIENCE)
        server.server_close()


class Steward:
    """A person at a browser with a device that holds passkeys."""

    def __init__(self, tab: Tab, origin: str) -> None:
        self.tab, self.origin = tab, origin
        tab.send("WebAuthn.enable")
        options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
                   "isUserVerified": True, "automaticPresenceSimulation": True}  # fmt: skip
        self.device = tab.send("WebAuthn.addVirtualAuthenticator", options=options)["authenticatorId"]

    def leave(self) -> None:
        self.tab.send("WebAuthn.removeVirtualAuthenticator", authenticatorId=self.device)
        self.tab.send("Network.clearBrowserCookies")

    def verify(self, able: bool) -> None:
        self.tab.send("WebAuthn.setUserVerified", authenticatorId=self.device, isUserVerified=able)

    def open(self, path: str, width: int = DESK, *, dark: bool = False) -> None:
        self.tab.open(path if path.startswith("http") else self.origin + path, width, dark=dark)

    def click(self, selector: str, until: str) -> None:
        """Press a button that is there, as a person does, and wait for something on the page that comes."""
        self.wait(f"document.querySelector({json.dumps(selector)}) !== null")
        self.tab.send("Runtime.evaluate", userGesture=True,
                      expression=f"document.querySelector({json.dumps(selector)}).click()")  # fmt: skip
        self.wait(until)

    def wait(self, expression: str) -> None:
        end, expression = time.monotonic() + PATIENCE, f"document.readyState === 'complete' && ({expression})"
        while True:
            found = self.tab.send("Runtime.evaluate", expression=expression, returnByValue=True)
            if "exceptionDetails" not in found and found["result"].get("value"):
                return
            assert time.monotonic() < end, (expression, self.text())
            time.sleep(0.05)

    def text(self) -> str:
        return str(self.tab.ask("document.body.innerText"))

    def fill(self, **fields: str) -> None:
        for name, value in fields.items():
            self.tab.ask(f"document.getElementById({json.dumps(name)}).value = {json.dumps(value)}; 0")

    def register(self, person: Almoner) -> str:
        """From the invitation to the command that the page shows."""
        self.open(person.ask(f"passkey invite --origin {self.origin}")["url"])
        self.click("form[data-passkey] button", "!document.getElementById('made').hidden")
        assert self.tab.ask("document.querySelector('form[data-passkey]').checkVisibility()") is False
        return str(self.tab.ask("document.getElementById('command').value")).removeprefix("almoner ")

    def sign_in(self) -> None:
        self.open("/sign-in")
        self.click("form[data-passkey] button", "location.pathname === '/mine'")

    def prepare(self, gate: str, verdict: str = "approve", confirm: str = "clinic", number: int = 1) -> None:
        self.open(f"/decide/{gate}/{number}")
        self.fill(reason="read on the screen", confirm=confirm)
        self.click(f"button[value={verdict}]", "document.title.startsWith('Sign ')")

    def decide(self, gate: str, verdict: str = "approve", number: int = 1) -> None:
        self.prepare(gate, verdict, number=number)
        self.click("form[data-passkey] button", "document.title.startsWith('Decided')")

    def cookies(self) -> dict[str, str]:
        return {one["name"]: one["value"] for one in self.tab.send("Network.getCookies", urls=[self.origin])["cookies"]}


@pytest.fixture
def steward(team: Team, tab: Tab) -> Iterator[Steward]:
    """Sue at her browser, with a passkey that the ledger knows."""
    with serving(team.root.home) as origin:
        made = Steward(tab, origin)
        sue = team.at(team.home("sue"))
        sue.type(made.register(sue))
        team.at(team.root)
        made.sign_in()
        yield made
        made.leave()


def refused(steward: Steward, team: Team, error: str) -> None:
    steward.wait(f"document.title.startsWith({json.dumps(error)})")
    assert fetch(team.root.database, "SELECT id FROM approval") == []


def test_a_release_is_approved_at_both_gates_in_a_browser(steward: Steward, team: Team) -> None:
    assert "1 waits for you." in steward.text()
    steward.decide("spend")
    assert "The request is now approved." in steward.text()
    team.root.type("run 1")
    steward.open("/decide/publish/1/texts")
    assert "3 of 3 texts shown." in steward.text()
    steward.decide("publish")
    team.root.type(f"publish 1 --to {team.root.folder / 'out'}")
    assert team.root.ask(f"verify-release {team.root.bundle}")["holds"] is True
    approvals = json.loads((team.root.bundle / "approvals.json").read_text())
    assert [one["passkey"]["origin"] for one in approvals] == [steward.origin] * 2
    steward.open("/mine")
    assert "Nothing waits for your decision." in steward.text()


def test_a_rejection(steward: Steward, team: Team) -> None:
    steward.prepare("spend", "reject", confirm="")
    steward.click("form[data-passkey] button", "document.title.startsWith('Decided')")
    assert team.root.state() == "rejected"


def test_an_approval_is_taken_back(steward: Steward, team: Team) -> None:
    steward.decide("spend")
    steward.open("/mine")
    steward.click("a[href='/decide/spend/1/withdraw']", "document.title.startsWith('Take an approval back')")
    steward.fill(reason="a doubt")
    steward.click("main form button", "document.title.startsWith('Sign ')")
    steward.click("form[data-passkey] button", "document.title.startsWith('Decided')")
    assert "Taken back" in steward.text()
    assert team.root.state() == "submitted"
    steward.decide("spend")
    assert team.root.state() == "approved"


def test_without_verification_nothing_is_signed(steward: Steward, team: Team) -> None:
    """The browser refuses; and the dashboard does, where a page is made to ask for less."""
    steward.prepare("spend")
    steward.verify(False)
    steward.click("form[data-passkey] button", "document.body.innerText.includes('Nothing was sent')")
    assert "NotAllowedError" in steward.text()
    weaker = ("const old = navigator.credentials.get.bind(navigator.credentials); navigator.credentials.get = (o) => {"
              " o.publicKey.userVerification = 'discouraged'; return old(o); }; 0")  # fmt: skip
    steward.tab.ask(weaker)
    steward.click("form[data-passkey] button", "document.title.startsWith('AnswerRefused')")
    refused(steward, team, "AnswerRefused")
    steward.verify(True)
    steward.decide("spend")


def test_a_passkey_that_another_page_of_the_host_asks_signs_nothing_here(steward: Steward, team: Team) -> None:
    """Another port of `localhost` reaches the same passkey, with the right challenge, and names its own origin."""
    steward.prepare("spend")
    form = "document.querySelector('form[data-passkey]')"
    challenge, credentials = (steward.tab.ask(f"{form}.dataset.{name}") for name in ("challenge", "credentials"))
    prepared, token = (steward.tab.ask(f"{form}.elements.{name}.value") for name in ("prepared", "form_token"))
    script = Path("cli/web/templates/webauthn.js").read_text()
    inputs = "".join(f"<input name={name}>" for name in ANSWER_FIELDS)
    page = (f"<form method=post action='{steward.origin}/sign' data-passkey=get data-rp=localhost"
            f" data-challenge='{challenge}' data-credentials='{credentials}'><input name=prepared value='{prepared}'>"
            f"<input name=form_token value='{token}'>{inputs}<button>x</button><p role=status></p></form>"
            f"<script>{script}</script>")  # fmt: skip
    with another_site(page) as port:
        steward.open(f"http://localhost:{port}/")
        steward.click("button", "document.title.startsWith('FormForeign')")
        refused(steward, team, "FormForeign")
        # And if somebody carries the answer over, past the browser's own header:
        steward.open(f"http://localhost:{port}/")
        steward.tab.ask("HTMLFormElement.prototype.submit = () => { document.title = 'answered'; }; 0")
        steward.click("button", "document.title === 'answered'")
        fields = steward.tab.ask("Object.fromEntries(new FormData(document.querySelector('form')))")
    with httpx.Client(base_url=steward.origin, cookies=steward.cookies()) as client:
        answer = client.post("/sign", data=fields, headers={"origin": steward.origin})
    assert "AnswerRefused" in answer.text
    assert fetch(team.root.database, "SELECT id FROM approval") == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_form_of_another_site_is_refused(steward: Steward, team: Team, host: str) -> None:
    """To `localhost` of another port browsers send the cookie, because a site has no port; the origin differs."""
    steward.open("/decide/spend/1")
    names = ("form_token", "subject")
    known = {name: steward.tab.ask(f"document.querySelector('[name={name}]').value") for name in names}
    fields = known | {"verdict": "approve", "reason": "r", "confirm": "clinic"}
    inputs = "".join(f"<input name={name} value='{value}'>" for name, value in fields.items())
    page = f"<form method=post action='{steward.origin}/decide/spend/1'>{inputs}<button>x</button></form>"
    with another_site(page) as port:
        steward.open(f"http://{host}:{port}/")
        steward.click("button", "document.title.startsWith('FormForeign')")
    refused(steward, team, "FormForeign")


def test_no_page_of_another_site_shows_ours_in_a_frame(steward: Steward) -> None:
    with another_site(f"<iframe src='{steward.origin}/mine' width=800 height=600></iframe>") as port:
        steward.open(f"http://localhost:{port}/")
        said = [e["params"]["entry"]["text"] for e in steward.tab.events if e["method"] == "Log.entryAdded"]
    assert any("frame-ancestors" in one or "X-Frame-Options" in one for one in said), said


PATHS = ("/sign-in", "/mine", "/decide/publish/1", "/decide/publish/1/texts", "/price", "/approvals")


def test_everybody_can_read_every_page(steward: Steward, team: Team) -> None:
    """axe finds nothing on a phone and a desk, in light and dark; nothing is loaded from elsewhere."""
    sue = team.at(team.home("sue"))
    invited = sue.ask(f"passkey invite --origin {steward.origin}")["url"]
    team.at(team.root)
    steward.decide("spend")
    team.root.type("run 1")
    for width in (PHONE, DESK):
        for dark in (False, True):
            for path in (invited, *PATHS):
                steward.open(path, width, dark=dark)
                looked_at(steward, width, path)
            steward.open("/price", width, dark=dark)
            steward.fill(request=json.dumps(REQUEST))
            steward.click("button[value=price]", "document.body.innerText.includes('Public parameters')")
            looked_at(steward, width, "a price")
            steward.open("/decide/publish/1", width, dark=dark)
            steward.fill(reason="read on the screen", confirm="clinic")
            steward.click("button[value=approve]", "document.title.startsWith('Sign ')")
            looked_at(steward, width, "to be signed")
    steward.click("form[data-passkey] button", "document.title.startsWith('Decided')")
    looked_at(steward, DESK, "decided")
    for width in (PHONE, DESK):
        for dark in (False, True):
            for path in ("/mine", "/decide/publish/1/withdraw"):
                steward.open(path, width, dark=dark)
                looked_at(steward, width, path)
            steward.fill(reason="a doubt")
            steward.click("main form button", "document.title.startsWith('Sign ')")
            looked_at(steward, width, "to be taken back")
    steward.click("form[data-passkey] button", "document.title.startsWith('Decided')")
    looked_at(steward, DESK, "taken back")


def looked_at(steward: Steward, width: int, what: str) -> None:
    tab = steward.tab
    assert tab.ask("document.documentElement.scrollWidth") <= width, what
    assert violations(tab) == [], what
    assert tab.ask("document.title").endswith(" · almoner"), what
    urls = {e["params"]["request"]["url"] for e in tab.events if e["method"] == "Network.requestWillBeSent"}
    assert all(url.startswith(steward.origin + "/") for url in urls), what
    said = [e for e in tab.events if e["method"] in ("Runtime.consoleAPICalled", "Log.entryAdded")]
    assert said == [], (what, said)


def test_a_page_is_used_with_the_keyboard_alone(steward: Steward, team: Team) -> None:
    """Tab reaches reason, name and both buttons in this order; Enter on the last page signs."""
    steward.open("/decide/spend/1")
    steward.tab.ask("document.getElementById('reason').focus(); 0")
    order = []
    for _ in range(4):
        order.append(steward.tab.ask("document.activeElement.id || document.activeElement.value"))
        press(steward.tab, "Tab")
    assert order == ["reason", "confirm", "approve", "reject"]
    steward.prepare("spend")
    steward.tab.ask("document.querySelector('form[data-passkey] button').focus(); 0")
    press(steward.tab, "Enter", "\r")
    steward.wait("document.title.startsWith('Decided')")
    assert team.root.state() == "approved"


def press(tab: Tab, key: str, text: str = "") -> None:
    code = {"Tab": 9, "Enter": 13}[key]
    given: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
    tab.send("Input.dispatchKeyEvent", type="keyDown", text=text, **given)
    tab.send("Input.dispatchKeyEvent", type="keyUp", **given)
