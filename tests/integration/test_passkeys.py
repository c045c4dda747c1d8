"""Passkeys from invitation to bundle: who registers one, what it decides, and every answer that decides nothing."""

import hashlib
import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from cli.web import sessions as person_sessions
from cli.web.access import AccessOptions, access_policy
from flows.governance import passkeys as registration
from flows.workspace.workspace import open_workspace
from models_db.database.base import utc_now
from models_db.services import gates, people
from models_db.services.gates import GateDecision, find_decidable
from models_db.services.people import PasskeySignature
from models_db.values.request_state import Gate
from tasks.common.files import encode_json
from tasks.release.signatures.webauthn import encode_url
from tests.authenticator import ORIGIN, Authenticator
from tests.integration.browsing import Browser, challenge_of, dashboard, owner_key, registered, signed_in, unchanged
from tests.integration.story import Almoner
from tests.integration.team import Team
from tests.refusals import refusal
from tests.support import fetch, snapshot

CONCERNS = ("cli/web", "flows/approvals", "tasks/release/signatures")

ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def published(team: Team, browser: Browser) -> Path:
    """Both gates passed in the browser; rick runs and publishes."""
    browser.decide()
    rick = team.at(team.root)
    rick.type("run 1")
    browser.decide(gate="publish")
    rick.type(f"publish 1 --to {team.root.folder / 'out'}")
    return team.root.bundle


# --- From the invitation to the bundle -------------------------------------------------------------------------------


def test_a_passkey_decides_at_both_gates_and_the_bundle_proves_it(any_team: Team) -> None:
    browser = signed_in(any_team)
    assert "Read and decide" in browser.page("/mine")
    bundle = published(any_team, browser)
    told = any_team.root.ask(f"verify-release {bundle}")
    assert told["holds"] is True
    approvals = json.loads((bundle / "approvals.json").read_text())
    assert [one["passkey"]["origin"] for one in approvals] == [ORIGIN, ORIGIN]
    keys = {any_team.key("sue").public_key}
    assert {one["public_key"] for one in approvals} == keys
    attested = json.loads((bundle / "attestation.json").read_text())["signatures"]
    assert keys.isdisjoint(one["keyid"] for one in attested)
    assert any_team.root.ask("doctor", expected=0)
    assert any_team.root.ask("audit verify")


def test_a_changed_assertion_in_a_bundle_is_found_without_the_ledger(team: Team) -> None:
    """Every field of the passkey and its signature, byte by byte at some places."""
    bundle = published(team, signed_in(team, kind="ed25519"))
    file = bundle / "approvals.json"
    whole = json.loads(file.read_text())
    tried = 0
    for name in ("public_key", "rp_id", "origin", "certificate", "authenticator_data", "client_data"):
        changed = json.loads(json.dumps(whole))
        value = changed[1]["passkey"][name]
        changed[1]["passkey"][name] = value[:-1] + ("0" if value[-1] != "0" else "1")
        file.write_bytes(encode_json(changed))
        told = team.root.ask(f"verify-release {bundle}", expected=1)
        assert {check["name"]: check["ok"] for check in told["checks"]}["approvals"] is False, (name, told)
        tried += 1
    assert tried == 6


def test_rejecting_needs_no_name_and_the_reason_is_signed(any_team: Team) -> None:
    browser = signed_in(any_team)
    assert "Rejected" in browser.decide("reject", confirm="", reason="the prompt names a person")
    assert any_team.root.state() == "rejected"
    rows = fetch(any_team.root.database, "SELECT reason, decision, passkey_id FROM approval")
    assert [tuple(row) for row in rows] == [("the prompt names a person", "reject", 1)]


def test_what_is_signed_is_what_the_command_line_signs(team: Team) -> None:
    browser = signed_in(team)
    page = browser.prepare()
    statement = html.unescape(re.findall(r"<code>(\{.*?\})</code>", page)[0])
    stated = json.loads(statement)
    with team.root.database.read() as session:
        digest = find_decidable(session, 1, Gate.SPEND).subject_digest
    expected = GateDecision(1, "spend", digest, "approve", "agreed", stated["expires_at"]).statement("sue")
    assert statement.encode() == expected
    assert browser.challenge == hashlib.sha256(expected).digest()


