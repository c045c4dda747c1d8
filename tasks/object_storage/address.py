"""Address of a place: a path of this machine, or an object in a store of one of three kinds; nothing else.

An address is a bucket and a key. It holds no user name, password, query or host, so the audit log can hold it.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from models_db.errors import UsageError

S3: Final = "s3"
GOOGLE: Final = "gs"
AZURE: Final = "az"
_SCHEMES: Final = {"s3": S3, "gs": GOOGLE, "gcs": GOOGLE, "az": AZURE, "abfs": AZURE, "abfss": AZURE}
"""The schemes that people type, and how almoner writes them."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_LONGEST_KEY: Final = 900
"""Bytes of a key; stores take 1,024, and the names of a bundle's files follow the key."""


@dataclass(frozen=True)
class Address:
    """Address of an object, or of all objects below it, in a bucket of a store.

    Attributes:
        bucket: the bucket; for Azure, the container.
        key: plain names between single slashes, without one at either end; may be empty.
        scheme: the kind of the store: S3, GOOGLE or AZURE.
    """

    bucket: str
    key: str = ""
    scheme: str = S3

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.key}" if self.key else "")

    def __truediv__(self, name: str) -> "Address":
        """Return the address of `name` below this one.

        Raises:
            AddressUnfit: `name` is not one plain name.
        """
        if "/" in name:
            raise address_unfit("a name holds a slash")
        return replace(self, key=_checked_key(f"{self.key}/{name}" if self.key else name))

    @property
    def name(self) -> str:
        """Last part of the key; the bucket where the key is empty."""
        return PurePosixPath(self.key).name or self.bucket


Place: TypeAlias = Path | Address


def parse_place(text: str) -> Place:
    """Parse a place that a person has typed: a path, `file:///path`, or `SCHEME://bucket/key`.

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
    if scheme not in _SCHEMES:
        raise UsageError(
            f"almoner does not support {scheme}:// addresses.",
            "Name a path, file:///path, s3://bucket/key, gs://bucket/key or az://container/key (docs/stores.md).",
            {"scheme": scheme},
            code="SchemeUnknown",
        )
    return _address(_SCHEMES[scheme], rest)


def _path(text: str) -> Path:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise address_unfit("file:/// is followed by an absolute path")
    return Path(unquote(parts.path))


def _address(scheme: str, rest: str) -> Address:
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise address_unfit(
            f"after {scheme}:// comes a bucket, of small letters, digits, dots, hyphens and underscores"
        )
    return Address(bucket, _checked_key(key.removesuffix("/")), scheme)


def _checked_key(key: str) -> str:
    if not key:
        return key
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise address_unfit("a key has no empty part and no `.` or `..`")
    if any(sign in "?#\\" or not sign.isprintable() for sign in key):
        raise address_unfit("a key has no `?`, `#`, `\\` or invisible sign")
    if len(key.encode()) > _LONGEST_KEY:
        raise address_unfit(f"a key has at most {_LONGEST_KEY} bytes")
    return key


def address_unfit(reason: str) -> UsageError:
    """Return the error of a text that looks like an address and is malformed."""
    return UsageError(
        f"The address is not valid: {reason}.",
        "Write s3://bucket/key, gs://bucket/key or az://container/key. Secrets are no part of it:"
        " docs/stores.md says where they come from.",
        {"reason": reason},
        code="AddressUnfit",
    )
