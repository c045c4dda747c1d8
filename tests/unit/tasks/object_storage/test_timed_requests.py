"""A request has one deadline for connection, headers and body, however slowly they come."""

from collections.abc import Callable

import pytest
import requests

from tasks.object_storage.timed_requests import TimedAdapter, with_deadline
from tests.dripping import BODY, STARTS, UNTIL_CLOSED, Dripping, ended
from tests.tls_relay import Authority


def session() -> requests.Session:
    made = requests.Session()
    made.trust_env = False
    for scheme in ("http://", "https://"):
        made.mount(scheme, TimedAdapter())
    return made


def asking(url: str, **options: object) -> Callable[[], object]:
    def ask() -> None:
        with session() as client, with_deadline(0.5):
            for _ in range(2):
                with client.get(url, timeout=30, stream=True, **options) as answer:
                    _ = answer.content

    return ask


@pytest.mark.parametrize("kept", [0, 1], ids=["new", "kept alive"])
@pytest.mark.parametrize("start", STARTS)
def test_an_answer_that_comes_to_no_end_is_too_late(start: str, kept: int) -> None:
    server = Dripping(*STARTS[start], kept=kept)
    assert type(ended(server, asking(f"http://127.0.0.1:{server.port}/"))) is requests.Timeout


def test_so_is_one_over_tls(tmp_path) -> None:
    authority = Authority(tmp_path, "authority")
    server = Dripping(BODY, b" ", kept=1, shown=authority.server("localhost"))
    how = ended(server, asking(f"https://localhost:{server.port}/", verify=str(authority.certificate)))
    assert type(how) is requests.Timeout


def test_so_is_a_handshake() -> None:
    """A record of 16,000 bytes of TLS, of which one comes now and then."""
    server = Dripping(b"\x16\x03\x03\x3e\x80\x02\x00\x3e\x7c", b"\x00")
    assert type(ended(server, asking(f"https://127.0.0.1:{server.port}/"))) is requests.Timeout


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_so_is_a_proxy(scheme: str) -> None:
    server = Dripping(*STARTS["nothing"])
    proxies = {scheme: f"http://127.0.0.1:{server.port}"}
    assert type(ended(server, asking(f"{scheme}://store.example/", proxies=proxies))) is requests.Timeout


def test_a_body_that_the_deadline_cut_is_no_answer() -> None:
    """It has no length, so that an end looks like its end."""
    server = Dripping(UNTIL_CLOSED, b" ")

    def ask() -> bytes:
        with session() as client, with_deadline(0.5):
            return bytes(client.get(f"http://127.0.0.1:{server.port}/", timeout=30, stream=True).raw.read())

    assert type(ended(server, ask)) is requests.Timeout


def test_an_answer_in_time_is_one_and_its_connection_is_good_for_the_next_block() -> None:
    server = Dripping(b"", b"", kept=3)
    with session() as client:
        for _ in range(3):
            with with_deadline(60):
                assert client.get(f"http://127.0.0.1:{server.port}/", timeout=30).content == b"{}"
    server.close()


def test_an_error_in_time_is_its_own() -> None:
    with pytest.raises(requests.ConnectionError) as found, session() as client, with_deadline(60):
        client.get("http://127.0.0.1:1/", timeout=30)
    assert not isinstance(found.value, requests.Timeout)
