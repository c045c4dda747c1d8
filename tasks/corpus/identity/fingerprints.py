"""Keyed fingerprints that say whether two datasets share units, a source or a content (PRIVACY §1).

They exist so that the same people cannot be registered twice for two budgets. A plain hash of private text is
a deterministic function of the data and would let anybody test a guess; so every fingerprint is keyed, and
all of them are private: they stay in the project home and its ledger, never in a log, a card or a bundle.
"""

import hashlib
import hmac

from tasks.corpus.identity.keys import keyed_hash, length_prefixed


def mark_of(overlap_key: bytes, unit: str) -> bytes:
    """Return the mark of a normalised unit id, 32 bytes; equal in every dataset of the home."""
    return keyed_hash(overlap_key, "unit mark", unit)


def source_mark(overlap_key: bytes, source_digest: bytes) -> bytes:
    """Return the mark of a source, from the SHA-256 of its bytes (`readers.source_digest`); 32 bytes."""
    return keyed_hash(overlap_key, "source mark", source_digest)


class ManifestMark:
    """Mark of a corpus' ordered content, the same for every file format; fed one document at a time.

    HMAC-SHA256 over the label "manifest mark" and then unit, document id and text of each document, all
    encoded as in `keys.keyed_hash`. A missing unit or document id counts as "", which no real one is.
    """

    def __init__(self, overlap_key: bytes) -> None:
        self._hmac = hmac.new(overlap_key, length_prefixed("manifest mark"), hashlib.sha256)

    def add(self, unit: str | None, document_id: str | None, text: str) -> None:
        """Add the next document to the mark."""
        self._hmac.update(b"".join(map(length_prefixed, (unit or "", document_id or "", text))))

    def hexdigest(self) -> str:
        """Return the mark so far, 64 hexadecimal digits."""
        return self._hmac.hexdigest()
