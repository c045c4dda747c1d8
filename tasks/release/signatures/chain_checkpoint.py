"""Signed checkpoint of the audit chain inside a bundle.

The owner of an old bundle can later prove that the ledger was rewritten or cut. It holds the hash of the chain's
head, but neither its number nor a time: these would show how many attempts a release took. It also says what the ledger
has charged for the release, and leaves out what attempts that failed have lost.
"""

from typing import Final, Literal

from models_db.values.canonical_json import encode_canonical
from tasks.common.files import decode_json, encode_json
from tasks.common.strict_model import Digest, Figure, Strict, read_as
from tasks.release.file_names import CHECKPOINT
from tasks.release.signatures import ed25519

FORMAT: Final = "almoner-checkpoint/2"


class Charged(Strict):
    """What the ledger has charged each of these blocks for a release: rho and failure delta."""

    blocks: tuple[int, ...]
    rho: Figure
    delta: Figure


class Checkpoint(Strict):
    """The head of the audit chain when this artifact was published, and the charge of its release."""

    format: Literal["almoner-checkpoint/2"] = FORMAT
    artifact_sha256: Digest
    ledger_head: Digest
    charged: Charged
    public_key: Digest
    signature: str

    @classmethod
    def signed(cls, artifact: str, ledger_head: str, charged: Charged, key: ed25519.SigningKey) -> "Checkpoint":
        """Sign `artifact`, the chain's head and the charge with `key`."""
        statement = checkpoint_statement(artifact, ledger_head, charged)
        return cls(
            artifact_sha256=artifact,
            ledger_head=ledger_head,
            charged=charged,
            public_key=key.public_key,
            signature=key.sign(statement),
        )

    @property
    def authentic(self) -> bool:
        """Return whether its key signed exactly this checkpoint."""
        statement = checkpoint_statement(self.artifact_sha256, self.ledger_head, self.charged)
        return ed25519.verify(self.public_key, self.signature, statement)

    def to_bytes(self) -> bytes:
        """Return the content of `checkpoint.json`."""
        return encode_json(self.model_dump())

    @classmethod
    def from_bytes(cls, data: bytes) -> "Checkpoint":
        """Read `checkpoint.json`.

        Raises:
            FileUnfit: it is not in this format; before it, `/1`, no charge was stated.
        """
        return read_as(cls, decode_json(data, CHECKPOINT), CHECKPOINT)


def checkpoint_statement(artifact: str, ledger_head: str, charged: Charged) -> bytes:
    """Return the bytes that a checkpoint's key signs."""
    return encode_canonical({
        "format": FORMAT, "artifact_sha256": artifact, "ledger_head": ledger_head,
        "charged": charged.model_dump(mode="json"),
    })  # fmt: skip
