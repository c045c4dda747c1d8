"""Who comes in: the token, sessions, patience, TLS; and what the command refuses to start."""

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from typer.testing import CliRunner

from cli.app import app
from cli.web import application as put_together
from cli.web.access import AccessOptions, AccessPolicy, access_policy
from cli.web.sessions import MOST_WRONG_TOKENS
from models_db.home import ProjectHome
from tests.dashboard_homes import TOKEN, Home
from tests.support import PATIENCE

CONCERNS = ("cli/web", "flows/dashboard")

ROOT = Path(__file__).resolve().parents[2]
AS_JSON = {"accept": "application/json"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home.made(tmp_path_factory.mktemp("door"))
    made.dataset("clinic")
    return made


@pytest.fixture
def behind(tmp_path: Path) -> AccessPolicy:
    """A door with a token."""
    return access_policy(AccessOptions(token_file=written(tmp_path)))


@pytest.fixture
def client(home: Home, behind: AccessPolicy) -> TestClient:
    return home.client(behind)


def written(folder: Path) -> Path:
    path = folder / "token"
    path.touch(0o600)
    path.write_text(f"{TOKEN}\n")
    return path


def log_in(client: TestClient, token: str = TOKEN, **headers: str) -> httpx.Response:
    found: httpx.Response = client.post("/login", data={"token": token}, headers=headers)
    return found


def test_without_the_token_there_is_a_form_and_nothing_else(client: TestClient) -> None:
    for path in ("/", "/datasets/clinic", "/approvals", "/releases", "/releases/1", "/audit", "/nowhere", "/index.jsn"):
        found = client.get(path)
        assert (found.status_code, found.headers["location"], found.text) == (303, "/login", ""), path
    for path in ("/index.json", "/datasets/clinic.json"):
        found = client.get(path)
        assert (found.status_code, found.json()["error"]) == (401, "TokenRequired")
        assert found.headers["www-authenticate"] == "Bearer"
    for path in ("/login", "/healthz", "/style.css", "/favicon.svg"):
        found = client.get(path)
        assert found.status_code == 200
        assert "clinic" not in found.text
    assert client.get("/login/").status_code == 303


def test_the_token_opens_a_session_in_a_cookie_that_only_we_get(client: TestClient) -> None:
    found = log_in(client)
    assert (found.status_code, found.headers["location"]) == (303, "/")
    cookie = found.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "Secure" not in cookie, "plain HTTP on loopback"
    assert "Domain" not in cookie
    assert "Max-Age" not in cookie
    assert TOKEN not in cookie
    assert "clinic" in client.get("/").text
    client.cookies.clear()
    assert client.get("/").status_code == 303
    for forged in ("almoner=", "almoner=x", "almoner=x; almoner=y", f"almoner={TOKEN}", 'almoner="\\', "=;=", "\xff"):
        assert client.get("/", headers={"cookie": forged.encode("latin-1")}).status_code == 303, forged


def test_over_tls_the_cookie_is_bound_to_host_and_tls(home: Home, tmp_path: Path) -> None:
    pair = {"certificate": Path("c"), "key": Path("k")}
    client = home.client(access_policy(AccessOptions(token_file=written(tmp_path), **pair)))
    cookie = log_in(client).headers["set-cookie"]
    assert cookie.startswith("__Host-almoner=")
    assert "Secure" in cookie
    assert "clinic" in client.get("/").text


def test_a_program_shows_the_token_with_each_request(client: TestClient) -> None:
    for scheme in ("Bearer", "bearer"):
        found = client.get("/index.json", headers={"authorization": f"{scheme} {TOKEN}"})
        assert found.status_code == 200
        assert "set-cookie" not in found.headers
    for wrong in ("Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"):
        assert client.get("/index.json", headers={"authorization": wrong}).status_code == 401, wrong


@pytest.mark.parametrize("way", ["form", "bearer"])
def test_who_is_wrong_too_often_waits_whatever_they_send(client: TestClient, way: str) -> None:
    def send(token: str) -> httpx.Response:
        if way == "form":
            return log_in(client, token)
        found: httpx.Response = client.get("/", headers={**AS_JSON, "authorization": f"Bearer {token}"})
        return found

    assert send(TOKEN).status_code in (200, 303)
    session = dict(client.cookies)
    client.cookies.clear()
    for number in range(MOST_WRONG_TOKENS):
        assert send(f"wrong {number}").status_code == 401
    for token in ("wrong", TOKEN):
        found = send(token)
        assert found.status_code == 429
        assert 1 <= int(found.headers["retry-after"]) <= 60
    for name, value in session.items():
        client.cookies.set(name, value)
        assert client.get("/").status_code == 200, "an open session goes on"


def test_a_wrong_token_is_not_repeated(client: TestClient) -> None:
    found = log_in(client, "hunter2" * 5)
    assert found.status_code == 401
    assert "That is not the token" in found.text
    assert "hunter2" not in found.text
    assert "set-cookie" not in found.headers


@pytest.mark.parametrize(
    ("headers", "let_in"),
    [
        ({"origin": "http://127.0.0.1:8717"}, True),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "null"}, True),
        ({"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:8717"}, False),
    ],
)
def test_a_form_of_another_site_is_not_taken(client: TestClient, headers: dict[str, str], let_in: bool) -> None:
    assert (log_in(client, **headers).status_code == 303) == let_in


