"""The HTTP backend against a real server that writes with the tiny model, and misbehaves when it is told to."""

import ipaddress
import json
import logging
import socket
import ssl
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from models_db.errors import AlmonerError, EnvironmentProblem
from tasks.inference.backends.chat_completions import HttpBackend
from tasks.inference.backends.request import _certificates
from tasks.inference.backends.text_backend import SEES, SYSTEM, Sampling
from tests.refusals import refusal
from tests.support import PATIENCE
from tests.support_backend import (
    MODEL,
    PATH,
    ModelServer,
    Trick,
    breaks_off,
    completion,
    drips,
    drips_headers,
    hangs,
    hints_for_ever,
    says,
    says_json,
)

pytestmark = pytest.mark.dear

HOW = Sampling(8, Decimal("0.7"))
KEY = "sk-test-do-not-tell"
PROMPTS = ["one note", "another note", "one note"]


class Naps:
    """Waits that take no time, and are written down."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    def __call__(self, event: threading.Event, seconds: float) -> bool:
        self.taken.append(seconds)
        return event.is_set()


@pytest.fixture
def naps() -> Naps:
    return Naps()


@pytest.fixture
def backend(server: ModelServer, naps: Naps, tmp_path: Path) -> Callable[..., HttpBackend]:
    (tmp_path / "run").mkdir()

    def made(**changes: Any) -> HttpBackend:
        found = HttpBackend.of(server.endpoint(**changes), tmp_path / "run", lambda what, done, total: None)
        return replace(found, sleep=naps)

    return made


def test_texts_come_in_the_order_of_their_prompts(server: ModelServer, backend: Callable[..., HttpBackend]) -> None:
    made = backend(at_once=3)
    found = made.write(PROMPTS, HOW)
    assert sorted(server.prompts) == sorted(PROMPTS)
    assert len(found) == 3
    assert all(text.text and 1 <= text.tokens <= 8 for text in found)
    assert made.write([], HOW) == []
    assert made.external
    assert made.name == f"{SEES} ({MODEL} at {made.endpoint.host})"


def test_each_prompt_gets_its_own_answer(server: ModelServer, backend: Callable[..., HttpBackend]) -> None:
    server.always = lambda handler: says_json(completion(f"about {server.seen[-1].prompt}"))(handler)
    prompts = [f"note {number}" for number in range(20)]
    assert [text.text for text in backend(at_once=1).write(prompts, HOW)] == [f"about {each}" for each in prompts]


def test_nothing_is_said_but_the_prompt_and_how_to_draw(
    server: ModelServer, backend: Callable[..., HttpBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFICE_KEY", KEY)
    backend(key_env="OFFICE_KEY").write(["one note"], HOW)
    backend(token_limit="max_completion_tokens").write(["two"], Sampling(9, Decimal(1), top_k=3, system="Be brief."))
    first, second = server.seen
    assert (first.method, first.path) == ("POST", PATH)
    assert first.json == {
        "model": MODEL,
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "one note"}],
        "max_tokens": 8,
        "temperature": 0.7,
        "stream": False,
    }
    assert set(first.headers) == {
        "host", "connection", "content-length", "content-type", "accept", "accept-encoding", "user-agent",
        "authorization",
    }  # fmt: skip
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.headers["user-agent"] == "almoner"
    assert "authorization" not in second.headers
    assert (second.json["max_completion_tokens"], second.json["top_k"]) == (9, 3)
    assert second.json["messages"][0]["content"] == "Be brief."
    assert "max_tokens" not in second.json


FAILING: list[tuple[Trick, str, int]] = [
    (says(500), "EndpointServerError", 2),
    (says(503, b"<html>gone</html>"), "EndpointServerError", 2),
    (says(429), "EndpointBusy", 2),
    (says(429, Retry_After=f"Mon, 01 Jan {'9' * 20} 00:00:00 GMT"), "EndpointBusy", 2),
    (says(408), "EndpointTimeout", 2),
    (says(401), "EndpointRejectedRequest", 1),
    (says(404), "EndpointRejectedRequest", 1),
    (says(422), "EndpointRejectedRequest", 1),
    (says(302, Location="https://elsewhere.example.org/v1/chat/completions"), "EndpointRedirects", 1),
    (says(307, Location="/v2"), "EndpointRedirects", 1),
    (says(204, b""), "EndpointAnswerMalformed", 2),
    (says(200, b"<html><body>Sign in</body></html>", Content_Type="text/html"), "EndpointAnswerMalformed", 2),
    (says(200, b""), "EndpointAnswerMalformed", 2),
    (says(200, b'{"choices": [{"message": {"content": "half a'), "EndpointAnswerMalformed", 2),
    (says_json({"choices": []}), "EndpointAnswerMalformed", 2),
    (says_json({"error": {"message": "overloaded"}}), "EndpointAnswerMalformed", 2),
    (says_json(completion("")), "EndpointAnswerMalformed", 2),
    (says_json(completion(["a list"])), "EndpointAnswerMalformed", 2),
    (says_json(completion("x" * 100_000)), "EndpointAnswerMalformed", 2),
    (says(200, b" " * 1_000_000), "EndpointAnswerMalformed", 2),
    (says(200, b"\x1f\x8b\x08\x00", Content_Encoding="gzip"), "EndpointAnswerMalformed", 2),
    (breaks_off, "EndpointUnreachable", 2),
]


@pytest.mark.parametrize(("trick", "failure", "asked"), FAILING)
def test_whatever_it_does_wrong_has_a_name_and_is_tried_again_only_where_that_helps(
    trick: Trick, failure: str, asked: int, server: ModelServer, backend: Callable[..., HttpBackend]
) -> None:
    server.always = trick
    with refusal(failure) as failed:
        backend().write(["a note"], HOW)
    assert len(server.seen) == asked == failed.value.facts["attempts"]
    assert "almoner run" in failed.value.advice
    server.always = None
    assert len(backend().write(["a note"], HOW)) == 1


@pytest.mark.parametrize(("trick", "failure", "asked"), [each for each in FAILING if each[2] == 2])
def test_what_goes_wrong_once_goes_right_the_second_time(
    trick: Trick, failure: Any, asked: int, server: ModelServer, naps: Naps, backend: Callable[..., HttpBackend]
) -> None:
    server.next = [trick]
    assert len(backend().write(["a note"], HOW)) == 1
    assert len(server.seen) == 2
    assert naps.taken == [0.5]


@pytest.mark.parametrize("trick", [hangs, drips, drips_headers, hints_for_ever])
@pytest.mark.parametrize("proxied", [False, True])
def test_a_server_that_comes_to_no_end_is_slow(
    trick: Trick, proxied: bool, server: ModelServer, backend: Callable[..., HttpBackend]
) -> None:
    """However often it says something: a wait for the next byte would begin anew each time."""
    server.always = trick
    made = backend(timeout=1, attempts=1, **({"proxy": server.url.removesuffix("/v1")} if proxied else {}))
    failed: list[BaseException] = []
    asking = threading.Thread(target=lambda: failed.append(raised(lambda: made.write(["a note"], HOW))))
    asking.start()
    asking.join(PATIENCE)
    server.closing.set()  # what does not end by itself ends now, and not as slow
    asking.join()
    assert [each.code for each in failed] == ["EndpointTimeout"]


def raised(act: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as found:
        act()
    return found.value


def test_whoever_tries_first_has_the_answer_on_disk_and_the_same_prompt_gets_another(
    server: ModelServer, backend: Callable[..., HttpBackend]
) -> None:
    server.next = [says(404)]  # a model that is not there; nobody knows before it is asked
    with refusal("EndpointRejectedRequest"):
        backend().require_ready(["a note"], HOW)
    server.next = [says_json(completion(text)) for text in ("a trial", "a text")]
    for _ in range(2):  # the second goes on
        made = backend()
        made.require_ready(["a note"], HOW)
        assert [text.text for text in made.write(["a note"], HOW)] == ["a text"]
    assert len(server.seen) == 3


def test_nobody_there(server: ModelServer, backend: Callable[..., HttpBackend]) -> None:
    made = backend()
    server.stop()
    with refusal("EndpointUnreachable", match="no connection"):
        made.write(["a note"], HOW)


def test_it_is_left_alone_as_long_as_it_asks(
    server: ModelServer, naps: Naps, backend: Callable[..., HttpBackend]
) -> None:
    server.next = [says(429, Retry_After="7")]
    assert len(backend(at_once=1).write(["a", "b"], HOW)) == 2
    assert [round(nap) for nap in naps.taken][:1] == [7]


def test_who_asks_for_hours_is_given_up_at_once(server: ModelServer, backend: Callable[..., HttpBackend]) -> None:
    server.always = says(429, Retry_After="7200")
    with refusal("EndpointBusy"):
        backend(attempts=5).write(["a note"], HOW)
    assert len(server.seen) == 1


def test_requests_keep_apart_as_the_limit_says(
    server: ModelServer, naps: Naps, backend: Callable[..., HttpBackend]
) -> None:
    backend(per_minute=60, at_once=1).write(["a", "b", "c"], HOW)
    assert [round(nap) for nap in naps.taken] in ([1, 2], [1, 1])


def test_answers_are_never_asked_for_twice(server: ModelServer, backend: Callable[..., HttpBackend]) -> None:
    server.always = lambda handler: says_json(completion(f"number {len(server.seen)}"))(handler)
    prompts = ["a", "a", "b", "c", "d"]
    heard: list[tuple[int, int]] = []
    stopped = backend(at_once=1, attempts=1)
    server.next = [server.always] * 3 + [says(500)]
    with refusal("EndpointServerError"):
        stopped.write(prompts, HOW)
    assert server.prompts == ["a", "a", "b", "c"]
    again = replace(backend(at_once=1), progress=lambda what, done, total: heard.append((done, total)))
    found = again.write(prompts, HOW)
    assert server.prompts[4:] == ["c", "d"]
    assert [text.text for text in found] == ["number 1", "number 2", "number 3", "number 5", "number 6"]
    assert heard == [(3, 5), (4, 5), (5, 5)]
    assert [text.text for text in again.write(["a"], HOW)] == ["number 7"]  # asked for a third time, and anew


def test_without_a_journal_nothing_is_asked(server: ModelServer, tmp_path: Path) -> None:
    backend = HttpBackend.of(server.endpoint(), tmp_path / "none", lambda what, done, total: None)
    with pytest.raises(ValueError, match="journal"):
        backend.write(["a"], HOW)
    assert server.seen == []


def test_another_question_is_another_answer(server: ModelServer, backend: Callable[..., HttpBackend]) -> None:
    backend().write(["a"], HOW)
    backend().write(["a"], replace(HOW, temperature=Decimal(1)))
    backend().write(["a"], replace(HOW, system="other"))
    backend(model="other").write(["a"], HOW)
    backend(timeout=900).write(["a"], HOW)
    assert len(server.seen) == 4


def test_nothing_of_the_environment_is_used(
    server: ModelServer, backend: Callable[..., HttpBackend], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, closed)
    (tmp_path / ".netrc").write_text("default login somebody password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "secrets"))
    _certificates.cache_clear()
    assert _certificates(None).keylog_filename is None  # who could read it, could read prompts and key
    _certificates.cache_clear()
    assert len(backend().write(["a"], HOW)) == 1
    assert "authorization" not in server.seen[0].headers
    with refusal("EndpointUnreachable"):
        backend(proxy=closed).write(["b"], HOW)


def test_redirects_are_not_followed_and_cookies_are_not_kept(
    server: ModelServer, backend: Callable[..., HttpBackend]
) -> None:
    with ModelServer() as elsewhere:
        server.next = [says(307, Location=f"{elsewhere.url}/chat/completions")]
        with refusal("EndpointRedirects"):
            backend().write(["a"], HOW)
        assert elsewhere.seen == []
    body = completion("text")
    server.always = lambda handler: handler.say(200, json.dumps(body).encode(), {"Set-Cookie": "who=you; Path=/"})
    backend(at_once=1).write(["b", "c", "d"], HOW)
    assert all("cookie" not in seen.headers for seen in server.seen)


def test_certificates_are_verified(server: ModelServer, backend: Callable[..., HttpBackend], tmp_path: Path) -> None:
    """What speaks no TLS, or is not trusted, is not asked."""
    with refusal("EndpointUnreachable"):
        backend(url=server.url.replace("http:", "https:")).write(["a"], HOW)
    assert server.seen == []
    with refusal("EndpointUnreachable", match="ca_file"):
        backend(ca_file=str(tmp_path / "none.pem"))


def self_signed(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate of this machine that nobody has signed, and a server's context with it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "here")])
    alternatives = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(alternatives, critical=False)
    both = folder / "both.pem"
    both.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return both, context


def test_a_request_over_tls_comes_to_an_end_too(backend: Callable[..., HttpBackend], tmp_path: Path) -> None:
    trusted, context = self_signed(tmp_path)
    with ModelServer(tls=context) as secure:
        assert len(backend(url=secure.url, ca_file=str(trusted)).write(["a"], HOW)) == 1
        with refusal("EndpointUnreachable", match="not one that is trusted"):
            backend(url=secure.url).write(["b"], HOW)
        secure.always = hints_for_ever
        with refusal("EndpointTimeout"):
            backend(url=secure.url, ca_file=str(trusted), timeout=1, attempts=1).write(["c"], HOW)
        assert secure.prompts == ["a", "c"]
    with socket.create_server(("127.0.0.1", 0)) as silent, refusal("EndpointTimeout"):
        backend(url=f"https://127.0.0.1:{silent.getsockname()[1]}/v1", timeout=1, attempts=1).write(["d"], HOW)


def test_the_key_is_told_to_nobody_else(
    server: ModelServer,
    backend: Callable[..., HttpBackend],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """Not in logs at their most talkative, not in errors, not in a repr, not on disk; nor does an answer repeat it."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OFFICE_KEY", KEY)
    made = backend(key_env="OFFICE_KEY", attempts=1)
    told = [repr(made), str(made), repr(made.endpoint)]
    made.write(["a note"], HOW)
    tricks = [trick for trick, _, _ in FAILING] + [
        says(401, f'{{"error": "wrong key {KEY}"}}'.encode()),
        says_json(completion(f"your key is {KEY}")),
        says(302, Location=f"https://elsewhere.example.org/?{KEY}"),
    ]
    for trick in tricks:
        server.always = trick
        with pytest.raises(EnvironmentProblem) as failed:
            made.write(["another"], HOW)
        told += [repr(failed.value), failed.value.diagnostics(), repr(failed.value.facts)]
        told += traceback.format_exception(failed.value)
        assert failed.value.__context__ is None
        assert failed.value.__cause__ is None
    told += [path.read_text() for path in (tmp_path / "run").iterdir()]
    assert server.seen[0].headers["authorization"].endswith(KEY)
    assert KEY not in "".join([*told, caplog.text])
    assert "POST" not in caplog.text


def test_only_what_is_asked_of_endpoints_is_not_logged(
    server: ModelServer, backend: Callable[..., HttpBackend], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    backend().write(["a note"], HOW)
    assert "POST" not in caplog.text
    assert "HTTP" not in caplog.text
    with httpx.Client(trust_env=False) as client:
        client.get(server.url)
    assert "HTTP Request: GET" in caplog.text


def test_prompts_and_answers_are_not_told_either(
    server: ModelServer, backend: Callable[..., HttpBackend], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.always = says_json(completion(["zebra-answer"]))
    with pytest.raises(AlmonerError) as failed:
        backend().write(["zebra-prompt"], HOW)
    said = "".join([caplog.text, *traceback.format_exception(failed.value)])
    assert "zebra" not in said.replace('["zebra-prompt"]', "")  # this test's own line in the traceback


def test_the_recorder_hears_what_it_is_for(server: ModelServer, backend: Callable[..., HttpBackend]) -> None:
    """A search that finds nothing anywhere proves nothing."""
    backend().write(['Anna M\u00fcller said "no"\n'], HOW)
    assert server.heard(["Anna M\u00fcller", 'said "no"', "Peter"]) == ["Anna M\u00fcller", 'said "no"']
