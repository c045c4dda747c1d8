"""Publishing: from an approved draft to a signed folder that anyone may check, all or nothing.

The bundle is built beside its place under another name, verified there as a stranger would verify it, and renamed. A
crash leaves only the half-built folder, which the next call removes. It tells neither when nor after how many attempts
the release was made.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from models_db.canonical import digest
from models_db.errors import EnvironmentProblem, Refused
from tasks.publishing.approvals import SignedDecision, approvals_document, require_approved
from tasks.publishing.checkpoint import Checkpoint
from tasks.publishing.draft import rehash
from tasks.publishing.layout import (
    APPROVALS,
    CHECKPOINT,
    RECORD,
    SUMS,
    SUMS_SIGNATURE,
    FileTable,
    FileUnfit,
    bundle_name,
    copy_new,
    measure,
    read_document,
    sums,
    sync_folder,
    write_new,
)
from tasks.publishing.record import ReleaseRecord
from tasks.publishing.seal import Seal
from tasks.publishing.signing import SigningKey
from tasks.publishing.verify import verify_release


@dataclass(frozen=True)
class WrittenBundle:
    """A bundle in place; `digest` is the SHA-256 of its SHA256SUMS, which names every byte of it."""

    folder: Path
    digest: str


@dataclass(frozen=True)
class _Approved:
    """An approved draft, and what is added to it on publication."""

    draft: Path
    files: FileTable
    decisions: tuple[SignedDecision, ...]
    key: SigningKey

    def added(self, ledger_head: str) -> dict[str, bytes]:
        """Names and contents of the files that the bundle has beyond the draft's."""
        made = {
            APPROVALS: approvals_document(self.decisions),
            CHECKPOINT: Checkpoint.signed(digest(self.files), ledger_head, self.key).to_bytes(),
        }
        listed = {name: str(facts["sha256"]) for name, facts in self.files.items()}
        made[SUMS] = sums(listed | {name: _sha256(data) for name, data in made.items()})
        made[SUMS_SIGNATURE] = Seal.on(made[SUMS], self.key).to_bytes()
        return made


def write_bundle(
    draft: Path,
    files: FileTable,
    approvals: Iterable[SignedDecision],
    ledger_head: str,
    key: SigningKey,
    destination: Path,
) -> WrittenBundle:
    """Publish an approved draft as `destination/<dataset>-release-<number>/` (folder 0755, files 0644).

    Publishing the same draft again finds the bundle in place, and leaves it as it is.

    Args:
        files: what the publish gate approved, as the ledger has it.
        approvals: all decisions on the request; those on other requests or bytes are left out.
        ledger_head: hash of the newest link of the audit chain.

    Raises:
        ArtifactChanged: the draft is not `files`.
        NotApproved: the approvals are not for exactly this request and these bytes.
        BundleExists: another bundle is in its place.
        BundleInvalid: the bundle would not verify.
        DestinationUnusable: it cannot be written there.
    """
    rehash(draft, files)
    record, decisions = require_decided(draft, files, approvals)
    approved = _Approved(draft, files, decisions, key)
    target = destination / bundle_name(record.dataset.name, record.release)
    try:
        destination.mkdir(parents=True, exist_ok=True)
        with _alone_in(destination):
            if not os.path.lexists(target):
                _build(approved, approved.added(ledger_head), target)
            return _in_place(approved, target)
    except OSError as error:
        raise DestinationUnusable(destination, error) from None


def require_decided(
    draft: Path, files: FileTable, approvals: Iterable[SignedDecision]
) -> tuple[ReleaseRecord, tuple[SignedDecision, ...]]:
    """The draft's record, and the decisions on exactly its request and these bytes.

    Raises:
        NotApproved: they do not open both gates, or one is not genuine.
    """
    record = ReleaseRecord.from_bytes(read_document(draft / RECORD))
    subjects = {("spend", record.request_sha256), ("publish", digest(files))}
    decisions = tuple(one for one in approvals if (one.gate, one.subject_sha256) in subjects)
    require_approved(decisions, record, digest(files))
    return record, decisions


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
        raise BundleInvalid([f"{check.name}: {check.detail.rstrip('.')}" for check in report.checks if not check.ok])
    partial.rename(target)
    sync_folder(target.parent)


def _in_place(approved: _Approved, target: Path) -> WrittenBundle:
    """The bundle at `target`, if it is this release's; the chain may have grown since it was written."""
    try:
        added = approved.added(Checkpoint.from_bytes(read_document(target / CHECKPOINT)).ledger_head)
        expected = {name: str(facts["sha256"]) for name, facts in approved.files.items()}
        expected |= {name: _sha256(data) for name, data in added.items()}
        found = {name: str(measure(target / name)["sha256"]) for name in os.listdir(target)}
    except (FileUnfit, NotADirectoryError):
        raise BundleExists(target) from None
    if target.is_symlink() or found != expected:
        raise BundleExists(target)
    return WrittenBundle(target, expected[SUMS])


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
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
    """Something else is where the bundle belongs."""

    def __init__(self, target: Path) -> None:
        super().__init__(
            f"There is something else at {target}, and a published bundle is never overwritten.",
            "Publish to another folder, or find out who changed what is there.",
            {"bundle": str(target)},
        )


class BundleInvalid(Refused):
    """A bundle that would not verify is not delivered."""

    def __init__(self, failures: list[str]) -> None:
        super().__init__(
            f"The bundle would not verify: {'; '.join(failures)}.",
            "Nothing was delivered. Report this: the run produced a release that contradicts itself.",
            {"failures": failures},
        )


class DestinationUnusable(EnvironmentProblem):
    """A bundle cannot be written to its destination."""

    def __init__(self, destination: Path, error: OSError) -> None:
        super().__init__(
            f"The bundle cannot be written to {destination}: {error.strerror}.",
            "Make room, or choose another folder; then publish again.",
            {"destination": str(destination)},
        )
