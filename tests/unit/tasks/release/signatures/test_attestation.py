"""The DSSE envelope: who must have signed which statement, and every way to pretend."""

import json
from base64 import standard_b64decode, standard_b64encode

import pytest

from models_db.values.canonical_json import digest, encode_canonical
from tasks.common.files import FileUnfit, encode_json
from tasks.release.bundle_format import DRAFT_FILES, RECORD
from tasks.release.signatures.attestation import (
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    attest,
    attestation_payload,
    envelope,
    envelope_document,
    in_toto_statement,
    read_envelope,
    require_attested,
)
from tasks.release.signatures.ed25519 import verify
from tests.refusals import refusal
from tests.unit.tasks.publishing.builders import a_record


@pytest.fixture
def payload(release):
    return attestation_payload(release.draft, release.files)


@pytest.fixture
def keys(new_key):
    return {name: new_key(f"{name} signs") for name in ("sue", "tom", "publisher", "mallory")}


@pytest.fixture
def signed(payload, keys):
    def by(*names, of=payload):
        return envelope(of, [attest(of, keys[name]) for name in names])

    return by


@pytest.fixture
def check(payload, keys):
    def holds(found, *, stewards=("sue", "tom"), threshold=2):
        of = [keys[name].public_key for name in stewards]
        require_attested(found, payload, stewards=of, threshold=threshold, publisher=keys["publisher"].public_key)

    return holds


# --- the statement ---------------------------------------------------------------------------------------------------


def test_it_states_files_mechanisms_claim_request_and_policy(release, payload):
    stated = json.loads(payload, parse_float=lambda text: pytest.fail(f"a float: {text}"))
    assert (stated["_type"], stated["predicateType"]) == (STATEMENT_TYPE, PREDICATE_TYPE)
    assert {one["name"]: one["digest"]["sha256"] for one in stated["subject"]} == {
        name: facts["sha256"] for name, facts in release.files.items()
    }
    assert [one["name"] for one in stated["subject"]] == sorted(DRAFT_FILES)
    said, record = stated["predicate"], release.record
    assert said["events"] == [event.to_json() for event in record.events]
    assert said["claim"]["epsilon"] == "4"
    assert (said["dataset"]["unit"], said["dataset"]["relation"]) == ("id", "add_or_remove_one")
    assert said["lifetime"] == {"epsilon": "8", "delta": "0.000001", "shared": False}
    assert (said["request_sha256"], said["policy_sha256"]) == (record.request_sha256, record.request["policy"])
    assert said["artifact_sha256"] == digest(release.files)
    assert said["libraries"] == {"opendp": "0.16.0"}
    assert encode_canonical(stated) == payload


def test_it_is_the_same_however_often_it_is_made(release, payload):
    reordered = dict(sorted(release.files.items(), reverse=True))
    assert attestation_payload(release.draft, reordered) == payload == in_toto_statement(release.record, release.files)


def test_it_needs_the_record_that_was_produced(release):
    (release.draft / RECORD).write_bytes(a_record(libraries={}).to_bytes())
    with refusal("ArtifactChanged"):
        attestation_payload(release.draft, release.files)


# --- signatures ------------------------------------------------------------------------------------------------------


def test_a_signature_is_on_the_pre_authentication_encoding(payload, keys):
    found = json.loads(attest(payload, keys["sue"]))
    kind = PAYLOAD_TYPE.encode()
    encoded = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)  # the specification's own words
    assert found["keyid"] == keys["sue"].public_key
    assert verify(found["keyid"], standard_b64decode(found["sig"]).hex(), encoded)


def test_stewards_and_publisher_attest(signed, check):
    check(signed("sue", "tom", "publisher"))
    check(signed("sue", "publisher"), threshold=1)


def test_a_publisher_who_also_approved_signs_once(signed, check):
    check(signed("sue", "publisher"), stewards=("sue", "publisher"))


@pytest.mark.parametrize(
    ("signers", "reason"),
    [
        (("sue", "publisher"), "1 of 2"),
        (("publisher",), "0 of 2"),
        (("sue", "tom"), "publisher has not signed"),
        (("sue", "tom", "publisher", "mallory"), "neither approved nor published"),
        (("sue", "mallory", "publisher"), "neither approved nor published"),
        ((), "publisher has not signed"),
    ],
)
def test_a_signature_too_few_or_too_many(signed, check, signers, reason):
    with refusal("NotAttested", match=reason):
        check(signed(*signers))


def test_a_steward_who_is_named_twice_counts_once(signed, payload, keys):
    sue, publisher = (keys[name].public_key for name in ("sue", "publisher"))
    of = {"stewards": [sue, sue], "publisher": publisher, "threshold": 2}
    for given in ({}, {"by_passkey": [sue, sue]}):
        with refusal("NotAttested", match="1 of 2"):
            require_attested(signed("sue", "publisher"), payload, **of, **given)


def test_a_threshold_beyond_the_approvers_is_never_reached(signed, check):
    with refusal("NotAttested", match="2 of 3"):
        check(signed("sue", "tom", "publisher"), threshold=3)


