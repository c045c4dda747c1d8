"""Every command with --json: what it prints is what --json-schema says, with no other property."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tasks.inference.catalogue.registry import ListedModel, LocalModel
from tests.integration.story import Almoner
from tests.test_docs import COMMANDS

pytestmark = pytest.mark.contract

CONCERNS = ("cli",)

ROOT = Path(__file__).resolve().parents[2]

LINES = (
    "init",
    "doctor",
    "docs",
    "docs requests",
    "user add anna --key {key} --role analyst",
    'user grant anna steward --reason "elected"',
    "user list",
    'user revoke anna steward --reason "left"',
    "passkey list",
    "passkey invite",
    "policy show",
    "policy schema",
    "policy check home/policy.yaml",
    "policy adopt home/policy.yaml --dry-run",
    "models list",
    "models endpoint add office --url https://llm.example.org/v1 --model qwen --key-env OFFICE_KEY",
    "models endpoint list",
    "models endpoint remove office",
    "dataset register empty --epsilon 8 --delta 1e-6",
    "dataset ingest clinic notes.jsonl --dry-run",
    "dataset ingest clinic notes.jsonl --dry-run --new-cohort",
    "dataset list",
    "dataset show clinic",
    "dataset mock clinic mock.jsonl --rows 5",
    'dataset cap clinic --epsilon 9 --delta 1e-6 --reason "one more" --dry-run',
    "plan clinic --epsilon 4 --samples 3 --population 1000 --model tiny",
    "release schema",
    "release request request.yaml --dry-run",
    "release request request.yaml",
    'release withdraw 1 --reason "a slip"',
    "release request request.yaml",
    'approve 2 --gate spend --reason "a first look" --confirm clinic',
    'withdraw-approval 2 --gate spend --reason "not yet"',
    "approve 2 --gate spend --export ask.json",
    'approve --from ask.json --reason "agreed" --export signed.json --confirm clinic',
    "approve 2 --gate spend --import signed.json --confirm clinic",
    "run 2",
    "run sweep",
    "release list",
    "release show 2",
    "release texts 2",
    "report 2",
    'approve 2 --gate publish --reason "names nobody" --confirm clinic',
    "publish 2 --to out",
    "verify-release out/clinic-release-2",
    "verify-release out/clinic-release-2 --details",
    "evaluate 2 --internal",
    'release mark-exposed 2 --reason "a copy got out"',
    'key compromised --since 2026-01-01 --reason "a disk was stolen" --dry-run',
    'release retract 2 --reason "a text names a street"',
    "proposal list",
    "proposal show 1",
    "release show 2",
    'reject 1 --gate proposal --reason "no"',
    'retract 2 --reason "a text names a street"',
    'approve 2 --gate proposal --reason "yes" --confirm clinic',
    'standing propose request.yaml --runs 2 --until 2099-12-31 --reason "monthly"',
    "standing list",
    "standing show 3",
    'approve 3 --gate proposal --reason "yes" --confirm clinic',
    'schedule create 3 --every 1d --reason "daily" --dry-run',
    'schedule create 3 --every 1d --start 2026-01-01 --reason "daily"',
    "schedule list",
    'schedule pause 1 --reason "cleaning"',
    'schedule resume 1 --reason "clean"',
    "schedule show 1",
    "schedule run",
    'schedule end 1 --reason "over"',
    'standing end 3 --reason "over"',
    "budget show clinic",
    "budget forecast clinic",
    "budget simulate clinic --epsilon 1",
    "audit log",
    "audit checkpoint --to head.json",
    "audit verify --against head.json --against out/clinic-release-2",
    "audit export --to links.jsonl",
    "attack list",
    "adapter list",
    "deploy --write prefect.yaml",
    "backup --to home.tar",
    "restore home.tar --record-only --home copy",
    "models pull smollm2-135m-instruct",
    "models remove granite",
    "dashboard",
    "dataset erase clinic --version 1 --dry-run",
    'dataset erase clinic --version 1 --reason "asked for" --confirm clinic',
)
"""Lines in the order of a home's life; a dataset `clinic` and a file request.yaml are there."""

