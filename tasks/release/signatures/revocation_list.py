"""Revocation list of a bundle: what its publisher had taken back before its delivery.

`revoked` are retracted artifacts. `exposed` are those whose assignment of units to texts got out: what they claim while
it is secret has ended, and their unconditional claim holds.

A published release cannot be called back. Its readers can compare it with the list of a later bundle: the list only
grows. It is sorted and has no times, so it shows neither when nor in which order releases were retracted.
"""

from collections.abc import Iterable
from typing import Final, Literal

from models_db.errors import Refused
from tasks.common.files import FileUnfit, decode_json, encode_json
from tasks.common.strict_model import Digest, Strict, read_as
from tasks.release.file_names import REVOCATIONS

FORMAT: Final = "almoner-revocations/1"


class Revocations(Strict):
    """`revocations.json`: digests of artifacts not to be used any more, and of those whose assignment got out."""

    format: Literal["almoner-revocations/1"] = FORMAT
    revoked: tuple[Digest, ...]
    exposed: tuple[Digest, ...]

    @classmethod
    def of(cls, revoked: Iterable[str], exposed: Iterable[str] = ()) -> "Revocations":
        """Build the list of these artifacts, each once."""
        return cls(revoked=tuple(sorted(set(revoked))), exposed=tuple(sorted(set(exposed))))

    def require_valid(self, artifact: str) -> None:
        """Check that `artifact` is not on the list.

        Raises:
            Retracted: it is on the list.
        """
        if artifact in self.revoked:
            raise Retracted(artifact)

    def to_bytes(self) -> bytes:
        """Return the content of `revocations.json`."""
        return encode_json(self.model_dump())

    @classmethod
    def from_bytes(cls, data: bytes) -> "Revocations":
        """Read `revocations.json`.

        Raises:
            FileUnfit: it is not in almoner's format.
        """
        revocations = read_as(cls, decode_json(data, REVOCATIONS), REVOCATIONS)
        if revocations != cls.of(revocations.revoked, revocations.exposed):
            raise FileUnfit(REVOCATIONS, "is out of order, or lists an artifact twice")
        return revocations


class Retracted(Refused):
    """A release that its stewards have retracted."""

    def __init__(self, artifact: str) -> None:
        super().__init__(
            f"This release was retracted: its artifact {artifact} is on a revocation list.",
            "Do not use it, and inform everybody who received it from you. Its budget stays spent.",
            {"artifact": artifact},
        )
