"""WebAuthn assertions as signatures, and the public key in the answer of a browser that has created a passkey.

*Assertions* (W3C Web Authentication Level 2, section 7.2; the one check of them). A passkey signs `authenticator data
|| SHA-256(client data)`, and the client data holds the challenge: SHA-256 of the bytes that a person's own key would
have signed. Nothing here needs the network or the ledger, so whoever has a bundle comes to the same answer. As with
Ed25519, one key and one signature have exactly one spelling: of the two signatures (r, s) and (r, n - s) that ECDSA
accepts, only the one with the smaller s is valid here. The counter of signatures is not compared: a verifier without
the earlier ones cannot, and synced passkeys have none.

*Registration* (section 7.1). The answer is in CBOR, which `fido2` reads. Its attestation is not judged: a passkey
counts because its person's own key certifies it, not because of who made the device.
"""

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePublicKey,
    EllipticCurvePublicNumbers,
)
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from models_db.errors import Refused
from models_db.services.people import PasskeyTerms
from models_db.values.canonical_json import InvalidJson, parse_json
from tasks.release.signatures import ed25519
from tasks.release.signatures.ed25519 import is_persons_key

PUBLIC_KEY: Final = re.compile(r"es256:[0-9a-f]{128}|ed25519:[0-9a-f]{64}")
AUTHENTICATOR_BYTES: Final = 37
"""Digest of the host (32), flags (1), counter (4). An assertion without extensions has no more."""
MOST_CLIENT_DATA: Final = 2000
USER_PRESENT, USER_VERIFIED, ATTESTED, EXTENDED = 0x01, 0x04, 0x40, 0x80
_PRIME: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Prime p of the coordinates and order n of P-256 (NIST SP 800-186, section 3.2.1.3)."""


def verify_certified(
    principal_key: str, certificate: str, terms: PasskeyTerms, assertion: tuple[str, str, str], challenge: bytes
) -> bool:
    """Return whether a passkey answered exactly `challenge`, and its principal's own key certified the passkey.

    Args:
        assertion: authenticator data and signature in hexadecimal digits, and between them the client data as text.
    """
    return ed25519.verify(principal_key, certificate, terms.statement(principal_key)) and verify_assertion(
        terms, *assertion, challenge
    )


def challenge_of(message: bytes) -> bytes:
    """Return the challenge whose answer is a passkey's signature on these bytes."""
    return hashlib.sha256(message).digest()


def verify_assertion(
    terms: PasskeyTerms, authenticator_data: str, client_data: str, signature: str, challenge: bytes
) -> bool:
    """Return whether the passkey answered exactly this challenge, on its own pages, with its user verified.

    Malformed input is False.

    Args:
        authenticator_data: 74 hexadecimal digits.
        signature: 128 hexadecimal digits, r and s or as Ed25519 has it.
    """
    if not re.fullmatch(f"[0-9a-f]{{{2 * AUTHENTICATOR_BYTES}}}", authenticator_data):
        return False
    stated = bytes.fromhex(authenticator_data)
    if not _states_user(stated, terms.rp_id):
        return False
    if not states_ceremony(client_data, "webauthn.get", terms.origin, challenge):
        return False
    return _is_signed(terms.public_key, signature, stated + hashlib.sha256(client_data.encode()).digest())


def _states_user(authenticator_data: bytes, rp_id: str) -> bool:
    flags = authenticator_data[32]
    return (
        authenticator_data[:32] == hashlib.sha256(rp_id.encode()).digest()
        and flags & USER_PRESENT != 0
        and flags & USER_VERIFIED != 0
        and flags & (ATTESTED | EXTENDED) == 0
    )


def states_ceremony(client_data: str, ceremony: str, origin: str, challenge: bytes) -> bool:
    """Return whether client data is of this ceremony, on pages of this origin, outside frames, for this challenge.

    Args:
        ceremony: `webauthn.get` or `webauthn.create`.
    """
    try:
        stated = parse_json(client_data, most_bytes=MOST_CLIENT_DATA)
    except InvalidJson:
        return False
    return (
        isinstance(stated, dict)
        and stated.get("type") == ceremony
        and stated.get("challenge") == encode_url(challenge)
        and stated.get("origin") == origin
        and stated.get("crossOrigin", False) is False
        and "topOrigin" not in stated
    )


