"""Publication of a quarantined draft: checks it against its approvals and delivers it as a signed bundle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models_db.services.audit.stored_text import files_of
from models_db.tables import Approval, Artifact, Passkey, Principal
from tasks.object_storage.address import Place
from tasks.prefect_task import private_task
from tasks.publishing import bundle, draft
from tasks.publishing.bundle import BundlePrefix, upload_bundle
from tasks.release.signatures.approvals import SignedDecision
from tasks.release.signatures.ed25519 import SigningKey
from tasks.release.signatures.publisher_statements import Charged, Checkpoint


@dataclass(frozen=True)
class DeliveredBundle:
    """A delivered bundle, and the checkpoint inside it."""

    place: Place
    digest: str
    checkpoint: Checkpoint


Decisions = Sequence[tuple[Approval, Principal]]


@private_task
def require_publishable(folder: Path, artifact: Artifact, documents: bundle.BundleDocuments, key: SigningKey) -> None:
    """Check, before anything is recorded, that the draft is as its run produced it and its approvals are genuine."""
    files = files_of(artifact)
    draft.rehash(folder, files)
    bundle.require_decided(folder, files, documents, key)


@private_task
def deliver(
    folder: Path,
    artifact: Artifact,
    documents: bundle.BundleDocuments,
    key: SigningKey,
    destination: Path | BundlePrefix,
) -> DeliveredBundle:
    """Write the bundle below `destination`, a folder or a prefix in an object store, and verify it there."""
    files = files_of(artifact)
    if isinstance(destination, BundlePrefix):
        written = upload_bundle(folder, files, documents, key, destination)
    else:
        written = bundle.write_bundle(folder, files, documents, key, destination)
    return DeliveredBundle(written.place or written.folder, written.digest, written.checkpoint)


def documents_of_release(
    artifact: Artifact,
    decisions: Decisions,
    passkeys: Mapping[int, Passkey],
    ledger: str,
    ledger_head: str,
    charged: Charged,
    revoked: Sequence[str],
    exposed: Sequence[str],
) -> bundle.BundleDocuments:
    """Return the ledger's records of an artifact, in the form of a bundle.

    Args:
        decisions: those on its request, oldest first, without withdrawn ones.
        passkeys: those that signed some of the decisions, by id.
        ledger: its identity, for which these passkeys have to be certified.
    """
    newest = {(a.gate, a.subject_digest, a.approver_id, a.decision): (a, principal) for a, principal in decisions}
    approvals = [
        SignedDecision.of(
            a,
            principal,
            passkeys[a.passkey_id] if a.passkey_id is not None else None,
            ledger,
        )
        for a, principal in newest.values()
    ]
    attestations = [
        a.attestation for a, _ in newest.values() if a.attestation is not None and a.subject_digest == artifact.digest
    ]
    return bundle.BundleDocuments(approvals, attestations, ledger_head, charged, revoked, exposed)