def test_the_command_line_decides_beside_it(any_team: Team) -> None:
    """One person, two kinds of keys: they count once, and either takes back what the other gave."""
    browser = signed_in(any_team)
    browser.decide()
    sue = any_team.at(any_team.home("sue"))
    assert sue.ask("approve 1 --gate spend --reason again", expected=1)["error"] in ("RuleViolated", "WrongState")
    sue.type("withdraw-approval 1 --gate spend --reason 'a doubt'")
    assert any_team.at(any_team.root).state() == "submitted"
    any_team.at(sue)
    sue.type("approve 1 --gate spend --reason 'on the command line'")
    assert any_team.at(any_team.root).state() == "approved"


# --- Registration ----------------------------------------------------------------------------------------------------


def test_an_invitation_is_used_once_and_not_late(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    sue = team.at(team.home("sue"))
    invited = sue.ask("passkey invite")
    answer = Authenticator().created(challenge_of(invited["url"]))
    other = Authenticator(credential_id=b"two").created(challenge_of(invited["url"]))
    sue.type(f"passkey add {answer}")
    for given in (answer, other):
        assert sue.ask(f"passkey add {given}", expected=1)["error"] == "InvitationMissing"
    late = sue.ask("passkey invite")
    monkeypatch.setattr(registration, "utc_now", lambda: "2090-01-01T00:00:00.000000Z")
    answer = Authenticator().created(challenge_of(late["url"]))
    assert sue.ask(f"passkey add {answer}", expected=1)["error"] == "InvitationExpired"
    assert len(fetch(team.root.database, "SELECT id FROM passkey")) == 1


def test_an_answer_for_another_person_page_or_invitation_makes_none(team: Team) -> None:
    anna = team.at(team.home("anna")).ask("passkey invite")
    sue = team.at(team.home("sue"))
    earlier = sue.ask("passkey invite")
    invited = sue.ask("passkey invite")
    challenge = challenge_of(invited["url"])
    wrong = [
        Authenticator().created(challenge_of(anna["url"])),
        Authenticator().created(challenge_of(earlier["url"])),
        Authenticator(origin="http://localhost:9000").created(challenge),
        Authenticator(host="evil.example").created(challenge),
        Authenticator().created(challenge, flags=0x41),
        "x",
    ]
    for answer in wrong:
        assert sue.ask(f"passkey add {answer}", expected=1)["error"] == "PasskeyAnswerUnfit"
    assert fetch(team.root.database, "SELECT id FROM passkey") == []
    sue.type(f"passkey add {Authenticator().created(challenge)}")


def test_an_admin_brings_the_passkey_of_a_home_without_ledger(any_team: Team) -> None:
    sue = any_team.at(any_team.home("sue"), ledger=False)
    for given in ("--name sue", "--name sue --ledger x", f"--name sue --ledger {'A' * 64}"):
        assert sue.ask(f"passkey invite {given}", expected=2)["error"] == "LedgerUnnamed"
    any_team.at(any_team.root)
    identity = any_team.root.ask("passkey list")["ledger"]
    any_team.at(sue, ledger=False)
    invited = sue.ask(f"passkey invite --name sue --ledger {identity}")
    passkey = Authenticator(credential_id=b"of sue")
    file = sue.folder / "passkey.json"
    sue.type(f"passkey add {passkey.created(challenge_of(invited['url']))} --export {file}")
    anna = any_team.at(any_team.home("anna"))
    assert anna.ask(f"passkey import {file}", expected=1)["error"] == "RoleDenied"
    root = any_team.at(any_team.root)
    forged = json.loads(file.read_text())
    mallory = Authenticator()
    changes = {"public_key": mallory.public_key, "origin": "https://evil.example", "rp_id": "evil.example",
               "ledger": "0" * 64,
               "principal": any_team.key("anna").public_key}  # fmt: skip
    for name, value in changes.items():
        other = root.write("forged.json", encode_json(forged | {name: value}))
        assert root.ask(f"passkey import {other}", expected=1)["error"] == "PasskeyForged"
    assert root.ask(f"passkey import {file}")["name"] == "sue"
    assert root.ask(f"passkey import {file}", expected=1)["error"] == "PasskeyTaken"
    browser = Browser(dashboard(root), passkey)
    browser.sign_in()
    assert "Approved" in browser.decide()


def test_everybody_sees_the_passkeys_and_whether_they_are_certified(team: Team) -> None:
    registered(team)
    owner = owner_key(team)
    with team.root.database.write() as session:
        sue = people.find_principal(session, "sue")
        actor = people.identify(session, sue.public_key)
        root = people.identify(session, owner.public_key)
        people.register_passkey(session, root, actor, Authenticator().terms, "forged", "0" * 128)
    rows = team.root.ask("passkey list")["passkeys"]
    assert [(row["name"], row["certified"]) for row in rows] == [("sue", True), ("sue", False)]


def another_ledger(team: Team) -> Almoner:
    """A home with a ledger of its own, whose people have the same keys."""
    made = Almoner(team.root.folder / "another")
    made.folder.mkdir()
    team.patch.setenv("ALMONER_HOME", str(made.home.root))
    team.patch.setenv("ALMONER_DATABASE_URL", f"sqlite:///{made.folder / 'ledger.db'}")
    made.type("init")
    workspace = open_workspace(made.home)
    with workspace.database.write() as session:
        people.enrol(session, workspace.actor, "sue", team.key("sue").public_key)
    return made


def test_a_certificate_is_for_one_ledger(team: Team) -> None:
    """Sue has one key in two ledgers: what she certifies for one is nothing in the other, however it comes there."""
    other = another_ledger(team)
    identity = other.ask("passkey list")["ledger"]
    sue = team.at(team.home("sue"), ledger=False)
    invited = sue.ask(f"passkey invite --name sue --ledger {identity}")
    passkey, file = Authenticator(credential_id=b"of sue", ledger=identity), sue.folder / "passkey.json"
    sue.type(f"passkey add {passkey.created(challenge_of(invited['url']))} --export {file}")
    root = team.at(team.root)
    before = snapshot(root.database)
    assert root.ask("passkey list")["ledger"] != identity
    assert root.ask(f"passkey import {file}", expected=1)["error"] == "PasskeyOfAnotherLedger"
    certified = json.loads(file.read_text())
    own = root.write("own.json", encode_json(certified | {"ledger": root.ask("passkey list")["ledger"]}))
    assert root.ask(f"passkey import {own}", expected=1)["error"] == "PasskeyForged"
    assert snapshot(root.database) == before
    with root.database.write() as session:  # and past all of this
        person = people.identify(session, team.key("sue").public_key)
        people.register_passkey(
            session, person, person, passkey.terms, certified["credential_id"], certified["signature"]
        )
    assert [row["certified"] for row in root.ask("passkey list")["passkeys"]] == [False]
    browser = Browser(dashboard(root), passkey)
    assert "AnswerRefused" in browser.sign_in(403)
    team.patch.setenv("ALMONER_HOME", str(other.home.root))
    team.patch.setenv("ALMONER_DATABASE_URL", f"sqlite:///{other.folder / 'ledger.db'}")
    assert other.ask(f"passkey import {file}")["name"] == "sue"  # where it belongs it signs in
    Browser(dashboard(other), passkey).sign_in()


def test_a_home_that_reaches_its_ledger_names_no_other(team: Team) -> None:
    sue = team.at(team.home("sue"))
    assert sue.ask(f"passkey invite --ledger {'0' * 64}", expected=2)["error"] == "LedgerKnown"


TLS = AccessOptions(decide=True, certificate=Path("c"), key=Path("k"))


def test_addresses_at_which_browsers_make_no_passkey(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH_OF_A_TOKEN", "t" * 40)
    sue = team.at(team.home("sue"))
    for address in ("http://ledger.example.org", "http://127.0.0.1:8717", "https://192.0.2.7", "ftp://localhost",
                    "https://ledger.example.org:443", "https://a@b", "https://x/y", "localhost"):  # fmt: skip
        assert sue.ask(f"passkey invite --origin {address}", expected=2)["error"] == "OriginUnfit", address
    with refusal("HostNameRequired"):
        access_policy(replace(TLS, address="192.0.2.7", token_variable="PATH_OF_A_TOKEN"))


# --- Answers that decide nothing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"signed": b"another digest".ljust(32)},
        {"origin": "http://localhost:9000"},
        {"origin": "https://evil.example"},
        {"host": "evil.example"},
        {"flags": 0x01},
        {"flags": 0x04},
        {"flags": 0x00},
        {"type": "webauthn.create"},
        {"crossOrigin": True},
    ],
    ids=str,
)
def test_an_answer_to_something_else_decides_nothing_and_signs_nobody_in(team: Team, changes: dict[str, Any]) -> None:
    browser = signed_in(team)
    browser.prepare()
    unchanged(team, lambda: browser.post("/sign", 403, **browser.answer(**changes)), "AnswerRefused")
    other = Browser(dashboard(team.root), browser.passkey)
    assert "AnswerRefused" in other.sign_in(403, **changes)
    other.page("/mine", 303)


