"""What an endpoint may be, and what of it an approval covers."""

from typing import Any

import pytest

from models_db.values.requests import parse_model
from tasks.common.network import is_external
from tasks.inference.backends.endpoints import Endpoint, EndpointUnknown, Key, endpoint_of, key_for
from tests.refusals import refusal

GIVEN: dict[str, Any] = {"name": "office", "url": "https://llm.example.org:8443/v1/", "model": "qwen3-32b"}
SECRET = "sk-do-not-tell-0123456789"


def endpoint(**changes: Any) -> Endpoint:
    return parse_model(Endpoint, GIVEN | changes, "The endpoint")


def test_it_is_named_by_its_model_and_its_host() -> None:
    made = endpoint()
    assert made.completions == "https://llm.example.org:8443/v1/chat/completions"
    assert made.revision == "qwen3-32b at llm.example.org:8443"
    assert is_external("external:office")
    assert not is_external("smollm2-135m-instruct")
    assert endpoint_of("external:office", {"office": made}) is made
    with pytest.raises(EndpointUnknown):
        endpoint_of("external:other", {"office": made})


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/v1", "file:///etc/passwd", "host/v1", "https://", "https:///v1", "https://host:x/v1",
        "https://host:0/v1", "https://host/v1?key=sk", "https://host/v1#part", "https://ho st/v1", "https://hos\u0442/v1",
        f"https://user:{SECRET}@host/v1", "https://ho\nst/v1", "https://-host/v1", "http://llm.example.org/v1",
        "http://10.0.0.1/v1", "http://127.0.0.1.example.org/v1", "http://[::2]/v1",
    ],
)  # fmt: skip
def test_addresses_that_are_none_or_unsafe_are_refused_and_not_repeated(url: str) -> None:
    with refusal("FileInvalid") as refused:
        endpoint(url=url)
    assert SECRET not in f"{refused.value.diagnostics()}{refused.value.facts}"


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:80/v1"])
def test_plain_http_goes_to_this_machine(url: str) -> None:
    assert endpoint(url=url).url == url


def test_plain_http_elsewhere_has_to_be_said() -> None:
    assert endpoint(url="http://10.0.0.1/v1", allow_http=True).host == "10.0.0.1"


@pytest.mark.parametrize("proxy", ["http://proxy.example.org:3128", "https://proxy.example.org"])
def test_plain_http_does_not_go_to_this_machine_by_a_proxy_elsewhere(proxy: str) -> None:
    """The proxy would read prompts and key, and `127.0.0.1` would be its own."""
    here = "http://127.0.0.1:8000/v1"
    with refusal("FileInvalid"):
        endpoint(url=here, proxy=proxy)
    assert endpoint(url=here, proxy=proxy, allow_http=True).proxy == proxy
    assert endpoint(url=here, proxy="http://localhost:3128").url == here
    assert endpoint(proxy=proxy).url.startswith("https:")  # through the proxy, and not for its eyes


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Office"}, {"name": "a/b"}, {"name": ""}, {"key_env": "sk-abc"}, {"key_env": "lower"},
        {"price_in": "1"}, {"price_out": "1"}, {"price_in": "-1", "price_out": "1"}, {"per_minute": 0},
        {"timeout": 0}, {"attempts": 0}, {"at_once": 0}, {"currency": "dollars"}, {"proxy": "socks5://host"},
        {"token_limit": "n"}, {"key": SECRET}, {"model": ""}, {"model": "a\nb"},
    ],
)  # fmt: skip
def test_settings_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with refusal("FileInvalid") as refused:
        endpoint(**wrong)
    assert SECRET not in f"{refused.value.diagnostics()}{refused.value.facts}"


@pytest.mark.parametrize(
    "change",
    [
        {"url": "https://llm.example.org:8443/v2"}, {"model": "qwen3-8b"}, {"key_env": "OTHER_KEY"},
        {"licence": "MIT"}, {"proxy": "https://proxy.example.org"}, {"ca_file": "ca.pem"}, {"name": "other"},
        {"token_limit": "max_completion_tokens"}, {"allow_http": True},
    ],
)  # fmt: skip
def test_whoever_sees_the_prompts_and_whatever_answers_is_approved(change: dict[str, Any]) -> None:
    assert endpoint(**change).digest != endpoint().digest


@pytest.mark.parametrize(
    "change",
    [
        {"per_minute": 3}, {"tokens_per_minute": 3}, {"at_once": 1}, {"timeout": 9}, {"attempts": 1},
        {"price_in": "1", "price_out": "2"}, {"currency": "EUR"},
    ],
)  # fmt: skip
def test_pace_and_price_may_change(change: dict[str, Any]) -> None:
    assert endpoint(**change).digest == endpoint().digest


def test_every_field_is_one_or_the_other() -> None:
    approved = set(endpoint(key_env="OFFICE_KEY", proxy="http://127.0.0.1:3128", ca_file="/ca.pem").approved)
    assert Endpoint.pace | approved == set(Endpoint.model_fields)
    assert Endpoint.pace & approved == set()


def test_a_key_comes_from_the_named_variable_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFICE_KEY", f" {SECRET}\n")
    assert key_for(endpoint()) is None
    key = key_for(endpoint(key_env="OFFICE_KEY"))
    assert key is not None
    assert key.header == f"Bearer {SECRET}"


def test_a_word_in_place_of_a_key_may_be_in_any_answer() -> None:
    """Servers that need no key are given `EMPTY` or `x`; a run is not to fail over every text that holds one."""
    assert not Key("x").is_in("a text")
    assert not Key("EMPTY").is_in("EMPTY")
    assert Key(SECRET).is_in(f"your key is {SECRET}.")


def test_a_key_shows_itself_nowhere() -> None:
    key = Key(SECRET)
    assert SECRET not in f"{key!r}{key}{[key]}"
    with pytest.raises(TypeError):
        __import__("pickle").dumps(key)
    with pytest.raises(AttributeError):
        _ = key.__dict__


@pytest.mark.parametrize(
    "held", [None, "", "  ", f"{SECRET}\n{SECRET}", f"{SECRET}\u00e9", f"{SECRET}\x00".strip("\0") + " x"]
)
def test_a_key_that_is_missing_or_none_is_told_by_the_variables_name(
    held: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OFFICE_KEY", raising=False)
    if held is not None:
        monkeypatch.setenv("OFFICE_KEY", held)
    with refusal("EndpointKeyMissing", match="OFFICE_KEY") as refused:
        key_for(endpoint(key_env="OFFICE_KEY"))
    assert SECRET not in f"{refused.value.diagnostics()}{refused.value.facts}"
