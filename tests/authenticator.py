"""An authenticator and a browser in a few lines: passkeys whose answers a test can make as wrong as it likes."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from fido2 import cbor

from models_db.services.people import PasskeyTerms
from tasks.release.signatures.approvals import PasskeyUse
from tasks.release.signatures.ed25519 import SigningKey
from tasks.release.signatures.webauthn import encode_url, spell_signature

ORIGIN, HOST = "http://localhost:8717", "localhost"
LEDGER = "1d" * 32
VERIFIED = 0x05


@dataclass
class Authenticator:
    """One passkey of a host."""

    kind: str = "es256"
    host: str = HOST
    origin: str = ORIGIN
    credential_id: bytes = b"credential-1"
    counter: int = 0
    ledger: str = LEDGER
    """For which its owner certifies it here; `passkey add` takes that of the invitation."""
    private: Any = field(init=False)

    def __post_init__(self) -> None:
        self.private = generate_private_key(SECP256R1()) if self.kind == "es256" else Ed25519PrivateKey.generate()

    @property
    def cose(self) -> dict[int, Any]:
        if isinstance(self.private, EllipticCurvePrivateKey):
            point = self.private.public_key().public_numbers()
            return {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")}
        return {1: 1, 3: -8, -1: 6, -2: self.private.public_key().public_bytes_raw()}

    @property
    def public_key(self) -> str:
        key = self.cose
        return f"es256:{(key[-2] + key[-3]).hex()}" if self.kind == "es256" else f"ed25519:{key[-2].hex()}"

    @property
    def terms(self) -> PasskeyTerms:
        return PasskeyTerms(self.public_key, self.host, self.origin, self.ledger)

    def client_data(self, ceremony: str, challenge: bytes, /, **changes: Any) -> bytes:
        stated = {"type": ceremony, "challenge": encode_url(challenge), "origin": self.origin, "crossOrigin": False}
        return json.dumps(stated | changes, separators=(",", ":")).encode()

    def data(self, flags: int = VERIFIED, host: str | None = None) -> bytes:
        self.counter += 1
        return hashlib.sha256((host or self.host).encode()).digest() + bytes([flags]) + self.counter.to_bytes(4, "big")

    def sign(self, data: bytes, client_data: bytes) -> bytes:
        message = data + hashlib.sha256(client_data).digest()
        if isinstance(self.private, EllipticCurvePrivateKey):
            return self.private.sign(message, ECDSA(SHA256()))
        return self.private.sign(message)  # type: ignore[no-any-return]

    def answer(
        self, challenge: bytes, /, flags: int = VERIFIED, host: str | None = None, **changes: Any
    ) -> tuple[str, str, str]:
        """Authenticator data and signature in hexadecimal digits, the client data as text between them."""
        client_data = self.client_data("webauthn.get", challenge, **changes)
        data = self.data(flags, host)
        return data.hex(), client_data.decode(), spell_signature(self.public_key, self.sign(data, client_data))

    def certified(self, owner: SigningKey, message: bytes, **changes: Any) -> tuple[str, PasskeyUse]:
        """The signature of a passkey of `owner` on a message, and what is kept beside it."""
        data, client_data, signature = self.answer(hashlib.sha256(message).digest(), **changes)
        certificate = owner.sign(self.terms.statement(owner.public_key))
        terms = {"public_key": self.public_key, "rp_id": self.host, "origin": self.origin, "ledger": self.ledger}
        use = PasskeyUse(**terms, certificate=certificate, authenticator_data=data, client_data=client_data)
        return signature, use

    def created(
        self, challenge: bytes, /, flags: int = VERIFIED | 0x40, cose: dict[int, Any] | None = None, **changes: Any
    ) -> str:
        """What the dashboard's page shows after the browser has created the passkey."""
        client_data = self.client_data("webauthn.create", challenge, **({"type": "webauthn.create"} | changes))
        credential = bytes(16) + len(self.credential_id).to_bytes(2, "big") + self.credential_id
        data = self.data(flags) + (credential + cbor.encode(cose or self.cose) if flags & 0x40 else b"")
        attestation = cbor.encode({"fmt": "none", "attStmt": {}, "authData": data})
        stated = {"attestation": encode_url(attestation), "client_data": encode_url(client_data)}
        return encode_url(json.dumps(stated).encode())
