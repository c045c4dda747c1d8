"""A corpus in Google's or Azure's store is ingested like one on disk, whatever the store does meanwhile."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from flows.workspace.object_stores import open_source
from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from tasks.corpus.readers import sources
from tasks.corpus.readers.readers import read_documents
from tasks.corpus.readers.sources import SourceChanged
from tasks.object_storage.address import Address, parse_place
from tasks.object_storage.errors import (
    BucketMissing,
    EndpointUnsafe,
    ObjectChanged,
    StoreDenied,
    StoreFailed,
    StoreUnreachable,
)
from tests.cloud_stores import (
    ACCOUNT,
    SECRETS,
    STORES,
    CloudStore,
    cut,
    elsewhere,
    longer,
    shifted,
    shorter,
    slow,
    status,
    whole,
)
from tests.integration.canary import leaks, text_of
from tests.integration.test_stored_sources import JSONL, KINDS, manifest, written
from tests.support import require

NAME = "Zebulon Quartermaine"


@pytest.fixture(params=STORES)
def cloud(request, monkeypatch, tmp_path_factory):
    require(find_spec("google.auth") and find_spec("azure"), "google-auth or azure-identity is not installed")
    monkeypatch.setattr("tasks.object_storage.http_bucket._PAUSE", 0)
    server = STORES[request.param]()
    for name, value in server.environment(tmp_path_factory.mktemp("secrets")).items():
        monkeypatch.setenv(name, value)
    yield server
    server.stop()


@pytest.fixture
def told(cloud, tmp_path):
    """A home that knows the bucket `clinic`, with the notes in it."""
    cloud.told_to(tmp_path, "clinic")
    cloud.put("clinic/notes.jsonl", JSONL)
    return ProjectHome(tmp_path)


def address(cloud, key="notes.jsonl", bucket="clinic"):
    return Address(bucket, key, cloud.scheme)


def sent(cloud: CloudStore, path) -> Address:
    """A file or folder in the bucket."""
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            cloud.put(f"clinic/in/{file.relative_to(path.parent)}", file.read_bytes())
    return address(cloud, f"in/{path.name}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_finds_what_it_finds_on_disk(cloud, told, tmp_path, kind):
    path = written(tmp_path, kind)
    with open_source(told, sent(cloud, path)) as stored:
        unit = "folder" if kind == "folder" else "patient_id"
        assert list(read_documents(stored, unit)) == list(read_documents(path, unit))
        assert sources.source_digest(stored) == sources.source_digest(path)
        assert sources.source_state(stored).size == sources.source_state(path).size


def test_files_are_read_in_the_order_of_a_disk(cloud, told, tmp_path):
    """`/` sorts after `-` and `.`, which stores with a hierarchy of folders do not know."""
    for name in ("b.txt", "a/z.txt", "a-b/1.txt", "a.b.txt", "a/ä?#%2e +.txt"):
        file = tmp_path / "corpus" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"text of {name}")
    with open_source(told, sent(cloud, tmp_path / "corpus")) as stored:
        found = list(read_documents(stored, None))
    assert found == list(read_documents(tmp_path / "corpus", None))
    assert len(found) == 5


def test_a_corpus_is_ingested_and_no_secret_is_kept(almoner, cloud, caplog):
    caplog.set_level("DEBUG")
    almoner.registered()
    cloud.told_to(almoner.home.root, "clinic")
    cloud.put("clinic/notes.jsonl", JSONL)
    done = almoner.type(f"dataset ingest clinic {cloud.scheme}://clinic/notes.jsonl --label-field section")
    assert "Ingested version 1" in done.out
    assert len(manifest(almoner)) == 1
    with open_source(almoner.home, address(cloud)) as stored:
        assert sources.source_digest(stored) == sources.source_digest(almoner.write("notes.jsonl", JSONL))
    outside = [text_of(path) for path in almoner.home.root.iterdir() if path.name != "corpora" and path.is_dir()]
    assert leaks("".join(outside)) == []
    logged = "".join(f"{record.getMessage()}{record.exc_info}" for record in caplog.records)
    kept = text_of(almoner.home.root) + logged + done.out + done.err
    assert [secret for secret in SECRETS if secret in kept] == []
    assert all(asked.method in ("GET", "HEAD") for asked in cloud.requests if asked.kind != "token")


WRONG = {
    "clinic/nothing.jsonl": ("SourceMissing", 2),
    "clinic/notes.docx": ("UnknownFileType", 2),
    "clinic/broken.jsonl": ("NotJson", 2),
    "clinic/broken.parquet": ("SourceUnreadable", 3),
    "missing/notes.jsonl": ("BucketMissing", 3),
    "clinic/../notes.jsonl": ("AddressUnfit", 2),
}


def test_what_goes_wrong_has_a_name_and_leaves_nothing(almoner, cloud):
    almoner.registered()
    cloud.told_to(almoner.home.root, "clinic", "missing")
    for name in ("notes.docx", "broken.jsonl", "broken.parquet"):
        cloud.put(f"clinic/{name}", b"not " + JSONL)
    before = almoner.everything()
    for place, (error, code) in WRONG.items():
        told = almoner.ask(f"dataset ingest clinic {cloud.scheme}://{place}", code)
        assert told["error"] == error, place
        assert leaks(json.dumps(told)) == []
    assert almoner.everything() == before


def test_nothing_is_published_there(almoner, cloud):
    almoner.passed()
    cloud.told_to(almoner.home.root, "clinic")
    before = almoner.everything()
    told = almoner.ask(f"publish 1 --to {cloud.scheme}://clinic/out", 2)
    assert told["error"] == "StoreReadOnly"
    assert almoner.everything() == before
    assert cloud.requests == []


def test_a_bundle_that_was_copied_there_is_verified_there(almoner, cloud):
    almoner.passed()
    cloud.told_to(almoner.home.root, "clinic")
    local = almoner.ask(f"publish 1 --to {almoner.folder / 'out'}")
    bundle = Path(local["bundle"])
    for file in bundle.iterdir():
        cloud.put(f"clinic/public/{bundle.name}/{file.name}", file.read_bytes())
    place = f"{cloud.scheme}://clinic/public/{bundle.name}"
    assert almoner.ask(f"verify-release {place} --key {almoner.ask('init')['public_key']}")["authentic"]
    cloud.remove(f"clinic/public/{bundle.name}/SHA256SUMS.sig")
    assert almoner.ask(f"verify-release {place}", 1)["error"] == "BundleUnfinished"


FAULTS = {
    "denied": (status(403), StoreDenied),
    "unknown": (status(401), StoreDenied),
    "busy": (status(503), StoreUnreachable),
    "too many": (status(429), StoreUnreachable),
    "teapot": (status(418), StoreFailed),
    "redirected": (elsewhere("https://storage.example.org/"), StoreFailed),
    "cut": (cut, StoreUnreachable),
}
OF_READS = {
    "shorter": (shorter, StoreUnreachable),
    "longer": (longer, StoreUnreachable),
    "whole": (whole, StoreFailed),
    "shifted": (shifted, StoreFailed),
    "gone": (status(404), ObjectChanged),
    "changed": (status(412), ObjectChanged),
}
EVERYWHERE = [
    *((kind, name) for kind in ("list", "find", "read") for name in FAULTS if (kind, name) != ("find", "cut")),
    *(("read", name) for name in OF_READS),
]


@pytest.mark.parametrize(("kind", "name"), EVERYWHERE)
def test_a_store_that_fails_is_named_and_its_words_are_not_repeated(cloud, told, kind, name, capfd):
    fault, error = (FAULTS | OF_READS)[name]
    cloud.put(f"clinic/in/{NAME}.txt", b"text")
    cloud.fail(kind, fault)
    use = (lambda stored: list(stored.files())) if kind == "list" else (lambda stored: stored.open("rb").read())
    place = address(cloud, "in" if kind == "list" else "notes.jsonl")
    with open_source(told, place) as stored, pytest.raises(error) as refused:
        use(stored)
    said = refused.value.diagnostics() + "".join(capfd.readouterr())
    assert [word for word in (*SECRETS, NAME) if word in said] == []
    assert refused.value.temporary is (error is StoreUnreachable)


@pytest.mark.parametrize("name", ["busy", "cut", "shorter"])
def test_a_store_that_fails_twice_is_asked_again(cloud, told, name):
    cloud.fail("read", (FAULTS | OF_READS)[name][0], times=2)
    with open_source(told, address(cloud)) as stored:
        assert stored.open("rb").read() == JSONL
    assert sum(asked.kind == "read" for asked in cloud.requests) == 3


def test_a_store_that_is_silent(cloud, told, monkeypatch):
    monkeypatch.setattr("tasks.object_storage.http_bucket._TIMEOUT", (0.2, 0.2))
    cloud.fail("read", slow)
    with open_source(told, address(cloud)) as stored, pytest.raises(StoreUnreachable):
        stored.open("rb").read()


def test_a_store_that_is_not_there(cloud, told):
    cloud.stop()
    with open_source(told, address(cloud)) as stored, pytest.raises(StoreUnreachable):
        stored.exists()


def test_a_bucket_that_is_missing(cloud, told):
    cloud.told_to(told.root, "other")
    with open_source(told, address(cloud, "in", "other")) as stored, pytest.raises(BucketMissing):
        stored.exists()


@pytest.mark.parametrize("kind", ["jsonl", "shards", "folder"])
@pytest.mark.parametrize("moment", ["list", "read"])
def test_what_changes_while_it_is_read_is_not_kept(cloud, told, tmp_path, monkeypatch, kind, moment):
    monkeypatch.setattr("tasks.object_storage.http_bucket._READ_AHEAD", 1 << 10)
    monkeypatch.setattr("tasks.object_storage.bucket._BUFFER", 1 << 9)

    def replaced():
        for key, (data, _) in list(cloud.objects["clinic"].items()):
            cloud.put(f"clinic/{key}", data.replace(b"e", b"o"))

    with open_source(told, sent(cloud, written(tmp_path, kind))) as stored:
        before = sources.source_state(stored)
        documents = read_documents(stored, None)
        if moment == "read":
            assert next(documents).text
        cloud.before["read"] = replaced
        with pytest.raises(SourceChanged):
            list(documents)
        assert sources.source_state(stored) != before


def test_an_ingest_notices_a_change_and_its_return(almoner, cloud, monkeypatch):
    """The same bytes under another state are another state: nobody knows what was read between."""
    almoner.registered()
    cloud.told_to(almoner.home.root, "clinic")
    cloud.put("clinic/notes.jsonl", JSONL)
    before = almoner.everything()
    real = sources.source_digest

    def meanwhile(source):
        found = real(source)
        cloud.put("clinic/notes.jsonl", JSONL)
        return found

    monkeypatch.setattr("tasks.corpus.ingest.source_digest", meanwhile)
    assert almoner.ask(f"dataset ingest clinic {cloud.scheme}://clinic/notes.jsonl", 2)["error"] == "SourceChanged"
    assert almoner.everything() == before


def test_a_file_of_a_folder_is_named_by_its_number(cloud, told):
    cloud.put(f"clinic/in/{NAME}.txt", b"\xff\xff")
    with open_source(told, address(cloud, "in")) as stored:
        documents = read_documents(stored, None)
        cloud.remove(f"clinic/in/{NAME}.txt")
        with pytest.raises(AlmonerError) as refused:
            list(documents)
    assert NAME not in refused.value.diagnostics()


def test_objects_of_another_place_are_refused(cloud, told, monkeypatch):
    """A store that lists what was not asked for."""
    with open_source(told, address(cloud, "in")) as stored:
        monkeypatch.setattr(type(cloud), "_list", _another_place(cloud))
        with pytest.raises(StoreFailed, match="another place"):
            list(stored.files())


def _another_place(cloud):
    real = type(cloud)._list

    def listed(self, asked, objects):
        return real(self, type(asked)(**{**vars(asked), "query": {**asked.query, "prefix": ""}}), objects)

    return listed


def test_credentials_go_to_one_server_alone(cloud, told, monkeypatch):
    """Proxies of the environment and redirections are not used."""
    other = STORES[cloud.scheme]()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, other.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    cloud.fail("read", elsewhere(f"{other.url}/"))
    with open_source(told, address(cloud)) as stored, pytest.raises(StoreFailed, match="302"):
        stored.open("rb").read()
    assert other.requests == []
    other.stop()


def test_the_key_of_an_account_signs_each_request(monkeypatch, tmp_path):
    """The server computes the signature from what it received."""
    cloud = STORES["az"]()
    for name, value in cloud.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "stores.yaml"
    cloud.told_to(tmp_path, "clinic")
    path.write_text(
        path.read_text().replace("sas_env: LAMPLIGHT_SAS", f"account: {ACCOUNT}\n    key_env: LAMPLIGHT_ACCOUNT_KEY")
    )
    for name in ("a.txt", "ä b%2e.txt", "sub/c+d.txt"):
        cloud.put(f"clinic/in ä+/{name}", b"text")
    with open_source(ProjectHome(tmp_path), Address("clinic", "in ä+", "az")) as stored:
        assert [document.text for document in read_documents(stored, None)] == ["text"] * 3
    assert {"sig" in asked.query for asked in cloud.requests} == {False}
    cloud.stop()


def test_a_token_is_fetched_over_https_alone(monkeypatch, tmp_path):
    monkeypatch.setattr("time.sleep", lambda _: None)  # Google's library pauses between its attempts
    cloud = STORES["gs"]()
    for name, value in cloud.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    cloud.told_to(tmp_path, "clinic")
    cloud.put("clinic/notes.jsonl", JSONL)
    account = tmp_path / "service-account.json"
    for fault, error in ((status(400), StoreDenied), (status(503), StoreUnreachable)):
        cloud.fail("token", fault)
        with open_source(ProjectHome(tmp_path), parse_place("gs://clinic/notes.jsonl")) as stored, pytest.raises(error):
            stored.exists()
    account.write_text(account.read_text().replace(cloud.url, "http://oauth2.example.org"))
    with (
        open_source(ProjectHome(tmp_path), parse_place("gs://clinic/notes.jsonl")) as stored,
        pytest.raises(EndpointUnsafe),
    ):
        stored.exists()
    cloud.stop()
