"""WebAuthn assertions as signatures: the one check of them (W3C Web Authentication Level 2, section 7.2).

A passkey signs `authenticator data || SHA-256(client data)`, and the client data holds the challenge: SHA-256 of the
bytes that a person's own key would have signed. Nothing here needs the network or the ledger, so whoever has a bundle
comes to the same answer. As with Ed25519, one key and one signature have exactly one spelling: of the two signatures
(r, s) and (r, n - s) that ECDSA accepts, only the one with the smaller s is valid here.

The counter of signatures is not compared: a verifier without the earlier ones cannot, and synced passkeys have none.
"""

import hashlib
import re
from base64 import urlsafe_b64encode
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

from models_db.services.people import PasskeyTerms
from models_db.values.bounded_json import InvalidJson, parse_json
from tasks.release.signatures import ed25519

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
