"""Passkeys take approvals back and override bounds, by the bytes of the command line; wrong answers do nothing."""

import hashlib
import html
import json
import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from models_db.services import gates
from models_db.services.gates import find_decidable
from models_db.values.request_state import Gate
from tests.authenticator import ORIGIN
from tests.integration.browsing import Browser, registered, signed_in, unchanged
from tests.integration.team import Team, with_tight_bounds
from tests.support import fetch


def take_back(browser: Browser, gate: str = "spend", reason: str = "a doubt") -> str:
    browser.page(f"/decide/{gate}/1/withdraw")
    browser.post(f"/decide/{gate}/1/withdraw", reason=reason)
    return browser.post("/sign", **browser.answer())


def test_an_approval_is_taken_back_and_given_anew(any_team: Team) -> None:
    browser = signed_in(any_team)
    assert "take it back" not in browser.page("/mine")
    browser.decide()
    assert 'href="/decide/spend/1/withdraw"' in browser.page("/mine")
    told = take_back(browser)
    assert "Taken back" in told
    assert "<strong>submitted</strong>" in told
    assert any_team.root.state() == "submitted"
    rows = fetch(any_team.root.database, "SELECT w.reason, w.passkey_id FROM withdrawal w")
    assert [tuple(row) for row in rows] == [("a doubt", 1)]
    (told,) = any_team.root.ask("audit log --kind request.approval_withdrawn")
    assert "'passkey_id': 1" in str(told["details"])
    assert "Approved" in browser.decide(reason="agreed after all")
    any_team.root.type("run 1")
    browser.decide(gate="publish")
    take_back(browser, "publish")
    assert any_team.root.ask(f"publish 1 --to {any_team.root.folder / 'out'}", expected=1)["error"] == "GateClosed"
    assert any_team.root.ask("doctor", expected=0)
    assert any_team.root.ask("audit verify")


def test_what_is_signed_to_take_back_is_what_the_command_line_signs(team: Team) -> None:
    browser = signed_in(team)
    browser.decide()
    browser.page("/decide/spend/1/withdraw")
    page = browser.post("/decide/spend/1/withdraw", reason="a doubt")
    statement = html.unescape(re.findall(r"<code>(\{.*?\})</code>", page)[0]).encode()
    with team.root.database.read() as session:
        digest = find_decidable(session, 1, Gate.SPEND).subject_digest
    assert statement == gates.withdrawal_statement(1, "spend", digest, "a doubt", "sue")
    assert browser.challenge == hashlib.sha256(statement).digest()


@pytest.mark.parametrize("changes", [{"signed": b"x" * 32}, {"flags": 0x01}, {"origin": "http://localhost:9"}], ids=str)
def test_an_answer_to_something_else_takes_nothing_back(team: Team, changes: dict[str, Any]) -> None:
    browser = signed_in(team)
    browser.decide()
    browser.page("/decide/spend/1/withdraw")
    browser.post("/decide/spend/1/withdraw", reason="a doubt")
    unchanged(team, lambda: browser.post("/sign", 403, **browser.answer(**changes)), "AnswerRefused")


def test_the_signature_of_an_approval_takes_nothing_back_and_none_takes_back_twice(team: Team) -> None:
    browser = signed_in(team)
    browser.prepare()
    approving = browser.answer()
    browser.post("/sign", **approving)
    browser.page("/decide/spend/1/withdraw")
    browser.post("/decide/spend/1/withdraw", reason="a doubt")
    forms = dict(browser.forms)
    unchanged(team, lambda: browser.post("/sign", 403, **approving), "AnswerRefused")
    browser.forms = forms
    browser.page("/decide/spend/1/withdraw")
    browser.post("/decide/spend/1/withdraw", reason="a doubt")
    taking = browser.answer()
    browser.post("/sign", **taking)
    browser.decide(reason="after all")
    browser.page("/decide/spend/1/withdraw")
    browser.post("/decide/spend/1/withdraw", reason="a doubt")  # the same statement, so the same challenge
    unchanged(team, lambda: browser.post("/sign", 403, **taking), "WithdrawalUsed")


def test_nobody_takes_back_what_is_not_theirs_or_was_used(team: Team) -> None:
    browser = signed_in(team)
    assert "NothingToWithdraw" in browser.page("/decide/spend/1/withdraw", 403)
    browser.decide()
    team.at(team.root).type("user grant anna steward --reason 'for now'")
    anna = Browser(TestClient(browser.client.app, base_url=ORIGIN, follow_redirects=False), registered(team, "anna"))
    anna.sign_in()
    assert "take it back" not in anna.page("/mine")
    unchanged(team, lambda: anna.post("/decide/spend/1/withdraw", 403, reason="r"), "NothingToWithdraw")
    browser.page("/decide/spend/1/withdraw")
    unchanged(team, lambda: browser.post("/decide/spend/1/withdraw", 400, reason=" "), "DecisionReasonMissing")
    team.root.type("run 1")
    assert "NothingToWithdraw" in browser.page("/decide/spend/1/withdraw", 403)
    browser.page("/mine")
    unchanged(team, lambda: browser.post("/decide/spend/1/withdraw", 403, reason="r"), "RuleViolated")


def test_a_person_takes_back_what_counts_no_more(team: Team) -> None:
    """An admin has revoked the passkey that approved; its person takes the approval back with a new one."""
    signed_in(team).decide()
    team.root.type("passkey revoke 1 --reason 'lost'")
    browser = signed_in(team)
    assert "counts no more" in browser.page("/mine")
    take_back(browser)
    assert "Approved" in browser.decide(reason="by me")


def test_bounds_are_overridden_in_the_browser_explicitly_or_not_at_all(any_team: Team) -> None:
    root = with_tight_bounds(any_team)
    browser = signed_in(any_team)
    browser.decide(number=2)
    root.type("run 2")
    page = browser.page("/decide/publish/2")
    assert "length.texts is 3, allowed is at most 2" in page
    unchanged(any_team, lambda: browser.prepare(gate="publish", number=2, expected=403), "OutsideBounds")
    signing = browser.prepare(gate="publish", number=2, override="1", reason="a pilot needs them")
    reason = "Overrides the bounds of the policy (length.texts is 3, allowed is at most 2): a pilot needs them"
    assert reason in html.unescape(signing)
    browser.post("/sign", **browser.answer())
    root.type(f"publish 2 --to {root.folder / 'out'}")
    bundle = root.folder / "out" / "clinic-release-2"
    assert root.ask(f"verify-release {bundle}")["holds"] is True
    approvals = json.loads((bundle / "approvals.json").read_text())
    assert [one["reason"] for one in approvals if one["gate"] == "publish"] == [reason]


def test_there_has_to_be_something_to_override(team: Team) -> None:
    browser = signed_in(team)
    assert 'name="override"' not in browser.page("/decide/spend/1")
    unchanged(team, lambda: browser.prepare(override="1", expected=400), "NothingToOverride")
    browser.prepare("reject", override="1", confirm="")
