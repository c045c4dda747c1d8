"""Whether a Prefect server is named, which is known without importing Prefect."""

from pathlib import Path

import pytest

from flows.workspace.prefect_flow import names_prefect_server

PROFILES = """active = "work"

[profiles.work]
PREFECT_API_URL = "https://prefect.clinic.example/api"

[profiles.home]
"""


def test_a_server_is_named_by_the_environment_or_the_active_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    assert not names_prefect_server()
    (tmp_path / "profiles.toml").write_text(PROFILES)
    assert names_prefect_server()
    monkeypatch.setenv("PREFECT_PROFILE", "home")
    assert not names_prefect_server()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    assert names_prefect_server()


@pytest.mark.parametrize("written", ["", "ftp://prefect/api", "prefect"])
def test_what_is_no_address_names_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    (tmp_path / "profiles.toml").write_text(PROFILES)
    monkeypatch.setenv("PREFECT_API_URL", written)
    assert not names_prefect_server()


def test_a_profile_that_cannot_be_read_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    (tmp_path / "profiles.toml").write_text("active =")
    assert not names_prefect_server()