def test_the_statement_of_another_release_does_not_count(release, signed, check):
    other = in_toto_statement(a_record(libraries={"opendp": "0.17.0"}), release.files)
    with refusal("NotAttested", match="not that of these files"):
        check(signed("sue", "tom", "publisher", of=other))


def test_subjects_other_than_the_files_do_not_count(release, signed, check):
    files = release.files | {"texts.jsonl": {"sha256": "0" * 64, "bytes": 1}}
    with refusal("NotAttested", match="not that of these files"):
        check(signed("sue", "tom", "publisher", of=in_toto_statement(release.record, files)))


def resigned(found, payload, keys, keyid, signer):
    """The envelope, in which `signer` signs under the name of `keyid`."""
    forged = json.loads(attest(payload, keys[signer])) | {"keyid": keys[keyid].public_key}
    stored = found.to_dict()
    stored["signatures"] = [one for one in stored["signatures"] if one["keyid"] != forged["keyid"]] + [forged]
    stored["signatures"].sort(key=lambda one: one["keyid"])
    return encode_json(stored)


@pytest.mark.parametrize("keyid", ["sue", "tom", "publisher"])
def test_one_signer_under_two_keyids_counts_once(signed, check, payload, keys, keyid):
    forged = resigned(signed("sue", "tom", "publisher"), payload, keys, keyid, "mallory")
    with refusal("NotAttested", match="does not verify"):
        check(read_envelope(forged))
    twice = resigned(signed("sue", "publisher"), payload, keys, "tom", "sue")
    with refusal("NotAttested", match="does not verify"):
        check(read_envelope(twice))


def test_a_signature_of_another_payload_type_does_not_count(signed, check, payload, keys):
    other = keys["tom"].sign(b"DSSEv1 4 text %d %b" % (len(payload), payload))
    stored = signed("sue", "tom", "publisher").to_dict()
    for one in stored["signatures"]:
        if one["keyid"] == keys["tom"].public_key:
            one["sig"] = standard_b64encode(bytes.fromhex(other)).decode()
    with refusal("NotAttested", match="does not verify"):
        check(read_envelope(encode_json(stored)))


# --- the file --------------------------------------------------------------------------------------------------------


def test_it_reads_back_and_tells_no_order_in_time(signed, payload):
    data = envelope_document(signed("sue", "tom", "publisher"))
    assert envelope_document(signed("publisher", "tom", "sue")) == data
    assert envelope_document(read_envelope(data)) == data
    assert read_envelope(data).payload == payload
    stored = json.loads(data)
    assert set(stored) == {"payload", "payloadType", "signatures"}
    assert all(set(one) == {"keyid", "sig"} for one in stored["signatures"])


def padded(text: str) -> str:
    """Other base64 of the same bytes, where a decoder ignores the spare bits."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = alphabet[alphabet.index(text[-3]) + 1]
    return f"{text[:-3]}{last}=="


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored["signatures"].append(stored["signatures"][0]),
        lambda stored: stored["signatures"].reverse(),
        lambda stored: stored.update(payloadType="text/plain"),
        lambda stored: stored.update(payload="%%%"),
        lambda stored: stored.update(signatures={}),
        lambda stored: stored.update(note="x"),
        lambda stored: stored["signatures"][0].update(note="x"),
        lambda stored: stored["signatures"][0].update(keyid="sue"),
        lambda stored: stored["signatures"][0].update(sig="\u00e9"),
        lambda stored: stored["signatures"][0].update(sig=padded(stored["signatures"][0]["sig"])),
        lambda stored: stored["signatures"][0].pop("sig"),
    ],
)
def test_what_is_no_envelope_of_ours_is_refused_by_name(signed, change):
    stored = signed("sue", "tom", "publisher").to_dict()
    change(stored)
    with pytest.raises(FileUnfit, match=r"attestation\.json"):
        read_envelope(encode_json(stored))


@pytest.mark.parametrize("text", ["", "x", "{}", '{"keyid":"1"}', '{"keyid":"' + "0" * 64 + '","sig":"%"}'])
def test_a_stored_signature_out_of_form_is_refused_by_name(payload, text):
    with pytest.raises(FileUnfit):
        envelope(payload, [text])


# --- decisions that passkeys signed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signers", "by_passkey", "threshold", "holds"),
    [
        (["publisher"], ["sue", "tom"], 2, True),
        (["sue", "publisher"], ["tom"], 2, True),
        (["sue", "publisher"], ["sue"], 2, False),
        (["publisher"], ["sue"], 2, False),
        (["publisher"], ["mallory", "sue"], 2, False),
        (["sue"], ["tom"], 2, False),
        (["mallory", "publisher"], ["sue", "tom"], 2, False),
    ],
)
def test_a_passkey_counts_as_the_signature_of_its_steward_once(
    payload, keys, signed, signers, by_passkey, threshold, holds
):
    publisher = keys["publisher"].public_key
    stewards = [keys[name].public_key for name in ("sue", "tom")]
    used = [keys[name].public_key for name in by_passkey]

    def check():
        require_attested(
            signed(*signers), payload, stewards=stewards, threshold=threshold, publisher=publisher, by_passkey=used
        )

    if holds:
        check()
    else:
        with refusal("NotAttested"):
            check()
