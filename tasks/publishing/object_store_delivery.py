"""A bundle in an object store, which knows no rename: its seal comes last, and until then it is none.

The bundle is built and verified on this machine, exactly as for a folder. Then its objects are created one by one
under a name that was free: first the signed checkpoint, which claims the name, then everything else; what arrived is
read back and compared; last comes SHA256SUMS.sig. Whoever is killed in between is followed by another call that goes on
under the same claim, so the bundle keeps the head of the chain that it was begun with.
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
from tasks.publishing.verify import NoBundle
from tasks.release.file_names import CHECKPOINT, SUMS, SUMS_SIGNATURE, bundle_name
from tasks.release.signatures.chain_checkpoint import Checkpoint
from tasks.release.signatures.ed25519 import SigningKey

_MOST_FILES: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CHUNK: Final = 1 << 20
_LARGEST_CLAIM: Final = 1 << 16


@dataclass(frozen=True)
class BundlePrefix:
    """Where in a store bundles are put, and an empty folder of this machine to build them in."""

    store: Store
    address: Address
    scratch: Path

    def require_open(self) -> None:
        """Have the store answer once, before anything is recorded.

        Raises:
            StoreUnreachable, StoreDenied, BucketMissing, StoreFailed.
        """
        next(self.store.below(self.address), None)


def upload_bundle(
    draft: Path, files: FileTable, papers: BundleDocuments, key: SigningKey, shelf: BundlePrefix
) -> WrittenBundle:
    """Publish an approved draft below the shelf's address; doing it again finds it there, or goes on.

    Args:
        files: what the publish gate approved, as the ledger has it.

    Raises:
        BundleExists: another bundle, or something else, has the name.
        DeliveryGarbled: the store has not kept what it was sent.
        whatever `bundle.write_bundle` and the store raise.
    """
    rehash(draft, files)
    record = require_decided(draft, files, papers, key).record
    target = shelf.address / bundle_name(record.dataset.name, record.release)
    with alone_in(draft):
        place = _Place(shelf.store, target)
        if SUMS_SIGNATURE in place.there:
            with _not_another(target):
                place.fetch(shelf.scratch / target.name)
                return replace(write_bundle(draft, files, papers, key, shelf.scratch), place=target)
        papers = place.claimed(papers, digest(files), key)
        built = write_bundle(draft, files, papers, key, shelf.scratch)
        place.fill(built.folder)
        return replace(built, place=target)


@contextmanager
def _not_another(target: Address) -> Iterator[None]:
    try:
        yield
    except (BundleExists, BundleUnfit):
        raise BundleExists(target) from None


class _Place:
    """What lies under the name of a bundle."""

    def __init__(self, store: Store, target: Address) -> None:
        self._store = store
        self._target = target
        self.there = listed(store, target)

    def fetch(self, into: Path) -> None:
        """Bring all of it here."""
        fetch(self._store, self.there, self._target, into)

    def claimed(self, papers: BundleDocuments, artifact: str, key: SigningKey) -> BundleDocuments:
        """The papers with which this bundle was begun, if it was; otherwise these.

        Raises:
            BundleExists: somebody else, or another release, has the name.
        """
        if not self.there:
            return papers
        claim = self._claim()
        if claim is None or not claim.authentic or (claim.artifact_sha256, claim.public_key) != (
            artifact, key.public_key,
        ):  # fmt: skip
            raise BundleExists(self._target)
        return replace(papers, ledger_head=claim.ledger_head)

    def _claim(self) -> Checkpoint | None:
        entry = self.there.get(CHECKPOINT)
        if entry is None or entry.size > _LARGEST_CLAIM:
            return None
        with self._store.open(entry) as file:
            data = file.read()
        try:
            return Checkpoint.from_bytes(data)
        except FileUnfit:
            return None

    def fill(self, built: Path) -> None:
        """Put every file of a bundle there, the claim first and the seal last.

        Raises:
            BundleExists: the name was taken meanwhile, or something lies there that is no part of it.
            DeliveryGarbled: what arrived is something else.
        """
        whole = {name: str(measure(built / name)["sha256"]) for name in os.listdir(built)}
        if self.there.keys() - whole.keys():
            raise BundleExists(self._target)
        between = sorted(whole.keys() - {CHECKPOINT, SUMS, SUMS_SIGNATURE})
        for name in (CHECKPOINT, *between, SUMS):
            self._put(built / name, whole[name])
        self._compare({name: whole[name] for name in whole if name != SUMS_SIGNATURE})
        self._put(built / SUMS_SIGNATURE, whole[SUMS_SIGNATURE])
        self._compare({SUMS_SIGNATURE: whole[SUMS_SIGNATURE]}, besides=whole.keys())

    def _put(self, path: Path, sha256: str) -> None:
        """Create an object. One that is there already was made by a call that was killed, or by one we heard no
        answer of; if it is another, it is replaced, for the claim is ours and there is no seal yet."""
        address = self._target / path.name
        if path.name not in self.there and self._store.create(address, path):
            return
        entry = self._store.look(address)
        if entry is not None and measured(self._store, entry) == sha256:
            return
        if path.name in (CHECKPOINT, SUMS_SIGNATURE):
            raise BundleExists(self._target)
        self._store.replace(address, path)

    def _compare(self, expected: Mapping[str, str], besides: Collection[str] = ()) -> None:
        there = listed(self._store, self._target)
        if there.keys() - expected.keys() - set(besides):
            raise BundleExists(self._target)
        for name, sha256 in expected.items():
            if name not in there or measured(self._store, there[name]) != sha256:
                raise DeliveryGarbled(self._target, name)


def listed(store: Store, target: Address) -> dict[str, Entry]:
    """What lies below an address, by name.

    Raises:
        BundleUnfit: more or other names than a bundle has.
    """
    found = list(islice(store.below(target), _MOST_FILES + 1))
    named = {entry.address.key.removeprefix(target.key).lstrip("/"): entry for entry in found}
    if len(found) > _MOST_FILES or not all(map(_PLAIN.fullmatch, named)):
        raise BundleUnfit(target)
    return named


def fetch(store: Store, there: Mapping[str, Entry], target: Address, into: Path) -> None:
    """Bring a finished bundle into a new folder.

    Raises:
        NoBundle: there is nothing.
        BundleUnfinished: its seal is missing.
        BundleUnfit: it is larger than the room that is left here.
        ObjectChanged: it is written to.
    """
    if not there:
        raise NoBundle(target)
    if SUMS_SIGNATURE not in there:
        raise BundleUnfinished(target)
    into.mkdir(mode=0o700)
    if sum(entry.size for entry in there.values()) > shutil.disk_usage(into).free:
        raise BundleUnfit(target)
    for name, entry in there.items():
        with store.open(entry) as file, (into / name).open("xb") as copy:
            shutil.copyfileobj(file, copy, _CHUNK)


def measured(store: Store, entry: Entry) -> str:
    """SHA-256 of an object, read as it is now."""
    with store.open(entry) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class BundleUnfinished(Refused):
    """A bundle whose delivery was broken off."""

    def __init__(self, target: Address) -> None:
        super().__init__(
            f"The bundle at {target} is not finished: {SUMS_SIGNATURE}, which is written last, is missing.",
            "Its publisher gives the same `almoner publish` again, which goes on. Do not rely on what is there.",
            {"bundle": str(target)},
        )


class BundleUnfit(Refused):
    """Something that is no bundle, or too large to be looked at."""

    def __init__(self, target: Address) -> None:
        super().__init__(
            f"What lies at {target} is no bundle, or larger than the disk of this machine.",
            "Name the address that `almoner publish` told.",
            {"bundle": str(target)},
        )


class DeliveryGarbled(EnvironmentProblem):
    """A store that holds something else than it was sent."""

    def __init__(self, target: Address, name: str) -> None:
        super().__init__(
            f"{name} at {target} is not what was sent there. The bundle is not sealed, so nobody takes it for one.",
            "Find out who else writes there, or what the store does; then publish again.",
            {"bundle": str(target), "file": name},
        )
