"""The dashboard's pages of people who have signed in: prices, headers, cookies, addresses."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from cli.web import person_pages
from cli.web.access import AccessOptions, access_policy
from cli.web.application import application
from cli.web.authentication import CONTENT_SECURITY_POLICY, SCRIPT_POLICY
from cli.web.sessions import MOST_SIGN_INS
from models_db.services import people
from models_db.values.canonical_json import encode_canonical
from tasks.release.signatures.webauthn import encode_url
from tests.authenticator import ORIGIN, Authenticator
from tests.integration.browsing import Browser, dashboard, registered, signed_in, unchanged
from tests.integration.story import REQUEST
from tests.integration.team import Team
from tests.support import fetch, snapshot

CONCERNS = ("cli/web", "flows/approvals")

TLS = AccessOptions(decide=True, certificate=Path("c"), key=Path("k"))


# --- Prices ----------------------------------------------------------------------------------------------------------


def test_a_request_is_priced_and_submitted_by_a_form(team: Team) -> None:
    browser = signed_in(team, "anna")
    written = yaml.safe_dump(REQUEST | {"epsilon": 2.0})
    browser.page("/price")
    before = snapshot(team.root.database)
    page = browser.post("/price", request=written, action="price")
    assert "Public parameters" in page
    assert snapshot(team.root.database) == before
    for text_, error in (("[", "FileInvalid"), ("a: 1", "FileInvalid"), ("dataset: none", "FileInvalid")):
        browser.page("/price")
        assert error in browser.post("/price", 400, request=text_, action="submit")
    browser.page("/price")
    weak = yaml.safe_dump(REQUEST | {"epsilon": 7.9, "delta": 0.001})
    assert re.search("WeakPromise|BudgetExceeded", browser.post("/price", None, request=weak, action="submit"))
    assert snapshot(team.root.database) == before
    browser.page("/price")
    assert "Submitted as request" in browser.post("/price", request=written, action="submit")
    rows = fetch(team.root.database, "SELECT p.name FROM request r JOIN principal p ON p.id = r.requester_id"
                                     " ORDER BY r.id DESC LIMIT 1")  # fmt: skip
    assert rows[0][0] == "anna"


def test_few_prices_are_computed_at_once(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one price is computed its sender asks for the next, and so on: the third is refused, with no trace."""
    browser = signed_in(team, "anna")
    browser.page("/price")
    real, asked = person_pages.price_page, []

    def price(*given: Any, **options: Any) -> Any:
        sent = browser.forms | {"request": yaml.safe_dump(REQUEST)}
        asked.append(browser.client.post("/price", data=sent, headers={"origin": ORIGIN}))
        return real(*given, **options)

    monkeypatch.setattr(person_pages, "price_page", price)
    for _ in range(2):
        asked.clear()
        browser.page("/price")
        assert "Public parameters" in browser.post("/price", request=yaml.safe_dump(REQUEST), action="price")
        assert [answer.status_code for answer in asked] == [503, 200]
        assert "PricingBusy" in asked[0].text


def test_nobody_without_the_role_submits(team: Team) -> None:
    browser = signed_in(team)
    browser.page("/price")
    team.enrol("tom", "auditor")
    tom = signed_in(team, "tom")
    tom.page("/price")
    unchanged(team, lambda: tom.post("/price", 403, request=yaml.safe_dump(REQUEST), action="submit"), "Role")


# --- Pages -----------------------------------------------------------------------------------------------------------


def test_without_the_option_there_is_nothing_of_this(team: Team) -> None:
    client = TestClient(application(team.root.home, access_policy(AccessOptions())), base_url=ORIGIN)
    for path in ("/mine", "/sign-in", "/price", "/decide/spend/1", "/passkeys/new", "/webauthn.js"):
        assert client.get(path).status_code == 404
        assert client.post(path, headers={"origin": ORIGIN}).status_code == 405
    assert "My decisions" not in client.get("/").text


