"""Publish: the quarantined draft, checked against what was approved, becomes a signed bundle."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models_db.tables import Approval, Artifact, Principal
from tasks.publishing import bundle, draft
from tasks.publishing.approvals import SignedDecision
from tasks.publishing.checkpoint import Checkpoint
from tasks.publishing.layout import CHECKPOINT, read_document
from tasks.publishing.signing import SigningKey
from tasks.shell import private_task


@dataclass(frozen=True)
class DeliveredBundle:
    """A bundle in place, and the checkpoint that travels with it."""

    folder: Path
    digest: str
    checkpoint: Checkpoint


@private_task
def require_unchanged(folder: Path, artifact: Artifact) -> None:
    """Check that the draft is, byte for byte, what the ledger recorded."""
    draft.rehash(folder, json.loads(artifact.files))


@private_task
def deliver(
    folder: Path, artifact: Artifact, decisions: Sequence[tuple[Approval, Principal]], ledger_head: str,
    key: SigningKey, destination: Path,
) -> DeliveredBundle:  # fmt: skip
    """Write the bundle below `destination` and verify it there."""
    signed = [SignedDecision.of(approval, approver) for approval, approver in decisions]
    made = bundle.write_bundle(folder, json.loads(artifact.files), signed, ledger_head, key, destination)
    return DeliveredBundle(made.folder, made.digest, Checkpoint.from_bytes(read_document(made.folder / CHECKPOINT)))
