"""The demo tells the whole story, in a place of its own."""

import json
from pathlib import Path

import pytest

import cli.commands.release.demo
from tests import tiny_model
from tests.integration.canary import text_of
from tests.integration.story import SECRETS, Almoner


@pytest.fixture(autouse=True)
def tiny_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    short = {"samples": 2, "references": 5, "max_new_tokens": 4, "temperature": 0.9, "max_reference_tokens": 16}
    monkeypatch.setattr(
        cli.commands.release.demo,
        "DEMO_REQUEST",
        cli.commands.release.demo.DEMO_REQUEST | {"model": tiny_model.NAME, "parameters": short},
    )


def test_the_demo_ends_well_and_keeps_what_it_made(almoner: Almoner) -> None:
    told = almoner.type(f"demo --keep {almoner.folder / 'kept'}")
    for said in ("$ almoner run 1", "GateClosed", "The bundle is whole", "Everything holds.", "BudgetExceeded"):
        assert said in told.out + told.err
    assert (almoner.folder / "kept" / "out" / "clinic-release-1" / "texts.jsonl").exists()
    assert not [secret for secret in SECRETS if secret in text_of(almoner.folder / "kept" / "out")]
    assert not almoner.home.root.exists()


def test_the_demo_leaves_the_ledger_of_a_team_alone(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = almoner.folder / "team.db"
    monkeypatch.setenv("ALMONER_DATABASE_URL", f"sqlite:///{ledger}")
    before = Path.cwd()
    answer = json.loads(almoner.type("demo --json").out)
    assert not ledger.exists()
    assert answer["secrets_found"] == 0
    assert len(answer["texts"]) == 2
    assert Path.cwd() == before
    assert almoner.home.database_url == f"sqlite:///{ledger}"
