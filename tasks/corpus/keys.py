"""Secret keys, the one way to apply a key to text, and the keyed fingerprints of units, sources and contents.

A home has one key per partition scheme and one overlap key, each 32 bytes from the operating system in a file
of mode 0600. A key is drawn before any data is read, so it is independent of the data (PRIVACY §3), and it never
changes: another key puts people into other blocks, or does not recognise them, and charges them once for what they lose
twice. So the ledger keeps a commitment to each key from the moment in which it is drawn, and a key is loaded only
against its commitment.

Fingerprints say whether two datasets share units, a source or a content (PRIVACY §1), so that the same people cannot be
registered twice for two budgets. A plain hash of private text is a deterministic function of the data and would let
anybody test a guess; so every fingerprint is keyed, and all of them are private: they stay in the project home and its
ledger, never in a log, a card or a bundle.
"""

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from models_db.errors import EnvironmentProblem
from tasks.common.files import open_user_file

KEY_BYTES = 32
COMMITTED_TEXT = "almoner key commitment, version 1"
"""The label that commitments alone have: no mark, block, batch or row is a keyed hash of it."""


def keyed_hash(key: bytes, label: str, *parts: str | bytes) -> bytes:
    """Return the HMAC-SHA256 of a labelled tuple, 32 bytes.

    The message is `label` and then each part, every one of them preceded by its length in bytes as an
    unsigned 64-bit big-endian integer; text is UTF-8. So different tuples are different messages, and no
    label can run into an id.
    """
    return hmac.digest(key, b"".join(map(length_prefixed, (label, *parts))), "sha256")


def length_prefixed(part: str | bytes) -> bytes:
    """`part` as bytes (text as UTF-8) behind its length as an unsigned 64-bit big-endian integer."""
    data = part.encode("utf-8") if isinstance(part, str) else part
    return len(data).to_bytes(8, "big") + data


def key_commitment(key: bytes) -> str:
    """Return the public commitment to a key: the keyed hash of `COMMITTED_TEXT`, 64 lowercase hexadecimal digits.

    It may be published. HMAC-SHA256 is a pseudorandom function, and the key is 256 uniform bits that nobody has seen:
    whoever has one of its values at a fixed text, and others at other texts, can tell them from uniform bits only by
    trying keys, of which there are 2^256. So the commitment reveals nothing of the key, of a partition or of a mark,
    and who is in the data does not change it. It binds: a second key of the same commitment is a collision of SHA-256.
    """
    return keyed_hash(key, COMMITTED_TEXT).hex()


def create_key(path: Path) -> str:
    """Draw a key, write it to the new file `path` (0600, on disk when this returns), and return its commitment.

    Raises:
        KeyExists: there is a file already; a key is never replaced.
        KeyNotWritable: the file cannot be made.
    """
    key = secrets.token_bytes(KEY_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyExists(path) from None
    except OSError as error:
        raise _key_not_writable(path, error) from None
    try:
        with open(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink()
        raise _key_not_writable(path, error) from None
    return key_commitment(key)


def ensure_key(path: Path) -> str:
    """Return the commitment to the key at `path`, which is drawn unless a broken-off founding of the ledger left it.

    Only who commits the ledger to a key calls this: it takes the key as it is.

    Raises:
        KeyNotWritable, KeyMissing, KeyTooOpen: see `create_key` and `load_key`.
        KeyDiffers: what is there is no key.
    """
    try:
        return create_key(path)
    except KeyExists:
        return key_commitment(_read_key(path))


def load_key(path: Path, commitment: str) -> bytes:
    """Read a key, if it is the one of the beginning.

    Args:
        commitment: what the ledger keeps of the key (`key_commitment`).

    Raises:
        KeyMissing: no readable file.
        KeyTooOpen: group or others may read or write it.
        KeyDiffers: it is damaged, truncated, or another key.
    """
    key = _read_key(path)
    if key_commitment(key) != commitment:
        raise _key_differs(path)
    return key


def _read_key(path: Path) -> bytes:
    try:
        with open_user_file(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            key = file.read(KEY_BYTES + 1)
    except OSError as error:
        raise EnvironmentProblem(
            f"The key {path} cannot be read: {error.strerror}.",
            "Restore it from a backup, or copy it from the home that made it (docs/people.md): nobody can be put into"
            " their block, or recognised, without it.",
            {"key": str(path)},
            code="KeyMissing",
        ) from None
    if mode & 0o077:
        raise EnvironmentProblem(
            f"The key {path} is accessible to other users (mode {mode:04o}).",
            f"Find out who has seen it; then close it with `chmod 600 {path}`.",
            {"key": str(path), "mode": f"{mode:04o}"},
            code="KeyTooOpen",
        )
    if len(key) != KEY_BYTES:
        raise _key_differs(path)
    return key


class KeyExists(EnvironmentProblem):
    """A key would have been overwritten."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"There is a key at {path} already, and a key is never replaced.",
            "Use the existing project home, or make a new one elsewhere.",
            {"key": str(path)},
        )


def _key_not_writable(path: Path, error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The key {path} cannot be written: {error.strerror}.",
        "Make room and check that the folder is yours.",
        {"key": str(path)},
        code="KeyNotWritable",
    )


def _key_differs(path: Path) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The key {path} is not the key with which the ledger began: it is damaged, or another one.",
        "Nothing was read, nothing was spent. Move this file aside and put the right one there, from a backup or"
        " from the home that made it (docs/backup.md).",
        {"key": str(path)},
        code="KeyDiffers",
    )


def mark_of(overlap_key: bytes, unit: str) -> bytes:
    """Return the mark of a normalised unit id, 32 bytes; equal in every dataset of the home."""
    return keyed_hash(overlap_key, "unit mark", unit)


def source_mark(overlap_key: bytes, source_digest: bytes) -> bytes:
    """Return the mark of a source, from the SHA-256 of its bytes (`readers.source_digest`); 32 bytes."""
    return keyed_hash(overlap_key, "source mark", source_digest)


class ManifestMark:
    """Mark of a corpus' ordered content, the same for every file format; fed one document at a time.

    HMAC-SHA256 over the label "manifest mark" and then unit, document id and text of each document, all
    encoded as in `keys.keyed_hash`. A missing unit or document id counts as "", which no real one is.
    """

    def __init__(self, overlap_key: bytes) -> None:
        self._hmac = hmac.new(overlap_key, length_prefixed("manifest mark"), hashlib.sha256)

    def add(self, unit: str | None, document_id: str | None, text: str) -> None:
        """Add the next document to the mark."""
        self._hmac.update(b"".join(map(length_prefixed, (unit or "", document_id or "", text))))

    def hexdigest(self) -> str:
        """Return the mark so far, 64 hexadecimal digits."""
        return self._hmac.hexdigest()
