"""A stranger's check of what stewards decided around a release: attestation, authorisation, retraction, budget.

Everything here was signed again by the publisher's own key, so only the check in question can find it.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from securesystemslib.dsse import Envelope

from models_db.policies.policy import Policy
from models_db.values.canonical_json import digest, encode_canonical
from models_db.values.requests import model_to_json
from tasks.common.files import encode_json
from tasks.publishing.verify import verify_release
from tasks.release.bundle_format import ATTESTATION, RECORD, REVOCATIONS, TEXTS
from tasks.release.record import CapChange
from tasks.release.signatures.attestation import attest, envelope, envelope_document, in_toto_statement
from tasks.release.signatures.ed25519 import SigningKey
from tasks.release.signatures.publisher_statements import Revocations
from tests.refusals import refusal
from tests.unit.tasks.publishing.builders import (
    POLICY,
    Release,
    a_record,
    a_release,
    a_request,
    standing,
)
from tests.unit.tasks.publishing.forging import edit, failed, failures, reseal, seal_as_it_is

pytestmark = [pytest.mark.dear, pytest.mark.contract]


def signed_by(payload: bytes, *keys: SigningKey) -> bytes:
    return envelope_document(envelope(payload, [attest(payload, key) for key in keys]))


@pytest.fixture
def decided(tmp_path) -> Release:
    """A release with a bundle of its own, and all its keys."""
    return a_release(tmp_path)


@pytest.fixture
def envelopes(decided, tmp_path) -> dict[str, bytes]:
    """Envelopes that do not hold, made with the very keys of those who approved."""
    sue, tom = (steward.key for steward in decided.stewards)
    publisher, stranger = decided.key, SigningKey.create(tmp_path / "stranger.pem")
    payload = in_toto_statement(decided.record, decided.files)
    others = in_toto_statement(a_record(libraries={}), decided.files)
    subjects = in_toto_statement(decided.record, decided.files | {TEXTS: {"sha256": "0" * 64, "bytes": 1}})
    forged = json.loads(signed_by(payload, sue, tom, publisher))
    forged["signatures"][0]["sig"] = forged["signatures"][1]["sig"]
    renamed = json.loads(attest(payload, sue)) | {"keyid": tom.public_key}
    twice = [attest(payload, sue), encode_canonical(renamed).decode(), attest(payload, publisher)]
    return {
        "a forged signature": encode_json(forged),
        "a missing steward": signed_by(payload, sue, publisher),
        "no steward": signed_by(payload, publisher),
        "no publisher": signed_by(payload, sue, tom),
        "a stranger for a steward": signed_by(payload, sue, stranger, publisher),
        "a stranger too many": signed_by(payload, sue, tom, stranger, publisher),
        "one steward under two key ids": envelope_document(envelope(payload, twice)),
        "the statement of another release": signed_by(others, sue, tom, publisher),
        "subjects that are not the files": signed_by(subjects, sue, tom, publisher),
        "not an envelope": encode_json({}),
    }


ENVELOPES = (
    "a forged signature",
    "a missing steward",
    "no steward",
    "no publisher",
    "a stranger for a steward",
    "a stranger too many",
    "one steward under two key ids",
    "the statement of another release",
    "subjects that are not the files",
    "not an envelope",
)


@pytest.mark.parametrize("what", ENVELOPES)
def test_an_envelope_that_does_not_hold_is_found(decided, envelopes, tmp_path, what):
    folder = decided.publish(tmp_path / "out").folder
    (folder / ATTESTATION).write_bytes(envelopes[what])
    seal_as_it_is(folder, decided.key)
    assert failed(verify_release(folder, decided.key.public_key)) == {"attestation"}
    assert set(envelopes) == set(ENVELOPES)


@pytest.mark.parametrize("what", ["a missing steward", "no publisher", "a forged signature"])
def test_a_verifier_that_does_not_verify_envelopes_would_be_noticed(decided, envelopes, tmp_path, monkeypatch, what):
    """The broken twin: with the library's own check gone, these forgeries pass; so it is what finds them above."""
    monkeypatch.setattr(Envelope, "verify", lambda *_: {})
    folder = decided.publish(tmp_path / "out").folder
    (folder / ATTESTATION).write_bytes(envelopes[what])
    seal_as_it_is(folder, decided.key)
    assert verify_release(folder, decided.key.public_key).holds


def test_a_policy_for_the_dataset_sets_the_threshold(make_release, tmp_path):
    other = {"datasets": {"clinic": {"approvals": {"publish": 3}}}, "version": 1}
    policy = Policy.model_validate(POLICY.model_dump() | other)
    release = make_release(a_record(a_request(policy=digest(model_to_json(policy))), policy=policy))
    with refusal("NotApproved", match="2 of 3"):
        release.publish(tmp_path / "out")


def test_a_release_under_a_standing_authorisation_verifies(make_release, tmp_path):
    release = make_release(a_record(standing=standing()))
    folder = release.publish(tmp_path / "out").folder
    assert verify_release(folder, release.key.public_key).holds
    edit(folder, RECORD, lambda stored: stored.update(standing=None))
    reseal(folder, release.key)
    assert {"approvals", "attestation"} <= failed(verify_release(folder, release.key.public_key))


