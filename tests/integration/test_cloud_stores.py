"""Google's and Azure's stores are read and published to like any other, whatever they do meanwhile."""

import json
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from flows.workspace.object_stores import buckets_of, open_source
from models_db.home import ProjectHome
from tasks.corpus.readers import sources
from tasks.corpus.readers.readers import read_documents
from tasks.object_storage import request_limits as limits
from tasks.object_storage.address import AZURE, GOOGLE, Address
from tasks.object_storage.bucket import Store, open_store
from tasks.object_storage.bucket_settings import AzureSettings, Buckets, GoogleSettings
from tasks.object_storage.errors import ObjectChanged, StoreDenied
from tests.cloud_stores import SECRETS, STORES, CloudStore, cut, elsewhere, longer, status
from tests.integration.canary import leaks, text_of
from tests.integration.test_stored_sources import JSONL
from tests.refusals import refusal
from tests.support import require

CONCERNS = ("tasks/corpus", "tasks/object_storage", "tasks/publishing")
NAME = "Zebulon Quartermaine"
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body directly with raw bytes:ResourceWarning")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Nothing of this machine's own."""
    require(find_spec("gcsfs") and find_spec("adlfs"), "gcsfs or adlfs is not installed")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no-gcloud"))


@pytest.fixture(params=STORES)
def cloud(request, monkeypatch, tmp_path_factory) -> Iterator[CloudStore]:
    server = STORES[request.param]()
    for name, value in server.environment(tmp_path_factory.mktemp("secrets")).items():
        monkeypatch.setenv(name, value)
    yield server
    server.stop()


@pytest.fixture
def home(cloud, tmp_path) -> ProjectHome:
    """A home that knows the bucket `clinic`, with the notes in it."""
    cloud.told_to(tmp_path, "clinic")
    cloud.put("clinic/notes.jsonl", JSONL)
    return ProjectHome(tmp_path)


@pytest.fixture
def store(cloud, home) -> Iterator[Store]:
    with open_store(address(cloud), buckets_of(home)) as opened:
        yield opened


def address(cloud: CloudStore, key: str = "notes.jsonl", bucket: str = "clinic") -> Address:
    return Address(bucket, key, cloud.scheme)


def test_a_folder_is_read_as_on_disk(cloud, home, tmp_path):
    """`/` sorts after `-` and `.`, which stores with a hierarchy of folders do not know."""
    for name in ("b.txt", "a/z.txt", "a-b/1.txt", "a.b.txt", "a/ä?#%2e +.txt"):
        file = tmp_path / "corpus" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"text of {name}")
        cloud.put(f"clinic/in/{name}", file.read_bytes())
    with open_source(home, address(cloud, "in")) as stored:
        found = list(read_documents(stored, None))
        assert sources.source_digest(stored) == sources.source_digest(tmp_path / "corpus")
    assert found == list(read_documents(tmp_path / "corpus", None))
    assert len(found) == 5


def test_a_corpus_is_ingested_and_no_secret_is_kept(almoner, cloud, caplog):
    caplog.set_level("DEBUG")
    almoner.registered()
    cloud.told_to(almoner.home.root, "clinic")
    cloud.put("clinic/notes.jsonl", JSONL)
    done = almoner.type(f"dataset ingest clinic {cloud.scheme}://clinic/notes.jsonl --label-field section")
    assert "Ingested version 1" in done.out
    outside = [text_of(path) for path in almoner.home.root.iterdir() if path.name != "corpora" and path.is_dir()]
    assert leaks("".join(outside)) == []
    logged = "".join(f"{record.getMessage()}{record.exc_info}" for record in caplog.records)
    kept = text_of(almoner.home.root) + logged + done.out + done.err
    assert [secret for secret in SECRETS if secret in kept] == []
    assert all(asked.method in ("GET", "HEAD") for asked in cloud.requests if asked.kind != "token")