def test_an_answer_is_used_once(any_team: Team) -> None:
    browser = signed_in(any_team)
    browser.page("/sign-in")
    forms, first = dict(browser.forms), browser.answer()
    browser.post("/sign-in", 303, **first)
    browser.forms = forms
    assert "AnswerRefused" in browser.post("/sign-in", 403, **first)
    browser.prepare()
    prepared, answer = browser.forms["prepared"], browser.answer()
    browser.post("/sign", **answer)
    browser.page("/mine")
    unchanged(any_team, lambda: browser.post("/sign", 403, prepared=prepared, **answer), "NotPrepared")
    sue = any_team.at(any_team.home("sue"))
    sue.type("withdraw-approval 1 --gate spend --reason 'a doubt'")
    any_team.at(any_team.root)
    browser.prepare()  # the same statement of the same day, so the same challenge
    unchanged(any_team, lambda: browser.post("/sign", 403, **answer), "was recorded before")
    browser.prepare()
    malleable = bytes.fromhex(answer_signature(any_team))
    r, s = int.from_bytes(malleable[:32], "big"), ORDER - int.from_bytes(malleable[32:], "big")
    other = answer | {"signature": encode_url(encode_dss_signature(r, s))}
    unchanged(any_team, lambda: browser.post("/sign", 403, **other), "was recorded before")


