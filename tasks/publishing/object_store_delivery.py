"""Delivery of a bundle to an object store, which has no rename: the seal is written last and completes the bundle.

The bundle is built and verified on this machine, exactly as for a folder. Then its objects are created one by one
under a name that was free: first the signed checkpoint, which claims the name, then everything else; the stored objects
are read back and compared; SHA256SUMS.sig comes last. After a kill in between, another call goes on under the same
claim, so the bundle keeps the head of the chain that it was begun with.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from models_db.errors import EnvironmentProblem, Refused
from models_db.values.canonical_json import digest
from tasks.common.files import FileTable, FileUnfit, measure
from tasks.object_storage.address import Address
from tasks.object_storage.bucket import Entry, Store
from tasks.publishing.bundle import (
    BundleDocuments,
    BundleExists,
    WrittenBundle,
    alone_in,
    require_decided,
    write_bundle,
)
from tasks.publishing.draft import rehash
from tasks.publishing.verify import no_bundle
from tasks.release.file_names import CHECKPOINT, SUMS, SUMS_SIGNATURE, bundle_name
from tasks.release.signatures.chain_checkpoint import Checkpoint
from tasks.release.signatures.ed25519 import SigningKey

_MOST_FILES: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
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
        self.objects = listed(store, target)

    def fetch(self, into: Path) -> None:
        """Download all of its objects into the new folder `into`."""
        fetch(self._store, self.objects, self._target, into)

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
        if entry is not None and measured(self._store, entry) == sha256:
            return
        if path.name in (CHECKPOINT, SUMS_SIGNATURE):
            raise BundleExists(self._target)
        self._store.replace(address, path)

    def _compare(self, expected: Mapping[str, str], allowed: Collection[str] = ()) -> None:
        objects = listed(self._store, self._target)
        if objects.keys() - expected.keys() - set(allowed):
            raise BundleExists(self._target)
        for name, sha256 in expected.items():
            if name not in objects or measured(self._store, objects[name]) != sha256:
                raise EnvironmentProblem(
                    f"{name} at {self._target} differs from the file that was sent. The bundle has no seal, so it is"
                    " not valid.",
                    "Find out who else writes to that address, or what the store changes; then publish again.",
                    {"bundle": str(self._target), "file": name},
                    code="DeliveredFileDiffers",
                )


def listed(store: Store, target: Address) -> dict[str, Entry]:
    """Return the objects below an address, by name.

    Raises:
        BundleUnfit: more or other names than a bundle has.
    """
    entries = list(islice(store.list_below(target), _MOST_FILES + 1))
    entry_by_name = {entry.address.key.removeprefix(target.key).lstrip("/"): entry for entry in entries}
    if len(entries) > _MOST_FILES or not all(map(_PLAIN.fullmatch, entry_by_name)):
        raise BundleUnfit(target)
    return entry_by_name


def fetch(store: Store, objects: Mapping[str, Entry], target: Address, into: Path) -> None:
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


def measured(store: Store, entry: Entry) -> str:
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
