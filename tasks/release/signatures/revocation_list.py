"""The revocation list that every bundle carries: what its publisher had retracted when it was delivered.

A release that is out cannot be called back. Whoever has one can hold it against the list of a later bundle: the list
only grows. It is sorted and has no times, so it tells neither when nor in which order releases were retracted.
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
        """The list of these artifacts, each once."""
        return cls(revoked=tuple(sorted(set(artifacts))))

    def require_valid(self, artifact: str) -> None:
        """Check that `artifact` is not on the list.

        Raises:
            Retracted: it is.
        """
        if artifact in self.revoked:
            raise Retracted(artifact)

    def to_bytes(self) -> bytes:
        """The content of `revocations.json`."""
        return encode_json(self.model_dump())

    @classmethod
    def from_bytes(cls, data: bytes) -> "Revocations":
        """Read `revocations.json`.

        Raises:
            FileUnfit: it is not one of ours.
        """
        found = read_as(cls, decode_json(data, REVOCATIONS), REVOCATIONS)
        if found != cls.of(found.revoked):
            raise FileUnfit(REVOCATIONS, "is out of order, or lists something twice")
        return found


class Retracted(Refused):
    """A release that its stewards have retracted."""

    def __init__(self, artifact: str) -> None:
        super().__init__(
            f"This release was retracted: its artifact {artifact} is on a revocation list.",
            "Do not use it, and tell whoever got it from you. Its budget stays spent.",
            {"artifact": artifact},
        )