@pytest.mark.parametrize("sign", ["a\0b", "a\x1b[2Jb", "a\rb", "a\x7fb", "a\x85b"])
def test_a_form_with_a_control_character_is_refused(team: Team, sign: str) -> None:
    browser = signed_in(team)
    for verdict in ("approve", "reject"):
        act = partial(browser.prepare, verdict, expected=400, reason=sign)
        unchanged(team, act, "UnreadableArgument")
    browser.page("/price")
    unchanged(
        team, lambda: browser.post("/price", 400, request=f"dataset: '{sign}'", action="price"), "UnreadableArgument"
    )
    assert (
        "two<br>" in (page := browser.prepare("reject", reason="two\r\nlines")) or "two\nlines" in page
    )  # as browsers send


def test_scripts_run_on_three_pages_and_ours_alone(team: Team) -> None:
    browser = signed_in(team)
    invited = team.at(team.home("sue")).ask("passkey invite")["url"].removeprefix(ORIGIN)
    team.at(team.root)
    browser.prepare()
    signing = browser.client.post("/decide/spend/1", data=browser.forms, headers={"origin": ORIGIN})
    assert signing.status_code in (400, 403)
    for path in ("/sign-in", invited):
        answer = browser.client.get(path)
        assert answer.headers["content-security-policy"] == SCRIPT_POLICY
        assert re.findall("<script[^>]*>", answer.text) == ['<script src="/webauthn.js" defer>']
        assert answer.headers["referrer-policy"] == "same-origin"
    for path in ("/mine", "/price", "/decide/spend/1", "/", "/approvals", "/releases/1"):
        answer = browser.client.get(path)
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert "<script" not in answer.text
    assert "script-src" not in CONTENT_SECURITY_POLICY
    assert SCRIPT_POLICY.removesuffix("; script-src 'self'") == CONTENT_SECURITY_POLICY


def test_other_names_of_the_host_lead_to_the_one_origin(team: Team) -> None:
    made = access_policy(AccessOptions(decide=True))
    client = TestClient(application(team.root.home, made), base_url="http://127.0.0.1:8717", follow_redirects=False)
    assert client.get("/sign-in?x=1").headers["location"] == f"{ORIGIN}/sign-in?x=1"
    assert client.post("/sign-in", headers={"origin": "http://127.0.0.1:8717"}).status_code == 403


def test_wrong_answers_shut_nobody_out(team: Team) -> None:
    """Behind a proxy everybody has one address: neither wrong answers there, nor such for sue, are held against her."""
    team.at(team.root).type("user grant anna steward --reason 'for now'")
    browser, anna = Browser(dashboard(team.root), registered(team)), registered(team, "anna")
    for _ in range(30):
        assert "AnswerRefused" in browser.sign_in(403, flags=0x01)
    stranger = Browser(browser.client, Authenticator(credential_id=browser.passkey.credential_id))
    for _ in range(30):
        assert "AnswerRefused" in stranger.sign_in(403)
    browser.sign_in()
    Browser(TestClient(browser.client.app, base_url=ORIGIN, follow_redirects=False), anna).sign_in()


@pytest.mark.slow
def test_who_opens_the_page_of_signing_in_displaces_nobody(team: Team) -> None:
    browser = Browser(dashboard(team.root), registered(team))
    browser.page("/sign-in")
    for _ in range(1001):
        browser.client.get("/sign-in")
    browser.post("/sign-in", 303, **browser.answer())


def test_the_passkeys_of_one_person_sign_in_so_often(team: Team) -> None:
    browser = Browser(dashboard(team.root), registered(team))
    for _ in range(MOST_SIGN_INS):
        browser.sign_in()
    assert "SignInsTooMany" in browser.sign_in(403)


