"""Where a Prefect server's page sends its readers: to the dashboard if it has a public address, else to commands."""

import pytest

from flows.orchestration.worker_settings import DASHBOARD_VARIABLE, dashboard_address, describe_links
from models_db.errors import UsageError
from tests.refusals import refusal


def test_without_an_address_there_are_commands_and_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DASHBOARD_VARIABLE, raising=False)
    page = describe_links(3)
    assert "`almoner release show 3`" in page
    assert "](" not in page


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("https://almoner.example.org", "https://almoner.example.org"),
        ("https://almoner.example.org:8717/", "https://almoner.example.org:8717"),
        ("http://127.0.0.1:8717", "http://127.0.0.1:8717"),
        ("https://[2001:db8::7]:8717/", "https://[2001:db8::7]:8717"),
    ],
)
def test_links_begin_with_the_address(monkeypatch: pytest.MonkeyPatch, written: str, address: str) -> None:
    monkeypatch.setenv(DASHBOARD_VARIABLE, written)
    assert dashboard_address() == address
    page = describe_links(3)
    for path in ("3", "3#claim", "3#report", "3/budget"):
        assert f"]({address}/releases/{path})" in page
    assert f"]({address}/audit?request=3)" in page
    assert "`" not in page


@pytest.mark.parametrize(
    "written",
    [
        "almoner.example.org",
        "ftp://almoner.example.org",
        "javascript:alert(1)",
        "https://",
        "https:///releases",
        "https://me:hunter2@almoner.example.org",
        "https://hunter2@almoner.example.org",
        "https://almoner.example.org/hunter2",
        "https://almoner.example.org/?token=hunter2",
        "https://almoner.example.org#hunter2",
        "https://almoner.example.org:hunter2",
        "https://almoner.example.org:99999",
        "https://almoner.example.org) [hunter2](https://elsewhere",
        "https://almoner.example.org\n",
        "https://alm\toner.example.org",
        " https://almoner.example.org",
        "https://[hunter2",
        "https://almoner.example.org|hunter2",
    ],
)
def test_another_address_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv(DASHBOARD_VARIABLE, written)
    with refusal("InvalidDashboardAddress") as refused:
        describe_links(3)
    assert isinstance(refused.value, UsageError)
    assert "hunter2" not in f"{refused.value.diagnostics()} {refused.value.facts}"
