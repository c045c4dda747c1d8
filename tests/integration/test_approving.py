"""A team of people decides: at the keyboard, through a pipe, and on a machine without network."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import cli.framework.prompts
from flows.approvals.offline_approval import SignedApproval
from flows.workspace.workspace import open_workspace
from models_db.database.base import utc_now
from models_db.services import datasets, policies, proposals
from models_db.services.datasets import LifetimeClaim
from models_db.services.gates import withdrawal_statement
from models_db.values.amounts import DELTA_UNIT
from tasks.accounting.zcdp import lifetime_cap
from tasks.release.signatures.ed25519 import verify
from tests.integration.story import Almoner
from tests.integration.team import Team
from tests.support import PATIENCE, fetch, snapshot

CONCERNS = ("cli/framework", "cli/commands/release", "flows/approvals")

SPEND = "approve 1 --gate spend --reason 'agreed'"
SCREEN = "Privacy cost"
PUBLISH = "approve 1 --gate publish --reason 'names nobody'"


def refused(almoner: Almoner, line: str, error: str, *, piped: str | None = None) -> None:
    """The command is refused under that name, and no row of the ledger has changed."""
    before = fetch(almoner.database, "SELECT count(*) FROM approval"), fetch(almoner.database, "SELECT * FROM audit")
    told = almoner.type(f"{line} --json", expected=None, piped=piped)
    assert told.code in (1, 2), told
    assert told.json["error"] == error, told
    assert (
        fetch(almoner.database, "SELECT count(*) FROM approval"),
        fetch(almoner.database, "SELECT * FROM audit"),
    ) == before


# --- the dataset's name


def test_without_a_terminal_the_name_is_piped(team: Team) -> None:
    sue = team.at(team.home("sue"))
    for piped, error in (
        (None, "ConfirmationMissing"),
        ("\n", "ConfirmationMissing"),
        ("clinc\n", "ConfirmationWrong"),
    ):
        refused(sue, SPEND, error, piped=piped)
    told = sue.type(SPEND, piped="clinic\n")
    assert "Dataset clinic - Request 1, spend gate" in told.err
    assert "Approved by sue at the spend gate; the request is approved." in told.out


def test_json_stands_alone_on_stdout_and_the_screen_beside_it(team: Team) -> None:
    sue = team.at(team.home("sue"))
    told = sue.type(f"{SPEND} --json", piped="clinic\n")
    assert told.json["state"] == "approved"
    assert "Privacy cost" in told.err


def test_the_requester_is_refused_before_anything_is_read(team: Team) -> None:
    team.at(team.root).type("user grant anna steward --reason 'a second role'")
    anna = team.at(team.home("anna"))
    refused(anna, SPEND, "RuleViolated", piped="clinic\n")
    told = anna.type(SPEND, expected=1, piped=None)
    assert "nobody approves what they requested or ran" in told.err
    assert SCREEN not in told.err


def test_who_has_approved_is_told_so_before_reading_it_all_again(any_team: Team) -> None:
    team = any_team
    team.enrol("tom", "steward")
    sue = team.at(team.home("sue"))
    assert SCREEN in sue.type(SPEND, piped="clinic\n").err
    before = snapshot(sue.database)
    told = sue.type(SPEND, expected=1, piped=None)
    assert "that person has approved it already" in told.err
    assert SCREEN not in told.err
    assert snapshot(sue.database) == before
    assert SCREEN in team.at(team.home("tom")).type(SPEND, piped="clinic\n").err  # another one may still


def test_a_screen_that_was_read_and_not_confirmed_leaves_no_trace(any_team: Team) -> None:
    sue = any_team.at(any_team.home("sue"))
    before = snapshot(sue.database)
    assert SCREEN in sue.type(SPEND, expected=2, piped=None).err
    assert snapshot(sue.database) == before


def test_rejecting_needs_no_typing(team: Team) -> None:
    sue = team.at(team.home("sue"))
    assert sue.ask("reject 1 --reason 'names a person'")["state"] == "rejected"


def test_one_person_with_every_role_confirms_too(almoner: Almoner) -> None:
    almoner.submitted()
    refused(almoner, SPEND, "ConfirmationMissing")
    refused(almoner, SPEND, "ConfirmationWrong", piped="wrong-name\n")
    assert almoner.ask(f"{SPEND} --confirm clinic", piped=None)["state"] == "approved"


def test_one_person_at_a_terminal_is_asked_all_the_same(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.submitted()
    monkeypatch.setattr(cli.framework.prompts, "is_interactive", lambda: True)
    refused(almoner, SPEND, "ConfirmationMissing")
    refused(almoner, SPEND, "ConfirmationWrong", piped="no\n")
    told = almoner.type(SPEND, piped="clinic\n")
    assert "Type the name of the dataset to approve at the spend gate: " in told.err


AT_A_TERMINAL = (
    "import fcntl, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "signal.signal(signal.SIGINT, signal.default_int_handler);"  # a run in the background hands down an ignored one
    "from cli.app import main; sys.argv = ['almoner', *sys.argv[1:]]; main()"
)


def at_a_terminal(words: list[str], typed: bytes, question: bytes) -> tuple[int, str]:
    """A command in a process with a terminal of its own; `typed` is typed when `question` has been asked."""
    keyboard, terminal = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, *words], stdin=terminal, stdout=terminal, stderr=terminal,
        start_new_session=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    os.close(terminal)
    seen, answered, until = b"", False, time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if select.select([keyboard], [], [], 1)[0]:
            try:
                seen += os.read(keyboard, 65536)
            except OSError:  # the other end is closed
                break
        if question in seen and not answered:
            os.write(keyboard, typed)
            answered = True
    code = child.wait(timeout=PATIENCE)
    os.close(keyboard)
    return code, seen.decode(errors="replace")


@pytest.mark.slow_except("right")
@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [(b"\x03", 130, "Interrupted"), (b"\x04", 2, "ConfirmationMissing"), (b"no\n", 1, "ConfirmationWrong"),
     (b"clinic\n", 0, "the request is approved")],
    ids=["ctrl-c", "ctrl-d", "wrong", "right"],
)  # fmt: skip
def test_at_a_real_terminal(almoner: Almoner, typed: bytes, code: int, said: str) -> None:
    almoner.submitted()
    before = almoner.everything()
    words = ["approve", "1", "--gate", "spend", "--reason", "agreed"]
    ended, seen = at_a_terminal(words, typed, b"Type the name of the dataset")
    assert (ended, said in seen) == (code, True), seen
    assert "Dataset clinic - Request 1, spend gate" in seen
    assert (almoner.everything() == before) == (code != 0)


# --- elsewhere


def signed_elsewhere(team: Team, gate: str, name: str = "sue", extra: str = "") -> Path:
    """Exported here, signed at somebody's own machine that reaches no ledger. Returns the signed file."""
    folder = team.root.folder
    ask, signed = folder / f"ask-{gate}-{name}.json", folder / f"signed-{gate}-{name}.json"
    exported = team.at(team.root).ask(f"approve 1 --gate {gate} --export {ask}")
    assert exported["question"] == str(ask)
    alone = team.at(team.home(name), ledger=False)
    line = f"approve --from {ask} --reason 'seen on paper' --export {signed} {extra}"
    made = alone.ask(line, piped="clinic\n")
    assert (made["by"], made["subject_sha256"]) == (name, exported["subject_sha256"])
    assert not (alone.home.root / "almoner.db").exists()
    return signed


