"""Assertions of passkeys: what verifies, what does not, byte by byte, and what an independent library says."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from fido2.cose import CoseKey
from fido2.webauthn import AuthenticatorData

from models_db.services.gates import GateDecision
from models_db.services.people import PasskeyTerms
from models_db.tables import Passkey
from tasks.release.signatures.approvals import PasskeyUse, SignedDecision, is_signed
from tasks.release.signatures.ed25519 import SigningKey
from tasks.release.signatures.webauthn import PUBLIC_KEY, read_answer, read_point, spell_signature, verify_assertion
from tests.authenticator import HOST, LEDGER, ORIGIN, VERIFIED, Authenticator
from tests.refusals import refusal

MESSAGE = b'{"decision":"approve"}'
DIGEST = hashlib.sha256(MESSAGE).digest()
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
POINT = f"{5:064x}459243b9aa581806fe913bce99817ade11ca503c64d9a3c533415c083248fbcc"
"""A point of P-256 whose x is 5."""
BOTH = pytest.mark.parametrize("kind", ["es256", "ed25519"])


@pytest.fixture
def owner(tmp_path):
    return SigningKey.create(tmp_path / "owner.key")


def decision_of(owner: SigningKey, passkey: Authenticator, **changes: Any) -> SignedDecision:
    stated = GateDecision(1, "publish", "ab" * 32, "approve", "reads well", "2026-12-31T23:59:59.000000Z")
    signature, use = passkey.certified(owner, stated.statement("sue"), **changes)
    return SignedDecision(
        request=1, gate="publish", subject_sha256="ab" * 32, decision="approve", reason="reads well",
        expires_at="2026-12-31T23:59:59.000000Z", approver="sue", public_key=owner.public_key, signature=signature,
        passkey=use,
    )  # fmt: skip


@BOTH
def test_a_passkey_answers_its_challenge(kind):
    passkey = Authenticator(kind)
    for _ in range(20):  # of ECDSA half the signatures have the larger s
        data, client_data, signature = passkey.answer(DIGEST)
        assert verify_assertion(passkey.terms, data, client_data, signature, DIGEST)


@BOTH
def test_an_independent_library_says_the_same(kind):
    """fido2 reads authenticator data, and verifies the signature in the form in which the authenticator gave it."""
    passkey = Authenticator(kind)
    client_data = passkey.client_data("webauthn.get", DIGEST)
    data = passkey.data()
    raw = passkey.sign(data, client_data)
    key = CoseKey.parse(passkey.cose)
    key.verify(data + hashlib.sha256(client_data).digest(), raw)
    spelled = spell_signature(passkey.public_key, raw)
    assert verify_assertion(passkey.terms, data.hex(), client_data.decode(), spelled, DIGEST)
    read = AuthenticatorData(data)
    assert (read.is_user_verified(), read.is_user_present(), read.counter) == (True, True, 1)


def test_only_with_the_user_present_and_verified_and_nothing_else():
    passkey = Authenticator()
    for flags in (flags for flags in range(256) if flags & 0xC5 != VERIFIED):
        assert not verify_assertion(passkey.terms, *passkey.answer(DIGEST, flags=flags), DIGEST), flags


def test_flags_of_backup_and_of_the_future_do_not_matter():
    passkey = Authenticator()
    for flags in (f for f in range(256) if f & 0xC5 == VERIFIED):
        assert verify_assertion(passkey.terms, *passkey.answer(DIGEST, flags=flags), DIGEST)


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "webauthn.create"},
        {"type": "payment.get"},
        {"origin": "http://localhost:8718"},
        {"origin": "https://localhost:8717"},
        {"origin": "http://localhost"},
        {"origin": "http://localhost:8717/"},
        {"origin": "http://evil.example"},
        {"origin": None},
        {"crossOrigin": True},
        {"crossOrigin": "no"},
        {"crossOrigin": None},
        {"topOrigin": "http://evil.example"},
        {"challenge": ""},
        {"challenge": None},
        {"challenge": "x" * 43},
        {"host": "evil.example"},
        {"host": "localhost."},
    ],
    ids=str,
)
def test_what_the_authenticator_signed_for_another_purpose(changes):
    passkey = Authenticator()
    assert not verify_assertion(passkey.terms, *passkey.answer(DIGEST, **changes), DIGEST)


def test_for_another_digest():
    passkey = Authenticator()
    assert not verify_assertion(passkey.terms, *passkey.answer(hashlib.sha256(b"other").digest()), DIGEST)
    assert not verify_assertion(passkey.terms, *passkey.answer(MESSAGE), DIGEST)


def test_the_other_signature_of_ecdsa_is_none():
    """(r, n - s) verifies under ECDSA, too; an approval that was taken back would come again with it."""
    passkey = Authenticator()
    data, client_data, signature = passkey.answer(DIGEST)
    other = f"{signature[:64]}{ORDER - int(signature[64:], 16):064x}"
    signed = bytes.fromhex(data) + hashlib.sha256(client_data.encode()).digest()
    r, s = int(other[:64], 16), int(other[64:], 16)
    passkey.private.public_key().verify(encode_dss_signature(r, s), signed, ECDSA(SHA256()))
    assert not verify_assertion(passkey.terms, data, client_data, other, DIGEST)


def test_a_public_key_has_one_spelling():
    """OpenSSL takes x and x + p for the same coordinate: one device would have been the keys of two people."""
    x, y = (int(digits, 16) for digits in (POINT[:64], POINT[64:]))
    assert x + PRIME < 2**256
    point = read_point(POINT)
    assert EllipticCurvePublicNumbers(x + PRIME, y, SECP256R1()).public_key() == point
    for digits in (f"{x + PRIME:064x}{y:064x}", f"{PRIME:064x}{y:064x}", f"{x:064x}{PRIME:064x}"):
        with pytest.raises(ValueError, match="below the prime"):
            read_point(digits)


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0), (ORDER, 1), (1, ORDER), (0, 0)])
def test_signatures_of_no_numbers(numbers):
    passkey = Authenticator()
    data, client_data, _ = passkey.answer(DIGEST)
    signature = "".join(f"{number:064x}" for number in numbers)
    assert not verify_assertion(passkey.terms, data, client_data, signature, DIGEST)


@pytest.mark.parametrize(
    "key",
    ["", "es256:", "es256:" + "0" * 128, "es256:" + "f" * 128, "es256:" + "1" * 128, "ed25519:" + "0" * 64,
     "ed25519:01" + "0" * 62, "ed25519:" + "f" * 64, "rs256:" + "1" * 128],
)  # fmt: skip
def test_keys_that_are_none_verify_nothing(key):
    passkey = Authenticator()
    for signature in ("0" * 128, passkey.answer(DIGEST)[2], "1" + "0" * 127):
        data, client_data, _ = passkey.answer(DIGEST)
        assert not verify_assertion(PasskeyTerms(key, HOST, ORIGIN, LEDGER), data, client_data, signature, DIGEST)


@pytest.mark.parametrize(
    "client_data", ["", "{", "[]", "null", '"x"', "\ud800", '{"type":"webauthn.get","type":"webauthn.get"}', "[" * 999,
                    "{" + " " * 3000 + "}"],
)  # fmt: skip
def test_client_data_that_is_none(client_data):
    passkey = Authenticator()
    data, _, signature = passkey.answer(DIGEST)
    assert not verify_assertion(passkey.terms, data, client_data, signature, DIGEST)


def mutants(decision: SignedDecision) -> Iterator[tuple[str, SignedDecision]]:
    """Every byte of everything that is signed or proves it, in three other forms, and each field cut or emptied."""
    use = decision.passkey
    assert use is not None
    for name in ("authenticator_data", "certificate", "public_key", "rp_id", "origin", "ledger", "client_data"):
        for changed in changed_text(getattr(use, name)):
            yield name, decision.model_copy(update={"passkey": use.model_copy(update={name: changed})})
    for name in ("signature", "public_key", "approver", "subject_sha256", "reason", "expires_at"):
        for changed in changed_text(getattr(decision, name)):
            yield f"decision.{name}", decision.model_copy(update={name: changed})
    for name, value in (("request", 2), ("gate", "spend"), ("decision", "reject")):
        yield f"decision.{name}", decision.model_copy(update={name: value})


def changed_text(text: str) -> Iterator[str]:
    for at, sign in enumerate(text):
        for other in {"0" if sign != "0" else "1", "f" if sign != "f" else "e", chr(ord(sign) ^ 1)} - {sign}:
            yield text[:at] + other + text[at + 1 :]
        yield text[:at] + text[at + 1 :]
    yield from ("", text + "0", text * 2, text.upper() if text.upper() != text else text.lower())


@BOTH
def test_every_mutant_of_a_decision_is_refused(kind, owner):
    decision = decision_of(owner, Authenticator(kind))
    assert decision.authentic
    counts = Counter[str]()
    for name, mutant in mutants(decision):
        assert not mutant.authentic, (name, mutant)
        counts[name] += 1
    assert set(counts) == {
        "authenticator_data", "certificate", "public_key", "rp_id", "origin", "ledger", "client_data",
        "decision.signature", "decision.public_key", "decision.approver", "decision.subject_sha256", "decision.reason",
        "decision.expires_at", "decision.request", "decision.gate", "decision.decision",
    }  # fmt: skip
    print(f"{kind}: {counts.total()} mutants refused: {dict(counts)}")  # noqa: T201
    assert counts.total() > 2500


def test_a_passkey_that_its_person_never_certified(owner, tmp_path):
    """Whoever keeps the ledger can write rows, and has keys of their own."""
    other, passkey = SigningKey.create(tmp_path / "other.key"), Authenticator()
    forged = decision_of(other, passkey)
    assert forged.authentic
    assert not forged.model_copy(update={"public_key": owner.public_key}).authentic
    mine = decision_of(owner, Authenticator())
    assert mine.passkey is not None
    assert forged.passkey is not None
    swapped = mine.passkey.model_copy(update={"public_key": forged.passkey.public_key})
    assert not mine.model_copy(update={"passkey": swapped}).authentic


def test_a_decision_with_and_without_passkey_are_not_the_same(owner):
    """The signature of a passkey is not one of the own key, and the other way round."""
    decision = decision_of(owner, Authenticator("ed25519"))
    assert not decision.model_copy(update={"passkey": None}).authentic
    stated = GateDecision(1, "publish", "ab" * 32, "approve", "reads well", "2026-12-31T23:59:59.000000Z")
    own = owner.sign(stated.statement("sue"))
    assert is_signed(owner.public_key, own, stated.statement("sue"), None)
    assert not is_signed(owner.public_key, own, stated.statement("sue"), decision.passkey)


@pytest.mark.parametrize(
    "stored", ["", "[]", "{}", "no", '{"authenticator_data": 1}', '{"client_data": null}', "[" * 99]
)
def test_a_row_whose_assertion_is_unreadable_verifies_nothing(stored, owner):
    passkey = Authenticator()
    row = Passkey(id=1, public_key=passkey.public_key, rp_id=HOST, origin=ORIGIN,
                  signature=owner.sign(passkey.terms.statement(owner.public_key)))  # fmt: skip
    use = PasskeyUse.of(row, stored, LEDGER)
    assert not is_signed(owner.public_key, "0" * 128, MESSAGE, use)


# --- Registration ----------------------------------------------------------------------------------------------------


@BOTH
def test_the_key_of_an_answer_is_that_of_the_authenticator(kind):
    passkey = Authenticator(kind)
    created = read_answer(passkey.created(DIGEST), HOST, ORIGIN, LEDGER, DIGEST)
    assert created.terms == passkey.terms
    assert PUBLIC_KEY.fullmatch(created.terms.public_key)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"type": "webauthn.get"}, "another page"),
        ({"origin": "https://evil.example"}, "another page"),
        ({"crossOrigin": True}, "another page"),
        ({"challenge": "x"}, "another page"),
        ({"flags": 0x45 & ~0x04}, "PIN"),
        ({"flags": 0x45 & ~0x01}, "PIN"),
        ({"flags": 0x05}, "no key"),
        ({"cose": {1: 3, 3: -257, -1: b"n" * 256, -2: b"\1\0\1"}}, "no key"),
        ({"cose": {1: 2, 3: -35, -1: 2, -2: b"x" * 48, -3: b"y" * 48}}, "no key"),
        ({"cose": {1: 1, 3: -8, -1: 6, -2: b"\1" + bytes(31)}}, "no private key"),
        ({"cose": {1: 2, 3: -7, -1: 1, -2: b"x" * 32, -3: b"y" * 32}}, "no private key"),
        ({"cose": {1: 2, 3: -7, -1: 1, -2: b"x" * 31, -3: b"y" * 32}}, "no key"),
        ({"cose": {3: -7}}, "unreadable|no key"),
    ],
    ids=str,
)
def test_answers_that_make_no_passkey(changes, reason):
    with refusal("PasskeyAnswerUnfit", match=reason):
        read_answer(Authenticator().created(DIGEST, **changes), HOST, ORIGIN, LEDGER, DIGEST)


def test_answers_of_another_host_and_for_another_invitation():
    passkey = Authenticator()
    with refusal("PasskeyAnswerUnfit", match="host"):
        read_answer(passkey.created(DIGEST), "ledger.example.org", ORIGIN, LEDGER, DIGEST)
    with refusal("PasskeyAnswerUnfit", match="another invitation"):
        read_answer(passkey.created(DIGEST), HOST, ORIGIN, LEDGER, hashlib.sha256(b"later").digest())


@pytest.mark.parametrize("answer", ["", "x", "====", "e30", "bnVsbA", "W10", "A" * 30_000, "ä" * 10])
def test_answers_in_no_form(answer):
    with refusal("PasskeyAnswerUnfit", match="form"):
        read_answer(answer, HOST, ORIGIN, LEDGER, DIGEST)


def test_every_cut_of_an_answer_is_refused():
    """Hostile CBOR ends in one named error."""
    answer = Authenticator().created(DIGEST)
    for end in range(0, len(answer), 7):
        with refusal("PasskeyAnswerUnfit"):
            read_answer(answer[:end], HOST, ORIGIN, LEDGER, DIGEST)


def test_terms_say_for_whom():
    terms = replace(Authenticator().terms, origin="o", rp_id="r")
    assert json.loads(terms.statement("ab" * 32)) == {
        "passkey": terms.public_key, "rp_id": "r", "origin": "o", "ledger": LEDGER, "principal": "ab" * 32,
    }  # fmt: skip
