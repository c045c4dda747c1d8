"""The public key in the answer of a browser that has created a passkey (W3C Web Authentication Level 2, section 7.1).

The answer is in CBOR, which `fido2` reads. Its attestation is not judged: a passkey counts because its person's own key
certifies it, not because of who made the device.
"""

import hashlib
import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Final

from models_db.errors import Refused
from models_db.services.people import PasskeyTerms
from models_db.values.bounded_json import InvalidJson, parse_json
from tasks.release.signatures.ed25519_point import is_persons_key
from tasks.release.signatures.webauthn import (
    PUBLIC_KEY,
    USER_PRESENT,
    USER_VERIFIED,
    encode_url,
    read_point,
    states_ceremony,
)

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
