"""Ed25519 signatures (RFC 8032) and the key file of a home.

Public keys and signatures are lowercase hexadecimal: one key and one signature have exactly one spelling, so a
changed character always changes the value. The private key is a PKCS 8 PEM file of mode 0600; nothing prints it.
"""

import os
import re
import secrets
import stat
from collections.abc import Callable
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
from tasks.common.files import open_user_file, sync_folder, write_new
from tasks.release.signatures import openssh
from tasks.release.signatures.ed25519_point import is_persons_key

PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")
SIGNATURE = re.compile(r"[0-9a-f]{128}")
LARGEST_KEY_FILE = 64 << 10


@dataclass(frozen=True)
class SigningKey:
    """A private key in memory; its text form shows the public half only."""

    public_key: str
    _private: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def create(cls, path: Path) -> "SigningKey":
        """Draw a key and write it to the new file `path` (0600, on disk when this returns).

        Raises:
            SigningKeyUnusable: the file exists, or cannot be written.
        """
        key = cls._from_private(Ed25519PrivateKey.generate())
        key.save(path)
        return key

    @classmethod
    def load(cls, path: Path) -> "SigningKey":
        """Read a key file of a home.

        Raises:
            SigningKeyUnusable: the file is missing, is no Ed25519 key, or is accessible to other users.
        """
        pem = _secret(path)
        try:
            private = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise _signing_key_unusable(path, "is not a private key") from None  # the cause may quote the file
        if not isinstance(private, Ed25519PrivateKey):
            raise _signing_key_unusable(path, "is not an Ed25519 key")
        return cls._from_private(private)

    @classmethod
    def from_openssh(cls, path: Path, passphrase: Callable[[], str]) -> "SigningKey":
        """Read a private key that `ssh-keygen -t ed25519` made; `passphrase` is called once, if the file is encrypted.

        Raises:
            SigningKeyUnusable: the file is missing, or accessible to other users.
            OpenSSHKeyUnfit: another type, another format, or a wrong passphrase.
        """
        data = _secret(path)
        try:
            return cls._from_private(openssh.private_key(data, passphrase))
        except openssh.NotOpenSSH as error:
            raise _open_sshkey_unfit(path, str(error)) from None

    def save(self, path: Path) -> None:
        """Write the key to the new file `path`: 0600, whole or not at all, on disk when this returns.

        Raises:
            SigningKeyUnusable: the file exists, or cannot be written.
        """
        pem = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        try:
            write_new(draft, pem, 0o600)
            try:
                os.link(draft, path, follow_symlinks=False)  # unlike a rename, it never replaces
            finally:
                draft.unlink()
            sync_folder(path.parent)
        except FileExistsError:
            raise _signing_key_unusable(path, "exists already, and a key is never replaced") from None
        except OSError as error:
            raise _signing_key_unusable(path, f"cannot be written: {error.strerror}") from None

    @classmethod
    def _from_private(cls, private: Ed25519PrivateKey) -> "SigningKey":
        return cls(private.public_key().public_bytes_raw().hex(), private)

    @property
    def fingerprint(self) -> str:
        """The public key as `ssh-keygen -l` names it."""
        return fingerprint(self.public_key)

    def sign(self, message: bytes) -> str:
        """Return the signature of `message`: 128 hexadecimal digits."""
        return self._private.sign(message).hex()


def home_key(path: Path, imported: Path | None, passphrase: Callable[[], str]) -> SigningKey:
    """Return the key of a home, at `path`: the existing one, else a copy of the OpenSSH key `imported`, else a new one.

    Raises:
        SigningKeyUnusable, OpenSSHKeyUnfit: a key cannot be used, or `imported` is not the existing key.
    """
    if imported is None:
        return SigningKey.load(path) if path.exists() else SigningKey.create(path)
    key = SigningKey.from_openssh(imported, passphrase)
    if not path.exists():
        key.save(path)
    elif SigningKey.load(path) != key:
        raise _signing_key_unusable(path, "exists already and is another key, and a key is never replaced")
    return key