@pytest.mark.parametrize("challenge", ["", "x", "!", encode_url(b"c" * 32), encode_url(b"c" * 56), "A" * 5000])
def test_challenges_that_are_none_of_ours(team: Team, challenge: str) -> None:
    browser = Browser(dashboard(team.root), registered(team))
    browser.page("/sign-in")
    answer = browser.answer(signed=challenge.encode())
    assert "AnswerRefused" in browser.post("/sign-in", 403, **answer | {"challenge": challenge})


READS = "These pages only read."


def test_error_pages_say_only_where_it_holds_that_pages_only_read(team: Team) -> None:
    deciding = signed_in(team).client
    reading = TestClient(application(team.root.home, access_policy(AccessOptions())), base_url=ORIGIN)
    for path, status in (("/none", 404), ("/releases/99", 404), ("/passkeys/new", 400), ("/decide/publish/99", 404)):
        answer = deciding.get(path)
        assert answer.status_code == status, path
        assert READS not in answer.text, path
    for path in ("/none", "/releases/99"):
        assert READS in reading.get(path).text
    for client, only_reads in ((deciding, False), (reading, True)):
        turned_away = [client.post("/audit"), client.get("/", headers={"host": "evil.example"})]
        assert [answer.status_code for answer in turned_away] == [405, 421]
        assert [READS in answer.text for answer in turned_away] == [only_reads, only_reads]
        assert ("The dashboard only reads." in turned_away[0].text) is only_reads


def test_the_page_of_the_token_says_it_too(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH_OF_A_TOKEN", "t" * 40)
    for decide in (False, True):
        made = access_policy(AccessOptions(token_variable="PATH_OF_A_TOKEN", decide=decide))
        client = TestClient(application(team.root.home, made), base_url=ORIGIN)
        wrong = client.post("/login", data={"token": "x"}, headers={"sec-fetch-site": "same-origin"})
        assert wrong.status_code == 401
        for page in (client.get("/login"), wrong):
            assert (READS in page.text) is not decide


def test_cookies_are_for_this_host_and_no_script(team: Team) -> None:
    passkey = registered(team)
    browser = Browser(dashboard(team.root), passkey)
    browser.page("/sign-in")
    answer = browser.client.post("/sign-in", data=browser.forms | browser.answer(), headers={"origin": ORIGIN})
    set_cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in set_cookie
    assert "samesite=strict" in set_cookie
    assert "secure" not in set_cookie
    secure = access_policy(replace(TLS, names=("ledger.example.org",)))
    assert secure.origin == "https://ledger.example.org:8717"
    abroad = Authenticator(
        host="ledger.example.org", origin=str(secure.origin), credential_id=b"abroad", ledger=passkey.ledger
    )
    certify(team, abroad)
    client = TestClient(application(team.root.home, secure), base_url=str(secure.origin), follow_redirects=False)
    other = Browser(client, abroad, origin=str(secure.origin))
    other.page("/sign-in")
    answer = client.post("/sign-in", data=other.forms | other.answer(), headers={"origin": str(secure.origin)})
    set_cookie = answer.headers["set-cookie"]
    assert set_cookie.startswith("__Host-almoner-person=")
    assert "; Secure" in set_cookie


def certify(team: Team, passkey: Authenticator) -> None:
    key = team.key("sue")
    with team.root.database.write() as session:
        sue = people.identify(session, key.public_key)
        signature = key.sign(passkey.terms.statement(key.public_key))
        people.register_passkey(session, sue, sue, passkey.terms, encode_url(passkey.credential_id), signature)


@pytest.mark.parametrize("invitation", ["", "x", "e30", encode_url(b"{}"), encode_url(encode_canonical(
    {"name": "<script>", "principal": "p", "challenge": "short", "expires_at": "2090"})), "A" * 9000])  # fmt: skip
def test_invitations_that_are_none(team: Team, invitation: str) -> None:
    assert dashboard(team.root).get(f"/passkeys/new?invitation={invitation}").status_code == 400
