"""stores.yaml: what a home says of buckets, what is refused, and where credentials come from."""

import sys

import pytest
import yaml

from flows.workspace.object_stores import buckets_of, open_source
from models_db.errors import AlmonerError, EnvironmentProblem
from models_db.home import ProjectHome
from tasks.object_storage.address import Address
from tasks.object_storage.bucket import open_store
from tasks.object_storage.bucket_settings import AzureSettings, Buckets, GoogleSettings, S3Settings
from tasks.object_storage.errors import StoreDenied, bucket_missing, store_unreachable
from tests.refusals import refusal

HERE = Address("clinic", "a.jsonl")
AZURE = {"account": "heronaccount"}


@pytest.fixture
def home(tmp_path):
    return ProjectHome(tmp_path)


def written(home, content, mode=0o600):
    home.stores.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    home.stores.chmod(mode)
    return buckets_of(home)


def test_no_file_says_nothing(home):
    assert buckets_of(home).of(Address("clinic")) == S3Settings()


def test_what_is_said_of_a_bucket(home):
    said = {"endpoint_url": "https://s3.example.org", "region": "eu-central-1", "encryption": "aws:kms", "kms_key": "k"}
    found = written(home, {"buckets": {"clinic": said}})
    assert found.of(Address("clinic")) == S3Settings(**said)
    assert found.of(Address("other")) == S3Settings()


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o604])
def test_a_file_that_others_may_touch_is_refused(home, mode):
    with refusal("StoresFileExposed"):
        written(home, {"buckets": {}}, mode)


@pytest.mark.parametrize(
    "said",
    [
        {"secret": "hunter2"}, {"key": "hunter2"}, {"key_env": "hunter2-x"}, {"key_env": "A"}, {"token_env": "A"},
        {"endpoint_url": "http://s3.example.org"}, {"endpoint_url": "https://u:hunter2@s3.example.org"},
        {"endpoint_url": "ftp://127.0.0.1"}, {"encryption": "none"}, {"kms_key": "k"}, {"verify": False},
        "hunter2",
    ],
)  # fmt: skip
def test_what_is_refused_is_not_repeated(home, said):
    with refusal("FileInvalid") as refused:
        written(home, {"buckets": {"clinic": said}})
    assert "hunter2" not in refused.value.diagnostics()


@pytest.mark.parametrize("name", ["s3://clinic/key", "file:///hunter2", "ftp://hunter2", "s3://hunter2:a@clinic"])
def test_a_name_that_is_no_bucket_is_not_repeated(home, name):
    with pytest.raises(AlmonerError) as refused:
        written(home, {"buckets": {name: {}}})
    assert "hunter2" not in refused.value.diagnostics()


def test_a_bucket_is_named_with_or_without_its_scheme(home):
    found = written(home, {"buckets": {"s3://clinic": {"region": "eu-central-1"}}})
    assert found.of(Address("clinic", "a")) == S3Settings(region="eu-central-1")


def test_two_stores_may_have_buckets_of_one_name(home):
    found = written(
        home,
        {"buckets": {"clinic": {"region": "auto"}, "gs://clinic": {"credentials_env": "A"}, "abfs://clinic": AZURE}},
    )
    assert found.of(Address("clinic")) == S3Settings(region="auto")
    assert found.of(Address("clinic", "a", "gs")) == GoogleSettings(credentials_env="A")
    assert found.of(Address("clinic", "a", "az")) == AzureSettings(**AZURE)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gs://clinic", {"key_env": "HUNTER2"}), ("gs://clinic", {"account": "hunter2"}),
        ("gs://clinic", {"endpoint_url": "http://hunter2.example"}), ("az://clinic", {"key_env": "HUNTER2"}),
        ("az://clinic", AZURE | {"key_env": "HUNTER2", "sas_env": "A"}), ("az://clinic", {"account": "hunter2."}),
    ],
)  # fmt: skip
def test_what_is_refused_of_other_stores(home, name, said):
    with refusal("FileInvalid") as refused:
        written(home, {"buckets": {name: said}})
    assert "hunter2" not in refused.value.diagnostics().lower()


def test_a_container_needs_an_account():
    with pytest.raises(EnvironmentProblem, match="is not known") as refused:
        Buckets().of(Address("clinic", "", "az"))
    assert refused.value.code == "AccountMissing"


def test_nothing_lies_beside_the_buckets(home):
    with refusal("FileInvalid"):
        written(home, {"bukets": {"clinic": {}}})


