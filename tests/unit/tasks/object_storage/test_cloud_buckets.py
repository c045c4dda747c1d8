"""Buckets of Google and Azure: who asks, how that is proved, and what an answer may hold."""

import json
from importlib.util import find_spec

import pytest

from tasks.object_storage.address import Address
from tasks.object_storage.azure_bucket import AzureBucket, shared_key_signature
from tasks.object_storage.bucket import open_store
from tasks.object_storage.bucket_settings import AzureSettings, Buckets, GoogleSettings
from tasks.object_storage.errors import (
    AccountMissing,
    CredentialsUnset,
    EndpointUnsafe,
    StoreDenied,
    StoreExtraMissing,
    StoreUnreachable,
    UnsafeUrlError,
)
from tasks.object_storage.http_bucket import Answer, Session
from tests.support import require

CLINIC = {"gs": Address("clinic", "a.jsonl", "gs"), "az": Address("clinic", "a.jsonl", "az")}
KEY = b"velvet-thunder-marzipan-4711"
DATED = {"x-ms-version": "2023-11-03", "x-ms-date": "Thu, 26 Nov 2026 08:00:00 GMT"}


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Nothing of this machine's own."""
    require(find_spec("google.auth") and find_spec("azure"), "google-auth or azure-identity is not installed")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no-gcloud"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tasks.object_storage.http_bucket._PAUSE", 0)


def opened(settings, address):
    return open_store(address, Buckets({Address(address.bucket, "", address.scheme): settings}))


@pytest.mark.parametrize(
    ("path", "parameters", "headers", "signature"),
    [
        (
            "/clinic",
            {"restype": "container", "comp": "list", "prefix": "in/ä b+", "include": "metadata", "maxresults": "1000"},
            DATED | {"Accept-Encoding": "identity"},
            "RM4qYzkV/wWgrs9oS2903M+xPb06X+fdqGJ7oYUsyM4=",
        ),
        (
            "/clinic/in/%C3%A4%20b%2525.jsonl",
            {},
            DATED | {"If-Match": '"0x8D1"', "x-ms-range": "bytes=0-9"},
            "vZ6rY3LKLzH0TGLEaXJatRFZPXBJVXr6OWJo4oOYxVI=",
        ),
    ],
)
def test_an_account_s_key_signs_as_microsoft_s_library_does(path, parameters, headers, signature):
    """The signatures are those of azure-storage-blob 12.31.1, SharedKeyCredentialPolicy, for the same requests."""
    url = f"https://heronaccount.blob.core.windows.net{path}"
    assert shared_key_signature("heronaccount", KEY, "GET", url, parameters, headers) == signature


@pytest.mark.parametrize(
    ("settings", "scheme"),
    [(GoogleSettings(credentials_env="NOWHERE"), "gs"), (AzureSettings(account="heron", key_env="NOWHERE"), "az"),
     (AzureSettings(account="heron", sas_env="NOWHERE"), "az")],
)  # fmt: skip
def test_a_variable_that_is_named_is_set(settings, scheme):
    with pytest.raises(CredentialsUnset, match="NOWHERE"), opened(settings, CLINIC[scheme]):
        pass


def test_a_key_that_is_none(monkeypatch):
    monkeypatch.setenv("LAMPLIGHT_KEY", "hunter2!")
    settings = AzureSettings(account="heron", key_env="LAMPLIGHT_KEY")
    with pytest.raises(StoreDenied, match="no credentials"), opened(settings, CLINIC["az"]):
        pass


def test_a_container_needs_an_account():
    with pytest.raises(AccountMissing, match="is not known"), open_store(CLINIC["az"], Buckets()):
        pass


@pytest.mark.parametrize("content", ["", "[]", '"hunter2"', "{}", '{"type": "hunter2"}', '{"type": "service_account"}'])
def test_a_file_without_credentials(monkeypatch, tmp_path, content):
    (tmp_path / "credentials.json").write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "credentials.json"))
    with pytest.raises(StoreDenied, match="no credentials"), open_store(CLINIC["gs"], Buckets()):
        pass


def test_without_credentials_nobody_is_asked(monkeypatch):
    def fail(*_more, **_options):
        raise AssertionError("a request")

    monkeypatch.setattr(Session, "send", fail)
    with pytest.raises(StoreDenied, match="no credentials"), open_store(CLINIC["gs"], Buckets()):
        pass
    with (
        opened(AzureSettings(account="heron"), CLINIC["az"]) as store,
        pytest.raises(StoreDenied, match="no credentials"),
    ):
        store.find(CLINIC["az"])


def test_a_machine_s_own_role_is_asked_only_if_somebody_says_so(monkeypatch):
    asked = []

    def send(_session, request, **_options):
        asked.append(request.url)
        raise UnsafeUrlError

    monkeypatch.setattr("requests.adapters.HTTPAdapter.send", lambda _adapter, request, **more: send(None, request))
    monkeypatch.setattr("time.sleep", lambda _: None)
    with Session(GoogleSettings()) as session, pytest.raises(UnsafeUrlError, match="plain http"):
        session.get("http://169.254.169.254/")
    with Session(GoogleSettings(instance_role=True)) as session, pytest.raises(UnsafeUrlError, match="plain http"):
        session.get("http://store.example.org/")
    assert asked == []
    with Session(GoogleSettings(instance_role=True)) as session, pytest.raises(UnsafeUrlError):
        session.get("http://169.254.169.254/")
    assert asked == ["http://169.254.169.254/"]