ELSEWHERE = {
    "adapter show": "test_adapter.py",
    "adapter train": "test_adapter.py",
    "attack run": "test_attack.py",
    "demo": "test_demo.py",
    "insights compare": "test_insights_compare.py",
    "keywords build": "../unit/cli/commands/models/test_keywords.py",
    "models add": "test_large_model.py",
    "models check": "test_large_model.py",
    "passkey add": "test_passkeys.py",
    "passkey import": "test_passkeys.py",
    "passkey revoke": "test_passkeys.py",
    "rehearse": "test_rehearsal.py",
    "release extend": "test_extend.py",
    "release start": "test_release_flow.py",
    "serve": "test_schedule_runs.py",
    "worker": "test_release_flow.py",
}
"""Commands that need a browser, a server, a network or other models, and the test that types them.

Each result that a test prints in its own process is compared with its schema (tests/result_schemas.py).
"""


def do_what_needs_a_network(patch: pytest.MonkeyPatch) -> None:
    """Let models be there already, and a dashboard end at once."""
    model = ListedModel("smollm2-135m-instruct", "1", "a wheel", "MIT", "", installed=True, digest="a" * 64)
    patch.setattr("tasks.inference.loading.download.pull", lambda name, report: model)
    local = LocalModel("granite", Path("/srv/granite"), "MIT", "/srv/granite")
    patch.setattr("tasks.inference.loading.add_model.remove_model", lambda name: local)
    patch.setattr("cli.web.application.serve_dashboard", lambda home, access: None)


def command_of(line: str) -> str:
    words = line.split()
    return next(name for n in (3, 2, 1) if (name := " ".join(words[:n])) in COMMANDS)


def schema_of(almoner: Almoner, name: str) -> Any:
    return json.loads(almoner.type(f"{name} --json-schema").out)


@pytest.mark.slow
def test_every_result_has_the_properties_of_its_schema_and_no_other(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(almoner.folder)
    do_what_needs_a_network(monkeypatch)
    almoner.registered()
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    almoner.request_file()
    key = almoner.ask("init --home another")["public_key"]
    soon = (datetime.now(UTC) + timedelta(days=7)).date()
    for line in LINES:
        monkeypatch.setenv("ALMONER_HOME", str(almoner.home.root))  # --home sets it for what is started from a command
        told = almoner.type(f"{line.format(key=key, soon=soon)} --json", None)
        assert told.code == 0, told
        Draft202012Validator(schema_of(almoner, command_of(line))).validate(told.json)


def test_every_command_is_typed_here_or_elsewhere() -> None:
    typed = {command_of(line) for line in LINES}
    assert typed.isdisjoint(ELSEWHERE)
    assert typed | set(ELSEWHERE) == set(COMMANDS)
    for name, file in ELSEWHERE.items():
        words = r'["\',\s]+'.join(name.split())
        assert re.search(words, (Path(__file__).parent / file).read_text()), f"{name} is not typed in {file}"


@pytest.mark.parametrize("name", COMMANDS)
def test_schemas_are_closed_and_know_the_error(almoner: Almoner, name: str) -> None:
    schema = schema_of(almoner, name)
    Draft202012Validator.check_schema(schema)
    problem = {"error": "NoHome", "message": "There is none.", "advice": "", "facts": {"home": "x"}}
    validator = Draft202012Validator(schema)
    assert validator.is_valid(problem)
    if name not in ("release schema", "policy schema"):  # whose results are schemas, with any property
        assert not validator.is_valid(problem | {"other": 1})
        assert not validator.is_valid({"error": "NoHome"})


@pytest.mark.parametrize("line", ["release show", "release show x", "dataset list --other", "budget show unknown"])
def test_refusals_and_usage_errors_have_the_schema_of_errors(almoner: Almoner, line: str) -> None:
    almoner.registered()
    told = almoner.type(f"{line} --json", 2)
    Draft202012Validator(schema_of(almoner, command_of(line))).validate(told.json)
    assert set(told.json) == {"error", "message", "advice", "facts"}
