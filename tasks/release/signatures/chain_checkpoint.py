"""Signed checkpoint of the audit chain inside a bundle.

The owner of an old bundle can later prove that the ledger was rewritten or cut. It holds the hash of the chain's
head, but neither its number nor a time: these would show how many attempts a release took.
"""

from typing import Final, Literal

from models_db.values.canonical_json import encode_canonical
from tasks.common.files import decode_json, encode_json
from tasks.common.strict_model import Digest, Strict, read_as
from tasks.release.file_names import CHECKPOINT
from tasks.release.signatures import ed25519

FORMAT: Final = "almoner-checkpoint/1"


class Checkpoint(Strict):
    """The head of the audit chain when this artifact was published."""

    format: Literal["almoner-checkpoint/1"] = FORMAT
    artifact_sha256: Digest
    ledger_head: Digest
    public_key: Digest
    signature: str

    @classmethod
    def signed(cls, artifact: str, ledger_head: str, key: ed25519.SigningKey) -> "Checkpoint":
        """Sign `artifact` and the chain's head with `key`."""
        statement = _statement(artifact, ledger_head)
        return cls(
            artifact_sha256=artifact,
            ledger_head=ledger_head,
            public_key=key.public_key,
            signature=key.sign(statement),
        )

    @property
    def authentic(self) -> bool:
        """Return whether its key signed exactly this checkpoint."""
        return ed25519.verify(self.public_key, self.signature, _statement(self.artifact_sha256, self.ledger_head))

    def to_bytes(self) -> bytes:
        """Return the content of `checkpoint.json`."""
        return encode_json(self.model_dump())

    @classmethod
    def from_bytes(cls, data: bytes) -> "Checkpoint":
        """Read `checkpoint.json`.

        Raises:
            FileUnfit: it is not in almoner's format.
        """
        return read_as(cls, decode_json(data, CHECKPOINT), CHECKPOINT)


def _statement(artifact: str, ledger_head: str) -> bytes:
    return encode_canonical({"format": FORMAT, "artifact_sha256": artifact, "ledger_head": ledger_head})