def test_an_approval_is_signed_on_a_machine_without_ledger(any_team: Team) -> None:
    team = any_team
    signed = signed_elsewhere(team, "spend")
    root = team.at(team.root)
    assert root.state() == "submitted"
    told = root.ask(f"approve 1 --gate spend --import {signed}")
    assert (told["by"], told["state"]) == ("sue", "approved")
    [(reason, signature)] = fetch(root.database, "SELECT reason, signature FROM approval")
    assert reason == "seen on paper"
    assert signature == json.loads(signed.read_text())["signature"]
    assert root.ask("audit verify")["holds"] is True
    root.type("run 1")  # the signature is checked again
    publish = signed_elsewhere(team, "publish")
    root = team.at(team.root)
    root.type(f"approve 1 --gate publish --import {publish}")
    [(attestation,)] = fetch(root.database, "SELECT attestation FROM approval WHERE gate = 'publish'")
    assert json.loads(str(attestation))["keyid"] == team.key("sue").public_key
    root.type(f"publish 1 --to {root.folder / 'out'}")
    assert root.ask(f"verify-release {root.bundle}")["holds"] is True


def test_elsewhere_the_name_is_always_asked_for(team: Team) -> None:
    ask = team.root.folder / "ask.json"
    team.at(team.root).type(f"approve 1 --gate spend --export {ask}")
    assert ask.stat().st_mode & 0o777 == 0o600
    alone = team.at(team.home("sue"), ledger=False)
    line = f"approve --from {ask} --reason fine --export {ask.parent / 'signed.json'}"
    assert alone.ask(line, expected=2, piped=None)["error"] == "ConfirmationMissing"
    assert alone.ask(line, expected=1, piped="other\n")["error"] == "ConfirmationWrong"
    assert not (ask.parent / "signed.json").exists()
    told = alone.type(line, piped="clinic\n")
    assert "your signature does not cover it" in " ".join(told.err.split())
    assert stat_of(ask.parent / "signed.json") == 0o600
    assert alone.ask(line, expected=2, piped="clinic\n")["error"] == "FileUnwritable"


