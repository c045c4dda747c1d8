"""Revocation list of a bundle: the artifacts that its publisher had retracted before its delivery.

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
    """`revocations.json`: digests of the artifacts that must not be used any more."""

    format: Literal["almoner-revocations/1"] = FORMAT
    revoked: tuple[Digest, ...]

    @classmethod
    def of(cls, artifacts: Iterable[str]) -> "Revocations":
        """Build the list of these artifacts, each once."""
        return cls(revoked=tuple(sorted(set(artifacts))))

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
        if revocations != cls.of(revocations.revoked):
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
