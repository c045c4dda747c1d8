"""The whole story, from an empty folder to a verified bundle."""

import json
from decimal import Decimal

import pytest
import yaml

from tasks.evaluation.registry import names
from tasks.inference.catalogue.registry import list_models
from tests.integration.story import REQUEST, Almoner
from tests.support import require, shared_data

pytestmark = pytest.mark.contract

CONCERNS = ("flows/releases", "tasks/decoding", "tasks/systems", "tasks/inference")


def test_the_story_in_json(any_almoner: Almoner) -> None:
    almoner = any_almoner
    made = almoner.ask("init")
    assert made["home"] == str(almoner.home.root)
    registered = almoner.ask("dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6 --blocks 1")
    assert registered["epsilon_spent"] == "0"
    ingested = almoner.ask(f"dataset ingest clinic {almoner.notes_file()}")
    assert ingested["version"] == 1
    request = almoner.request_file()
    price = almoner.ask(f"release request {request} --dry-run")
    submitted = almoner.ask(f"release request {request}")
    assert price["request"] is None
    assert submitted["request"] == 1
    assert submitted["price"] == price["price"]
    approved = almoner.ask('approve 1 --gate spend --reason "a first look"')
    assert (approved["state"], approved["subject_sha256"]) == ("approved", submitted["digest"])
    produced = almoner.ask("run 1")
    assert (produced["state"], produced["texts"]) == ("produced", 3)
    assert produced["rho_spent"] == price["price"]["rho"]
    decided = almoner.ask('approve 1 --gate publish --reason "names nobody"')
    assert (decided["state"], decided["subject_sha256"]) == ("produced", produced["artifact"])
    published = almoner.ask(f"publish 1 --to {almoner.folder / 'out'}")
    assert published["bundle"] == str(almoner.bundle)
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert report["holds"] is True
    assert Decimal(report["recomputed_epsilon"]) <= Decimal("4.0")
    pinned = almoner.ask(f"verify-release {almoner.bundle} --key {made['public_key']}")
    assert pinned["authentic"] is True
    budget = almoner.ask("budget show clinic")
    assert budget["rho_spent"] == produced["rho_spent"]
    assert budget["rho_held"] == "0"
    assert budget["spent_by"] == [
        {"request": 1, "dataset": "clinic", "state": "published", "rho_spent": budget["rho_spent"]}
    ]
    kinds = [link["kind"] for link in almoner.ask("audit log --dataset clinic")]
    assert [kind for kind in kinds if "ledger." in kind] == [
        "ledger.hold",
        *["ledger.arm"] * 4,
        "ledger.commit+run.produced",
    ]
    assert almoner.ask("audit verify")["holds"] is True
    assert almoner.ask("doctor")["ok"] is True
    assert {metric["name"] for metric in almoner.ask("evaluate 1 --internal")["metrics"]} == set(names("internal"))
    assert almoner.ask("doctor")["ok"] is True


@pytest.mark.slow
def test_the_story_as_people_read_it(almoner: Almoner) -> None:
    almoner.ingested()
    details = ("clip norm C", "rho_left_after", "rho_replace_one")
    whole = almoner.type(f"release request {almoner.request_file()} --dry-run --details").out
    assert all(word in whole for word in details)
    asked = almoner.type(f"release request {almoner.request_file()}").out
    for word in ("It costs 25.5 % of the lifetime budget of clinic", "patient_id", "expected time", "approve 1"):
        assert word in asked
    assert not [word for word in details if word in asked]
    shown = almoner.type('approve 1 --gate spend --reason "[red]a first look[/red]"')
    assert "Request 1, spend gate" in shown.err
    assert "Next: `almoner run 1`." in shown.out
    ended = almoner.type("run 1").out
    assert "3 texts wait in quarantine" in ended
    assert ended.index("`almoner release texts 1`") < ended.index("`almoner approve 1 --gate publish")
    gate = almoner.type('approve 1 --gate publish --reason "names nobody"')
    assert "Texts: all 3" in gate.err
    assert "Next: `almoner publish 1 --to DIR`." in gate.out
    assert "perplexity" in gate.err
    assert "[red]a first look[/red]" in almoner.type("release show 1").out  # nothing in a reason is markup
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    short, whole = (almoner.type(f"verify-release {almoner.bundle} {more}").out for more in ("", "--details"))
    checks = almoner.ask(f"verify-release {almoner.bundle}")["checks"]
    assert short.startswith(f"All {len(checks)} checks hold: epsilon 4 at delta 0.0000001, recomputed as 3.99")
    assert sum(int(line.split()[-1]) for line in short.splitlines() if line.split()[:1] == ["ok"]) == len(checks)
    assert all(check["name"] in whole for check in checks)
    assert "independent accountant" not in short
    assert "The bundle is whole" in short
    assert "The bundle is whole" in whole
    for line, said in {
        "dataset list": "clinic",
        "dataset show clinic": "epsilon spent",
        "budget show clinic": "Spent by",
        "budget forecast clinic": "releases left",
        "budget simulate clinic --epsilon 1": "of 10 releases fit",
        "release list": "published",
        "audit log": "release.published",
        "audit verify": "The chain holds",
        "doctor": "Everything holds.",
        "models list": "tiny",
    }.items():
        assert said in almoner.type(line).out
    assert "none" in almoner.type("release list --waiting").out