def _is_signed(public_key: str, signature: str, message: bytes) -> bool:
    if not PUBLIC_KEY.fullmatch(public_key) or not ed25519.SIGNATURE.fullmatch(signature):
        return False
    algorithm, _, digits = public_key.partition(":")
    if algorithm == "ed25519":
        return ed25519.verify(digits, signature, message)
    r, s = int(signature[:64], 16), int(signature[64:], 16)
    if not (0 < r < _ORDER and 0 < s <= _ORDER // 2):
        return False
    try:
        read_point(digits).verify(encode_dss_signature(r, s), message, ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


def read_point(digits: str) -> EllipticCurvePublicKey:
    """Return the public key of ES256 behind 128 hexadecimal digits, its coordinates x and y.

    Raises:
        ValueError: it is no point of the curve, or not in its one spelling: OpenSSL takes x and x + p for the same.
    """
    x, y = int(digits[:64], 16), int(digits[64:], 16)
    if max(x, y) >= _PRIME:
        raise ValueError("a coordinate is below the prime of its curve")
    return EllipticCurvePublicNumbers(x, y, SECP256R1()).public_key()


def spell_signature(public_key: str, signature: bytes) -> str:
    """Return an authenticator's signature in its one spelling, 128 hexadecimal digits.

    Args:
        signature: in DER for a key of ES256 (W3C Web Authentication, section 6.5.5), 64 bytes for one of Ed25519.

    Raises:
        ValueError: it is in neither form.
    """
    if public_key.startswith("ed25519:"):
        return signature.hex()
    r, s = decode_dss_signature(signature)
    if not (0 < r < _ORDER and 0 < s < _ORDER):
        raise ValueError("a signature is two numbers below the order of its curve")
    return f"{r:064x}{min(s, _ORDER - s):064x}"


def encode_url(data: bytes) -> str:
    """Return bytes in base64url without padding, as WebAuthn writes them."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


MOST_ANSWER: Final = 20_000
"""Characters of an answer; one without attestation has some 500."""
LONGEST_CREDENTIAL_ID: Final = 1023
"""Bytes (W3C Web Authentication Level 2, section 4)."""
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")


@dataclass(frozen=True)
class CreatedPasskey:
    """A new passkey: what its person certifies, and the name by which its authenticator knows it."""

    terms: PasskeyTerms
    credential_id: str


def read_answer(answer: str, rp_id: str, origin: str, ledger: str, challenge: bytes) -> CreatedPasskey:
    """Return the passkey in an answer to `challenge`.

    Args:
        ledger: the identity of the ledger for which the passkey is to decide.
        answer: base64url of `{"attestation": base64url, "client_data": base64url}`, as the dashboard's page shows it.

    Raises:
        PasskeyAnswerUnfit: it is malformed, of another page, for another challenge, or without its user verified.
    """
    try:
        stated = parse_json(decode_url(answer.strip(), MOST_ANSWER), most_bytes=MOST_ANSWER)
        client_data = decode_url(stated["client_data"], MOST_ANSWER).decode()
        attestation = decode_url(stated["attestation"], MOST_ANSWER)
    except (InvalidJson, KeyError, TypeError, ValueError):
        raise _passkey_answer_unfit("is not in the form of the dashboard's page") from None
    if not states_ceremony(client_data, "webauthn.create", origin, challenge):
        raise _passkey_answer_unfit("is of another page, or for another invitation")
    return _read_attestation(attestation, rp_id, origin, ledger)


def _read_attestation(attestation: bytes, rp_id: str, origin: str, ledger: str) -> CreatedPasskey:
    from fido2.webauthn import AttestationObject  # only this moment needs it

    try:
        data = AttestationObject(attestation).auth_data
        credential = data.credential_data
        key = None if credential is None else _spell_key(credential.public_key)
    except Exception:  # noqa: BLE001  # hostile CBOR raises what it likes
        raise _passkey_answer_unfit("has an unreadable attestation object") from None
    if credential is None or key is None or not PUBLIC_KEY.fullmatch(key):
        raise _passkey_answer_unfit("has no key of the types ES256 (P-256) or Ed25519")
    if not _is_key(*key.split(":")):
        raise _passkey_answer_unfit("has a key to which no private key belongs")
    if data.rp_id_hash != hashlib.sha256(rp_id.encode()).digest():
        raise _passkey_answer_unfit("is of another host")
    if not (data.flags & USER_PRESENT and data.flags & USER_VERIFIED):
        raise _passkey_answer_unfit("was given without a PIN, a fingerprint or the like")
    if not 0 < len(credential.credential_id) <= LONGEST_CREDENTIAL_ID:
        raise _passkey_answer_unfit("names its key unfitly")
    return CreatedPasskey(PasskeyTerms(key, rp_id, origin, ledger), encode_url(credential.credential_id))


def _is_key(algorithm: str, digits: str) -> bool:
    """Return whether a private key can belong to a public one."""
    if algorithm == "ed25519":
        return is_persons_key(bytes.fromhex(digits))
    try:
        read_point(digits)
    except ValueError:
        return False
    return True


def _spell_key(key: "dict[int, object]") -> str | None:
    """Return a COSE key (RFC 9053) in its one spelling; None for other types of keys."""
    x, y = key.get(-2), key.get(-3)
    if not isinstance(x, bytes):
        return None
    if (key.get(1), key.get(3), key.get(-1)) == (2, -7, 1) and isinstance(y, bytes):
        return f"es256:{x.hex()}{y.hex()}"
    return f"ed25519:{x.hex()}" if (key.get(1), key.get(3), key.get(-1)) == (1, -8, 6) else None


def decode_url(text: str, most: int) -> bytes:
    """Return the bytes of a base64url text without padding.

    Raises:
        ValueError: it is none, or longer than `most` characters.
    """
    if len(text) > most or not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:
        raise ValueError("not base64url")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _passkey_answer_unfit(reason: str) -> Refused:
    return Refused(
        f"The browser's answer {reason}; nothing was recorded.",
        "Copy the whole command from the page of the newest `almoner passkey invite`, and type it in that home.",
        {"reason": reason},
        code="PasskeyAnswerUnfit",
    )