def stat_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_whoever_brings_it_confirms(team: Team) -> None:
    signed = signed_elsewhere(team, "spend")
    root = team.at(team.root)
    refused(root, f"approve 1 --gate spend --import {signed}", "ConfirmationMissing")
    root.type(f"approve 1 --gate spend --import {signed} --confirm clinic", piped=None)


def test_an_approval_is_brought_once(team: Team) -> None:
    signed = signed_elsewhere(team, "spend")
    root, line = team.at(team.root), f"approve 1 --gate spend --import {signed}"
    root.type(line)
    refused(root, line, "ApprovalUnusable", piped="clinic\n")


def test_a_withdrawn_approval_does_not_come_back_out_of_its_file(any_team: Team) -> None:
    team = any_team
    signed = signed_elsewhere(team, "spend")
    line = f"approve 1 --gate spend --import {signed}"
    team.at(team.root).type(line)
    sue = team.at(team.home("sue"))
    assert sue.ask("withdraw-approval 1 --gate spend --reason 'the board says no'")["state"] == "submitted"
    refused(team.at(team.root), line, "ApprovalUnusable", piped="clinic\n")


def test_a_file_for_one_request_does_not_open_another(team: Team) -> None:
    signed = signed_elsewhere(team, "spend")
    root = team.at(team.root)
    root.type(f"release request {root.request_file()}")
    refused(root, f"approve 2 --gate spend --import {signed} --confirm clinic", "ApprovalUnusable")
    content = json.loads(signed.read_text()) | {"number": 2}
    changed = root.write("changed.json", json.dumps(content, separators=(",", ":"), sort_keys=True) + "\n")
    refused(root, f"approve 2 --gate spend --import {changed} --confirm clinic", "ApprovalUnusable")


def test_an_expired_file_is_refused(team: Team) -> None:
    signed = signed_elsewhere(team, "spend")
    root = team.at(team.root)
    before = json.loads(signed.read_text())
    key = team.key("sue")
    old = SignedApproval.model_validate(before | {"expires_at": "2020-01-01T00:00:00.000000Z"})
    old = old.model_copy(update={"signature": key.sign(old.stated.statement("sue"))})
    path = root.write("old.json", json.dumps(old.model_dump(), separators=(",", ":"), sort_keys=True) + "\n")
    refused(root, f"approve 1 --gate spend --import {path} --confirm clinic", "ApprovalUnusable")


def test_strangers_and_requesters_gain_nothing_by_files(any_team: Team) -> None:
    team = any_team
    folder = team.root.folder
    team.at(team.root).type(f"approve 1 --gate spend --export {folder / 'ask.json'}")
    line = f"approve --from {folder / 'ask.json'} --reason fine --export {folder / 'x.json'}"
    stranger = team.at(team.home("eve"), ledger=False)
    assert stranger.ask(line, expected=1, piped="clinic\n")["error"] == "SignerUnknown"
    own = team.at(team.root, ledger=False)  # root asked for it, and is a steward by name
    own.ask(line, piped="clinic\n")
    refused(team.at(team.root), f"approve 1 --gate spend --import {folder / 'x.json'} --confirm clinic", "RuleViolated")


def proposed_cap(team: Team) -> int:
    """Root asks that clinic may lose more. Returns the proposal's number."""
    workspace = open_workspace(team.at(team.root).home)
    cap = lifetime_cap("12", "1e-6")
    claim = LifetimeClaim("12", "0.000001", int(cap.delta_conv * DELTA_UNIT), cap.amount)
    with workspace.database.write() as session:
        dataset, policy = datasets.find_dataset(session, "clinic"), policies.policy_in_force(session)
        assert policy is not None
        reason, valid = "one more study", timedelta(days=7)
        return proposals.propose_cap(session, workspace.actor, dataset, policy, claim, reason, valid).id


def test_a_proposal_is_decided_like_a_request(any_team: Team) -> None:
    number = proposed_cap(any_team)
    line = f"approve {number} --gate proposal --reason 'the study goes on'"
    refused(any_team.at(any_team.root), line, "RuleViolated", piped="clinic\n")  # root proposed it
    sue = any_team.at(any_team.home("sue"))
    refused(sue, line, "ConfirmationMissing")
    told = sue.type(line, piped="clinic\n")
    assert "It RAISES the most the dataset may ever lose" in told.err
    assert "the proposal is carried." in told.out
    assert sue.ask("budget show clinic")["epsilon_cap"] == "12"
    refused(sue, line, "ProposalDecided", piped="clinic\n")


def test_a_proposal_is_signed_elsewhere_too(team: Team) -> None:
    number = proposed_cap(team)
    signed = signed_elsewhere(team, "proposal")
    told = team.at(team.root).ask(f"approve {number} --gate proposal --import {signed}")
    assert (told["proposal"], told["state"], told["by"]) == (number, "carried", "sue")


