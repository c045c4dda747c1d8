"""Address of a place: a path of this machine, or an object in an S3-compatible store; nothing else.

An address is a bucket and a key. It holds no user name, password, query or host, so the audit log can hold it.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from models_db.errors import UsageError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_LONGEST_KEY: Final = 900
"""Bytes of a key; stores take 1,024, and the names of a bundle's files follow the key."""


@dataclass(frozen=True)
class Address:
    """Address of an object, or of all objects below it, in a bucket of a store.

    Attributes:
        key: plain names between single slashes, without one at either end; may be empty.
    """

    bucket: str
    key: str = ""

    def __str__(self) -> str:
        return f"s3://{self.bucket}" + (f"/{self.key}" if self.key else "")

    def __truediv__(self, name: str) -> "Address":
        """Return the address of `name` below this one.

        Raises:
            AddressUnfit: `name` is not one plain name.
        """
        if "/" in name:
            raise AddressUnfit("a name holds a slash")
        return replace(self, key=_checked_key(f"{self.key}/{name}" if self.key else name))

    @property
    def name(self) -> str:
        """Last part of the key; the bucket where the key is empty."""
        return PurePosixPath(self.key).name or self.bucket


Place: TypeAlias = Path | Address


def parse_place(text: str) -> Place:
    """Parse a place that a person has typed: a path, `file:///path`, or `s3://bucket/key`.

    Raises:
        SchemeUnknown: the text begins with another scheme.
        AddressUnfit: the text is no address of an object; the error does not repeat it, because it may hold a secret.
    """
    match = _SCHEME.match(text)
    if match is None:
        return Path(text)
    scheme, rest = match[1].lower(), text[match.end() :]
    if scheme == "file":
        return _path(text)
    if scheme != "s3":
        raise SchemeUnknown(scheme)
    return _address(rest)


def _path(text: str) -> Path:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise AddressUnfit("file:/// is followed by an absolute path")
    return Path(unquote(parts.path))


def _address(rest: str) -> Address:
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise AddressUnfit("after s3:// comes a bucket, of small letters, digits, dots, hyphens and underscores")
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


_GOOGLE: Final = (
    "Name s3://bucket/key, with `endpoint_url: https://storage.googleapis.com` and an HMAC key of Google in stores.yaml"
    " (docs/stores.md#google-and-azure)."
)
_AZURE: Final = "Mount the container, or copy its files here, and name their path (docs/stores.md#google-and-azure)."
_OTHER_WAYS: Final = {"gs": _GOOGLE, "gcs": _GOOGLE, "az": _AZURE, "abfs": _AZURE, "abfss": _AZURE}
"""How the data of other stores are reached, by the scheme that people type."""


class SchemeUnknown(UsageError):
    """Address with a scheme that almoner does not support."""

    def __init__(self, scheme: str) -> None:
        super().__init__(
            f"almoner does not support {scheme}:// addresses.",
            _OTHER_WAYS.get(scheme, "Name a path, file:///path or s3://bucket/key (docs/stores.md)."),
            {"scheme": scheme},
        )


class AddressUnfit(UsageError):
    """Text that looks like an address and is malformed."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The address is not valid: {reason}.",
            "Write s3://bucket/key. Secrets are no part of it: docs/stores.md says where they come from.",
            {"reason": reason},
        )
