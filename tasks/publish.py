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


Decisions = Sequence[tuple[Approval, Principal]]


@private_task
def require_publishable(folder: Path, artifact: Artifact, decisions: Decisions) -> None:
    """Check, before anything is recorded, that the draft is what was produced and that its approvals are genuine."""
    draft.rehash(folder, json.loads(artifact.files))
    bundle.require_decided(folder, json.loads(artifact.files), _signed(decisions))


@private_task
def deliver(
    folder: Path, artifact: Artifact, decisions: Decisions, ledger_head: str,
    key: SigningKey, destination: Path,
) -> DeliveredBundle:  # fmt: skip
    """Write the bundle below `destination` and verify it there."""
    made = bundle.write_bundle(folder, json.loads(artifact.files), _signed(decisions), ledger_head, key, destination)
    return DeliveredBundle(made.folder, made.digest, Checkpoint.from_bytes(read_document(made.folder / CHECKPOINT)))


def _signed(decisions: Decisions) -> list[SignedDecision]:
    return [SignedDecision.of(approval, approver) for approval, approver in decisions]
