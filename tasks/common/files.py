"""Careful reading and writing of files: regular files only, whole, and in the one form of their content.

A JSON object is read only from text on which two RFC 8259 readers agree (`parse_object`).
"""

import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from models_db.errors import Refused
from models_db.values.canonical_json import InvalidJson, Json, encode_canonical, parse_json

FileTable: TypeAlias = "dict[str, dict[str, str | int]]"
"""{name: {"sha256": 64 hexadecimal digits, "bytes": size}}"""

NO_FILE = "it is a pipe, a socket or a device, and not a file"

_CHUNK = 1 << 20
_LARGEST_DOCUMENT = 64 << 20
_DEEPEST_DOCUMENT = 128  # a record may have a schema in it


class FileUnfit(Refused):
    """A file of a draft or bundle that is missing, not a plain file, or not in its format."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} {reason}.", "Do not rely on this folder.", {"file": name, "reason": reason})
        self.reason = reason


def require_user_file(path: Path) -> None:
    """Check that a path that a user has named leads to a regular file or a folder; links are followed.

    Raises:
        OSError: it is missing, or a pipe, a socket or a device: a pipe lets its reader wait, a device may have no end.
    """
    if not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, NO_FILE, str(path))


def open_user_file(path: Path) -> BufferedReader:
    """Open a file that a user has named for reading bytes; every such file is opened here.

    Raises:
        OSError: it cannot be opened, or is no regular file (`require_user_file`).
    """
    require_user_file(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    file = open(descriptor, "rb")  # noqa: SIM115 - the caller closes it; of a folder it raises IsADirectoryError
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # replaced meanwhile
        file.close()
        raise OSError(errno.EINVAL, NO_FILE, str(path))
    return file


@contextmanager
def open_regular_file(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading, following no link and waiting for no pipe.

    Raises:
        FileUnfit: it is anything else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise FileUnfit(
            path.name, "is missing" if isinstance(error, FileNotFoundError) else "is no plain file"
        ) from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileUnfit(path.name, "is no plain file")
        yield file


def measure(path: Path) -> dict[str, str | int]:
    """Return SHA-256 and size of a plain file."""
    hasher, size = hashlib.sha256(), 0
    with open_regular_file(path) as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
            size += len(chunk)
    return {"sha256": hasher.hexdigest(), "bytes": size}


def file_facts(data: bytes) -> dict[str, str | int]:
    """Return SHA-256 and size of the content of a file."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def read_document(path: Path, most: int = _LARGEST_DOCUMENT) -> bytes:
    """Read a plain file of moderate size, up to a limit of bytes."""
    with open_regular_file(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise FileUnfit(path.name, "is too large")
    return data


def encode_json(value: Json) -> bytes:
    """Encode a value as the one content of a JSON file of almoner: its canonical bytes and a newline."""
    return encode_canonical(value) + b"\n"


def decode_json(data: bytes, name: str) -> Json:
    """Return the value whose `encode_json` is `data`.

    Raises:
        FileUnfit: not JSON, or not in its canonical form (a float, a repeated key, another spelling).
    """
    try:
        value: Json = parse_json(data, most_bytes=len(data), most_depth=_DEEPEST_DOCUMENT)  # who read it had a bound
        same = encode_json(value) == data
    except (ValueError, TypeError, RecursionError):
        raise FileUnfit(name, "is not canonical JSON") from None
    if not same:
        raise FileUnfit(name, "is not canonical JSON")
    return value


def write_new(path: Path, data: bytes, mode: int, *, durable: bool = True) -> None:
    """Write a file that must not exist yet; if `durable`, it is on disk when this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        if durable:
            os.fsync(descriptor)


def write_over(path: Path, data: bytes, mode: int, *, durable: bool = True) -> None:
    """Write a file in place of an earlier one, if there is one: the name is only given to a whole file.

    If `durable`, the file and its name are on disk when this returns. A failure leaves the earlier file unchanged.

    Raises:
        OSError: the target is a folder, a device or a pipe, or cannot be written.
    """
    _require_replaceable(path)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        write_new(beside, data, mode, durable=durable)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def _require_replaceable(path: Path) -> None:
    """Check that a name is free or leads to a regular file: a replaced device is gone for the whole machine."""
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def copy_new(source: Path, target: Path, mode: int) -> None:
    """Copy a plain file's bytes to a file that must not exist yet; they are on disk when this returns."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as copy, open_regular_file(source) as file:
        os.fchmod(descriptor, mode)
        while chunk := file.read(_CHUNK):
            copy.write(chunk)
        copy.flush()
        os.fsync(descriptor)


def remove_path(path: Path) -> None:
    """Remove a file, a link or a folder with its content; a missing path is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LARGEST_OBJECT = 16 << 20
"""Maximum number of bytes of the text of one object."""


def parse_object(raw: str) -> dict[str, Any] | None:
    """Return the one JSON object (RFC 8259) that `raw` is, None if it is anything else.

    No key twice, no NaN or infinity, no number too large for a float, valid Unicode: what parses can be written again.
    """
    try:
        value = parse_json(raw, most_bytes=LARGEST_OBJECT)
    except InvalidJson:
        return None
    return value if isinstance(value, dict) else None
