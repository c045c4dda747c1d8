"""Address of a place: a path of this machine, or `s3://bucket/key`; nothing else.

An address is two words, a bucket and a key. It holds no name, password, query or host, so it can be kept in the record.
"""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from models_db.errors import UsageError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_LONGEST_KEY: Final = 900
"""S3 takes 1,024 bytes; a bundle's files are named below the key."""
SCHEMES: Final = ("file", "s3")


@dataclass(frozen=True)
class Address:
    """An object, or whatever lies below it, in a bucket of an S3-compatible store.

    Attributes:
        key: plain names between single slashes, without one at either end; may be empty.
    """

    bucket: str
    key: str = ""

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}" if self.key else f"s3://{self.bucket}"

    def __truediv__(self, name: str) -> "Address":
        """What is called `name` below this address.

        Raises:
            AddressUnfit: the name is not one plain name.
        """
        if "/" in name:
            raise AddressUnfit("a name holds a slash")
        return Address(self.bucket, _checked_key(f"{self.key}/{name}" if self.key else name))

    @property
    def name(self) -> str:
        """Its last part."""
        return PurePosixPath(self.key).name or self.bucket


Place: TypeAlias = Path | Address


def located(text: str) -> Place:
    """What a person means by `text`: a path, `file:///path`, or `s3://bucket/key`.

    Raises:
        SchemeUnknown: it begins with another scheme.
        AddressUnfit: it is no address of an object; what was typed is not repeated, because it may hold a secret.
    """
    found = _SCHEME.match(text)
    if found is None:
        return Path(text)
    scheme, rest = found[1].lower(), text[found.end() :]
    if scheme not in SCHEMES:
        raise SchemeUnknown(scheme)
    return _path(text) if scheme == "file" else _address(rest)


def _path(text: str) -> Path:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise AddressUnfit("file:/// is followed by an absolute path")
    return Path(unquote(parts.path))


def _address(rest: str) -> Address:
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise AddressUnfit("after s3:// comes a bucket, of small letters, digits, dots and hyphens")
    return Address(bucket, _checked_key(key.removesuffix("/")))


def _checked_key(key: str) -> str:
    if not key:
        return key
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise AddressUnfit("a key has no empty part and no `.` or `..`")
    if any(sign in "?#\\" or not sign.isprintable() for sign in key):
        raise AddressUnfit("a key has no `?`, `#`, `\\` or invisible sign")
    if len(key.encode()) > _LONGEST_KEY:
        raise AddressUnfit(f"a key has at most {_LONGEST_KEY} bytes")
    return key


class SchemeUnknown(UsageError):
    """An address of a kind that is not reached from here."""

    def __init__(self, scheme: str) -> None:
        super().__init__(
            f"almoner does not support {scheme}:// addresses.",
            "Name a path, file:///path or s3://bucket/key (docs/stores.md).",
            {"scheme": scheme},
        )


class AddressUnfit(UsageError):
    """Something that looks like an address and is none."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The address is not valid: {reason}.",
            "Write s3://bucket/key. Secrets are no part of it: docs/stores.md says where they come from.",
            {"reason": reason},
        )