def test_out_into_a_bucket_and_back(almoner, cloud):
    almoner.passed()
    cloud.told_to(almoner.home.root, "clinic", "missing")
    cloud.objects["clinic"] = {}
    assert almoner.ask(f"publish 1 --to {cloud.scheme}://missing/out", 3)["error"] == "BucketMissing"
    told = almoner.ask(f"publish 1 --to {cloud.scheme}://clinic/public")
    place = f"{cloud.scheme}://clinic/public/clinic-release-1"
    assert told["bundle"] == place
    names = [asked.key.rpartition("/")[2] for asked in cloud.requests if asked.kind == "write"]
    local = Path(almoner.ask(f"publish 1 --to {almoner.folder / 'out'}")["bundle"])
    stored = {key.rpartition("/")[2]: data for key, (data, _) in cloud.objects["clinic"].items()}
    assert sorted(stored) == sorted(file.name for file in local.iterdir())
    assert stored["texts.jsonl"] == (local / "texts.jsonl").read_bytes()
    if cloud.scheme == AZURE:  # Google's names stand in the bodies
        assert (names[0], names[-1]) == ("checkpoint.json", "SHA256SUMS.sig")
    before = dict(cloud.objects["clinic"])
    assert almoner.ask(f"publish 1 --to {cloud.scheme}://clinic/public")["sha256"] == told["sha256"]
    assert cloud.objects["clinic"] == before
    assert almoner.ask(f"verify-release {place} --key {almoner.ask('init')['public_key']}")["authentic"]
    del cloud.objects["clinic"]["public/clinic-release-1/SHA256SUMS.sig"]
    assert almoner.ask(f"verify-release {place}", 1)["error"] == "BundleUnfinished"
    cloud.put("clinic/other/clinic-release-1/checkpoint.json", b"another's")
    told = almoner.ask(f"publish 1 --to {cloud.scheme}://clinic/other", 1)
    assert told["error"] == "BundleExists"
    assert cloud.get("clinic/other/clinic-release-1/checkpoint.json") == b"another's"


def test_a_free_name_alone_is_taken(cloud, store, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"first")
    second.write_bytes(b"second")
    assert store.create(address(cloud, "out/a"), first)
    assert not store.create(address(cloud, "out/a"), second)
    assert cloud.get("clinic/out/a") == b"first"
    store.replace(address(cloud, "out/a"), second)
    assert cloud.get("clinic/out/a") == b"second"


@pytest.mark.parametrize("mebibytes", [6, pytest.param(66, marks=pytest.mark.slow)])
def test_a_large_file_arrives_as_a_whole_or_not(cloud, store, tmp_path, mebibytes):
    """Google takes more than 5 MiB in parts of 50, Azure more than 64 MiB in parts."""
    if (cloud.scheme, mebibytes) == (GOOGLE, 66):
        mebibytes = 45
    large = tmp_path / "large"
    large.write_bytes(bytes(range(256)) * (mebibytes << 12))
    assert store.create(address(cloud, "large"), large)
    assert cloud.get("clinic/large") == large.read_bytes()
    state = store.find(address(cloud, "large"))
    assert not store.create(address(cloud, "large"), large)
    assert store.find(address(cloud, "large")) == state


FAULTS = {
    "denied": (status(403), "StoreDenied"),
    "unknown": (status(401), "StoreDenied"),
    "busy": (status(503), "StoreUnreachable"),
    "teapot": (status(418), "StoreFailed"),
    "redirected": (elsewhere("https://storage.example.org/"), "StoreFailed"),
    "cut": (cut, "StoreUnreachable"),
}
OF_READS = {
    "longer": (longer, "StoreUnreachable"),
    "gone": (status(404), "ObjectChanged"),
    "changed": (status(412), "ObjectChanged"),
}
EVERYWHERE = [
    *((kind, name) for kind in ("list", "find", "write") for name in FAULTS if name != "cut"),
    *(("read", name) for name in FAULTS | OF_READS),
]