def test_what_is_no_form_is_wrong(client: TestClient) -> None:
    for body in (b"", b"token=", b"x" * 5000, f"token={TOKEN}".encode() + b"&a=b" * 9, b"\xff\xfe", b"token=%FF" * 3):
        client = TestClient(client.app, base_url="http://127.0.0.1:8717", follow_redirects=False)
        assert client.post("/login", content=body).status_code in (401, 429), body[:20]
    assert client.put("/login").status_code == 405


def test_without_a_token_there_is_nothing_to_log_in_to(home: Home) -> None:
    client = home.client()
    for found in (client.get("/login"), log_in(client)):
        assert (found.status_code, found.headers["location"]) == (303, "/")
        assert "set-cookie" not in found.headers


def test_a_websocket_is_not_accepted(client: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/"):
        pass


# --- a real server -------------------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody but its own client believes."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ledger.example")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )  # fmt: skip
    return paths


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def serving(home: ProjectHome, asked: AccessOptions, monkeypatch: pytest.MonkeyPatch) -> Iterator[AccessPolicy]:
    """The server as the command runs it, in a thread of this process."""
    servers: list[uvicorn.Server] = []

    class Known(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            servers.append(self)

    monkeypatch.setattr(uvicorn, "Server", Known)
    made = access_policy(asked)
    thread = threading.Thread(target=put_together.serve_dashboard, args=(home, made))
    thread.start()
    try:
        yield made
    finally:
        servers[0].should_exit = True
        thread.join(PATIENCE)
    assert not thread.is_alive()


def test_the_server_speaks_tls_and_tells_nothing_of_itself(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate(tmp_path)
    asked = AccessOptions(port=free_port(), token_file=written(tmp_path), certificate=cert, key=key)
    trusting = ssl.create_default_context(cafile=str(cert))
    with serving(home.home, asked, monkeypatch) as made:
        transport = httpx.HTTPTransport(verify=trusting, retries=8)
        with httpx.Client(base_url=f"https://127.0.0.1:{made.port}", transport=transport) as client:
            assert client.get("/healthz").json() == {"ok": True}
            found = client.get("/index.json", headers={"authorization": f"Bearer {TOKEN}"})
            assert found.json()["overview"]["datasets"][0]["name"] == "clinic"
            assert "server" not in found.headers
            assert client.get("/index.json", headers={"x-forwarded-for": "127.0.0.1"}).status_code == 401
            assert client.head("/login").status_code == 200


def typed(home: Home, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["dashboard", *words, "--home", str(home.home.root)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--bind", "0.0.0.0"], "TokenRequired"),
        (["--bind", "192.0.2.7"], "TokenRequired"),
        (["--bind", "192.0.2.7", "--token-env", "ALMONER_TEST_TOKEN"], "TlsRequired"),
        (["--bind", "ledger.example"], "InvalidListenAddress"),
        (["--tls-cert", "cert.pem"], "IncompleteTls"),
        (["--token-file", "nowhere"], "InvalidAccessToken"),
    ],
)
def test_the_command_refuses_an_open_door(
    home: Home, monkeypatch: pytest.MonkeyPatch, words: list[str], error: str
) -> None:
    monkeypatch.setenv("ALMONER_TEST_TOKEN", TOKEN)
    code, said = typed(home, *words)
    assert code == 2
    assert error in said
    assert TOKEN not in said


def test_the_command_says_what_it_cannot_do(home: Home, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = typed(home, "--port", str(taken.getsockname()[1]))
    assert (code, "AddressNotAvailable" in said) == (3, True)
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("no certificate")
    files = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    code, said = typed(home, "--port", str(free_port()), *files)
    assert (code, "AddressNotAvailable" in said) == (3, True)
    done = CliRunner().invoke(app, ["dashboard", "--home", str(tmp_path / "none")])
    assert (done.exit_code, "HomeMissing" in done.output) == (3, True)


@pytest.mark.slow
def test_whoever_waits_for_requests_has_not_loaded_models() -> None:
    """Torch and the orchestrator would be seconds at the start, and memory for as long as it waits."""
    heavy = "('torch', 'transformers', 'prefect')"
    asked = f"import sys, cli.web.application; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