@pytest.mark.parametrize("role", [False, True])
def test_who_azure_is_asked_as(monkeypatch, role):
    import azure.identity

    made = []
    for name in ("ManagedIdentityCredential", "EnvironmentCredential", "AzureCliCredential"):
        monkeypatch.setattr(azure.identity, name, lambda *_, _name=name, **__: made.append(_name))
    with opened(AzureSettings(account="heron", instance_role=role), CLINIC["az"]):
        pass
    assert made == (["ManagedIdentityCredential"] if role else ["EnvironmentCredential", "AzureCliCredential"])


def test_an_identity_of_entra(monkeypatch):
    """Its token is the proof; what its library raises gets a name here, and its words are not repeated."""
    import azure.identity
    from azure.core.credentials import AccessToken
    from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

    answers = []

    class Source:
        def __init__(self, **_settings):
            pass

        def get_token(self, scope):
            assert scope == "https://storage.azure.com/.default"
            if isinstance(answer := answers.pop(), Exception):
                raise answer
            return answer

    monkeypatch.setattr(azure.identity, "EnvironmentCredential", Source)
    sent = []

    def send(_session, request, **_options):
        sent.append(request.headers["Authorization"])
        raise UnsafeUrlError

    monkeypatch.setattr(Session, "send", send)
    with opened(AzureSettings(account="heron"), CLINIC["az"]) as store:
        for answer, error in (
            (ClientAuthenticationError("hunter2"), StoreDenied),
            (azure.identity.CredentialUnavailableError("hunter2"), StoreDenied),
            (ServiceRequestError("hunter2"), StoreUnreachable),
        ):
            answers[:] = [answer] * 3
            with pytest.raises(error) as refused:
                store.find(CLINIC["az"])
            assert "hunter2" not in refused.value.diagnostics()
        assert sent == []
        answers[:] = [AccessToken("porcelain", 4_000_000_000)]
        with pytest.raises(EndpointUnsafe):
            store.find(CLINIC["az"])
        with pytest.raises(EndpointUnsafe):  # the token is kept: nobody answers a second time
            store.find(CLINIC["az"])
    assert sent == ["Bearer porcelain"] * 2


def test_a_session_takes_nothing_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "bundle"))
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org")
    (tmp_path / ".netrc").write_text("machine store.example.org login a password hunter2")
    monkeypatch.setenv("HOME", str(tmp_path))
    with Session(GoogleSettings(ca_file="/ca.pem", proxy="https://proxy.clinic.example")) as session:
        used = session.merge_environment_settings("https://store.example.org", {}, None, None, None)
        assert used["verify"] == "/ca.pem"
        assert dict(used["proxies"]) == {"https": "https://proxy.clinic.example"}
        import requests

        prepared = session.prepare_request(requests.Request("GET", "https://store.example.org"))
        assert "Authorization" not in prepared.headers
    with Session(GoogleSettings()) as session:
        used = session.merge_environment_settings("https://store.example.org", {}, None, None, None)
        assert (used["verify"], dict(used["proxies"])) == (True, {})


@pytest.mark.parametrize(
    ("scheme", "module", "extra"), [("gs", "google.auth", "gcs"), ("az", "azure.identity", "azure")]
)
def test_without_the_extra_somebody_says_which_it_is(monkeypatch, scheme, module, extra):
    import sys

    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delattr(sys.modules[module.partition(".")[0]], module.partition(".")[2], raising=False)
    settings = AzureSettings(account="heron") if scheme == "az" else GoogleSettings()
    with pytest.raises(StoreExtraMissing) as refused, opened(settings, CLINIC[scheme]):
        pass
    assert refused.value.facts == {"extra": extra}
    assert f"pip install 'almoner[{extra}]'" in refused.value.diagnostics()


class _Scripted(AzureBucket):
    """A container whose server answers with one body."""

    def __init__(self, body):
        super().__init__(Session(AzureSettings()), "https://heron.example", lambda *_: None)
        self.body = body

    def _send(self, *_more):
        return Answer(200, {}, self.body)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<a", b"\xff\xfe<", b'<!DOCTYPE a [<!ENTITY b "c">]><EnumerationResults/>',
        '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE a []><EnumerationResults/>'.encode("utf-16"),
        b"<E><Blobs><Blob><Name>a</Name></Blob></Blobs></E>",
        b"<E><Blobs><Blob><Name>a</Name><Properties><Etag>1</Etag><Content-Length>x</Content-Length></Properties></Blob></Blobs></E>",
    ],
)  # fmt: skip
def test_a_list_that_is_none(body):
    with pytest.raises(OSError, match="no-"):
        list(_Scripted(body).pages(Address("clinic", "", "az"), ""))


def test_names_that_xml_cannot_hold_are_decoded():
    body = (
        b'<E><Blobs><Blob><Name Encoded="true">in/%EF%BF%BE.txt</Name><Properties><Etag>"0x1"</Etag>'
        b"<Content-Length>4</Content-Length></Properties></Blob><Blob><Name>in/sub</Name><Properties><Etag>2</Etag>"
        b"<Content-Length>0</Content-Length></Properties><Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob>"
        b"</Blobs><NextMarker/></E>"
    )
    ((entry,),) = _Scripted(body).pages(Address("clinic", "", "az"), "in/")
    assert (entry.address.key, entry.size, entry.tag) == ("in/\ufffe.txt", 4, "0x1")


def test_a_blob_whose_name_an_url_cannot_hold_is_not_asked_for():
    with pytest.raises(OSError, match="name"):
        _Scripted(b"").find(Address("clinic", "in/../other", "az"))


def test_google_s_own_file_is_read(tmp_path, monkeypatch):
    folder = tmp_path / "no-gcloud"
    folder.mkdir()
    user = {"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "hunter2"}
    (folder / "application_default_credentials.json").write_text(json.dumps(user))
    with open_store(CLINIC["gs"], Buckets()) as store:
        assert store._backend._credentials.refresh_token == "hunter2"