@pytest.mark.parametrize(("kind", "name"), EVERYWHERE)
def test_a_store_that_fails_is_named_and_its_words_are_not_repeated(
    cloud, store, kind, name, capfd, caplog, monkeypatch
):
    fault, error = (FAULTS | OF_READS)[name]
    if error == "StoreUnreachable":  # it is asked again, until the deadline
        monkeypatch.setattr(limits, "_SECONDS", 1)
    uses = {
        "find": lambda: store.find(address(cloud)),
        "list": lambda: list(store.list_below(address(cloud, ""))),
        "read": lambda: store.open(store.find(address(cloud))).read(),
        "write": lambda: store.create(address(cloud, "out"), Path(__file__)),
    }
    cloud.fail(kind, fault)
    with refusal(error) as refused:
        uses[kind]()
    logged = "".join(record.getMessage() for record in caplog.records)
    said = refused.value.diagnostics() + logged + "".join(capfd.readouterr())
    assert [word for word in (*SECRETS, NAME) if word in said] == []
    assert refused.value.temporary is (error == "StoreUnreachable")


def test_a_store_that_fails_once_is_asked_again(cloud, store):
    cloud.fail("read", status(503), times=1)
    assert store.open(store.find(address(cloud))).read() == JSONL


def test_a_store_that_is_not_there(cloud, store, monkeypatch):
    monkeypatch.setattr(limits, "_SECONDS", 1)
    cloud.stop()
    with refusal("StoreUnreachable"):
        store.find(address(cloud))


def test_a_bucket_that_is_missing(cloud, home):
    cloud.told_to(home.root, "other")
    with (
        open_source(home, address(cloud, "in", "other")) as stored,
        refusal("BucketMissing"),
    ):
        stored.exists()


@pytest.mark.parametrize("read_before", [True, False])
def test_what_changes_while_it_is_read_is_not_kept(cloud, store, monkeypatch, read_before):
    monkeypatch.setattr("tasks.object_storage.bucket._READ_AHEAD", 1 << 6)
    entry = store.find(address(cloud))
    with store.open(entry) as file:
        assert not read_before or file.read(5) == JSONL[:5]
        cloud.put("clinic/notes.jsonl", JSONL)  # the same bytes in another state
        with pytest.raises(ObjectChanged):
            file.read()
    with pytest.raises(ObjectChanged):
        store.open(entry)


def test_an_answer_has_a_bound(cloud, store, monkeypatch):
    monkeypatch.setattr(limits, "_LARGEST_ANSWER", 20)
    with refusal("StoreUnreachable"):
        list(store.list_below(address(cloud, "")))


def test_credentials_go_to_one_server_alone(cloud, home, monkeypatch, tmp_path):
    """Proxies of the environment, redirections, and places of uploads elsewhere are not used."""
    other = STORES[cloud.scheme]()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, other.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    (large := tmp_path / "large").write_bytes(b"a" * (6 << 20))
    with open_store(address(cloud), buckets_of(home)) as store:
        cloud.fail("read", elsewhere(f"{other.url}/"))
        with refusal("StoreFailed", match="302"):
            store.open(store.find(address(cloud))).read()
        cloud.fail("write", elsewhere(f"{other.url}/upload"))
        with refusal("StoreFailed", match="another-server" if cloud.scheme == GOOGLE else "302"):
            store.create(address(cloud, "large"), large)
    assert other.requests == []
    other.stop()


@pytest.mark.parametrize(
    ("settings", "scheme"),
    [(GoogleSettings(credentials_env="NOWHERE"), GOOGLE), (AzureSettings(account="heron", key_env="NOWHERE"), AZURE),
     (AzureSettings(account="heron", sas_env="NOWHERE"), AZURE)],
)  # fmt: skip
def test_a_variable_that_is_named_is_set(settings, scheme):
    place = Address("clinic", "", scheme)
    with refusal("CredentialsUnset", match="NOWHERE"), open_store(place, Buckets({place: settings})):
        pass


@pytest.mark.parametrize("content", ["", "[]", '"hunter2"', "{}", '{"type": "hunter2"}', '{"type": "service_account"}'])
def test_a_file_without_credentials(monkeypatch, tmp_path, content):
    (tmp_path / "credentials.json").write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "credentials.json"))
    with pytest.raises(StoreDenied, match="no credentials"), open_store(Address("clinic", "", GOOGLE), Buckets()):
        pass


