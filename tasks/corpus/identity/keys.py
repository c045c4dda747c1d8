"""Secret keys, and the one way to apply a key to text.

A home has one key per partition scheme and one overlap key, each 32 bytes from the operating system in a file
of mode 0600. A key is drawn before any data is read, so it is independent of the data (PRIVACY §3).
"""

import hmac
import os
import secrets
import stat
from pathlib import Path

from models_db.errors import EnvironmentProblem
from tasks.common.files import open_user_file

KEY_BYTES = 32


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


def create_key(path: Path) -> bytes:
    """Draw a key and write it to the new file `path` (0600, on disk when this returns).

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
        raise KeyNotWritable(path, error) from None
    try:
        with open(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink()
        raise KeyNotWritable(path, error) from None
    return key


def load_key(path: Path) -> bytes:
    """Read a key.

    Raises:
        KeyMissing: no readable file.
        KeyTooOpen: group or others may read or write it.
        KeyDamaged: not exactly 32 bytes.
    """
    try:
        with open_user_file(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            key = file.read(KEY_BYTES + 1)
    except OSError as error:
        raise KeyMissing(path, error) from None
    if mode & 0o077:
        raise KeyTooOpen(path, mode)
    if len(key) != KEY_BYTES:
        raise KeyDamaged(path)
    return key


class KeyMissing(EnvironmentProblem):
    """A key file cannot be read."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"The key {path} cannot be read: {error.strerror}.",
            "Restore it from a backup: partitions and overlap checks cannot be repeated without it.",
            {"key": str(path)},
        )


class KeyExists(EnvironmentProblem):
    """A key would have been overwritten."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"There is a key at {path} already, and a key is never replaced.",
            "Use the existing project home, or make a new one elsewhere.",
            {"key": str(path)},
        )


class KeyNotWritable(EnvironmentProblem):
    """A key file cannot be made."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"The key {path} cannot be written: {error.strerror}.",
            "Make room and check that the folder is yours.",
            {"key": str(path)},
        )


class KeyTooOpen(EnvironmentProblem):
    """A key file that other users may read or write."""

    def __init__(self, path: Path, mode: int) -> None:
        super().__init__(
            f"The key {path} is accessible to other users (mode {mode:04o}).",
            f"Find out who has seen it; then close it with `chmod 600 {path}`.",
            {"key": str(path), "mode": f"{mode:04o}"},
        )


class KeyDamaged(EnvironmentProblem):
    """A key file of the wrong size."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"The key {path} does not hold exactly {KEY_BYTES} bytes.",
            "Restore it from a backup.",
            {"key": str(path)},
        )
