"""Where the dashboard may listen, and who may come in."""

from pathlib import Path

import pytest

from cli.web.access import AccessOptions, AccessPolicy, access_policy
from tests.refusals import refusal

GOOD = "0123456789abcdef" * 2
TLS = {"certificate": Path("cert.pem"), "key": Path("key.pem")}


def token_file(folder: Path, content: str = GOOD + "\n", mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_text(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_this_machine_needs_nothing(address: str) -> None:
    made = access_policy(AccessOptions(address))
    assert (made.token, made.is_secure) == (None, False)
    assert made.url.startswith("http://")
    for host in ("127.0.0.1:8717", "localhost:8717", "LocalHost:8717", "[::1]:8717"):
        assert made.allows_host(host), host


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8717", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8717.evil.example", "localhost:",
     "127.0.0.1:8717:8717", "[::1]", "::1", "127.0.0.1.evil.example:8717", "localhost:08717"],
)  # fmt: skip
def test_other_hosts_are_not_answered(host: str) -> None:
    assert not access_policy(AccessOptions()).allows_host(host)


@pytest.mark.parametrize("address", ["192.0.2.7", "0.0.0.0", "::", "2001:db8::1"])
def test_other_addresses_take_a_token_and_tls(address: str, tmp_path: Path) -> None:
    names, file = ("ledger.example",), token_file(tmp_path)
    with refusal("TokenRequired"):
        access_policy(AccessOptions(address, names=names))
    with refusal("TokenRequired"):
        access_policy(AccessOptions(address, names=names, **TLS))
    with refusal("TlsRequired"):
        access_policy(AccessOptions(address, names=names, token_file=file))
    made = access_policy(AccessOptions(address, names=names, token_file=file, **TLS))
    assert made.is_secure
    assert made.url == "https://ledger.example:8717/"
    assert made.allows_host("ledger.example:8717")
    assert not made.allows_host("localhost:8717")
    assert made.allows_host("0.0.0.0:8717") is False


def test_an_address_that_stands_for_all_takes_a_name(tmp_path: Path) -> None:
    with refusal("InvalidListenAddress"):
        access_policy(AccessOptions("0.0.0.0", token_file=token_file(tmp_path), **TLS))


@pytest.mark.parametrize("address", ["", "ledger.example", "127.0.0.1:80", "1"])
def test_an_address_is_one(address: str) -> None:
    with refusal("InvalidListenAddress"):
        access_policy(AccessOptions(address))


def test_usual_ports_need_not_be_said() -> None:
    assert AccessPolicy("127.0.0.1", 80, frozenset({"a"})).allows_host("a")
    assert not AccessPolicy("127.0.0.1", 443, frozenset({"a"})).allows_host("a")
    assert AccessPolicy("127.0.0.1", 443, frozenset({"a"}), certificate=Path("c"), key=Path("k")).allows_host("a")


def test_a_token_opens_and_nothing_else_does(tmp_path: Path) -> None:
    made = access_policy(AccessOptions(token_file=token_file(tmp_path)))
    assert made.accepts_token(GOOD)
    for wrong in ("", GOOD[:-1], GOOD + "0", GOOD.upper(), "\udcff", "é" * 40):
        assert not made.accepts_token(wrong)
    assert GOOD not in repr(made)
    assert not access_policy(AccessOptions()).accepts_token("")


@pytest.mark.parametrize("content", ["", "short", "x" * 31, "é" * 40, "with space " * 5])
def test_a_weak_token_is_refused_and_not_repeated(tmp_path: Path, content: str) -> None:
    with refusal("InvalidAccessToken") as refused:
        access_policy(AccessOptions(token_file=token_file(tmp_path, content)))
    assert not content or content.strip() not in refused.value.diagnostics()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_token_that_others_can_read_is_none(tmp_path: Path, mode: int) -> None:
    with refusal("InvalidAccessToken", match="chmod 600"):
        access_policy(AccessOptions(token_file=token_file(tmp_path, mode=mode)))


def test_a_token_out_of_a_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with refusal("InvalidAccessToken"):
        access_policy(AccessOptions(token_variable="ALMONER_TEST_TOKEN"))
    monkeypatch.setenv("ALMONER_TEST_TOKEN", GOOD)
    assert access_policy(AccessOptions(token_variable="ALMONER_TEST_TOKEN")).accepts_token(GOOD)
    with refusal("InvalidAccessToken", match="twice"):
        access_policy(AccessOptions(token_variable="ALMONER_TEST_TOKEN", token_file=token_file(tmp_path)))
    with refusal("InvalidAccessToken", match="cannot be read"):
        access_policy(AccessOptions(token_file=tmp_path / "none"))


@pytest.mark.parametrize("half", [{"certificate": Path("c")}, {"key": Path("k")}])
def test_tls_takes_both_files(half: dict[str, Path]) -> None:
    with refusal("IncompleteTls"):
        access_policy(AccessOptions(certificate=half.get("certificate"), key=half.get("key")))
