"""A release of records, from the request to the verified bundle; schemas that are refused before anybody decides."""

import json
from typing import Any

import pytest

import flows.releases.execute
from tests.integration.story import REQUEST, Almoner
from tests.tiny_model import tiny_model
from tests.unit.tasks.systems.record_schemas import FILM, is_valid

pytestmark = pytest.mark.contract

CONCERNS = ("flows/releases", "tasks/decoding", "tasks/systems", "tasks/inference/structured_output")

PARAMETERS: dict[str, Any] = REQUEST["parameters"] | {"schema": FILM, "max_new_tokens": 80, "instalment": 40}
RECORDS: dict[str, Any] = {"kind": "records", "parameters": PARAMETERS, "evaluation": ["records"]}


@pytest.fixture(autouse=True)
def a_model_that_ends(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record ends with a token that says so."""
    monkeypatch.setattr(flows.releases.execute, "load", lambda *names, **precision: tiny_model())


def test_records_from_the_request_to_the_verified_bundle(almoner: Almoner) -> None:
    almoner.published(**RECORDS)
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True
    rows = [json.loads(line) for line in (almoner.bundle / "texts.jsonl").read_text().splitlines()]
    assert [set(row) for row in rows] == [{"id", "raw", "record"}] * 3
    assert all(is_valid(FILM, row["raw"]) and list(row["record"]) == FILM["required"] for row in rows)
    card = (almoner.bundle / "README.md").read_text()
    assert "held to their schema while they are drawn" in card
    assert "| `records` | public | `valid` | `3` |" in card
    assert json.loads((almoner.bundle / "release.json").read_text())["request"]["parameters"]["schema"] == FILM


@pytest.mark.slow
def test_drawn_freely_the_same_price_buys_no_record(almoner: Almoner) -> None:
    almoner.ingested()
    held = almoner.ask(f"release request {almoner.request_file(**RECORDS)} --dry-run")["price"]
    free = RECORDS | {"parameters": PARAMETERS | {"constrained": False}}
    assert almoner.ask(f"release request {almoner.request_file(**free)} --dry-run")["price"]["rho"] == held["rho"]
    almoner.type(f"release request {almoner.request_file(**free)}")
    almoner.go_on_to("published")
    rows = [json.loads(line) for line in (almoner.bundle / "texts.jsonl").read_text().splitlines()]
    assert [set(row) for row in rows] == [{"id", "raw"}] * 3
    assert "| `records` | public | `valid` | `0` |" in (almoner.bundle / "README.md").read_text()


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"kind": "records"}, "SchemaNeeded"),
        ({"parameters": PARAMETERS}, "SchemaUnexpected"),
        ({**RECORDS, "parameters": PARAMETERS | {"schema": {"type": "film"}}}, "SchemaInvalid"),
        ({**RECORDS, "parameters": PARAMETERS | {"schema": FILM | {"minProperties": 2}}}, "SchemaNotSupported"),
        ({**RECORDS, "parameters": PARAMETERS | {"schema": {"type": "string"}}}, "SchemaNotSupported"),
        ({**RECORDS, "parameters": PARAMETERS | {"schema": FILM | {"title": "x" * 20_000}}}, "SchemaTooLarge"),
        ({**RECORDS, "parameters": PARAMETERS | {"max_new_tokens": 40}}, "TokenLimitTooSmall"),
    ],
)
def test_a_schema_that_will_not_do_is_refused_before_anybody_decides(
    almoner: Almoner, changes: dict[str, Any], refusal: str
) -> None:
    almoner.ingested()
    before = almoner.everything()
    told = almoner.ask(f"release request {almoner.request_file(**changes)}", expected=2)
    assert told["error"] == refusal
    assert almoner.everything() == before


def test_a_record_that_does_not_fit_the_limit_at_the_run_costs_nothing(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home may have been priced by another machine's check: the run has its own."""
    monkeypatch.setattr("tasks.pricing.model_facts.check_grammar", lambda *_: None)
    almoner.approved(**RECORDS | {"parameters": PARAMETERS | {"max_new_tokens": 40}})
    assert almoner.ask("run 1", expected=2)["error"] == "TokenLimitTooSmall"
    budget = almoner.ask("budget show clinic")
    assert (budget["rho_spent"], budget["rho_held"]) == ("0", "0")