def test_a_variable_that_is_named_is_set(monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    with (
        refusal("CredentialsUnset", match="NOWHERE"),
        open_store(HERE, Buckets({Address("clinic"): S3Settings(key_env="NOWHERE", secret_env="NOWHERE")})),
    ):
        pass


def test_a_profile_that_is_named_is_there(s3):
    with (
        pytest.raises(StoreDenied, match="profile"),
        open_store(HERE, Buckets({Address("clinic"): S3Settings(profile="nobody")})),
    ):
        pass


def test_the_environment_cannot_name_an_unsafe_endpoint(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://s3.example.org")
    with refusal("EndpointUnsafe"), open_store(HERE, Buckets()):
        pass


def test_files_of_fsspec_cannot_switch_verification_off(s3, monkeypatch):
    import fsspec.config

    bad = {"use_ssl": False, "anon": True, "client_kwargs": {"verify": False}, "endpoint_url": "http://s3.example.org"}
    monkeypatch.setitem(fsspec.config.conf, "s3", bad)
    known = S3Settings(endpoint_url="https://s3.example.org", key_env="LAMPLIGHT_KEY", secret_env="LAMPLIGHT_SECRET")
    with open_store(HERE, Buckets({Address("clinic"): known})) as store:
        system = store.system
        assert system.endpoint_url == "https://s3.example.org"
        assert system.client_kwargs == {"region_name": None, "verify": None}
        assert (system.use_ssl, system.anon) == (True, False)
        assert system.s3._endpoint.http_session._verify  # a file of authorities, or those of the machine


def test_without_credentials_nobody_else_is_asked(s3):
    """Amazon's library would ask 169.254.169.254, which nobody configured."""
    with pytest.raises(StoreDenied, match="no credentials"), open_store(HERE, _plain(s3)) as store:
        store.find(HERE)


def test_a_machine_s_own_role_is_asked_only_if_somebody_says_so(s3):
    for role in (False, True):
        known = S3Settings(endpoint_url=s3.url, instance_role=role)
        with open_store(HERE, Buckets({Address("clinic"): known})) as store:
            providers = store.system.session.get_component("credential_provider").providers
            assert ("iam-role" in [provider.METHOD for provider in providers]) is role


def test_a_certificate_is_checked(s3, tmp_path):
    with _self_signed(tmp_path) as port:
        known = S3Settings(
            endpoint_url=f"https://127.0.0.1:{port}", key_env="LAMPLIGHT_KEY", secret_env="LAMPLIGHT_SECRET"
        )
        with (
            refusal("StoreUnreachable", match="certificate"),
            open_store(HERE, Buckets({Address("clinic"): known})) as store,
        ):
            store.find(HERE)


@pytest.mark.parametrize(
    ("scheme", "package", "extra"), [("s3", "s3fs", "s3"), ("gs", "gcsfs.core", "gcs"), ("az", "adlfs", "azure")]
)
def test_without_the_extra_somebody_says_which_it_is(home, monkeypatch, scheme, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    for name in ("s3_filesystem", "google_filesystem", "azure_filesystem"):
        monkeypatch.delitem(sys.modules, f"tasks.object_storage.{name}", raising=False)
    written(home, {"buckets": {"az://clinic": AZURE}})
    with (
        refusal("StoreExtraMissing", match="not installed") as refused,
        open_source(home, Address("clinic", "a", scheme)),
    ):
        pass
    assert refused.value.facts == {"extra": extra}
    assert f"pip install 'almoner[{extra}]'" in refused.value.advice


def _plain(s3):
    return Buckets({Address("clinic"): S3Settings(endpoint_url=s3.url, region="us-east-1")})


def _self_signed(folder):
    """A server of TLS whose certificate nobody has signed, until the end of the block."""
    import socket
    import threading
    from contextlib import contextmanager, suppress

    from tests.tls_relay import Authority

    @contextmanager
    def serving():
        context = Authority(folder, "nobody").server("127.0.0.1.invalid")
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def answer():
                with suppress(OSError):
                    while True:
                        client, _ = listening.accept()
                        with suppress(OSError), client, context.wrap_socket(client, server_side=True) as inside:
                            inside.recv(1)

            threading.Thread(target=answer, daemon=True).start()
            yield listening.getsockname()[1]
            listening.shutdown(socket.SHUT_RDWR)

    return serving()


@pytest.mark.parametrize(
    "problem", [store_unreachable(Address("nottes"), "no answer"), bucket_missing(Address("nottes"))]
)
def test_who_mistypes_a_bucket_is_told_where_it_was_looked_for(problem):
    said = problem.diagnostics()
    assert "'nottes'" in said
    assert "stores.yaml does not name is looked for at Amazon (s3://) or Google (gs://)" in said
