"""OpenSSH key files: the public line `ssh-ed25519 AAAA... comment`, and the private file of `ssh-keygen`.

Only Ed25519 keys are accepted. The type of a private file can be read without its passphrase, because its public half
is not encrypted (PROTOCOL.key in OpenSSH's source).
"""

import base64
import binascii
import hashlib
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

ED25519 = "ssh-ed25519"
LINE = re.compile(r"(?:ssh|sk-ssh|ecdsa|sk-ecdsa)-[\w@.-]+(?:\s|$)")
"""The beginning of a public key line of any type."""
_ARMOUR = re.compile(
    rb"\A\s*-----BEGIN OPENSSH PRIVATE KEY-----\s+([A-Za-z0-9+/=\s]+)-----END OPENSSH PRIVATE KEY-----\s*\Z"
)
_MAGIC = b"openssh-key-v1\0"


class NotOpenSSH(ValueError):
    """A key that almoner cannot use; the text names the problem, and quotes nothing of the key."""


@dataclass(frozen=True)
class PublicHeader:
    """Unencrypted facts of a private key file."""

    kind: str
    encrypted: bool


def public_key_of_line(line: str) -> bytes:
    """Return the 32 bytes of a public key line.

    Raises:
        NotOpenSSH: another type, or a broken line.
    """
    kind, _, rest = line.strip().partition(" ")
    if kind != ED25519:
        raise NotOpenSSH(f"is a key of the type {kind[:60]}, and only {ED25519} can be used")
    try:
        blob = base64.b64decode(rest.split(" ")[0], validate=True)
        (inner, key), end = _strings(blob, 0, 2)
    except (binascii.Error, ValueError, struct.error):
        raise NotOpenSSH("is a broken line") from None
    if inner != ED25519.encode() or len(key) != 32 or end != len(blob):
        raise NotOpenSSH("is a broken line")
    return key


def fingerprint(key: bytes) -> str:
    """Return the fingerprint as `ssh-keygen -l` shows it: SHA-256 of the key as SSH sends it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(_blob(key)).digest()).decode().rstrip("=")


def read_header(data: bytes) -> PublicHeader:
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
    return PublicHeader(kind.decode("ascii", "replace"), cipher != b"none")


def private_key(data: bytes, passphrase: Callable[[], str]) -> Ed25519PrivateKey:
    """Read the key of a private key file; `passphrase` is called once, and only if the file is encrypted.

    Raises:
        NotOpenSSH: another type, a wrong passphrase, or a broken file.
    """
    header = read_header(data)
    if header.kind != ED25519:
        raise NotOpenSSH(f"is a key of the type {header.kind[:60]}, and only {ED25519} can be used")
    try:
        key = load_ssh_private_key(data, passphrase().encode() if header.encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # the cause may quote the file
        raise NotOpenSSH("does not open with this passphrase" if header.encrypted else "is broken") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise NotOpenSSH(f"does not hold the {ED25519} key that its header names")
    return key


def _blob(key: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for part in (ED25519.encode(), key))


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
