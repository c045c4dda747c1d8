"""Notices: read off the chain, sent to real receivers on this machine, at least once, and with nothing private."""

import email.policy
import hashlib
import hmac
import json
import os
import socketserver
import ssl
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_string
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from flows.notifications.notify import deliver_notices
from tests.integration.canary import leaks
from tests.integration.receiver import Receiver, serving
from tests.integration.story import Almoner
from tests.integration.test_schedules import SMALL, authorised, scheduled

SECRET, VARIABLE = "a secret of the test", "ALMONER_TEST_HOOK"


def hooked(almoner: Almoner, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    almoner.type(f"notify add hook --webhook {receiver.url} --secret-env {VARIABLE}")


def test_a_webhook_is_told_what_waits_was_skipped_and_failed(
    almoner: Almoner, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorised(almoner, runs=1)
    hooked(almoner, receiver, monkeypatch)
    assert almoner.ask("notify send")[0]["sent"] == 0  # what happened before is nobody's news
    scheduled(almoner)
    with monkeypatch.context() as patch:
        patch.setattr("flows.releases.attempt.code_digest", lambda: "c" * 64)
        almoner.type("serve --once --without-prefect")
    almoner.type("run 1")
    almoner.type(f"release request {almoner.request_file(**SMALL)}")
    almoner.type('dataset cap clinic --epsilon 9 --delta 1e-6 --reason "more for Mrs Miller"')
    almoner.type('schedule create 1 --every 1w --start 2026-01-02 --reason "again"')
    almoner.type("serve --once --without-prefect")
    assert receiver.events == [
        "a run was given up", "a release waits at the publish gate", "a request waits at the spend gate",
        "a proposal waits for approvals", "a slot was skipped",
    ]  # fmt: skip
    for headers, body in receiver.seen:
        assert headers["X-Almoner-Signature"] == f"sha256={hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}"
        assert headers["X-Almoner-Notice"] == str(json.loads(body)["notice"])
        assert leaks(body.decode()) == []
        assert "Miller" not in body.decode()
    told = [json.loads(body) for _, body in receiver.seen]
    assert (told[0]["reason"], told[0]["request"], told[0]["schedule"]) == ("PlanChanged", 1, 1)
    assert (told[1]["gate"], told[2]["gate"], told[3]["gate"]) == ("publish", "spend", "proposal")
    assert float(told[2]["rho"]) > 0
    assert told[4]["skipped"] == "AuthorisationExhausted"
    almoner.type("notify send")
    assert len(receiver.seen) == 5


def test_a_receiver_that_fails_is_tried_later_and_misses_nothing(
    almoner: Almoner, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.ingested()
    hooked(almoner, receiver, monkeypatch)
    for _ in range(2):
        almoner.type(f"release request {almoner.request_file()}")
    receiver.answers = [500, 302, 204]
    (first,) = almoner.ask("notify send", expected=3)
    assert (first["sent"], first["failed"]) == (0, "NotDelivered")
    assert almoner.ask("notify send")[0]["sent"] == 0  # it waits half a minute
    assert len(receiver.seen) == 1
    now = datetime.now(UTC)
    (second,) = deliver_notices(almoner.home, now + timedelta(seconds=31))  # a redirect is not followed
    assert (second.sent, second.failed) == (0, "NotDelivered")
    assert [each.sent for each in deliver_notices(almoner.home, now + timedelta(seconds=40))] == [0]
    assert [each.sent for each in deliver_notices(almoner.home, now + timedelta(seconds=120))] == [2]
    assert [json.loads(body)["request"] for _, body in receiver.seen] == [1, 1, 1, 2]
    assert almoner.ask("notify list")[0]["failures"] == 0


def test_an_address_that_nobody_answers_and_a_secret_that_is_not_set(
    almoner: Almoner, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.ingested()
    almoner.type("notify add dead --webhook http://127.0.0.1:9/")
    hooked(almoner, receiver, monkeypatch)
    monkeypatch.delenv(VARIABLE)
    assert almoner.ask("notify test dead", expected=3)["error"] == "NotDelivered"
    assert almoner.ask("notify test hook", expected=3)["error"] == "SecretMissing"
    almoner.type(f"release request {almoner.request_file()}")
    done = almoner.ask("serve --once --without-prefect", expected=1)
    assert [problem["error"] for problem in done["problems"]] == ["NotDelivered", "SecretMissing"]
    assert receiver.seen == []


def test_a_log_is_a_line_of_json_for_each(almoner: Almoner) -> None:
    almoner.ingested()
    file = almoner.folder / "notices.jsonl"
    almoner.type(f"notify add record --log {file}")
    almoner.type("notify test record")
    almoner.type(f"release request {almoner.request_file()}")
    almoner.type("notify send")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["a try", "a request waits at the spend gate"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_line_that_a_full_disk_has_torn_takes_no_other_with_it(almoner: Almoner) -> None:
    almoner.registered()
    file = almoner.write("notices.jsonl", '{"event":"a whole line"}\n{"event":"a to')
    almoner.type(f"notify add record --log {file}")
    almoner.type("notify test record")
    whole, torn, following = file.read_text().splitlines()
    assert (json.loads(whole)["event"], torn, json.loads(following)["event"]) == (
        "a whole line",
        '{"event":"a to',
        "a try",
    )


@pytest.mark.parametrize(
    "options",
    [
        "--webhook http://example.org/hook",
        "--webhook https://me:secret@example.org/hook",
        "--webhook ftp://example.org/",
        "--webhook https:///hook",
        "--email nobody --from a@example.org --smtp mail.example.org",
        "--email a@example.org --from a@example.org",
        "--email a@example.org --from a@example.org --smtp mail.example.org --tls none",
        "--email a@example.org --from a@example.org --smtp mail.example.org --user-env MAIL_USER",
        "--log /tmp/x --webhook https://example.org/",
        "",
    ],
)
def test_what_is_no_channel(almoner: Almoner, options: str) -> None:
    almoner.ingested()
    assert almoner.ask(f"notify add bad {options}", expected=2)["error"] in ("FileInvalid", "ChannelTypeConflict")
    assert almoner.ask("notify list") == []


def test_what_is_no_channel_is_said_in_a_sentence(almoner: Almoner) -> None:
    almoner.ingested()
    told = almoner.ask("notify add bad --webhook http://example.org/hook", expected=2)
    assert told["message"] == (
        "The channel 'bad' is not valid: url: an address begins with https://; http:// only on this machine."
    )


def test_channels_are_listed_removed_and_named_once(almoner: Almoner) -> None:
    almoner.ingested()
    almoner.type("notify add hook --webhook https://hooks.example.org/almoner")
    assert almoner.ask("notify add hook --log /dev/null", expected=2)["error"] == "ChannelExists"
    assert [each["channel"] for each in almoner.ask("notify list")] == ["hook"]
    for name in ("notify.yaml", "notices.json"):
        assert stat.S_IMODE((almoner.home.root / name).stat().st_mode) == 0o600
    almoner.type("notify remove hook")
    assert almoner.ask("notify remove hook", expected=2)["error"] == "ChannelUnknown"
    assert almoner.ask("notify list") == []


# --- mail ------------------------------------------------------------------------------------------------------


@dataclass
class Post:
    """A mail server of the test's own: what it was told, and the mails it took."""

    port: int = 0
    said: list[str] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)


def certificate(folder: Path) -> tuple[Path, Path]:
    """A key and a certificate for this machine, which nobody else has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    public, private = folder / "cert.pem", folder / "key.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding, form, no_password = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    private.write_bytes(key.private_bytes(encoding, form, no_password))
    return public, private


class Mailbox(socketserver.ThreadingTCPServer):
    """Takes mails on this machine."""

    context: ssl.SSLContext
    post: Post


class Talk(socketserver.BaseRequestHandler):
    """One client, who gets nowhere before STARTTLS."""

    server: Mailbox

    def handle(self) -> None:
        self.file = self.request.makefile("rwb")
        self.tell("220 ready")
        while line := self.file.readline().decode().strip():
            verb = line.split()[0].upper()
            self.server.post.said.append(verb)
            if verb == "QUIT":
                self.tell("221 bye")
                break
            self.answer(verb)
        self.request.close()

    def tell(self, line: str) -> None:
        self.file.write(f"{line}\r\n".encode())
        self.file.flush()

    def answer(self, verb: str) -> None:
        encrypted = isinstance(self.request, ssl.SSLSocket)
        if verb == "EHLO":
            self.tell("250-localhost\r\n250 AUTH PLAIN" if encrypted else "250-localhost\r\n250 STARTTLS")
        elif verb == "STARTTLS":
            self.tell("220 go")
            self.request = self.server.context.wrap_socket(self.request, server_side=True)
            self.file = self.request.makefile("rwb")
        elif not encrypted:
            self.tell("530 not in the open")
        elif verb == "DATA":
            self.tell("354 go")
            self.server.post.mails.append("".join(iter(lambda: self.file.readline().decode(), ".\r\n")))
            self.tell("250 taken")
        else:
            self.tell("235 welcome" if verb == "AUTH" else "250 fine")


@pytest.fixture
def post(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    """A mail server that takes nothing before STARTTLS; its certificate is trusted by who knows it."""
    folder = tmp_path / "mail"
    folder.mkdir()
    public, private = certificate(folder)
    server = Mailbox(("127.0.0.1", 0), Talk)
    server.context, server.post = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Post(server.server_address[1])
    server.context.load_cert_chain(public, private)
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that does not trust it goes away
    with serving(server):
        yield server.post


MAIL = "--email sue@example.org --email sam@example.org --from almoner@example.org --smtp localhost:{port}"


@pytest.fixture
def mailed(almoner: Almoner, post: Post, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    almoner.ingested()
    monkeypatch.setenv("ALMONER_TEST_USER", "almoner")
    monkeypatch.setenv("ALMONER_TEST_PASSWORD", SECRET)
    secrets = "--user-env ALMONER_TEST_USER --password-env ALMONER_TEST_PASSWORD"
    return lambda more: almoner.type(f"notify add mail {MAIL.format(port=post.port)} {secrets} {more}") and None


def test_a_mail_goes_encrypted_to_every_steward(almoner: Almoner, post: Post, mailed: Callable[[str], None]) -> None:
    mailed("")
    almoner.type(f"release request {almoner.request_file()}")
    assert almoner.ask("notify send") == [{"channel": "mail", "sent": 1, "failed": "", "detail": ""}]
    assert post.said.index("STARTTLS") < post.said.index("AUTH") < post.said.index("DATA")
    (mail,) = post.mails
    found = message_from_string(mail, policy=email.policy.default)
    assert found["Subject"].strip() == "almoner: a request waits at the spend gate of clinic (request 1, gate spend)"
    assert found["To"] == "sue@example.org, sam@example.org"
    assert json.loads(str(found.get_payload()))["request"] == 1
    assert SECRET not in mail
    assert SECRET not in (almoner.home.root / "notify.yaml").read_text()


def test_a_server_that_nobody_vouches_for_gets_no_mail(
    almoner: Almoner, post: Post, mailed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mailed("")
    monkeypatch.delenv("SSL_CERT_FILE")
    assert almoner.ask("notify test mail", expected=3)["facts"]["reason"] == "SSLCertVerificationError"
    assert post.mails == []
    assert "AUTH" not in post.said


def test_a_server_that_does_not_encrypt_gets_no_mail(
    almoner: Almoner, post: Post, mailed: Callable[[str], None]
) -> None:
    mailed("--tls none")
    assert almoner.ask("notify test mail", expected=3)["error"] == "NotDelivered"
    assert post.mails == []


def test_no_file_of_a_home_is_more_than_its_owners(almoner: Almoner, post: Post, mailed: Callable[[str], None]) -> None:
    mailed("")
    almoner.type("notify send")
    made = [path for path in almoner.home.root.iterdir() if path.name.startswith(("notify", "notices"))]
    assert {path.name for path in made} == {"notify.yaml", "notices.json", "notices.json.lock"}
    assert {stat.S_IMODE(os.stat(path).st_mode) for path in made} == {0o600}