def answer_signature(team: Team) -> str:
    return str(fetch(team.root.database, "SELECT signature FROM approval ORDER BY id DESC LIMIT 1")[0][0])


def test_the_answer_of_another_person_or_session_decides_nothing(team: Team) -> None:
    sue = signed_in(team)
    team.at(team.root).type("user grant anna steward --reason 'for now'")
    anna = Browser(sue.client, registered(team, "anna"))
    sue.prepare()
    stolen = dict(sue.forms)
    anna.challenge = sue.challenge
    unchanged(team, lambda: sue.post("/sign", 403, **anna.answer()), "AnswerRefused")
    sue.prepare()
    stolen = dict(sue.forms)
    answer = sue.answer()
    other = Browser(TestClient(sue.client.app, base_url=ORIGIN, follow_redirects=False), anna.passkey)
    other.sign_in()
    other.page("/mine")
    own = other.forms["form_token"]
    unchanged(team, lambda: other.post("/sign", 403, **stolen, **answer), "FormForeign")
    unchanged(
        team, lambda: other.post("/sign", 403, prepared=stolen["prepared"], form_token=own, **answer), "NotPrepared"
    )
    assert "Approved" in sue.post("/sign", **stolen, **answer)


def test_forms_of_other_places_are_refused(team: Team) -> None:
    browser = signed_in(team)
    browser.page("/decide/spend/1")
    good = {"verdict": "approve", "reason": "agreed", "confirm": "clinic"}
    wrong: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"origin": "null"}, {}),
        ({"origin": "https://evil.example"}, {}),
        ({"origin": "http://localhost:9000"}, {}),
        ({"origin": "http://127.0.0.1:8717"}, {}),
        ({"sec-fetch-site": "cross-site"}, {}),
        ({"sec-fetch-site": "same-site"}, {}),
        ({"sec-fetch-site": "none"}, {}),
        ({}, {"form_token": ""}),
        ({}, {"form_token": "x" * 43}),
        ({"content-type": "text/plain"}, {}),
        ({"content-type": "multipart/form-data; boundary=x"}, {}),
    ]
    for headers, fields in wrong:
        forms = dict(browser.forms)
        unchanged(team, partial(browser.post, "/decide/spend/1", 403, headers, **good | fields), "FormForeign")
        browser.forms = forms
    broken = "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")
    forms = dict(browser.forms)
    spoilt = partial(browser.post, "/decide/spend/1", 400, {}, **good | {"form_token": broken})
    unchanged(team, spoilt, "UnreadableArgument")
    browser.forms = forms
    del browser.forms["form_token"]
    unchanged(team, lambda: browser.post("/decide/spend/1", 403, **good), "FormForeign")
    for path in ("/sign", "/price", "/sign-out"):
        unchanged(team, partial(browser.post, path, 403, **good), "FormForeign")
    answer = browser.client.post("/decide/spend/1", data=good)
    assert answer.status_code == 403  # no origin at all
    forms = browser.page("/decide/spend/1") and dict(browser.forms)
    other = Browser(TestClient(browser.client.app, base_url=ORIGIN, follow_redirects=False), browser.passkey)
    other.sign_in()  # the form of one session of the same person, in another one of theirs
    other.forms = forms
    unchanged(team, lambda: other.post("/decide/spend/1", 403, **good), "FormForeign")