# --- retraction ------------------------------------------------------------------------------------------------------


def later_bundle(tmp_path: Path, *revoked: str, exposed: Sequence[str] = ()) -> Path:
    (tmp_path / "later").mkdir()
    release = a_release(tmp_path / "later", a_record(libraries={"opendp": "0.17.0"}))
    return release.publish(tmp_path / "later" / "out", revoked=revoked, exposed=exposed).folder


def artifact_of(folder: Path) -> str:
    found = verify_release(folder).artifact
    assert found is not None
    return found


def test_a_release_on_a_later_list_is_retracted(folder, key, tmp_path):
    later = later_bundle(tmp_path, artifact_of(folder), "00" * 32)
    report = verify_release(folder, key.public_key, later)
    assert failed(report) == {"retraction"}
    assert not report.to_json()["authentic"]
    assert "This release was retracted" in report.conclusion
    assert verify_release(folder, key.public_key).holds  # by itself it cannot know


def test_a_release_on_no_list_is_not(folder, key, tmp_path):
    report = verify_release(folder, key.public_key, later_bundle(tmp_path, "00" * 32))
    assert report.holds
    assert "ANOTHER key" in report.checks[-1].detail
    assert "the same key" in verify_release(folder, key.public_key, folder).checks[-1].detail


def test_a_list_that_was_tampered_with_says_nothing(folder, key, tmp_path):
    later = later_bundle(tmp_path, artifact_of(folder))
    (later / REVOCATIONS).write_bytes(Revocations.of(()).to_bytes())
    report = verify_release(folder, key.public_key, later)
    assert failed(report) == {"retraction"}
    assert "does not verify" in report.checks[-1].detail


def test_a_bundle_on_its_own_list_is_refused(folder, key):
    (folder / REVOCATIONS).write_bytes(Revocations.of([artifact_of(folder)]).to_bytes())
    seal_as_it_is(folder, key)
    assert failed(verify_release(folder, key.public_key)) == {"revocations"}


def test_an_exposed_assignment_leaves_the_unconditional_claim_alone(folder, key, tmp_path):
    before = verify_release(folder, key.public_key).to_json()
    assert before["secret_assignment"]["epsilon"] == "3.34293506037"
    assert before["assignment_exposed"] is False
    report = verify_release(folder, key.public_key, later_bundle(tmp_path, exposed=[artifact_of(folder)]))
    after = report.to_json()
    assert after["authentic"] is True
    assert (after["epsilon"], after["secret_assignment"], after["assignment_exposed"]) == ("4", None, True)
    assert "the epsilon while it is secret, which the record states, has ended" in report.conclusion
    assert "its assignment got out" in report.checks[-1].detail


def test_another_exposed_assignment_changes_nothing(folder, key, tmp_path):
    report = verify_release(folder, key.public_key, later_bundle(tmp_path, exposed=["00" * 32]))
    assert report.to_json()["secret_assignment"] is not None
    assert "got out" not in report.conclusion + report.checks[-1].detail


def test_a_bundle_that_was_exposed_before_its_delivery_says_so_itself(make_release, tmp_path):
    release = make_release()
    bundle = release.publish(tmp_path / "out", exposed=[digest(release.files)]).folder
    report = verify_release(bundle, release.key.public_key)
    assert report.holds
    assert (report.epsilon, report.secret_assignment, report.exposed) == ("4", None, True)


def test_a_figure_that_does_not_follow_is_not_reported(folder, key):
    edit(folder, RECORD, lambda stored: stored["claim"]["secret_assignment"].update(epsilon="0.1"))
    reseal(folder, key)
    assert verify_release(folder, key.public_key).to_json()["secret_assignment"] is None


def test_a_later_bundle_must_be_there(folder, tmp_path):
    with refusal("NoBundle"):
        verify_release(folder, None, tmp_path / "none")


# --- the dataset's budget --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "leads"),
    [
        ([("4", "0.000001", "8", "0.000001")], True),
        ([("2", "0.000001", "4", "0.000001"), ("4", "0.000001", "8", "0.000001")], True),
        ([("4", "0.000001", "6", "0.000001")], False),
        ([("2", "0.000001", "4", "0.000001"), ("5", "0.000001", "8", "0.000001")], False),
        ([("4", "0.000001", "8", "0.000001"), ("8", "0.000001", "9", "0.000001")], False),
    ],
)
def test_changes_of_the_budget_must_lead_to_the_lifetime_claim(make_release, tmp_path, changes, leads):
    names = ("old_epsilon", "old_delta", "new_epsilon", "new_delta")
    disclosed = [CapChange(**dict(zip(names, change, strict=True))) for change in changes]
    release = make_release(a_record(cap_changes=disclosed))
    if leads:
        assert verify_release(release.publish(tmp_path / "out").folder).holds
    else:
        assert failures(release, tmp_path / "out") == {"claim"}
