"""A bundle in a store: whole or not sealed, under a name that was free, gone on with after whatever broke it off."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tasks.object_storage.address import Address
from tasks.object_storage.bucket import Store, open_store
from tasks.object_storage.bucket_settings import Buckets, S3Settings
from tasks.publishing import bundle
from tasks.publishing.bundle import (
    BundleExists,
    BundlePrefix,
    BundleUnfit,
    fetch_objects,
    listed_objects,
    upload_bundle,
)
from tasks.publishing.verify import verify_release
from tasks.release.bundle_format import CHECKPOINT, REVOCATIONS, SUMS_SIGNATURE, TEXTS
from tasks.release.signatures.publisher_statements import Checkpoint
from tests.object_store import ObjectStore
from tests.refusals import refusal
from tests.unit.tasks.publishing.builders import a_release, charge_of

pytestmark = pytest.mark.dear

LATER = "5e" * 32
"""A later head of the chain."""


@pytest.fixture
def known(s3, bucket):
    said = {"endpoint_url": s3.url, "region": "us-east-1", "key_env": "LAMPLIGHT_KEY", "secret_env": "LAMPLIGHT_SECRET"}
    return Buckets({Address(bucket): S3Settings(**said, encryption="AES256")})


@pytest.fixture
def here(known, bucket, tmp_path):
    """A bucket, opened for the whole test, and a shelf with scratch of its own each time."""
    with open_store(Address(bucket), known) as store:

        @contextmanager
        def shelf():
            yield BundlePrefix(store, Address(bucket, "out"), Path(mkdtemp(dir=tmp_path)))

        yield shelf


@pytest.fixture
def place(bucket):
    return f"{bucket}/out/clinic-release-1"


def put(release, here, **changes):
    with here() as shelf:
        return upload_bundle(release.draft, release.files, release.papers(**changes), release.key, shelf)


def brought(here, tmp_path):
    """The bundle, fetched."""
    with here() as shelf:
        target = shelf.address / "clinic-release-1"
        into = tmp_path / "fetched"
        fetch_objects(shelf.store, listed_objects(shelf.store, target), target, into)
        return into


def holds(here, release, tmp_path):
    return verify_release(brought(here, tmp_path), release.key.public_key).holds


class Broken(Exception):
    pass


def broken_off(monkeypatch, name, number):
    """Have the call of that number fail once it is done, as if the process had died there."""
    real, calls = getattr(Store, name), []

    def failing(self, *arguments):
        done = real(self, *arguments)
        calls.append(arguments)
        if len(calls) == number:
            raise Broken
        return done

    monkeypatch.setattr(Store, name, failing)


def test_it_is_the_bundle_that_a_folder_gets(release, here, tmp_path, s3, place):
    made = put(release, here)
    local = release.publish(tmp_path / "out")
    assert str(made.place) == f"s3://{place}"
    assert made.digest == local.digest
    fetched = brought(here, tmp_path)
    assert {p.name: p.read_bytes() for p in fetched.iterdir()} == {
        p.name: p.read_bytes() for p in local.folder.iterdir()
    }
    assert s3.head(f"{place}/{TEXTS}")["x-amz-server-side-encryption"] == "AES256"


@pytest.mark.slow
def test_the_claim_comes_first_and_the_seal_last(release, here, monkeypatch):
    created = []
    real = Store.create
    monkeypatch.setattr(Store, "create", lambda *given: created.append(given[1].name) or real(*given))
    put(release, here)
    assert (created[0], created[-1]) == (CHECKPOINT, SUMS_SIGNATURE)


def test_again_it_is_found_as_it_was(release, here, s3, place):
    first = put(release, here)
    again = put(release, here, ledger_head=LATER, revoked=["ab" * 32])
    assert (again.digest, again.checkpoint) == (first.digest, first.checkpoint)
    assert json.loads(s3.get(f"{place}/{REVOCATIONS}"))["revoked"] == []


@pytest.mark.parametrize(
    "number", [4, pytest.param(1, marks=pytest.mark.slow), pytest.param(12, marks=pytest.mark.slow)]
)
def test_broken_off_it_is_no_bundle_and_goes_on(release, here, tmp_path, monkeypatch, s3, bucket, number):
    with monkeypatch.context() as patch:
        broken_off(patch, "create", number)
        with pytest.raises(Broken):
            put(release, here)
    assert len(s3.keys(bucket)) == number
    with refusal("BundleUnfinished"):
        brought(here, tmp_path)
    made = put(release, here, ledger_head=LATER, revoked=["ab" * 32])
    assert made.checkpoint.ledger_head != LATER  # it was begun with another
    assert holds(here, release, tmp_path)
    assert json.loads(s3.get(f"{bucket}/out/clinic-release-1/{REVOCATIONS}"))["revoked"] == ["ab" * 32]


@pytest.mark.slow
def test_a_seal_without_an_answer_is_found(release, here, tmp_path, monkeypatch, s3, bucket):
    with monkeypatch.context() as patch:
        broken_off(patch, "create", len(release.files) + 6)
        with pytest.raises(Broken):
            put(release, here)
    assert any(key.endswith(SUMS_SIGNATURE) for key in s3.keys(bucket))
    put(release, here)
    assert holds(here, release, tmp_path)


@pytest.mark.slow
def test_what_an_unfinished_bundle_holds_is_not_trusted(release, here, tmp_path, monkeypatch, s3, place):
    with monkeypatch.context() as patch:
        broken_off(patch, "create", 12)
        with pytest.raises(Broken):
            put(release, here)
    s3.put(f"{place}/{TEXTS}", b"something else")
    put(release, here)
    assert holds(here, release, tmp_path)


@pytest.mark.slow_except("stray-x", "nested/texts.jsonl-x")
@pytest.mark.parametrize(
    ("name", "content"),
    [(TEXTS, b"x"), (CHECKPOINT, b"x"), (CHECKPOINT, b"x" * 100_000), ("nested/texts.jsonl", b"x"), ("stray", b"x")],
)
def test_a_name_that_something_else_has_is_left_alone(release, here, s3, bucket, place, name, content):
    s3.put(f"{place}/{name}", content)
    with pytest.raises((BundleExists, BundleUnfit)):
        put(release, here)
    assert s3.keys(bucket) == [f"out/clinic-release-1/{name}"]
    assert s3.get(f"{place}/{name}") == content


def test_another_bundle_of_that_name_is_left_alone(release, here, tmp_path, s3, bucket):
    (other := tmp_path / "other").mkdir()
    put(a_release(other), here)  # by another publisher
    before = {key: s3.get(f"{bucket}/{key}") for key in s3.keys(bucket)}
    with pytest.raises(BundleExists, match="s3://"):
        put(release, here)
    assert {key: s3.get(f"{bucket}/{key}") for key in s3.keys(bucket)} == before


def test_the_claim_of_another_publisher_is_respected(release, here, new_key, monkeypatch, s3, bucket):
    with monkeypatch.context() as patch:
        broken_off(patch, "create", 3)
        with pytest.raises(Broken):
            put(release, here)
    s3.put(
        f"{bucket}/out/clinic-release-1/{CHECKPOINT}",
        Checkpoint.signed("00" * 32, "11" * 32, charge_of(release.record), new_key("other")).to_bytes(),
    )
    with pytest.raises(BundleExists):
        put(release, here)
    assert len(s3.keys(bucket)) == 3


@pytest.mark.slow
def test_of_two_at_once_both_find_one_bundle(release, here, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda head: put(release, here, ledger_head=head), ("aa" * 32, "bb" * 32)))
    assert made[0].digest == made[1].digest
    assert holds(here, release, tmp_path)


@pytest.mark.slow
def test_what_arrives_is_read_back_before_it_is_sealed(release, here, monkeypatch, s3, bucket, place):
    real = Store.create

    def garbling(self, address, path):
        done = real(self, address, path)
        if address.name == TEXTS:
            s3.put(f"{place}/{TEXTS}", b"garbled")
        return done

    monkeypatch.setattr(Store, "create", garbling)
    with refusal("DeliveredFileDiffers", match=TEXTS):
        put(release, here)
    assert not any(key.endswith(SUMS_SIGNATURE) for key in s3.keys(bucket))


def test_nothing_and_too_much_are_no_bundles(here, tmp_path, s3, place, monkeypatch):
    with refusal("NoBundle", match="nothing at s3://"):
        brought(here, tmp_path)
    s3.put(f"{place}/{SUMS_SIGNATURE}", b"x")
    s3.put(f"{place}/a", b"x")
    monkeypatch.setattr(bundle, "_MOST_FILES", 1)
    with pytest.raises(BundleUnfit):
        brought(here, tmp_path)


@pytest.mark.slow
def test_a_store_that_goes_away_in_the_middle(release, tmp_path, s3, bucket, monkeypatch):
    server = ObjectStore.start()
    server.bucket(bucket)
    said = {"endpoint_url": server.url, "key_env": "LAMPLIGHT_KEY", "secret_env": "LAMPLIGHT_SECRET"}
    real, calls = Store.create, []

    def then_gone(self, address, path):
        calls.append(address)
        if len(calls) == 3:
            server.stop()
        return real(self, address, path)

    monkeypatch.setattr(Store, "create", then_gone)
    (scratch := tmp_path / "scratch").mkdir()
    with (
        open_store(Address(bucket), Buckets({Address(bucket): S3Settings(**said)})) as store,
        refusal("StoreUnreachable"),
    ):
        upload_bundle(
            release.draft, release.files, release.papers(), release.key, BundlePrefix(store, Address(bucket), scratch)
        )
