"""Questions and signed approvals as files: closed, complete, and believed only where they can be computed again."""

import json
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from flows.approvals import offline_approval
from flows.approvals.build_review import build_publish_review, build_spend_review
from flows.approvals.decide import check_signed_approval, sign_offline
from flows.approvals.offline_approval import export_review, import_review, read_approval, write_approval
from models_db.database.base import utc_now
from models_db.errors import AlmonerError
from models_db.values.canonical_json import digest
from tasks.common.files import encode_json
from tasks.release.signatures.ed25519 import SigningKey, fingerprint
from tests.refusals import refusal
from tests.unit.flows.asking import a_draft, a_question, steward, text_of
from tests.unit.tasks.publishing.builders import a_request


@pytest.fixture
def key(tmp_path):
    return SigningKey.create(tmp_path / "sue.key")


@pytest.fixture
def question(key):
    return a_question(steward(key))


@pytest.fixture
def ask(tmp_path, question):
    export_review(tmp_path / "ask.json", "spend", question, None)
    return tmp_path / "ask.json"


@pytest.fixture
def draft(tmp_path):
    return a_draft(tmp_path)


@pytest.fixture
def publish_ask(tmp_path, question, draft):
    produced = question.model_copy(update={"state": "produced"})
    export_review(tmp_path / "publish.json", "publish", produced, draft[0])
    return tmp_path / "publish.json"


def rewritten(path, change):
    """The file with its content changed, still in canonical JSON."""
    content = json.loads(path.read_bytes())
    changed = change(content)
    path.write_bytes(encode_json(content if changed is None else changed))
    return path


def read(path, key, tmp_path):
    return import_review(path, key.public_key, tmp_path)


def test_a_question_is_the_same_wherever_it_is_read(tmp_path, key, question, ask):
    assert stat.S_IMODE(ask.stat().st_mode) == 0o600
    assert read(ask, key, tmp_path) == build_spend_review(question, key.public_key)


def test_a_question_about_files_carries_them_whole(tmp_path, key, question, draft, publish_ask):
    folder, files = draft
    assert stat.S_IMODE(publish_ask.stat().st_mode) == 0o600
    before = set(tmp_path.iterdir())
    asked = read(publish_ask, key, tmp_path)
    assert asked == build_publish_review(
        question.model_copy(update={"state": "produced"}), folder, files, key.public_key
    )
    assert asked.subject_digest == digest(files)
    assert set(tmp_path.iterdir()) == before  # nothing unpublished stays behind


def test_no_digest_is_believed(tmp_path, key, ask):
    """A file that shows one request and names another's digest cannot be written: there is no digest in it."""
    assert digest(a_request()) not in ask.read_text()
    rewritten(ask, lambda c: c["question"]["request"].update(prompt={"description": "Other."}))
    asked = read(ask, key, tmp_path)
    assert "Other." in text_of(asked)
    assert asked.subject_digest == digest(a_request(prompt={"description": "Other."}, plan=a_request()["plan"]))


CONTRADICTIONS = {
    "another policy": lambda c: c["question"]["policy"].update(several_roles=True),
    "no plan": lambda c: c["question"]["request"].pop("plan"),
    "another format": lambda c: c["question"]["request"].update(format="almoner-request/9"),
    "a field too many in the request": lambda c: c["question"]["request"].update(colour="red"),
    "an epsilon that is none": lambda c: c["question"]["request"].update(epsilon="much"),
    "an epsilon below its price": lambda c: c["question"]["request"].update(epsilon="1"),
    "a cheaper event": lambda c: c["question"]["request"]["plan"]["invocations"][0]["event"].update(rho="1"),
    "a broken event": lambda c: c["question"]["request"]["plan"]["invocations"][0].pop("event"),
    "no events": lambda c: c["question"]["request"]["plan"].update(invocations=5),
    "a negative budget": lambda c: c["question"]["budget"].update(rho_spent="-1"),
    "a budget in words": lambda c: c["question"]["budget"].update(rho_spent="all"),
    "no number": lambda c: c["question"].update(number=0),
    "a number in words": lambda c: c["question"].update(number="1"),
    "an unknown gate": lambda c: c.update(gate="both"),
    "files at the spend gate": lambda c: c.update(files={}),
    "publish without files": lambda c: c.update(gate="publish"),
    "packed files at the spend gate": lambda c: c.update(packed={}),
    "a version of tomorrow": lambda c: c.update(format="almoner-ask/2"),
    "a field too many": lambda c: c.update(subject_sha256="0" * 64),
    "a field too few": lambda c: c.pop("question"),
    "a list": lambda c: [c],
    "nothing": lambda c: {},
}