def test_a_session_ends_and_its_values_change(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = signed_in(team)
    first = browser.client.cookies["almoner-person"]
    token = (browser.page("/mine"), browser.forms["form_token"])[1]
    browser.decide("reject")
    assert browser.client.cookies["almoner-person"] != first
    assert (browser.page("/mine"), browser.forms["form_token"])[1] != token
    replayed = TestClient(
        browser.client.app, base_url=ORIGIN, follow_redirects=False, cookies={"almoner-person": first}
    )
    assert replayed.get("/mine").headers["location"] == "/sign-in"
    second = browser.client.cookies["almoner-person"]
    browser.post("/sign-out", 303)
    replayed.cookies["almoner-person"] = second
    assert replayed.get("/mine").headers["location"] == "/sign-in"
    clock = [0.0]
    sessions = person_sessions.PersonSessions(lambda: clock[0])
    value = sessions.open(people.Actor(1, "sue"), 1)
    renewed = sessions.renew(value)
    assert renewed is not None
    assert sessions.renew(value) is None
    assert sessions.find(value) is None
    assert sessions.find(renewed) is not None
    clock[0] = person_sessions.SIGNED_IN_SECONDS + 1
    assert sessions.find(renewed) is None


def test_a_revoked_passkey_signs_nobody_in_and_what_it_gave_is_taken_back(any_team: Team) -> None:
    browser = signed_in(any_team)
    browser.decide()
    stolen = Browser(browser.client, browser.passkey)
    stolen.page("/sign-in")
    sue = any_team.at(any_team.home("sue"))
    told = sue.ask("passkey revoke 1 --reason 'the telephone is lost'")
    assert told["withdrawn"] == [{"number": 1, "gate": "spend"}]
    root = any_team.at(any_team.root)
    assert root.state() == "submitted"
    assert browser.client.get("/mine").headers["location"] == "/sign-in"
    unchanged(any_team, lambda: stolen.post("/sign-in", 403, **stolen.answer()), "AnswerRefused")
    assert sue.ask("passkey revoke 1 --reason again", expected=2)["error"] == "PasskeyUnknown"
    assert root.ask("doctor", expected=0)


def test_what_a_revoked_passkey_approved_counts_no_more_whoever_revoked_it(any_team: Team) -> None:
    """An admin revokes it while its person is away; the person takes the approval back, and may decide again."""
    signed_in(any_team).decide()
    root = any_team.at(any_team.root)
    assert "counts no more" in root.type("passkey revoke 1 --reason 'sue has lost the telephone'").out
    before = snapshot(root.database)
    assert root.ask("run 1", expected=1)["error"] == "GateClosed"
    assert snapshot(root.database) == before
    sue = any_team.at(any_team.home("sue"))
    assert sue.ask("approve 1 --gate spend --reason again", expected=1)["error"] == "RuleViolated"
    sue.type("withdraw-approval 1 --gate spend --reason 'not by me'")
    assert any_team.at(root).state() == "submitted"
    any_team.at(sue).type("approve 1 --gate spend --reason 'by me'")
    any_team.at(root).type("run 1")


def test_nothing_is_published_on_what_a_revoked_passkey_approved(any_team: Team) -> None:
    browser = signed_in(any_team)
    browser.decide()
    root = any_team.at(any_team.root)
    root.type("run 1")
    browser.decide(gate="publish")
    root.type("passkey revoke 1 --reason 'sue has lost the telephone'")
    publish = f"publish 1 --to {root.folder / 'out'}"
    before = snapshot(root.database)
    assert root.ask(publish, expected=1)["error"] == "GateClosed"
    assert snapshot(root.database) == before
    any_team.at(any_team.home("sue")).type("withdraw-approval 1 --gate publish --reason 'not by me'")
    signed_in(any_team).decide(gate="publish")  # with a new passkey
    root.type(publish)
    assert root.ask(f"verify-release {root.bundle}")["holds"] is True


def test_no_role_given_again_brings_back_what_a_revoked_passkey_approved(team: Team) -> None:
    """While its person has no role nothing of theirs counts, and all of it is taken back nevertheless."""
    signed_in(team).decide()
    team.root.type("user revoke sue steward --reason 'the telephone is lost'")
    told = team.at(team.home("sue")).ask("passkey revoke 1 --reason 'the telephone is lost'")
    assert told["withdrawn"] == [{"number": 1, "gate": "spend"}]
    team.at(team.root).type("user grant sue steward --reason 'a new telephone'")
    assert team.root.state() == "submitted"
    assert team.root.ask("run 1", expected=1)["error"] in ("GateClosed", "WrongState")


def test_a_passkey_that_is_revoked_while_its_decision_waits_decides_nothing(any_team: Team) -> None:
    browser = signed_in(any_team)
    second = Browser(browser.client, registered(any_team))  # so that the session is not what refuses
    assert second.passkey.public_key != browser.passkey.public_key
    browser.prepare()
    any_team.at(any_team.home("anna"))
    assert any_team.home("anna").ask("passkey revoke 1 --reason mine", expected=1)["error"] == "RoleDenied"
    any_team.at(any_team.root).type("passkey revoke 1 --reason 'an admin may'")
    before = snapshot(any_team.root.database)
    answer = browser.client.post("/sign", data=browser.forms | browser.answer(), headers={"origin": ORIGIN})
    assert answer.headers["location"] == "/sign-in"
    second.sign_in()
    second.prepare()
    browser.challenge = second.challenge
    assert "AnswerRefused" in second.post("/sign", 403, **browser.answer())
    assert snapshot(any_team.root.database) == before


def test_only_who_may_decide_reads_and_decides(team: Team) -> None:
    analyst = signed_in(team, "anna")
    assert "Nothing waits for your decision." in analyst.page("/mine")
    for path in ("/decide/spend/1", "/decide/publish/1/texts", "/decide/publish/1"):
        assert "NotYours" in analyst.page(path, 403)
    analyst.page("/mine")
    given = {"verdict": "approve", "reason": "x", "confirm": "clinic", "subject": "a" * 64}
    unchanged(team, lambda: analyst.post("/decide/spend/1", 403, **given), "NotYours")
    for path in ("/decide/spend/2", "/decide/spend/x", "/decide/other/1", "/decide/spend/99999999999999999999"):
        assert analyst.client.get(path).status_code in (400, 403, 404)


def test_a_role_that_was_taken_away_decides_nothing(team: Team) -> None:
    browser = signed_in(team)
    browser.prepare()
    forms = dict(browser.forms)
    team.root.type("user revoke sue steward --reason 'left'")
    unchanged(team, lambda: browser.post("/sign", 403, **forms, **browser.answer()), "RoleDenied")


@pytest.mark.slow
def test_what_the_command_line_asks_for_is_asked_for_here(team: Team) -> None:
    browser = signed_in(team)
    for fields, error in (
        ({"confirm": "clinc"}, "ConfirmationWrong"),
        ({"confirm": ""}, "ConfirmationMissing"),
        ({"reason": "  "}, "DecisionReasonMissing"),
        ({"reason": "x" * 5001}, "DecisionReasonLong"),
        ({"verdict": "maybe"}, "VerdictUnknown"),
        ({"subject": "a" * 64}, "ReviewChanged"),
    ):
        browser.page("/decide/spend/1")
        given = {"verdict": "approve", "reason": "agreed", "confirm": "clinic"} | fields
        before = snapshot(team.root.database)
        assert error in browser.post("/decide/spend/1", None, **given), fields
        assert snapshot(team.root.database) == before


def test_a_deputy_decides_until_the_role_ends(team: Team) -> None:
    team.enrol("tom", "auditor")
    team.at(team.root).type("user grant tom steward --until 2099-01-15 --reason leave")
    browser = signed_in(team, "tom")
    assert "Approved" in browser.decide()
    assert team.root.state() == "approved"


# --- A dashboard that forges -----------------------------------------------------------------------------------------


FORGERIES = [
    "no assertion",
    "own key",
    "another passkey",
    "without verification",
    "other decision",
    "random",
    "other ledger",
]


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_a_dashboard_writes_without_the_persons_passkey_opens_no_gate(any_team: Team, forgery: str) -> None:
    """It has ledger, owner's key, and all that people send; the run refuses before it holds anything."""
    passkey = registered(any_team)
    root = any_team.at(any_team.root)
    digest = fetch(root.database, "SELECT digest FROM request WHERE id = 1")[0][0]
    stated = GateDecision(1, "spend", digest, "approve", "agreed", utc_now(datetime.now(UTC) + timedelta(days=20)))
    with root.database.write() as session:
        sue = people.identify(session, any_team.key("sue").public_key)
        owner = people.identify(session, owner_key(any_team).public_key)
        signature, used = forge(session, any_team, forgery, stated, passkey)
        gates.record_decision(session, owner, stated, signature, approver=sue, passkey=used)
    assert root.state() == "approved"
    before = snapshot(root.database)
    assert root.ask("run 1", expected=1)["error"] == "ForgedApproval"
    assert snapshot(root.database) == before


def forge(
    session: Session, team: Team, forgery: str, stated: GateDecision, passkey: Authenticator
) -> tuple[str, PasskeySignature | None]:
    """The best that a program can do that has no passkey of sue: a signature, and what is kept beside it."""
    statement, owner, own = stated.statement("sue"), owner_key(team), Authenticator(ledger=passkey.ledger)
    match forgery:
        case "no assertion":
            return "0" * 128, PasskeySignature(1, "", "")
        case "own key":
            return owner.sign(statement), None
        case "another passkey":
            signature, use = own.certified(owner, statement)
            root, sue = (people.identify(session, key.public_key) for key in (owner, team.key("sue")))
            row = people.register_passkey(session, root, sue, own.terms, "m", use.certificate)
            return signature, PasskeySignature(row.id, use.authenticator_data, use.client_data)
        case "other ledger":
            own.ledger = "2e" * 32
            sue = people.identify(session, team.key("sue").public_key)
            signature, use = own.certified(team.key("sue"), statement)
            row = people.register_passkey(session, sue, sue, own.terms, "m", use.certificate)
            return signature, PasskeySignature(row.id, use.authenticator_data, use.client_data)
        case "random":
            signature, use = own.certified(owner, statement)
        case "without verification":
            signature, use = passkey.certified(owner, statement, flags=0x01)
        case _:
            signature, use = passkey.certified(owner, replace(stated, reason="another reason").statement("sue"))
    return signature, PasskeySignature(1, use.authenticator_data, use.client_data)


def test_a_decision_without_forgery_would_have_run(any_team: Team) -> None:
    """The same way into the ledger, with sue's own passkey: what the forgeries lack is the signature alone."""
    passkey = registered(any_team)
    root = any_team.at(any_team.root)
    digest = fetch(root.database, "SELECT digest FROM request WHERE id = 1")[0][0]
    stated = GateDecision(1, "spend", digest, "approve", "agreed", utc_now(datetime.now(UTC) + timedelta(days=20)))
    with root.database.write() as session:
        sue = people.identify(session, any_team.key("sue").public_key)
        owner = people.identify(session, owner_key(any_team).public_key)
        signature, use = passkey.certified(any_team.key("sue"), stated.statement("sue"))
        used = PasskeySignature(1, use.authenticator_data, use.client_data)
        gates.record_decision(session, owner, stated, signature, approver=sue, passkey=used)
    root.type("run 1")
