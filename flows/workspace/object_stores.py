"""`stores.yaml` of a home: access to the buckets that addresses name (docs/stores.md)."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from flows.workspace.yaml_files import LARGEST_FILE, read_sections
from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome
from models_db.values.requests import file_invalid, parse_model
from tasks.common.files import FileUnfit
from tasks.corpus.readers.source_folders import StoredSource
from tasks.corpus.readers.sources import Source, files_to_copy
from tasks.object_storage.address import Address, Place, parse_place
from tasks.object_storage.bucket import open_store
from tasks.object_storage.bucket_settings import PAGE, SETTINGS, Buckets
from tasks.object_storage.hub_dataset import HubDataset, fetch_dataset
from tasks.publishing.bundle import BundlePrefix, fetch_objects, listed_objects
from tasks.publishing.verify import no_bundle


def buckets_of(home: ProjectHome) -> Buckets:
    """Return a home's settings of each bucket; empty without a file.

    Raises:
        SchemeUnknown, AddressUnfit: a bucket's name is no address.
        FileUnreadable, FileInvalid: the file holds no valid settings; the message does not repeat them.
        StoresFileExposed: others may read or change the file, and so send data elsewhere.
    """
    path = home.stores
    if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise EnvironmentProblem(
            f"Other users of this machine can open {path}.",
            f"Run `chmod 600 {path}`, and check that its content is yours.",
            {"path": str(path)},
            code="StoresFileExposed",
        )
    sections = read_sections(path, "a word", PAGE)
    if sections.keys() - {"buckets"}:
        raise file_invalid(path.name, ["the file must have one key, `buckets:`"], PAGE)
    buckets = {}
    for name, written in sections.get("buckets", {}).items():
        if not isinstance(written, dict):
            raise file_invalid(path.name, ["a bucket needs a name and its settings"], PAGE)
        address = _bucket(str(name))
        buckets[address] = parse_model(SETTINGS[address.scheme], written, f"The bucket {str(name)!r}", PAGE)
    return Buckets(buckets)


def _bucket(name: str) -> Address:
    """Return the bucket that a name in the file stands for: `clinic-notes` of S3, or `gs://clinic-notes`."""
    place = parse_place(name) if "://" in name else Address(name)
    if not isinstance(place, Address) or place.key:
        raise file_invalid("stores.yaml", ["a bucket is named without a key"], PAGE)
    return place


@contextmanager
def open_source(home: ProjectHome, place: Place | HubDataset) -> Iterator[Source]:
    """Open a private source, on this machine, in a store or in the hub, until the end of the block.

    Raises:
        StoreExtraMissing, CredentialsUnset, EndpointUnsafe, StoreDenied: the store cannot be used.
        HubDatasetHidden, HubDatasetUnreachable: the hub does not deliver it.
        FolderMixed, TableLogUnread, FilesUnread: a dataset of the hub is not read (`tasks.corpus.readers.sources`).
        The errors of `buckets_of`.
    """
    if isinstance(place, HubDataset):
        with TemporaryDirectory(prefix="hub-", dir=home.scratch) as scratch:
            yield fetch_dataset(place, files_to_copy, Path(scratch))
        return
    if not isinstance(place, Address):
        yield place
        return
    with open_store(place, buckets_of(home)) as store:
        yield StoredSource(store, place)


@contextmanager
def open_destination(home: ProjectHome, place: Place) -> Iterator[Path | BundlePrefix]:
    """Open the destination of bundles until the end of the block; a store has answered once.

    Raises:
        StoreUnreachable, StoreDenied, BucketMissing, StoreFailed: the store does not accept a first request.
        The errors of `open_source`.
    """
    if not isinstance(place, Address):
        yield place
        return
    with (
        open_store(place, buckets_of(home)) as store,
        TemporaryDirectory(prefix="publish-", dir=home.scratch) as scratch,
    ):
        shelf = BundlePrefix(store, place, Path(scratch))
        shelf.require_open()
        yield shelf


@contextmanager
def open_bundle_folder(home: ProjectHome, place: Place) -> Iterator[Path]:
    """Open a bundle as a folder of this machine, until the end of the block.

    Raises:
        NoBundle, BundleUnfinished, BundleUnfit, ObjectChanged: there is no complete, unchanged bundle.
        The errors of `open_destination`.
    """
    if not isinstance(place, Address):
        yield place
        return
    with open_store(place, buckets_of(home)) as store, TemporaryDirectory(prefix="almoner-verify-") as folder:
        fetch_objects(store, listed_objects(store, place), place, Path(folder) / place.name)
        yield Path(folder) / place.name


def read_stored_document(home: ProjectHome, place: Address, name: str) -> bytes:
    """Read a small file in a store: the object at `place`, or the object `name` below it.

    Raises:
        NoBundle: there is no such object.
        FileUnfit: the object is too large.
    """
    with open_store(place, buckets_of(home)) as store:
        entry = (store.find(place) if place.key else None) or store.find(place / name)
        if entry is None:
            next(store.list_below(place), None)  # a bucket that is missing says so here
            raise no_bundle(place)
        if entry.size > LARGEST_FILE:
            raise FileUnfit(name, "is too large")
        with store.open(entry) as file:
            return file.read()