def verify(public_key: str, signature: str, message: bytes) -> bool:
    """Return whether `signature` is this key's signature on exactly these bytes; False for malformed input.

    A key under which several messages could have one signature (`ed25519_point`) verifies nothing.
    """
    if not PUBLIC_KEY.fullmatch(public_key) or not SIGNATURE.fullmatch(signature):
        return False
    encoded = bytes.fromhex(public_key)
    if not is_persons_key(encoded):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(encoded).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def parse_public_key(source: str | Path) -> str:
    """Return a public key to be enrolled or trusted: 64 hexadecimal digits.

    Args:
        source: 64 hexadecimal digits, a line `ssh-ed25519 AAAA... comment`, or a file that holds either (`.pub`).

    Raises:
        NotAPublicKey: it is none of these, another type of key, or not of prime order (`ed25519_point`).
    """
    text = "" if isinstance(source, Path) else source.strip()
    if not PUBLIC_KEY.fullmatch(text.lower()) and not openssh.LINE.match(text):
        text = _public_file(Path(source))
    return _persons_key(text)


def checked_public_key(text: str) -> str:
    """Return `text` as a public key, stripped and in lowercase.

    Raises:
        NotAPublicKey: it is not 64 hexadecimal digits.
    """
    key = text.strip().lower()
    if not PUBLIC_KEY.fullmatch(key):
        raise _not_apublic_key()
    return key


def fingerprint(public_key: str) -> str:
    """Return a public key as `ssh-keygen -l` names it, `SHA256:...`, for people to compare."""
    return openssh.fingerprint(bytes.fromhex(public_key))


def _secret(path: Path) -> bytes:
    """Read a file that only its owner may read."""
    try:
        with open_user_file(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read(LARGEST_KEY_FILE)
    except OSError as error:
        raise _signing_key_unusable(path, f"cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise _signing_key_unusable(path, f"is accessible to other users (mode {mode:04o})")
    return data


def _public_file(path: Path) -> str:
    try:
        with open_user_file(path) as file:
            text = file.read(LARGEST_KEY_FILE).decode("utf-8").strip()
    except (OSError, ValueError):
        raise _not_apublic_key("it is neither a key nor a file with one") from None
    if "PRIVATE KEY" in text:
        raise _not_apublic_key("that file holds a private key, which must never be shared")
    return text


def _persons_key(text: str) -> str:
    if openssh.LINE.match(text):
        if "\n" in text:
            raise _not_apublic_key("it is more than one line")
        try:
            key = openssh.public_key_of_line(text)
        except openssh.NotOpenSSH as error:
            raise _not_apublic_key(f"it {error}") from None
    else:
        key = bytes.fromhex(checked_public_key(text))
    if not is_persons_key(key):
        raise _not_apublic_key("no private key belongs to it")
    return key.hex()


def _signing_key_unusable(path: Path, reason: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The signing key {path} {reason}.",
        f"Only its owner may read it (`chmod 600 {path}`, after finding out who has seen it); restore a lost one"
        " from a backup.",
        {"key": str(path), "reason": reason},
        code="SigningKeyUnusable",
    )


def _open_sshkey_unfit(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"The OpenSSH key {path} {reason}.",
        "Name the private file (not the `.pub`) of an Ed25519 key; `ssh-keygen -t ed25519` makes one.",
        {"key": str(path), "reason": reason},
        code="OpenSSHKeyUnfit",
    )


def _not_apublic_key(reason: str = "") -> UsageError:
    return UsageError(
        f"Not a usable public key: {reason}." if reason else "A public key is 64 hexadecimal digits.",
        "Ask its owner for the public key that `almoner init` showed, or for the `.pub` file of an Ed25519 key.",
        {"reason": reason},
        code="NotAPublicKey",
    )