LISTINGS = (
    "dataset list",
    "dataset show clinic",
    "budget show clinic",
    "budget forecast clinic",
    "budget simulate clinic --epsilon 1 --releases 3",
    "release list",
    "release show 1",
    "audit log",
    "audit verify",
    "models list",
    "doctor",
    "run sweep",
)


def test_every_listing_has_json_and_changes_nothing(almoner: Almoner) -> None:
    almoner.submitted()
    before = almoner.everything()
    assert [row["request"] for row in almoner.ask("release list --waiting")] == [1]
    for line in LISTINGS:
        assert almoner.ask(line) is not None
        assert almoner.type(line).out.strip()
    assert almoner.everything() == before


@pytest.mark.slow
def test_simulation_and_forecast_agree_with_what_the_ledger_admits(almoner: Almoner) -> None:
    almoner.ingested()
    forecast = {row["epsilon"]: row for row in almoner.ask("budget forecast clinic --delta 1e-7")}
    times = forecast["4"]["releases_left"]
    steps = almoner.ask("budget simulate clinic --epsilon 4 --delta 1e-7 --releases 50")
    assert steps["affordable"] == times
    for number in range(1, times + 1):
        almoner.type(f"release request {almoner.request_file()}")
        almoner.go_on_to("produced", number)
    refused = almoner.ask(f"release request {almoner.request_file()}", expected=1)
    assert refused["error"] == "BudgetExceeded"
    spent = Decimal(almoner.ask("budget show clinic")["epsilon_spent"])
    assert spent <= Decimal(steps["steps"][-1]["epsilon_spent"]) <= 8


def test_a_bundle_holds_nothing_but_what_is_public(almoner: Almoner) -> None:
    almoner.published("--population 400")
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert record["facts"]["batches per block"] == "100"
    text = "".join(path.read_bytes().decode("utf-8", "replace") for path in almoner.bundle.iterdir())
    today = almoner.ask("dataset show clinic")["history"][0]["ingested_at"][:10]
    assert str(almoner.folder) not in text
    assert today not in text
    assert set(record["released"]) == {
        "batches_per_block",
        "completion_tokens_per_text",
        "effective_k",
        "share_from_expansion",
    }


@pytest.mark.slow_except("claim0")
@pytest.mark.parametrize("claim", [{}, {"epsilon": None, "delta": None}])
def test_the_public_baseline_on_governed_data(almoner: Almoner, claim: dict[str, None]) -> None:
    written = {name: value for name, value in (public_only() | claim).items() if value is not None}
    almoner.ingested()
    almoner.type(f"release request {almoner.write('request.yaml', written)}")
    almoner.go_on_to("published")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert (report["epsilon"], report["rho"]) == ("0", "0")
    assert almoner.ask("budget show clinic")["rho_spent"] == "0"
    almoner.type("doctor")


def public_only() -> dict[str, object]:
    parameters = {name: value for name, value in REQUEST["parameters"].items() if name != "instalment"}
    return REQUEST | {"mechanism": "public_only", "parameters": parameters}


def test_the_non_private_baseline_on_public_data(almoner: Almoner) -> None:
    almoner.ingested("--public")
    written = public_only() | {"mechanism": "non_private", "evaluation": ["length", "verbatim_overlap"]}
    almoner.type(f"release request {almoner.write('request.yaml', written)}")
    almoner.go_on_to("published")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert report["holds"] is True
    assert report["epsilon"] is None
    assert "No differential privacy is claimed" in (almoner.bundle / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["published", "discarded"])
def test_internal_metrics_follow_the_decision(almoner: Almoner, when: str) -> None:
    almoner.produced()
    if when == "discarded":
        almoner.type('reject 1 --gate publish --reason "it reads badly"')
    else:
        almoner.go_on_to("published", after="produced")
    assert almoner.state() == when
    told = almoner.ask("evaluate 1 --internal")
    assert {metric["exposure"] for metric in told["metrics"]} == {"internal"}


def test_init_again_keeps_what_is_there(almoner: Almoner) -> None:
    almoner.published()
    before = almoner.everything()
    almoner.type("init")
    assert almoner.everything() == before


REAL = yaml.safe_load(
    """
dataset: clinic
kind: synthetic_corpus
mechanism: invisible_ink
epsilon: 4.0
delta: 1.0e-7
model: smollm2-135m-instruct
parameters: {samples: 2, references: 7, max_new_tokens: 16, temperature: 1.0, top_k: 100, max_reference_tokens: 64}
prompt: {description: "Short dialogues between a doctor and a patient about symptoms and history."}
evaluation: [length, distinct, perplexity]
"""
)


@pytest.mark.slow
def test_the_story_on_real_text_with_the_real_model(real_almoner: Almoner) -> None:
    almoner = real_almoner
    require(any(m.name == REAL["model"] and m.installed for m in list_models()), f"{REAL['model']} is not pulled")
    corpus = shared_data("mts_dialog.jsonl")
    almoner.type("init")
    almoner.type("dataset register clinic --unit id --epsilon 8 --delta 1e-6 --blocks 1")
    almoner.type(f"dataset ingest clinic {corpus}")
    almoner.type(f"release request {almoner.write('request.yaml', REAL)}")
    almoner.type('approve 1 --gate spend --reason "..."')
    assert almoner.ask("run 1")["texts"] == 2
    almoner.go_on_to("published", after="produced")
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True
    almoner.type("doctor")