def test_without_credentials_nobody_is_asked(monkeypatch, tmp_path):
    """Google's and Microsoft's libraries would ask 169.254.169.254, which nobody configured."""

    def connect(*_more, **_options):
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr("asyncio.BaseEventLoop.create_connection", connect)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StoreDenied, match="no credentials"), open_store(Address("clinic", "", GOOGLE), Buckets()):
        pass
    place = Address("clinic", "", AZURE)
    with (
        open_store(place, Buckets({place: AzureSettings(account="heron")})) as store,
        pytest.raises(StoreDenied, match="no credentials"),
    ):
        store.find(place / "a")


@pytest.mark.parametrize("role", [False, True])
def test_a_machine_s_own_role_is_asked_only_if_somebody_says_so(monkeypatch, tmp_path, role):
    from azure.identity import aio as identity

    monkeypatch.setenv("PATH", str(tmp_path))
    place = Address("clinic", "", AZURE)
    with open_store(place, Buckets({place: AzureSettings(account="heron", instance_role=role)})) as store:
        kinds = {type(one) for one in store.system.credential.credentials}
    managed = {identity.ManagedIdentityCredential}
    assert kinds == (managed if role else {identity.EnvironmentCredential, identity.AzureCliCredential})
    place = Address("clinic", "", GOOGLE)
    if role:
        with open_store(place, Buckets({place: GoogleSettings(instance_role=True)})) as store:
            assert type(store.system.credentials).__module__ == "google.auth.compute_engine.credentials"


def test_an_account_s_key_signs_and_is_not_sent(monkeypatch):
    cloud = STORES[AZURE]()
    monkeypatch.setenv("LAMPLIGHT_ACCOUNT_KEY", "dmVsdmV0LXRodW5kZXI=")
    place = Address("clinic", "", AZURE)
    settings = AzureSettings(account="heron", endpoint_url=cloud.url, key_env="LAMPLIGHT_ACCOUNT_KEY")
    with open_store(place, Buckets({place: settings})) as store, pytest.raises(StoreDenied):
        list(store.list_below(place))
    (asked,) = cloud.requests
    assert asked.headers["authorization"].startswith("SharedKey heron:")
    assert "dmVsdmV0" not in json.dumps(asked.headers)
    cloud.stop()


def test_a_token_is_fetched_over_https_alone(monkeypatch, tmp_path):
    monkeypatch.setattr("time.sleep", lambda _: None)  # Google's library pauses between its attempts
    cloud = STORES[GOOGLE]()
    for name, value in cloud.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    cloud.told_to(tmp_path, "clinic")
    cloud.put("clinic/notes.jsonl", JSONL)
    account = tmp_path / "service-account.json"
    for fault, error in ((status(400), "StoreDenied"), (status(503), "StoreUnreachable"), (cut, "StoreUnreachable")):
        cloud.fail("token", fault)
        with open_source(ProjectHome(tmp_path), address(cloud)) as stored, refusal(error):
            stored.exists()
    account.write_text(account.read_text().replace(cloud.url, "http://oauth2.example.org"))
    with open_source(ProjectHome(tmp_path), address(cloud)) as stored, refusal("EndpointUnsafe"):
        stored.exists()
    cloud.stop()


def test_files_of_fsspec_change_nothing(cloud, home, monkeypatch):
    import fsspec.config

    bad = {"token": "anon", "endpoint_url": "http://evil.example", "anon": True, "account_name": "evil"}
    for name in ("gs", "gcs", "az", "abfs", "abfss"):
        monkeypatch.setitem(fsspec.config.conf, name, bad)
    for name in ("STORAGE_EMULATOR_HOST", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.setenv(name, "evil.example")
    with open_store(address(cloud), buckets_of(home)) as store:
        assert store.find(address(cloud)).size == len(JSONL)


def test_google_s_own_file_is_read(tmp_path):
    folder = tmp_path / "no-gcloud"
    folder.mkdir()
    user = {"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "hunter2"}
    (folder / "application_default_credentials.json").write_text(json.dumps(user))
    with open_store(Address("clinic", "", GOOGLE), Buckets()) as store:
        assert store.system.credentials.refresh_token == "hunter2"
