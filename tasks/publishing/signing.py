"""Ed25519 signatures (RFC 8032) and the key file of a home.

Public keys and signatures are lowercase hexadecimal: one key and one signature have exactly one spelling, so a
changed character is always a changed meaning. The private key is a PKCS 8 PEM file of mode 0600; nothing prints it.
"""

import hashlib
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from models_db.errors import EnvironmentProblem, UsageError

PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")
SIGNATURE = re.compile(r"[0-9a-f]{128}")


@dataclass(frozen=True)
class SigningKey:
    """A private key in memory; its text form shows the public half only."""

    public_key: str
    _private: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def create(cls, path: Path) -> "SigningKey":
        """Draw a key and write it to the new file `path` (0600, on disk when this returns).

        Raises:
            SigningKeyUnusable: there is a file already, or it cannot be made.
        """
        private = Ed25519PrivateKey.generate()
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(pem)
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            raise SigningKeyUnusable(path, "is there already, and a key is never replaced") from None
        except OSError as error:
            raise SigningKeyUnusable(path, f"cannot be written: {error.strerror}") from None
        return cls._of(private)

    @classmethod
    def load(cls, path: Path) -> "SigningKey":
        """Read a key.

        Raises:
            SigningKeyUnusable: it is missing, no Ed25519 key, or open to other users.
        """
        try:
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                pem = file.read()
        except OSError as error:
            raise SigningKeyUnusable(path, f"cannot be read: {error.strerror}") from None
        if mode & 0o077:
            raise SigningKeyUnusable(path, f"is open to other users (mode {mode:04o})")
        try:
            private = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise SigningKeyUnusable(path, "is not a private key") from None  # the cause may quote the file
        if not isinstance(private, Ed25519PrivateKey):
            raise SigningKeyUnusable(path, "is not an Ed25519 key")
        return cls._of(private)

    @classmethod
    def _of(cls, private: Ed25519PrivateKey) -> "SigningKey":
        return cls(private.public_key().public_bytes_raw().hex(), private)

    @property
    def fingerprint(self) -> str:
        """The short name of the public key."""
        return fingerprint(self.public_key)

    def sign(self, message: bytes) -> str:
        """The signature of `message`: 128 hexadecimal digits."""
        return self._private.sign(message).hex()


def verify(public_key: str, signature: str, message: bytes) -> bool:
    """Whether `signature` is this key's on exactly these bytes; False for anything malformed."""
    if not PUBLIC_KEY.fullmatch(public_key) or not SIGNATURE.fullmatch(signature):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def checked_public_key(text: str) -> str:
    """`text` as a public key.

    Raises:
        NotAPublicKey: it is not 64 hexadecimal digits.
    """
    key = text.strip().lower()
    if not PUBLIC_KEY.fullmatch(key):
        raise NotAPublicKey
    return key


def fingerprint(public_key: str) -> str:
    """The first 16 bytes of SHA-256 of the key, in groups of four digits, for people to compare."""
    digits = hashlib.sha256(bytes.fromhex(public_key)).hexdigest()[:32]
    return " ".join(digits[i : i + 4] for i in range(0, 32, 4))


class SigningKeyUnusable(EnvironmentProblem):
    """A key file that cannot be used, or would be overwritten."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"The signing key {path} {reason}.",
            f"Only its owner may read it (`chmod 600 {path}`, after finding out who has seen it); restore a lost one"
            " from a backup.",
            {"key": str(path), "reason": reason},
        )


class NotAPublicKey(UsageError):
    """A trusted key that is none."""

    def __init__(self) -> None:
        super().__init__(
            "A public key is 64 hexadecimal digits.", "Ask the publisher for the public key that `almoner init` showed."
        )
