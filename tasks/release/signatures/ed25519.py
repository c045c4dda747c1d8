"""Ed25519 signatures (RFC 8032), the key file of a home, OpenSSH's key files, and which public keys are valid.

Public keys and signatures are lowercase hexadecimal: one key and one signature have exactly one spelling, so a
changed character always changes the value. The private key is a PKCS 8 PEM file of mode 0600; nothing prints it.

*OpenSSH key files:* the public line `ssh-ed25519 AAAA... comment`, and the private file of `ssh-keygen`. Only Ed25519
keys are accepted. The type of a private file can be read without its passphrase, because its public half is not
encrypted (PROTOCOL.key in OpenSSH's source).

*Validation of public keys:* canonical points of prime order (RFC 8032, section 5.1). OpenSSL verifies under any 32
bytes that decode, also under points of small order: under the identity, one signature is valid for every message. Such
a key would approve everything, so a key is a point of the prime-order subgroup, in its one canonical encoding. All
inputs are public, so nothing needs constant time.
"""

import base64
import binascii
import hashlib
import os
import re
import secrets
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_ssh_private_key,
)

from models_db.errors import EnvironmentProblem, UsageError
from tasks.common.files import open_user_file, sync_folder, write_new

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
            return cls._from_private(openssh_private_key(data, passphrase))
        except NotOpenSSH as error:
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

    A key under which several messages could have one signature (`decode_point`) verifies nothing.
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
        NotAPublicKey: it is none of these, another type of key, or not of prime order (`decode_point`).
    """
    text = "" if isinstance(source, Path) else source.strip()
    if not PUBLIC_KEY.fullmatch(text.lower()) and not OPENSSH_LINE.match(text):
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
    return openssh_fingerprint(bytes.fromhex(public_key))


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
    if OPENSSH_LINE.match(text):
        if "\n" in text:
            raise _not_apublic_key("it is more than one line")
        try:
            key = public_key_of_line(text)
        except NotOpenSSH as error:
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


OPENSSH_ED25519 = "ssh-ed25519"
OPENSSH_LINE = re.compile(r"(?:ssh|sk-ssh|ecdsa|sk-ecdsa)-[\w@.-]+(?:\s|$)")
"""The beginning of a public key line of any type."""
_ARMOUR = re.compile(
    rb"\A\s*-----BEGIN OPENSSH PRIVATE KEY-----\s+([A-Za-z0-9+/=\s]+)-----END OPENSSH PRIVATE KEY-----\s*\Z"
)
_MAGIC = b"openssh-key-v1\0"


class NotOpenSSH(ValueError):
    """A key that almoner cannot use; the text names the problem, and quotes nothing of the key."""


@dataclass(frozen=True)
class OpenSSHHeader:
    """Unencrypted facts of a private key file."""

    kind: str
    encrypted: bool


def public_key_of_line(line: str) -> bytes:
    """Return the 32 bytes of a public key line.

    Raises:
        NotOpenSSH: another type, or a broken line.
    """
    kind, _, rest = line.strip().partition(" ")
    if kind != OPENSSH_ED25519:
        raise NotOpenSSH(f"is a key of the type {kind[:60]}, and only {OPENSSH_ED25519} can be used")
    try:
        blob = base64.b64decode(rest.split(" ")[0], validate=True)
        (inner, key), end = _strings(blob, 0, 2)
    except (binascii.Error, ValueError, struct.error):
        raise NotOpenSSH("is a broken line") from None
    if inner != OPENSSH_ED25519.encode() or len(key) != 32 or end != len(blob):
        raise NotOpenSSH("is a broken line")
    return key


def openssh_fingerprint(key: bytes) -> str:
    """Return the fingerprint as `ssh-keygen -l` shows it: SHA-256 of the key as SSH sends it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(_blob(key)).digest()).decode().rstrip("=")


def read_openssh_header(data: bytes) -> OpenSSHHeader:
    """Read the type and the encryption of a private key file without its passphrase.

    Raises:
        NotOpenSSH: it is no such file, or holds several keys.
    """
    match = _ARMOUR.match(data)
    if match is None:
        raise NotOpenSSH("is not a private key in OpenSSH's format")
    try:
        body = binascii.a2b_base64(match.group(1))
        if not body.startswith(_MAGIC):
            raise ValueError
        (cipher, _, _), at = _strings(body, len(_MAGIC), 3)
        (count,) = struct.unpack_from(">I", body, at)
        (public,), _ = _strings(body, at + 4, 1)
        (kind,), _ = _strings(public, 0, 1)
    except (ValueError, struct.error):
        raise NotOpenSSH("is broken") from None
    if count != 1:
        raise NotOpenSSH("holds several keys")
    return OpenSSHHeader(kind.decode("ascii", "replace"), cipher != b"none")


def openssh_private_key(data: bytes, passphrase: Callable[[], str]) -> Ed25519PrivateKey:
    """Read the key of a private key file; `passphrase` is called once, and only if the file is encrypted.

    Raises:
        NotOpenSSH: another type, a wrong passphrase, or a broken file.
    """
    header = read_openssh_header(data)
    if header.kind != OPENSSH_ED25519:
        raise NotOpenSSH(f"is a key of the type {header.kind[:60]}, and only {OPENSSH_ED25519} can be used")
    try:
        key = load_ssh_private_key(data, passphrase().encode() if header.encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # the cause may quote the file
        raise NotOpenSSH("does not open with this passphrase" if header.encrypted else "is broken") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise NotOpenSSH(f"does not hold the {OPENSSH_ED25519} key that its header names")
    return key


def _blob(key: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for part in (OPENSSH_ED25519.encode(), key))


def _strings(data: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    """Return `count` length-prefixed strings from `at` on, and the offset where they end."""
    strings = []
    for _ in range(count):
        (length,) = struct.unpack_from(">I", data, at)
        at += 4 + length
        if at > len(data):
            raise ValueError("a string ends outside")
        strings.append(data[at - length : at])
    return strings, at


P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
_ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)

Point: TypeAlias = tuple[int, int, int, int]
"""Extended coordinates X, Y, Z, T: x = X/Z, y = Y/Z, xy = T/Z."""
IDENTITY_POINT: Point = (0, 1, 1, 0)


@lru_cache(maxsize=256)
def is_persons_key(encoded: bytes) -> bool:
    """Return whether `encoded` is a canonical curve point of prime order: not the identity, not of small order."""
    point = decode_point(encoded)
    return (
        point is not None
        and not _equal_points(point, IDENTITY_POINT)
        and _equal_points(multiply_point(L, point), IDENTITY_POINT)
    )


def decode_point(encoded: bytes) -> Point | None:
    """Decode a point (RFC 8032, section 5.1.3); None for another length, a non-canonical or impossible encoding."""
    if len(encoded) != 32:
        return None
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    if y >= P:
        return None
    x = _x_of(y)
    if x is None or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


def _x_of(y: int) -> int | None:
    """Return a square root of (y^2 - 1) / (d y^2 + 1); None where there is none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * _ROOT_OF_MINUS_ONE % P
    return None if (x * x - square) % P else x


def add_points(a: Point, b: Point) -> Point:
    """Return the sum; the formulas are complete, so doubling is no special case (RFC 8032, section 5.1.4)."""
    u, v = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    c, d = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = v - u, d - c, d + c, v + u
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply_point(times: int, point: Point) -> Point:
    """Return `times` copies of `point`, added up."""
    total = IDENTITY_POINT
    while times:
        if times & 1:
            total = add_points(total, point)
        point, times = add_points(point, point), times >> 1
    return total


def _equal_points(a: Point, b: Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0
