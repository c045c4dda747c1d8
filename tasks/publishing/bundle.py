"""Signed bundle from an approved draft, in a folder or an object store; written completely or not at all.

Anybody can check it. In a folder, the bundle is built beside its destination under another name, verified there as a
stranger would verify it, and renamed. A crash leaves only the half-built folder, which the next call removes. A bundle
shows neither when nor after how many attempts the release was made.

An object store has no rename: the seal is written last and completes the bundle. The bundle is built and verified on
this machine, exactly as for a folder. Then its objects are created one by one under a name that was free: first the
signed checkpoint, which claims the name, then everything else; the stored objects are read back and compared;
SHA256SUMS.sig comes last. After a kill in between, another call goes on under the same claim, so the bundle keeps the
head of the chain that it was begun with.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from models_db.errors import EnvironmentProblem, Refused
from models_db.values.canonical_json import digest
from tasks.common.faults import is_temporary
from tasks.common.files import FileTable, FileUnfit, copy_new, measure, read_document, sync_folder, write_new
from tasks.object_storage.address import Address, Place
from tasks.object_storage.bucket import Entry, Store
from tasks.publishing.checks import OpenedBundle
from tasks.publishing.draft import rehash
from tasks.publishing.verify import no_bundle, verify_release
from tasks.release.bundle_format import (
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
from tasks.release.signatures.attestation import (
    attest,
    envelope,
    envelope_document,
    in_toto_statement,
    require_attested,
)
from tasks.release.signatures.ed25519 import SigningKey
from tasks.release.signatures.publisher_statements import Charged, Checkpoint, Revocations, Seal

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
        payload = in_toto_statement(self.record, self.files)
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
        in_toto_statement(record, files),
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


_MOST_FILES: Final = 100
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CHUNK: Final = 1 << 20
_LARGEST_CLAIM: Final = 1 << 16


@dataclass(frozen=True)
class BundlePrefix:
    """Destination of bundles in an object store, and an empty folder of this machine to build them in."""

    store: Store
    address: Address
    scratch: Path

    def require_open(self) -> None:
        """Check that the store answers, before anything is recorded.

        Raises:
            StoreUnreachable, StoreDenied, BucketMissing, StoreFailed.
        """
        next(self.store.list_below(self.address), None)


def upload_bundle(
    draft: Path, files: FileTable, documents: BundleDocuments, key: SigningKey, prefix: BundlePrefix
) -> WrittenBundle:
    """Publish an approved draft below the address of `prefix`; a repeated call finds it there, or goes on.

    Args:
        files: the approved table of files, from the ledger.

    Raises:
        BundleExists: another bundle, or other objects, have the name.
        DeliveredFileDiffers: the store has not kept what it was sent.
        As `bundle.write_bundle` and the store.
    """
    rehash(draft, files)
    record = require_decided(draft, files, documents, key).record
    target = prefix.address / bundle_name(record.dataset.name, record.release)
    with alone_in(draft):
        place = _Place(prefix.store, target)
        if SUMS_SIGNATURE in place.objects:
            with _not_another(target):
                place.fetch(prefix.scratch / target.name)
                return replace(write_bundle(draft, files, documents, key, prefix.scratch), place=target)
        documents = place.claimed(documents, digest(files), key)
        built = write_bundle(draft, files, documents, key, prefix.scratch)
        place.fill(built.folder)
        return replace(built, place=target)


@contextmanager
def _not_another(target: Address) -> Iterator[None]:
    try:
        yield
    except (BundleExists, BundleUnfit):
        raise BundleExists(target) from None


class _Place:
    """The objects under the name of a bundle."""

    def __init__(self, store: Store, target: Address) -> None:
        self._store = store
        self._target = target
        self.objects = listed_objects(store, target)

    def fetch(self, into: Path) -> None:
        """Download all of its objects into the new folder `into`."""
        fetch_objects(self._store, self.objects, self._target, into)

    def claimed(self, documents: BundleDocuments, artifact: str, key: SigningKey) -> BundleDocuments:
        """Return the documents with which this bundle was begun, if it was; otherwise these.

        Raises:
            BundleExists: another publisher or another release has the name.
        """
        if not self.objects:
            return documents
        claim = self._claim()
        if claim is None or not claim.authentic or (claim.artifact_sha256, claim.public_key) != (
            artifact, key.public_key,
        ):  # fmt: skip
            raise BundleExists(self._target)
        return replace(documents, ledger_head=claim.ledger_head)

    def _claim(self) -> Checkpoint | None:
        entry = self.objects.get(CHECKPOINT)
        if entry is None or entry.size > _LARGEST_CLAIM:
            return None
        with self._store.open(entry) as file:
            data = file.read()
        try:
            return Checkpoint.from_bytes(data)
        except FileUnfit:
            return None

    def fill(self, built: Path) -> None:
        """Upload every file of a bundle, the claim first and the seal last.

        Raises:
            BundleExists: the name was taken meanwhile, or has objects that are no part of the bundle.
            DeliveredFileDiffers: a stored object differs from the file.
        """
        digests = {name: str(measure(built / name)["sha256"]) for name in os.listdir(built)}
        if self.objects.keys() - digests.keys():
            raise BundleExists(self._target)
        unsealed = sorted(digests.keys() - {CHECKPOINT, SUMS, SUMS_SIGNATURE})
        for name in (CHECKPOINT, *unsealed, SUMS):
            self._create_object(built / name, digests[name])
        self._compare({name: digests[name] for name in digests if name != SUMS_SIGNATURE})
        self._create_object(built / SUMS_SIGNATURE, digests[SUMS_SIGNATURE])
        self._compare({SUMS_SIGNATURE: digests[SUMS_SIGNATURE]}, allowed=digests.keys())

    def _create_object(self, path: Path, sha256: str) -> None:
        """Create an object. An existing one comes from a call that was killed or got no answer; if it differs, it is
        replaced, because the claim is ours and there is no seal yet."""
        address = self._target / path.name
        if path.name not in self.objects and self._store.create(address, path):
            return
        entry = self._store.find(address)
        if entry is not None and measured_object(self._store, entry) == sha256:
            return
        if path.name in (CHECKPOINT, SUMS_SIGNATURE):
            raise BundleExists(self._target)
        self._store.replace(address, path)

    def _compare(self, expected: Mapping[str, str], allowed: Collection[str] = ()) -> None:
        objects = listed_objects(self._store, self._target)
        if objects.keys() - expected.keys() - set(allowed):
            raise BundleExists(self._target)
        for name, sha256 in expected.items():
            if name not in objects or measured_object(self._store, objects[name]) != sha256:
                raise EnvironmentProblem(
                    f"{name} at {self._target} differs from the file that was sent. The bundle has no seal, so it is"
                    " not valid.",
                    "Find out who else writes to that address, or what the store changes; then publish again.",
                    {"bundle": str(self._target), "file": name},
                    code="DeliveredFileDiffers",
                )


def listed_objects(store: Store, target: Address) -> dict[str, Entry]:
    """Return the objects below an address, by name.

    Raises:
        BundleUnfit: more or other names than a bundle has.
    """
    entries = list(islice(store.list_below(target), _MOST_FILES + 1))
    entry_by_name = {entry.address.key.removeprefix(target.key).lstrip("/"): entry for entry in entries}
    if len(entries) > _MOST_FILES or not all(map(_PLAIN_NAME.fullmatch, entry_by_name)):
        raise BundleUnfit(target)
    return entry_by_name


def fetch_objects(store: Store, objects: Mapping[str, Entry], target: Address, into: Path) -> None:
    """Download a finished bundle into a new folder.

    Raises:
        NoBundle: there are no objects.
        BundleUnfinished: its seal is missing.
        BundleUnfit: it is larger than the free space of this machine.
        ObjectChanged: an object is being written.
    """
    if not objects:
        raise no_bundle(target)
    if SUMS_SIGNATURE not in objects:
        raise Refused(
            f"The bundle at {target} is not finished: {SUMS_SIGNATURE}, which is written last, is missing.",
            "Its publisher repeats the same `almoner publish`, which goes on. Do not rely on the objects there.",
            {"bundle": str(target)},
            code="BundleUnfinished",
        )
    into.mkdir(mode=0o700)
    if sum(entry.size for entry in objects.values()) > shutil.disk_usage(into).free:
        raise BundleUnfit(target)
    for name, entry in objects.items():
        with store.open(entry) as file, (into / name).open("xb") as copy:
            shutil.copyfileobj(file, copy, _CHUNK)


def measured_object(store: Store, entry: Entry) -> str:
    """Return the SHA-256 of an object, read now."""
    with store.open(entry) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class BundleUnfit(Refused):
    """An address without a bundle, or with one too large to download."""

    def __init__(self, target: Address) -> None:
        super().__init__(
            f"The content of {target} is not a bundle, or is larger than the free space of this machine.",
            "Give the address that `almoner publish` printed.",
            {"bundle": str(target)},
        )
