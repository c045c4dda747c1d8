"""Signed bundle from an approved draft, a folder that anybody can check; written completely or not at all.

The bundle is built beside its destination under another name, verified there as a stranger would verify it, and
renamed. A crash leaves only the half-built folder, which the next call removes. A bundle shows neither when nor after
how many attempts the release was made.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from models_db.errors import EnvironmentProblem, Refused
from models_db.values.canonical_json import digest
from tasks.common.files import FileTable, FileUnfit, copy_new, measure, read_document, sync_folder, write_new
from tasks.common.retry import is_temporary
from tasks.object_storage.address import Address, Place
from tasks.publishing.draft import rehash
from tasks.publishing.open_bundle import OpenedBundle
from tasks.publishing.verify import verify_release
from tasks.release.file_names import (
    APPROVALS,
    ATTESTATION,
    CHECKPOINT,
    RECORD,
    REVOCATIONS,
    SUMS,
    SUMS_SIGNATURE,
    bundle_name,
    checksum_lines,
)
from tasks.release.record import ReleaseRecord
from tasks.release.signatures.approvals import (
    SignedDecision,
    approvals_document,
    passkey_approvers,
    require_approved,
    required_approvals,
    subjects_of,
)
from tasks.release.signatures.attestation import attest, envelope, envelope_document, require_attested
from tasks.release.signatures.chain_checkpoint import Charged, Checkpoint
from tasks.release.signatures.ed25519 import SigningKey
from tasks.release.signatures.in_toto_statement import statement
from tasks.release.signatures.revocation_list import Revocations
from tasks.release.signatures.seal import Seal

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope


@dataclass(frozen=True)
class WrittenBundle:
    """A finished bundle; `digest` is the SHA-256 of its SHA256SUMS, which covers every byte of it.

    Attributes:
        folder: where it was built, and stays unless it was uploaded to `place`.
    """

    folder: Path
    digest: str
    checkpoint: Checkpoint
    place: Address | None = None


@dataclass(frozen=True)
class BundleDocuments:
    """Ledger records about a draft.

    Attributes:
        approvals: all decisions on the request, and on its standing authorisation; decisions on other requests or bytes
            are left out.
        attestations: the signatures of its statement, given with the approvals of these bytes.
        ledger_head: hash of the newest link of the audit chain.
        charged: what the ledger has charged for the release.
        revoked: digests of all artifacts that were retracted.
        exposed: digests of all published artifacts whose assignment of units to texts got out.
    """

    approvals: Sequence[SignedDecision]
    attestations: Sequence[str]
    ledger_head: str
    charged: Charged
    revoked: Sequence[str]
    exposed: Sequence[str] = ()


@dataclass(frozen=True)
class _Approved:
    """An approved draft, with the decisions and the key of its publication."""

    draft: Path
    files: FileTable
    record: ReleaseRecord
    decisions: tuple[SignedDecision, ...]
    attestations: tuple[str, ...]
    key: SigningKey

    @property
    def attestation(self) -> "Envelope":
        """The statement with the stewards' signatures and the publisher's."""
        payload = statement(self.record, self.files)
        return envelope(payload, [*self.attestations, attest(payload, self.key)])

    def added(self, ledger_head: str, charged: Charged, revoked: Revocations) -> dict[str, bytes]:
        """Return names and contents of the files that the bundle has beyond those of the draft."""
        contents = {
            APPROVALS: approvals_document(self.decisions),
            CHECKPOINT: Checkpoint.signed(digest(self.files), ledger_head, charged, self.key).to_bytes(),
            ATTESTATION: envelope_document(self.attestation),
            REVOCATIONS: revoked.to_bytes(),
        }
        digests = {name: str(facts["sha256"]) for name, facts in self.files.items()}
        contents[SUMS] = checksum_lines(digests | {name: _sha256(data) for name, data in contents.items()})
        contents[SUMS_SIGNATURE] = Seal.on(contents[SUMS], self.key).to_bytes()
        return contents


def write_bundle(
    draft: Path, files: FileTable, documents: BundleDocuments, key: SigningKey, destination: Path
) -> WrittenBundle:
    """Publish an approved draft as `destination/<dataset>-release-<number>/` (folder 0755, files 0644).

    Publishing the same draft again finds the existing bundle and leaves it unchanged.

    Args:
        files: the approved table of files, from the ledger.

    Raises:
        ArtifactChanged: the draft differs from `files`.
        NotApproved, NotAttested: too few stewards approved or attested exactly this request and these bytes.
        Retracted: the release is on its own revocation list.
        BundleExists: another bundle has its name there.
        BundleInvalid: the bundle would not verify.
        DestinationUnusable: the destination cannot be written.
    """
    rehash(draft, files)
    approved = require_decided(draft, files, documents, key)
    revoked = Revocations.of(documents.revoked, documents.exposed)
    revoked.require_valid(digest(files))
    target = destination / bundle_name(approved.record.dataset.name, approved.record.release)
    try:
        destination.mkdir(parents=True, exist_ok=True)
        with alone_in(destination):
            if not os.path.lexists(target):
                _build(approved, approved.added(documents.ledger_head, documents.charged, revoked), target)
            return _in_place(approved, target)
    except OSError as error:
        raise destination_unusable(destination, error) from None


def require_decided(draft: Path, files: FileTable, documents: BundleDocuments, key: SigningKey) -> _Approved:
    """Return the draft with the decisions on exactly its request and these bytes, to be published with `key`.

    Raises:
        NotApproved: the decisions do not open both gates, or one is not genuine.
        NotAttested: too few of its approvers signed its statement, or another person did.
    """
    record = ReleaseRecord.from_bytes(read_document(draft / RECORD))
    subjects = {(gate, subject) for gate, (_, subject) in subjects_of(record, digest(files)).items()}
    decisions = tuple(
        decision for decision in documents.approvals if (decision.gate, decision.subject_sha256) in subjects
    )
    require_approved(decisions, record, digest(files))
    approved = _Approved(draft, files, record, decisions, tuple(documents.attestations), key)
    require_attested(
        approved.attestation,
        statement(record, files),
        stewards=[decision.public_key for decision in decisions if decision.gate == "publish"],
        threshold=required_approvals(record)["publish"],
        publisher=key.public_key,
        by_passkey=passkey_approvers(decisions),
    )
    return approved


def _build(approved: _Approved, added: Mapping[str, bytes], target: Path) -> None:
    partial = target.with_name(f".{target.name}.partial")
    _remove(partial)
    partial.mkdir()
    partial.chmod(0o755)
    for name in approved.files:
        copy_new(approved.draft / name, partial / name, 0o644)
    for name, data in added.items():
        write_new(partial / name, data, 0o644)
    sync_folder(partial)
    report = verify_release(partial, approved.key.public_key)
    if not report.holds:
        _remove(partial)
        raise _bundle_invalid([f"{check.name}: {check.detail.rstrip('.')}" for check in report.checks if not check.ok])
    partial.rename(target)
    sync_folder(target.parent)


def _in_place(approved: _Approved, target: Path) -> WrittenBundle:
    """Return the bundle at `target` if it is this release; chain and revocations may have grown since its delivery."""
    try:
        existing = OpenedBundle(target)
        added = approved.added(existing.checkpoint.ledger_head, existing.checkpoint.charged, existing.revocations)
        expected = {name: str(facts["sha256"]) for name, facts in approved.files.items()}
        expected |= {name: _sha256(data) for name, data in added.items()}
        digests = {name: str(measure(target / name)["sha256"]) for name in os.listdir(target)}
    except (FileUnfit, NotADirectoryError):
        raise BundleExists(target) from None
    if target.is_symlink() or digests != expected:
        raise BundleExists(target)
    return WrittenBundle(target, expected[SUMS], existing.checkpoint)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process publishes into `folder`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove(partial: Path) -> None:
    if partial.is_symlink() or partial.is_file():
        partial.unlink()
    elif partial.exists():
        shutil.rmtree(partial)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class BundleExists(Refused):
    """The name of the bundle is taken by other content."""

    def __init__(self, target: Place) -> None:
        super().__init__(
            f"Refused: {target} holds other content, and a published bundle is never overwritten.",
            "Publish to another destination, or find out who changed its content.",
            {"bundle": str(target)},
        )


def _bundle_invalid(failures: list[str]) -> Refused:
    return Refused(
        f"The bundle does not verify: {'; '.join(failures)}.",
        "Nothing was delivered. Report this: the run produced a release that contradicts itself.",
        {"failures": failures},
        code="BundleInvalid",
    )


def destination_unusable(destination: Path, error: OSError) -> EnvironmentProblem:
    """Return the error of a bundle that cannot be written to its destination."""
    return EnvironmentProblem(
        f"The bundle cannot be written to {destination}: {error.strerror}.",
        "Make room, or choose another folder; then publish again.",
        {"destination": str(destination)},
        temporary=is_temporary(error),
        code="DestinationUnusable",
    )
