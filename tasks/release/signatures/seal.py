"""Publisher's signature on a bundle: on SHA256SUMS, and through it on every file."""

from typing import Final, Literal

from tasks.common.files import decode_json, encode_json
from tasks.common.strict_model import Digest, Strict, read_as
from tasks.release.file_names import SUMS_SIGNATURE
from tasks.release.signatures import ed25519

FORMAT: Final = "almoner-signature/1"


class Seal(Strict):
    """`SHA256SUMS.sig`: a public key and its signature on the bytes of SHA256SUMS."""

    format: Literal["almoner-signature/1"] = FORMAT
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
