"""What a publisher states in a bundle: a checkpoint of the audit chain, what was taken back, the seal on every file.

*Checkpoint* (`checkpoint.json`, signed). The owner of an old bundle can later prove that the ledger was rewritten or
cut. It holds the hash of the chain's head, but neither its number nor a time: these would show how many attempts a
release took. It also says what the ledger has charged for the release, and leaves out what attempts that failed have
lost.

*Revocations* (`revocations.json`): what the publisher had taken back before the delivery. `revoked` are retracted
artifacts. `exposed` are those whose assignment of units to texts got out: what they claim while it is secret has ended,
and their unconditional claim holds. A published release cannot be called back. Its readers can compare it with the list
of a later bundle: the list only grows. It is sorted and has no times, so it shows neither when nor in which order
releases were retracted.

*Seal* (`SHA256SUMS.sig`): the publisher's signature on SHA256SUMS, and through it on every file.
"""

from collections.abc import Iterable
from typing import Final, Literal

from models_db.errors import Refused
from models_db.values.canonical_json import encode_canonical
from tasks.common.files import FileUnfit, decode_json, encode_json
from tasks.common.published_values import Digest, Figure, Strict, read_as
from tasks.release.bundle_format import CHECKPOINT, REVOCATIONS, SUMS_SIGNATURE
from tasks.release.signatures import ed25519

CHECKPOINT_FORMAT: Final = "almoner-checkpoint/2"


class Charged(Strict):
    """What the ledger has charged each of these blocks for a release: rho and failure delta."""

    blocks: tuple[int, ...]
    rho: Figure
    delta: Figure


class Checkpoint(Strict):
    """The head of the audit chain when this artifact was published, and the charge of its release."""

    format: Literal["almoner-checkpoint/2"] = CHECKPOINT_FORMAT
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
        "format": CHECKPOINT_FORMAT, "artifact_sha256": artifact, "ledger_head": ledger_head,
        "charged": charged.model_dump(mode="json"),
    })  # fmt: skip


REVOCATIONS_FORMAT: Final = "almoner-revocations/1"


class Revocations(Strict):
    """`revocations.json`: digests of artifacts not to be used any more, and of those whose assignment got out."""

    format: Literal["almoner-revocations/1"] = REVOCATIONS_FORMAT
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


SEAL_FORMAT: Final = "almoner-signature/1"


class Seal(Strict):
    """`SHA256SUMS.sig`: a public key and its signature on the bytes of SHA256SUMS."""

    format: Literal["almoner-signature/1"] = SEAL_FORMAT
    public_key: Digest
    signature: str

    @classmethod
    def on(cls, sums: bytes, key: ed25519.SigningKey) -> "Seal":
        """Sign the bytes of SHA256SUMS."""
        return cls(public_key=key.public_key, signature=key.sign(sums))

    def fits(self, sums: bytes) -> bool:
        """Return whether its key signed exactly these bytes."""
        return ed25519.verify(self.public_key, self.signature, sums)

    def to_bytes(self) -> bytes:
        """Return the content of `SHA256SUMS.sig`."""
        return encode_json(self.model_dump())

    @classmethod
    def from_bytes(cls, data: bytes) -> "Seal":
        """Read `SHA256SUMS.sig`.

        Raises:
            FileUnfit: it is not in almoner's format.
        """
        return read_as(cls, decode_json(data, SUMS_SIGNATURE), SUMS_SIGNATURE)
