"""The demo tells the whole story, in a place of its own."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

import cli.commands.release.demo
from cli.commands.release.demo import DEMO_REQUEST
from tasks.inference.catalogue.registry import RECOMMENDED
from tests import tiny_model
from tests.integration.canary import text_of
from tests.integration.story import SECRETS, Almoner

CONCERNS = ("cli/commands/operations", "tasks/corpus", "flows/releases")

WITHOUT_LINES = ["release texts 1", "release texts 1", "release texts 2"]


@pytest.fixture(autouse=True)
def tiny_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    short = {"samples": 2, "references": 5, "max_new_tokens": 4, "temperature": 0.9, "max_reference_tokens": 16}
    monkeypatch.setattr(
        cli.commands.release.demo,
        "DEMO_REQUEST",
        DEMO_REQUEST | {"model": tiny_model.NAME, "parameters": short},
    )


def test_the_demo_ends_well_and_keeps_what_it_made(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    without = {**cli.commands.release.demo.DEMO_REQUEST, "model": "none"}
    monkeypatch.setattr(cli.commands.release.demo, "DEMO_REQUEST", without)
    told = almoner.type(f"demo --keep {almoner.folder / 'kept'} --model {tiny_model.NAME}")
    printed = told.out.splitlines()
    prompt = "$ almoner "
    silent = [line for line, after in pairwise(printed) if line.startswith(prompt) and not after.startswith("  ")]
    assert [line.removeprefix(prompt) for line in silent] == WITHOUT_LINES
    for said in ("$ almoner run 1", "GateClosed", "The bundle is whole", "Everything holds.", "BudgetExceeded"):
        assert said in told.out
    assert f"The model is {tiny_model.NAME}." in told.out
    assert f"make demo MODEL={RECOMMENDED[0]}" in told.out
    assert "NotForGovernedData" in told.out
    assert "Do not rely on this bundle." in told.out
    assert "the form asks for numbers; medical sense not checked" in told.out
    assert "Content of the release" not in told.out
    assert (
        "Without privacy, 0 of the 600 planted secrets appear in 2 notes; with almoner at epsilon 6, 0 in 2" in told.out
    )
    assert (almoner.folder / "kept" / "out" / "clinic-release-1" / "texts.jsonl").exists()
    assert not [secret for secret in SECRETS if secret in text_of(almoner.folder / "kept" / "out")]
    assert not almoner.home.root.exists()


@pytest.mark.slow
def test_the_whole_output_of_each_command_on_request(almoner: Almoner) -> None:
    told = almoner.type("demo --details")
    for said in ("Content of the release", "files and digests", "Time of each step"):
        assert said in told.out + told.err


@pytest.mark.slow
def test_the_demo_leaves_the_ledger_of_a_team_alone(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = almoner.folder / "team.db"
    monkeypatch.setenv("ALMONER_DATABASE_URL", f"sqlite:///{ledger}")
    before = Path.cwd()
    answer = json.loads(almoner.type("demo --json").out)
    assert not ledger.exists()
    assert answer["secrets_planted"] == 600
    assert answer["secrets_found"] == {"invisible_ink": 0, "non_private": 0, "public_only": 0}
    assert answer["texts_searched"] == {"invisible_ink": 2, "non_private": 2, "public_only": 2}
    assert answer["secrets_found_in_bundle"] == 0
    assert len(answer["texts"]) == 2
    assert Path.cwd() == before
    assert almoner.home.database_url == f"sqlite:///{ledger}"


@pytest.mark.slow
def test_one_count_for_all_and_leaks_are_named(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret in a text of every kind is found in every kind, and the headline says so."""
    monkeypatch.setattr(cli.commands.release.demo, "_texts", lambda listed: [SECRETS[0] for _ in listed])
    answer = json.loads(almoner.type("demo --json").out)
    assert answer["secrets_found"] == {"invisible_ink": 1, "non_private": 1, "public_only": 1}


def test_a_step_that_ends_otherwise_shows_all_that_it_printed(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {**DEMO_REQUEST["parameters"], "max_new_tokens": 200}  # the tiny model spells the form in bytes
    greedy = DEMO_REQUEST | {"epsilon": 11.0, "parameters": parameters}
    monkeypatch.setattr(cli.commands.release.demo, "DEMO_REQUEST", greedy | {"model": tiny_model.NAME})
    told = almoner.type("demo", expected=3)
    assert "BudgetExceeded" in told.out
    assert "DemoFailed" in told.err