@pytest.mark.parametrize("change", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_question_that_contradicts_itself_is_refused(tmp_path, key, ask, change):
    with pytest.raises(AlmonerError):
        read(rewritten(ask, change), key, tmp_path)


FILE_CHANGES = {
    "a text": lambda c: c["files"].update({"texts.jsonl": c["files"]["texts.jsonl"].replace("Doctor", "Actor")}),
    "a card": lambda c: c["files"].update({"README.md": "all is well\n"}),
    "a packed file": lambda c: c["packed"].update({"texts.parquet": "AAAA"}),
}


@pytest.mark.parametrize("change", FILE_CHANGES.values(), ids=FILE_CHANGES)
def test_changed_files_are_another_subject(tmp_path, key, publish_ask, draft, change):
    """Whoever signs them signs their digest, which is not what waits at the gate."""
    assert read(rewritten(publish_ask, change), key, tmp_path).subject_digest != digest(draft[1])


FILE_FAULTS = {
    "a missing file": lambda c: c["files"].pop("README.md"),
    "one more file": lambda c: c["files"].update({"more.txt": ""}),
    "a path": lambda c: c["files"].update({"../escaped": c["files"].pop("README.md")}),
    "no record": lambda c: c["files"].update({"release.json": "{}\n"}),
    "no texts": lambda c: c["files"].update({"texts.jsonl": "not json\n"}),
    "texts without text": lambda c: c["files"].update({"texts.jsonl": '{"id":1}\n'}),
    "no metrics": lambda c: c["files"].update({"evaluation.json": "[]\n"}),
    "bytes for text": lambda c: c["files"].update({"README.md": 5}),
    "a missing packed file": lambda c: c["packed"].pop("texts.parquet"),
    "what is packed otherwise": lambda c: c["packed"].update({"texts.parquet": "not base64!"}),
    "one more packed file": lambda c: c["packed"].update({"more.bin": "AAAA"}),
    "no packed files": lambda c: c.update(packed=None),
}


@pytest.mark.parametrize("change", FILE_FAULTS.values(), ids=FILE_FAULTS)
def test_files_that_are_no_draft_are_refused(tmp_path, key, publish_ask, change):
    with refusal("InvalidApprovalFile"):
        read(rewritten(publish_ask, change), key, tmp_path)
    assert not (tmp_path.parent / "escaped").exists()


def test_a_question_shown_with_another_requests_files_is_refused(tmp_path, key, publish_ask):
    with refusal("DraftOfAnotherRequest"):
        read(rewritten(publish_ask, lambda c: c["question"]["request"].update(nonce="00" * 16)), key, tmp_path)


SPELLINGS = {
    "spaces": lambda data: data.replace(b":", b": ", 1),
    "no newline": lambda data: data.rstrip(),
    "a repeated key": lambda data: data.replace(b'{"files"', b'{"files":null,"files"', 1),
    "a float": lambda data: data.replace(b'"number":1', b'"number":1.0', 1),
    "not json": lambda data: b"hello",
    "nothing": lambda data: b"",
    "binary": lambda data: b"\xff\xfe",
    "deep": lambda data: b"[" * 100_000,
}


@pytest.mark.parametrize("change", SPELLINGS.values(), ids=SPELLINGS)
def test_another_spelling_is_refused(tmp_path, key, ask, change):
    ask.write_bytes(change(ask.read_bytes()))
    with refusal("InvalidApprovalFile"):
        read(ask, key, tmp_path)


def test_missing_huge_and_odd_files_are_refused(tmp_path, key, ask, monkeypatch):
    with refusal("FileUnreadable"):
        read(tmp_path / "none", key, tmp_path)
    with refusal("FileUnreadable"):
        read(tmp_path, key, tmp_path)
    monkeypatch.setattr(offline_approval, "MOST_REVIEW_BYTES", 100)
    with refusal("InvalidApprovalFile", match="larger than 100 bytes"):
        read(ask, key, tmp_path)


def test_what_could_not_be_read_back_is_not_written(tmp_path, question, monkeypatch):
    monkeypatch.setattr(offline_approval, "MOST_REVIEW_BYTES", 100)
    with refusal("ReviewTooLarge"):
        export_review(tmp_path / "ask.json", "spend", question, None)
    assert not (tmp_path / "ask.json").exists()


def test_no_file_is_overwritten(tmp_path, question, ask, key):
    before = ask.read_bytes()
    with refusal("FileUnwritable"):
        export_review(ask, "spend", question, None)
    with refusal("FileUnwritable"):
        write_approval(ask, sign_offline(key, build_spend_review(question, None), "fine"))
    assert ask.read_bytes() == before


# --- signed approvals


@pytest.fixture
def asked(question):
    return build_spend_review(question, None)


def test_a_signed_approval_is_believed_where_the_same_waits(tmp_path, key, asked, ask):
    signed = sign_offline(key, read(ask, key, tmp_path), "as agreed")
    write_approval(tmp_path / "signed.json", signed)
    found = read_approval(tmp_path / "signed.json")
    assert found == signed
    assert (found.approver, found.reason) == ("sue", "as agreed")
    assert found.attestation is None
    check_signed_approval(asked, found)


def test_at_the_publish_gate_it_carries_the_attestation(tmp_path, key, question, draft, publish_ask):
    asked = build_publish_review(question.model_copy(update={"state": "produced"}), *draft, None)
    signed = sign_offline(key, read(publish_ask, key, tmp_path), "reads well")
    assert signed.attestation is not None
    check_signed_approval(asked, signed)
    other = SigningKey.create(tmp_path / "other.key")
    foreign = sign_offline(other, _for(asked, other), "reads well").attestation
    for attestation in (None, "{}", foreign, signed.attestation.replace('"sig":"', '"sig":"AAAA')):
        with refusal("ApprovalUnusable", match="attestation"):
            check_signed_approval(asked, signed.model_copy(update={"attestation": attestation}))


def _for(asked, key):

    return replace(asked, stewards=(steward(key),))


def test_an_attestation_of_other_files_is_refused(tmp_path, key, question, draft, publish_ask):
    asked = build_publish_review(question.model_copy(update={"state": "produced"}), *draft, None)
    other = rewritten(publish_ask, FILE_CHANGES["a text"])
    theirs, ours = (sign_offline(key, one, "fine") for one in (read(other, key, tmp_path), asked))
    with refusal("ApprovalUnusable"):
        check_signed_approval(asked, theirs)
    with refusal("ApprovalUnusable", match="attestation"):
        check_signed_approval(asked, ours.model_copy(update={"attestation": theirs.attestation}))


def test_a_spend_approval_has_no_room_for_an_attestation(key, asked):
    signed = sign_offline(key, asked, "fine")
    with refusal("ApprovalUnusable", match="attestation"):
        check_signed_approval(asked, signed.model_copy(update={"attestation": "{}"}))


TAMPERED = {
    "number": 2,
    "gate": "publish",
    "subject_sha256": "0" * 64,
    "reason": "as agreed?",
    "expires_at": utc_now(datetime.now(UTC) + timedelta(days=20)),
    "approver": "tom",
    "public_key": "ab" * 32,
    "signature": "cd" * 64,
}


@pytest.mark.parametrize("field", TAMPERED)
def test_no_field_can_be_changed(key, asked, field):
    signed = sign_offline(key, asked, "as agreed").model_copy(update={field: TAMPERED[field]})
    with refusal("ApprovalUnusable", "SignerUnknown"):
        check_signed_approval(asked, signed)


@pytest.mark.parametrize(
    "change",
    [
        {"decision": "reject"},
        {"format": "almoner-approval/2"},
        {"colour": "red"},
        {"reason": ""},
        {"expires_at": "tomorrow"},
        {"signature": "CD" * 64},
        {"number": "1"},
        {"number": 0},
    ],
    ids=str,
)
def test_an_approval_out_of_form_is_refused(tmp_path, key, asked, change):
    path = tmp_path / "signed.json"
    write_approval(path, sign_offline(key, asked, "fine"))
    with refusal("InvalidApprovalFile"):
        read_approval(rewritten(path, lambda c: c.update(change)))


def test_an_approval_of_another_request_is_refused(key, question, asked):
    second = build_spend_review(a_question(steward(key), number=2, request=a_request(nonce="88" * 16)), None)
    with refusal("ApprovalUnusable", match="for number 2"):
        check_signed_approval(asked, sign_offline(key, second, "fine"))
    changed = build_spend_review(a_question(steward(key), request=a_request(nonce="88" * 16)), None)
    with refusal("ApprovalUnusable", match="another content"):
        check_signed_approval(asked, sign_offline(key, changed, "fine"))


def test_an_expired_approval_and_one_beyond_the_policy_are_refused(key, asked, monkeypatch):
    for days in (-1, 32, 365):
        expires = utc_now(datetime.now(UTC) + timedelta(days=days))
        with monkeypatch.context() as patch:
            patch.setattr("flows.approvals.decide._approval_expiry", lambda _, at=expires: at)
            signed = sign_offline(key, asked, "fine")
        with refusal("ApprovalUnusable", match="expired, or is for longer than the 30 days"):
            check_signed_approval(asked, signed)


def test_a_stranger_cannot_sign_and_a_stranger_s_signature_does_not_count(tmp_path, key, question, asked):
    stranger = SigningKey.create(tmp_path / "eve.key")
    with refusal("SignerUnknown") as refused:
        sign_offline(stranger, asked, "fine")
    assert fingerprint(stranger.public_key) in refused.value.message
    with refusal("SignerUnknown"):
        check_signed_approval(asked, sign_offline(stranger, _for(asked, stranger), "fine"))