def test_a_proposal_can_be_rejected(team: Team) -> None:
    number = proposed_cap(team)
    sue = team.at(team.home("sue"))
    assert sue.ask(f"reject {number} --gate proposal --reason 'no'")["state"] == "rejected"


def test_a_proposal_is_not_confused_with_a_request(team: Team) -> None:
    refused(team.at(team.home("sue")), "approve 1 --gate proposal --reason fine", "ProposalUnknown", piped="clinic\n")


WRONG_FORMS = (
    ("approve 1 --gate spend --export {f}/c.json --confirm clinic", "UnexpectedOption"),
    ("approve 1 --gate spend --confirm clinic", "OptionMissing"),
    ("approve 1 --gate spend", "OptionMissing"),
    ("approve --gate spend --reason x", "OptionMissing"),
    ("approve 1 --reason x", "OptionMissing"),
    ("approve 1 --gate spend --reason x --export {f}/a.json", "UnexpectedOption"),
    ("approve 1 --gate spend --import {f}/a.json --reason x --confirm clinic", "UnexpectedOption"),
    ("approve 1 --gate spend --import {f}/a.json --export {f}/b.json", "UnexpectedOption"),
    ("approve 1 --from {f}/a.json --reason x --export {f}/b.json", "UnexpectedOption"),
    ("approve --gate spend --from {f}/a.json --reason x --export {f}/b.json", "UnexpectedOption"),
    ("approve --from {f}/a.json --reason x", "FileUnreadable"),
    ("approve --from {f}/a.json", "OptionMissing"),
    ("approve --from {f}/a.json --export {f}/b.json", "OptionMissing"),
    ("approve --from {f}/a.json --reason x --export {f}/b.json", "FileUnreadable"),
    ("approve --import {f}/a.json --confirm clinic", "OptionMissing"),
    ("approve 1 --gate spend --import {f}/a.json --confirm clinic", "FileUnreadable"),
    ("approve 1 --gate spend --export {f}/none/a.json", "FileUnwritable"),
    ("withdraw-approval 1 --gate spend --reason x", "NothingToWithdraw"),
    ("withdraw-approval 1 --gate publish --reason x", "NothingToWithdraw"),
    ("withdraw-approval 1 --gate spend --reason ' '", "DecisionReasonMissing"),
    ("withdraw-approval 9 --gate spend --reason x", "RequestUnknown"),
)


def test_wrong_forms_are_refused_by_name(team: Team) -> None:
    sue = team.at(team.home("sue"))
    for line, error in WRONG_FORMS:
        refused(sue, line.format(f=team.root.folder), error, piped="clinic\n")


# --- withdrawal, and deputies


def test_an_approval_can_be_taken_back_and_given_again(any_team: Team) -> None:
    team = any_team
    sue = team.at(team.home("sue"))
    sue.type(SPEND, piped="clinic\n")
    told = sue.ask("withdraw-approval 1 --gate spend --reason 'the board says no'")
    assert (told["state"], told["by"]) == ("submitted", "sue")
    [(signature, subject)] = fetch(
        sue.database,
        "SELECT w.signature, a.subject_digest FROM withdrawal w JOIN approval a ON a.id = w.approval_id",
    )
    said = withdrawal_statement(1, "spend", str(subject), "the board says no", "sue")
    assert verify(team.key("sue").public_key, str(signature), said)
    assert "(no longer counts)" in sue.type("approve 1 --gate spend --reason 'again'", piped="clinic\n").err
    assert sue.state() == "approved"


def test_a_used_approval_stays(any_team: Team) -> None:
    team = any_team
    team.at(team.home("sue")).type(SPEND, piped="clinic\n")
    team.at(team.root).type("run 1")
    refused(team.at(team.home("sue")), "withdraw-approval 1 --gate spend --reason 'too late'", "RuleViolated")


def test_nobody_takes_back_the_approval_of_another(team: Team) -> None:
    team.enrol("tom", "steward")
    team.at(team.home("sue")).type(SPEND, piped="clinic\n")
    refused(team.at(team.home("tom")), "withdraw-approval 1 --gate spend --reason mine", "NothingToWithdraw")


def test_a_deputy_signs_elsewhere(any_team: Team) -> None:
    team = any_team
    tom = team.enrol("tom")
    refused(team.at(tom), SPEND, "RoleDenied", piped="clinic\n")
    team.at(team.root).type("user grant tom steward --until 2099-01-15 --reason leave")
    signed = signed_elsewhere(team, "spend", "tom")
    told = team.at(team.root).ask(f"approve 1 --gate spend --import {signed}")
    assert told["state"] == "approved"


def day(days: int) -> str:
    return utc_now(datetime.now(UTC) + timedelta(days=days))
