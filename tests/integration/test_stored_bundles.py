"""Publishing into a bucket and reading it back, as people type it; and every way in which that breaks off."""

import json

import pytest

from tasks.object_storage.bucket import Store
from tests.integration.canary import leaks, text_of
from tests.integration.killing import killed
from tests.integration.story import Almoner
from tests.object_store import KEY, SECRET, ObjectStore
from tests.support import fetch, snapshot

CONCERNS = ("flows/releases", "tasks/object_storage", "tasks/publishing")


def deliveries(almoner: Almoner) -> list[str]:
    return [str(row[0]) for row in fetch(almoner.database, "SELECT destination FROM delivery")]


@pytest.fixture
def ready(almoner: Almoner, s3: ObjectStore, bucket: str) -> Almoner:
    """A release may be published, and the home knows the bucket."""
    almoner.passed()
    s3.told_to(almoner.home.root, bucket, f"{bucket}-missing", encryption="AES256")
    return almoner


def test_out_into_a_bucket_and_back(ready, s3, bucket, tmp_path_factory, caplog):
    caplog.set_level("DEBUG")
    told = ready.ask(f"publish 1 --to s3://{bucket}/public/")
    place = f"s3://{bucket}/public/clinic-release-1"
    assert told["bundle"] == place
    assert deliveries(ready) == [place]
    key = ready.ask("init")["public_key"]
    found = ready.ask(f"verify-release {place} --key {key}")
    assert found["authentic"]
    assert ready.ask(f"publish 1 --to s3://{bucket}/public")["sha256"] == told["sha256"]
    local = ready.ask(f"publish 1 --to {ready.folder / 'out'}")
    assert ready.ask(f"verify-release {local['bundle']} --revocations {place}")["checks"][-1]["name"] == "retraction"
    shown = ready.ask('retract 1 --reason "a text names a street"')
    assert shown["delivered_to"] == [place, local["bundle"]]
    s3.put(f"{bucket}/public/clinic-release-1/README.md", b"# Epsilon 0.1")
    assert "sums" in json.dumps(ready.ask(f"verify-release {place}", 1)).lower()
    # What speaks over httpx is the test; it signs with the same name.
    logged = "".join(record.getMessage() for record in caplog.records if not record.name.startswith("http"))
    everything = logged + text_of(ready.home.root) + json.dumps(snapshot(ready.database), default=str)
    for secret in (KEY, SECRET):
        assert secret not in everything
    assert leaks("".join(s3.get(f"{bucket}/{name}").decode("utf-8", "replace") for name in s3.keys(bucket))) == []
    assert list(ready.home.scratch.iterdir()) == []
    # From a home that says nothing of the bucket, and without credentials of Amazon's, nobody is asked.
    told_elsewhere = ready.ask(f"verify-release {place} --home {tmp_path_factory.mktemp('nobody')}", 3)
    assert told_elsewhere["error"] == "StoreDenied"


def test_what_goes_wrong_before_anything_is_recorded(ready, s3, bucket, monkeypatch):
    before = snapshot(ready.database)
    assert ready.ask(f"publish 1 --to s3://{bucket}-missing/out", 3)["error"] == "BucketMissing"
    assert ready.ask(f"publish 1 --to https://{bucket}.example.org/", 2)["error"] == "SchemeUnknown"
    assert ready.ask(f"publish 1 --to s3://{bucket}/../out", 2)["error"] == "AddressUnfit"
    assert ready.ask(f"verify-release s3://{bucket}/out/clinic-release-1", 2)["error"] == "NoBundle"
    monkeypatch.delenv("LAMPLIGHT_KEY")
    assert ready.ask(f"publish 1 --to s3://{bucket}/out", 3)["error"] == "CredentialsUnset"
    ready.home.stores.chmod(0o644)
    assert ready.ask(f"publish 1 --to s3://{bucket}/out", 3)["error"] == "StoresFileExposed"
    assert snapshot(ready.database) == before
    assert s3.keys(bucket) == []


@pytest.mark.slow
def test_what_is_denied_can_be_done_again(ready, s3, bucket):
    s3.forbid(bucket, "s3:PutObject")
    assert ready.ask(f"publish 1 --to s3://{bucket}/out", 3)["error"] == "StoreDenied"
    assert deliveries(ready) == []
    assert ready.state() == "published"  # decided and recorded; nothing has arrived
    s3.forbid(bucket, "s3:DeleteBucket")
    ready.type(f"publish 1 --to s3://{bucket}/out")
    assert len(deliveries(ready)) == 1
    ready.type("audit verify")


@pytest.mark.slow
def test_a_bundle_in_a_bucket_is_a_witness(ready, s3, bucket):
    """A backup from before a publication is refused against the bundle, read as the backup's own settings say."""
    early, late = (ready.folder / name for name in ("early.tar", "late.tar"))
    ready.type(f"backup --to {early}")
    ready.type(f"publish 1 --to s3://{bucket}/out")
    ready.type(f"backup --to {late}")
    place = f"s3://{bucket}/out/clinic-release-1"
    told = ready.ask(f"audit verify --against {place}")
    assert told["against"][0]["file"] == place
    assert ready.ask(f"audit verify --against s3://{bucket}/nothing", 2)["error"] == "NoBundle"
    ready.home.root.rename(ready.folder / "aside")
    why = '--reason "the disk failed"'
    refused = ready.ask(f"restore {early} {why} --against {place}", 1)
    assert (refused["error"], refused["facts"]["witness"]) == ("BackupOutdated", place)
    assert not ready.home.root.exists()
    ready.type(f"restore {late} {why} --against {place}")
    ready.type(f"verify-release {place}")


@pytest.mark.slow
def test_half_of_it_is_told_and_finished(ready, s3, bucket, monkeypatch):
    real, calls = Store.create, []

    def interrupted(self, address, path):
        calls.append(address)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(self, address, path)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "create", interrupted)
        ready.type(f"publish 1 --to s3://{bucket}/out", 130)
    assert len(s3.keys(bucket)) == 4
    assert ready.ask(f"verify-release s3://{bucket}/out/clinic-release-1", 1)["error"] == "BundleUnfinished"
    assert deliveries(ready) == []
    ready.type(f"publish 1 --to s3://{bucket}/out")
    ready.type(f"verify-release s3://{bucket}/out/clinic-release-1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "with a claim in the store",
        "with half a bundle in the store",
        "before the seal",
        "with a sealed bundle",
    ],
)
def test_killed_while_it_uploads(ready, s3, bucket, point):
    """kill -9: nothing is recorded as delivered, nobody takes half for a bundle, the next call brings it to an end."""
    place = f"s3://{bucket}/out/clinic-release-1"
    killed(f"publish 1 --to s3://{bucket}/out", point)
    assert deliveries(ready) == []
    sealed = point == "with a sealed bundle"
    assert any(name.endswith("SHA256SUMS.sig") for name in s3.keys(bucket)) == sealed
    told = ready.ask(f"verify-release {place}", 0 if sealed else 1)
    assert told["holds"] if sealed else told["error"] == "BundleUnfinished"
    ready.type("run sweep")
    assert list(ready.home.scratch.iterdir()) == []
    ready.type(f"publish 1 --to s3://{bucket}/out")
    ready.type(f"verify-release {place}")
    assert deliveries(ready) == [place]
    ready.type("audit verify")
